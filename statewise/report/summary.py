"""The numbers of one run that a report is made of, from its metrics and episodes."""

from __future__ import annotations

import dataclasses
import math
import mmap
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

Metrics = list[dict[str, Any]]
Values = dict[str, float | None]

EPISODE_METRICS = ("return", "episode_cost", "max_cost")
"""Means over the episodes that ended in an epoch."""
STEP_METRICS = ("cost_rate", "epoch_cost_rate")
WHOLE = EPISODE_METRICS + STEP_METRICS
LATE = 0.05
"""Share of the epochs, the last ones, over which the steadier numbers are taken."""


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

    def as_dict(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_dict(cls, content: dict[str, Any]) -> RunSummary:
        known = {f.name for f in dataclasses.fields(cls)}
        if missing := known - set(content):
            raise ValueError(f"the summary lacks {', '.join(sorted(missing))}")
        fields = {k: v for k, v in content.items() if k in known}
        return cls(**fields | {"channels": tuple(Channel(**c) for c in content["channels"])})


def summarise(
    metrics: Metrics, epochs: int, cost_names: Sequence[str], episodes: Path
) -> RunSummary:
    """The summary of a run with at least one epoch. `epochs`: how many it was to have."""
    last = metrics[-1]
    window = max(1, math.ceil(LATE * epochs))
    late, early = metrics[-window:], metrics[:window]
    tail = _late_episodes(episodes, late[0]["epoch"], [f"max_cost_{n}" for n in cost_names])
    late_values = {key: _over_episodes(late, key) for key in EPISODE_METRICS}
    # Not the running rate, which would hide what these epochs are like.
    late_values["epoch_cost_rate"] = _mean([m.get("epoch_cost_rate") for m in late])
    late_values["cost_rate"] = last.get("cost_rate")
    return RunSummary(
        epochs_done=last["epoch"],
        steps=last["steps"],
        last={key: last.get(key) for key in WHOLE},
        late=late_values,
        late_epochs=len(late),
        early_return=_over_episodes(early, "return"),
        early_return_std=_mean([m.get("return_std") for m in early]),
        channels=tuple(_channel(n, late, tail.get(f"max_cost_{n}")) for n in cost_names),
        seconds=float(last.get("seconds") or 0.0),
        collect_seconds=sum(m.get("collect_seconds") or 0.0 for m in metrics),
        update_seconds=sum(m.get("update_seconds") or 0.0 for m in metrics),
        peak_memory_mib=_largest(metrics, "peak_memory_mib"),
        gpu_memory_mib=_largest(metrics, "gpu_memory_mib"),
        sim_faults=int(last.get("sim_faults") or 0),
    )


def _channel(name: str, late: Metrics, largest: np.ndarray | None) -> Channel:
    counts = [(m.get("episodes") or 0, m.get(f"violation_rate_{name}")) for m in late]
    known = largest is not None and len(largest) > 0
    return Channel(
        name=name,
        episodes=sum(n for n, _ in counts),
        # A rate is a count of episodes over their number, so the count comes back exactly.
        violations=sum(round(n * rate) for n, rate in counts if rate is not None),
        max_cost=_over_episodes(late, f"max_cost_{name}"),
        max_cost_std=float(np.std(largest)) if known and largest is not None else None,
        worst_cost=float(np.max(largest)) if known and largest is not None else None,
    )


def _over_episodes(metrics: Metrics, key: str) -> float | None:
    """Mean over all episodes of some epochs, from the means of each."""
    pairs = [(m.get("episodes") or 0, m.get(key)) for m in metrics]
    total = sum(n for n, value in pairs if value is not None)
    return sum(n * v for n, v in pairs if v is not None) / total if total else None


def _mean(values: Sequence[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return sum(known) / len(known) if known else None


def _largest(metrics: Metrics, key: str) -> float | None:
    return max((m[key] for m in metrics if m.get(key) is not None), default=None)


def _late_episodes(path: Path, first_epoch: int, columns: list[str]) -> dict[str, np.ndarray]:
    """Columns of the episodes from `first_epoch` on; nothing if they are not on disk.

    The file may be long, so it is read from its end.
    """
    if not path.is_file() or path.stat().st_size == 0:
        return {}
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        header = content[: content.find(b"\n")].decode().strip().split(",")
        start = -1
        for epoch in range(first_epoch - 1, -1, -1):  # an epoch may have no episode
            start = content.rfind(b"\n%d," % epoch)
            if start >= 0:
                break
        tail = content[max(start, 0) :].decode()
    whole = tail[: tail.rfind("\n")].splitlines()[1:]  # the first belongs to the epoch before
    rows = [line.split(",") for line in whole]
    rows = [row for row in rows if len(row) == len(header) and int(row[0]) >= first_epoch]
    found = [name for name in columns if name in header]
    return {
        name: np.array([float(row[header.index(name)]) for row in rows], dtype=float)
        for name in found
    }
