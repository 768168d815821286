"""What an update learns from: a rollout as rows, with advantages, critic targets and estimates."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from statewise.types import Rollout

AGES = (0, 10, 30, 100, 300)
"""Metrics that change along an episode are grouped by its age in steps; groups begin at these."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A rollout as N rows of data. Without a cost signal the cost tensors have no columns."""

    rollout: Rollout
    inputs: Tensor
    """[N, k] what the networks read"""
    action: Tensor
    """[N, a]"""
    advantage: Tensor
    """[N] of the reward: mean 0, standard deviation 1"""
    target: Tensor
    """[N] of V"""
    cost_advantage: Tensor
    """[N, m] of what each constraint bounds: mean 0; not scaled, since its size counts"""
    cost_target: Tensor
    """[N, k] of each channel of the cost critic"""
    positive: Tensor
    """[N] whether any cost is still to come in the row's episode, as far as the rollout shows"""
    J: Tensor
    """[m] float64: what each constraint bounds, for the current policy, as the critic helps to see it"""
    shown: Tensor
    """[m] float64: the same of the true costs, without a margin, as the rollout shows it"""
    violating: Tensor
    """[m] float64: share of episodes with a true cost above 0, as the rollout shows it"""
    channels: tuple[int, ...]
    """[k] the constraint of each channel of the cost critic"""
    length: float
    """Mean episode length"""
    episodes: float
    """How many episodes the rollout is worth"""

    def finite(self) -> bool:
        """Whether every number is."""
        # Raw observations too: scaled, an infinite one is only a large one.
        seen = (self.rollout.obs, self.rollout.next_obs, self.inputs, self.action)
        found = (self.advantage, self.target, self.cost_advantage, self.cost_target)
        here = torch.stack([torch.isfinite(x).all() for x in (*seen, *found)]).all()
        return bool(here) and bool(torch.isfinite(self.J).all())

    def metrics(self, cost_names: tuple[str, ...]) -> dict[str, float]:
        """What the rollout shows, before anything is learned from it."""
        out = {
            "estimate/length": self.length,
            "estimate/episodes": self.episodes,
            "critic/value_target/mean": float(self.target.mean()),
            **_spread("critic/value_target", self.target),
        }
        if self.cost_target.shape[1]:
            out["critic/zero_target_share"] = 1.0 - float(self.positive.float().mean())
            for i, name in enumerate(cost_names):
                out[f"constraint/{name}/estimate"] = float(self.J[i])
                size = self.cost_advantage[:, i].abs()
                out[f"constraint/{name}/max_advantage"] = float(size.max())
                out |= self.by_age(f"constraint/{name}/max_advantage", size, "amax")
            for i, target in zip(self.channels, self.cost_target.unbind(1), strict=True):
                out |= _spread(f"constraint/{cost_names[i]}/target", target)
        return out

    def by_age(self, name: str, rows: Tensor, reduce: Literal["sum", "amax"]) -> dict[str, float]:
        """Sum or maximum of `rows [N]` over the steps of episodes from one age to the next."""
        edges = torch.tensor(AGES[1:], device=rows.device)
        bins = torch.bucketize(self.rollout.age.flatten(), edges, right=True)
        out = rows.new_zeros(len(AGES)).scatter_reduce(0, bins, rows, reduce)
        return {f"{name}/age_{age}": x for age, x in zip(AGES, out.tolist(), strict=True)}


def _spread(name: str, values: Tensor) -> dict[str, float]:
    """Quantiles of `values [N]`."""
    shares = torch.tensor([0.05, 0.5, 0.95, 0.99, 1.0], device=values.device)
    labels = ("p05", "p50", "p95", "p99", "max")
    quantiles = torch.quantile(values, shares).tolist()
    return {f"{name}/{label}": x for label, x in zip(labels, quantiles, strict=True)}
