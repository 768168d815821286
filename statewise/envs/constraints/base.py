"""A constraint is written once, as a clearance. Its cost and everything else follow from it."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, ClassVar

from torch import Tensor

from statewise.envs.robots import Robot
from statewise.envs.terms import Term
from statewise.envs.world import World

log = logging.getLogger("statewise")

_TOLD: set[str] = set()
"""What the user was told already."""


class Constraint(Term):
    """One rule that a robot has to keep: one cost channel.

    A subclass defines `clearance`. Its `__init__` takes the robot and the numbers in a suite's name.
    """

    unit: ClassVar[str] = ""
    """Unit of the clearance, such as "m"."""
    contact: ClassVar[bool] = False
    """Whether the cost is 1 once broken, instead of how far it is broken."""
    ceiling: float | None = None
    """The largest cost of a step. A fault is charged this. None: the clearance of the robot at rest,
    or 1 if the constraint places things."""

    @property
    def name(self) -> str:
        """Name of the cost channel, in lower case."""
        return self.kind.lower()

    def clearance(self, world: World) -> Tensor:
        """[R] how far each world is from breaking the rule, in its unit; negative once broken"""
        raise NotImplementedError(f"{type(self).__name__} defines no clearance")


class FunctionConstraint(Constraint):
    """A constraint that is one function of the world and of the numbers in a suite's name."""

    def __init__(
        self, function: Callable[..., Tensor], robot: Robot, values: tuple[float, ...]
    ) -> None:
        super().__init__(robot)
        self._function, self._values = function, values

    def clearance(self, world: World) -> Tensor:
        return self._function(world, *self._values)


def function_constraint(function: Callable[..., Tensor], **facts: Any) -> type[FunctionConstraint]:
    """A class of such constraints, made from a robot and numbers. facts: class attributes."""

    def start(self: FunctionConstraint, robot: Robot, *values: float) -> None:
        FunctionConstraint.__init__(self, function, robot, values)

    body = {"__init__": start, "__doc__": function.__doc__, **facts}
    return type(function.__name__, (FunctionConstraint,), body)


def tell_once(message: str) -> None:
    """Warn of something that every environment of a robot would warn of, the first time only."""
    if message not in _TOLD:
        _TOLD.add(message)
        log.warning(message)
