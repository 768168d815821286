"""Random layouts: where the robot starts and where the objects lie, drawn in bulk.

Objects are drawn one after another, uniformly in the square arena less their own keepout, and kept
if they are at least the sum of two keepouts away from all that is placed. A layout in which an
object finds no place is thrown away whole. As in Safety Gym a goal is placed twice: the other
objects keep clear of its first place, then it is drawn anew against all of them.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Generator, Tensor

_TRIES = (4, 8, 24, 64)
"""Tries of each object, 100 in all; those that found a place in one round are not in the next."""
_CHUNK = 2048


class LayoutError(ValueError):
    """The objects asked for do not fit the arena."""


@dataclass(frozen=True)
class Arena:
    """What has to be placed. Lengths in metres."""

    keepouts: tuple[float, ...]
    """Keepout radius of each object."""
    robot_keepout: float = 0.4
    extent: float = 2.0
    """Half the side of the square that holds every keepout disc."""
    pinned: bool = False
    """The robot stands at the origin (its heading is still drawn)."""
    reach: float | None = None
    """Objects other than the goal lie within this distance of the origin."""
    goal: bool = True
    """The first object is a goal: it is placed twice."""


@dataclass(frozen=True)
class Layouts:
    """n layouts of k objects."""

    robot: Tensor
    """[n, 2]"""
    yaw: Tensor
    """[n], from 0 to 2 pi"""
    objects: Tensor
    """[n, k, 2]"""

    def __getitem__(self, index: slice | Tensor) -> Layouts:
        return Layouts(self.robot[index], self.yaw[index], self.objects[index])


def sample_layouts(generator: Generator, count: int, arena: Arena) -> Layouts:
    """`count` independent layouts; raises LayoutError if they cannot be found."""
    found: list[Layouts] = []
    total = tried = rounds = 0
    while total < count:
        share = max(1, total) / tried if tried else 1.0  # of layouts that find room
        rows = min(_CHUNK, max(64, math.ceil(1.1 * (count - total) / share)))
        found.append(_attempt(generator, rows, arena))
        total, tried, rounds = total + len(found[-1].yaw), tried + rows, rounds + 1
        if total == 0 and rounds == 20:
            raise LayoutError(
                f"no room: {len(arena.keepouts) - arena.goal} objects with keepouts up to "
                f"{max(arena.keepouts, default=0.0)} m do not fit the {2 * arena.extent:g} m arena"
            )
    return Layouts(
        torch.cat([f.robot for f in found])[:count],
        torch.cat([f.yaw for f in found])[:count],
        torch.cat([f.objects for f in found])[:count],
    )


@functools.cache
def fits(arena: Arena) -> bool:
    """Whether at least one layout in a hundred finds room for everything (tried, seeded)."""
    area = sum((torch.pi * k**2 for k in arena.keepouts), torch.pi * arena.robot_keepout**2)
    if area > (2 * arena.extent) ** 2:
        return False
    generator = torch.Generator().manual_seed(0)
    return len(_attempt(generator, 300, arena).yaw) >= 3


def largest_count(arena: Arena) -> int:
    """How many objects like the arena's last one can be placed beside the others and the robot."""
    *others, keepout = arena.keepouts
    count = 0
    while fits(replace(arena, keepouts=(*others, *[keepout] * (count + 1)))):
        count += 1
    return count


def place_one(
    generator: Generator,
    placed: Tensor,
    clearance: Tensor,
    half_side: float,
    radius: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Draw one point for each row that keeps `clearance [j]` to the points `placed [n, j, 2]`.

    Returns the points `[n, 2]` and whether one was found `[n]`; the first that fits is taken.
    """
    point, found = placed.new_zeros(len(placed), 2), torch.zeros(len(placed), dtype=torch.bool)
    rest = torch.arange(len(placed))
    for tries in _TRIES:
        drawn, fit = _first_fit(generator, placed[rest], clearance, half_side, radius, tries)
        point[rest], found[rest] = drawn, fit
        rest = rest[~fit]
        if not len(rest):
            break
    return point, found


def _first_fit(
    generator: Generator,
    placed: Tensor,
    clearance: Tensor,
    half_side: float,
    radius: float | None,
    tries: int,
) -> tuple[Tensor, Tensor]:
    n = len(placed)
    x, y = (torch.rand(2, n, tries, generator=generator, dtype=torch.float32) * 2 - 1) * half_side
    # The placed points come first, [j, n, tries]: several times faster than to reduce a last axis so
    # short, and squares by hand than a norm.
    dx, dy = (at - to for at, to in zip((x, y), placed.permute(2, 1, 0).unsqueeze(-1), strict=True))
    gap = dx.square_().addcmul_(dy, dy).sub_(clearance.square()[:, None, None])
    fit = gap.amin(0) >= 0
    if radius is not None:
        fit &= torch.hypot(x, y) <= radius
    found, first = fit.max(dim=1)
    at = first.unsqueeze(1)
    return torch.cat([x.gather(1, at), y.gather(1, at)], dim=1), found


def _attempt(generator: Generator, rows: int, arena: Arena) -> Layouts:
    """Try `rows` layouts and return those in which everything found a place."""
    half = arena.extent - arena.robot_keepout
    robot = (torch.rand(rows, 1, 2, generator=generator, dtype=torch.float32) * 2 - 1) * half
    if arena.pinned:
        robot.zero_()

    placed, keepouts = robot, [arena.robot_keepout]
    for keepout in arena.keepouts:
        reach = None if arena.goal and len(keepouts) == 1 else arena.reach
        placed = _add(generator, placed, keepouts, keepout, arena.extent, reach)
        keepouts.append(keepout)
    if arena.goal:  # the first one is dropped and the goal drawn again
        others, keepouts = (
            torch.cat([placed[:, :1], placed[:, 2:]], 1),
            [keepouts[0], *keepouts[2:]],
        )
        placed = _add(generator, others, keepouts, arena.keepouts[0], arena.extent, None)
        placed = torch.cat([placed[:, :1], placed[:, -1:], placed[:, 1:-1]], dim=1)

    yaw = torch.rand(len(placed), generator=generator, dtype=torch.float32) * (2 * torch.pi)
    return Layouts(placed[:, 0], yaw, placed[:, 1:])


def _add(
    generator: Generator,
    placed: Tensor,
    keepouts: Sequence[float],
    keepout: float,
    extent: float,
    radius: float | None,
) -> Tensor:
    """Add one object to each row `[n, j, 2]`, dropping the rows where it finds no place."""
    clearance = torch.tensor(keepouts, dtype=torch.float32) + keepout
    point, found = place_one(generator, placed, clearance, extent - keepout, radius)
    return torch.cat([placed, point.unsqueeze(1)], dim=1)[found]
