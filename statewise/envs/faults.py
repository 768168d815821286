"""Counts the faults of physics and warns of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from statewise.sim.backend import Simulator

log = logging.getLogger("statewise")


class FaultCount:
    """How many episodes a fault has ended, with a warning for new ones.

    On the CPU the warning comes with the step. On a device faults are counted there, so that no
    step has to wait for it. The warning then comes when `total` is read.
    """

    def __init__(self, suite: str, sim: Simulator) -> None:
        self._suite, self._sim = suite, sim
        self.restore(0)

    def restore(self, total: int) -> None:
        """Continue from a count that was saved."""
        self._total = total
        self._counts = torch.tensor([total, 0], device=self._sim.device)
        """Only on a device: faults, and those by a refused action since the last warning."""

    def add(
        self, fault: Tensor, refused: Tensor | None, blame: Callable[[int], str | None]
    ) -> None:
        """Count one step's faults `[B]`; on a device `refused [B]` are those by a bad action.

        blame: why a world failed if physics did not, or None.
        """
        if refused is not None:
            self._counts += torch.stack([fault, refused]).sum(dim=1)
        elif bool(fault.any()):
            worlds, reasons = fault.nonzero()[:, 0].tolist(), self._sim.messages
            self._total += len(worlds)
            found = {w: reasons.get(w) or blame(w) or "non-finite sensors" for w in worlds}
            self._warn(len(worlds), found)

    @property
    def total(self) -> int:
        if self._sim.by_mask:
            total, refused = self._counts.tolist()
            if total > self._total:
                self._counts[1] = 0
                self._warn(total - self._total, self._sim.messages, refused)
            self._total = total
        return self._total

    def _warn(self, new: int, reasons: Mapping[int, str], refused: int = 0) -> None:
        parts = [f"{refused} non-finite actions"] if refused else []
        for reason in dict.fromkeys(reasons.values()):
            worlds = [str(world) for world, why in reasons.items() if why == reason]
            more = f" and {len(worlds) - 8} more" if len(worlds) > 8 else ""
            parts.append(f"{reason} in world {', '.join(worlds[:8])}{more}")
        text = "%s: %d new simulator faults (%s). Their episodes end, at the highest cost"
        log.warning(text, self._suite, new, "; ".join(parts))
