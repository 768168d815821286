"""TRPO-Lagrangian: a price on each cost, raised while its limit is violated."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import TrustRegionAlgorithm, surrogate
from statewise.algos.shared_settings import CostSettings, TrustRegionSettings
from statewise.settings import number


@dataclass(frozen=True)
class TrpoLagSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    multiplier_lr: float = number(0.005, least=0)
    """Rise of the multiplier for each unit of violation in an epoch."""
    multiplier_start: float = number(0.0, least=0)
    """The multiplier at the start."""
    multiplier_cap: float = number(float("inf"), least=0)
    """The multiplier never exceeds this."""
    penalty_scale: float = number(1.0, least=0)
    """The k of TRPO-Lagrangian-{k}: weighs the penalty in the loss, not in the multiplier's rise."""


class TrpoLag(TrustRegionAlgorithm):
    name = "trpo_lag"
    title = "TRPO-Lagrangian"
    settings_class = TrpoLagSettings
    settings: TrpoLagSettings

    def build(self) -> dict[str, nn.Module]:
        self.multiplier = torch.full((self.spec.num_costs,), self.settings.multiplier_start)
        return {}

    def update_networks(self, batch: Batch) -> Metrics:
        s = self.settings
        price = s.penalty_scale * self.multiplier.to(self.device)
        priced = batch.advantage - batch.cost_advantage @ price
        step = self.natural_step(batch, surrogate(priced))
        violation = s.violation(batch.J).float()
        raised = self.multiplier + s.multiplier_lr * violation
        self.multiplier = raised.clamp(0.0, s.multiplier_cap)
        step |= self.by_constraint(violation=violation, nu=self.multiplier)
        return step | self.fit_critics(batch)

    def extra_state(self) -> dict[str, Any]:
        return {"multiplier": self.multiplier}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.multiplier = state["multiplier"].cpu()
