"""The figures of the paper's questions, each from the plain data of its answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from statewise.paper.answers import rises
from statewise.paper.reference import ALGOS
from statewise.report.charts import COLOURS, SPARE
from statewise.report.table import number, percent

Data = dict[str, Any]

TITLES = {
    "episode/return": "episode/return",
    "cost/episode": "episode cost",
    "cost/max": "maximum state-wise cost",
    "cost/rate": "cost rate, running",
}
RESOURCE_TITLES = {
    "collect": "collecting, s an epoch",
    "update": "update, s an epoch",
    "epoch": "whole epoch, s",
    "memory": "peak memory, MiB",
    "gpu_memory": "peak GPU memory, MiB",
}
_DASHES = ("4 2", "1 1.5", "8 3", "8 2 2 2", "6 2 1 2 1 2", "2 4")
_STEPS = "environment steps (millions)"
_SOFT = "#59636e"
_TRUTH, _FINISHED, _FIRST, _CORRECTED, _PRINTED = (
    COLOURS[name][0] for name in ("trpo", "x5", "scpo", "cpo", "trpo_lag")
)
_COST, _MAXIMUM, _INCREMENT = "#e8a33d", "#b3261e", "#0b6e4f"
"""As in the paper's Figure 1: orange, red and green."""


def save(figure: Figure, stem: Path) -> Path:
    """Write `stem`.png and .svg, the same bytes for the same numbers; the former."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    png = stem.with_name(f"{stem.name}.png")
    figure.savefig(png, dpi=130)
    with matplotlib.rc_context({"svg.hashsalt": "statewise"}):
        figure.savefig(stem.with_name(f"{stem.name}.svg"), metadata={"Date": None})
    return png


def draw_maximum(data: Data) -> Figure:
    """A panel for each suite."""
    curves = data["curves"]
    columns = min(4, len(curves))
    rows = math.ceil(len(curves) / columns)
    figure, axes = _panels(rows, columns, 3.6 if columns > 1 else 5.0, 2.7)
    for axis, curve in zip(axes, curves, strict=False):
        _line(axis, curve, "cost/max", COLOURS["scpo"][0], "", 2.2)
        axis.set_title(curve["suite"], fontsize=10)
        axis.set_title(_extent(curve), fontsize=7.5, loc="right", color=_SOFT, y=0.9)
        axis.set_ylim(bottom=0)
    for axis in axes[len(curves) :]:
        axis.set_visible(False)
    figure.supxlabel(_STEPS, fontsize=9)
    figure.supylabel(TITLES["cost/max"], fontsize=9)
    return figure


def draw_compared(data: Data) -> Figure:
    """A panel for each metric, a line for each variant; one legend below."""
    metrics, curves = data["metrics"], data["curves"]
    figure, axes = _panels(1, len(metrics), 3.7, 3.5)
    looks = styles(curves)
    for axis, metric in zip(axes, metrics, strict=True):
        for curve, style in reversed(list(zip(curves, looks, strict=True))):
            _line(axis, curve, metric, *style)
        axis.set_title(TITLES[metric], fontsize=10)
        axis.set_xlabel(_STEPS, fontsize=9)
        if metric != "episode/return":
            axis.set_ylim(bottom=0)
    figure.suptitle(data["suite"], fontsize=11, fontweight="bold")
    handles, labels = axes[0].get_legend_handles_labels()
    _legend(figure, handles[::-1], labels[::-1])
    return figure


def draw_targets(data: Data) -> Figure:
    """The targets along a few episodes: V_C left, V_D right."""
    figure, axes = _panels(1, 2, 5.0, 3.1)
    texts = {
        "V_C": f"target of $V_C$: cost to go, γ = {data['gamma']}",
        "V_D": "target of $V_D$: increments to go, not discounted",
    }
    for axis, (key, title) in zip(axes, texts.items(), strict=True):
        for i, episode in enumerate(data["targets"]):
            values, colour = episode[key], COLOURS[f"x{i % SPARE}"][0]
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
    figure, (near, far) = _panels(1, 2, 5.4, 3.9)
    steps = np.array(pairs["steps"]) / 1e6

    def line(axis: Any, key: str, label: str, colour: str, **style: Any) -> None:
        values = np.array(pairs[key], dtype=float)
        if axis is far:
            values = np.where(values > 0, values, np.nan)
            style |= {"marker": ".", "markersize": 3}  # single points between gaps
        axis.plot(steps, values, color=colour, label=label, **style)

    share = {key: share_text(test["share"]) for key, test in tests.items()}
    line(near, "max_cost", "mean over finished episodes", _FINISHED, linewidth=1.0)
    for axis in (near, far):
        line(axis, "J", "truth: $J_D$ of the next epoch", _TRUTH, linewidth=1.8)
    line(near, "J_predicted", f"first order, no bound: above in {share['J_predicted']}", _FIRST,
         linewidth=1.4, linestyle=(0, (4, 1.5)))  # fmt: skip
    line(far, "J_bound", f"corrected penalty: above in {share['J_bound']}", _CORRECTED,
         linewidth=1.6)  # fmt: skip
    line(far, "J_bound_paper", f"penalty as printed: above in {share['J_bound_paper']}", _PRINTED,
         linewidth=1.6, linestyle=(0, (6, 2)))  # fmt: skip
    near.set_title("predicted to first order", fontsize=10)
    far.set_title("with a penalty: log axis", fontsize=10)
    far.set_yscale("log")
    for axis in (near, far):
        axis.set_xlabel(_STEPS, fontsize=9)
        axis.legend(fontsize=8, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.17))
    near.set_ylabel(f"largest {data['constraint']} cost of an episode", fontsize=9)
    seeds = f"{data['seeds']} seed{'s' * (data['seeds'] > 1)}"
    figure.suptitle(f"{data['suite']}, seed {data['drawn_seed']}; shares over {data['epochs']} "
                    f"epochs of {seeds}", fontsize=10)  # fmt: skip
    return figure


def draw_resources(data: Data) -> Figure:
    """Bars relative to TRPO, with what they are in seconds and MiB."""
    algos = list(data["used"])
    keys = [key for key in RESOURCE_TITLES if key in data["used"][algos[0]]]
    figure, (axis,) = _panels(1, 1, 7.6, 0.9 + 0.72 * len(keys))
    height = 0.8 / len(algos)
    longest = max(v for relative in data["relative"].values() for v in relative.values())
    for i, algo in enumerate(algos):
        relative = [data["relative"][algo][key] for key in keys]
        places = np.arange(len(keys)) + (i - (len(algos) - 1) / 2) * height
        axis.barh(places, relative, height * 0.88, color=COLOURS[algo][0], label=ALGOS[algo])
        for place, share, key in zip(places, relative, keys, strict=True):
            text = f"{share:.2f}   ({number(data['used'][algo][key])})"
            axis.text(share + 0.01 * longest, place, text, va="center", fontsize=8, color=_SOFT,
                      bbox=_BOX | {"pad": 0.5})  # fmt: skip
    axis.axvline(1.0, color=_SOFT, linewidth=0.8, linestyle=":", zorder=0.5)
    axis.set_yticks(range(len(keys)), [RESOURCE_TITLES[key] for key in keys], fontsize=9)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlim(0, 1.22 * longest)
    axis.set_xlabel("relative to TRPO (in brackets: as measured)", fontsize=9)
    handles, labels = axis.get_legend_handles_labels()
    _legend(figure, handles, labels)
    figure.suptitle(data["suite"], fontsize=11, fontweight="bold")
    return figure


def draw_episode(data: Data) -> Figure:
    """Above: C, M and an arrow for each increment. Below: the increments, and their sum."""
    cost, maximum, increment = (np.array(data[key]) for key in "CMD")
    figure = Figure(figsize=(9.0, 4.6), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(2.6, 1))
    steps = np.arange(len(cost))
    above.fill_between(steps, cost, color=_COST, alpha=0.25, linewidth=0)
    above.plot(steps, cost, color=_COST, linewidth=1.8, label="C, cost of the step")
    above.step(steps, maximum, where="post", color=_MAXIMUM, linewidth=2.0,
               label="M, largest so far")  # fmt: skip
    for start, end in rises(increment):
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
        _tidy(axis)
        axis.set_ylabel(title, fontsize=9)
        axis.set_xlim(0, len(cost) - 1)
        axis.set_ylim(bottom=0)
    handles, labels = (a + b for a, b in zip(above.get_legend_handles_labels(),
                                             below.get_legend_handles_labels(), strict=True))  # fmt: skip
    above.legend(handles, labels, fontsize=9, frameon=False, loc="upper left")
    above.set_ylim(top=1.12 * max(float(cost.max()), 1e-9))
    figure.suptitle(f"{data['suite']}, {data['policy']}", fontsize=10)
    return figure


# Parts -------------------------------------------------------------------------------------------

_BOX = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 2}


def _panels(rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Any]]:
    """A figure and its axes, row by row; sizes are of one panel, in inches."""
    figure = Figure(figsize=(width * columns, height * rows), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        _tidy(axis)
    return figure, axes


def share_text(share: float) -> str:
    """As a percentage; 100 % is all of them."""
    return "100 %" if share == 1.0 else percent(share)


def _tidy(axis: Any) -> None:
    axis.tick_params(labelsize=8)
    axis.grid(alpha=0.25)
    axis.set_axisbelow(True)
    axis.spines[["top", "right"]].set_visible(False)


def _line(axis: Any, curve: Data, metric: str, colour: str, dash: str, width: float) -> None:
    """Mean over seeds, and a band of one deviation."""
    steps = np.array(curve["x"]) / 1e6
    mean, std = (np.array(curve[part][metric], dtype=float) for part in ("mean", "std"))
    pattern = (0, [float(n) for n in dash.split()]) if dash else "-"
    axis.plot(steps, mean, color=colour, linestyle=pattern, linewidth=width,
              label=f"{curve['name']} ({_extent(curve)})")  # fmt: skip
    if not np.isnan(std).all():
        axis.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.14, linewidth=0)


def styles(curves: Sequence[Data]) -> list[tuple[str, str, float]]:
    """Colour, dashes and width: an algorithm's own as everywhere, variants the spare ones."""
    looks, spare = [], 0
    for curve in curves:
        if curve["algo"] in COLOURS:
            looks.append((COLOURS[curve["algo"]][0], "", 2.4 if curve["algo"] == "scpo" else 1.5))
        else:
            looks.append((COLOURS[f"x{spare % SPARE}"][0], _DASHES[spare % len(_DASHES)], 1.6))
            spare += 1
    return looks


def _extent(curve: Data) -> str:
    seeds = f"{curve['seeds']} seed{'s' * (curve['seeds'] > 1)}"
    return seeds if curve["finished"] else f"{seeds}, unfinished"


def _legend(figure: Figure, handles: list[Any], labels: list[str]) -> None:
    """Below the panels, in as few rows as their width allows, evenly filled."""
    most = max(1, int(figure.get_figwidth() / 2.4))
    rows = math.ceil(len(handles) / most)
    figure.legend(handles, labels, loc="outside lower center", fontsize=9, frameon=False,
                  ncols=math.ceil(len(handles) / rows))  # fmt: skip

