"""Shows a grid: a live table in a terminal, or else a line for each run that ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from statewise import metrics
from statewise.bench.estimate import as_text, grid_seconds_left, seconds_left
from statewise.bench.grid import Run, State
from statewise.console import printable, styled
from statewise.text import several
from statewise.training.view import LiveView

_STYLES: dict[State, str] = {
    "running": "cyan", "finished": "green", "failed": "red", "conflict": "red", "damaged": "red",
    "busy": "yellow", "interrupted": "yellow", "new": "dim",
}  # fmt: skip
_WORDS: dict[State, str] = {"new": "waiting", "busy": "elsewhere", "conflict": "other settings"}
_NUMBERS = tuple(key for key in metrics.COLUMNS if not key.startswith("time/"))
_COLUMNS: dict[str, Literal["left", "right"]] = {
    "suite": "left", "algorithm": "left", "seed": "right", "state": "left", "progress": "left",
    "": "right", **{metrics.title(key): "right" for key in (*_NUMBERS, "time/steps_per_second")},
    "time left": "right",
}  # fmt: skip
_DISPENSABLE = (
    "progress",
    *(metrics.title(k) for k in ("time/steps_per_second", *_NUMBERS[:0:-1])),
)
"""Columns left out in a narrow terminal, the first one first."""
_ENDED = ("finished", "failed", "conflict", "damaged", "busy")
_OTHER_LINES = 6
"""Lines of the terminal for the table's header, the summary and a notice, which may wrap."""


class GridView(LiveView):
    """Shows all runs; use as a context around `launch` and give it as its `report`."""

    def __init__(self, console: Console) -> None:
        super().__init__(console, Live(console=console, auto_refresh=False))
        self._shown: dict[int, State] = {}

    def __call__(self, runs: Sequence[Run], notice: str) -> None:
        if self.console.is_terminal:
            rows = max(3, self.console.height - _OTHER_LINES)
            self.live.update(picture(runs, rows, self.console.width, notice), refresh=True)
        else:
            self._lines(runs)

    def _lines(self, runs: Sequence[Run]) -> None:
        """A line for each run that has ended since the last call."""
        first = not self._shown
        for run in runs:
            changed = self._shown.get(id(run)) != run.state
            self._shown[id(run)] = run.state
            if changed and not first and run.state in _ENDED:
                self.console.print(line(run), soft_wrap=True)


def picture(runs: Sequence[Run], rows: int, width: int = 130, notice: str = "") -> Group:
    """Return a table of the most relevant runs, with a summary of all runs below it."""
    below = Text(f"\n{summary(runs)}")
    if notice:
        below.append(f"\n{printable(notice)}", style="bold yellow")
    return Group(_run_table(window(runs, rows), runs, width), below)


def window(runs: Sequence[Run], rows: int) -> list[Run]:
    """Return at most so many runs, in the order of the grid.

    Running and failed runs come first. Then follow the runs next to the running ones.
    """
    if len(runs) <= rows:
        return list(runs)
    running = [i for i, run in enumerate(runs) if run.state == "running"]
    middle = sum(running) / len(running) if running else 0.0

    def importance(i: int) -> tuple[int, float]:
        first = ("running", "failed", "conflict", "damaged", "busy")
        state = runs[i].state
        return (first.index(state) if state in first else len(first), abs(i - middle))

    chosen = sorted(range(len(runs)), key=importance)[:rows]
    return [runs[i] for i in sorted(chosen)]


def _run_table(shown: Sequence[Run], runs: Sequence[Run], width: int) -> Table:
    """One row for each run shown; `runs` are all, whose speeds tell the time left.

    In a narrow terminal the least important columns are left out.
    """
    rows = [_cells(run, runs) for run in shown]
    columns = list(_COLUMNS)
    widths = {name: max([len(name), *(len(row[name]) for row in rows)]) for name in columns}
    for name in _DISPENSABLE:
        if sum(widths[c] + 2 for c in columns) > width:
            columns.remove(name)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for name in columns:
        table.add_column(name, justify=_COLUMNS[name], no_wrap=True)
    for row in rows:
        table.add_row(*(row[name] for name in columns))
    return table


def _cells(run: Run, runs: Sequence[Run]) -> dict[str, Text]:
    """A row by column."""
    done, left = round(10 * run.progress), seconds_left(run, runs)
    speed = run.metrics.get("time/steps_per_second")
    texts = [
        run.spec.suite, run.spec.name, str(run.spec.seed), _word(run), "━" * done + "·" * (10 - done),
        f"{run.progress:.0%}", *numbers(run), "" if speed is None else f"{speed:,.0f}",
        as_text(left) if left else "",
    ]  # fmt: skip
    styles = {"state": _STYLES[run.state], "progress": _STYLES[run.state]}
    return {
        name: styled(text, styles.get(name, "")) for name, text in zip(_COLUMNS, texts, strict=True)
    }


def summary(runs: Sequence[Run]) -> str:
    """Counts by state, and the time until all is done."""
    counts: dict[str, int] = {}
    for run in sorted(runs, key=lambda r: list(_STYLES).index(r.state)):
        counts[_word(run)] = counts.get(_word(run), 0) + 1
    text = f"{several(len(runs), 'run')}: " + ", ".join(f"{n} {word}" for word, n in counts.items())
    if "running" not in counts:
        return text
    return f"{text}; about {as_text(grid_seconds_left(runs, counts['running']))} left"


def line(run: Run) -> str:
    """A run in one plain line."""
    if run.state != "finished":
        return f"{_word(run)}: {run}: {(run.note.splitlines() or [''])[-1]}"
    shown = zip(_NUMBERS, numbers(run), strict=True)
    named = ", ".join(f"{metrics.title(key)} {value or '-'}" for key, value in shown)
    return f"finished: {run}: {named}, {as_text(run.metrics.get('time/total', 0.0))}"


def numbers(run: Run) -> list[str]:
    """The newest metrics as text; empty before the first epoch."""
    values = [run.metrics.get(key) for key in _NUMBERS]
    return ["" if v is None else metrics.text(k, v) for k, v in zip(_NUMBERS, values, strict=True)]


def _word(run: Run) -> str:
    return _WORDS.get(run.state, run.state)
