"""Joint limits that must not even be approached."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.robots import Robot
from statewise.envs.world import MissingSensor, World
from statewise.settings import Range


@constraint("Joint")
class Joint(Constraint):
    """Degrees from the limit of any joint, less the margin to keep."""

    unit = "deg"
    ceiling = 10.0
    sensors = ("jointpos_*",)

    def __init__(self, robot: Robot, margin: Annotated[float, Range(least=0.0, most=90.0)]) -> None:
        super().__init__(robot)
        self.margin = margin

    def clearance(self, world: World) -> Tensor:
        names, low, high = world.stage.joint_limits
        if not names:
            raise MissingSensor(
                f"{world.robot.name} has no limited joint with a position sensor: give a hinge a range "
                f"and a <jointpos name='jointpos_...'/> in {world.robot.file}"
            )
        angle = world.sensors[:, world.stage.columns(names)]
        gap = torch.minimum(angle - low, high - angle).amin(dim=1)
        return torch.rad2deg(gap) - self.margin
