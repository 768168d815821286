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
from statewise.report.curves import draw_suite, suite_curves
from statewise.report.data import read_runs
from statewise.report.html import page
from statewise.report.markdown import markdown
from statewise.runs.checkpoint import write_atomically

log = logging.getLogger("statewise")


def build_report(
    runs: Sequence[Path],
    out: Path,
    notes: Path | None = None,
    sections: Sequence[Section] = (),
    bold: str = "scpo",
) -> Path:
    """Write `out/index.html`, `out/report.md` and its `out/pictures/`; the page.

    runs: folders, searched for runs, or for what `export_runs` wrote.
    notes: a Markdown file with a heading for each suite it explains.
    sections: parts to add before the suites.
    bold: the algorithm whose lines and rows stand out.
    """
    report = assemble(read_runs(runs), notes, sections)
    for flag in report.flags:  # at the top of the page too
        log.warning("%s", flag)
    for section in report.sections:
        for file in section.files:
            target = out / "pictures" / file.name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    reference = report.reference.name if report.reference else ""
    for suite in suite_curves(report.charted, report.reference, bold):
        picture_of = {each.name: each.picture for each in report.suites}
        draw_suite(suite, out / picture_of[suite.name], reference)
    write_atomically(out / "report.md", markdown(report).encode())
    write_atomically(out / "index.html", page(report, bold).encode())
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
