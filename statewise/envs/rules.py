"""The task and the constraints of a suite, applied to worlds."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statewise.envs.costs import check_clearance, check_form, find_ceiling
from statewise.envs.observation import Observer
from statewise.envs.suites import Suite
from statewise.envs.tasks.base import Task
from statewise.envs.terms import Term
from statewise.envs.world import MissingSensor, Stage, World

if TYPE_CHECKING:
    from statewise.sim.draw import Mark

_TRIED = 3
"""Worlds of the trial. More than one, so that a wrong shape shows."""
FAR = 100.0


class Rules:
    """What happens in the worlds of a suite beside physics."""

    def __init__(self, suite: Suite, stage: Stage, compact: bool, at_rest: Tensor) -> None:
        """at_rest: sensors `[1, ns]` of a robot at rest, to try every term with."""
        self.suite, self.stage = suite, stage
        self.names = [c.name for c in suite.constraints]
        self._movers = [term for term in suite.terms if type(term).move is not Term.move]
        self._ends_itself = type(suite.task).ended is not Task.ended
        self._followed = [
            (stage.kinds[things.kind], f"placed_{things.kind}*")
            for things in suite.things
            if things.body is not None and things.body.moves
        ]
        self._draws: dict[str, slice] = {}
        start = 0
        for term in suite.terms:
            self._draws[term.kind] = slice(start, start + term.draws)
            start += term.draws
        self.num_draws = start
        self._observer = Observer(suite, stage, compact)
        self.blocks: Mapping[str, slice] = {}
        self.ceilings = self._try(at_rest)
        self.blocks, self.obs_size = self._observer.blocks, self._observer.obs_size
        self.num_zeros = self._observer.num_zeros

    # In every step -----------------------------------------------------------------------------

    def moved(self, world: World) -> World:
        """The worlds once the objects that move have moved."""
        if not self._movers and not self._followed:
            return world
        objects = world.all_objects.clone()
        for at, pattern in self._followed:
            objects[:, at] = world.sensor(pattern).unflatten(1, (-1, 3))
        for term in self._movers:
            for kind, centres in term.move(self._view(world, term)).items():
                self._check_moved(objects, term, kind, centres)
                objects[:, self.stage.kinds[kind]] = centres
        return world.with_objects(objects)

    def clearance(self, world: World) -> Tensor:
        """[R, m] of each constraint, in the order of the suite's name"""
        found = [c.clearance(self._view(world, c)) for c in self.suite.constraints]
        if not found:
            return world.sensors.new_zeros(len(world), 0)
        try:
            return torch.stack(found, dim=1)
        except (RuntimeError, TypeError):
            for constraint, part in zip(self.suite.constraints, found, strict=True):
                check_form(part, len(world), self._label(constraint))
            raise

    def outcome(self, world: World) -> tuple[Tensor, Tensor, Tensor]:
        """The reward, whether the task is over, and whether it succeeded: `[R]` each."""
        task = self.suite.task
        world = self._view(world, task)
        success = task.succeeded(world)
        return task.reward(world), task.ended(world) if self._ends_itself else success, success

    def remember(self, world: World) -> dict[str, Tensor]:
        """What the terms need in the next step, by kind."""
        found = {t.kind: t.remember(self._view(world, t)) for t in self.suite.terms}
        return {kind: memory for kind, memory in found.items() if memory is not None}

    def observe(self, world: World) -> Tensor:
        """[R, n]"""
        return self._observer.observe(world, self._view)

    def block_at(self, column: int) -> str:
        """The block of the observation that holds a column."""
        return next(name for name, at in self.blocks.items() if at.start <= column < at.stop)

    def may_start(self, world: World) -> Tensor:
        """[R] whether an episode may start so: free of cost, and not over at once"""
        task = self.suite.task
        good = task.may_start(self._view(world, task))
        return good & (self.clearance(world) >= 0).all(dim=1)

    def marks(self, world: World) -> list[Mark]:
        """How all terms draw the first of these worlds."""
        return [mark for term in self.suite.terms for mark in term.marks(self._view(world, term))]

    @property
    def may_fail(self) -> list[str]:
        """What `not_finite` speaks of, in words: each clearance, and the reward."""
        clearances = [f"a clearance that is not finite from {name}" for name in self.names]
        return [*clearances, f"a reward that is not finite from {self.suite.task.kind}"]

    def not_finite(self, clearance: Tensor, reward: Tensor) -> Tensor:
        """[R, m + 1] which of the clearances `[R, m]` and of the rewards `[R]` are not finite"""
        return ~torch.isfinite(torch.cat([clearance, reward.unsqueeze(1)], dim=1))

    def _label(self, term: Term) -> str:
        sort = "task" if isinstance(term, Task) else "constraint"
        return f"the {sort} {term.kind} of {self.suite.name}"

    def _check_moved(self, objects: Tensor, term: Term, kind: str, centres: Tensor) -> None:
        """Refuse new centres of unknown objects, or of another number of them."""
        if kind not in self.stage.kinds:
            known = ", ".join(self.stage.kinds) or "none"
            raise ValueError(f"{self._label(term)} moves {kind!r}, but the objects are: {known}")
        at = self.stage.kinds[kind]
        wanted = (len(objects), at.stop - at.start, 3)
        if tuple(centres.shape) != wanted:
            raise ValueError(
                f"{self._label(term)} moves {kind!r} to centres of shape {tuple(centres.shape)}: "
                f"return {wanted}"
            )

    # Before the first step ---------------------------------------------------------------------

    def _view(self, world: World, term: Term) -> World:
        """The worlds with the random numbers and the memory of one term."""
        if not term.draws and type(term).remember is Term.remember:
            return world
        return world.of_term(self._draws[term.kind], term.kind)

    def rest(self, at_rest: Tensor, rows: int) -> World:
        """Robots at rest with everything far away."""
        objects = at_rest.new_full((rows, self.stage.num_objects, 3), FAR)
        draws = at_rest.new_full((rows, self.num_draws), 0.5)
        world = World(self.stage, at_rest.expand(rows, -1), objects, draws=draws)
        world.memories = self.remember(world)
        return world

    def _try(self, at_rest: Tensor) -> list[float]:
        """Try every term on robots at rest, so that mistakes show before the first episode.

        Returns the ceiling of each constraint.
        """
        name, ceilings = self.suite.name, []
        try:
            for term in self.suite.terms:
                self._check_memory(at_rest, term)
            world = self.rest(at_rest, _TRIED)
            self._check_task(world, self.suite.task)
            for constraint in self.suite.constraints:
                found = check_clearance(constraint, self._view(world, constraint), name)
                ceilings.append(find_ceiling(constraint, found))
            self.clearance(self.rest(at_rest, _TRIED + 1))  # the number of worlds is no constant
            self._observer.measure(world, self._view)
        except MissingSensor as error:
            raise MissingSensor(f"{name} cannot be made: {error}") from error
        return ceilings

    def _check_memory(self, at_rest: Tensor, term: Term) -> None:
        """Refuse what a term remembers unless it is `[R, k]`."""
        objects = at_rest.new_full((_TRIED, self.stage.num_objects, 3), FAR)
        draws = at_rest.new_full((_TRIED, self.num_draws), 0.5)
        world = World(self.stage, at_rest.expand(_TRIED, -1), objects, draws=draws)
        memory = term.remember(self._view(world, term))
        if memory is None or (isinstance(memory, Tensor) and memory.shape[:-1] == (_TRIED,)):
            return
        what = f"shape {tuple(memory.shape)}" if isinstance(memory, Tensor) else repr(memory)
        raise ValueError(
            f"{self._label(term)}: remember() returned {what} for {_TRIED} worlds: return a tensor "
            f"[R, k]"
        )

    def _check_task(self, world: World, task: Task) -> None:
        """Refuse a task whose reward or ends have a wrong form."""
        seen, rows = self._view(world, task), len(world)
        parts = {"reward": task.reward(seen), "succeeded": task.succeeded(seen)}
        parts["ended"] = task.ended(seen)
        for name, part in parts.items():
            floats = name == "reward"
            fits = isinstance(part, Tensor) and tuple(part.shape) == (rows,)
            if (
                not fits
                or (part.is_floating_point() if floats else part.dtype == torch.bool) is False
            ):
                what = (
                    f"{part.dtype} of shape {tuple(part.shape)}"
                    if isinstance(part, Tensor)
                    else part
                )
                raise ValueError(
                    f"the task {task.kind} of {self.suite.name}: `{name}` returned {what} for {rows} "
                    f"worlds: return {'floats' if floats else 'bools'} of shape ({rows},)"
                )
        if not bool(torch.isfinite(parts["reward"]).all()):
            raise ValueError(
                f"the task {task.kind} of {self.suite.name}: the reward is "
                f"{float(parts['reward'][0])} at rest in world 0: return finite numbers"
            )
