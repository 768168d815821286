"""Suites by name: `{Robot}-{Constraint}-{Number}`, chained for several constraints.

`Point-Hazard-8-Pillar-4` has two constraints, and so two cost channels. A task may stand behind the
robot, as in `Point-Push-Hazard-4`. Without one the task is Goal.
"""

from __future__ import annotations

import dataclasses
import logging
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from statewise.envs.robots import Robot, get_robot, robot_names
from statewise.settings import typed, unknown

if TYPE_CHECKING:
    from statewise.core.placement import Arena
    from statewise.envs.constraints.base import Constraint
    from statewise.envs.registry import Entry
    from statewise.envs.tasks.base import Task
    from statewise.envs.terms import Term, Things

PAPER_SUITES = (
    *(f"Point-Hazard-{n}" for n in (1, 4, 8)),
    *(f"Point-Pillar-{n}" for n in (1, 4, 8)),
    *(f"Swimmer-Hazard-{n}" for n in (1, 4, 8)),
    *(f"Drone-3DHazard-{n}" for n in (1, 4, 8)),
    "Ant-Hazard-8",
    "Walker-Hazard-8",
    "Arm3-Hazard-8",
    "Humanoid-Hazard-8",
)
"""The sixteen suites of the paper."""

log = logging.getLogger("statewise")

_CORRECTED: set[str] = set()
"""Names in another case that the user was told of."""
_PLACED = ("Hazard", "3DHazard", "Pillar")
"""Constraints that a robot has to offer (`Robot.constraints`)."""
NO_LIMIT = 100_000
"""Episodes of a task without a time limit are truncated after this many steps."""
_MOST = 1000
"""No arena holds more objects of one kind."""


@dataclass(frozen=True)
class Suite:
    """A robot, its task and its constraints."""

    name: str
    robot: Robot
    task: Task
    constraints: tuple[Constraint, ...]
    """In the order of the name, which is that of the cost channels."""
    max_episode_steps: int = 1000

    @property
    def terms(self) -> tuple[Term, ...]:
        """The task, and the constraints in the order in which they are placed and observed."""
        from statewise.envs.constraints import CONSTRAINTS

        order = list(CONSTRAINTS.entries)
        return (self.task, *sorted(self.constraints, key=lambda c: order.index(c.kind)))

    @property
    def things(self) -> tuple[Things, ...]:
        """Everything that an episode places, in order."""
        return tuple(things for term in self.terms for things in term.things())

    @property
    def has_goal(self) -> bool:
        """Whether the first thing to place is a goal."""
        return any(things.kind == "goal" for things in self.things[:1])

    @property
    def arena(self) -> Arena:
        """Where the things are placed."""
        from statewise.core.placement import Arena

        keepouts = [things.keepout for things in self.things for _ in range(things.count)]
        robot = self.robot
        return Arena(
            tuple(keepouts),
            robot.keepout,
            robot.extent,
            robot.pinned,
            robot.reach,
            goal=self.has_goal,
        )


@typed
def parse_suite(name: str) -> Suite:
    """The suite of that name. An unknown or impossible one raises ValueError saying what fits."""
    from statewise.core.placement import fits
    from statewise.envs.blame import blamed
    from statewise.envs.constraints import CONSTRAINTS
    from statewise.envs.tasks import TASKS
    from statewise.envs.tasks.base import check_ends
    from statewise.envs.terms import check_term

    name = proper_name(name)
    tokens = re.findall(r"-(-?[^-]*)", f"-{name}")
    if len(tokens) < 2 or tokens[0] not in robot_names():
        raise ValueError(_advice(name))
    robot = get_robot(tokens.pop(0))
    kind = tokens.pop(0) if tokens[0] in TASKS.entries else "Goal"
    named = kind != "Goal" or name.split("-")[1] == kind
    entry = TASKS.get(kind)
    numbers = _numbers(entry, tokens, name)
    with blamed(f"the task {kind}", "__init__", name):
        task = entry.make(robot, *numbers)
    with blamed(task, "things", name):
        check_term(task)
    check_ends(task)
    suite = Suite(name, robot, task, (), type(task).max_steps or NO_LIMIT)
    constraints = []
    if not fits(suite.arena):
        raise ValueError(
            f"suite {name!r}: the {robot.name} and what its {task.kind} task places do not fit the "
            f"arena, which is {2 * robot.extent:g} m wide: the robot keeps {robot.keepout:g} m free "
            f"around its start. Give it a larger extent= or a smaller keepout= when you register it"
        )
    while tokens:
        kind = tokens.pop(0)
        if kind not in CONSTRAINTS.entries:
            raise ValueError(_advice(name))
        constraints.append(_constraint(suite, CONSTRAINTS.get(kind), tokens))
    if not constraints and not named:
        raise ValueError(_advice(name))
    if len({c.name for c in constraints}) < len(constraints):
        raise ValueError(f"suite {name!r} names a constraint twice: join them into one")
    suite = dataclasses.replace(suite, constraints=tuple(constraints))
    _check_kinds(suite)
    if not fits(suite.arena):
        raise ValueError(f"the objects of suite {name!r} do not fit the arena together")
    return suite


def proper_name(name: str) -> str:
    """A suite's name as it is written: Point-Hazard-8 for point-hazard-8. A change is said once."""
    from statewise.envs.constraints import CONSTRAINTS
    from statewise.envs.tasks import TASKS

    parts = (*robot_names(), *TASKS.entries, *CONSTRAINTS.entries)
    by_lower = {part.lower(): part for part in parts}
    tokens = [t if t in parts else by_lower.get(t.lower(), t) for t in name.split("-")]
    proper = "-".join(tokens)
    known = tokens[0] in robot_names() and (len(tokens) == 1 or tokens[1] in parts)
    if proper != name and known and name not in _CORRECTED:
        _CORRECTED.add(name)
        log.warning("%s is written %s", name, proper)
    return proper


def _constraint(suite: Suite, entry: Entry[Constraint], tokens: list[str]) -> Constraint:
    """One constraint from the next tokens of a name, checked on its own."""
    from statewise.core.placement import fits, largest_count
    from statewise.envs.blame import blamed
    from statewise.envs.terms import check_term

    kind, robot = entry.kind, suite.robot
    if kind in _PLACED and kind not in robot.constraints:
        raise ValueError(
            f"{robot.name} has no {kind} suites: it takes {' and '.join(robot.constraints)}"
        )
    count = next((i for i, p in enumerate(entry.parameters) if p.name == "count"), None)
    given = tokens[count] if count is not None and len(tokens) > count else None
    numbers: list[float] | None = None
    if given is None or _is_count(given):
        numbers = _numbers(entry, tokens, suite.name)
        with blamed(f"the constraint {kind}", "__init__", suite.name):
            constraint = entry.make(robot, *numbers)
        with blamed(constraint, "things", suite.name):
            check_term(constraint)
        if fits(dataclasses.replace(suite, constraints=(constraint,)).arena):
            return constraint
    if given is None:
        raise ValueError(f"the objects of {kind} in suite {suite.name!r} do not fit the arena")
    others = [] if numbers is None else numbers
    one = entry.make(robot, *(1 if i == count else v for i, v in enumerate(others or [1])))
    most = largest_count(dataclasses.replace(suite, constraints=(one,)).arena)
    if most == 0:
        raise ValueError(
            f"suite {suite.name!r}: no {kind} fits into the arena of the {robot.name} beside its start "
            f"and its {suite.task.kind} task. Choose another constraint, or give the robot a smaller "
            f"keepout or a larger extent when you register it"
        )
    raise ValueError(
        f"suite {suite.name!r} asks for {given} {kind}s: give a whole number from 1 to {most}, which "
        f"is what fits the arena"
    )


def _is_count(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 5 and 1 <= int(text) <= _MOST


def _numbers(entry: Entry[Any], tokens: list[str], name: str) -> list[float]:
    """The parameters of a task or constraint, taken from the next tokens of a name."""
    from statewise.envs.registry import Registry

    numbers: list[float] = []
    for parameter in entry.parameters:
        if not tokens or tokens[0] in Registry.taken:
            if parameter.required:
                raise ValueError(
                    f"suite {name!r} gives no {parameter.name} to {entry.kind}: write {entry.usage}"
                )
            break
        numbers.append(parameter.read(tokens.pop(0), f"{entry.kind} in suite {name!r}"))
    return numbers


def _check_kinds(suite: Suite) -> None:
    """Refuse two terms that place things of one kind, as the World could not tell them apart."""
    kinds = [things.kind for things in suite.things]
    for kind in kinds:
        if kinds.count(kind) > 1:
            raise ValueError(f"suite {suite.name!r} places {kind!r} twice: rename one of the kinds")


def _advice(name: str) -> str:
    from statewise.envs.constraints import CONSTRAINTS
    from statewise.envs.tasks import TASKS

    return (
        f"{unknown('suite', name, PAPER_SUITES)} A suite is {{Robot}}-{{Constraint}}-{{Number}}, with a "
        f"task after the robot and more constraints behind if you like, as in Point-Hazard-8 or "
        f"Point-Push-Hazard-4-Speed-1.5 (robots: {', '.join(robot_names())}; tasks: "
        f"{', '.join(TASKS.entries)}; constraints: {', '.join(CONSTRAINTS.entries)})"
    )
