"""Joint limits that must not even be approached."""

from __future__ import annotations

import math
from typing import Annotated

import torch
from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.constraints.base import tell_once
from statewise.envs.robots import Robot
from statewise.envs.world import MissingSensor, Stage, World
from statewise.settings import Range
from statewise.sim.facts import unwatched_joints
from statewise.text import listed


@constraint("Joint")
class Joint(Constraint):
    """Degrees from the limit of any joint, less the margin to keep.

    A limit that the start pose is at, such as that of a straight knee, is left out. A message says so.
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
        name, limits = stage.robot.name, stage.joint_limits
        if not limits:
            raise MissingSensor(
                f"{name} has no limited joint with a position sensor: give a hinge a range "
                f"and a <jointpos name='jointpos_...'/> in {stage.robot.file}"
            )
        if unwatched := unwatched_joints(stage.scene):
            tell_once(
                f"Joint does not watch {listed(unwatched)} of the {name}: its file has sensors "
                f"jointpos_... of its own, but none of these. Add <jointpos name='jointpos_NAME' "
                f"joint='NAME'/>"
            )
        left_out = [limit for joint in limits for limit in joint.left_out]
        if len(left_out) == 2 * len(limits):
            raise ValueError(
                f"Joint says nothing about the {name}: its start pose is at every limit of its joints. "
                f"Give it another start pose"
            )
        if left_out:
            tell_once(
                f"Joint leaves out what the start pose of the {name} is at already: "
                f"{', '.join(left_out)}"
            )
        tight = min(limits, key=lambda joint: joint.room)
        most = math.degrees(tight.room)
        if self.margin > most:
            raise ValueError(
                f"Joint-{self.margin:g} is broken at the start: {tight.sensor} of the {name} "
                f"starts {most:.3g} degrees from its limit. Give a margin of at most that"
            )
