"""The numbers of one run that a report is made of, from its metrics and episodes."""

from __future__ import annotations

import csv
import dataclasses
import math
import mmap
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Metrics = list[dict[str, Any]]
Values = dict[str, float | None]

EPISODE_METRICS = ("episode/return", "cost/episode", "cost/max")
"""Means over the episodes that ended in an epoch."""
STEP_METRICS = ("cost/rate", "cost/epoch_rate")
WHOLE = EPISODE_METRICS + STEP_METRICS
LATE = 0.05
"""Share of the epochs, the last ones, over which the steadier numbers are taken."""


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def _is_count(value: Any) -> bool:
    return (
        isinstance(value, int) and not isinstance(value, bool) and is_number(value) and value >= 0
    )


_KINDS: dict[str, Callable[[Any], bool]] = {
    "int": _is_count,
    "positive int": lambda v: _is_count(v) and v > 0,
    "int | None": lambda v: v is None or _is_count(v),
    "float": is_number,
    "float | None": lambda v: v is None or is_number(v),
    "str": lambda v: isinstance(v, str),
    "dict": lambda v: isinstance(v, dict),
    "list[str]": lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v),
    "Values": lambda v: isinstance(v, dict) and all(x is None or is_number(x) for x in v.values()),
    "tuple[Channel, ...]": lambda v: isinstance(v, list),
}


def check(content: Any, kinds: Mapping[str, str], what: str) -> None:
    """Raise ValueError unless this is a JSON object with these fields, each of its kind."""
    if not isinstance(content, dict):
        raise ValueError(f"{what} is {content!r:.40}, not an object")
    if missing := set(kinds) - set(content):
        raise ValueError(f"{what} lacks {', '.join(sorted(missing))}")
    for name, kind in kinds.items():
        if not _KINDS[kind](content[name]):
            raise ValueError(f"{what} has {name} {content[name]!r:.40}, not {kind}")


@dataclass(frozen=True)
class Channel:
    """One constraint over the episodes that ended in the late epochs."""

    name: str
    episodes: int
    violations: int
    """Episodes with a step of positive cost"""
    max_cost: float | None
    """Mean of the largest cost of an episode"""
    max_cost_std: float | None
    """Its standard deviation over episodes; None without the episodes on disk"""
    worst_cost: float | None
    """The largest of all; None without the episodes on disk"""

    def __post_init__(self) -> None:
        if not 0 <= self.violations <= self.episodes:
            raise ValueError(
                f"{self.violations} of {self.episodes} episodes violate {self.name:.40}"
            )


@dataclass(frozen=True)
class RunSummary:
    """What a run came to. `last` is its last epoch, as in the paper's tables."""

    epochs_done: int
    steps: int
    last: Values
    late: Values
    """Over the last 5 % of epochs: all their episodes, all their steps"""
    late_epochs: int
    early_return: float | None
    """Over the first 5 % of epochs: what the run began with"""
    early_return_std: float | None
    """Spread of the returns of those episodes"""
    channels: tuple[Channel, ...]
    seconds: float
    collect_seconds: float
    update_seconds: float
    peak_memory_mib: float | None
    gpu_memory_mib: float | None
    sim_faults: int
    skipped_updates: int | None = None
    """Updates left out since a number was not finite; None where it was not written down"""

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RunSummary:
        """From `as_dict`; fields of a newer version are passed over, newer fields may be missing."""
        fields = _fields(cls, content, "the summary")
        channels = tuple(Channel(**_fields(Channel, c, "a channel")) for c in fields["channels"])
        return cls(**fields | {"channels": channels})


def _fields(cls: type, content: Any, what: str) -> dict[str, Any]:
    """What a dataclass is made of, of the kinds that it names."""
    newer = [f.name for f in dataclasses.fields(cls) if f.default is not dataclasses.MISSING]
    kinds = {f.name: str(f.type) for f in dataclasses.fields(cls)}
    if isinstance(content, dict):
        kinds = {n: kind for n, kind in kinds.items() if n in content or n not in newer}
    check(content, kinds, what)
    return {name: content[name] for name in kinds}


def summarise(
    metrics: Metrics, epochs: int, cost_names: Sequence[str], episodes: Path
) -> tuple[RunSummary, list[str]]:
    """The summary of a run with at least one epoch, and what is wrong with its episodes.

    metrics: in the order of the epochs. epochs: how many it was to have.
    """
    last = metrics[-1]
    window = max(1, math.ceil(LATE * epochs))
    late = [m for m in metrics if m["epoch"] > last["epoch"] - window]
    early = [m for m in metrics if m["epoch"] <= window]
    notes = []
    try:
        tail = _late_episodes(episodes, metrics, late, [f"cost/{n}/max" for n in cost_names])
    except (OSError, ValueError) as error:
        tail = {}
        notes.append(
            f"episodes.csv cannot be used ({error}): no spread over episodes, no worst episode"
        )
    late_values = {key: _over_episodes(late, key) for key in EPISODE_METRICS}
    # Not the running rate, which would hide what these epochs are like.
    late_values["cost/epoch_rate"] = _mean([m.get("cost/epoch_rate") for m in late])
    late_values["cost/rate"] = last.get("cost/rate")
    summary = RunSummary(
        epochs_done=last["epoch"],
        steps=last["steps"],
        last={key: last.get(key) for key in WHOLE},
        late=late_values,
        late_epochs=len(late),
        early_return=_over_episodes(early, "episode/return"),
        early_return_std=_mean([m.get("episode/return_std") for m in early]),
        channels=tuple(_channel(n, late, tail.get(f"cost/{n}/max")) for n in cost_names),
        seconds=float(last.get("time/total") or 0.0),
        collect_seconds=sum(m.get("time/collect") or 0.0 for m in metrics),
        update_seconds=sum(m.get("time/update") or 0.0 for m in metrics),
        peak_memory_mib=_largest(metrics, "memory/process_mib"),
        gpu_memory_mib=_largest(metrics, "memory/gpu_mib"),
        sim_faults=int(last.get("sim/faults") or 0),
        skipped_updates=None if (n := last.get("update/skipped")) is None else int(n),
    )
    return summary, notes


def _channel(name: str, late: Metrics, largest: np.ndarray | None) -> Channel:
    counts = [(m.get("episode/count") or 0, m.get(f"cost/{name}/violation_rate")) for m in late]
    known = largest is not None and len(largest) > 0
    return Channel(
        name=name,
        episodes=sum(n for n, _ in counts),
        # A rate is a count of episodes over their number, so the count comes back exactly.
        violations=sum(round(n * rate) for n, rate in counts if rate is not None),
        max_cost=_over_episodes(late, f"cost/{name}/max"),
        max_cost_std=float(np.std(largest)) if known and largest is not None else None,
        worst_cost=float(np.max(largest)) if known and largest is not None else None,
    )


def _over_episodes(metrics: Metrics, key: str) -> float | None:
    """Mean over all episodes of some epochs, from the means of each."""
    pairs = [(m.get("episode/count") or 0, m.get(key)) for m in metrics]
    total = sum(n for n, value in pairs if value is not None)
    return sum(n * v for n, v in pairs if v is not None) / total if total else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _largest(metrics: Metrics, key: str) -> float | None:
    return max((m[key] for m in metrics if m.get(key) is not None), default=None)


def _late_episodes(
    path: Path, metrics: Metrics, late: Metrics, columns: list[str]
) -> dict[str, np.ndarray]:
    """Columns of the episodes of the late epochs; ValueError if they are not all there.

    The file may be long, so it is read from its end.
    """
    wanted = {m["epoch"] for m in late if m.get("episode/count")}
    if not wanted or not columns:
        return {}
    if not path.is_file():
        raise ValueError("it is missing")
    if path.stat().st_size == 0:
        raise ValueError("it is empty")
    before = [m["epoch"] for m in metrics if m.get("episode/count") and m["epoch"] < min(wanted)]
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        first = content[: content.find(b"\n") + 1].decode().strip()
        start = content.rfind(b"\n%d," % before[-1]) if before else -1
        tail = content[start + 1 :].decode()
    try:
        (header,) = csv.reader([first])  # the name of a constraint may hold a comma
    except csv.Error as error:
        raise ValueError(f"its header is damaged: {error}") from None
    if lacking := {"epoch", *columns} - set(header):
        raise ValueError(f"its header lacks {', '.join(sorted(lacking))}")
    lines = tail.split("\n")  # the first belongs to the epoch before, or is the header
    rows, rest = [line.split(",") for line in lines[1:-1]], lines[-1]
    for row in rows:
        if len(row) != len(header) or not row[0].isdecimal():
            raise ValueError(f"it has a damaged row, {','.join(row)!r:.60}")
    epochs = [int(row[0]) for row in rows]
    if absent := wanted - set(epochs):
        raise ValueError(f"it lacks the episodes of epoch {min(absent)}")
    if rest and epochs[-1] <= max(wanted):
        raise ValueError("it is cut short")
    chosen = [row for row, epoch in zip(rows, epochs, strict=True) if epoch in wanted]
    found = {
        name: np.array([float(row[header.index(name)]) for row in chosen], dtype=float)
        for name in columns
    }
    if not all(np.isfinite(values).all() for values in found.values()):
        raise ValueError("it has costs that are no numbers")
    return found
