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
from typing import Any, Protocol

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from statewise import metrics
from statewise.algos import ALGORITHMS
from statewise.report.groups import Curve, Group, group_runs, mixed_labels
from statewise.runs.folder import RunFolder
from statewise.runs.reader import find_runs

log = logging.getLogger("statewise")

STEPS = "environment steps (millions)"
EPISODIC = (metrics.RETURN, metrics.EPISODE_COST, metrics.MAX_COST)
"""Means over the episodes that ended in an epoch."""
EARNED = 0.5
"""Methods with less than this share of the best return do not set the scale of a chart."""
UNSETTLED = (
    "Shaded: no episode can have reached the time limit yet, so these means are over the episodes "
    "that ended earlier."
)
_DASHES = ((), (6, 3), (2, 2), (6, 3, 1, 3), (4, 2), (1, 2), (8, 3), (8, 2, 2, 2))
_UNFINISHED = (1, 3)
_LOOKS = (
    ("#d9480f", "#ff8a3d", 0), ("#343a40", "#e9edf1", 0), ("#1f4fd0", "#7085fa", 0),
    ("#2b95cf", "#51befa", 1), ("#05806a", "#38b88c", 0), ("#c4709c", "#d77fc0", 1),
    ("#5a1a8a", "#9a7dff", 2), ("#8a6d00", "#d7e87e", 0), ("#5a1a0c", "#c9605c", 3),
    ("#b0306a", "#ff8fb8", 4), ("#3d6b21", "#9ccc65", 5), ("#6a5acd", "#b3a7ff", 6),
    ("#a0522d", "#e0a070", 7), ("#2f6f7f", "#7fc4d4", 4), ("#777777", "#aaaaaa", 5),
    ("#16130a", "#fef9d2", 6),
)  # fmt: skip
"""Colour on light, colour on dark, and dashes: a second sign for eyes and prints without colour."""


class _ReferenceValues(Protocol):
    """Final values to compare with, such as those of a publication."""

    @property
    def name(self) -> str: ...

    def value(self, suite: str, algo: str, metric: str) -> float | None: ...


@dataclass(frozen=True)
class Style:
    number: int
    """Its place in a legend"""
    light: str
    dark: str
    dash: tuple[int, ...]
    width: float


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


def style(number: int, bold: bool = False) -> Style:
    """The style of that number; every number has another pair of colour and dashes."""
    turn, place = divmod(number, len(_LOOKS))
    light, dark, dash = _LOOKS[place]
    return Style(number, light, dark, _DASHES[(dash + turn) % len(_DASHES)], 2.6 if bold else 1.4)


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
    groups: Sequence[Group], reference: _ReferenceValues | None = None, bold: str = ""
) -> list[SuiteCurves]:
    """The lines of every suite, all in the order and styles of one legend."""
    order = list(ALGORITHMS)
    ranked = sorted(groups, key=lambda g: order.index(g.own) if g.own in order else len(order))
    looks = styles({group.name: group.own for group in ranked}, bold)
    found = []
    for suite in dict.fromkeys(group.suite for group in groups):
        members = [group for group in ranked if group.suite == suite]
        lines = tuple(_line(group, looks[group.name], reference) for group in members)
        found.append(SuiteCurves(suite, lines, max(group.settling for group in members)))
    return found


def _line(group: Group, look: Style, reference: _ReferenceValues | None) -> Line:
    values = {}
    if reference is not None and group.main:
        found = {m: reference.value(group.suite, group.algo, m) for m in metrics.CHARTS}
        values = {metric: value for metric, value in found.items() if value is not None}
    curve = group.curve()
    if len(group.counted) == 1:
        curve = replace(curve, std={})
    parts = [Curve(run.curves["steps"], {key: run.curves[key] for key in metrics.CHARTS}, {})
             for run in group.uncounted]  # fmt: skip
    return Line(group.name, look, curve, group.finished, tuple(parts), values)


def _finite(values: np.ndarray) -> np.ndarray:
    return values[np.isfinite(values)]


# Pictures ----------------------------------------------------------------------------------------


def draw_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw run folders into one picture, a line for each algorithm or label, suite and settings."""
    return save(draw_panels(run_lines(runs)), out, dpi=110)


def run_lines(runs: Sequence[Path]) -> list[Line]:
    """The lines of some run folders.

    Seeds are averaged; runs with other settings never are. Their names then say what differs.
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
    below = [f"Marks at the right: final values of {reference}."] if reference else []
    below += [UNSETTLED] if suite.settling else []
    figure = draw_panels(suite.lines, settling=suite.settling, below=" ".join(below))
    return save(figure, out, dpi=80)


def draw_panels(
    lines: Sequence[Line],
    keys: Sequence[str] = metrics.CHARTS,
    *,
    heading: str = "",
    settling: int = 0,
    below: str = "",
) -> Figure:
    """A panel for each metric, and one legend below them."""
    widest = 0.6 + 0.075 * max(len(line.name) for line in lines)  # of the legend's names, in inches
    columns = max(1, min(len(lines), int(3.4 * len(keys) / widest)))
    foot = 0.55 + 0.2 * math.ceil(len(lines) / columns) + (0.2 if below else 0)
    head = 0.6 if heading else 0.3
    figure, axes = panels(1, len(keys), 3.4, head + 2.1 + foot, computed=False)
    width, height = figure.get_size_inches()
    figure.subplots_adjust(left=0.5 / width, right=1 - 0.1 / width, bottom=foot / height,
                           top=1 - head / height, wspace=0.2)  # fmt: skip
    for axis, key in zip(axes, keys, strict=True):
        for line in reversed(lines):  # the first lies on top
            draw_line(axis, line, key)
        if settling and key in EPISODIC:
            end = min(settling / 1e6, axis.get_xlim()[1])
            axis.axvspan(0.0, end, color="0.5", alpha=0.12, linewidth=0)
        axis.set_title(metrics.title(key), fontsize=10, y=1.0)
        axis.set_ylim(*limits(lines, key))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="upper center", ncols=columns, fontsize=9,
                  frameon=False, bbox_to_anchor=(0.5, (foot - 0.4) / height))  # fmt: skip
    figure.text(0.5, (foot - 0.4) / height, STEPS, ha="center", fontsize=9)
    figure.text(0.5, 0.08 / height, below, ha="center", fontsize=8, color="#59636e")
    figure.suptitle(heading, fontsize=11, fontweight="bold")
    return figure


def draw_line(axis: Any, line: Line, key: str) -> None:
    """The mean of one metric, its band, its unfinished seeds and its reference value."""
    colour, curve = line.style.light, line.curve
    steps, mean = curve.steps / 1e6, curve.mean[key]
    dash = line.style.dash if line.finished else _UNFINISHED
    axis.plot(steps, mean, color=colour, linewidth=line.style.width, label=line.name,
              linestyle=(0, dash) if dash else "-")  # fmt: skip
    if key in curve.std:
        low, high = mean - curve.std[key], mean + curve.std[key]
        axis.fill_between(steps, low, high, color=colour, alpha=0.14, linewidth=0)
    for part in line.parts:
        dotted = {"linewidth": 0.8, "linestyle": (0, _UNFINISHED)}
        axis.plot(part.steps / 1e6, part.mean[key], color=colour, **dotted)
    if key in line.reference and len(steps):
        ends, value = [1.03 * steps[-1], 1.09 * steps[-1]], line.reference[key]
        axis.plot(ends, [value, value], color=colour, linewidth=1.6)


def limits(lines: Sequence[Line], key: str) -> tuple[float, float]:
    """The range of the means of the methods that earn something, and some space for their bands."""
    best = max(line.final_return for line in lines)
    setting = [line for line in lines if line.final_return >= EARNED * best] or lines
    curves = [curve for line in setting for curve in (line.curve, *line.parts)]
    values = _finite(np.concatenate([np.asarray(curve.mean[key]) for curve in curves]))
    low = float(values.min()) if key == metrics.RETURN and len(values) else 0.0
    high = float(values.max()) if len(values) else 1.0
    space = 0.15 * (high - low or abs(high) or 1.0)
    return low - space if key == metrics.RETURN else 0.0, high + space


def panels(
    rows: int, columns: int, width: float, height: float, computed: bool = True, **more: Any
) -> tuple[Figure, list[Any]]:
    """A figure and its axes, row by row; the sizes are of one panel, in inches.

    computed: whether the margins are computed from what is drawn, which takes as long as drawing.
    """
    size = (width * columns, height * rows)
    figure = Figure(figsize=size, layout="constrained" if computed else None)
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False, **more).flat)
    for axis in axes:
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
        axis.locator_params(nbins=5)
        axis.set_axisbelow(True)
        axis.spines[["top", "right"]].set_visible(False)
    return figure, axes


def save(figure: Figure, out: Path, dpi: int) -> Path:
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=dpi)
    return out


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
        ("part", bk.Line(line_dash=_UNFINISHED)),
        ("line", bk.Line(line_join="round")),
        ("reference", bk.Scatter(marker={"field": "marker"}, size=11, line_width=2)),
    ):
        for number in range(lines - 1, -1, -1):  # the first lies on top
            source = bk.ColumnDataSource({name: [] for name in ("x", "y", "low", "high", "marker")})
            plot.add_glyph(source, glyph.clone(), name=f"{kind}:{number}")
    return json_item(plot, "chart")
