"""The trained policies that come with the package: run folders that hold a policy only."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from statewise.envs.suites import proper_name
from statewise.plugins import PluginOptions
from statewise.runs import checkpoint
from statewise.runs.files import as_json
from statewise.runs.folder import RunFolder
from statewise.settings import option, unknown

_FOLDER = Path(__file__).parent / "policies"
_ACTING = ("algo", "epoch", "skipped", "modules", "scaler", "extra")
"""Parts of an algorithm's state that acting needs."""


@dataclass(frozen=True, kw_only=True)
class PolicyOptions(PluginOptions):
    """Options of the commands that use a policy."""

    path: Path = option(positional=True, metavar="RUN")
    """A run folder, or one of its checkpoint files. With --policy: the name of a suite."""
    policy: str = option("", metavar="ALGO")
    """Use the policy of this algorithm that comes with statewise, such as scpo or trpo."""

    @property
    def run_path(self) -> Path:
        """The run folder that was asked for."""
        return pretrained(str(self.path), self.policy) if self.policy else self.path


def pretrained(suite: str, algo: str = "scpo") -> Path:
    """Return the run folder of a trained policy that comes with statewise.

    Pass it to `load_policy`, `evaluate`, `certify` or `replay`. There is a policy for each pair in
    `pretrained_policies()`. Others raise ValueError with the closest names.
    """
    suite, algo = proper_name(suite), algo.lower()
    names = pretrained_policies()
    suites = sorted({name for name, _ in names})
    if suite not in suites:
        raise ValueError(unknown("suite with a trained policy", suite, suites))
    if (suite, algo) not in names:
        known = [name for other, name in names if other == suite]
        raise ValueError(unknown("policy", algo, known, suite))
    return _FOLDER / suite / algo


def pretrained_policies() -> list[tuple[str, str]]:
    """Return the suites and algorithms of the trained policies that come with statewise."""
    found = _FOLDER.glob("*/*/config.json")
    return sorted((path.parent.parent.name, path.parent.name) for path in found)


def keep_policy(run: Path, out: Path) -> Path:
    """Write a run folder that holds only the final policy of `run`, and return its path.

    The folder can be evaluated, certified, replayed and exported. It cannot be resumed.
    """
    folder = RunFolder.open(run)
    (out / "checkpoints").mkdir(parents=True)

    def strip(file: Path, state: dict[str, object]) -> Path:
        algo = state["algo"]
        assert isinstance(algo, dict)
        acting = {name: algo[name] for name in _ACTING}
        kept = {name: state[name] for name in ("epoch", "run", "settings")} | {"algo": acting}
        checkpoint.save(out / "checkpoints" / file.name, kept)
        return out

    config = folder.config()
    config["train"] |= {"out": "runs"}  # where it was trained concerns nobody
    (out / "config.json").write_bytes(as_json(config))
    made_with = json.loads((run / "environment.json").read_text())
    kept = {name: made_with[name] for name in ("statewise", "python", "packages", "processor")}
    (out / "environment.json").write_bytes(as_json(kept))
    return folder.load(strip)
