"""What the two safety layers share: a count of what they change."""

from __future__ import annotations

from torch import Tensor


class Corrections:
    """How often, and by how much, executed actions differ from proposed ones in an epoch."""

    def __init__(self) -> None:
        self._clear()

    def _clear(self) -> None:
        self._acted = 0
        self._changed: float | Tensor = 0.0
        self._distance: float | Tensor = 0.0

    def add(self, proposed: Tensor, executed: Tensor) -> None:
        """Count a batch of actions, `[B, a]` each. Does not wait for a GPU."""
        moved = (executed - proposed).norm(dim=1)
        self._acted += len(moved)
        self._changed = self._changed + (moved > 0).sum()
        self._distance = self._distance + moved.sum()

    def take(self) -> dict[str, float]:
        """The metrics since the last call."""
        changed, distance = float(self._changed), float(self._distance)
        metrics = {
            "safety_layer/rate": changed / max(self._acted, 1),
            "safety_layer/size": distance / max(changed, 1.0),
        }
        self._clear()
        return metrics
