"""TRPO-IPO (Liu et al., 2020): a logarithmic barrier keeps the policy off the limit.

ψ(u) = -log(-u)/t for u = J - limit, continued by its tangent from u = -1/t² on, so that it is defined
for a violated limit too and always prefers less cost. The published SCPO code jumps there instead: with
a limit of 0 its barrier is never reached, and its results are those of plain TRPO.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.steps import Candidate, cost_surrogates, natural_step


@dataclass(frozen=True)
class TrpoIpoSettings(CostSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    t: float = 20.0
    """Steepness of the barrier. The paper's 0.01 belongs to the published form below."""
    barrier: Literal["smooth", "published"] = "smooth"
    """"published": the penalty of the published code where the limit is violated, 0.0005 of it."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.t <= 0:
            raise ValueError(f"t is {self.t}: give a number above 0")


class TrpoIpo(Algorithm):
    name = "trpo_ipo"
    settings_class = TrpoIpoSettings
    settings: TrpoIpoSettings

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam, bootstrap_truncated=True)

    def improve(self, batch: Batch) -> Metrics:
        violation = (batch.J - self.settings.limits(self.spec.num_costs)).to(batch.advantage)
        changes = cost_surrogates(batch)

        def objective(policy: Candidate) -> Tensor:
            reward = (policy.ratio * batch.advantage).mean()
            for i, change in enumerate(changes):
                reward = reward - self.barrier(violation[i] + change(policy))
            return reward

        step = natural_step(self, batch, objective)
        for i, name in enumerate(self.spec.cost_names):
            step |= {f"constraint/{name}/violation": float(violation[i])}
            step |= {f"constraint/{name}/barrier": float(self.barrier(violation[i]))}
        return step | self.fit_critics(batch)

    def barrier(self, u: Tensor) -> Tensor:
        t = self.settings.t
        if self.settings.barrier == "published":
            return torch.where(u < 0, -torch.log((-u).clamp(min=1e-30)) / t, 0.0005 * u)
        edge = -1.0 / t**2
        inside = -torch.log((-u).clamp(min=-edge)) / t
        return torch.where(u <= edge, inside, t * u + (1.0 - math.log(1.0 / t**2)) / t)
