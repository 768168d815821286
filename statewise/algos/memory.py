"""What past epochs still say about the cost.

Costs are rare where a policy is nearly safe: an epoch may hold a handful, and a gradient from those is
mostly noise. The rows of past epochs count too, each as often as the present policy would choose its
action, π(a|s) / π_then(a|s); the states are those that were met then, as within a trust region.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from statewise.algos.estimates import Batch
from statewise.core import gaussian
from statewise.nets import GaussianPolicy

if TYPE_CHECKING:
    from statewise.algos.base import Algorithm

KEPT = 0.25
"""Rows that are kept of an epoch."""
MOST_LIKELY = 3.0
"""How often a row counts at most: a few that are much likelier now are not all."""


@dataclass(frozen=True, eq=False)
class Past:
    """n rows of past epochs."""

    inputs: Tensor
    """[n, k] not scaled in memory, scaled when recalled"""
    action: Tensor
    """[n, a]"""
    log_prob: Tensor
    """[n] of the action, under the policy that took it"""
    cost_advantage: Tensor
    """[n, m] in such units that their sum is that of all rows"""
    half: Tensor
    """[n] 1 in even worlds, -1 in odd ones"""
    episodes: Tensor
    """[e] float64, of each epoch"""

    def ratio(self, policy: GaussianPolicy) -> Tensor:
        """[n] π(a|s) / π_then(a|s), with a gradient for the mean of the policy only.

        Rows that are asked again and again would have its spread narrowed around those of their
        actions that cost little, and exploration end.
        """
        log_prob = gaussian.log_prob(policy(self.inputs), policy.log_std.detach(), self.action)
        return torch.exp(log_prob - self.log_prob).clamp(max=MOST_LIKELY)


class CostMemory:
    """The last epochs, less most of the rows whose advantage is small."""

    def __init__(self, epochs: int) -> None:
        """`epochs` includes the present one, so that 1 remembers nothing."""
        self.epochs = epochs
        self.past: list[Past] = []

    def recall(self, algo: Algorithm) -> Past | None:
        """All that is remembered, as the networks read it now."""
        if not self.past:
            return None
        joined = {f.name: torch.cat([getattr(p, f.name) for p in self.past]) for f in fields(Past)}
        return Past(**joined | {"inputs": algo.scale(joined["inputs"])})

    @torch.no_grad()
    def add(self, algo: Algorithm, batch: Batch) -> None:
        """Keep a part of a batch, before the policy that made it is changed.

        Rows are taken in proportion to the size of their advantages and weigh as much less, so that
        sums over them have the same mean as sums over all. Their shares are laid end to end and met
        at even distances from a random start: a large one is never missed.
        """
        if self.epochs == 1:
            return
        size = batch.cost_advantage.abs()
        share = (size / size.mean(dim=0).clamp(min=1e-30)).sum(dim=1).double() + 1e-6
        count = math.ceil(KEPT * len(share))
        often = share * (count / share.sum())
        start = torch.rand(1, dtype=torch.float64, device=algo.device, generator=algo.generator)
        places = torch.arange(count, device=algo.device) + start
        rows = torch.searchsorted(often.cumsum(0), places, right=True).clamp(max=len(share) - 1)
        obs, cost_max = batch.rollout.obs, batch.rollout.cost_max_before
        mean = algo.policy(batch.inputs[rows])
        self.past.append(
            Past(
                inputs=algo.unscaled(obs, cost_max).flatten(0, 1)[rows],
                action=batch.action[rows],
                log_prob=algo.policy.log_prob(mean, batch.action[rows]),
                cost_advantage=batch.cost_advantage[rows] / often[rows, None].float(),
                half=batch.half[rows],
                episodes=torch.tensor([batch.episodes], dtype=torch.float64, device=algo.device),
            )
        )
        del self.past[: -(self.epochs - 1)]

    def state_dict(self) -> list[dict[str, Tensor]]:
        return [dict(vars(p)) for p in self.past]

    def load_state_dict(self, state: list[dict[str, Any]], device: torch.device) -> None:
        self.past = [Past(**{k: x.to(device) for k, x in p.items()}) for p in state]
