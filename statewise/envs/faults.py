"""Counts the faults of physics, tasks and constraints, and warns of them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor

from statewise.sim.backend import Simulator
from statewise.text import several

log = logging.getLogger("statewise")


class FaultCount:
    """How many episodes a fault has ended, with a warning for new ones.

    On the CPU the warning comes with the step, and the next one when there are twice as many faults, so
    that a broken model does not flood the log. On a device faults are counted there, so that no step
    has to wait for it. The warning then comes when `total` is read.
    """

    def __init__(self, suite: str, sim: Simulator, may_fail: Sequence[str]) -> None:
        """may_fail: what else than physics can fail, in words."""
        self._suite, self._sim, self._may_fail = suite, sim, may_fail
        self.restore(0)

    def restore(self, total: int) -> None:
        """Continue from a count that was saved."""
        self._total = total
        self._next = total + 1
        """Only on the CPU: the total at which the next warning is due"""
        self._quiet = 0
        """Only on the CPU: faults since the last warning"""
        zeros = [0] * (1 + len(self._may_fail))
        self._counts = torch.tensor([total, *zeros], device=self._sim.device)
        """Only on a device: all faults; since the last warning, those by a refused action and by each
        part of `may_fail`."""

    def add(self, fault: Tensor, refused: Tensor | None, failed: Callable[[], Tensor]) -> None:
        """Count one step's faults `[B]`; on a device `refused [B]` are those by a bad action.

        failed: gives `[B, k]`, which parts of `may_fail` failed.
        """
        if refused is not None:
            causes = torch.cat([fault.unsqueeze(1), refused.unsqueeze(1), failed()], dim=1)
            self._counts += causes.sum(dim=0)
        elif bool(fault.any()):
            worlds, reasons = fault.nonzero()[:, 0].tolist(), self._sim.messages
            self._total += len(worlds)
            self._quiet += len(worlds)
            if self._total < self._next:
                return
            parts = failed().tolist()
            found = {w: reasons.get(w) or self._name(parts[w]) for w in worlds}
            self._warn(self._quiet, found)
            self._next, self._quiet = 2 * self._total, 0

    def _name(self, failed: Sequence[bool]) -> str:
        """Why a world failed if physics does not know it."""
        parts = [part for part, bad in zip(self._may_fail, failed, strict=True) if bad]
        return " and ".join(parts) or "non-finite sensors"

    @property
    def total(self) -> int:
        if self._sim.by_mask:
            total, refused, *failed = self._counts.tolist()
            if total > self._total:
                self._counts[1:] = 0
                named = zip(
                    ["non-finite actions", *self._may_fail], [refused, *failed], strict=True
                )
                parts = [f"{count} {what}" for what, count in named if count]
                self._warn(total - self._total, self._sim.messages, parts)
            self._total = total
        return self._total

    def _warn(self, new: int, reasons: Mapping[int, str], counted: Sequence[str] = ()) -> None:
        parts = list(counted)
        for reason in dict.fromkeys(reasons.values()):
            worlds = [str(world) for world, why in reasons.items() if why == reason]
            more = f" and {len(worlds) - 8} more" if len(worlds) > 8 else ""
            parts.append(f"{reason} in world {', '.join(worlds[:8])}{more}")
        found, end = several(new, "new simulator fault"), "Their episodes end"
        end = "Its episode ends" if new == 1 else end
        log.warning(
            "%s: %s (%s). %s, at the highest cost", self._suite, found, "; ".join(parts), end
        )
