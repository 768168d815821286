"""Ghosts: objects that move. Every second one follows the robot, the others walk."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from statewise.core import motion
from statewise.envs.constraints import Constraint, constraint
from statewise.envs.constraints.hazard import HEIGHT
from statewise.envs.robots import Robot
from statewise.envs.terms import RGB, Things, discs, places
from statewise.envs.world import World

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

_ORANGE: RGB = (0.95, 0.45, 0.10)
WALK, FOLLOW = 0.5, 0.25
"""Metres per second of those that walk and of those that follow. Set by hand: the Point drives about
1.5 m/s, so it can get away from both."""


@constraint("Ghost")
class Ghost(Constraint):
    """Metres from the nearest ghost. The first one walks straight on and turns at the arena's edge, the
    second follows the robot, and so on. Nothing collides with them."""

    unit = "m"
    colours: ClassVar[dict[str, RGB]] = {"ghost_lidar": _ORANGE}

    def __init__(self, robot: Robot, count: int) -> None:
        super().__init__(robot)
        self.count = self.draws = count
        self.radius = self.ceiling = robot.hazard_radius
        self.keepout = robot.hazard_keepout

    def things(self) -> tuple[Things, ...]:
        height = self.robot.goal_height if self.robot.spatial else HEIGHT
        return (Things("ghost", self.count, self.keepout, height),)

    def clearance(self, world: World) -> Tensor:
        return world.nearest("ghost") - self.radius

    def observe(self, world: World) -> dict[str, Tensor]:
        return {"ghost_lidar": world.lidar("ghost")}

    def remember(self, world: World) -> Tensor:
        """Direction `[R, 2 N]` of each. Those that walk turn at the edge of the arena."""
        if world.starts:
            return motion.directions(world.draws).flatten(1)
        at = world.objects("ghost")[..., :2]
        return motion.turned(world.memory.view_as(at), at, world.extent).flatten(1)

    def move(self, world: World) -> dict[str, Tensor]:
        at = world.objects("ghost")
        flat = at[..., :2]
        stride = torch.where(
            self._follows(world),
            FOLLOW * world.dt * motion.towards(world.position[:, None, :2], flat),
            WALK * world.dt * world.memory.view_as(flat),
        )
        return {"ghost": torch.cat([flat + stride, at[..., 2:]], dim=-1)}

    def _follows(self, world: World) -> Tensor:
        """[N, 1]"""
        number = torch.arange(self.count, device=world.sensors.device)
        return (number % 2 == 1).unsqueeze(1)

    def marks(self, world: World) -> list[Mark]:
        from statewise.sim.draw import Mark

        marks = discs(world, "ghost", self.radius, _ORANGE)
        if world.robot.spatial:
            return marks
        for i, (x, y, _) in enumerate(places(world, "ghost")):
            shade = 0.55 if i % 2 else 1.0
            r, g, b = (shade * part for part in _ORANGE)
            marks.append(Mark("capsule", (x, y, 0.32), (0.07, 0.2), (r, g, b, 0.95), 0.1))
            marks.append(Mark("sphere", (x, y, 0.66), (0.08,), (r, g, b, 0.95), 0.1))
        return marks
