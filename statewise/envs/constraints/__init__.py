"""Constraints: one file each. `constraint` adds yours."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from statewise.envs.constraints.base import Constraint, function_constraint
from statewise.envs.registry import Entry, Registry

__all__ = ["CONSTRAINTS", "Constraint", "constraint", "constraint_entries"]

M = TypeVar("M", bound=Callable[..., Any])

CONSTRAINTS: Registry[Constraint] = Registry("constraint")


def constraint(
    kind: str,
    *,
    unit: str = "",
    contact: bool = False,
    ceiling: float | None = None,
    sensors: Sequence[str] = (),
    replace: bool = False,
) -> Callable[[M], M]:
    """Register a constraint under a name for suites: `@statewise.constraint("Speed")`.

    It decorates a function `(world, *numbers) -> [R]` that returns a clearance, or a subclass of
    `Constraint`. The numbers are annotated as int or float. They are read from a suite's name, as in
    `Point-Hazard-8-Speed-1.5`. The other arguments are for functions; a class has attributes of these
    names.

    unit: of the clearance, such as "m/s".
    contact: the cost is 1 once the rule is broken, instead of how far it is broken.
    ceiling: the largest cost of a step. None takes the clearance of the robot at rest.
    sensors: names or patterns of the sensors that it reads.
    replace: replace a constraint of that name.
    """

    if not isinstance(kind, str):
        raise TypeError(
            f'constraint needs a name: write @statewise.constraint("Name"), not {kind!r}'
        )

    def register(made: M) -> M:
        if isinstance(made, type):
            if not issubclass(made, Constraint):
                raise TypeError(
                    f"{kind}: {made.__name__} is not a subclass of statewise.Constraint"
                )
            if made.clearance is Constraint.clearance:
                raise TypeError(f"{kind}: {made.__name__} defines no method clearance(self, world)")
            term: type[Constraint] = made
        elif callable(made):
            if not isinstance(unit, str):
                raise TypeError(f"{kind}: unit is {unit!r}: give a text, such as 'm'")
            if not isinstance(contact, bool):
                raise TypeError(f"{kind}: contact is {contact!r}: give True or False")
            facts = {"unit": unit, "contact": contact, "sensors": sensors}
            term = function_constraint(made, ceiling=ceiling, **facts)
        else:
            raise TypeError(f"{kind}: a constraint is a function or a class, not {made!r}")
        CONSTRAINTS.add(kind, made, term, replace)
        term.kind = kind
        return made

    return register


def constraint_entries() -> list[Entry[Constraint]]:
    """All registered constraints: name, description, parameters."""
    return list(CONSTRAINTS.entries.values())


from statewise.envs.constraints import (  # noqa: E402, I001  registered in the order of observations
    hazard as hazard, pillar as pillar, ghost as ghost, fence as fence, speed as speed,
    tilt as tilt, joint as joint, effort as effort,
)  # fmt: skip

# Their names are taken too, whichever is imported first.
import statewise.envs.tasks  # noqa: E402, F401
