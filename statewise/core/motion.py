"""Points that move by themselves: they walk straight on and turn at the walls, or follow something."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def directions(turns: Tensor) -> Tensor:
    """Unit vectors `[..., 2]` from angles in turns `[...]`, from 0 to 1."""
    angle = 2 * math.pi * turns
    return torch.stack([torch.cos(angle), torch.sin(angle)], dim=-1)


def towards(target: Tensor, point: Tensor) -> Tensor:
    """Unit vectors `[..., 2]` from a point to a target; 0 where they are the same."""
    gap = target - point
    x, y = gap.unbind(-1)
    return gap / torch.hypot(x, y).clamp(min=1e-6).unsqueeze(-1)


def turned(direction: Tensor, point: Tensor, extent: float) -> Tensor:
    """Directions `[..., 2]` that point back inside where a point is outside of a square."""
    return torch.where(point.abs() > extent, -point.sign() * direction.abs(), direction)
