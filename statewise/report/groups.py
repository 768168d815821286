"""Runs that may be averaged: the same suite, name and settings, different seeds."""

from __future__ import annotations

import dataclasses
import json
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from statewise.algos import ALGORITHMS
from statewise.core.statistics import Interval, rate_over_seeds
from statewise.metrics import CHARTS
from statewise.report.reference import Reference
from statewise.runs.differences import deciding, differing, setting_text, suffix
from statewise.runs.epochs import usual_final_batch
from statewise.runs.judged import Judged, JudgedConstraint
from statewise.runs.reader import RunData
from statewise.runs.summary import Array, Channel
from statewise.settings import to_json
from statewise.training.config import TrainSettings, usual_worlds


@dataclass(frozen=True, eq=False)
class Group:
    """The seeds of one experiment."""

    suite: str
    label: str
    algo: str
    name: str
    """What legends and tables call it"""
    main: bool
    """Stands for its algorithm in the ranking"""
    changed: dict[str, Any]
    """Settings that differ from the defaults, or whose defaults are not known"""
    task: str
    """Settings that the algorithms of a suite must share to be compared"""
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

    @property
    def on_gpu(self) -> bool:
        return self.device.startswith("cuda")

    @property
    def settings(self) -> dict[str, Any]:
        return self.runs[0].settings

    @cached_property
    def constraints(self) -> list[Constraint]:
        found: dict[str, list[Channel]] = {}
        for run in self.counted:
            for channel in run.summary.channels:
                found.setdefault(channel.name, []).append(channel)
        return [Constraint(self, name, channels) for name, channels in found.items()]

    @property
    def violations(self) -> tuple[Interval, int] | None:
        """Violation rate of the constraint that is broken most often, and how many seeds have it."""
        rates = [(r, len(c.channels)) for c in self.constraints if (r := c.rate) is not None]
        return max(rates, key=lambda found: found[0].estimate, default=None)

    @cached_property
    def judged(self) -> tuple[Judged, ...]:
        """How the final policies of the counted seeds were judged. Empty unless all of them were."""
        found = [run.judged for run in self.counted if run.judged is not None]
        return tuple(found) if len(found) == len(self.counted) else ()

    @property
    def final_policies(self) -> list[FinalPolicies]:
        """The judged policies, for every constraint."""
        return [
            FinalPolicies(self, c.name) for c in (self.judged[0].constraints if self.judged else ())
        ]

    @property
    def judged_return(self) -> float | None:
        """Mean return of the final policies in fresh episodes."""
        return float(np.mean([j.mean_return for j in self.judged])) if self.judged else None

    @property
    def judged_rate(self) -> Interval | None:
        """Violation rate of the constraint that the final policies break most often."""
        rates = [row.rate for row in self.final_policies]
        return max(rates, key=lambda rate: rate.estimate, default=None)

    def values(self, part: str, metric: str) -> Array:
        """A metric of each counted run: `part` is "last" or "late". Unknown ones are left out."""
        found = [getattr(run.summary, part).get(metric) for run in self.counted]
        return np.array([v for v in found if v is not None], dtype=float)

    def mean(self, part: str, metric: str) -> float | None:
        values = self.values(part, metric)
        return float(values.mean()) if len(values) else None

    @cached_property
    def curve(self) -> Curve:
        """Over the counted seeds, at the epochs that all of them have."""
        runs = [run.curves for run in self.counted]
        epochs = sorted(set.intersection(*(set(run["epoch"]) for run in runs)))
        rows = [np.searchsorted(run["epoch"], epochs) for run in runs]
        curve = Curve(runs[0]["steps"][rows[0]], {}, {})
        for key in CHARTS:
            values = np.stack([run[key][row] for run, row in zip(runs, rows, strict=True)])
            with (
                warnings.catch_warnings()
            ):  # of epochs that no or one run knows: NaN is right there
                warnings.simplefilter("ignore", RuntimeWarning)
                curve.mean[key] = np.nanmean(values, axis=0)
                if len(runs) > 1:
                    curve.std[key] = np.nanstd(values, axis=0, ddof=1)
        return curve


class Constraint(NamedTuple):
    """One constraint over the late episodes of a group."""

    group: Group
    name: str
    channels: list[Channel]
    """Of the seeds that have it"""

    @property
    def rate(self) -> Interval | None:
        """Share of the episodes with a cost, with an interval over new seeds."""
        counts = [(c.violations, c.episodes) for c in self.channels]
        return rate_over_seeds(counts) if any(episodes for _, episodes in counts) else None


class FinalPolicies(NamedTuple):
    """One constraint over the fresh episodes of the final policies of a group."""

    group: Group
    name: str

    @property
    def found(self) -> list[tuple[Judged, JudgedConstraint]]:
        return [(j, c) for j in self.group.judged for c in j.constraints if c.name == self.name]

    @property
    def rate(self) -> Interval:
        """Share of the violating episodes, with an interval over new seeds."""
        return rate_over_seeds([(c.violations, j.episodes) for j, c in self.found])


@dataclass(frozen=True, eq=False)
class Curve:
    """Mean and spread of every metric over seeds."""

    steps: Array
    mean: dict[str, Array]
    std: dict[str, Array]
    """Sample standard deviation over seeds; empty for one seed"""


def group_runs(runs: Sequence[RunData], reference: Reference | None = None) -> list[Group]:
    """All groups; suites and algorithms in the order of the reference, then by name."""
    by_name: dict[tuple[str, str], dict[str, list[RunData]]] = {}
    for run in runs:
        key = json.dumps(run.settings, sort_keys=True)
        by_name.setdefault((run.suite, run.label), {}).setdefault(key, []).append(run)
    groups = []
    for kinds in by_name.values():
        apart = differing([members[0].settings for members in kinds.values()])
        found = [_group(members, apart) for members in kinds.values()]
        # Of several settings under the name of an algorithm, the most usual ones stand for it.
        best = min(found, key=lambda g: (not g.finished, len(g.changed), -len(g.runs)))
        groups += [dataclasses.replace(g, main=g.main and g is best) for g in found]
    suites, algos = (list(reference.steps), list(reference.algos)) if reference else ([], [])

    def order(group: Group) -> tuple[Any, ...]:
        suite = suites.index(group.suite) if group.suite in suites else len(suites)
        algo = algos.index(group.algo) if group.algo in algos else len(algos)
        return suite, group.suite, not group.main, algo, group.name

    return sorted(groups, key=order)


def _group(runs: list[RunData], apart: list[str]) -> Group:
    first = runs[0]
    settings, kind = first.settings, ALGORITHMS.get(first.algo)
    worlds = usual_worlds(first.suite, settings.get("device", "cpu"), settings["steps"])
    defaults = deciding({
        "train": to_json(TrainSettings(first.suite, device="cpu", num_envs=worlds).resolved()),
        "algorithm": to_json(kind.settings_class()) if kind is not None else {},
    }) | {
        "algo": first.algo,
        "final_batch": usual_final_batch(settings["steps"], settings["steps_per_epoch"]),
    }  # fmt: skip
    # A margin changes what a method learns from. It is judged by true costs all the same.
    task = {k: settings[k] for k in sorted({*first.config["train"], "final_batch"})
            if k in settings and k not in ("algo", "device", "imports", "margin")}  # fmt: skip
    return Group(
        suite=first.suite,
        label=first.label,
        algo=first.algo,
        name=(title_of(first.algo) if first.label == first.algo else first.label)
        + suffix(settings, apart),
        main=first.label == first.algo,
        changed={k: v for k, v in settings.items() if k not in defaults or defaults[k] != v},
        task=json.dumps(task),
        device=settings.get("device", "cpu"),
        runs=tuple(sorted(runs, key=lambda run: run.seed)),
    )


def title_of(algo: str) -> str:
    """What people call an algorithm; one that is not registered here is called by its key."""
    return ALGORITHMS[algo].title if algo in ALGORITHMS else algo


def mixed_labels(groups: Sequence[Group]) -> list[str]:
    """A sentence for every name that stands for several settings."""
    names: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        names.setdefault((group.suite, group.label), []).append(group)
    found = []
    for (suite, label), several in names.items():
        if len(several) > 1:
            shown = "; ".join(f"{g.name} ({_seeds_text(g)})" for g in several)
            main = next((f" {g.name} stands for it in the ranking." for g in several if g.main), "")
            found.append(
                f"{suite}: runs named {label} have {len(several)} different settings. They are "
                f"shown apart and never averaged: {shown}.{main}"
            )
    return found


def _seeds_text(group: Group) -> str:
    seeds = ", ".join(str(run.seed) for run in group.runs)
    return f"seed{'s' if len(group.runs) > 1 else ''} {seeds}"


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
        else:
            words.append(f"{flag} {setting_text(value).replace(',', ' ')}")
    return " ".join(words)
