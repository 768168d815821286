"""The charts of the page as pictures, for the Markdown twin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from statewise.report.charts import COLOURS, EPISODIC, UNSETTLED, legend
from statewise.report.groups import Curve, Group
from statewise.report.ranking import EARNED
from statewise.report.reference import Reference

PANELS = {
    "episode/return": "episode/return",
    "cost/episode": "episode cost",
    "cost/rate": "cost rate, running",
    "cost/epoch_rate": "cost rate, per epoch",
    "cost/max": "maximum state-wise cost",
}


def draw_suite(
    groups: Sequence[Group], everything: Sequence[Group], out: Path, reference: Reference | None
) -> Path:
    """Five panels of one suite's groups, in the colours that all groups of the report share."""
    styles = {entry["name"]: entry for entry in legend(everything)}
    figure = Figure(figsize=(3.3 * len(PANELS), 3.2), dpi=80)
    FigureCanvasAgg(figure)
    axes = figure.subplots(1, len(PANELS))
    for group in reversed(groups):  # the last drawn lies on top: SCPO comes first
        curve = group.curve()
        for axis, key in zip(axes, PANELS, strict=True):
            _draw(axis, group, curve, key, styles[group.name], reference)
    settling = max(group.settling for group in groups) / 1e6
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        if key in EPISODIC and settling:
            axis.axvspan(0.0, min(settling, axis.get_xlim()[1]), color="0.5", alpha=0.12, lw=0)
        axis.set_title(title, fontsize=10)
        axis.tick_params(labelsize=8)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.set_ylim(*_range(groups, key))
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles[::-1], labels[::-1], loc="lower center", ncols=len(handles), fontsize=8,
                  frameon=False)  # fmt: skip
    below = "environment steps (millions); ticks at the right: the paper's final values"
    below += f". {UNSETTLED}" if settling else ""
    figure.supxlabel(below, fontsize=8, y=0.09)
    figure.subplots_adjust(left=0.03, right=0.995, bottom=0.24, top=0.9, wspace=0.2)
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out)
    return out


def _range(groups: Sequence[Group], key: str) -> tuple[float, float]:
    """What the means of the methods that earn something take up, and room for their bands."""
    late = {group.name: group.mean("late", "episode/return") for group in groups}
    best = max((value for value in late.values() if value is not None), default=0.0)
    earning = [g for g in groups if (late[g.name] or 0.0) >= EARNED * best] or list(groups)
    values = np.concatenate([group.curve().mean[key] for group in earning])
    values = values[np.isfinite(values)]
    low = float(values.min()) if key == "episode/return" and len(values) else 0.0
    high = float(values.max()) if len(values) else 1.0
    room = 0.15 * (high - low or abs(high) or 1.0)
    return low - room if key == "episode/return" else 0.0, high + room


def _draw(
    axis: Any, group: Group, curve: Curve, key: str, style: dict[str, Any], reference: Reference | None
) -> None:
    colour = COLOURS[style["colour"]][0]
    pattern = style["dash"] if group.finished else "1 3"
    dash = (0, [float(n) for n in pattern.split()]) if pattern else "-"
    width = 2.4 if style["bold"] else 1.2
    steps, mean, std = curve.steps / 1e6, curve.mean[key], curve.std[key]
    axis.plot(steps, mean, color=colour, linestyle=dash, linewidth=width, label=group.name)
    if not np.isnan(std).all():
        axis.fill_between(steps, mean - std, mean + std, color=colour, alpha=0.14, linewidth=0)
    value = reference.value(group.suite, group.own, key) if reference else None
    if value is not None and len(steps):
        axis.plot([1.03 * steps[-1], 1.1 * steps[-1]], [value, value], color=colour, linewidth=1.6)
