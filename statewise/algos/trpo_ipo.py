"""TRPO-IPO (Liu et al., 2020): a logarithmic barrier keeps the policy off the limit.

ψ(u) = -log(-u)/t for u = J - limit, continued by its tangent from u = -1/t² on, so that it is defined
for a violated limit too and always prefers less cost. The published SCPO code jumps there instead: with
a limit of 0 its barrier is never reached, and its results are those of plain TRPO.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import (
    Candidate,
    TrustRegionAlgorithm,
    surrogates,
)
from statewise.algos.shared_settings import CostSettings, TrustRegionSettings
from statewise.settings import number


@dataclass(frozen=True)
class TrpoIpoSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    t: float = number(20.0, above=0)
    """Steepness of the barrier. The paper's 0.01 belongs to the published form below."""
    per_step: bool = False
    """Divide the barrier by the mean episode length. The reward's advantage is per step, so both terms
    are then in one unit. Off, as published, a cost per episode outweighs the reward."""
    barrier: Literal["smooth", "published"] = "smooth"
    """"published": the penalty of the published code where the limit is violated, 0.0005 of it."""


class TrpoIpo(TrustRegionAlgorithm):
    name = "trpo_ipo"
    title = "TRPO-IPO"
    settings_class = TrpoIpoSettings
    settings: TrpoIpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        violation = self.settings.violation(batch.J).to(batch.advantage)
        gain, *changes = surrogates(batch)
        unit = 1.0 / batch.length if self.settings.per_step else 1.0

        def objective(policy: Candidate) -> Tensor:
            reward = gain(policy)
            for i, change in enumerate(changes):
                reward = reward - unit * self.barrier(violation[i] + change(policy))
            return reward

        step = self.natural_step(batch, objective)
        step |= self.by_constraint(violation=violation, barrier=self.barrier(violation))
        return step | self.fit_critics(batch)

    def barrier(self, u: Tensor) -> Tensor:
        t = self.settings.t
        if self.settings.barrier == "published":
            return torch.where(u < 0, -torch.log((-u).clamp(min=1e-30)) / t, 0.0005 * u)
        edge = -1.0 / t**2
        inside = -torch.log((-u).clamp(min=-edge)) / t
        return torch.where(u <= edge, inside, t * u + (1.0 - math.log(1.0 / t**2)) / t)
