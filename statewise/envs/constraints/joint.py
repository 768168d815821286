"""Joint limits that must not even be approached."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.robots import Robot
from statewise.envs.world import MissingSensor, Stage, World
from statewise.settings import Range


@constraint("Joint")
class Joint(Constraint):
    """Degrees from the limit of any joint, less the margin to keep.

    A limit that the start pose exceeds is widened to the start pose.
    """

    unit = "deg"
    ceiling = 10.0
    sensors = ("jointpos_*",)

    def __init__(self, robot: Robot, margin: Annotated[float, Range(least=0.0, most=90.0)]) -> None:
        super().__init__(robot)
        self.margin = margin

    def clearance(self, world: World) -> Tensor:
        if world.starts:
            self._check(world.stage)
        columns, low, high = world.stage.joint_ranges
        angle = world.sensors[:, columns]
        gap = torch.minimum(angle - low, high - angle).amin(dim=1)
        return torch.rad2deg(gap) - self.margin

    def _check(self, stage: Stage) -> None:
        """Refuse a robot without limits, and a margin that its start pose does not keep."""
        if not stage.joint_limits:
            raise MissingSensor(
                f"{stage.robot.name} has no limited joint with a position sensor: give a hinge a range "
                f"and a <jointpos name='jointpos_...'/> in {stage.robot.file}"
            )
        gaps = {x.sensor: min(x.start - x.low, x.high - x.start) for x in stage.joint_limits}
        tight = min(gaps, key=gaps.__getitem__)
        most = math.degrees(gaps[tight])
        if self.margin > most:
            raise ValueError(
                f"Joint-{self.margin:g} is broken at the start: {tight} of the {stage.robot.name} "
                f"starts {most:.3g} degrees from its limit. Give a margin of at most that"
            )
