"""`statewise replay RUN`."""

from __future__ import annotations

import webbrowser
from dataclasses import dataclass
from pathlib import Path

from statewise import settings
from statewise.console import say
from statewise.deploy.replay import replay
from statewise.settings import number, option
from statewise.zoo import PolicyOptions


@dataclass(frozen=True, kw_only=True)
class Replay(PolicyOptions):
    """Write a web page that replays the worst episodes of a policy in 3D, with its numbers."""

    worst: int = number(5, least=1, most=100)
    """How many episodes of each constraint to show, the worst first."""
    against: Path | None = option(None, metavar="RUN")
    """Show the policy of this run beside it, on the same layouts."""
    out: Path = Path("replay.html")
    """The page to write."""
    episodes: int | None = number(None, least=1)
    """Find the worst among this many fresh episodes, instead of showing those that `evaluate` kept."""
    seed: int = number(7, least=0, most=2**32 - 1)
    """Seed of the layouts of fresh episodes."""
    sampled: bool = False
    """Draw actions from the policy instead of taking its mean."""
    best_safe: bool = False
    """Take the policy of the run's safest epoch instead of its last one."""
    open: bool = False
    """Show the page in the browser."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        page = replay(
            self.run_path, self.out, self.worst, self.against, self.episodes, self.seed, self.sampled,
            self.best_safe, self.imports, self.trust,
        )  # fmt: skip
        say(f"replay: {page} ({page.stat().st_size / 1e6:.1f} MB). Open it in a browser")
        if self.open:
            webbrowser.open(page.resolve().as_uri())
