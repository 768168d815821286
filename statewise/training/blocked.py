"""Tells which constraint blocks the learning: above its limit for long, and no longer getting better."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger("statewise")

PATIENCE = 20
"""Epochs after which the first warning comes. Later ones come each time the number has doubled."""
PROGRESS = 0.9
"""A cost that falls to this share of its lowest so far is getting better."""


class BlockedConstraints:
    """Counts for each constraint how many epochs in a row it has been blocked.

    A constraint is blocked in an epoch if its cost is above the limit, the update cannot grant the
    decrease that it asks for, and the cost has not become clearly lower. The reward then gets what is
    left of each update, and gains nothing by it.
    """

    def __init__(self, names: Sequence[str], past: Sequence[Mapping[str, Any]] = ()) -> None:
        """past: the metrics of all epochs before, if a run continues."""
        self.names = names
        self.epochs = dict.fromkeys(names, 0)
        self.lowest = dict.fromkeys(names, math.inf)
        for metrics in past:
            self._count(metrics)

    def add(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Count an epoch; returns the counts as metrics, and logs a warning for a long one."""
        counted = self._count(metrics)
        for name, epochs in counted.items():
            if _is_doubling(epochs):
                self._warn(name, metrics)
        return {f"constraint/{name}/blocked": float(epochs) for name, epochs in counted.items()}

    def _count(self, metrics: Mapping[str, Any]) -> dict[str, int]:
        counted = {}
        for name in self.names:
            capped = metrics.get(f"constraint/{name}/capped")
            if capped is None:
                continue
            cost = _cost(name, metrics)
            if not capped:
                self.epochs[name], self.lowest[name] = 0, math.inf
            elif cost < PROGRESS * self.lowest[name]:
                self.epochs[name], self.lowest[name] = 1, cost
            else:
                self.epochs[name] += 1
            counted[name] = self.epochs[name]
        return counted

    def _warn(self, name: str, metrics: Mapping[str, Any]) -> None:
        cost, estimate = _cost(name, metrics), metrics.get(f"constraint/{name}/estimate", math.nan)
        no_feedback = estimate - metrics.get(f"constraint/{name}/violation", math.nan)
        limit = metrics.get(f"constraint/{name}/limit", no_feedback)
        log.warning(
            "the constraint %s has been above its limit since epoch %d (%d epochs) and does not get "
            "better: it is %.4g, its limit %.4g. It takes most of each update from the reward. Try a "
            "higher cost limit, a smaller margin, or more time for an episode",
            name, metrics["epoch"] - self.epochs[name] + 1, self.epochs[name], cost, limit,
        )  # fmt: skip


def _cost(name: str, metrics: Mapping[str, Any]) -> float:
    """What is compared with the limit: as measured if there is feedback, else the estimate."""
    estimate = metrics.get(f"constraint/{name}/estimate", math.nan)
    return float(metrics.get(f"constraint/{name}/measured", estimate))


def _is_doubling(epochs: int) -> bool:
    while epochs > PATIENCE and epochs % 2 == 0:
        epochs //= 2
    return epochs == PATIENCE
