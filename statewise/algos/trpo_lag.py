"""TRPO-Lagrangian: a price on each cost, raised while its limit is violated."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import TrustRegionAlgorithm, surrogate
from statewise.algos.shared_settings import CostSettings, TrustRegionSettings
from statewise.settings import number


@dataclass(frozen=True)
class TrpoLagSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    multiplier_lr: float = number(0.005, least=0)
    """Increase of the multiplier for each unit of violation in an epoch (integral part of a PID)."""
    multiplier_proportional: float = number(0.0, least=0)
    """Added to the multiplier for each unit of violation of this epoch."""
    multiplier_derivative: float = number(0.0, least=0)
    """Added to the multiplier for each unit by which the cost rose since the last epoch."""
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
        """[m] the integral part of the price"""
        self.last_cost: Tensor | None = None
        """[m] of the epoch before"""
        return {}

    def update_networks(self, batch: Batch) -> Metrics:
        s = self.settings
        violation = s.violation(batch.J).float()
        price = self.price(batch.J.float(), violation)
        priced = batch.advantage - batch.cost_advantage @ (s.penalty_scale * price).to(self.device)
        step = self.natural_step(batch, surrogate(priced))
        raised = self.multiplier + s.multiplier_lr * violation
        self.multiplier = raised.clamp(0.0, s.multiplier_cap)
        step |= self.by_constraint(violation=violation, nu=self.multiplier, price=price)
        return step | self.fit_critics(batch)

    def price(self, cost: Tensor, violation: Tensor) -> Tensor:
        """[m] what a unit of cost weighs against the reward: the multiplier, and the other two parts."""
        s, last = self.settings, self.last_cost
        rise = torch.zeros_like(cost) if last is None else (cost - last).clamp(min=0.0)
        self.last_cost = cost
        added = s.multiplier_proportional * violation + s.multiplier_derivative * rise
        return (self.multiplier + added).clamp(0.0, s.multiplier_cap)

    def extra_state(self) -> dict[str, Any]:
        return {"multiplier": self.multiplier, "last_cost": self.last_cost}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.multiplier, last = state["multiplier"].cpu(), state["last_cost"]
        self.last_cost = None if last is None else last.cpu()
