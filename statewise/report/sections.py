"""Parts that somebody adds to a report."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from statewise.report.table import Table


class Statement(NamedTuple):
    """A claim about a suite that holds, or does not."""

    suite: str
    text: str
    holds: bool


class Picture(NamedTuple):
    """A picture file (PNG, SVG, ...), which the report copies."""

    file: Path
    title: str
    caption: str = ""

    @property
    def address(self) -> str:
        """Its copy, beside the report."""
        return f"pictures/{self.file.name}"


class Section(NamedTuple):
    """A part that somebody adds to a report."""

    title: str
    lines: tuple[str, ...] = ()
    """Paragraphs of plain text"""
    pictures: tuple[Picture, ...] = ()
    tables: tuple[Table, ...] = ()
    statements: tuple[Statement, ...] = ()
    """Claims that its tables judge, which are shown with their suites too"""
    labels: tuple[str, ...] = ()
    """Runs that it shows, which the curves of the suites then leave out"""
