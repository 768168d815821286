"""A table that can be a web page's or a Markdown file's."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from statewise.core.statistics import Interval
from statewise.text import number

NONE = "–"


@dataclass(frozen=True)
class Strip:
    """An interval to draw in a cell, on a scale that its column shares."""

    interval: Interval
    reference: float | None
    low: float
    high: float

    def place(self, value: float) -> float:
        """Where a value lies on the scale, from 0 to 1."""
        share = (value - self.low) / ((self.high - self.low) or 1.0)
        return min(max(share, 0.0), 1.0)


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
