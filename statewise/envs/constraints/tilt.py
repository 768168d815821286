"""A limit on how far the robot leans."""

from __future__ import annotations

from typing import Annotated

import torch
from torch import Tensor

from statewise.envs.constraints import constraint
from statewise.envs.world import World
from statewise.settings import Range


@constraint("Tilt", unit="deg")
def tilt(world: World, limit: Annotated[float, Range(least=1.0, most=180.0)]) -> Tensor:
    """Degrees below the largest angle between the robot's z axis and the vertical."""
    x, y, z = world.axes[:, 2].unbind(1)
    return limit - torch.rad2deg(torch.atan2(torch.hypot(x, y), z))  # exact near 0, as acos is not
