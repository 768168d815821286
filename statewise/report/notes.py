"""Hand-written explanations: a Markdown file with a heading for each suite it speaks of."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markupsafe import Markup

from statewise.plugins import is_gym


def _image(renderer: Any, tokens: Any, index: int, options: Any, env: Any) -> str:
    """An image that is in the text itself; of any other its name and address: the page stands alone."""
    address = str(tokens[index].attrs["src"])
    if address.startswith("data:"):
        return str(renderer.image(tokens, index, options, env))
    name = renderer.renderInlineAsText(tokens[index].children, options, env)
    return escape(f"{name} ({address})" if name else address)


_PAGE = MarkdownIt("commonmark", {"html": False}).enable("table")
_PAGE.add_render_rule("image", _image)
_READER = MarkdownIt("commonmark").enable("table")  # as others read it: tags are obeyed


@dataclass(frozen=True)
class Notes:
    """Markdown by suite; `overview` is what stands before the first suite's heading."""

    overview: str = ""
    suites: dict[str, str] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    """Headings that look like a suite, and are not in the report"""


def read_notes(path: Path | None, suites: Sequence[str]) -> Notes:
    """Split a file at its headings `# SUITE` or `## SUITE`."""
    if path is None:
        return Notes()
    if not path.is_file():
        raise ValueError(f"the notes file {path} does not exist")
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(
            f"the notes file {path} is not UTF-8 ({error}): save it as UTF-8"
        ) from None
    # Not every line with a # is a heading: some are in code.
    headings = {t.map[0] for t in _PAGE.parse(text) if t.type == "heading_open" and t.map}
    here, parts = "", dict[str, list[str]]({"": []})
    for number, line in enumerate(text.split("\n")):
        heading = re.fullmatch(r"##?\s+(\S+)\s*", line) if number in headings else None
        if heading and (heading[1] in suites or _suite_like(heading[1])):
            here = heading[1]
            parts.setdefault(here, [])
        else:
            parts[here].append(line)
    texts = {name: "\n".join(lines).strip() for name, lines in parts.items()}
    overview = texts.pop("")
    known = {name: text for name, text in texts.items() if name in suites and text}
    return Notes(overview, known, tuple(name for name in texts if name not in suites))


def _suite_like(name: str) -> bool:
    return is_gym(name) or re.fullmatch(r"\w+(-\w+)*-\d+", name) is not None


def markdown_html(text: str) -> Markup:
    """Markdown as HTML; HTML in it is shown, not obeyed."""
    return Markup(_PAGE.render(text))


def harmless(text: str) -> str:
    """Markdown in which no tag is obeyed, no image is fetched, and no code runs on below it."""
    tokens = [t for block in _READER.parse(text) for t in (block, *(block.children or ()))]
    if any(token.type in ("html_block", "html_inline", "image") for token in tokens):
        text = text.replace("<", "&lt;").replace("![", "!&#91;")
    last = _READER.parse(f"{text}\n\nend")[-1]
    return f"{text}\n{last.markup}" if last.type == "fence" else text
