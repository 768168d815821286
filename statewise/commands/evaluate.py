"""`statewise evaluate`: numbers about a trained policy."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from statewise import settings
from statewise.cli_tables import console, evaluation_table
from statewise.plugins import PluginOptions
from statewise.runs.files import write_atomically
from statewise.runs.folder import check_folder
from statewise.settings import number, option
from statewise.training import api


@dataclass(frozen=True, kw_only=True)
class Evaluate(PluginOptions):
    """Say how good and how safe a trained policy is, over fresh episodes."""

    path: Path = option(positional=True, metavar="RUN")
    """A run folder, or one of its checkpoint files."""
    episodes: int = number(1000, least=1)
    """How many episodes to run."""
    seed: int = number(7, least=0, most=2**32 - 1)
    """Seed of the layouts."""
    sampled: bool = False
    """Draw actions from the policy instead of taking its mean."""
    threshold: float = number(0.0, least=0.0, finite=True)
    """A step violates a constraint if it costs more than this."""
    suite: str | None = None
    """Evaluate in another suite of the same sizes than the one it was trained in."""
    best_safe: bool = False
    """Take the policy of the run's safest epoch instead of its last one."""
    json: Path | None = None
    """Write the numbers to this file too."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        if self.json is not None:  # now, and not after all the episodes
            if self.json.is_dir():
                raise ValueError(f"--json {self.json} is a folder: name a file")
            check_folder("--json", self.json.parent)
        found = api.evaluate(
            self.path, self.episodes, self.seed, self.sampled, self.threshold, self.suite,
            self.best_safe, self.imports, self.trust,
        )  # fmt: skip
        console().print(evaluation_table(found))
        if self.json is not None:
            write_atomically(self.json, (json.dumps(found.as_dict(), indent=2) + "\n").encode())
            print(f"numbers: {self.json}")
