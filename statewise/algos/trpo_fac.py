"""TRPO-FAC (Ma et al., 2021): a price on cost in every state, learned by a network.

The multiplier λ(s) rises where the cost-to-go exceeds the limit, so that it is large where no policy
is safe.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.critics import all_finite, memory, restore
from statewise.algos.policy_step import TrustRegionAlgorithm, surrogate
from statewise.algos.shared_settings import CostSettings, TrustRegionSettings
from statewise.nets import mlp
from statewise.settings import number


@dataclass(frozen=True)
class TrpoFacSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the discounted cost-to-go of each state."""

    multiplier_lr: float = number(1e-4, least=0)
    """Learning rate of the multiplier network."""
    multiplier_iterations: int = number(1, least=0)
    """Adam steps on the multiplier network in an epoch."""
    multiplier_cap: float = number(float("inf"), least=0)
    """The multiplier never exceeds this."""
    cost_to_go: Literal["sampled", "critic"] = "sampled"
    """Where the multiplier reads a state's cost-to-go: the rollout, or the cost critic."""


class TrpoFac(TrustRegionAlgorithm):
    name = "trpo_fac"
    title = "TRPO-FAC"
    settings_class = TrpoFacSettings
    settings: TrpoFacSettings

    def build(self) -> dict[str, nn.Module]:
        hidden, outputs = self.settings.hidden, self.spec.num_costs
        self.multiplier = mlp(self.inputs, hidden, outputs, softplus=True)
        return {"multiplier": self.multiplier}

    def learning_rate(self, name: str) -> float:
        return self.settings.multiplier_lr if name == "multiplier" else self.settings.critic_lr

    def update_networks(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            price = self.multiplier(batch.inputs).clamp(max=self.settings.multiplier_cap)
        priced = batch.advantage - (price * batch.cost_advantage).sum(dim=1)
        step = self.natural_step(batch, surrogate(priced))
        metrics = step | self.raise_prices(batch)
        metrics |= {"multiplier/mean": float(price.mean()), "multiplier/max": float(price.max())}
        return metrics | self.fit_critics(batch)

    def raise_prices(self, batch: Batch) -> Metrics:
        """Ascend E[λ(s) (cost-to-go(s) - limit)]."""
        s, optimizer = self.settings, self.critics.optimizers["multiplier"]
        critic = self.cost_value if s.cost_to_go == "critic" else None
        with torch.no_grad():
            violation = (critic(batch.inputs) if critic else batch.cost_target) - self.limit
        saved = [x.clone() for x in memory(self.multiplier, optimizer)]
        loss = torch.zeros(())
        for _ in range(s.multiplier_iterations):
            loss = -(self.multiplier(batch.inputs) * violation).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not all_finite(self.multiplier):
            self.critics.undone += 1
            restore(self.multiplier, optimizer, saved)
        return {"critic/multiplier_loss": float(loss.detach())}
