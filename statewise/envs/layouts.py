"""A stock of start layouts, drawn in bulk and handed out one episode at a time."""

from __future__ import annotations

import functools
import os
import weakref
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from torch import Generator, Tensor

from statewise.core.placement import LayoutError, place_one, sample_layouts
from statewise.envs.seeds import part_of
from statewise.envs.suites import Suite

PILLAR_HALF_HEIGHT = 0.5
_HAZARD_Z = 0.02
_MOST, _FIRST_STOCK, _STOCK = 1024, 64, 256
_WORKERS = 4

Accept = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Which layouts (robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`) may start an episode: `[n]`."""

Layouts = tuple[Tensor, Tensor, Tensor]
"""Robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`."""


class LayoutStock:
    """Layouts of one suite and one seed, for `num_envs` worlds.

    They are drawn in chunks, on the CPU, and each chunk has a generator and a size of its own that
    depend on the seed, its number and the number of worlds: one seed gives the same episodes on every
    device, however fast they are used and whoever draws them.
    """

    def __init__(self, suite: Suite, num_envs: int, device: torch.device, accept: Accept) -> None:
        self.suite = suite
        self.num_envs = num_envs
        self.num_objects = 1 + suite.count("hazard") + suite.count("pillar")
        self.device = device
        self._accept = accept
        self._goals = Generator()
        """For goals that are placed anew."""
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        if seed < 0:
            raise ValueError(f"seed is {seed}: give 0 or more")
        self._seed = seed
        self.next = 0
        """Number of the next chunk"""
        self._goals.manual_seed(seed)
        self._robot = torch.zeros(0, 2, dtype=torch.float32)
        self._yaw = torch.zeros(0, dtype=torch.float32)
        self._objects = torch.zeros(0, self.num_objects, 3, dtype=torch.float32)

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
        """The next chunk."""
        chunk = self.chunk(self.next)
        self.next += 1
        return chunk

    def chunk(self, number: int) -> Layouts:
        """The chunk of that number, some tens to a thousand layouts. Any thread may ask for it."""
        generator = Generator()
        mixed = part_of(self._seed, number).generate_state(1, np.uint64)
        generator.manual_seed(int(mixed[0] >> np.uint64(1)))
        count = self._size(number)
        drawn = sample_layouts(generator, count, self.suite.arena)
        objects = torch.cat([drawn.objects, self._heights(generator, count)], dim=2)
        good = self._accept(drawn.robot, drawn.yaw, objects)
        if not good.any():
            raise LayoutError(
                f"{self.suite.name}: in none of {count} layouts does the robot start free of cost "
                f"and short of the goal; give it a larger keepout or fewer objects"
            )
        return drawn.robot[good], drawn.yaw[good], objects[good]

    def _size(self, number: int) -> int:
        """How many layouts of a chunk are tried."""
        first = -(-self.num_envs // _MOST)
        if number < first:  # for the first episode of every world
            return max(_FIRST_STOCK, min(_MOST, self.num_envs - number * _MOST))
        # Few at first, for those who need few; then many, for those who need many.
        most = min(max(_STOCK, self.num_envs // 4), _MOST)
        return min(_FIRST_STOCK << min(number - first, 10), most)

    def new_goal(self, robot: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Another place for the goal among `objects [k, K, 3]`, the robot being at `[k, 2]`.

        Returns the goals `[k, 3]` and whether a place was found `[k]`.
        """
        arena = self.suite.arena
        placed = torch.cat([robot.unsqueeze(1), objects[:, 1:, :2]], dim=1).cpu()
        keepouts = [arena.robot_keepout, *arena.keepouts[1:]]
        clearance = torch.tensor(keepouts, dtype=torch.float32) + arena.keepouts[0]
        half = arena.extent - arena.keepouts[0]
        xy, found = place_one(self._goals, placed, clearance, half)
        goal = torch.cat([xy, self._goal_height(self._goals, len(xy))], dim=1)
        if arena.reach is not None:
            found &= torch.linalg.vector_norm(goal, dim=-1) <= arena.reach
        return goal.to(self.device), found.to(self.device)

    def state(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "next": self.next,
            "goals": self._goals.get_state(),
            "robot": self._robot.clone(),
            "yaw": self._yaw.clone(),
            "objects": self._objects.clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        if "next" not in state:
            raise ValueError(
                "the saved layouts are of an earlier version of statewise, which drew them in another "
                "way: the policy can be used, but to go on exactly needs that version"
            )
        self._seed, self.next = state["seed"], state["next"]
        self._goals.set_state(state["goals"])
        self._robot, self._yaw, self._objects = state["robot"], state["yaw"], state["objects"]

    def _heights(self, generator: Generator, count: int) -> Tensor:
        """Height of each object's centre: `[n, K, 1]`."""
        suite = self.suite
        goal = self._goal_height(generator, count)
        if suite.robot.spatial:
            hazards = self._in_air(generator, count, suite.count("hazard"))
        else:
            hazards = _column(count, suite.count("hazard"), _HAZARD_Z)
        pillars = _column(count, suite.count("pillar"), PILLAR_HALF_HEIGHT)
        return torch.cat([goal, hazards, pillars], dim=1).unsqueeze(-1)

    def _goal_height(self, generator: Generator, count: int) -> Tensor:
        robot = self.suite.robot
        if robot.spatial:
            return self._in_air(generator, count, 1)
        return _column(count, 1, robot.goal_radius / 2 + 0.01)

    def _in_air(self, generator: Generator, count: int, objects: int) -> Tensor:
        low, high = self.suite.robot.goal_height
        drawn = torch.rand(count, objects, generator=generator, dtype=torch.float32)
        return low + (high - low) * drawn


def _column(count: int, objects: int, height: float) -> Tensor:
    return torch.full((count, objects), height, dtype=torch.float32)


class DeviceStock:
    """The same layouts in the same order, for worlds on a device that is never waited for in vain.

    They lie in a ring on the device, drawn ahead of use by threads of the host: in a crowded arena
    finding a layout takes longer than a step of a world. How many were used is counted on the device,
    as only it knows in which worlds an episode ended; the count comes back to the host some steps
    late. In a step at most every world takes one, so the host knows how many there are left at least:
    it waits for a count only where that could be fewer than there are worlds.
    """

    _used: Tensor
    """[] how many were handed out since the start"""

    def __init__(self, source: LayoutStock, device: torch.device, threads: int = 0) -> None:
        """threads: how many may draw, at most four; 0: one for each core."""
        self._source = source
        self._worlds = source.num_envs
        self._device = device
        self._size = 4 * self._worlds + _MOST
        width = 3 + 3 * source.num_objects
        self._ring = torch.zeros(self._size, width, dtype=torch.float32, device=device)
        """Robot, yaw and objects of each layout, side by side: one copy, one gather."""
        self._workers = min(_WORKERS, threads or len(os.sched_getaffinity(0)))
        # A thread of theirs is no team of threads. (Nor is any thread that starts later: that is torch.)
        self._pool = ThreadPoolExecutor(
            self._workers, initializer=functools.partial(torch.set_num_threads, 1)
        )
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        self._ahead: deque[Future[Layouts]] = deque()
        """The next chunks, under way"""
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        self._source.seed(seed)
        self._forget()

    def take(self, count: int) -> Layouts:
        """The next layouts, for every world (`count` of them): see `LayoutStock.take`."""
        if count != self._worlds:
            raise ValueError(f"{count} layouts for {self._worlds} worlds: one for each is given")
        return self.take_where(torch.ones(count, dtype=torch.bool, device=self._device))

    def take_where(self, mask: Tensor) -> Layouts:
        """The next layouts, one for each world of `mask [B]`, in the order of worlds.

        Returns rows for every world: robot `[B, 2]`, yaw `[B]`, objects `[B, K, 3]`. Those outside
        the mask are not to be used: somebody else will get them.
        """
        self._secure()
        self._stock_up()
        rank = mask.cumsum(0)
        rows = self._ring[(self._used + rank - 1) % self._size]
        self._used = self._used + rank[-1]
        self._counts.append(_Count(self._used))
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
        for chunk in self._ahead:
            chunk.cancel()
        self._ahead.clear()
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

    def _stock_up(self) -> None:
        """Keep three layouts for every world, of those that are ready."""
        self._begin()
        while self._drawn - self._known < 3 * self._worlds and self._ahead[0].done():
            self._draw()

    def _draw(self) -> None:
        self._begin()
        # Counted when it is here: whatever is raised until then leaves the sequence as it was.
        self._put(self._ahead[0].result())
        self._ahead.popleft()
        self._source.next += 1
        self._begin()

    def _begin(self) -> None:
        """Set the threads to work on the next chunks."""
        while len(self._ahead) < 2 * self._workers:
            number = self._source.next + len(self._ahead)
            self._ahead.append(self._pool.submit(self._source.chunk, number))

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
