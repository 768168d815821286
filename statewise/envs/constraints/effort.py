"""A limit on the force of every actuator."""

from __future__ import annotations

from torch import Tensor

from statewise.envs.constraints import constraint
from statewise.envs.world import World


@constraint("Effort", unit="N or N m", sensors=("force_*",))
def effort(world: World, limit: float) -> Tensor:
    """Newtons, or newton metres, below the limit on the force of any actuator."""
    return limit - world.sensor("force_*").abs().amax(dim=1)
