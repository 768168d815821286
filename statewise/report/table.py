"""A table that can be a web page's or a Markdown file's, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from statewise.core.statistics import Interval

NONE = "–"


@dataclass(frozen=True)
class Strip:
    """An interval to draw in a cell, on a scale that its column shares."""

    interval: Interval
    reference: float | None
    low: float
    high: float


@dataclass(frozen=True)
class Cell:
    """What is shown, and what it is sorted by."""

    text: str
    value: float | str | None = None
    strip: Strip | None = None
    tone: str = ""
    """good, bad, reference, code, or nothing"""
    link: str = ""
    hint: str = ""

    @classmethod
    def words(cls, text: str, link: str = "") -> Cell:
        return cls(text, text.casefold(), link=link)

    @classmethod
    def count(cls, count: int) -> Cell:
        return cls(f"{count:,}", count)

    @classmethod
    def number(cls, value: float | None, text: str | None = None, tone: str = "") -> Cell:
        """A number, as `number` writes it unless a text is given."""
        if value is None or not math.isfinite(value):
            return cls(NONE)
        return cls(number(value) if text is None else text, value, tone=tone)

    @classmethod
    def interval(cls, interval: Interval | None, text: Callable[[Interval], str]) -> Cell:
        return cls(NONE) if interval is None else cls(text(interval), interval.high)


@dataclass(frozen=True)
class Column:
    name: str
    cell: Callable[[Any], Cell]
    """Makes its cell of the subject of a row"""
    help: str = ""
    numeric: bool = True
    strips: bool = False
    """Its cells are drawn, not only written"""
    folded: bool = False
    """Shown on demand"""

    @classmethod
    def words(cls, name: str, text: Callable[[Any], str]) -> Column:
        return cls(name, lambda subject: Cell.words(text(subject)), numeric=False)


class Row(NamedTuple):
    cells: Sequence[Cell]
    algo: str = ""
    """The algorithm whose own row this is"""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    footer: Row | None = None
    notes: Sequence[str] = ()
    """Sentences below it"""
    wraps: bool = False
    """Long text in its cells may wrap"""
    folded: bool = False
    """Shown on demand"""

    @classmethod
    def of(
        cls, caption: str, columns: Sequence[Column], subjects: Sequence[Any], **more: Any
    ) -> Table:
        """A row for each subject. That of a group of runs, or of its part, is its algorithm's."""
        rows = []
        for subject in subjects:
            algo = getattr(getattr(subject, "group", subject), "own", "")
            rows.append(Row([column.cell(subject) for column in columns], algo))
        return cls(caption, columns, rows, **more)


def number(value: float, digits: int = 3) -> str:
    """Three significant digits, without an exponent: 0.00081, 2.56, 12,300."""
    if value == 0 or abs(value) < 1e-9:
        return "0"
    if abs(value) >= 1000:
        return f"{float(f'{value:.{digits}g}'):,.0f}"
    return f"{value:.{_decimals(value, digits)}f}"


def spread(mean: float, std: float | None) -> str:
    """`2.56 ± 0.01`: as many decimals as show the spread, within reason."""
    if std is None or not math.isfinite(std):
        return number(mean)
    decimals = _decimals(mean, 3) if mean else 0
    if std > 0:
        decimals = max(decimals, min(_decimals(std, 1), decimals + 2))
    text = f"{std:.{decimals}f}"
    return f"{mean:.{decimals}f} ± {text if float(text) else '0'}"


def percent(share: float) -> str:
    """Two digits of a share: 0.25 %, 7.7 %, 43 %."""
    value = 100 * share
    if value == 0:
        return "0 %"
    return f"{value:.{1 if value >= 1 else _decimals(value, 2)}f} %"


def interval_text(interval: Interval) -> str:
    decimals = min(_decimals(interval.high, 3), 6) if interval.high else 0
    low = f"{interval.low:.{decimals}f}" if interval.low else "0"
    return f"{low} to {interval.high:.{decimals}f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def millions(steps: int) -> str:
    """Millions with two decimals, or two digits of fewer than 100,000 steps: never 0 of some."""
    short = round(steps / 1e6, 2) if steps >= 100_000 else float(f"{steps / 1e6:.2g}")
    return f"{short:.6f}".rstrip("0").rstrip(".")


def several(count: int, what: str) -> str:
    """`1 suite`, `3 suites`."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def listed(names: Sequence[str]) -> str:
    """`a, b and c`."""
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last


def short(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """For JSON: as many significant digits as a curve can show; None where not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _decimals(value: float, digits: int) -> int:
    """Decimals that show so many significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))
