"""`write_report`: make a web page and a Markdown file from folders of runs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from statewise.report.assemble import Sections, assemble
from statewise.report.curves import draw_suite, suite_curves
from statewise.report.export import export_runs
from statewise.report.html import page
from statewise.report.markdown import markdown
from statewise.report.reference import Reference
from statewise.runs.files import write_atomically
from statewise.runs.reader import Reading, find_runs

log = logging.getLogger("statewise")


def write_report(
    runs: Reading | Sequence[Path],
    out: Path,
    notes: Path | None = None,
    baseline: str | None = None,
    reference: Reference | None = None,
    sections: Sections = (),
    export: Path | None = None,
) -> Path:
    """Write `out/index.html`, `out/report.md` and `out/pictures/`; returns the page.

    runs: what `find_runs` read, or folders that it searches for runs.
    notes: a Markdown file with a heading for each suite it explains.
    baseline: the algorithm that others are ranked relative to; without one nothing is ranked.
    reference: published numbers to show beside those of the runs.
    sections: parts to add, or what makes them of the groups of runs and a folder for pictures.
    export: a folder that the small form of the runs is written to.
    """
    reading = runs if isinstance(runs, Reading) else find_runs(runs)
    if export is not None:  # first: it is refused where it would write over runs
        export_runs(reading.runs, export)
    report = assemble(reading, notes, baseline, reference, sections, out / "pictures")
    for flag in report.flags:  # on the page too
        log.warning("%s", flag)
    html = page(report).encode()
    for picture in (picture for section in report.sections for picture in section.pictures):
        copy = out / picture.address
        if picture.file.resolve() != copy.resolve():
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(picture.file, copy)
    files = {suite.name: suite.picture for suite in report.suites}
    for suite in suite_curves(report.charted, reference, report.first):
        draw_suite(suite, out / files[suite.name], reference.name if reference else "")
    write_atomically(out / "report.md", markdown(report).encode())
    write_atomically(out / "index.html", html)
    return out / "index.html"
