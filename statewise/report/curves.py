"""Learning curves of one or more runs: what they earn, and how safe they are on the way."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from statewise.training.run_folder import RunFolder

PANELS = {
    "return": "return",
    "episode_cost": "cost of an episode",
    "max_cost": "largest cost of an episode",
    "cost_rate": "cost rate since the start",
}
Group = dict[str, list[list[dict[str, Any]]]]


def draw_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw the runs into a picture file: one colour for each algorithm (or label) and suite.

    Several seeds are shown as their mean and the band between the lowest and the highest.
    """
    groups = _read(runs)
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.2))
    for number, (label, seeds) in enumerate(groups.items()):
        for axis, key in zip(axes, PANELS, strict=True):
            _curve(axis, seeds, key, label, f"C{number}")
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("environment steps (millions)", fontsize=9)
        axis.grid(alpha=0.3)
        if key != "return":
            axis.set_ylim(bottom=0)
    axes[0].legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    plt.close(figure)
    return out


def _read(runs: Sequence[Path]) -> Group:
    """Metrics of each run, by algorithm or label (and suite, if there are several)."""
    found: list[tuple[str, str, list[dict[str, Any]]]] = []
    for path in runs:
        folder = RunFolder.open(path)
        train, metrics = folder.config()["train"], folder.metrics()
        if not metrics:
            raise ValueError(f"the run {path} has no finished epoch to draw yet")
        found.append((folder.label(), train["suite"], metrics))
    several = len({suite for _, suite, _ in found}) > 1
    groups: Group = {}
    for name, suite, metrics in found:
        groups.setdefault(f"{name}, {suite}" if several else name, []).append(metrics)
    return groups


def _curve(axis: Any, seeds: list[list[dict[str, Any]]], key: str, label: str, colour: str) -> None:
    length = min(len(metrics) for metrics in seeds)
    steps = np.array([m["steps"] for m in seeds[0][:length]]) / 1e6
    # An epoch in which no episode ended has no value: a gap in the curve.
    values = np.array([[_or_nan(m.get(key)) for m in metrics[:length]] for metrics in seeds])
    known = ~np.isnan(values).all(axis=0)
    steps, values = steps[known], values[:, known]
    if not len(steps):
        return
    axis.plot(steps, np.nanmean(values, axis=0), color=colour, label=label, linewidth=1.4)
    if len(seeds) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
