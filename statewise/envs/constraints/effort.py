"""A limit on the force of every actuator."""

from __future__ import annotations

from torch import Tensor

from statewise.envs.constraints import Constraint, constraint
from statewise.envs.constraints.base import tell_once
from statewise.envs.robots import Robot
from statewise.envs.world import MissingSensor, Stage, World
from statewise.sim.facts import unwatched_actuators
from statewise.text import listed


@constraint("Effort")
class Effort(Constraint):
    """Newtons, or newton metres, below the limit on the force of any actuator at its joint."""

    unit = "N or N m"
    sensors = ("force_*",)

    def __init__(self, robot: Robot, limit: float) -> None:
        super().__init__(robot)
        self.limit = limit

    def clearance(self, world: World) -> Tensor:
        if world.starts:
            self._check(world.stage)
        columns, gear = world.stage.gear_row
        return self.limit - (world.sensors[:, columns] * gear).abs().amax(dim=1)

    def _check(self, stage: Stage) -> None:
        """Refuse a robot without such sensors, and a limit that can never be broken."""
        if not stage.gears:
            raise MissingSensor(
                f"{stage.robot.name} has no sensor of an actuator's force: add an "
                f"<actuatorfrc name='force_...'/> to {stage.robot.file}"
            )
        if unwatched := unwatched_actuators(stage.scene):
            tell_once(
                f"Effort does not watch {listed(unwatched)} of the {stage.robot.name}: its file has "
                f"sensors force_... of its own, but none of these. Add <actuatorfrc name='force_NAME' "
                f"actuator='NAME'/>"
            )
        most = max(g.most for g in stage.gears)
        if self.limit >= most:
            raise ValueError(
                f"Effort-{self.limit:g} can never be broken by the {stage.robot.name}: its actuators "
                f"give at most {most:.4g} N or N m. Give a limit below that"
            )
