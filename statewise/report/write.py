"""`write_report`: a web page that needs nothing else, and a Markdown file, from folders of runs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from statewise import metrics
from statewise.report.assemble import NO_FAILURE, NO_RANKING, Report, Sections, assemble
from statewise.report.curves import (
    UNSETTLED,
    chart_data,
    chart_item,
    draw_suite,
    suite_curves,
    to_json,
)
from statewise.report.markdown import markdown
from statewise.report.notes import markdown_html
from statewise.report.reference import Reference
from statewise.runs.export import export_runs
from statewise.runs.files import write_atomically
from statewise.runs.reader import Reading, find_runs
from statewise.version import __version__

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


def page(report: Report) -> str:
    """The whole HTML document."""
    suites = suite_curves(report.charted, report.reference, report.first)
    most = max(len(suite.lines) for suite in suites)
    environment = Environment(
        loader=PackageLoader("statewise.report"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies |= {"json.dumps_function": to_json, "json.dumps_kwargs": {}}
    return environment.get_template("page.html").render(
        report=report,
        numbers={suite.name: number for number, suite in enumerate(suites)},
        data=chart_data(suites),
        items=[chart_item(most, log_scale) for log_scale in (False, True)],
        metrics=metrics, unsettled=UNSETTLED, no_ranking=NO_RANKING, no_failure=NO_FAILURE,
        markdown=markdown_html, bokeh=page_scripts(), version=__version__,
    )  # fmt: skip


def page_scripts() -> Markup:
    """The scripts of Bokeh; the first begins with its licence."""
    scripts = Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw
    return Markup("\n".join(scripts))
