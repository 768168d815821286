"""`statewise evaluate`: the return and safety of a trained policy."""

from __future__ import annotations

import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from statewise import settings
from statewise.cli_tables import evaluation_table
from statewise.console import console
from statewise.runs.files import as_json, write_atomically
from statewise.runs.folder import check_folder
from statewise.settings import number
from statewise.training import api
from statewise.training.api import worst_file
from statewise.zoo import PolicyOptions


@dataclass(frozen=True, kw_only=True)
class Evaluate(PolicyOptions):
    """Measure the return and the safety of a trained policy, over fresh episodes."""

    episodes: int = number(1000, least=1)
    """How many episodes to run."""
    seed: int = number(7, least=0, most=2**32 - 1)
    """Seed of the layouts."""
    sampled: bool = False
    """Draw actions from the policy instead of taking its mean."""
    threshold: float = number(0.0, least=0.0, finite=True)
    """A step violates a constraint if it costs more than this."""
    suite: str | None = None
    """Evaluate in this suite instead of the one of the run. Its sizes must be the same."""
    best_safe: bool = False
    """Use the policy of the run's safest epoch instead of its last one."""
    json: Path | None = None
    """Write the numbers to this file too."""
    worst: int = number(5, least=0, most=100)
    """Keep this many of the worst episodes of each constraint for `statewise replay`, in worst.npz in
    the run folder. If nothing can be written there, they go beside the file that --json names."""

    monitor: bool = False
    """Also show what a monitor does: violations without and with it, false alarms, lead time."""
    false_alarms: float = number(0.01, above=0.0, most=0.5)
    """Share of the safe episodes that this monitor may stop."""
    quiet: bool = False
    """Print warnings and errors only. --json still writes the numbers."""

    def __post_init__(self) -> None:
        settings.check(self)
        if self.monitor and (self.sampled or self.suite is not None):
            raise ValueError(
                "--monitor watches mean actions in the suite of the run: leave out --sampled and --suite"
            )

    def run(self) -> None:
        if self.json is not None:  # now, and not after all the episodes
            if self.json.is_dir():
                raise ValueError(f"--json {self.json} is a folder: name a file")
            check_folder("--json", self.json.parent)
        out = None if self.json is None else self.json.absolute()  # an environment may go elsewhere
        kept = self._worst_out()
        found = api.evaluate(
            self.run_path, self.episodes, self.seed, self.sampled, self.threshold, self.suite,
            self.best_safe, self.imports, self.trust, self.worst if kept else 0, kept,
        )  # fmt: skip
        screen = console(quiet=self.quiet)
        screen.print(evaluation_table(found))
        numbers = found.as_dict() | self._try_monitor(screen)
        if out is not None:
            write_atomically(out, as_json(numbers, indent=2))
            screen.print(f"numbers: {self.json}", soft_wrap=True)
        if self.worst and found.constraints:
            where = kept or (
                "not kept: --json FILE keeps them beside that file"
                if self.policy
                else f"not kept, as nothing can be written to {worst_file(self.run_path).parent}"
            )
            screen.print(f"worst episodes: {where}", soft_wrap=True)

    def _try_monitor(self, screen: Console) -> dict[str, Any]:
        """Run and print the trial of a monitor, if one was asked for."""
        if not self.monitor:
            return {}
        from statewise.deploy.monitor_trial import monitor_trial, trial_table

        trial = monitor_trial(
            self.run_path, self.episodes, self.seed, self.false_alarms, self.best_safe, self.imports,
            self.trust,
        )  # fmt: skip
        screen.print(trial_table(trial))
        return {"monitor": asdict(trial)}

    def _worst_out(self) -> Path | None:
        """Where the worst episodes go; None if they cannot be written."""
        if self.policy:  # nothing is written into the package
            return self.json.with_suffix(".worst.npz") if self.json is not None else None
        usual = worst_file(self.run_path)
        if os.access(usual.parent, os.W_OK) or not usual.parent.exists():
            return usual
        return self.json.with_suffix(".worst.npz") if self.json is not None else None
