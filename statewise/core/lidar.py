"""Pseudo-lidars and the compass: what a robot senses of object centres, in its own frame.

A bin reads the strongest object it sees. An object is seen fully by the bin it lies in, and faded
by the two beside it, so that readings move smoothly as the robot turns. With x the object's angle
in units of bins, bin k sees the share

    clamp(1.5 - |x - k - 0.5|, 0, 1)        (the difference taken around the circle)

which is 1 inside the bin, falls to 0 over the next one on either side, and has no index to round.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

PLANAR_BINS = 16
AZIMUTH_BINS = 10
ELEVATION_BINS = 6


def strength(distance: Tensor, reach: float | None) -> Tensor:
    """How strongly an object reads: exp(-distance), or linear down to 0 at `reach`."""
    if reach is None:
        return torch.exp(-distance)
    return (1.0 - distance / reach).clamp(min=0.0)


def planar(local: Tensor, reach: float | None, bins: int = PLANAR_BINS) -> Tensor:
    """Readings of each object `[R, N, 2]`, robot frame, in each bin: `[R, N, bins]`.

    The lidar of one kind of object is the maximum over its N.
    """
    x, y = local.unbind(-1)
    share = _circular_share(_turns(x, y) * bins, bins)
    return share.mul_(strength(torch.hypot(x, y), reach).unsqueeze(-1))


def spatial(local: Tensor, reach: float | None) -> Tensor:
    """Readings of each object `[R, N, 3]` in the 10 x 6 bins, azimuth-major: `[R, N, 60]`.

    An object fades into the neighbours in azimuth and in elevation, not into the diagonal ones.
    """
    x, y, z = local.unbind(-1)
    flat = torch.hypot(x, y)
    azimuth = _turns(x, y) * AZIMUTH_BINS
    elevation = (torch.atan2(z, flat) / math.pi + 0.5) * ELEVATION_BINS
    here_azimuth = _own_bin(azimuth, AZIMUTH_BINS).unsqueeze(-1)
    here_elevation = _own_bin(elevation, ELEVATION_BINS).unsqueeze(-2)
    share = torch.maximum(
        _circular_share(azimuth, AZIMUTH_BINS).unsqueeze(-1) * here_elevation,
        here_azimuth * _share(_offsets(elevation, ELEVATION_BINS)).unsqueeze(-2),
    )
    return share.flatten(-2) * strength(torch.hypot(flat, z), reach).unsqueeze(-1)


def compass(local: Tensor) -> Tensor:
    """Direction of the goal `[R, 3]`, robot frame, almost of unit length: `[R, 3]`."""
    x, y, z = local.unbind(-1)
    return local / (torch.hypot(torch.hypot(x, y), z) + 1e-3).unsqueeze(-1)


def _turns(x: Tensor, y: Tensor) -> Tensor:
    """The angle of (x, y) in turns, from 0 to 1."""
    turns = torch.atan2(y, x) * (0.5 / math.pi)
    return torch.where(turns < 0, turns + 1.0, turns)


def _offsets(position: Tensor, bins: int) -> Tensor:
    """Distance from each bin's centre: `[..., bins]`, a tensor of the caller's own."""
    centres = torch.arange(0.5, bins, dtype=position.dtype, device=position.device)
    return (position.unsqueeze(-1) - centres).abs_()


def _share(offset: Tensor) -> Tensor:
    return offset.neg_().add_(1.5).clamp_(0.0, 1.0)


def _circular_share(position: Tensor, bins: int) -> Tensor:
    """The same around the circle, where the distance is bins/2 - |distance - bins/2|."""
    half = bins / 2
    return _offsets(position, bins).sub_(half).abs_().sub_(half - 1.5).clamp_(0.0, 1.0)


def _own_bin(position: Tensor, bins: int) -> Tensor:
    """One-hot of the bin that holds `position`; the upper edge belongs to the last bin."""
    index = position.long().clamp_(0, bins - 1)
    return torch.nn.functional.one_hot(index, bins).to(position.dtype)
