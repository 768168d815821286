"""Learning curves of one or more runs: what they earn, and how safe they are on the way."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from statewise.runs.differences import deciding, differing, suffix
from statewise.runs.folder import RunFolder

log = logging.getLogger("statewise")

PANELS = {
    "episode/return": "episode/return",
    "cost/episode": "cost of an episode",
    "cost/max": "largest cost of an episode",
    "cost/rate": "cost rate since the start",
}
Settings = dict[str, Any]
Metrics = list[dict[str, Any]]
Groups = dict[str, list[Metrics]]


def draw_curves(runs: Sequence[Path], out: Path) -> Path:
    """Draw the runs into a picture file: one colour for each algorithm (or label) and suite, and
    for each of their settings, if they differ.

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
        if key != "episode/return":
            axis.set_ylim(bottom=0)
    for label, seeds in groups.items():
        if all(m.get("episode/return") is None for seed in seeds for m in seed):
            log.warning("%s: no episode has ended yet, so that there is no return to draw", label)
    # The first panel that names the most: one without values has no names, and would warn.
    fullest = max(axes, key=lambda axis: len(axis.get_legend_handles_labels()[1]))
    if fullest.get_legend_handles_labels()[1]:
        fullest.legend(fontsize=8, loc="lower right")
    figure.tight_layout()
    out.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)
    plt.close(figure)
    return out


def _read(runs: Sequence[Path]) -> Groups:
    """Metrics of each run, by algorithm or label (and suite, if there are several).

    Runs of one name but other settings are never averaged: their names then say what differs.
    """
    found: list[tuple[str, str, Settings, Metrics]] = []
    seen: set[Path] = set()
    for path in runs:
        folder = RunFolder.open(path)
        if (real := path.resolve()) in seen:  # named twice
            continue
        seen.add(real)
        config, metrics = folder.config(), folder.metrics()
        if not metrics:
            raise ValueError(f"the run {path} has no finished epoch to draw yet")
        found.append((folder.label(), config["train"]["suite"], deciding(config), metrics))
    several = len({suite for _, suite, _, _ in found}) > 1
    named: dict[str, list[tuple[Settings, Metrics]]] = {}
    for label, suite, settings, metrics in found:
        name = f"{label}, {suite}" if several else label
        named.setdefault(name, []).append((settings, metrics))
    groups: Groups = {}
    for name, members in named.items():
        apart = differing([settings for settings, _ in members])
        if apart:
            log.warning("runs named %s differ in %s: drawn apart", name, ", ".join(apart))
        for settings, metrics in members:
            groups.setdefault(name + suffix(settings, apart), []).append(metrics)
    return groups


def _curve(axis: Any, seeds: list[Metrics], key: str, label: str, colour: str) -> None:
    # An epoch in which no episode ended has no value: a gap in the curve.
    lines = [np.array([(m["steps"], _or_nan(m.get(key))) for m in seed]).T for seed in seeds]
    first, last = max(line[0, 0] for line in lines), min(line[0, -1] for line in lines)
    # Epochs may be missing, in an export most are: seeds meet at the steps of the one with the fewest.
    steps = min(lines, key=lambda line: line.shape[1])[0]
    steps = steps[(first <= steps) & (steps <= last)]
    values = np.stack([np.interp(steps, *line) for line in lines])
    known = ~np.isnan(values).all(axis=0)
    steps, values = steps[known] / 1e6, values[:, known]
    if not len(steps):
        return
    axis.plot(steps, np.nanmean(values, axis=0), color=colour, label=label, linewidth=1.4)
    if len(seeds) > 1:
        low, high = np.nanmin(values, axis=0), np.nanmax(values, axis=0)
        axis.fill_between(steps, low, high, color=colour, alpha=0.2, linewidth=0)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value
