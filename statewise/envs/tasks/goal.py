"""Reach a goal: the task of the paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from statewise.envs.robots import Robot
from statewise.envs.tasks import Task, task
from statewise.envs.terms import RGB, Things, places
from statewise.envs.world import World

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

GREEN: RGB = (0.10, 0.72, 0.25)


@task("Goal")
class Goal(Task):
    """Reach a goal. The reward is the progress towards it, and 1 for reaching it."""

    success = "goal reached"
    colours: ClassVar[dict[str, RGB]] = {"goal_lidar": GREEN}

    def __init__(self, robot: Robot) -> None:
        super().__init__(robot)
        self.radius = robot.goal_radius

    def things(self) -> tuple[Things, ...]:
        height = self.robot.goal_height if self.robot.spatial else self.radius / 2 + 0.01
        return (Things("goal", 1, self.robot.goal_keepout, height),)

    def observe(self, world: World) -> dict[str, Tensor]:
        return {"goal_compass": world.compass("goal"), "goal_lidar": world.lidar("goal")}

    def remember(self, world: World) -> Tensor:
        """[R, 1] the distance to the goal"""
        return world.distance("goal")

    def reward(self, world: World) -> Tensor:
        progress = world.memory[:, 0] - world.distance("goal")[:, 0]
        return progress.clamp(-10.0, 10.0) + self.succeeded(world)

    def succeeded(self, world: World) -> Tensor:
        return world.distance("goal")[:, 0] <= self.radius

    def marks(self, world: World) -> list[Mark]:
        return goal_marks(world, self.radius)


def goal_marks(world: World, radius: float) -> list[Mark]:
    """A goal as a flat green cylinder, or as a sphere in the air."""
    from statewise.sim.draw import Mark

    (at,) = places(world, "goal")
    if world.robot.spatial:
        return [Mark("sphere", at, (radius,), (*GREEN, 0.35), 0.2)]
    return [Mark("cylinder", at, (radius, radius / 2), (*GREEN, 0.40), 0.2)]
