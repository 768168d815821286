"""The running episodes of a batch of worlds. Their tensors are handed out, so none is ever written."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statewise.envs.world import Stage, World

_SAVED = ("objects", "sensors", "action", "draws", "cost_max", "true_cost_max", "min_clearance",
         "time")  # fmt: skip
"""The tensors that a copy of the episodes needs."""


@dataclass(eq=False)
class Running:
    """What is known of each world's episode so far; `[B, ...]` each."""

    sensors: Tensor
    objects: Tensor
    draws: Tensor
    action: Tensor
    time: Tensor
    cost_max: Tensor
    true_cost_max: Tensor
    min_clearance: Tensor
    memories: dict[str, Tensor]

    @classmethod
    def before(
        cls, sensors: Tensor, num_objects: int, draws: int, actions: int, costs: int
    ) -> Running:
        """Worlds in which nothing has begun."""

        def zeros(*shape: int) -> Tensor:
            return sensors.new_zeros(len(sensors), *shape)

        time = torch.zeros(len(sensors), dtype=torch.long, device=sensors.device)
        return cls(sensors, zeros(num_objects, 3), zeros(draws), zeros(actions), time,
                   zeros(costs), zeros(costs), zeros(costs), {})  # fmt: skip

    def world(self, stage: Stage, sensors: Tensor, action: Tensor) -> World:
        """As tasks and constraints see it, after an action that led to these sensors."""
        return World(stage, sensors, self.objects, action, self.time, self.draws, self.memories)

    def row(self, world: int, stage: Stage, sensors: Tensor) -> World:
        """One world, with the given sensors `[1, ns]`."""
        row = slice(world, world + 1)
        memories = {kind: memory[row] for kind, memory in self.memories.items()}
        return World(stage, sensors, self.objects[row], self.action[row], self.time[row],
                     self.draws[row], memories)  # fmt: skip

    def restart(self, where: Tensor, ended: Tensor, fresh: World, clearance: Tensor) -> None:
        """Begin episodes in the worlds `where`, as `fresh` shows them. ended: `[B]`, the same worlds."""
        self.sensors = replaced(self.sensors, where, fresh.sensors)
        self.objects = replaced(self.objects, where, fresh.all_objects)
        self.draws = replaced(self.draws, where, fresh.draws)
        for kind, memory in fresh.memories.items():
            self.memories[kind] = replaced(self.memories[kind], where, memory)
        self.min_clearance = replaced(self.min_clearance, where, clearance)
        self.cost_max = self.cost_max.masked_fill(ended.unsqueeze(1), 0.0)
        self.true_cost_max = self.true_cost_max.masked_fill(ended.unsqueeze(1), 0.0)
        self.time = self.time.masked_fill(ended, 0)

    def tensors(self) -> dict[str, Tensor]:
        return {name: getattr(self, name) for name in _SAVED}

    def set_rows(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Replace the worlds of ids `where [k]` by rows of `tensors`."""
        for name, tensor in self.tensors().items():
            setattr(self, name, tensor.index_copy(0, where, rows[name]))

    def state(self) -> dict[str, Any]:
        memories = {kind: memory.clone() for kind, memory in self.memories.items()}
        return {"memories": memories} | {k: tensor.clone() for k, tensor in self.tensors().items()}

    def load(self, state: Mapping[str, Any]) -> None:
        device = self.sensors.device
        for name in _SAVED:
            setattr(self, name, state[name].to(device, copy=True))
        memories = state["memories"].items()
        self.memories = {kind: memory.to(device, copy=True) for kind, memory in memories}


def replaced(old: Tensor, where: Tensor, new: Tensor) -> Tensor:
    """A copy of `old [B, ...]` with other rows: of a mask `[B]`, or k new ones for ids `[k]`."""
    if where.dtype == torch.bool:
        return torch.where(where.view(-1, *[1] * (old.dim() - 1)), new, old)
    return old.index_copy(0, where, new)
