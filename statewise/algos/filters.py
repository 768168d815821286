"""What the two safety layers share: a count of what they change."""

from __future__ import annotations

from torch import Tensor


class Corrections:
    """How often, and by how much, executed actions differ from proposed ones in an epoch."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._acted = self._changed = 0
        self._distance = 0.0

    def add(self, proposed: Tensor, executed: Tensor) -> None:
        """Count a batch of actions, `[B, a]` each."""
        moved = (executed - proposed).norm(dim=1)
        self._acted += len(moved)
        self._changed += int((moved > 0).sum())
        self._distance += float(moved.sum())

    def take(self) -> dict[str, float]:
        """The metrics since the last call."""
        metrics = {
            "correction_rate": self._changed / max(self._acted, 1),
            "correction_size": self._distance / max(self._changed, 1),
        }
        self._clear()
        return metrics
