"""A square fence that the robot must stay inside of."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Annotated, ClassVar

import torch
from torch import Tensor

from statewise.core import lidar
from statewise.envs.constraints import Constraint, constraint
from statewise.envs.robots import Robot
from statewise.envs.terms import RGB
from statewise.envs.world import World
from statewise.settings import Range

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

_RED: RGB = (0.85, 0.22, 0.20)
_HALF_HEIGHT, _HALF_WIDTH = 0.12, 0.015


@constraint("Fence")
class Fence(Constraint):
    """Metres from the nearest side of a square fence around the arena's centre. SIZE is half a side."""

    unit = "m"
    ceiling = 1.0
    colours: ClassVar[dict[str, RGB]] = {"fence_lidar": _RED}

    def __init__(self, robot: Robot, size: Annotated[float, Range(least=1.7, most=1000.0)]) -> None:
        super().__init__(robot)
        self.size = size

    def clearance(self, world: World) -> Tensor:
        return self.size - world.position[:, :2].abs().amax(dim=1)

    def observe(self, world: World) -> dict[str, Tensor]:
        """How near the fence is in each direction around the robot."""
        x, y = world.axes[:, 0, :2].unbind(1)
        centres = torch.arange(0.5, lidar.PLANAR_BINS, device=world.sensors.device)
        angle = centres * (2 * math.pi / lidar.PLANAR_BINS)
        towards = torch.atan2(y, x).unsqueeze(1) + angle
        direction = torch.stack([torch.cos(towards), torch.sin(towards)], dim=-1)
        gap = self.size - torch.sign(direction) * world.position[:, None, :2]
        distance = (gap / direction.abs().clamp(min=1e-6)).amin(dim=-1).clamp(0.0, 1e3)
        return {"fence_lidar": lidar.strength(distance, world.robot.lidar_reach)}

    def marks(self, world: World) -> list[Mark]:
        from statewise.sim.draw import Mark

        s, rgba = self.size, (*_RED, 0.55)
        sides = [(s, 0.0), (-s, 0.0), (0.0, s), (0.0, -s)]
        return [
            Mark("box", (x, y, _HALF_HEIGHT),
                 (_HALF_WIDTH if x else s, _HALF_WIDTH if y else s, _HALF_HEIGHT), rgba, 0.2)
            for x, y in sides
        ]  # fmt: skip
