"""Hazards: discs on the ground, or spheres in the air, that the robot must not enter."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.robots import Robot
from statewise.envs.terms import RGB, Things, discs
from statewise.envs.world import World

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

HEIGHT = 0.02
_BLUE: RGB = (0.12, 0.32, 0.95)


@constraint("Hazard")
class Hazard(Constraint):
    """Metres from the nearest hazard. The robot sees hazards with a lidar and passes through them."""

    unit = "m"
    colours: ClassVar[dict[str, RGB]] = {"hazard_lidar": _BLUE}

    def __init__(self, robot: Robot, count: int) -> None:
        super().__init__(robot)
        self.count = count
        self.radius = robot.lone_hazard_radius if count == 1 else robot.hazard_radius
        self.keepout = robot.hazard_keepout
        depth = max((r for _, _, r in robot.capsules), default=0.0)
        self.ceiling = self.radius + depth

    @property
    def name(self) -> str:
        return "hazard"

    def things(self) -> tuple[Things, ...]:
        height = self.robot.goal_height if self.robot.spatial else HEIGHT
        return (Things("hazard", self.count, self.keepout, height),)

    def clearance(self, world: World) -> Tensor:
        return world.nearest("hazard") - self.radius

    def observe(self, world: World) -> dict[str, Tensor]:
        return {"hazard_lidar": world.lidar("hazard")}

    def marks(self, world: World) -> list[Mark]:
        return discs(world, "hazard", self.radius, _BLUE)


@constraint("3DHazard")
class Hazard3D(Hazard):
    """Metres from the nearest hazard in the air, for robots that fly."""
