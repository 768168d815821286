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
        run = api.train("Point-Hazard-8", steps=self.steps, out=str(out))
        leave_if_stopped(run)
        Evaluate(path=run, episodes=500, json=out / "evaluation.json").run()
        Plot((run,), out / "curves.png").run()
        Play(what=str(run), video=out / "policy.mp4", seconds=10, speed=False).run()
        page = replay(run, out / "replay.html")
        say(f"\nreplay of the worst episodes, to open in a browser: {page}")
        say(f"all of it is in {out}\n")
        say(self.meaning(json.loads((out / "evaluation.json").read_text())))

    def meaning(self, found: dict[str, Any]) -> str:
        """What the numbers of the evaluation mean, and what to do about them."""
        share = percent(found["constraints"][0]["rate"])
        return (
            f"What it means: {share} of the episodes still enter a hazard. SCPO lowers violations over\n"
            f"millions of steps, and this demo took {self.steps:,}. The paper's runs take 6,000,000.\n"
            f"For fewer violations train longer, with `statewise train Point-Hazard-8`, or let the cost\n"
            f"begin before the hazard does, with `--margin 0.1`. The replay page shows what went wrong."
        )
