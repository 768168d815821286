"""Hand-written explanations: a Markdown file with a heading for each suite it speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from statewise.plugins import is_gym


def _image(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """An image that is in the text itself; of any other its name and address: the page stands alone."""
    address = str(tokens[index].attrs["src"])
    if address.startswith("data:"):
        return str(renderer.image(tokens, index, options, env))
    name = renderer.renderInlineAsText(tokens[index].children, options, env)
    return escape(f"{name} ({address})" if name else address)


_RENDERER = MarkdownIt("commonmark", {"html": False}).enable("table")
_RENDERER.add_render_rule("image", _image)


@dataclass(frozen=True)
class Notes:
    """Markdown by suite; `overview` is what stands before the first suite's heading."""

    overview: str
    suites: dict[str, str]
    unknown: tuple[str, ...]
    """Headings that look like a suite, and are not in the report"""


def read_notes(path: Path | None, suites: Sequence[str]) -> Notes:
    """Split a file at its headings `# SUITE` or `## SUITE`."""
    if path is None:
        return Notes("", {}, ())
    if not path.is_file():
        raise ValueError(f"the notes file {path} does not exist")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the notes file {path} is not UTF-8 ({error}): save it as UTF-8"
        ) from None
    # Not every line with a # is a heading: some are in code.
    headings = {t.map[0] for t in _RENDERER.parse(text) if t.type == "heading_open" and t.map}
    parts: dict[str, list[str]] = {"": []}
    here, unknown = "", []
    for number, line in enumerate(text.split("\n")):
        heading = re.fullmatch(r"##?\s+(\S+)\s*", line) if number in headings else None
        if heading and heading[1] in suites:
            here = heading[1]
            parts.setdefault(here, [])
        elif heading and (is_gym(heading[1]) or re.fullmatch(r"\w+(-\w+)*-\d+", heading[1])):
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
