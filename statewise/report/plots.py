"""Pictures as plain data: panels of lines, areas, bars and points, drawn by matplotlib.

A plot can be kept as JSON, and drawn again where the runs that it was made from are not.
"""

from __future__ import annotations

import dataclasses
import math
import typing
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from statewise.runs.files import as_json, write_atomically
from statewise.runs.shapes import check, parse_json

UNFINISHED = (1, 3)
"""Dashes of a line whose run is not finished."""
GREY = 14
"""Number of a style for lines that need no attention."""
_KINDS = ("line", "step", "area", "bars", "points")
_SOFT = "#59636e"
_DASHES = ((), (6, 3), (2, 2), (6, 3, 1, 3), (4, 2), (1, 2), (8, 3), (8, 2, 2, 2))
_LOOKS = (
    ("#d9480f", "#ff8a3d", 0), ("#343a40", "#e9edf1", 0), ("#1f4fd0", "#7085fa", 0),
    ("#2b95cf", "#51befa", 1), ("#05806a", "#38b88c", 0), ("#c4709c", "#d77fc0", 1),
    ("#5a1a8a", "#9a7dff", 2), ("#8a6d00", "#d7e87e", 0), ("#5a1a0c", "#c9605c", 3),
    ("#b0306a", "#ff8fb8", 4), ("#3d6b21", "#9ccc65", 5), ("#6a5acd", "#b3a7ff", 6),
    ("#a0522d", "#e0a070", 7), ("#2f6f7f", "#7fc4d4", 4), ("#777777", "#aaaaaa", 5),
    ("#16130a", "#fef9d2", 6),
)  # fmt: skip
"""Colour on light, colour on dark, and dashes: a second sign for eyes and prints without colour."""


@dataclass(frozen=True)
class Style:
    number: int
    """Its place in a legend"""
    light: str
    dark: str
    dash: tuple[int, ...]
    bold: bool


def style(number: int, bold: bool = False) -> Style:
    """The style of that number. Every number has another pair of colour and dashes."""
    turn, place = divmod(number, len(_LOOKS))
    light, dark, dash = _LOOKS[place]
    return Style(number, light, dark, _DASHES[(dash + turn) % len(_DASHES)], bold)


@dataclass(frozen=True, eq=False)
class Series:
    """One line, area, or set of bars or points."""

    x: list[float]
    y: list[float | None]
    """None is a gap"""
    name: str = ""
    """In the legend, unless empty"""
    style: int = 0
    kind: str = "line"
    spread: list[float | None] = dataclasses.field(default_factory=list)
    """Half the width of a band around the line"""
    labels: list[str] = dataclasses.field(default_factory=list)
    """Text at each bar or point"""
    bold: bool = False
    dotted: bool = False


@dataclass(frozen=True)
class Panel:
    title: str
    series: list[Series]
    note: str = ""
    """Text in the upper right corner"""
    log: bool = False
    limits: list[float] = dataclasses.field(default_factory=list)
    """Lowest and highest y. Without them the scale fits what is drawn, and includes 0"""
    ticks: list[str] = dataclasses.field(default_factory=list)
    """Names of x = 0, 1, 2 and so on, for bars"""
    shade: float = 0.0
    """Shaded from the left up to this x"""


@dataclass(frozen=True)
class Plot:
    """Panels side by side, and one legend below them."""

    panels: list[Panel]
    x_label: str
    heading: str = ""
    note: str = ""
    """Below the legend"""
    caption: str = ""
    """What the reader is told beside the picture"""
    columns: int = 5
    width: float = 3.4
    height: float = 2.1
    """Size of a panel, in inches"""


def write_plot(plot: Plot, path: Path) -> None:
    write_atomically(path, as_json(dataclasses.asdict(plot), indent=None, allow_nan=False))


def read_plot(path: Path) -> Plot:
    """The plot that `write_plot` wrote. Raises ValueError if it is damaged."""
    series, panel, whole = (typing.get_type_hints(kind) for kind in (Series, Panel, Plot))
    content = parse_json(path.read_bytes())
    check(content, whole | {"panels": [panel | {"series": [series]}]}, "it")
    panels = [
        Panel(**one | {"series": [Series(**_only(s, series)) for s in one["series"]]})
        for one in (_only(p, panel) for p in content["panels"])
    ]
    for drawn in (s for one in panels for s in one.series):
        lengths = {len(drawn.x), len(drawn.y), *(len(c) for c in (drawn.spread, drawn.labels) if c)}
        if len(lengths) > 1 or not drawn.x or drawn.kind not in _KINDS:
            raise ValueError("a series is empty, of unequal columns, or of an unknown kind")
    if not panels or not content["columns"]:
        raise ValueError("it has no panels")
    return Plot(**_only(content, whole) | {"panels": panels})


def _only(content: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: content[name] for name in names}


# Drawing -----------------------------------------------------------------------------------------


def save(plot: Plot, out: Path, dpi: int = 130) -> Path:
    """Draw it into a file, whose name says the format. The same numbers give the same bytes."""
    out.parent.mkdir(parents=True, exist_ok=True)
    with matplotlib.rc_context({"svg.hashsalt": "statewise"}):
        draw(plot).savefig(out, dpi=dpi, metadata={"Date": None} if out.suffix == ".svg" else None)
    return out


def draw(plot: Plot) -> Figure:
    columns = min(plot.columns, len(plot.panels))
    rows = math.ceil(len(plot.panels) / columns)
    names = dict.fromkeys(s.name for panel in plot.panels for s in panel.series if s.name)
    width = max(plot.width * columns, 5.0)
    widest = 0.6 + 0.075 * max(map(len, names), default=0)  # of the legend's names, in inches
    across = max(1, min(len(names), int(width / widest)))
    head, between = 0.6 if plot.heading else 0.3, 0.55
    foot = 0.55 + 0.2 * math.ceil(len(names) / across) + (0.2 if plot.note else 0)
    height = head + rows * plot.height + (rows - 1) * between + foot
    with matplotlib.rc_context({"text.parse_math": False}):
        figure = Figure(figsize=(width, height))
        FigureCanvasAgg(figure)
        figure.subplots_adjust(
            left=0.5 / width, right=1 - 0.1 / width, bottom=foot / height, top=1 - head / height,
            wspace=0.2, hspace=between / plot.height,
        )  # fmt: skip
        handles: dict[str, Any] = {}
        for number, panel in enumerate(plot.panels):
            handles |= _draw_panel(figure.add_subplot(rows, columns, number + 1), panel)
        figure.legend([handles[name] for name in names], list(names), loc="upper center",
                      ncols=across, fontsize=9, frameon=False,
                      bbox_to_anchor=(0.5, (foot - 0.4) / height))  # fmt: skip
        figure.text(0.5, (foot - 0.4) / height, plot.x_label, ha="center", fontsize=9)
        figure.text(0.5, 0.08 / height, plot.note, ha="center", fontsize=8, color=_SOFT)
        figure.suptitle(plot.heading, fontsize=11, fontweight="bold")
    return figure


def _draw_panel(axis: Any, panel: Panel) -> dict[str, Any]:
    """Draw its series, the first on top; returns what the legend shows of each name."""
    axis.tick_params(labelsize=8)
    axis.margins(x=0.02)
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)
    axis.set_title(panel.title, fontsize=10, y=1.0)
    bars = [s for s in panel.series if s.kind == "bars"]
    handles = {}
    for number, series in enumerate(panel.series):
        values = np.array(series.y, dtype=float)
        if panel.log:
            values = np.where(values > 0, values, np.nan)
        shift = (bars.index(series) - (len(bars) - 1) / 2) / len(bars) if series in bars else 0.0
        x = np.array(series.x, dtype=float) + 0.8 * shift
        look = {"color": style(series.style).light, "zorder": 2 + 0.5 / (1 + number)}
        handles[series.name] = _draw_series(axis, series, x, values, look, 0.8 / max(1, len(bars)))
        for place, value, text in zip(x, values, series.labels, strict=False):
            axis.annotate(text, (place, value), xytext=(0, 3), textcoords="offset points",
                          ha="center", fontsize=7, color=_SOFT)  # fmt: skip
    if panel.shade:
        end = min(panel.shade, axis.get_xlim()[1])
        axis.axvspan(0.0, end, color="0.5", alpha=0.12, linewidth=0)
    if panel.ticks:
        axis.set_xticks(range(len(panel.ticks)), panel.ticks, fontsize=8)
    axis.text(0.98, 0.95, panel.note, transform=axis.transAxes, ha="right", va="top", fontsize=8,
              bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 2})  # fmt: skip
    if panel.log:
        axis.set_yscale("log")
    else:
        below = any(value is not None and value < 0 for s in panel.series for value in s.y)
        axis.set_ylim(*(panel.limits or (None if below else 0.0, None)))
        axis.locator_params(axis="y", nbins=5)
    return handles


def _draw_series(
    axis: Any, series: Series, x: Any, y: Any, look: dict[str, Any], width: float
) -> Any:
    if series.kind == "bars":
        return axis.bar(x, y, width, label=series.name, **look)
    if series.kind == "points":
        return axis.scatter(x, y, s=30 if series.bold else 14, label=series.name, **look)
    dash = UNFINISHED if series.dotted else style(series.style).dash
    width = 2.6 if series.bold else 1.4
    more = {"drawstyle": "steps-mid"} if series.kind == "step" else {}
    if series.kind == "area":
        axis.fill_between(x, y, alpha=0.25, linewidth=0, color=look["color"])
    if series.spread:
        band = np.array(series.spread, dtype=float)
        axis.fill_between(x, y - band, y + band, color=look["color"], alpha=0.14, linewidth=0)
    (line,) = axis.plot(x, y, label=series.name, linewidth=width, linestyle=(0, dash) if dash else "-",
                        marker=".", markersize=2 * width, markeredgewidth=0, **look, **more)  # fmt: skip
    return line
