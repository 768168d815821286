"""Push a box to a goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from statewise.envs.robots import Robot
from statewise.envs.tasks import Task, task
from statewise.envs.tasks.base import refuse_fixed
from statewise.envs.tasks.goal import GREEN, goal_marks
from statewise.envs.terms import RGB, Things
from statewise.envs.world import World
from statewise.sim.things import BoxBody

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

_YELLOW: RGB = (0.93, 0.62, 0.16)
_BOX = BoxBody(half=0.15)
_RADIUS = 0.4
"""How close the centre of the box has to come to the centre of the goal. Metres."""
_ROOM = 0.6
"""Room kept free around box and goal: enough to go around the box between it and a hazard. Metres."""
_BEHIND = 2 * _BOX.half
"""Distance from the centre of the box to the place from which to push it. Metres."""


@task("Push")
class Push(Task):
    """Push a box to a goal. The reward is the progress of the box towards the goal, and of the robot
    towards the place behind the box, and 1 when the box is at the goal."""

    success = "box at the goal"
    colours: ClassVar[dict[str, RGB]] = {"goal_lidar": GREEN, "box_lidar": _YELLOW}

    radius = _RADIUS

    def __init__(self, robot: Robot) -> None:
        super().__init__(robot)
        refuse_fixed(self)

    def things(self) -> tuple[Things, ...]:
        return (
            Things("goal", 1, _ROOM, _RADIUS / 2 + 0.01),
            Things("box", 1, _ROOM, _BOX.half, _BOX),
        )

    def observe(self, world: World) -> dict[str, Tensor]:
        return {
            "goal_compass": world.compass("goal"),
            "box_compass": world.compass("box"),
            "goal_lidar": world.lidar("goal", ground=True),
            "box_lidar": world.lidar("box", ground=True),
        }

    def remember(self, world: World) -> Tensor:
        """[R, 2] distance of the box to the goal, and of the robot to the place behind it"""
        return torch.stack([self._to_goal(world), self._to_place(world)], dim=1)

    def reward(self, world: World) -> Tensor:
        pushed, approached = (world.memory - self.remember(world)).clamp(-1.0, 1.0).unbind(1)
        return pushed + approached + self.succeeded(world)

    def succeeded(self, world: World) -> Tensor:
        return self._to_goal(world) <= _RADIUS

    def marks(self, world: World) -> list[Mark]:
        return goal_marks(world, _RADIUS)

    def _to_goal(self, world: World) -> Tensor:
        """[R]"""
        x, y = self._way(world).unbind(1)
        return torch.hypot(x, y)

    def _to_place(self, world: World) -> Tensor:
        """[R] on the ground, from the robot to the place behind the box, as seen from the goal

        Were it the distance to the box alone, robots would stop in front of it.
        """
        way = self._way(world)
        behind = _BEHIND * way / way.norm(dim=1, keepdim=True).clamp(min=1e-3)
        x, y = (world.objects("box")[:, 0, :2] - behind - world.position[:, :2]).unbind(1)
        return torch.hypot(x, y)

    def _way(self, world: World) -> Tensor:
        """[R, 2] from the box to the goal"""
        return (world.objects("goal") - world.objects("box"))[:, 0, :2]
