"""`build_report`: from folders of runs to a page and its Markdown twin."""

from __future__ import annotations

import base64
import logging
import mimetypes
import shutil
from collections.abc import Sequence
from html import escape
from pathlib import Path

from statewise.report.content import Section, assemble
from statewise.report.data import read_runs
from statewise.report.markdown import markdown
from statewise.report.page import page
from statewise.report.pictures import draw_suite
from statewise.report.variants import charted
from statewise.runs.checkpoint import write_atomically

log = logging.getLogger("statewise")


def build_report(
    runs: Sequence[Path],
    out: Path,
    notes: Path | None = None,
    sections: Sequence[Section] = (),
) -> Path:
    """Write `out/index.html`, `out/report.md` and its `out/pictures/`; the page.

    runs: folders, searched for runs, or for what `export_runs` wrote.
    notes: a Markdown file with a heading for each suite it explains.
    sections: parts to add after the suites.
    """
    report = assemble(read_runs(runs), notes, sections)
    for flag in report.flags:  # at the top of the page too
        log.warning("%s", flag)
    for section in report.sections:
        for file in section.files:
            target = out / "pictures" / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    groups = charted(report.groups)
    for suite in report.suites:
        draw_suite([g for g in groups if g.suite == suite.name], groups, out / suite.picture)
    write_atomically(out / "report.md", markdown(report).encode())
    write_atomically(out / "index.html", page(report).encode())
    return out / "index.html"


def picture(file: Path, caption: str) -> tuple[str, str]:
    """HTML with the picture (PNG, SVG, ...) in it, and Markdown for its copy beside the report."""
    kind = mimetypes.guess_type(file.name)[0]
    if kind is None or not kind.startswith("image/"):
        raise ValueError(f"{file} is not a picture that a page can show: use .png, .svg or .jpg")
    content = base64.b64encode(file.read_bytes()).decode()
    html = (
        f'<figure class="picture"><img alt="{escape(caption)}" src="data:{kind};base64,{content}">'
        f"<figcaption>{escape(caption)}</figcaption></figure>"
    )
    return html, f"![{caption}](pictures/{file.name})"


__all__ = ["Section", "build_report", "picture"]
