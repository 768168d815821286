"""TRPO-Lagrangian: a price on each cost, raised while its limit is violated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.steps import Candidate, natural_step


@dataclass(frozen=True)
class TrpoLagSettings(CostSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    multiplier_lr: float = 0.005
    """Rise of the multiplier for each unit of violation in an epoch."""
    multiplier_start: float = 0.0
    """The multiplier at the start."""
    multiplier_cap: float = float("inf")
    """The multiplier never exceeds this."""
    penalty_scale: float = 1.0
    """The k of TRPO-Lagrangian-{k}: weighs the penalty in the loss, not in the multiplier's rise."""


class TrpoLag(Algorithm):
    name = "trpo_lag"
    settings_class = TrpoLagSettings
    settings: TrpoLagSettings

    def build(self) -> None:
        self.multiplier = torch.full((self.spec.num_costs,), self.settings.multiplier_start)

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam, bootstrap_truncated=True)

    def improve(self, batch: Batch) -> Metrics:
        s = self.settings
        price = s.penalty_scale * self.multiplier.to(self.device)
        priced = batch.advantage - batch.cost_advantage @ price

        def objective(policy: Candidate) -> torch.Tensor:
            return (policy.ratio * priced).mean()

        step = natural_step(self, batch, objective)
        violation = (batch.J - s.limits(self.spec.num_costs)).float()
        self.multiplier = (self.multiplier + s.multiplier_lr * violation).clamp(
            0.0, s.multiplier_cap
        )
        for i, name in enumerate(self.spec.cost_names):
            step |= {
                f"constraint/{name}/violation": float(violation[i]),
                f"constraint/{name}/nu": float(self.multiplier[i]),
            }
        return step | self.fit_critics(batch)

    def extra_state(self) -> dict[str, Any]:
        return {"multiplier": self.multiplier}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.multiplier = state["multiplier"].cpu()
