"""What a person sees while runs train: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import itertools
import time
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text

from statewise import metrics
from statewise.console import printable, styled
from statewise.training.loop import Training

_CASES = {0: "recovery", 1: "violated", 2: "near the limit", 3: "safe", 4: "unconstrained"}
_TROUBLES = ("sim/faults", "update/skipped")
_LINE_SECONDS = 10.0


class LiveView:
    """A context in which a terminal shows `self.live`; elsewhere nothing is drawn."""

    def __init__(self, console: Console, live: Live) -> None:
        self.console, self.live = console, live

    def __enter__(self) -> Self:
        if self.console.is_terminal:
            self.live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.console.is_terminal:
            self.live.stop()


class View(LiveView):
    """Shows each epoch of a run; call it with the metrics."""

    def __init__(self, training: Training, console: Console) -> None:
        self.training = training
        self._bar = Progress(
            TextColumn("{task.description}", style="bold", markup=False),
            BarColumn(bar_width=None),
            MofNCompleteColumn(),
            TextColumn("epochs, left"),
            TimeRemainingColumn(),
            console=console,
        )
        settings = training.settings
        self._task = self._bar.add_task(
            printable(f"{settings.algo} on {settings.suite}, seed {settings.seed}"),
            total=settings.epochs,
            completed=training.epoch,
        )
        super().__init__(console, Live(self._bar, console=console, refresh_per_second=4))
        self._last_line = 0.0

    def __call__(self, epoch: dict[str, Any]) -> None:
        self._bar.update(self._task, completed=epoch["epoch"])
        if self.console.is_terminal:
            self.live.update(Group(self._table(epoch), self._bar))
        elif self.training.finished or time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            numbers = ", ".join(f"{name} {value}" for name, value in self._numbers(epoch))
            line = f"epoch {epoch['epoch']}/{self.training.settings.epochs}: {numbers}"
            self.console.print(line, soft_wrap=True)

    def _table(self, epoch: dict[str, Any]) -> Table:
        table = Table(show_header=False, box=None, padding=(0, 3, 0, 0))
        rows: list[tuple[str | Text, str | Text]] = [*self._numbers(epoch)]
        rows += [(styled(metrics.title(key), "red"), styled(str(epoch[key]), "red"))
                 for key in _TROUBLES if epoch.get(key)]  # fmt: skip
        for left, right in itertools.zip_longest(rows[::2], rows[1::2], fillvalue=("", "")):
            table.add_row(*left, *right)
        return table

    def _numbers(self, epoch: dict[str, Any]) -> list[tuple[str, str]]:
        """The numbers worth watching, as text."""
        keys = metrics.live_keys(self.training.env.spec.cost_names)
        rows = [(metrics.title(key), metrics.text(key, epoch.get(key))) for key in keys]
        if (case := epoch.get("policy/case")) is not None:
            rows.append((metrics.title("policy/case"), _CASES.get(int(case), str(case))))
        rows.append(
            ("collect + update", f"{epoch['time/collect']:.2f} + {epoch['time/update']:.2f} s")
        )
        if not self.console.is_terminal:
            rows += [(metrics.title(k), str(epoch[k])) for k in _TROUBLES if epoch.get(k)]
        return rows
