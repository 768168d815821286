"""`statewise export`: a policy as a folder for a robot."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from statewise import settings
from statewise.console import say
from statewise.deploy.export import check_out
from statewise.extras import need
from statewise.settings import number
from statewise.training.policy import load_policy
from statewise.zoo import PolicyOptions


@dataclass(frozen=True, kw_only=True)
class Export(PolicyOptions):
    """Write a trained policy to a folder that runs on a robot, without torch and statewise."""

    out: Path = Path("bundle")
    """The folder to write. It must not exist, be empty, or be a bundle, which is replaced."""
    best_safe: bool = False
    """Take the policy of the run's safest epoch instead of its last one."""
    measured: Literal["auto", "clearance", "cost"] = "auto"
    """What the policy is given of each constraint: its clearance, or the learner's cost."""
    false_alarms: float = number(0.01, above=0.0, most=0.5)
    """Share of the safe episodes that the monitor may stop."""
    warnings: float = number(0.1, above=0.0, most=0.9)
    """Share of the safe episodes in which the monitor may warn."""
    episodes: int = number(1500, least=1)
    """Fresh episodes that the limits of the monitor come from."""
    seed: int = number(0, least=0, most=2**32 - 1)
    """Seed of their layouts."""
    opset: int = number(13, least=1)
    """ONNX operator set of the graph, from 13 to 17."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        need("exporting", "export")
        check_out(self.out)
        policy = load_policy(self.run_path, self.best_safe, self.imports, self.trust)
        run = self.run_path if self.run_path.is_dir() else self.run_path.absolute().parent.parent
        policy.export(
            self.out, run=run, measured=self.measured, false_alarms=self.false_alarms,
            warnings=self.warnings, episodes=self.episodes, seed=self.seed, opset=self.opset,
        )  # fmt: skip
        size = sum(file.stat().st_size for file in self.out.iterdir() if file.is_file())
        say(
            f"bundle: {self.out} ({size / 1000:.0f} kB). {self.out / 'README.md'} says how to use it"
        )
