"""The report as one web page that needs nothing else: style, scripts and data are in it."""

from __future__ import annotations

import base64
import mimetypes
from functools import cache
from importlib import resources
from pathlib import Path

from bokeh.resources import Resources
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from statewise import metrics
from statewise.report import assemble
from statewise.report.curves import UNSETTLED, chart_data, chart_item, suite_curves, to_json
from statewise.report.notes import markdown_html
from statewise.report.table import Strip
from statewise.version import __version__


def page(report: assemble.Report) -> str:
    """The whole HTML document."""
    suites = suite_curves(report.charted, report.reference, report.first)
    most = max(len(suite.lines) for suite in suites)
    return _environment().get_template("page.html").render(
        report=report,
        numbers={suite.name: number for number, suite in enumerate(suites)},
        data=chart_data(suites),
        items=[chart_item(most, log_scale) for log_scale in (False, True)],
    )  # fmt: skip


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("statewise.report"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.policies |= {"json.dumps_function": to_json, "json.dumps_kwargs": {}}
    environment.globals |= {
        "asset": _asset, "bokeh": page_scripts, "metrics": metrics, "version": __version__,
        "unsettled": UNSETTLED, "no_ranking": assemble.NO_RANKING,
        "no_failure": assemble.NO_FAILURE,
    }  # fmt: skip
    environment.filters |= {
        "anchor": lambda title: "-".join(title.casefold().split()),
        "embedded": _embedded,
        "markdown": lambda text: Markup(markdown_html(text)),
        "place": _place,
    }
    return environment


def _place(strip: Strip, value: float) -> float:
    """Where a value lies on the scale of a strip, from 0 to 1."""
    share = (value - strip.low) / ((strip.high - strip.low) or 1.0)
    return min(max(share, 0.0), 1.0)


def _embedded(file: Path) -> str:
    """An address that holds the picture itself."""
    kind = mimetypes.guess_type(file.name)[0]
    if kind is None or not kind.startswith("image/"):
        raise ValueError(f"{file} is not a picture that a page can show: use .png, .svg or .jpg")
    return f"data:{kind};base64,{base64.b64encode(file.read_bytes()).decode()}"


def _asset(name: str) -> Markup:
    return Markup(resources.files("statewise.report.templates").joinpath(name).read_text())


def page_scripts() -> Markup:
    """The scripts of Bokeh; the first begins with its licence."""
    scripts = Resources(mode="inline", components=["bokeh"], log_level="warn").js_raw
    return Markup("\n".join(scripts))
