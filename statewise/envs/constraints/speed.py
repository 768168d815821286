"""A speed limit."""

from __future__ import annotations

import torch
from torch import Tensor

from statewise.envs.constraints import constraint
from statewise.envs.world import World


@constraint("Speed", unit="m/s", sensors=("velocimeter",))
def speed(world: World, limit: float) -> Tensor:
    """Metres per second below the limit, along the robot's own ground plane."""
    x, y, _ = world.sensor("velocimeter").unbind(1)
    return limit - torch.hypot(x, y)
