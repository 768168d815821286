"""The paper's questions that runs answer by themselves: each a plot with its caption."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from statewise import metrics
from statewise.core.statistics import Array
from statewise.metrics import COST_RATE, EPISODE_COST, MAX_COST, RETURN
from statewise.paper.reference import (
    ALGOS,
    EXPERIMENTS,
    MAXIMUM_SUITES,
    POINT,
    VARIANTS,
    reference,
)
from statewise.report.curves import STEPS, line_of, metric_plot, metric_series, styles
from statewise.report.groups import Group
from statewise.report.plots import GREY, Panel, Plot, Series
from statewise.runs.files import short
from statewise.runs.reader import RunData
from statewise.runs.summary import Columns
from statewise.text import millions, number, percent, several

_STYLES = styles({algo: algo for algo in ALGOS}, bold="scpo")
_RESOURCES = ("trpo", "cpo", "scpo")
_RESOURCE_TITLES = {
    "collect": "collecting,\ns an epoch",
    "update": "update,\ns an epoch",
    "epoch": "whole epoch,\ns",
    "memory": "peak memory,\nMiB",
    "gpu_memory": "peak GPU\nmemory, MiB",
}
_BOUNDS = {
    "predicted": ("first order, not a bound", "scpo"),
    "predicted_corrected": ("corrected penalty", "cpo"),
    "predicted_printed": ("penalty as printed", "trpo_lag"),
}
"""Predictions by the end of their metric: what they are called, and whose style they have."""


@dataclass(frozen=True)
class _Comparison:
    """SCPO beside variants of itself or of another method."""

    metrics: tuple[str, ...]
    prefix: str
    """How the labels of the variants begin"""
    about: str
    """What is compared, for the caption"""
    others: Mapping[str, str] = field(default_factory=dict)
    """Algorithms that are shown too, but are not what is asked, and their names"""


_COMPARISONS = {
    "q3": _Comparison(
        (RETURN, EPISODE_COST), "scpo-subsample-",
        "SCPO with V_D fitted to all rows (the default here) and to as many zero targets as positive "
        "ones, drawn anew in each step (the paper's).",
    ),
    "app": _Comparison(
        (RETURN, EPISODE_COST, COST_RATE), "trpo_lag-k",
        "SCPO and TRPO-Lagrangian with the multiplier weighted k times in the loss. The update of the "
        "multiplier is unchanged. The paper's text does not name its k.",
        {"trpo_lag": "TRPO-LAG-1"},
    ),
    "departures": _Comparison(
        (RETURN, EPISODE_COST, MAX_COST, COST_RATE), "scpo-",
        "SCPO with the defaults here, and with one choice of the paper or of its code restored. \"All "
        "of the paper's settings\" restores them together, but for the ages of the worlds "
        "(spread_ages).",
    ),
}  # fmt: skip


def of_a_question(label: str) -> bool:
    """Whether runs of that label answer one of the paper's questions, and have their figure there."""
    return label in VARIANTS or label.startswith(_COMPARISONS["app"].prefix)


def maximum(groups: Sequence[Group]) -> Plot | None:
    """Q2: the largest cost of an episode over training, of SCPO in every suite; the paper's first."""
    scpo = [g for g in groups if g.own == "scpo"]
    scpo.sort(key=lambda g: g.suite not in MAXIMUM_SUITES)
    if not scpo:
        return None
    panels = []
    for group in scpo:
        lines = metric_series(line_of(group, _STYLES["scpo"]), MAX_COST)
        panels.append(Panel(group.suite, lines, note=_extent(group)))
    missing = [suite for suite in MAXIMUM_SUITES if suite not in [g.suite for g in scpo]]
    absent = f"; not here: {', '.join(missing)}" if missing else ""
    text = (
        f"{metrics.find(MAX_COST).about} SCPO. {_extents({g.suite: g for g in scpo})} The paper shows "
        f"{' and '.join(MAXIMUM_SUITES)}{absent}."
    )
    return Plot(panels, STEPS, columns=4, caption=text)


def compared(key: str, groups: Sequence[Group]) -> Plot | None:
    """Q3, the appendix and our departures: SCPO and the variants of a comparison in one suite."""
    asked = _COMPARISONS[key]
    if key == "departures":  # sub-sampling alone is question 3
        sub = _COMPARISONS["q3"].prefix
        groups = [g for g in groups if g.suite == POINT or not g.label.startswith(sub)]
    shown = {"scpo": "SCPO"} | dict(asked.others)
    variants = [g for g in groups if g.label.startswith(asked.prefix)]
    has = {g.suite for g in groups if g.own == "scpo"} & {g.suite for g in variants}
    if not has:
        return None
    suite, found = EXPERIMENTS[key][0][0], {}
    suite = suite if suite in has else min(has)
    for group in groups:
        if group.suite == suite and (group.own in shown or group in variants):
            label = group.label.replace(_COMPARISONS["app"].prefix, "TRPO-LAG-")
            name = shown.get(group.own) or VARIANTS.get(group.label, (label, {}))[0]
            # Several settings under one label are told apart by what differs.
            found[name + "".join(group.name.partition(" · ")[1:])] = group
    looks = styles({name: group.own for name, group in found.items()}, bold="scpo")
    lines = [
        replace(line_of(group, looks[name]), name=f"{name} ({_extent(group)})")
        for name, group in found.items()
    ]
    caption = f"{asked.about} {suite}; {_extents(found)}"
    return metric_plot(lines, asked.metrics, heading=suite, caption=caption)


def bound(groups: Sequence[Group]) -> Plot | None:
    """Q4: what each epoch of SCPO predicted for the next one, and what that one showed."""
    for group in sorted(groups, key=lambda g: g.suite != POINT):
        constraint = (group.runs[0].config.get("spec", {}).get("cost_names") or [""])[0]
        pairs = {run.seed: bound_pairs(run.metrics, constraint) for run in group.counted}
        known = {seed: found for seed, found in pairs.items() if len(found[0]["steps"])}
        if group.own == "scpo" and known:
            return _bound_plot(group, constraint, known)
    return None


def bound_pairs(epochs: Columns, constraint: str) -> tuple[dict[str, Array], int]:
    """Columns, a row for each epoch k that took a step: its predictions, and what k + 1 showed.

    `truth` is the estimate from all steps of epoch k + 1, `episodes` the plain mean over the episodes
    that ended in it, some of which began under older policies. Beside it the number of epochs that
    took no step, and so predicted nothing.
    """
    bounds = {key: epochs[f"constraint/{constraint}/{key}"][:-1] for key in _BOUNDS}
    truth = epochs[f"constraint/{constraint}/estimate"][1:]
    known = (np.diff(epochs["epoch"]) == 1) & ~np.isnan([truth, *bounds.values()]).any(axis=0)
    idle = known & (epochs["policy/kl"][:-1] == 0.0)
    ended = epochs[f"cost/{constraint}/max"][1:]
    columns = {"steps": epochs["steps"][1:], "truth": truth, "episodes": ended} | bounds
    return {key: column[known & ~idle] for key, column in columns.items()}, int(idle.sum())


def _bound_plot(
    group: Group, constraint: str, known: Mapping[int, tuple[dict[str, Array], int]]
) -> Plot:
    """Left: truth and first-order prediction. Right, on a log axis: truth and the two bounds."""
    excess = {key: np.concatenate([pairs[key] - pairs["truth"] for pairs, _ in known.values()])
              for key in _BOUNDS}  # fmt: skip
    share = {key: percent(float((values >= 0).mean())) for key, values in excess.items()}
    seed, (drawn, _) = next(iter(known.items()))
    x = [float(steps) / 1e6 for steps in drawn["steps"]]

    def series(key: str, name: str, number: int) -> Series:
        return Series(x, short(drawn[key]), name, number)

    truth = series("truth", "truth: J_D of the next epoch", _STYLES["trpo"].number)
    first, *others = (
        series(key, f"{name}: above in {share[key]}", _STYLES[algo].number)
        for key, (name, algo) in _BOUNDS.items()
    )
    ended = series("episodes", "mean over finished episodes", GREY)
    what = f"largest {constraint} cost of an episode"
    panels = [
        Panel(f"{what}, predicted to first order", [truth, first, ended]),
        Panel(f"{what}, with a penalty: log axis", [truth, *others], log=True),
    ]
    idle = sum(count for _, count in known.values())
    above = [f"{share[key]}, a median of {number(float(np.median(values)))} above the truth"
             for key, values in excess.items()]  # fmt: skip
    distance = number(float(np.median(abs(excess["predicted"]))))
    text = (
        f"{group.suite}, {several(len(known), 'seed')}, {millions(group.steps)} million steps. The "
        f"curves are those of seed {seed}. The shares are over the {len(excess['predicted'])} epochs of "
        f"all seeds{f', without {idle} that took no step' if idle else ''}. True J_D of the policy made "
        f"in an epoch, estimated from the next one, against what was predicted. To first order: not "
        f"exceeded in {share['predicted']} of epochs, median distance {distance}. It is NOT an upper "
        f"bound. With the corrected penalty: {above[1]}. With the penalty as printed: {above[2]}. Values "
        f"of 0 or less are not on the log axis."
    )
    return Plot(panels, STEPS, group.suite, caption=text, width=5.4, height=3.0)


def resources(groups: Sequence[Group]) -> Plot | None:
    """Q5: median time of an epoch and peak memory of TRPO, CPO and SCPO, relative to TRPO."""
    for suite in sorted({g.suite for g in groups}, key=lambda s: (s != POINT, s)):
        found = {g.own: g for g in groups if g.suite == suite and g.own in _RESOURCES}
        used = {algo: _used(found[algo]) for algo in _RESOURCES if algo in found}
        if len(used) == len(_RESOURCES) and all(used.values()):
            return _resources_plot(suite, found, used)
    return None


def _resources_plot(
    suite: str, found: Mapping[str, Group], used: Mapping[str, Mapping[str, float]]
) -> Plot:
    """Bars relative to TRPO, with what they are in seconds and MiB."""
    base = used["trpo"]
    keys = [k for k in _RESOURCE_TITLES if base.get(k) and all(k in u for u in used.values())]
    bars = []
    for algo in _RESOURCES:
        relative = {key: used[algo][key] / base[key] for key in keys}
        labels = [f"{r:.2f}\n({number(used[algo][key])})" for key, r in relative.items()]
        bars.append(Series([*map(float, range(len(keys)))], [*relative.values()], ALGOS[algo],
                           _STYLES[algo].number, "bars", labels=labels))  # fmt: skip
    highest = max(value or 0.0 for series in bars for value in series.y)
    panel = Panel(f"{suite}, TRPO as 1", bars, limits=[0.0, 1.2 * highest],
                  ticks=[_RESOURCE_TITLES[key] for key in keys])  # fmt: skip
    machines = sorted({_machine(run) for g in found.values() for run in g.counted})
    times = ", ".join(f"{ALGOS[a]} {used[a]['epoch']:.2f} s" for a in _RESOURCES)
    seeds = ", ".join(f"{ALGOS[a]} {len(found[a].counted)}" for a in _RESOURCES)
    text = (
        f"{suite}, {' and '.join(machines)}; seeds: {seeds}; "
        f"{millions(min(g.steps for g in found.values()))} million steps. Median epoch ({times}) and "
        f"peak memory of the process, libraries included, relative to TRPO. In brackets: as measured. "
        f"Runs that shared a machine also shared its time, and GPU memory is that of all who used it."
    )
    if len(machines) > 1:
        text += " NOT comparable: made on different machines."
    if len({(g.task, g.device) for g in found.values()}) > 1:
        text += " NOT comparable: made with different steps, worlds or devices."
    return Plot([panel], "", caption=text, width=7.6, height=3.2)


def _used(group: Group) -> dict[str, float]:
    """Mean over seeds; empty if their epochs are not on disk.

    The median epoch, not the mean: the first one also compiles and captures.
    """
    seeds: list[dict[str, float | None]] = []
    for run in group.counted:
        collect, update = run.metrics["time/collect"], run.metrics["time/update"]
        used = {"memory": run.metrics.largest("memory/process_mib"),
                "gpu_memory": run.metrics.largest("memory/gpu_mib")}  # fmt: skip
        if np.isnan(collect + update).all():
            return {}
        times = {"collect": collect, "update": update, "epoch": collect + update}
        seeds.append(used | {key: float(np.nanmedian(v)) for key, v in times.items()})
    values = {key: [used[key] for used in seeds] for key in seeds[0]}
    return {k: float(np.mean(v)) for k, v in values.items() if None not in v}  # type: ignore[arg-type]


def _machine(run: RunData) -> str:
    where = run.environment
    if run.config["train"].get("device", "cpu") != "cpu":
        return str(where.get("gpu"))
    return f"{where.get('processor')}, {where.get('cores')} cores"


def _extent(group: Group) -> str:
    return several(len(group.counted), "seed") + ("" if group.finished else ", unfinished")


def _extents(groups: Mapping[str, Group]) -> str:
    """Seeds and steps of each curve, beside the paper's."""
    kinds: dict[str, list[str]] = {}
    mixed = len({group.on_gpu for group in groups.values()}) > 1
    for name, group in groups.items():
        on = f", on a {'GPU' if group.on_gpu else 'CPU'}" if mixed else ""
        end = "" if group.finished else " (UNFINISHED)"
        extent = (
            f"{several(len(group.counted), 'seed')}, {millions(group.steps)} million steps{on}{end}"
        )
        kinds.setdefault(extent, []).append(name)
    one = len(kinds) == 1
    parts = [text if one else f"{', '.join(names)}: {text}" for text, names in kinds.items()]
    paper = reference()
    steps = sorted({paper.steps[g.suite] for g in groups.values() if g.suite in paper.steps})
    theirs = " or ".join(f"{millions(n)} million" for n in steps)
    theirs = f" (paper: {paper.seeds} seeds, {theirs} steps)" if steps else ""
    return f"{'; '.join(parts)}{theirs}."
