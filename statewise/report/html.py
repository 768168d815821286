"""The report as one web page that needs nothing else: style, scripts and data are in it."""

from __future__ import annotations

from functools import cache
from importlib import resources

from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from statewise import metrics
from statewise.report.assemble import Report
from statewise.report.curves import UNSETTLED, chart_data, chart_item, suite_curves, to_json
from statewise.report.markdown import NO_FAILURE, NO_RANKING
from statewise.report.notes import markdown_html
from statewise.report.table import Strip
from statewise.version import __version__


def page(report: Report, bold: str = "") -> str:
    """The whole HTML document.

    bold: the algorithm whose lines and rows stand out.
    """
    suites = suite_curves(report.charted, report.reference, bold)
    most = max(len(suite.lines) for suite in suites)
    template = _environment().get_template("page.html")
    return template.render(
        report=report,
        bold=bold,
        version=__version__,
        unsettled=UNSETTLED,
        no_ranking=NO_RANKING,
        no_failure=NO_FAILURE,
        numbers={suite.name: number for number, suite in enumerate(suites)},
        data=chart_data(suites),
        items=[chart_item(most, log_scale) for log_scale in (False, True)],
    )


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("statewise.report"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies |= {"json.dumps_function": to_json, "json.dumps_kwargs": {}}
    environment.globals |= {"asset": _asset, "bokeh": page_scripts, "metrics": metrics}
    environment.filters |= {
        "anchor": lambda title: "-".join(title.casefold().split()),
        "markdown": lambda text: Markup(markdown_html(text)),
        "place": _place,
    }
    return environment


def _place(strip: Strip, value: float) -> float:
    """Where a value lies on the scale of a strip, from 0 to 1."""
    share = (value - strip.low) / ((strip.high - strip.low) or 1.0)
    return min(max(share, 0.0), 1.0)


def _asset(name: str) -> Markup:
    return Markup(resources.files("statewise.report.templates").joinpath(name).read_text())


def page_scripts() -> Markup:
    """The scripts of Bokeh; the first begins with its licence."""
    scripts = Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw
    return Markup("\n".join(scripts))
