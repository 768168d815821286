"""Parts that somebody adds to a report."""

from __future__ import annotations

import base64
import mimetypes
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

    @property
    def embedded(self) -> str:
        """An address that holds the picture itself."""
        kind = mimetypes.guess_type(self.file.name)[0]
        if kind is None or not kind.startswith("image/"):
            raise ValueError(f"{self.file} is no picture for a page: use .png, .svg or .jpg")
        return f"data:{kind};base64,{base64.b64encode(self.file.read_bytes()).decode()}"


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
