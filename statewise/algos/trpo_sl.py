"""TRPO-SL, the safety layer (Dalal et al., 2018): actions are moved to where a cost model is safe.

The model says how an action changes the cost: c_t ≈ c_{t-1} + h(s)·a. After a warm-up in which it is
only trained, each action is replaced by the nearest one in the box that the model calls safe. The policy
learns from what it proposed: the layer is part of its world.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from statewise.algos.base import Algorithm, LimitSettings, Metrics
from statewise.algos.estimates import Batch
from statewise.algos.filters import Corrections
from statewise.algos.steps import natural_step, reward_surrogate
from statewise.core.projection import project_safe_box
from statewise.nets import ActionSlope
from statewise.types import Step


@dataclass(frozen=True)
class TrpoSlSettings(LimitSettings):
    """`cost_limit` bounds the predicted cost of each step."""

    warmup: float = 1 / 3
    """Share of the epochs in which the cost model is trained and corrects nothing."""
    margin: float = 0.0
    """Predicted cost above the limit that is still left alone. At 0, as in the paper, every action
    that the model sees raising a zero cost is corrected: about half of them."""


class TrpoSl(Algorithm):
    name = "trpo_sl"
    settings_class = TrpoSlSettings
    settings: TrpoSlSettings

    @property
    def acts_on_cost(self) -> bool:
        return True

    def build(self) -> None:
        self.cost_model = ActionSlope(
            self.inputs, self.spec.action_size, self.spec.num_costs, self.settings.hidden
        ).to(self.device)
        self.corrections = Corrections()

    def extra_modules(self) -> dict[str, nn.Module]:
        return {"cost_model": self.cost_model}

    @property
    def correcting(self) -> bool:
        return self.epoch >= self.settings.warmup * self.epochs

    def improve(self, batch: Batch) -> Metrics:
        step = natural_step(self, batch, reward_surrogate(batch))
        fitted = self.fit_value(batch) | self.fit_cost_model(batch)
        return step | fitted | self.corrections.take()

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        if not self.correcting:
            return action
        last_cost = step.cost.masked_fill(step.ended.unsqueeze(-1), 0.0)
        offset = last_cost - self.limit - self.settings.margin
        slopes = self.cost_model.slopes(inputs)
        possible = action.clamp(-1.0, 1.0)  # what the environment would make of it
        predicted = offset + (slopes @ possible.unsqueeze(-1)).squeeze(-1)
        unsafe = (predicted > 0).any(dim=1, keepdim=True)
        safe, _ = project_safe_box(action, slopes, offset)
        executed = torch.where(unsafe, safe, action)
        self.corrections.add(action, executed)
        return executed

    def fit_cost_model(self, batch: Batch) -> Metrics:
        """Regress c_t - c_{t-1} on the executed action; zero costs brought down to the others."""
        rollout = batch.rollout
        cost, executed = rollout.cost.flatten(0, 1), rollout.executed.flatten(0, 1).clamp(-1, 1)
        change = cost - rollout.last_cost.flatten(0, 1)
        positive, zero = (cost > 0).any(1).nonzero()[:, 0], (cost == 0).all(1).nonzero()[:, 0]
        if len(positive) == 0:
            return {"critic/cost_model_loss": 0.0}  # nothing to learn from, and much to unlearn
        pools = (positive, zero) if 0 < len(positive) < len(zero) else ()
        pairs = torch.cat([batch.inputs, executed], dim=1)
        return self.fit(pairs, {"cost_model": change}, pools)
