"""What to do where a batch holds few costs: trust it less, and look further back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from statewise.types import Rollout


@dataclass(frozen=True, eq=False)
class Epoch:
    """Rows of a batch that a cost critic can be fitted to."""

    inputs: Tensor
    """[n, k]"""
    target: Tensor
    """[n, m]"""
    weight: Tensor
    """[n] how many rows of the batch each stands for"""
    rises: Tensor
    """[m] how often a maximum rose"""


@dataclass(frozen=True, eq=False)
class Tally:
    """What a batch saw of the maxima."""

    rises: Tensor
    """[m] how often each rose"""
    seen: Tensor
    """[m] by how much in all"""
    episodes: float
    """How many episodes the batch is worth"""


class Evidence:
    """How often the maxima rise in a batch, and the last epochs that together hold enough rises.

    Steps of an episode that raise its maximum one after another are one rise: a robot that drives
    into a hazard is one piece of evidence, however long it takes.
    """

    RECENT = 8
    """Epochs that count as lately at most."""
    FIT = 4.0
    """Times `enough`: rises that a critic is fitted to."""
    MOST = 32
    """Epochs that they are gathered from at most."""
    LONG = 16
    """Epochs without a rise after which a maximum is taken not to rise any more."""
    SHARE = 8
    """Rows of a batch for each that is remembered once it is no longer the latest."""
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
        self.seen = torch.zeros_like(self.rises)
        """[m] by how much they rose there"""
        self.tallies: list[Tally] = []
        """The newest last."""
        self.epochs: list[Epoch] = []
        """The newest last."""

    def count(self, rollout: Rollout) -> None:
        """Take in how often, and by how much, the maxima of a rollout rose."""
        up = rollout.increment > 0
        went_on = up[1:] & up[:-1] & ~rollout.ended[:-1, :, None]
        self.latest = (up.sum(dim=(0, 1)) - went_on.sum(dim=(0, 1))).double().cpu()
        self.seen = rollout.increment.sum(dim=(0, 1)).double().cpu()
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

    def tally(self, episodes: float) -> None:
        """Take in how many episodes the latest batch is worth."""
        if self.enough:
            self.tallies = [*self.tallies, Tally(self.latest, self.seen, episodes)][-self.RECENT :]

    @property
    def lately(self) -> Tensor:
        """[m] the rise of an episode over the last epochs that hold enough of them; 0 before any."""
        rises, seen, count = (torch.zeros_like(self.rises) for _ in range(3))
        for tally in reversed(self.tallies):
            few = rises < self.enough
            rises, seen = rises + few * tally.rises, seen + few * tally.seen
            count += few * tally.episodes
        return seen / count.clamp(min=1e-12)

    def gather(self, inputs: Tensor, target: Tensor) -> list[Epoch]:
        """The latest batch, and before it the last epochs that together hold enough rises of all.

        Where a maximum has not risen for long, there is no looking further back for that.
        """
        latest = Epoch(inputs, target, torch.ones_like(inputs[:, 0]), self.latest)
        epochs = [*self.epochs, latest][-self.MOST :]
        quiet = (_rises(epochs[-self.LONG :]) == 0) & (len(epochs) > self.LONG)
        while len(epochs) > 1:
            if not bool((quiet | (_rises(epochs[1:]) >= self.FIT * self.enough)).all()):
                break
            epochs = epochs[1:]
        return epochs

    def remember(self, epochs: list[Epoch], positive: Tensor, generator: torch.Generator) -> None:
        """Keep what was gathered, and of the latest batch mostly the rows with a cost ahead.

        positive: `[N]` which ones these are.
        """
        latest = epochs[-1]
        rows, weight = _some(positive, max(len(positive) // self.SHARE, 1), generator)
        thin = Epoch(latest.inputs[rows], latest.target[rows], weight, latest.rises)
        self.epochs = [*epochs[:-1], thin]

    def state_dict(self) -> dict[str, Any]:
        return {
            "rises": self.rises,
            "tallies": [vars(tally) for tally in self.tallies],
            "epochs": [vars(epoch) for epoch in self.epochs],
        }

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.rises = state["rises"].cpu()
        self.tallies = [
            Tally(t["rises"].cpu(), t["seen"].cpu(), t["episodes"])
            for t in state.get("tallies", ())
        ]
        self.epochs = [
            Epoch(
                e["inputs"].to(device),
                e["target"].to(device),
                e["weight"].to(device),
                e["rises"].cpu(),
            )
            for e in state["epochs"]
            if "weight" in e  # older runs kept other rows
        ]


def _rises(epochs: list[Epoch]) -> Tensor:
    """[m] of all together"""
    return torch.stack([epoch.rises for epoch in epochs]).sum(dim=0)


def _some(positive: Tensor, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """`size` of `[N]` rows at random, up to half of them positive, and how many each stands for."""
    yes, no = positive.nonzero()[:, 0], (~positive).nonzero()[:, 0]
    count = max(min(len(yes), size // 2), size - len(no))
    rows, weights = [], []
    for pool, kept in ((yes, count), (no, size - count)):
        order = torch.randperm(len(pool), generator=generator, device=pool.device)
        rows.append(pool[order[:kept]])
        weights.append(torch.full((kept,), len(pool) / max(kept, 1), device=pool.device))
    return torch.cat(rows), torch.cat(weights)
