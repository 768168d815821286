"""Text that leaves into report.md: whatever a name or a note says, it stays text."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from synthetic_runs import ENVIRONMENT, write_run

from statewise.report.assemble import assemble
from statewise.report.markdown import escape, markdown
from statewise.report.sections import Picture, Section, Statement
from statewise.runs.reader import find_runs

READER = MarkdownIt("commonmark", {"html": True}).enable(["table", "strikethrough"])
OPEN, TAG = "<script>alert(1)</script>", '<img src="http://evil.example/x.png">'
HOSTILE = (
    OPEN, f"\\{OPEN}", f"\\\\{OPEN}", f"`{OPEN}", f"x` {TAG} `", f"``{TAG}`", f"a|{TAG}|b", TAG,
    f"line\n{TAG}", f"line\n\n{OPEN}", f"line\r\n\r\n<div>\r\n{TAG}", f"a\u2028{TAG}", "<!-- hidden",
    "![x](http://evil.example/x.png)", "\\![x](http://evil.example/x.png)", "![x][y]", "[a](b",
    "x](http://evil.example)![y", "[click](javascript:alert(1))", "<http://evil.example>",
    "<a@evil.example>", "http://evil.example/?a=1", "www.evil.example", "a\n# heading", "a\n===",
    "a\n---\nb", "- item", "1. item", "> quote", "```\nfence", "~~~", "    code", "**bold**", "__b__",
    "~~gone~~", "&lt;script&gt;", "&#60;img src=x&#62;", "a\n[y]: http://evil.example", "$x$", "# h #",
    "\x1b[31mred", "x\x00y", "| a | b |\n|---|---|", "\\", "`", "<", "*", "\ttab", "<?php", "<![CDATA[",
)  # fmt: skip


def live(text: str) -> list[str]:
    """Every tag, image and link that a reader of the Markdown would obey and that is not ours."""
    tokens = [t for block in READER.parse(text) for t in (block, *(block.children or ()))]
    found = [t.content for t in tokens if t.type in ("html_block", "html_inline")]
    found += [f"image {t.attrs['src']}" for t in tokens if t.type == "image"
              and not str(t.attrs["src"]).startswith("pictures/")]  # fmt: skip
    return found + [f"link {t.attrs['href']}" for t in tokens if t.type == "link_open"
                    and t.attrs["href"] != "index.html"]  # fmt: skip


def shape(text: str) -> list[str]:
    """What the document is made of, without its words."""
    return [token.type for token in READER.parse(text)]


def report_of(root: Path, text: str) -> str:
    """The report of a run in which everything that can have a name has this one."""
    run = write_run(root, epochs=3, done=2, environment=ENVIRONMENT | {"commit": text})
    path = run / "config.json"
    config: dict[str, Any] = json.loads(path.read_text())
    config["train"] |= {"suite": text, "label": text}
    config["algorithm"]["remark"] = text
    config["spec"]["cost_names"] = [text]
    path.write_text(json.dumps(config))
    run.rename(run.parent / "moved")  # so that its label is the one of its settings
    picture = root / f"{text.replace('/', '-').replace(chr(0), '')}.png"
    section = Section(text, (text,), (Picture(picture, text, text),),
                      statements=(Statement(text, text, False), Statement(text, text, True)))  # fmt: skip
    return markdown(assemble(find_runs([root]), sections=[section]))


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_name_stays_text_wherever_it_stands(text: str, tmp_path: Path) -> None:
    content = report_of(tmp_path / "hostile", text)
    assert live(content) == []
    assert shape(content) == shape(report_of(tmp_path / "plain", "plain"))


@pytest.mark.parametrize("text", HOSTILE)
def test_an_escaped_text_is_shown_as_it_is(text: str) -> None:
    (block,) = [t for t in READER.parse(escape(text)) if t.type == "inline"]
    shown = "".join(t.content for t in block.children or ())
    assert shown == " ".join("".join(c if c.isprintable() else " " for c in text).split())
    assert "://" not in escape(text) and "www." not in escape(text)


@pytest.mark.parametrize("text", HOSTILE)
def test_notes_are_markdown_without_tags_or_foreign_images(text: str, tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (tmp_path / "notes.md").write_text(f"Some *notes*.\n\n{text}\n\n# Point-Hazard-8\n\n{text}\n")
    content = markdown(assemble(find_runs([tmp_path / "runs"]), tmp_path / "notes.md"))
    assert "Some *notes*." in content
    assert [x for x in live(content) if not x.startswith("link")] == []  # one's own links may stay
    assert shape(content)[-3:] == ["paragraph_open", "inline", "paragraph_close"]  # not swallowed
