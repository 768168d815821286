"""Runs that may be averaged: the same suite, name and settings, different seeds."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from statewise.envs.suites import PAPER_SUITES
from statewise.report.data import Array, RunData, default_settings, settings_of
from statewise.report.paper import NAMES
from statewise.report.summary import WHOLE


@dataclass(frozen=True, eq=False)
class Group:
    """The seeds of one experiment."""

    suite: str
    label: str
    algo: str
    name: str
    """What legends and tables call it"""
    main: bool
    """Stands for its algorithm in the ranking and in the findings"""
    changed: dict[str, Any]
    """Settings that differ from the defaults"""
    task: str
    """Settings that are not the algorithm's own, but for the device: only groups that share them are
    compared"""
    device: str
    """Time and memory are compared on the same one only"""
    runs: tuple[RunData, ...]

    @property
    def finished(self) -> bool:
        return any(run.finished for run in self.runs)

    @property
    def counted(self) -> tuple[RunData, ...]:
        """Runs that means are taken over: the finished ones, or all if there is none."""
        return tuple(run for run in self.runs if run.finished) or self.runs

    @property
    def uncounted(self) -> tuple[RunData, ...]:
        return tuple(run for run in self.runs if run not in self.counted)

    @property
    def steps(self) -> int:
        return min(run.summary.steps for run in self.counted)

    @property
    def settling(self) -> int:
        return max(run.settling for run in self.runs)

    @property
    def settled(self) -> bool:
        """Whether an episode can have run out of time."""
        return self.steps >= self.settling

    @property
    def own(self) -> str:
        """The algorithm it stands for, if any."""
        return self.algo if self.main else ""

    def values(self, part: str, metric: str) -> Array:
        """A metric of each counted run: `part` is "last" or "late". Unknown ones are left out."""
        found = [getattr(run.summary, part).get(metric) for run in self.counted]
        return np.array([v for v in found if v is not None], dtype=float)

    def mean(self, part: str, metric: str) -> float | None:
        values = self.values(part, metric)
        return float(values.mean()) if len(values) else None

    def curve(self) -> Curve:
        """Mean and spread of every metric over the counted seeds, at the epochs all of them have."""
        runs = self.counted
        epochs = sorted(set.intersection(*(set(run.curve_epochs) for run in runs)))
        rows = [[run.curve_epochs.index(epoch) for epoch in epochs] for run in runs]
        steps = runs[0].curves["steps"][rows[0]]
        means, spreads = {}, {}
        for key in WHOLE:
            values = np.stack([run.curves[key][row] for run, row in zip(runs, rows, strict=True)])
            means[key], spreads[key] = _mean_and_std(values)
        return Curve(steps, means, spreads)


@dataclass(frozen=True, eq=False)
class Curve:
    """What a chart draws of a group."""

    steps: Array
    mean: dict[str, Array]
    std: dict[str, Array]
    """Sample standard deviation over seeds; NaN for one seed"""


def group_runs(runs: Sequence[RunData]) -> list[Group]:
    """All groups: suites in the paper's order, in each the algorithms in the paper's order."""
    by_label: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        key = json.dumps(settings_of(run), sort_keys=True)
        by_label.setdefault((run.suite, run.label), {}).setdefault(key, []).append(run)
    groups = []
    for (suite, label), kinds in by_label.items():
        apart = differing([json.loads(key) for key in kinds])
        found = [_group(suite, label, members, apart) for members in kinds.values()]
        groups += _with_one_main(found)
    return sorted(groups, key=_order)


def mixed_labels(groups: Sequence[Group]) -> list[str]:
    """A sentence for every name that stands for several settings."""
    names: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        names.setdefault((group.suite, group.label), []).append(group)
    found = []
    for (suite, label), several in names.items():
        if len(several) > 1:
            shown = "; ".join(f"{g.name} ({_seeds(g)})" for g in several)
            main = next((f" {g.name} stands for it in the ranking." for g in several if g.main), "")
            found.append(
                f"{suite}: runs named {label} have {len(several)} different settings. They are "
                f"shown apart and never averaged: {shown}.{main}"
            )
    return found


def command(group: Group) -> str:
    """The command line that makes the runs of the group."""
    seeds = [str(run.seed) for run in group.runs]
    which = f"--seed {seeds[0]}" if len(seeds) == 1 else f"--seeds {','.join(seeds)}"
    words = ["statewise train", group.suite, f"--algo {group.algo}", which]
    if group.label != group.algo:
        words.append(f"--label {group.label}")
    for key, value in group.changed.items():
        flag = "--" + {"imports": "import"}.get(key, key).replace("_", "-")
        if isinstance(value, bool):
            words.append(flag if value else flag.replace("--", "--no-", 1))
        elif isinstance(value, list):
            words.append(" ".join([flag, *map(str, value)]))
        else:
            words.append(f"{flag} {value}")
    return " ".join(words)


# Settings --------------------------------------------------------------------------------------


def _changed(run: RunData) -> dict[str, Any]:
    train, own = default_settings(run.suite, run.algo)
    given = settings_of(run)
    kept = {k: v for k, v in given["train"].items() if k not in train or train[k] != v}
    return kept | {k: v for k, v in given["own"].items() if k not in own or own[k] != v}


def differing(kinds: Sequence[dict[str, dict[str, Any]]]) -> list[str]:
    """Names of the settings in which some sets of settings (of `settings_in`) differ."""
    flat = [_flat(kind) for kind in kinds]
    names = list(dict.fromkeys(name for settings in flat for name in settings))
    return [n for n in names if any(s.get(n) != flat[0].get(n) for s in flat)]


def suffix(settings: dict[str, dict[str, Any]], names: Sequence[str]) -> str:
    """What a name is followed by where several sets of settings have it; nothing without `names`."""
    flat = _flat(settings)
    values = ", ".join(f"{n}={_text(flat.get(n))}" for n in names)
    return f" · {values}" if values else ""


def _flat(settings: dict[str, dict[str, Any]]) -> dict[str, Any]:
    return {k: v for part in settings.values() for k, v in part.items()}


def _group(suite: str, label: str, runs: list[RunData], apart: list[str]) -> Group:
    first = runs[0]
    settings = settings_of(first)
    task = {k: v for k, v in settings["train"].items() if k != "device"}
    name = NAMES.get(label, label) if label == first.algo else label
    return Group(
        suite=suite,
        label=label,
        algo=first.algo,
        name=name + suffix(settings, apart),
        main=label == first.algo,
        changed=_changed(first),
        task=json.dumps(task, sort_keys=True),
        device=settings["train"]["device"],
        runs=tuple(sorted(runs, key=lambda run: run.seed)),
    )


def _with_one_main(groups: list[Group]) -> list[Group]:
    """Of several settings under the name of an algorithm, the most usual ones stand for it."""
    best = min(groups, key=lambda g: (not g.finished, len(g.changed), -len(g.runs)))
    return [dataclasses.replace(g, main=g.main and g is best) for g in groups]


def _order(group: Group) -> tuple[Any, ...]:
    suites, algos = list(PAPER_SUITES), list(NAMES)
    suite = suites.index(group.suite) if group.suite in suites else len(suites)
    algo = algos.index(group.algo) if group.algo in algos else len(algos)
    return (suite, group.suite, not group.main, algo, group.name)


def _mean_and_std(values: Array) -> tuple[Array, Array]:
    """Over the first axis, of what is known: `[seeds, points]` to `[points]` twice."""
    known = ~np.isnan(values)
    count = known.sum(axis=0)
    filled = np.where(known, values, 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = filled.sum(axis=0) / count
        squares = np.where(known, (values - mean) ** 2, 0.0).sum(axis=0)
        std = np.sqrt(squares / (count - 1))
    return np.where(count > 0, mean, np.nan), np.where(count > 1, std, np.nan)


def _seeds(group: Group) -> str:
    seeds = ", ".join(str(run.seed) for run in group.runs)
    return f"seed{'s' if len(group.runs) > 1 else ''} {seeds}"


def _text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
