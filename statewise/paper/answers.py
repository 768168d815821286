"""The numbers that answer the paper's questions, computed from groups of runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from statewise.metrics import COST_RATE, EPISODE_COST, MAX_COST, RETURN
from statewise.paper.reference import DRONE, MAXIMUM_SUITES, POINT
from statewise.report.groups import Group
from statewise.report.table import short
from statewise.runs.reader import RunData
from statewise.runs.summary import Columns

Data = dict[str, Any]
RESOURCES = ("trpo", "cpo", "scpo")
BOUNDS = ("J_predicted", "J_predicted_corrected", "J_predicted_printed")
"""First order, with the corrected penalty, with the printed one."""
NAMES = {
    "scpo-blind": "policy does not see M",
    "scpo-raw-inputs": "inputs not scaled",
    "scpo-eta-1": "recovery fraction 1",
    "scpo-tolerance-0": "tolerance 0",
    "scpo-unreliable": "noise not allowed for",
    "scpo-lam-0.95": "cost λ 0.95",
    "scpo-paper": "all of the paper's settings",
    "scpo-subsample-resample": "sub-sampled",
}
"""Labels of the runs that `statewise bench ablations` adds, and what figures call them."""


@dataclass(frozen=True)
class Comparison:
    """SCPO beside variants of itself or of another method."""

    suite: str
    """Where the paper compares them; else the first suite that has them"""
    metrics: tuple[str, ...]
    prefix: str
    """How the labels of the variants begin"""
    about: str
    """What is compared, for the caption"""
    others: Mapping[str, str] = field(default_factory=dict)
    """Algorithms that are shown too, but are not what is asked, and their names"""


COMPARISONS = {
    "q3": Comparison(
        DRONE, (RETURN, EPISODE_COST), "scpo-subsample-",
        "SCPO with V_D fitted to all rows (the default here) and to as many zero targets as positive "
        "ones, drawn anew in each step (the paper's).",
    ),
    "app": Comparison(
        POINT, (RETURN, EPISODE_COST, COST_RATE), "trpo_lag-k",
        "SCPO and TRPO-Lagrangian with the multiplier weighed k times in the loss, its own rise "
        "unchanged. The paper's text does not name its k.",
        {"trpo_lag": "TRPO-LAG-1"},
    ),
    "departures": Comparison(
        POINT, (RETURN, EPISODE_COST, MAX_COST, COST_RATE), "scpo-",
        "SCPO as it is here, and with one choice of the paper's or of its code restored; \"all of the "
        "paper's settings\" restores them together, but for the ages of the worlds, which stay as they "
        "are here (spread_ages).",
    ),
}  # fmt: skip


def of_a_question(label: str) -> bool:
    """Whether runs of that label answer one of the paper's questions, and have their figure there."""
    return label in NAMES or label.startswith(COMPARISONS["app"].prefix)


def maximum_answer(groups: Sequence[Group]) -> Data | None:
    """Q2: the largest cost of an episode over training, of SCPO in every suite; the paper's two first."""
    scpo = [g for g in groups if g.own == "scpo"]
    scpo.sort(key=lambda g: g.suite not in MAXIMUM_SUITES)
    return {"curves": [curve(g, (MAX_COST,), g.name) for g in scpo]} if scpo else None


def compared_answer(key: str, groups: Sequence[Group]) -> Data | None:
    """Q3, the appendix and our departures: SCPO and the variants of a comparison in one suite."""
    asked = COMPARISONS[key]
    if key == "departures":  # sub-sampling alone is question 3
        sub = COMPARISONS["q3"].prefix
        groups = [g for g in groups if g.suite == POINT or not g.label.startswith(sub)]
    shown = {"scpo": "SCPO"} | dict(asked.others)
    variants = [g for g in groups if g.label.startswith(asked.prefix)]
    has = {g.suite for g in groups if g.own == "scpo"} & {g.suite for g in variants}
    if not has:
        return None
    suite, curves = asked.suite if asked.suite in has else min(has), []
    for group in groups:
        if group.suite == suite and (group.own in shown or group in variants):
            lag = (
                f"TRPO-LAG-{group.label.removeprefix(asked.prefix)}"
                if key == "app"
                else group.label
            )
            name = shown.get(group.own) or NAMES.get(group.label, lag)
            # Several settings under one label are told apart by what differs.
            differs = "".join(group.name.partition(" · ")[1:])
            curves.append(curve(group, asked.metrics, name + differs))
    return {"suite": suite, "metrics": list(asked.metrics), "curves": curves}


def curve(group: Group, metrics: Sequence[str], name: str) -> Data:
    """Mean and deviation over the counted seeds."""
    whole = group.curve()
    return {
        "suite": group.suite,
        "name": name,
        "algo": group.own,
        "seeds": len(group.counted),
        "steps": group.steps,
        "finished": group.finished,
        "on": "GPU" if group.device.startswith("cuda") else "CPU",
        "x": [int(step) for step in whole.steps],
        "mean": {key: short(whole.mean[key]) for key in metrics},
        "std": {key: short(whole.std[key]) for key in metrics},
    }


def bound_answer(groups: Sequence[Group]) -> Data | None:
    """Q4: what each epoch of SCPO predicted for the next one, and what that one showed."""
    for group in sorted(groups, key=lambda g: g.suite != POINT):
        name = (group.runs[0].config.get("spec", {}).get("cost_names") or [""])[0]
        seeds = [(run.seed, bound_pairs(run.metrics, name)) for run in group.counted]
        known = [(seed, pairs) for seed, pairs in seeds if pairs["steps"]]
        if group.own == "scpo" and known:
            return {
                "suite": group.suite,
                "constraint": name,
                "seeds": len(known),
                "steps": group.steps,
                "drawn_seed": known[0][0],
                "pairs": known[0][1],
                "epochs": sum(len(pairs["steps"]) for _, pairs in known),
                "idle": sum(pairs["idle"] for _, pairs in known),
                "tests": bound_tests([pairs for _, pairs in known]),
            }
    return None


def bound_pairs(metrics: Columns, name: str) -> Data:
    """Columns, a row for each epoch k that took a step: its predictions, and what k + 1 showed.

    `J` is the estimate from all steps of epoch k + 1, `max_cost` the plain mean over the episodes
    that ended in it, some of which began under older policies. `idle`: epochs that took no step,
    and so predicted nothing.
    """
    bounds = {b: metrics[f"constraint/{name}/{b.removeprefix('J_')}"][:-1] for b in BOUNDS}
    truth = metrics[f"constraint/{name}/estimate"][1:]
    known = (np.diff(metrics["epoch"]) == 1) & ~np.isnan([truth, *bounds.values()]).any(axis=0)
    idle = known & (metrics["policy/kl"][:-1] == 0.0)
    columns = {
        "steps": metrics["steps"][1:],
        "J": truth,
        "max_cost": metrics[f"cost/{name}/max"][1:],
    }
    rows: Data = {key: short(v[known & ~idle], 17) for key, v in (columns | bounds).items()}
    return rows | {"idle": int(idle.sum())}


def bound_tests(seeds: Sequence[Data]) -> Data:
    """For each version of the prediction: how often it was not exceeded, and by how much it missed.

    `share`: of the epochs with J at most the prediction; `share_max_cost`: with the mean over
    finished episodes at most it; `excess`: median of prediction minus J; `distance`: of its size.
    """
    tests = {}
    for bound in BOUNDS:
        predicted, truth, largest = (
            np.array([value for pairs in seeds for value in pairs[key]], dtype=float)
            for key in (bound, "J", "max_cost")
        )
        ended, excess = ~np.isnan(largest), predicted - truth
        above = predicted[ended] >= largest[ended]
        tests[bound] = {
            "share": float((excess >= 0).mean()),
            "share_max_cost": float(above.mean()) if len(above) else None,
            "excess": float(np.median(excess)),
            "distance": float(np.median(abs(excess))),
        }
    return tests


def resources_answer(groups: Sequence[Group]) -> Data | None:
    """Q5: median time of an epoch and peak memory of TRPO, CPO and SCPO, also relative to TRPO."""
    for suite in sorted({g.suite for g in groups}, key=lambda s: (s != POINT, s)):
        found = {g.own: g for g in groups if g.suite == suite and g.own in RESOURCES}
        used = {algo: _resources(found[algo]) for algo in RESOURCES if algo in found}
        if len(used) < len(RESOURCES) or not all(used.values()):
            continue
        base = used["trpo"]
        shown = [key for key in base if all(key in u for u in used.values()) and base[key] > 0]
        return {
            "suite": suite,
            "seeds": {algo: len(found[algo].counted) for algo in RESOURCES},
            "steps": {algo: found[algo].steps for algo in RESOURCES},
            "machines": sorted({_machine(run) for g in found.values() for run in g.counted}),
            "same_settings": len({(g.task, g.device) for g in found.values()}) == 1,
            "used": {algo: {k: used[algo][k] for k in shown} for algo in RESOURCES},
            "relative": {a: {k: used[a][k] / base[k] for k in shown} for a in RESOURCES},
        }
    return None


def _resources(group: Group) -> dict[str, float]:
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


def rises(increments: Sequence[float]) -> list[tuple[int, int]]:
    """First and last step of each stretch of positive increments one after another."""
    found: list[tuple[int, int]] = []
    for step, increment in enumerate(increments):
        if increment > 0:
            start = found.pop()[0] if found and found[-1][1] == step - 1 else step
            found.append((start, step))
    return found


def _machine(run: RunData) -> str:
    where = run.environment
    if run.config["train"].get("device", "cpu") != "cpu":
        return str(where.get("gpu"))
    return f"{where.get('processor')}, {where.get('cores')} cores"
