"""`statewise list` and `statewise demo`."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from statewise.cli_tables import (
    algorithm_table,
    constraint_table,
    robot_table,
    suite_table,
    task_table,
)
from statewise.commands.evaluate import Evaluate
from statewise.commands.play import Play
from statewise.commands.report import Plot
from statewise.commands.train import leave_if_stopped
from statewise.console import console, say
from statewise.deploy.replay import replay
from statewise.extras import need
from statewise.plugins import ImportOptions, import_modules
from statewise.settings import number, option
from statewise.text import percent
from statewise.training import api
from statewise.zoo import pretrained

_SUITE, _EPISODES = "Point-Hazard-8", 500
"""What the demo trains in, and how many episodes it evaluates"""


@dataclass(frozen=True)
class List(ImportOptions):
    """Print a table of the algorithms, suites, robots, constraints or tasks."""

    what: Literal["algos", "suites", "robots", "constraints", "tasks"] = option(
        positional=True, metavar="{algos,suites,robots,constraints,tasks}"
    )
    """Which of them."""

    def run(self) -> None:
        import_modules(self.imports)
        tables = {
            "algos": algorithm_table,
            "suites": suite_table,
            "robots": robot_table,
            "constraints": constraint_table,
            "tasks": task_table,
        }
        console().print(tables[self.what]())


@dataclass(frozen=True)
class Demo:
    """Train SCPO on Point-Hazard-8 for a minute, evaluate it, draw its curves, record a video, and
    write a page that replays its worst episodes."""

    steps: int = number(600_000, least=30_000)
    """Environment steps to train for. A full run takes 6 million."""
    out: Path = Path("out/demo")
    """Where everything goes, in a new folder for each demo."""

    def run(self) -> None:
        need("the demo", "report", "matplotlib")
        need("the demo", "video")
        out = self.out / time.strftime("%Y%m%d-%H%M%S")
        run = api.train(_SUITE, steps=self.steps, out=str(out))
        leave_if_stopped(run)
        Evaluate(path=run, episodes=_EPISODES, json=out / "evaluation.json").run()
        Plot((run,), out / "curves.png").run()
        Play(what=str(run), video=out / "policy.mp4", seconds=10, speed=False).run()
        full = pretrained(_SUITE, "scpo")
        page = replay(run, out / "replay.html", against=full)
        say(f"\nreplay of the worst episodes, to open in a browser: {page}")
        say(f"everything is in {out}\n")
        trained = json.loads((out / "evaluation.json").read_text())
        say(self.meaning(trained, api.evaluate(full, _EPISODES).as_dict()))

    def meaning(self, found: dict[str, Any], full: dict[str, Any]) -> str:
        """What the numbers of the evaluation mean, and what to do about them.

        full: the numbers of the policy that comes with statewise, trained for as long as in the paper.
        """
        short, long = (percent(one["constraints"][0]["rate"]) for one in (found, full))
        return (
            f"What it means: after {self.steps:,} steps {short} of the episodes still enter a hazard.\n"
            f"SCPO lowers violations over millions of steps. The policy that comes with statewise was\n"
            f"trained for 6,000,000 steps, as in the paper: {long} of its episodes do. The replay page\n"
            f"shows both on the same layouts.\n\n"
            f"Next: `statewise train {_SUITE}` trains for as long. `--margin 0.1` makes the policy\n"
            f"keep its distance. `statewise certify {_SUITE} --policy scpo` tests a claim about it."
        )
