"""Push a box to a goal."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from statewise.envs.tasks import Task, task
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


@task("Push")
class Push(Task):
    """Push a box to a goal. The reward is the progress of the box towards the goal, and of the robot
    towards the box, and 1 when the box is there."""

    success = "box at the goal"
    colours: ClassVar[dict[str, RGB]] = {"goal_lidar": GREEN, "box_lidar": _YELLOW}

    radius = _RADIUS

    def things(self) -> tuple[Things, ...]:
        return (
            Things("goal", 1, self.robot.goal_keepout, _RADIUS / 2 + 0.01),
            Things("box", 1, 0.35, _BOX.half, _BOX),
        )

    def observe(self, world: World) -> dict[str, Tensor]:
        return {
            "goal_compass": world.compass("goal"),
            "box_compass": world.compass("box"),
            "goal_lidar": world.lidar("goal", ground=True),
            "box_lidar": world.lidar("box", ground=True),
        }

    def remember(self, world: World) -> Tensor:
        """[R, 2] distance of the box to the goal, and of the robot to the box"""
        return torch.stack([self._to_goal(world), self._to_box(world)], dim=1)

    def reward(self, world: World) -> Tensor:
        pushed, approached = (world.memory - self.remember(world)).clamp(-1.0, 1.0).unbind(1)
        return pushed + approached + self.succeeded(world)

    def succeeded(self, world: World) -> Tensor:
        return self._to_goal(world) <= _RADIUS

    def marks(self, world: World) -> list[Mark]:
        return goal_marks(world, _RADIUS)

    def _to_goal(self, world: World) -> Tensor:
        """[R]"""
        x, y, _ = (world.objects("box") - world.objects("goal"))[:, 0].unbind(-1)
        return torch.hypot(x, y)

    def _to_box(self, world: World) -> Tensor:
        """[R]"""
        return world.distance("box")[:, 0]
