"""The numbers of one run that tables are made of, from its metrics and episodes."""

from __future__ import annotations

import csv
import io
import math
import mmap
import typing
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statewise.metrics import CHARTS, COST_RATE, EPISODE_COST, EPOCH_COST_RATE, MAX_COST, RETURN
from statewise.runs.shapes import check, read_json

Array = npt.NDArray[np.float64]
Values = dict[str, float | None]

EPISODIC = (RETURN, EPISODE_COST, MAX_COST)
"""Means over the episodes that ended in an epoch."""
_LATE = 0.05
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

    def __post_init__(self) -> None:
        if self.violations > self.episodes:
            counts = f"{self.violations} of {self.episodes}"
            raise ValueError(f"{counts} episodes violate {self.name:.40}")


@dataclass(frozen=True)
class RunSummary:
    """The results of a run."""

    epochs_done: int
    steps: int
    last: Values
    """The last epoch"""
    late: Values
    """Over the last 5 % of epochs: all their episodes, all their steps"""
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
    skipped_updates: int | None
    """Updates left out because a number was not finite; None where that was not counted"""


class Columns(dict[str, Array]):
    """Metrics by name: a value for each epoch, NaN where there is none."""

    def __missing__(self, key: str) -> Array:
        return np.full(len(self["epoch"]), np.nan)

    def known(self, key: str, rows: Any = slice(None)) -> Array:
        values = self[key][rows]
        return values[~np.isnan(values)]

    def last(self, key: str) -> float | None:
        return None if np.isnan(value := self[key][-1]) else float(value)

    def mean(self, key: str, rows: Any) -> float | None:
        return float(values.mean()) if len(values := self.known(key, rows)) else None

    def over_episodes(self, key: str, rows: Any) -> float | None:
        """Return the mean over all episodes of some epochs, computed from the means of the epochs."""
        values = self[key][rows]
        weights = np.where(np.isnan(values), 0.0, np.nan_to_num(self["episode/count"][rows]))
        return float(np.nansum(weights * values) / weights.sum()) if weights.any() else None

    def largest(self, key: str) -> float | None:
        return float(values.max()) if len(values := self.known(key)) else None


def read_summary(path: Path) -> tuple[RunSummary, list[str]]:
    """Return the summary in an export, and its notes. Raises ValueError if it cannot be used."""
    kinds, inner = typing.get_type_hints(RunSummary), typing.get_type_hints(Channel)
    content = read_json(path) or {}
    try:
        check(content, kinds | {"channels": [inner], "notes": list[str]}, "the summary")
        channels = tuple(Channel(**{k: c[k] for k in inner}) for c in content["channels"])
    except ValueError as error:  # its few epochs alone would give other numbers
        raise ValueError(f"{path.name} cannot be used ({error})") from None
    return RunSummary(**{k: content[k] for k in kinds} | {"channels": channels}), content["notes"]


def summarise(
    metrics: Columns, planned: int, cost_names: Sequence[str], episodes: Path
) -> tuple[RunSummary, list[str]]:
    """The summary of a run with at least one epoch, and what is wrong with its episodes.

    planned: the number of epochs that the run was to have.
    """
    window, epoch = max(1, math.ceil(_LATE * planned)), metrics["epoch"]
    late, early = epoch > epoch[-1] - window, epoch <= window
    # Not the running rate of these epochs, which would hide what they are like.
    rates = {
        COST_RATE: metrics.last(COST_RATE),
        EPOCH_COST_RATE: metrics.mean(EPOCH_COST_RATE, late),
    }
    tail: dict[str, Array] = {}
    notes = []
    try:
        tail = _late_episodes(episodes, metrics, late, [f"cost/{name}/max" for name in cost_names])
    except (OSError, ValueError) as error:
        notes = [
            f"episodes.csv cannot be used ({error}): no spread over episodes, no worst episode"
        ]
    skipped = metrics.last("update/skipped")
    summary = RunSummary(
        epochs_done=int(epoch[-1]),
        steps=int(metrics["steps"][-1]),
        last={key: metrics.last(key) for key in CHARTS},
        late={key: metrics.over_episodes(key, late) for key in EPISODIC} | rates,
        early_return=metrics.over_episodes(RETURN, early),
        early_return_std=metrics.mean("episode/return_std", early),
        channels=tuple(_channel(n, metrics, late, tail.get(f"cost/{n}/max")) for n in cost_names),
        seconds=metrics.last("time/total") or 0.0,
        collect_seconds=float(metrics.known("time/collect").sum()),
        update_seconds=float(metrics.known("time/update").sum()),
        peak_memory_mib=metrics.largest("memory/process_mib"),
        gpu_memory_mib=metrics.largest("memory/gpu_mib"),
        sim_faults=int(metrics.last("sim/faults") or 0),
        skipped_updates=None if skipped is None else int(skipped),
    )
    return summary, notes


def _channel(name: str, metrics: Columns, late: Any, largest: Array | None) -> Channel:
    counts, rates = (np.nan_to_num(metrics[key][late])
                     for key in ("episode/count", f"cost/{name}/violation_rate"))  # fmt: skip
    # A rate is a count of episodes over their number, so the count comes back exactly.
    violations, mean = (
        np.round(counts * rates).sum(),
        metrics.over_episodes(f"cost/{name}/max", late),
    )
    spread = (None, None) if largest is None else (float(largest.std()), float(largest.max()))
    return Channel(name, int(counts.sum()), int(violations), mean, *spread)


def _late_episodes(
    path: Path, metrics: Columns, late: Any, names: Sequence[str]
) -> dict[str, Array]:
    """Columns of the episodes of the late epochs. Raises ValueError if they are not all there.

    The file may be long, so it is read from its end.
    """
    epoch, counts = metrics["epoch"], np.nan_to_num(metrics["episode/count"])
    expected = int(counts[late].sum())
    if not expected or not names:
        return {}
    if not path.is_file() or path.stat().st_size == 0:
        raise ValueError("it is missing or empty")
    before = epoch[(counts > 0) & ~late]
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        head = content.find(b"\n") + 1
        start = content.rfind(b"\n%d," % before[-1]) if len(before) else -1
        try:
            columns = next(csv.reader([content[:head].decode()]))
        except csv.Error as error:  # which is no ValueError
            raise ValueError(f"the columns of its first line cannot be read: {error}") from None
        text = content[max(head, start + 1) : content.rfind(b"\n") + 1]
    wanted = ("epoch", *names)
    if missing := [name for name in wanted if name not in columns]:
        raise ValueError(f"it has no column {missing[0]}")
    if text.partition(b"\n")[0].count(b",") != len(columns) - 1:
        raise ValueError("its rows do not have the columns of its first line")
    where = [columns.index(name) for name in wanted]
    rows = np.loadtxt(io.BytesIO(text), delimiter=",", usecols=where, ndmin=2)
    rows = rows[np.isin(rows[:, 0], epoch[late])]
    if len(rows) != expected:
        raise ValueError(f"it has {len(rows)} of the {expected} episodes of the late epochs")
    found = {name: rows[:, column] for column, name in enumerate(names, start=1)}
    if not all(np.isfinite(values).all() for values in found.values()):
        raise ValueError("it has costs that are no numbers")
    return found
