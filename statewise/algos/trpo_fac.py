"""TRPO-FAC (Ma et al., 2021): a price on cost in every state, learned by a network.

The multiplier λ(s) rises where the cost-to-go exceeds the limit, so that it is large where no policy
is safe.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.steps import Candidate, natural_step
from statewise.nets import mlp


@dataclass(frozen=True)
class TrpoFacSettings(CostSettings):
    """`cost_limit` bounds the discounted cost-to-go of each state."""

    multiplier_lr: float = 1e-4
    """Learning rate of the multiplier network."""
    multiplier_iterations: int = 1
    """Adam steps on the multiplier network in an epoch."""
    multiplier_cap: float = float("inf")
    """The multiplier never exceeds this."""
    cost_to_go: Literal["sampled", "critic"] = "sampled"
    """Where the multiplier reads a state's cost-to-go: the rollout, or the cost critic."""


class TrpoFac(Algorithm):
    name = "trpo_fac"
    settings_class = TrpoFacSettings
    settings: TrpoFacSettings

    def build(self) -> None:
        self.multiplier = mlp(
            self.inputs, self.settings.hidden, self.spec.num_costs, softplus=True
        ).to(self.device)

    def extra_modules(self) -> dict[str, nn.Module]:
        return {"multiplier": self.multiplier}

    def learning_rate(self, name: str) -> float:
        return self.settings.multiplier_lr if name == "multiplier" else self.settings.critic_lr

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam, bootstrap_truncated=True)

    def improve(self, batch: Batch) -> Metrics:
        with torch.no_grad():
            price = self.multiplier(batch.inputs).clamp(max=self.settings.multiplier_cap)
        priced = batch.advantage - (price * batch.cost_advantage).sum(dim=1)

        def objective(policy: Candidate) -> torch.Tensor:
            return (policy.ratio * priced).mean()

        step = natural_step(self, batch, objective)
        metrics = step | self.raise_prices(batch)
        metrics |= {"multiplier/mean": float(price.mean()), "multiplier/max": float(price.max())}
        return metrics | self.fit_critics(batch)

    def raise_prices(self, batch: Batch) -> Metrics:
        """Ascend E[λ(s) (cost-to-go(s) - limit)]."""
        s, optimizer = self.settings, self.optimizers["multiplier"]
        ahead = batch.cost_target
        if s.cost_to_go == "critic" and self.cost_value is not None:
            with torch.no_grad():
                ahead = self.cost_value(batch.inputs)
        violation = ahead - self.limit
        saved = copy.deepcopy((self.multiplier.state_dict(), optimizer.state_dict()))
        loss = torch.zeros(())
        for _ in range(s.multiplier_iterations):
            loss = -(self.multiplier(batch.inputs) * violation).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if not all(bool(torch.isfinite(p).all()) for p in self.multiplier.parameters()):
            self.skipped += 1
            self.multiplier.load_state_dict(saved[0])
            optimizer.load_state_dict(saved[1])
        return {"critic/multiplier_loss": float(loss.detach())}
