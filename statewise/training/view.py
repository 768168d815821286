"""What a person sees while a run trains: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import time
from types import TracebackType
from typing import Any

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from statewise.training.loop import Training

_CASES = {0: "recovery", 1: "violated", 2: "near the limit", 3: "safe", 4: "unconstrained"}
_LINE_SECONDS = 10.0


class View:
    """Shows each epoch; use as a context around the run and call it with the metrics."""

    def __init__(self, training: Training, console: Console) -> None:
        self.training, self.console = training, console
        self._bar = Progress(
            TextColumn("[bold]{task.description}"),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("epochs, left"),
            TimeRemainingColumn(),
            console=console,
        )
        settings = training.settings
        self._task = self._bar.add_task(
            f"{settings.algo} on {settings.suite}, seed {settings.seed}",
            total=settings.epochs,
            completed=training.epoch,
        )
        self._live = Live(self._bar, console=console, refresh_per_second=4)
        self._last_line = 0.0

    def __enter__(self) -> View:
        if self.console.is_terminal:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self._live.stop()

    def __call__(self, metrics: dict[str, Any]) -> None:
        self._bar.update(self._task, completed=metrics["epoch"])
        if self.console.is_terminal:
            self._live.update(Group(self._table(metrics), self._bar))
        elif self.training.finished or time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            self.console.print(self._line(metrics), soft_wrap=True, highlight=False)

    def _table(self, metrics: dict[str, Any]) -> Table:
        table = Table(show_header=False, box=None, padding=(0, 3, 0, 0))
        rows = self._numbers(metrics)
        for left, right in itertools.zip_longest(rows[::2], rows[1::2], fillvalue=("", "")):
            table.add_row(left[0], left[1], right[0], right[1])
        return table

    def _line(self, metrics: dict[str, Any]) -> str:
        numbers = ", ".join(f"{name} {value}" for name, value in self._numbers(metrics))
        return f"epoch {metrics['epoch']}/{self.training.settings.epochs}: {numbers}"

    def _numbers(self, metrics: dict[str, Any]) -> list[tuple[str, str]]:
        """The few numbers worth watching, as text."""
        collect, update = metrics["time/collect"], metrics["time/update"]
        rows = [
            ("steps", f"{metrics['steps']:,}"),
            ("episodes", str(metrics["episode/count"])),
            ("return", _number(metrics["episode/return"])),
            ("episode length", _number(metrics["episode/length"], 0)),
        ]
        for name in self.training.env.spec.cost_names:
            rows += [
                (f"{name} cost an episode", _number(metrics[f"cost/{name}/episode"])),
                (f"{name} maximum", _number(metrics[f"cost/{name}/max"], 4)),
                (f"{name} cost rate", _number(metrics[f"cost/{name}/rate"], 5)),
                (f"{name} this epoch", _number(metrics[f"cost/{name}/epoch_rate"], 5)),
            ]
        case = metrics.get("policy/case")
        rows += [
            ("KL", _number(metrics.get("policy/kl"), 4)),
            ("case", "-" if case is None else _CASES.get(int(case), str(case))),
            ("steps/s", f"{metrics['time/steps_per_second']:,.0f}"),
            ("collect + update", f"{collect:.2f} + {update:.2f} s"),
        ]
        troubles = {
            "simulator faults": metrics["sim/faults"],
            "updates skipped": metrics.get("update/skipped", 0),
        }
        rows += [(name, f"[red]{int(n)}[/red]") for name, n in troubles.items() if n]
        return rows


def _number(value: float | None, digits: int = 3) -> str:
    return "-" if value is None else f"{value:.{digits}f}"
