"""Learning curves: means over seeds, with a band of one sample standard deviation around them.

The page of a report draws them in the browser with Bokeh, picture files come from matplotlib. Both
draw the same `Line`s: the same groups of runs, colours, dashes and titles.
"""

from __future__ import annotations

import base64
import json
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np

from statewise import metrics
from statewise.algos import ALGORITHMS
from statewise.report import plots
from statewise.report.groups import Curve, Group, group_runs, mixed_labels
from statewise.report.plots import Panel, Plot, Series, Style, style
from statewise.report.reference import Reference
from statewise.runs.files import short
from statewise.runs.folder import RunFolder
from statewise.runs.reader import find_runs
from statewise.runs.summary import EPISODIC

log = logging.getLogger("statewise")

STEPS = "environment steps (millions)"
_EARNED = 0.5
"""Methods with less than this share of the best return do not set the scale of a chart."""
UNSETTLED = (
    "Shaded: no episode can have reached the time limit yet, so these means are over the episodes "
    "that ended earlier."
)


@dataclass(frozen=True, eq=False)
class Line:
    """What a chart draws of one group of runs."""

    name: str
    style: Style
    curve: Curve
    finished: bool = True
    parts: tuple[Curve, ...] = ()
    """Unfinished seeds beside finished ones, which the mean leaves out"""
    reference: Mapping[str, float] = field(default_factory=dict)
    """A final value to compare with, for some of the metrics"""

    @property
    def final_return(self) -> float:
        known = _finite(self.curve.mean.get(metrics.RETURN, np.empty(0)))
        return float(known[-1]) if len(known) else -math.inf


@dataclass(frozen=True, eq=False)
class SuiteCurves:
    name: str
    lines: tuple[Line, ...]
    settling: int
    """Steps until an episode can have reached the time limit; 0 if that is not known"""


def styles(algos: Mapping[str, str], bold: str = "") -> dict[str, Style]:
    """A style for each name, given the algorithm it stands for, or "" for a variant.

    An algorithm of the library always has the same style; all others take the next ones in turn.

    bold: the algorithm with the wider line.
    """
    numbers = {algo: number for number, algo in enumerate(ALGORITHMS)}
    spare = count(len(numbers))
    return {
        name: style(numbers[algo] if algo in numbers else next(spare), bool(algo) and algo == bold)
        for name, algo in algos.items()
    }


def suite_curves(
    groups: Sequence[Group], reference: Reference | None = None, bold: str = ""
) -> list[SuiteCurves]:
    """The lines of every suite, all in the order and styles of one legend."""
    order = list(ALGORITHMS)
    ranked = sorted(groups, key=lambda g: order.index(g.own) if g.own in order else len(order))
    looks = styles({group.name: group.own for group in ranked}, bold)
    found = []
    for suite in dict.fromkeys(group.suite for group in groups):
        members = [group for group in ranked if group.suite == suite]
        lines = tuple(line_of(group, looks[group.name], reference) for group in members)
        found.append(SuiteCurves(suite, lines, max(group.settling for group in members)))
    return found


def line_of(group: Group, look: Style, reference: Reference | None = None) -> Line:
    values = {}
    if reference is not None and group.main:
        found = {m: reference.value(group.suite, group.algo, m) for m in metrics.CHARTS}
        values = {metric: value for metric, value in found.items() if value is not None}
    parts = [Curve(run.curves["steps"], {key: run.curves[key] for key in metrics.CHARTS}, {})
             for run in group.uncounted]  # fmt: skip
    return Line(group.name, look, group.curve, group.finished, tuple(parts), values)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


# Pictures ----------------------------------------------------------------------------------------


def draw_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw run folders into one picture, a line for each algorithm or label, suite and settings."""
    return plots.save(metric_plot(run_lines(runs)), out, dpi=110)


def run_lines(runs: Sequence[Path]) -> list[Line]:
    """The lines of some run folders.

    Seeds are averaged, and runs with other settings never are. Their names then say what differs.
    """
    for path in runs:
        if not RunFolder.open(path).metrics():
            raise ValueError(f"the run {path} has no finished epoch to draw yet")
    reading = find_runs(runs)
    groups = group_runs(reading.runs)
    for note in (*reading.notes, *mixed_labels(groups)):
        log.warning("%s", note)
    suites = suite_curves(groups)
    lines = [line for suite in suites for line in suite.lines]
    if len(suites) > 1:  # an algorithm has a line in each of them
        names = [f"{line.name}, {suite.name}" for suite in suites for line in suite.lines]
        lines = [replace(line, name=names[i], style=style(i)) for i, line in enumerate(lines)]
    for line in lines:
        if line.final_return == -math.inf:
            log.warning("%s: no episode has ended yet, so there is no return to draw", line.name)
    return lines


def draw_suite(suite: SuiteCurves, out: Path, reference: str = "") -> Path:
    """Draw the curves of one suite into a picture.

    reference: whose final values the marks at the right are.
    """
    note = [f"Marks at the right: final values of {reference}."] if reference else []
    note += [UNSETTLED] if suite.settling else []
    plot = metric_plot(suite.lines, settling=suite.settling, note=" ".join(note))
    return plots.save(plot, out, dpi=80)


def metric_plot(
    lines: Sequence[Line], keys: Sequence[str] = metrics.CHARTS, settling: int = 0, **more: Any
) -> Plot:
    """A panel for each metric; `more` are other fields of the plot."""
    panels = []
    for key in keys:
        series = [one for line in lines for one in metric_series(line, key)]
        shade = settling / 1e6 if key in EPISODIC else 0.0
        panels.append(Panel(metrics.title(key), series, limits=[*limits(lines, key)], shade=shade))
    return Plot(panels, STEPS, **more)


def metric_series(line: Line, key: str) -> list[Series]:
    """The mean of one metric with its band, its unfinished seeds and its reference value."""
    number, curve = line.style.number, line.curve
    steps, spread = (curve.steps / 1e6).tolist(), short(curve.std.get(key, ()))
    found = [Series(steps, short(curve.mean[key]), line.name, number, "line", spread,
                    bold=line.style.bold, dotted=not line.finished)]  # fmt: skip
    for part in line.parts:
        values = short(part.mean[key])
        found.append(Series((part.steps / 1e6).tolist(), values, "", number, dotted=True))
    if key in line.reference and steps:
        ends = [1.03 * steps[-1], 1.09 * steps[-1]]
        found.append(Series(ends, [line.reference[key]] * 2, "", number))
    return found


def limits(lines: Sequence[Line], key: str) -> tuple[float, float]:
    """The range of the means of the methods that earn something, and some space for their bands."""
    best = max(line.final_return for line in lines)
    setting = [line for line in lines if line.final_return >= _EARNED * best] or lines
    curves = [curve for line in setting for curve in (line.curve, *line.parts)]
    values = _finite(np.concatenate([np.asarray(curve.mean[key]) for curve in curves]))
    low = float(values.min()) if key == metrics.RETURN and len(values) else 0.0
    high = float(values.max()) if len(values) else 1.0
    space = 0.15 * (high - low or abs(high) or 1.0)
    return low - space if key == metrics.RETURN else 0.0, high + space


# The page ----------------------------------------------------------------------------------------


def chart_data(suites: Sequence[SuiteCurves]) -> dict[str, Any]:
    """Everything that the charts of the page show, for `to_json`."""
    looks = {line.name: line.style for suite in suites for line in suite.lines}
    return {
        "legend": sorted(looks.items(), key=lambda entry: entry[1].number),
        "digits": {key: metrics.find(key).digits for key in metrics.CHARTS},
        "episodic": EPISODIC,
        "suites": suites,
    }


def to_json(data: Any, **more: Any) -> str:
    """Write JSON; an array of numbers becomes base64 of 32-bit floats, which the page reads."""

    def convert(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return {"f32": base64.b64encode(value.astype("<f4").tobytes()).decode()}
        return vars(value)

    return json.dumps(data, default=convert, separators=(",", ":"), allow_nan=False, **more)


def chart_item(lines: int, log_scale: bool) -> Any:
    """An empty Bokeh chart for so many lines, as `json_item`; the script of the page fills it."""
    from bokeh import models as bk  # slow to import, and not needed where no page is made
    from bokeh.embed import json_item
    from bokeh.plotting import figure

    plot = figure(
        height=250, sizing_mode="stretch_width", x_range=(0, 1), y_range=(0.1, 1),
        y_axis_type="log" if log_scale else "linear", x_axis_label=STEPS, min_border_left=52,
        min_border_right=6, tools="box_zoom", active_drag=None, toolbar_location=None,
        outline_line_color=None, background_fill_color=None, border_fill_color=None,
    )  # fmt: skip
    for axis in plot.axis:
        axis.update(
            major_label_text_font="system-ui, sans-serif", major_label_text_font_size="11px",
            axis_label_text_font="system-ui, sans-serif", axis_label_text_font_size="11px",
            axis_label_text_font_style="normal", major_tick_line_color=None,
            minor_tick_line_color=None,
        )  # fmt: skip
    plot.yaxis.axis_line_color = plot.xgrid.grid_line_color = None
    plot.add_layout(bk.BoxAnnotation(name="settling", left=0, fill_alpha=0.1, line_color=None))
    plot.add_layout(bk.Span(name="cross", dimension="height", line_dash=[2, 2], level="overlay"))
    for kind, glyph in (
        ("band", bk.VArea(y1="low", y2="high", fill_alpha=0.14)),
        ("part", bk.Line(line_dash=plots.UNFINISHED)),
        ("line", bk.Line(line_join="round")),
        ("reference", bk.Scatter(marker={"field": "marker"}, size=11, line_width=2)),
    ):
        for number in range(lines - 1, -1, -1):  # the first lies on top
            source = bk.ColumnDataSource({name: [] for name in ("x", "y", "low", "high", "marker")})
            plot.add_glyph(source, glyph.clone(), name=f"{kind}:{number}")
    return json_item(plot, "chart")
