"""Run at a commanded velocity: a task for robots with legs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated

import torch
from torch import Tensor

from statewise.envs.robots import Robot
from statewise.envs.tasks import Task, task
from statewise.envs.tasks.base import refuse_fixed
from statewise.envs.terms import RGB
from statewise.envs.world import World
from statewise.settings import Range

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

_GREEN: RGB = (0.10, 0.72, 0.25)
_SLOWEST = 0.3
"""Share of the highest speed that a command asks for at least."""
_TOLERANCE = 0.25
"""Share of the commanded speed by which the mean velocity of a successful episode may differ."""
_FALLEN = 0.3
"""Cosine of the tilt below which a robot has fallen: about 73 degrees."""


@task("Run")
class Run(Task):
    """Run forward at a commanded speed, drawn for each episode up to TOP metres per second.

    The reward of a step is its length in seconds, less the error of the velocity. An episode ends when
    the robot falls. It succeeds if the robot is on its feet at the time limit and its mean velocity is
    within a quarter of the command.
    """

    success = "command kept"
    sensors = ("velocimeter",)
    draws = 1

    def __init__(
        self, robot: Robot, top: Annotated[float, Range(above=0.0, most=100.0)] = 1.0
    ) -> None:
        super().__init__(robot)
        refuse_fixed(self)
        self.top = top

    def command(self, world: World) -> Tensor:
        """[R, 2] the commanded velocity along the robot's x and y axis"""
        forward = self.top * (_SLOWEST + (1.0 - _SLOWEST) * world.draws)
        return torch.cat([forward, torch.zeros_like(forward)], dim=1)

    def observe(self, world: World) -> dict[str, Tensor]:
        """The command, and which way is up in the robot's frame: without it a robot cannot balance."""
        return {"command": self.command(world), "up": world.axes[:, :, 2]}

    def remember(self, world: World) -> Tensor:
        """[R, 2] the sum of the velocities so far"""
        velocity = world.sensor("velocimeter")[:, :2]
        return torch.zeros_like(velocity) if world.starts else world.memory + velocity

    def reward(self, world: World) -> Tensor:
        x, y = (world.sensor("velocimeter")[:, :2] - self.command(world)).unbind(1)
        return world.dt * (1.0 - torch.hypot(x, y) / self.top).clamp(min=-1.0)

    def succeeded(self, world: World) -> Tensor:
        command = self.command(world)
        mean = self.remember(world) / world.steps.clamp(min=1).unsqueeze(1)
        x, y = (mean - command).unbind(1)
        kept = torch.hypot(x, y) <= _TOLERANCE * command[:, 0]
        return kept & (world.steps >= world.max_steps) & ~self.ended(world)

    def ended(self, world: World) -> Tensor:
        return world.axes[:, 2, 2] < _FALLEN

    def marks(self, world: World) -> list[Mark]:
        """An arrow ahead of the robot: as long as a second at the commanded speed."""
        from statewise.sim.draw import Mark

        (x, y, z), (ahead_x, ahead_y, _) = world.position[0].tolist(), world.axes[0, 0].tolist()
        length = math.hypot(ahead_x, ahead_y) or 1.0
        heading = (ahead_x / length, ahead_y / length)
        away = world.robot_radius
        start = (x + away * heading[0], y + away * heading[1], z + 0.05)
        size = (0.035, float(self.command(world)[0, 0]))
        return [Mark("arrow", start, size, (*_GREEN, 0.9), 0.3, heading)]
