"""Hand-written explanations: a Markdown file with a heading for each suite it speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt

_RENDERER = MarkdownIt("commonmark", {"html": False}).enable("table")


@dataclass(frozen=True)
class Notes:
    """Markdown by suite; `overview` is what stands before the first suite's heading."""

    overview: str
    suites: dict[str, str]
    unknown: tuple[str, ...]
    """Headings that look like a suite, and are not in the report"""


def read_notes(path: Path | None, suites: Sequence[str]) -> Notes:
    """Split a file at its headings `# Point-Hazard-8` or `## Point-Hazard-8`."""
    if path is None:
        return Notes("", {}, ())
    if not path.is_file():
        raise ValueError(f"the notes file {path} does not exist")
    parts: dict[str, list[str]] = {"": []}
    here, unknown = "", []
    for line in path.read_text().splitlines():
        heading = re.fullmatch(r"##?\s+(\S+)\s*", line)
        if heading and heading[1] in suites:
            here = heading[1]
            parts.setdefault(here, [])
        elif heading and re.fullmatch(r"\w+(-\w+)*-\d+|gym:\S+", heading[1]):
            here = heading[1]
            unknown.append(here)
            parts.setdefault(here, [])
        else:
            parts[here].append(line)
    texts = {name: "\n".join(lines).strip() for name, lines in parts.items()}
    known = {name: text for name, text in texts.items() if name in suites and text}
    return Notes(texts[""], known, tuple(unknown))


def markdown_html(text: str) -> str:
    """Markdown as HTML; HTML in it is shown, not obeyed."""
    return str(_RENDERER.render(text))
