"""The observation: the robot's own sensors, then the blocks of the task and of the constraints."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from statewise.core import lidar
from statewise.envs.blame import blamed, label_of
from statewise.envs.env import blocks_of
from statewise.envs.suites import Suite
from statewise.envs.terms import Term
from statewise.envs.world import Stage, World

UNUSED_LIDARS = ("vase_lidar", "gremlin_lidar")
"""Lidars of Safety Gym objects that no suite has: the paper's observation holds their zeros."""
_PAPER = {"Goal", "Hazard", "3DHazard", "Pillar"}

_Views = Callable[[World, Term], World]
"""The World of one term."""


class Observer:
    """What worlds of one suite observe."""

    def __init__(self, suite: Suite, stage: Stage, compact: bool) -> None:
        robot, scene = suite.robot, stage.scene
        names = list(dict.fromkeys(scene.match(robot.sensors)))
        blocks = [_block(name) for name in names]
        names.sort(key=lambda name: blocks.index(_block(name)))  # a block lies in one piece
        self._internal = stage.columns(names)
        self._names = names
        self._sensors = scene.sensors
        self._terms = [term for term in suite.terms if type(term).observe is not Term.observe]
        padded = _PAPER.issuperset(term.kind for term in suite.terms) and not robot.spatial
        self.num_zeros = len(UNUSED_LIDARS) * lidar.PLANAR_BINS if padded and not compact else 0
        self._suite = suite.name
        self.blocks_of: dict[str, dict[str, int]] = {}
        """The blocks of each term and their sizes, known after `measure`."""
        self.blocks: dict[str, slice] = {}
        """Where each block lies, known after `measure`."""

    @property
    def obs_size(self) -> int:
        return max((block.stop for block in self.blocks.values()), default=0)

    @property
    def blocks_of_terms(self) -> list[str]:
        """The blocks that the task and the constraints observe."""
        return [name for sizes in self.blocks_of.values() for name in sizes]

    def measure(self, world: World, view: _Views) -> None:
        """Learn the sizes of all blocks from one observation, and check it."""
        sizes: dict[str, int] = {}
        for name in self._names:
            s, block = self._sensors[name], _block(name)
            sizes[block] = sizes.get(block, 0) + s.stop - s.start
        for term in self._terms:
            with blamed(term, "observe", self._suite):
                found = term.observe(view(world, term))
            if not isinstance(found, dict):
                raise ValueError(
                    f"{term.kind}: observe() returned a {type(found).__name__}: return a dict of "
                    f"tensors [R, d] by name"
                )
            for name, part in found.items():
                _check_part(part, len(world), f"the block {name!r} of {term.kind}")
                if name in sizes:
                    raise ValueError(
                        f"{term.kind} observes {name!r}, which is there already: rename it"
                    )
                sizes[name] = part.shape[1]
            self.blocks_of[term.kind] = {name: part.shape[1] for name, part in found.items()}
        if self.num_zeros:
            sizes |= dict.fromkeys(UNUSED_LIDARS, lidar.PLANAR_BINS)
        self.blocks = blocks_of(sizes)

    def observe(self, world: World, view: _Views) -> Tensor:
        """The observation `[R, n]`, its blocks in the order of `blocks`."""
        parts = [world.sensors[:, self._internal]]
        for term in self._terms:
            parts += self.observe_term(term, world, view(world, term))
        if self.num_zeros:
            parts.append(world.sensors.new_zeros(len(world), self.num_zeros))
        return torch.cat(parts, dim=1).to(world.sensors.dtype)

    def observe_term(self, term: Term, world: World, seen: World) -> list[Tensor]:
        """The blocks of one term. Other blocks or sizes than in the trial raise ValueError."""
        if term.kind not in self.blocks_of:
            return []
        with blamed(term, "observe", self._suite):
            found = term.observe(seen)
            sizes = self.blocks_of[term.kind]
            if list(found) == list(sizes):
                parts = list(found.values())
                if [part.shape for part in parts] == [(len(world), d) for d in sizes.values()]:
                    return parts
            shapes = {name: tuple(part.shape) for name, part in found.items()}
            wanted = {name: (len(world), size) for name, size in sizes.items()}
            raise ValueError(
                f"{label_of(term, self._suite)} observes blocks of the shapes {shapes}: return "
                f"{wanted}, as at the start"
            )

    def block_at(self, column: int) -> str:
        """The block of the observation that holds a column."""
        return next(name for name, at in self.blocks.items() if at.start <= column < at.stop)


def _block(sensor: str) -> str:
    return sensor.split("_")[0]


def _check_part(part: object, rows: int, label: str) -> None:
    if not isinstance(part, Tensor):
        raise ValueError(f"{label} is a {type(part).__name__}: return a tensor [R, d]")
    if part.dim() != 2 or len(part) != rows:
        raise ValueError(
            f"{label} has shape {tuple(part.shape)} for {rows} worlds: return a tensor [R, d]"
        )
    if not part.is_floating_point():
        raise ValueError(f"{label} has the type {part.dtype}: return floats")
    if not bool(torch.isfinite(part).all()):
        raise ValueError(f"{label} is {part[0].tolist()} at the start: return finite floats")
