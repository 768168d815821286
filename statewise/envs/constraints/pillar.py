"""Pillars: cylinders that the robot must not touch."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.robots import Robot
from statewise.envs.terms import RGB, Things
from statewise.envs.world import World
from statewise.sim.things import PillarBody

_VIOLET: RGB = (0.52, 0.30, 0.90)
_TOUCH = 0.001
"""Clearance of a touch that the robot's circle does not reach. Metres, below 0."""


@constraint("Pillar")
class Pillar(Constraint):
    """Metres from the nearest pillar, which the robot bumps into. A contact costs 1.

    The distance is that of two circles: the pillar, and one around the robot at rest. Whether there is
    a contact is for the simulator to say. The clearance is negative only then.
    """

    unit = "m"
    contact = True
    ceiling = 1.0
    colours: ClassVar[dict[str, RGB]] = {"pillar_lidar": _VIOLET}

    def __init__(self, robot: Robot, count: int) -> None:
        super().__init__(robot)
        self.count = count
        self.radius = 0.4 if count == 1 else 0.2
        self.keepout = 0.3

    def things(self) -> tuple[Things, ...]:
        body = PillarBody(self.radius)
        return (Things("pillar", self.count, self.keepout, body.half_height, body),)

    def clearance(self, world: World) -> Tensor:
        x, y, _ = (world.objects("pillar") - world.position.unsqueeze(1)).unbind(-1)
        gap = torch.hypot(x, y).amin(dim=1) - (self.radius + world.robot_radius)
        touch = (world.sensor("contact_pillar*") > 0).any(dim=1)
        return torch.where(touch, gap.clamp(max=-_TOUCH), gap.clamp(min=0.0))

    def observe(self, world: World) -> dict[str, Tensor]:
        return {"pillar_lidar": world.lidar("pillar", ground=True)}
