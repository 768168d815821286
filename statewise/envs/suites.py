"""Suites by name: `{Robot}-{Constraint}-{Number}`, chained for several constraints.

`Point-Hazard-8-Pillar-4` has two constraints, and so two cost channels.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from statewise.core.placement import Arena, fits, largest_count
from statewise.envs.robots import Robot, get_robot, robot_names

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
GOAL_KEEPOUT = 0.4
MAX_EPISODE_STEPS = 1000


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
    def name(self) -> str:
        """Short name of the cost channel and of the lidar that sees it: hazard, pillar."""
        return "pillar" if self.kind == "Pillar" else "hazard"


@dataclass(frozen=True)
class Suite:
    """A robot, its constraints and the goal task between them."""

    name: str
    robot: Robot
    constraints: tuple[Constraint, ...]
    max_episode_steps: int = MAX_EPISODE_STEPS

    def count(self, name: str) -> int:
        return sum(c.count for c in self.constraints if c.name == name)

    @property
    def arena(self) -> Arena:
        """What has to be placed: the goal, then hazards, then pillars."""
        keepouts = [GOAL_KEEPOUT]
        for kind in ("hazard", "pillar"):
            for c in self.constraints:
                keepouts += [c.keepout] * (c.count if c.name == kind else 0)
        robot = self.robot
        return Arena(tuple(keepouts), robot.keepout, pinned=robot.pinned, reach=robot.reach)


def parse_suite(name: str) -> Suite:
    """The suite of that name; an unknown or impossible one raises ValueError saying what fits."""
    match = re.fullmatch(r"(\w+)((?:-\w+-[-+]?\w+)+)", name)
    if match is None or match[1] not in robot_names():
        raise ValueError(f"unknown suite {name!r}. {_suggest(name)}")
    robot = get_robot(match[1])
    pairs = re.findall(r"-(\w+)-([-+]?\w+)", match[2])
    constraints = tuple(_constraint(name, robot, kind, count) for kind, count in pairs)
    names = [c.name for c in constraints]
    if len(set(names)) < len(names):
        raise ValueError(f"suite {name!r} names a constraint twice: join them into one count")
    suite = Suite(name, robot, constraints)
    _check_room(suite)
    return suite


def _constraint(name: str, robot: Robot, kind: str, count: str) -> Constraint:
    if kind not in CONSTRAINTS:
        raise ValueError(f"unknown constraint {kind!r} in suite {name!r}. {_suggest(name)}")
    if kind not in robot.constraints:
        raise ValueError(
            f"{robot.name} has no {kind} suites: it takes {' and '.join(robot.constraints)}"
        )
    if not (count.isascii() and count.isdigit()) or int(count) == 0:
        one = Suite(name, robot, (_numbers(robot, kind, 2),))
        raise ValueError(
            f"suite {name!r} asks for {count} {kind}s: give a whole number from 1 to "
            f"{largest_count(one.arena)}, which is what fits the arena"
        )
    return _numbers(robot, kind, int(count))


def _numbers(robot: Robot, kind: str, count: int) -> Constraint:
    if kind == "Pillar":
        return Constraint(kind, count, 0.4 if count == 1 else 0.2, keepout=0.3, ceiling=1.0)
    radius = robot.lone_hazard_radius if count == 1 else robot.hazard_radius
    depth = max((r for _, _, r in robot.capsules), default=0.0)
    return Constraint(kind, count, radius, robot.hazard_keepout, ceiling=radius + depth)


def _check_room(suite: Suite) -> None:
    """Raise ValueError if the suite's objects cannot be placed, saying how many can."""
    for c in suite.constraints:
        alone = Suite(suite.name, suite.robot, (c,)).arena
        if not fits(alone):
            raise ValueError(
                f"suite {suite.name!r} asks for {c.count} {c.kind}s: at most "
                f"{largest_count(alone)} fit the 4 m x 4 m arena"
            )
    if not fits(suite.arena):
        raise ValueError(f"the objects of suite {suite.name!r} do not fit the arena together")


def _suggest(name: str) -> str:
    close = difflib.get_close_matches(name, PAPER_SUITES, n=3, cutoff=0.5)
    grammar = (
        "A suite is {Robot}-{Constraint}-{Number}, as in Point-Hazard-8 or Point-Hazard-8-Pillar-4 "
        f"(robots: {', '.join(robot_names())}; constraints: {', '.join(CONSTRAINTS)})"
    )
    return f"Did you mean {' or '.join(close)}? {grammar}" if close else grammar
