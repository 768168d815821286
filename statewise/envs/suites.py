"""Suites by name: `{Robot}-{Constraint}-{Number}`, chained for several constraints.

`Point-Hazard-8-Pillar-4` has two constraints, and so two cost channels.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from statewise.envs.robots import Robot, get_robot, robot_names
from statewise.settings import unknown

if TYPE_CHECKING:
    from statewise.core.placement import Arena

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

CONSTRAINTS = ("Hazard", "3DHazard", "Pillar")
_MAX_EPISODE_STEPS = 1000


@dataclass(frozen=True)
class Constraint:
    """One kind of object to keep away from: one cost channel."""

    kind: str
    count: int
    radius: float
    keepout: float
    ceiling: float
    """The largest cost it can give."""

    @property
    def contact(self) -> bool:
        """Whether the cost is 1 in contact and 0 otherwise, instead of a depth."""
        return self.kind == "Pillar"

    @property
    def name(self) -> str:
        """Short name of the cost channel and of the lidar that sees it: hazard, pillar."""
        return "pillar" if self.kind == "Pillar" else "hazard"


@dataclass(frozen=True)
class Suite:
    """A robot, its constraints and the goal task between them."""

    name: str
    robot: Robot
    constraints: tuple[Constraint, ...]
    max_episode_steps: int = _MAX_EPISODE_STEPS

    def count(self, name: str) -> int:
        return sum(c.count for c in self.constraints if c.name == name)

    @property
    def arena(self) -> Arena:
        """What has to be placed: the goal, then hazards, then pillars."""
        from statewise.core.placement import Arena

        keepouts = [self.robot.goal_keepout]
        for kind in ("hazard", "pillar"):
            for c in self.constraints:
                keepouts += [c.keepout] * (c.count if c.name == kind else 0)
        robot = self.robot
        return Arena(tuple(keepouts), robot.keepout, robot.extent, robot.pinned, robot.reach)


def parse_suite(name: str) -> Suite:
    """The suite of that name; an unknown or impossible one raises ValueError saying what fits."""
    from statewise.core.placement import fits

    match = re.fullmatch(r"(\w+)((?:-\w+-[-+]?\w+)+)", name)
    pairs = re.findall(r"-(\w+)-([-+]?\w+)", match[2]) if match else []
    if match is None or match[1] not in robot_names() or {k for k, _ in pairs} - {*CONSTRAINTS}:
        raise ValueError(
            f"{unknown('suite', name, PAPER_SUITES)} A suite is {{Robot}}-{{Constraint}}-{{Number}}, "
            f"as in Point-Hazard-8 or Point-Hazard-8-Pillar-4 (robots: {', '.join(robot_names())}; "
            f"constraints: {', '.join(CONSTRAINTS)})"
        )
    robot = get_robot(match[1])
    suite = Suite(name, robot, tuple(_constraint(name, robot, *pair) for pair in pairs))
    if len({c.name for c in suite.constraints}) < len(pairs):
        raise ValueError(f"suite {name!r} names a constraint twice: join them into one count")
    if not fits(suite.arena):
        raise ValueError(f"the objects of suite {name!r} do not fit the arena together")
    return suite


def _constraint(name: str, robot: Robot, kind: str, count: str) -> Constraint:
    from statewise.core.placement import fits, largest_count

    if kind not in robot.constraints:
        raise ValueError(
            f"{robot.name} has no {kind} suites: it takes {' and '.join(robot.constraints)}"
        )
    number = int(count) if count.isascii() and count.isdigit() else 0
    constraint = _numbers(robot, kind, max(number, 1))
    alone = Suite(name, robot, (constraint,)).arena
    if number == 0 or not fits(alone):
        raise ValueError(
            f"suite {name!r} asks for {count} {kind}s: give a whole number from 1 to "
            f"{largest_count(alone)}, which is what fits the arena"
        )
    return constraint


def _numbers(robot: Robot, kind: str, count: int) -> Constraint:
    if kind == "Pillar":
        return Constraint(kind, count, 0.4 if count == 1 else 0.2, keepout=0.3, ceiling=1.0)
    radius = robot.lone_hazard_radius if count == 1 else robot.hazard_radius
    depth = max((r for _, _, r in robot.capsules), default=0.0)
    return Constraint(kind, count, radius, robot.hazard_keepout, ceiling=radius + depth)
