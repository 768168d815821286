"""Tells which constraint blocks the learning: above its limit for long, with nothing more to ask for."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

log = logging.getLogger("statewise")

PATIENCE = 20
"""Epochs after which the first warning comes. Later ones come each time the number has doubled."""


class BlockedConstraints:
    """Counts for each constraint how many epochs in a row it has been blocked.

    A constraint is blocked in an epoch if its estimated cost is above the limit and the update could
    not grant the decrease that it asked for. The reward then gets what is left of each update.
    """

    def __init__(self, names: Sequence[str], last: Mapping[str, Any] | None = None) -> None:
        """last: the metrics of the epoch before, if a run continues."""
        self.names = names
        self.epochs = {n: int((last or {}).get(f"constraint/{n}/blocked") or 0) for n in names}

    def add(self, metrics: Mapping[str, Any]) -> dict[str, float]:
        """Count an epoch; returns the counts as metrics, and logs a warning for a long one."""
        counted: dict[str, float] = {}
        for name in self.names:
            capped = metrics.get(f"constraint/{name}/capped")
            if capped is None:
                continue
            self.epochs[name] = self.epochs[name] + 1 if capped else 0
            counted[f"constraint/{name}/blocked"] = self.epochs[name]
            if _is_doubling(self.epochs[name]):
                self._warn(name, metrics)
        return counted

    def _warn(self, name: str, metrics: Mapping[str, Any]) -> None:
        estimate = metrics.get(f"constraint/{name}/estimate", float("nan"))
        limit = estimate - metrics.get(f"constraint/{name}/violation", float("nan"))
        cost = metrics.get(f"constraint/{name}/shown", estimate)
        log.warning(
            "the constraint %s has been above its limit since epoch %d (%d epochs): it is %.4g, its "
            "limit %.4g, and updates cannot lower it further. It takes most of each update "
            "from the reward. Try a higher cost limit, a smaller margin, or more time for an episode",
            name, metrics["epoch"] - self.epochs[name] + 1, self.epochs[name], cost, limit,
        )  # fmt: skip


def _is_doubling(epochs: int) -> bool:
    while epochs > PATIENCE and epochs % 2 == 0:
        epochs //= 2
    return epochs == PATIENCE
