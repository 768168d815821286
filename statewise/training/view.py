"""What a person sees while runs train: a live table in a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections import deque
from datetime import timedelta
from types import TracebackType
from typing import Any, Self

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, Progress, TextColumn
from rich.table import Table
from rich.text import Text

from statewise import metrics
from statewise.console import styled
from statewise.text import several
from statewise.training.loop import Training

_CASES = {
    0: "lowers the cost only", 1: "over the limit, corrected", 2: "near the limit",
    3: "within the limit", 4: "no constraint matters",
}  # fmt: skip
_TROUBLES = ("sim/faults", "update/skipped")
_LINE_SECONDS = 10.0
_WIDE = 100
"""Columns of a terminal from which on the table has room for units."""
_AGO = 10
"""Epochs between the two that the table compares."""


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
        self._recent: deque[dict[str, Any]] = deque(maxlen=_AGO + 1)
        self._bar = Progress(
            TextColumn("epoch {task.completed:.0f} of {task.total:.0f}"),
            BarColumn(bar_width=None),
            TextColumn("{task.description}"),
            console=console,
        )
        self._task = self._bar.add_task(
            "the first epoch is running", total=training.settings.epochs, completed=training.epoch
        )
        super().__init__(console, Live(self._bar, console=console, refresh_per_second=4))
        self._last_line = 0.0

    def __call__(self, epoch: dict[str, Any]) -> None:
        self._recent.append(epoch)
        self._bar.update(self._task, completed=epoch["epoch"], description=self._pace())
        if self.console.is_terminal:
            self.live.update(Group("", self._table(), self._last_update(), "", self._bar))
        elif self.training.finished or time.monotonic() - self._last_line > _LINE_SECONDS:
            self._last_line = time.monotonic()
            self.console.print(self._line(), soft_wrap=True, highlight=False)

    def _table(self) -> Table:
        """The numbers worth watching: now, their units, and what they were some epochs ago."""
        now, before = self._recent[-1], self._recent[0]
        ago, wide = now["epoch"] - before["epoch"], self.console.width >= _WIDE
        table = Table(box=None, padding=(0, 3, 0, 0), header_style="dim")
        table.add_column("", no_wrap=True)
        table.add_column("now", justify="right", style="bold", no_wrap=True)
        if wide:
            table.add_column("", style="dim", no_wrap=True)
        table.add_column("trend", no_wrap=True)
        table.add_column(f"{several(ago, 'epoch')} ago", justify="right", style="dim", no_wrap=True)
        for key in self._keys():
            value, old = now.get(key), before.get(key)
            shown, unit = _text(key, value), metrics.find(key).unit
            past = _text(key, old) if ago else ""
            units = (unit,) if wide else ()
            table.add_row(metrics.title(key), shown, *units, _trend(key, value, old), past)
        for key in _TROUBLES:
            if now.get(key):
                shown = _text(key, now[key])
                table.add_row(styled(metrics.title(key), "red"), styled(shown, "red"))
        return table

    def _last_update(self) -> str:
        """What the update of the newest epoch did about the constraints, if the algorithm says so."""
        case = self._recent[-1].get("policy/case")
        return "" if case is None else f"last update: {_CASES.get(int(case), str(case))}"

    def _line(self) -> str:
        """The same in one line, for a log file."""
        now = self._recent[-1]
        keys = [*self._keys(), *(key for key in _TROUBLES if now.get(key))]
        numbers = ", ".join(f"{metrics.title(k)} {_text(k, now.get(k))}" for k in keys)
        return f"epoch {now['epoch']}/{self.training.settings.epochs}: {numbers} ({self._pace()})"

    def _keys(self) -> list[str]:
        keys = metrics.live_keys(self.training.env.spec.cost_names)
        return [key for key in keys if key != "time/steps_per_second"]  # stands beside the bar

    def _pace(self) -> str:
        """Time left and speed, from the last epochs."""
        recent = list(self._recent)
        seconds = sum(m["time/collect"] + m["time/update"] for m in recent) / len(recent)
        left = (self.training.settings.epochs - recent[-1]["epoch"]) * seconds
        speed = _text("time/steps_per_second", recent[-1]["time/steps_per_second"])
        return f"{timedelta(seconds=round(left))} left, {speed} steps/s"


def _trend(key: str, now: float | None, before: float | None) -> Text:
    """An arrow from what a number was to what it is, and whether that is better."""
    if now is None or before is None or _text(key, now) == _text(key, before):
        return Text("")
    arrow, less = ("↑" if now > before else "↓"), metrics.find(key).less_is_better
    if less is None:
        return Text("")
    better = (now < before) == less
    return styled(f"{arrow} {'better' if better else 'worse'}", "green" if better else "red")


def _text(key: str, value: float | None) -> str:
    """A value as people read it: shares are percentages."""
    if key.endswith("violation_rate") and value is not None:
        return f"{100 * value:.1f} %"
    return metrics.text(key, value)
