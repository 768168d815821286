"""The figures of the paper's questions, each from the plain data of its answer."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.figure import Figure

from statewise import metrics
from statewise.paper.answers import Data, rises
from statewise.paper.reference import ALGOS
from statewise.report.curves import (
    STEPS,
    Line,
    Style,
    draw_line,
    draw_panels,
    panels,
    style,
    styles,
)
from statewise.report.groups import Curve
from statewise.report.table import number, percent

_RESOURCE_TITLES = {
    "collect": "collecting, s an epoch",
    "update": "update, s an epoch",
    "epoch": "whole epoch, s",
    "memory": "peak memory, MiB",
    "gpu_memory": "peak GPU memory, MiB",
}
_SOFT = "#59636e"
_ALGOS = styles({algo: algo for algo in ALGOS}, bold="scpo")
_COST, _MAXIMUM, _INCREMENT = "#e8a33d", "#b3261e", "#0b6e4f"
"""As in the paper's Figure 1: orange, red and green."""
_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 2}


def save(figure: Figure, stem: Path, svg: bool = True) -> Path:
    """Write `stem`.png, and .svg if asked to: the same bytes for the same numbers."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png = stem.with_name(f"{stem.name}.png")
    figure.savefig(png, dpi=130)
    if svg:
        with matplotlib.rc_context({"svg.hashsalt": "statewise"}):
            figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})
    return png


def draw_maximum(data: Data) -> Figure:
    """A panel for each suite."""
    curves = data["curves"]
    columns = min(4, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure, axes = panels(rows, columns, 3.6 if columns > 1 else 5.0, 2.7)
    for axis, curve in zip(axes, curves, strict=False):
        draw_line(axis, _line(curve, _ALGOS["scpo"]), metrics.MAX_COST)
        axis.set_title(curve["suite"], fontsize=10)
        axis.set_title(_extent(curve), fontsize=7.5, loc="right", color=_SOFT, y=0.9)
        axis.set_ylim(bottom=0)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    figure.supxlabel(STEPS, fontsize=9)
    figure.supylabel(metrics.title(metrics.MAX_COST), fontsize=9)
    return figure


def draw_compared(data: Data) -> Figure:
    """A panel for each metric, a line for each variant."""
    curves = data["curves"]
    looks = styles({curve["name"]: curve["algo"] for curve in curves}, bold="scpo")
    lines = [_line(curve, looks[curve["name"]]) for curve in curves]
    return draw_panels(lines, data["metrics"], heading=data["suite"])


def _line(curve: Data, look: Style) -> Line:
    steps = np.array(curve["x"], dtype=float)
    parts = ({k: np.array(v, dtype=float) for k, v in curve[p].items()} for p in ("mean", "std"))
    name = f"{curve['name']} ({_extent(curve)})"
    return Line(name, look, Curve(steps, *parts), curve["finished"])


def _extent(curve: Data) -> str:
    seeds = f"{curve['seeds']} seed{'s' * (curve['seeds'] > 1)}"
    return seeds if curve["finished"] else f"{seeds}, unfinished"


def draw_targets(data: Data) -> Figure:
    """The targets along a few episodes: V_C left, V_D right."""
    figure, axes = panels(1, 2, 5.0, 3.1)
    texts = {
        "V_C": f"target of $V_C$: cost to go, γ = {data['gamma']}",
        "V_D": "target of $V_D$: increments to go, not discounted",
    }
    for axis, (key, title) in zip(axes, texts.items(), strict=True):
        for i, episode in enumerate(data["targets"]):
            values, colour = episode[key], style(len(ALGOS) + i).light
            axis.step(range(len(values)), values, where="mid", color=colour, linewidth=1.8)
            axis.plot(len(values) - 1, values[-1], "o", color=colour, markersize=4, clip_on=False)
        axis.set_title(title, fontsize=10)
        text = f"{share_text(data['zeros'][key])} of all targets are 0"
        axis.text(0.98, 0.95, text, transform=axis.transAxes, ha="right", va="top", fontsize=9,
                  bbox=_BOX)  # fmt: skip
        axis.set_xlabel("step of the episode", fontsize=9)
        axis.set_xlim(left=0)
        axis.set_ylim(bottom=0)
    if not data["targets"]:
        axes[0].text(0.5, 0.5, "no episode with a cost", transform=axes[0].transAxes, ha="center")
    figure.suptitle(f"{data['suite']}, {data['policy']}", fontsize=10)
    return figure


def draw_bound(data: Data) -> Figure:
    """Left: truth and first-order prediction; right, on a log axis: truth and the two bounds."""
    pairs, tests = data["pairs"], data["tests"]
    figure, (near, far) = panels(1, 2, 5.4, 3.9)
    steps = np.array(pairs["steps"]) / 1e6

    def line(axis: Any, key: str, label: str, algo: str, **look: Any) -> None:
        values = np.array(pairs[key], dtype=float)
        if axis is far:
            values = np.where(values > 0, values, np.nan)
            look |= {"marker": ".", "markersize": 3}  # single points between gaps
        colour = _ALGOS[algo].light if algo else _SOFT
        axis.plot(steps, values, color=colour, label=label, **look)

    share = {key: share_text(test["share"]) for key, test in tests.items()}
    first = f"first order, no bound: above in {share['J_predicted']}"
    corrected = f"corrected penalty: above in {share['J_predicted_corrected']}"
    printed = f"penalty as printed: above in {share['J_predicted_printed']}"
    line(near, "max_cost", "mean over finished episodes", "", linewidth=1.0)
    for axis in (near, far):
        line(axis, "J", "truth: $J_D$ of the next epoch", "trpo", linewidth=1.8)
    line(near, "J_predicted", first, "scpo", linewidth=1.4, linestyle=(0, (4, 1.5)))
    line(far, "J_predicted_corrected", corrected, "cpo", linewidth=1.6)
    line(far, "J_predicted_printed", printed, "trpo_lag", linewidth=1.6, linestyle=(0, (6, 2)))
    near.set_title("predicted to first order", fontsize=10)
    far.set_title("with a penalty: log axis", fontsize=10)
    far.set_yscale("log")
    for axis in (near, far):
        axis.set_xlabel(STEPS, fontsize=9)
        axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    near.set_ylabel(f"largest {data['constraint']} cost of an episode", fontsize=9)
    seeds = f"{data['seeds']} seed{'s' * (data['seeds'] > 1)}"
    figure.suptitle(f"{data['suite']}, seed {data['drawn_seed']}; shares over {data['epochs']} "
                    f"epochs of {seeds}", fontsize=10)  # fmt: skip
    return figure


def draw_resources(data: Data) -> Figure:
    """Bars relative to TRPO, with what they are in seconds and MiB."""
    algos = list(data["used"])
    keys = [key for key in _RESOURCE_TITLES if key in data["used"][algos[0]]]
    figure, (axis,) = panels(1, 1, 7.6, 0.9 + 0.72 * len(keys))
    height = 0.8 / len(algos)
    longest = max(v for relative in data["relative"].values() for v in relative.values())
    for i, algo in enumerate(algos):
        relative = [data["relative"][algo][key] for key in keys]
        places = np.arange(len(keys)) + (i - (len(algos) - 1) / 2) * height
        axis.barh(places, relative, height * 0.88, color=_ALGOS[algo].light, label=ALGOS[algo])
        for place, share, key in zip(places, relative, keys, strict=True):
            text = f"{share:.2f}   ({number(data['used'][algo][key])})"
            axis.text(share + 0.01 * longest, place, text, va="center", fontsize=8, color=_SOFT,
                      bbox=_BOX | {"pad": 0.5})  # fmt: skip
    axis.axvline(1.0, color=_SOFT, linewidth=0.8, linestyle=":", zorder=0.5)
    axis.set_yticks(range(len(keys)), [_RESOURCE_TITLES[key] for key in keys], fontsize=9)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlim(0, 1.22 * longest)
    axis.set_xlabel("relative to TRPO (in brackets: as measured)", fontsize=9)
    figure.legend(loc="outside lower center", ncols=len(algos), fontsize=9, frameon=False)
    figure.suptitle(data["suite"], fontsize=11, fontweight="bold")
    return figure


def draw_episode(data: Data) -> Figure:
    """Above: C, M and an arrow for each increment. Below: the increments, and their sum."""
    cost, maximum, increment = (np.array(data[key]) for key in "CMD")
    figure, (above, below) = panels(2, 1, 9.0, 2.3, height_ratios=(2.6, 1), sharex=True)
    steps = np.arange(len(cost))
    above.fill_between(steps, cost, color=_COST, alpha=0.25, linewidth=0)
    above.plot(steps, cost, color=_COST, linewidth=1.8, label="C, cost of the step")
    above.step(steps, maximum, where="post", color=_MAXIMUM, linewidth=2.0,
               label="M, largest so far")  # fmt: skip
    for start, end in rises(increment.tolist()):
        low = maximum[start] - increment[start]
        above.annotate("", (end, maximum[end]), (end, low), zorder=5,
                       arrowprops={"arrowstyle": "-|>", "color": _INCREMENT, "linewidth": 1.6,
                                   "shrinkA": 0, "shrinkB": 0})  # fmt: skip
        above.annotate("D", (end, (low + maximum[end]) / 2), (5, 0), textcoords="offset points",
                       va="center", fontsize=10, color=_INCREMENT, fontweight="bold")  # fmt: skip
    below.bar(steps, increment, width=1.0, color=_INCREMENT, label="D, increment of M")
    below.set_xlabel("step of the episode", fontsize=9)
    total = f"Σ D = {number(float(increment.sum()))} = largest cost"
    below.text(0.01, 0.86, total, transform=below.transAxes, va="top", fontsize=9, bbox=_BOX)
    for axis, title in ((above, "cost"), (below, "increment")):
        axis.set_ylabel(title, fontsize=9)
        axis.set_xlim(0, len(cost) - 1)
        axis.set_ylim(bottom=0)
    handles, labels = (a + b for a, b in zip(above.get_legend_handles_labels(),
                                             below.get_legend_handles_labels(), strict=True))  # fmt: skip
    above.legend(handles, labels, fontsize=9, frameon=False, loc="upper left")
    above.set_ylim(top=1.12 * max(float(cost.max()), 1e-9))
    figure.suptitle(f"{data['suite']}, {data['policy']}", fontsize=10)
    return figure


def share_text(share: float) -> str:
    """As a percentage; 100 % is all of them."""
    return "100 %" if share == 1.0 else percent(share)
