"""A table that can be a web page's or a Markdown file's, and how numbers are written."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

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


@dataclass(frozen=True)
class Column:
    name: str
    numeric: bool = True
    help: str = ""
    strips: bool = False
    """Its cells are drawn, not only written"""
    folded: bool = False
    """Shown on demand"""


@dataclass(frozen=True)
class Row:
    cells: Sequence[Cell]
    algo: str = ""
    """The algorithm whose own row this is"""


@dataclass(frozen=True)
class Table:
    caption: str
    columns: Sequence[Column]
    rows: Sequence[Row]
    footer: Row | None = None
    notes: Sequence[str] = field(default=())
    """Sentences below it"""
    wraps: bool = False
    """Long text in its cells may wrap"""
    folded: bool = False
    """Shown on demand"""


def text_cell(text: str, link: str = "") -> Cell:
    return Cell(text, text.casefold(), link=link)


def number_cell(value: float | None, text: str | None = None, tone: str = "") -> Cell:
    """A number, as `number` writes it unless a text is given."""
    if value is None or not math.isfinite(value):
        return Cell(NONE)
    return Cell(number(value) if text is None else text, value, tone=tone)


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


def interval_text(low: float, high: float) -> str:
    decimals = min(_decimals(high, 3), 6) if high else 0
    return f"{low:.{decimals}f} to {high:.{decimals}f}" if low else f"0 to {high:.{decimals}f}"


def duration(seconds: float) -> str:
    if seconds < 100:
        return f"{seconds:.0f} s"
    if seconds < 6000:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"


def short(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """For JSON: as many significant digits as a curve can show; None where not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _decimals(value: float, digits: int) -> int:
    """Decimals that show so many significant digits."""
    if value == 0 or not math.isfinite(value):
        return 0
    return max(0, digits - 1 - math.floor(math.log10(abs(value))))
