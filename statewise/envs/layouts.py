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
from statewise.envs.env import check_worlds
from statewise.envs.seeds import part_of
from statewise.envs.suites import Suite
from statewise.envs.terms import Things

_MOST, _FIRST_STOCK, _STOCK = 1024, 64, 256
_WORKERS = 4

_Starts = tuple[Tensor, Tensor, Tensor, Tensor]
"""Robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`, random numbers `[n, d]`."""

Accept = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
"""Which of such layouts may start an episode: `[n]`."""


class LayoutStock:
    """Layouts of one suite and one seed, for `num_envs` worlds.

    They are drawn in chunks, on the CPU, and each chunk has a generator and a size of its own that
    depend on the seed, its number and the number of worlds: one seed gives the same episodes on every
    device, however fast they are used and whoever draws them.
    """

    def __init__(self, suite: Suite, num_envs: int, device: torch.device, accept: Accept) -> None:
        self.suite = suite
        self.num_envs = num_envs
        self._things = suite.things
        self.num_objects = sum(things.count for things in self._things)
        self.num_draws = sum(term.draws for term in suite.terms)
        """Random numbers of each layout"""
        self.device = device
        self._accept = accept
        self._goals = Generator()
        """For goals that are placed anew."""
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        check_worlds(self.num_envs, seed)
        self._seed = seed
        self.next = 0
        """Number of the next chunk"""
        self._goals.manual_seed(seed)
        self._left = torch.zeros(0, self.width, dtype=torch.float32)
        """Layouts that were drawn and not taken yet, as `chunk` gives them."""

    @property
    def width(self) -> int:
        """Numbers of a layout."""
        return 3 + 3 * self.num_objects + self.num_draws

    def take(self, ids: Tensor) -> _Starts:
        """The next layouts, one for each of the worlds `ids [k]`."""
        while len(self._left) < len(ids):
            self._left = torch.cat([self._left, self.chunk(self.next)])
            self.next += 1
        taken, self._left = self._left[: len(ids)], self._left[len(ids) :]
        return self.unpack(taken.to(self.device))

    def unpack(self, rows: Tensor) -> _Starts:
        """Layouts from rows that hold robot, yaw, objects and random numbers side by side."""
        end = 3 + 3 * self.num_objects
        objects = rows[:, 3:end].reshape(len(rows), self.num_objects, 3)
        return rows[:, :2], rows[:, 2], objects, rows[:, end:]

    def chunk(self, number: int) -> Tensor:
        """The chunk of that number, some tens to a thousand layouts. Any thread may ask for it.

        One row for each (see `unpack`).
        """
        generator = Generator()
        mixed = part_of(self._seed, number).generate_state(1, np.uint64)
        generator.manual_seed(int(mixed[0] >> np.uint64(1)))
        count = self._size(number)
        drawn = sample_layouts(generator, count, self.suite.arena)
        objects = torch.cat([drawn.objects, self._heights(generator, count)], dim=2)
        numbers = torch.rand(count, self.num_draws, generator=generator, dtype=torch.float32)
        good = self._accept(drawn.robot, drawn.yaw, objects, numbers)
        if not good.any():
            raise LayoutError(
                f"{self.suite.name}: in none of {count} layouts does the robot start free of cost "
                f"and short of the goal; give it a larger keepout or fewer objects"
            )
        parts = (drawn.robot, drawn.yaw.unsqueeze(1), objects.flatten(1), numbers)
        return torch.cat(parts, dim=1)[good]

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
        goal = torch.cat([xy, self._height(self._goals, len(xy), self._things[0])], dim=1)
        if arena.reach is not None:
            found &= torch.linalg.vector_norm(goal, dim=-1) <= arena.reach
        return goal.to(self.device), found.to(self.device)

    def state(self) -> dict[str, Any]:
        return {
            "seed": self._seed,
            "next": self.next,
            "goals": self._goals.get_state(),
            "left": self._left.clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._seed, self.next, self._left = state["seed"], state["next"], state["left"]
        self._goals.set_state(state["goals"])

    def _heights(self, generator: Generator, count: int) -> Tensor:
        """Height of each object's centre: `[n, K, 1]`."""
        heights = [self._height(generator, count, things) for things in self._things]
        heights = heights or [torch.zeros(count, 0, dtype=torch.float32)]
        return torch.cat(heights, dim=1).unsqueeze(-1)

    def _height(self, generator: Generator, count: int, things: Things) -> Tensor:
        """[n, N] heights of the things of one kind, drawn if they have a range"""
        if isinstance(things.height, tuple):
            low, high = things.height
            drawn = torch.rand(count, things.count, generator=generator, dtype=torch.float32)
            return low + (high - low) * drawn
        return torch.full((count, things.count), things.height, dtype=torch.float32)


class DeviceStock:
    """The same layouts in the same order, for worlds on a device that is not waited for in a step.

    The layouts are in a ring on the device. Threads of the host draw them ahead of use, since in a
    crowded arena finding a layout takes longer than a step of a world. The device counts how many
    were used, as only it knows in which worlds an episode ended. The count comes back to the host
    some steps late. Every world takes at most one layout in a step, so the host knows how many are
    left at least. It waits for a count only if that could be fewer than there are worlds.
    """

    _used: Tensor

    def __init__(self, source: LayoutStock, device: torch.device, threads: int = 0) -> None:
        """threads: how many may draw, at most four; 0: one for each core."""
        self._source = source
        self._worlds = source.num_envs
        self._device = device
        self._size = 4 * self._worlds + _MOST
        self._ring = torch.zeros(self._size, source.width, dtype=torch.float32, device=device)
        self._workers = min(_WORKERS, threads or len(os.sched_getaffinity(0)))
        # Each of them uses one torch thread, and so does, in torch, every thread that starts later.
        self._pool = ThreadPoolExecutor(
            self._workers, initializer=functools.partial(torch.set_num_threads, 1)
        )
        weakref.finalize(self, self._pool.shutdown, wait=False, cancel_futures=True)
        self._ahead: deque[Future[Tensor]] = deque()
        """The next chunks, under way"""
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        self._source.seed(seed)
        self._forget()

    def take(self, mask: Tensor) -> _Starts:
        """The next layouts, one for each world of `mask [B]`, in the order of worlds.

        Returns layouts for every world. Those outside of the mask must not be used: they will be
        handed out again.
        """
        self._secure()
        self._stock_up()
        rank = mask.cumsum(0)
        rows = self._ring[(self._used + rank - 1) % self._size]
        self._used = self._used + rank[-1]
        self._counts.append(_Count(self._used))
        return self._source.unpack(rows)

    def state(self) -> dict[str, Any]:
        """The layouts that are left, and how the next will be drawn."""
        left = torch.arange(int(self._used), self._drawn, device=self._device)
        return self._source.state() | {"left": self._ring[left % self._size].cpu()}

    def load_state(self, state: dict[str, Any]) -> None:
        self._source.load_state(state)
        self._forget()
        self._put(state["left"])

    def _forget(self) -> None:
        for chunk in self._ahead:
            chunk.cancel()
        self._ahead.clear()
        self._drawn = 0  # since the start
        self._used = torch.zeros((), dtype=torch.long, device=self._device)  # the same
        self._known = 0  # used, as far as the host knows
        self._counts: deque[_Count] = deque()  # not read yet: one for each take since

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

    def _put(self, rows: Tensor) -> None:
        """Write layouts behind the newest ones of the ring, over such as are used for certain."""
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
