"""From clearances to costs, their maxima and the smallest clearances of the running episodes."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from statewise.envs.constraints.base import Constraint
from statewise.envs.world import World


class Costs:
    """The costs of one suite's constraints, on one device."""

    def __init__(
        self,
        constraints: Sequence[Constraint],
        margins: Sequence[float],
        ceilings: Sequence[float],
        device: torch.device,
    ) -> None:
        def row(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32).to(device)

        self._constraints = constraints
        self._margin, self._has_margin = row(margins), any(margins)
        self._none = torch.zeros_like(self._margin)
        self.lowest = -row(ceilings)
        """[m] the clearance that a fault is charged with"""
        self._contact = row([c.contact for c in constraints]).bool()
        self._has_contact = any(c.contact for c in constraints)
        self._highest = row(ceilings) + self._margin
        self.spec_ceiling = tuple(
            ceiling if c.contact else ceiling + early
            for c, early, ceiling in zip(constraints, margins, ceilings, strict=True)
        )

    def true_cost(self, clearance: Tensor) -> Tensor:
        """The costs `[R, m]` of clearances `[R, m]`, without a margin."""
        return self._cost(clearance, self._none, -self.lowest)

    def _cost(self, clearance: Tensor, margin: Tensor, highest: Tensor) -> Tensor:
        short = torch.minimum((margin - clearance).clamp_(min=0.0), highest)
        if self._has_contact:
            return torch.where(self._contact, (short > 0).to(short.dtype), short)
        return short

    def charge(
        self, clearance: Tensor, cost_max: Tensor, true_cost_max: Tensor, min_clearance: Tensor
    ) -> dict[str, Tensor]:
        """The parts of a Step that speak of costs, from clearances and the maxima before, all `[B, m]`.

        Without a margin the true costs are the same tensors as the learner's.
        """
        cost = true_cost = self._cost(clearance, self._margin, self._highest)
        most = true_most = torch.maximum(cost_max, cost)
        if self._has_margin:
            true_cost = self.true_cost(clearance)
            true_most = torch.maximum(true_cost_max, true_cost)
        return {
            "cost": cost,
            "cost_max_before": cost_max,
            "cost_max": most,
            "true_cost": true_cost,
            "true_cost_max": true_most,
            "clearance": clearance,
            "min_clearance": torch.minimum(min_clearance, clearance),
        }


def read_margins(
    margin: float | Sequence[float], names: Sequence[str], suite: str
) -> tuple[float, ...]:
    """The margin of each constraint, from one number for all or one for each."""
    given = [margin] if isinstance(margin, int | float) else list(margin)
    given = given * len(names) if len(given) == 1 else given or [0.0] * len(names)
    if len(given) != len(names):
        raise ValueError(
            f"{len(given)} margins for the constraints {', '.join(names)} of {suite}: give one "
            f"number for all, or one for each"
        )
    for value in given:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"the margin is {value!r}: give a number")
        if not 0 <= value < math.inf:
            raise ValueError(f"the margin is {value}: give a finite number, 0 or more")
    return tuple(float(value) for value in given)


def find_ceiling(constraint: Constraint, at_rest: float) -> float:
    """The largest cost of a constraint. `at_rest`: its clearance for a robot with nothing around it."""
    ceiling = constraint.ceiling
    if ceiling is None:
        ceiling = 1.0 if constraint.things() or at_rest <= 0 else at_rest
    if not (isinstance(ceiling, int | float) and 0 < ceiling < math.inf):
        raise ValueError(
            f"the ceiling of {constraint.kind} is {ceiling!r}: it is the largest cost of a step, so "
            f"give a finite number above 0"
        )
    return float(ceiling)


def check_form(found: object, rows: int, label: str) -> None:
    """Refuse what a constraint returned for so many worlds, unless it is one float for each."""
    if not isinstance(found, Tensor):
        raise TypeError(
            f"{label} returned a {type(found).__name__} for {rows} worlds: return a tensor [R], "
            f"one clearance for each world"
        )
    if tuple(found.shape) != (rows,) or not found.is_floating_point():
        raise ValueError(
            f"{label} returned {found.dtype} of shape {tuple(found.shape)} for {rows} worlds: "
            f"return floats of shape ({rows},), one clearance for each world"
        )


def check_clearance(constraint: Constraint, world: World, suite: str) -> float:
    """Check what a constraint returns for robots at rest; the clearance of the first.

    It may be negative only if it depends on where objects are, as they are far away here.
    """
    label = f"the constraint {constraint.kind} of {suite}"
    found = constraint.clearance(world)
    check_form(found, len(world), label)
    clearance = float(found[0])
    if not math.isfinite(clearance):
        raise ValueError(
            f"{label} is {clearance} for a robot at rest in world 0: return finite numbers"
        )
    elsewhere = world.with_objects(torch.zeros_like(world.all_objects))
    if clearance < 0 and float(constraint.clearance(elsewhere)[0]) == clearance:
        raise ValueError(
            f"{label} is broken at the start: its clearance is {clearance:.3g} {constraint.unit}".rstrip()
            + f" for the {world.robot.name} at rest. Choose another limit or another robot"
        )
    return clearance
