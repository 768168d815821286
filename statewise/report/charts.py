"""What the charts of the page are drawn from: a small JSON of curves and legend entries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from statewise.metrics import CHARTS as WHOLE
from statewise.report.groups import Group
from statewise.report.reference import Reference
from statewise.report.table import short
from statewise.runs.reader import RunData

EPISODIC = ("episode/return", "cost/episode", "cost/max")
"""Metrics of the episodes that ended; at first only short ones can have."""
UNSETTLED = ("Shaded: no episode can have run out of time yet, so return and costs are those of the "
             "episodes that ended by themselves.")  # fmt: skip
COLOURS = {
    "scpo": ("#d9480f", "#ff8a3d"),
    "trpo": ("#343a40", "#e9edf1"),
    "cpo": ("#1f4fd0", "#7085fa"),
    "pcpo": ("#2b95cf", "#51befa"),
    "trpo_lag": ("#05806a", "#38b88c"),
    "trpo_fac": ("#c4709c", "#d77fc0"),
    "trpo_ipo": ("#5a1a8a", "#9a7dff"),
    "trpo_sl": ("#8a6d00", "#d7e87e"),
    "trpo_usl": ("#5a1a0c", "#c9605c"),
    "x0": ("#b0306a", "#ff8fb8"),
    "x1": ("#3d6b21", "#9ccc65"),
    "x2": ("#6a5acd", "#b3a7ff"),
    "x3": ("#a0522d", "#e0a070"),
    "x4": ("#2f6f7f", "#7fc4d4"),
    "x5": ("#777777", "#aaaaaa"),
    "x6": ("#16130a", "#fef9d2"),
}
"""On light and on dark; x... are spare ones. Where two are near to red- or green-blind eyes, as SCPO and
TRPO-SL or CPO and TRPO-IPO, width or dashes tell them apart."""
_DASHES = {"pcpo": "6 3", "trpo_fac": "6 3", "trpo_ipo": "2 2", "trpo_usl": "6 3 1 3"}
"""A second sign beside the colour, for eyes and prints that do not see it."""
SPARE = sum(name.startswith("x") for name in COLOURS)
_SPARE_DASHES = ("4 2", "1 2", "8 3", "8 2 2 2")


def chart_data(groups: Sequence[Group], reference: Reference | None = None) -> dict[str, Any]:
    """`series` (the legend) and `suites`, each with the curves of its groups."""
    series = legend(groups)
    index = {entry["name"]: i for i, entry in enumerate(series)}
    suites = []
    for suite in dict.fromkeys(group.suite for group in groups):
        members = [group for group in groups if group.suite == suite]
        curves = [_curves(group, index[group.name], reference) for group in members]
        settling = max(group.settling for group in members)
        suites.append({"name": suite, "groups": curves, "settling": settling})
    return {"series": series, "suites": suites, "episodic": EPISODIC}


def legend(groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Every name once: the nine have fixed colours, variants take the spare ones in turn."""
    order = [name for name in COLOURS if name[0] != "x"]
    names: dict[str, Group] = {}
    for group in groups:
        names.setdefault(group.name, group)
    first = sorted(names.values(), key=lambda g: (not g.main, _place(order, g.algo)))
    entries, spare = [], 0
    for group in first:
        if group.own in order:
            colour, dash = group.algo, _DASHES.get(group.algo, "")
        else:
            colour, dash = f"x{spare % SPARE}", _SPARE_DASHES[spare % len(_SPARE_DASHES)]
            spare += 1
        entries.append({"name": group.name, "colour": colour, "dash": dash,
                        "bold": colour == "scpo"})  # fmt: skip
    return entries


def _place(order: list[str], algo: str) -> int:
    return order.index(algo) if algo in order else len(order)


def _curves(group: Group, series: int, reference: Reference | None) -> dict[str, Any]:
    curve = group.curve()
    value = reference.value if reference and group.main else lambda *_: None
    paper = {m: value(group.suite, group.algo, m) for m in WHOLE}
    return {
        "series": series,
        "seeds": len(group.counted),
        "finished": group.finished,
        "x": [int(step) for step in curve.steps],
        "mean": {key: short(curve.mean[key], 4) for key in WHOLE},
        "std": {key: short(curve.std[key], 3) for key in WHOLE} if len(group.counted) > 1 else {},
        "paper": {m: v for m, v in paper.items() if v is not None},
        "partial": [_partial(run) for run in group.uncounted],
    }


def _partial(run: RunData) -> dict[str, Any]:
    """An unfinished seed beside finished ones: a line of its own."""
    lines = {key: short(run.curves[key], 4) for key in WHOLE}
    return {"seed": run.seed, "x": [int(step) for step in run.curves["steps"]], "mean": lines}
