"""What to do where a batch holds few costs: trust it less, and look further back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statewise.types import Rollout


@dataclass(frozen=True, eq=False)
class Epoch:
    """What a cost critic can be fitted to."""

    inputs: Tensor
    """[N, k]"""
    target: Tensor
    """[N, m]"""
    rises: Tensor
    """[m] how often a maximum rose"""


class Evidence:
    """How often the maxima rise in a batch, and the last epochs that together hold enough rises.

    Steps of an episode that raise its maximum one after another are one rise: a robot that drives
    into a hazard is one piece of evidence, however long it takes.
    """

    MOST = 8
    """Epochs that are remembered at most."""
    SMOOTHING = 0.7
    AT_FIRST = 10.0
    """Times `enough` that the count starts at: a critic that has learned nothing is no better."""

    NONE = 0.05
    """Rises, smoothed, below which there are none: a dozen epochs or more after the last one."""

    def __init__(self, num_costs: int, enough: int) -> None:
        self.enough = enough
        self.rises = torch.full((num_costs,), self.AT_FIRST * enough, dtype=torch.float64)
        """[m] in a batch, smoothed over epochs"""
        self.latest = torch.zeros_like(self.rises)
        """[m] in the latest batch"""
        self.epochs: list[Epoch] = []
        """The newest last."""

    def count(self, rollout: Rollout) -> None:
        """Take in how often the maxima of a rollout rose."""
        up = rollout.increment > 0
        went_on = up[1:] & up[:-1] & ~rollout.ended[:-1, :, None]
        self.latest = (up.sum(dim=(0, 1)) - went_on.sum(dim=(0, 1))).double().cpu()
        self.rises = self.SMOOTHING * self.rises + (1 - self.SMOOTHING) * self.latest

    @property
    def trust(self) -> Tensor:
        """[m] share of what is enough, at most 1.

        Where nothing rises for long, that is what the batch has to say, and it contradicts a critic
        that still fears something: then it is trusted again.
        """
        if not self.enough:
            return torch.ones_like(self.rises)
        few, none = self.rises / self.enough, 1.0 - self.rises / self.NONE
        return torch.maximum(few, none).clamp(max=1.0)

    def remember(self, inputs: Tensor, target: Tensor) -> list[Epoch]:
        """Take in the latest batch; the last epochs that hold enough rises of every maximum."""
        epochs = [*self.epochs, Epoch(inputs, target, self.latest)][-self.MOST :]
        while len(epochs) > 1 and bool((_rises(epochs[1:]) >= self.enough).all()):
            epochs = epochs[1:]
        self.epochs = epochs
        return epochs

    def state_dict(self) -> dict[str, Any]:
        return {"rises": self.rises, "epochs": [vars(epoch) for epoch in self.epochs]}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.rises = state["rises"].cpu()
        self.epochs = [
            Epoch(e["inputs"].to(device), e["target"].to(device), e["rises"].cpu())
            for e in state["epochs"]
            if "weight" not in e  # a run of a version that kept some rows for many
        ]


def _rises(epochs: list[Epoch]) -> Tensor:
    """[m] of all together"""
    return torch.stack([epoch.rises for epoch in epochs]).sum(dim=0)
