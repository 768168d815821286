"""A stock of start layouts, drawn in bulk and handed out one episode at a time."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from statewise.core.placement import LayoutError, place_one, sample_layouts
from statewise.envs.suites import Suite

PILLAR_HALF_HEIGHT = 0.5
_HAZARD_Z = 0.02
_FIRST_STOCK, _STOCK = 64, 256

Accept = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Which layouts (robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`) may start an episode: `[n]`."""

Layouts = tuple[Tensor, Tensor, Tensor]
"""Robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`."""


class LayoutStock:
    """Layouts of one suite from one seeded generator, for `num_envs` worlds.

    Always drawn on the CPU, and so many at a time as does not depend on how fast they are used: one
    seed gives the same episodes on every device.
    """

    def __init__(self, suite: Suite, num_envs: int, device: torch.device, accept: Accept) -> None:
        self.suite = suite
        self.num_envs = num_envs
        self.num_objects = 1 + suite.count("hazard") + suite.count("pillar")
        self.device = device
        self._accept = accept
        self._generator = torch.Generator()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        self._generator.manual_seed(seed)
        self._refill_size = _FIRST_STOCK
        self._first = self.num_envs
        """How many are still missing for the first episode of every world."""
        self._robot = torch.zeros(0, 2)
        self._yaw = torch.zeros(0)
        self._objects = torch.zeros(0, self.num_objects, 3)

    def take(self, count: int) -> Layouts:
        """The next `count` layouts: robot `[k, 2]`, yaw `[k]`, objects `[k, K, 3]`."""
        while len(self._yaw) < count:
            robot, yaw, objects = self.draw()
            self._robot = torch.cat([self._robot, robot])
            self._yaw = torch.cat([self._yaw, yaw])
            self._objects = torch.cat([self._objects, objects])
        taken = (self._robot[:count], self._yaw[:count], self._objects[:count])
        self._robot, self._yaw, self._objects = (
            self._robot[count:], self._yaw[count:], self._objects[count:],
        )  # fmt: skip
        robot, yaw, objects = (part.to(self.device) for part in taken)
        return robot, yaw, objects

    def draw(self) -> Layouts:
        """The next layouts of the sequence, some tens to some thousands."""
        size = self._refill_size
        found = self._draw(max(size, self.num_envs) if self._first > 0 else size)
        self._first -= len(found[1])
        # Few at first, for those who need few; then many, for those who need many.
        self._refill_size = min(2 * size, _STOCK)
        return found

    def new_goal(self, robot: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Another place for the goal among `objects [k, K, 3]`, the robot being at `[k, 2]`.

        Returns the goals `[k, 3]` and whether a place was found `[k]`.
        """
        arena = self.suite.arena
        placed = torch.cat([robot.unsqueeze(1), objects[:, 1:, :2]], dim=1).cpu()
        keepouts = torch.tensor([arena.robot_keepout, *arena.keepouts[1:]])
        half = arena.extent - arena.keepouts[0]
        xy, found = place_one(self._generator, placed, keepouts + arena.keepouts[0], half)
        goal = torch.cat([xy, self._goal_height(len(xy))], dim=1)
        if arena.reach is not None:
            found &= torch.linalg.vector_norm(goal, dim=-1) <= arena.reach
        return goal.to(self.device), found.to(self.device)

    def state(self) -> dict[str, Any]:
        return {
            "generator": self._generator.get_state(),
            "refill_size": self._refill_size,
            "first": self._first,
            "robot": self._robot.clone(),
            "yaw": self._yaw.clone(),
            "objects": self._objects.clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        self._refill_size, self._first = state["refill_size"], state.get("first", 0)
        self._robot, self._yaw, self._objects = state["robot"], state["yaw"], state["objects"]

    def _draw(self, count: int) -> Layouts:
        """What may start an episode of the next `count` layouts."""
        drawn = sample_layouts(self._generator, count, self.suite.arena)
        objects = torch.cat([drawn.objects, self._heights(count)], dim=2)
        good = self._accept(drawn.robot, drawn.yaw, objects)
        if not good.any():
            raise LayoutError(
                f"{self.suite.name}: in none of {count} layouts does the robot start free of cost "
                f"and short of the goal; give it a larger keepout or fewer objects"
            )
        return drawn.robot[good], drawn.yaw[good], objects[good]

    def _heights(self, count: int) -> Tensor:
        """Height of each object's centre: `[n, K, 1]`."""
        suite = self.suite
        goal = self._goal_height(count)
        if suite.robot.spatial:
            hazards = self._in_air(count, suite.count("hazard"))
        else:
            hazards = torch.full((count, suite.count("hazard")), _HAZARD_Z)
        pillars = torch.full((count, suite.count("pillar")), PILLAR_HALF_HEIGHT)
        return torch.cat([goal, hazards, pillars], dim=1).unsqueeze(-1)

    def _goal_height(self, count: int) -> Tensor:
        robot = self.suite.robot
        if robot.spatial:
            return self._in_air(count, 1)
        return torch.full((count, 1), robot.goal_radius / 2 + 0.01)

    def _in_air(self, count: int, objects: int) -> Tensor:
        low, high = self.suite.robot.goal_height
        return low + (high - low) * torch.rand(count, objects, generator=self._generator)


class DeviceStock:
    """The same layouts in the same order, for worlds on a device that is never waited for in vain.

    They lie in a ring on the device, drawn ahead of use. How many were used is counted there, as
    only the device knows in which worlds an episode ended; the count comes back to the host some
    steps late. In a step at most every world takes one, so the host knows how many there are left
    at least: it waits for a count only where that could be fewer than there are worlds.
    """

    _used: Tensor
    """[] how many were handed out since the start"""

    def __init__(self, source: LayoutStock, device: torch.device) -> None:
        self._source = source
        self._worlds = source.num_envs
        self._device = device
        self._size = 3 * self._worlds + _STOCK
        self._ring = torch.zeros(self._size, 3 + 3 * source.num_objects, device=device)
        """Robot, yaw and objects of each layout, side by side: one copy, one gather."""
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        self._source.seed(seed)
        self._forget()

    def take(self, count: int) -> Layouts:
        """The next layouts, for every world (`count` of them): see `LayoutStock.take`."""
        return self.take_where(torch.ones(count, dtype=torch.bool, device=self._device))

    def take_where(self, mask: Tensor) -> Layouts:
        """The next layouts, one for each world of `mask [B]`, in the order of worlds.

        Returns rows for every world: robot `[B, 2]`, yaw `[B]`, objects `[B, K, 3]`. Those outside
        the mask are not to be used: somebody else will get them.
        """
        self._secure()
        rank = mask.cumsum(0)
        rows = self._ring[(self._used + rank - 1) % self._size]
        self._used = self._used + rank[-1]
        self._counts.append(_Count(self._used))
        if self._drawn - self._known < 2 * self._worlds:
            self._draw()
        return rows[:, :2], rows[:, 2], rows[:, 3:].unflatten(1, (-1, 3))

    def state(self) -> dict[str, Any]:
        """What `LayoutStock.state` is of: the layouts left, and how the next will be drawn."""
        used = int(self._used)
        left = self._ring[torch.arange(used, self._drawn, device=self._device) % self._size].cpu()
        return self._source.state() | {
            "robot": left[:, :2].clone(),
            "yaw": left[:, 2].clone(),
            "objects": left[:, 3:].unflatten(1, (-1, 3)).clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._source.load_state(state)
        self._forget()
        left = self._source.state()
        self._put((left["robot"], left["yaw"], left["objects"]))

    def _forget(self) -> None:
        self._drawn: int = 0  # since the start
        self._used = torch.zeros((), dtype=torch.long, device=self._device)
        self._known: int = 0  # used, when it was last heard of
        self._counts: deque[_Count] = deque()  # those not heard of yet: one for each take since

    def _secure(self) -> None:
        """Make sure that there is a layout left for every world."""
        self._listen(wait=False)
        while self._drawn - self._known - self._worlds * len(self._counts) < self._worlds:
            if self._counts:
                self._listen(wait=True)
            else:
                self._draw()

    def _listen(self, wait: bool) -> None:
        """Read the counts that have come; wait for the oldest of them if asked to."""
        while self._counts and (wait or self._counts[0].here()):
            self._known = self._counts.popleft().read()
            wait = False

    def _draw(self) -> None:
        self._put(self._source.draw())

    def _put(self, layouts: Layouts) -> None:
        """Write layouts behind the newest ones of the ring, over such as are used for certain."""
        robot, yaw, objects = layouts
        rows = torch.cat([robot, yaw.unsqueeze(1), objects.flatten(1)], dim=1)
        if self._drawn + len(rows) - self._known > self._size:
            raise RuntimeError(
                f"{len(rows)} more layouts do not fit a ring of {self._size} that may hold "
                f"{self._drawn - self._known} unused ones"
            )
        if self._device.type == "cuda":
            rows = rows.pin_memory()
        while len(rows):
            at = self._drawn % self._size
            part = rows[: self._size - at]
            self._ring[at : at + len(part)].copy_(part, non_blocking=True)
            self._drawn += len(part)
            rows = rows[len(part) :]


class _Count:
    """A number on its way from the device to the host."""

    def __init__(self, number: Tensor) -> None:
        self._event = torch.cuda.Event() if number.is_cuda else None
        self._number = number
        if self._event is not None:
            self._number = torch.empty((), dtype=number.dtype, pin_memory=True)
            self._number.copy_(number, non_blocking=True)
            self._event.record(torch.cuda.current_stream(number.device))

    def here(self) -> bool:
        return self._event is None or bool(self._event.query())

    def read(self) -> int:
        """The number, when it is here."""
        if self._event is not None:
            self._event.synchronize()
        return int(self._number)
