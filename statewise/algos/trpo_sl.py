"""TRPO-SL, the safety layer (Dalal et al., 2018): actions are moved to where a cost model is safe.

The model predicts how an action changes the cost: c_t ≈ c_{t-1} + h(s)·a. After a warm-up in which it
is only trained, each action is replaced by the nearest one in the box that the model calls safe.
"""

import math
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import (
    Objective,
    TrustRegionAlgorithm,
    surrogate,
)
from statewise.algos.shared_settings import LimitSettings, TrustRegionSettings
from statewise.core.projection import project_safe_box
from statewise.nets import ActionSlope
from statewise.settings import number
from statewise.types import Step


@dataclass(frozen=True)
class SafetyLayerSettings(LimitSettings, TrustRegionSettings):
    """Shared by the two safety layers."""

    warmup: float = number(1 / 3, least=0, most=1)
    """Share of the epochs in which the cost model is trained and corrects nothing."""


class SafetyLayer(TrustRegionAlgorithm):
    """Trains a model of the cost beside the policy, and after a warm-up corrects actions with it.

    The policy learns from what it proposed: the layer is part of its world.
    """

    settings: SafetyLayerSettings

    def build(self) -> dict[str, nn.Module]:
        self.tally: list[float | Tensor] = [0.0, 0.0, 0.0]
        """Actions of this epoch, how many were changed, and by what distance in all."""
        return {}

    def objective(self, batch: Batch) -> Objective:
        return surrogate(batch.advantage)

    def fit_model(self, batch: Batch) -> Metrics:
        """Fit the model of the cost."""
        raise NotImplementedError

    def make_safe(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        """Actions `[B, a]` that the model calls safe."""
        raise NotImplementedError

    @property
    def correcting(self) -> bool:
        return self.epoch >= self.settings.warmup * self.epochs

    @property
    def scheduled(self) -> tuple[str, ...]:
        return super().scheduled + (("warmup",) if self.settings.warmup else ())

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        if not self.correcting:
            return action
        executed = self.make_safe(step, inputs, action)
        # Compared with what the environment would make of the action: clipping is no correction.
        moved = (executed.clamp(-1.0, 1.0) - action.clamp(-1.0, 1.0)).norm(dim=1)
        new = (len(moved), (moved > 0).sum(), moved.sum())  # still on the GPU: nothing waits for it
        self.tally = [x + y for x, y in zip(self.tally, new, strict=True)]
        return executed

    def update_networks(self, batch: Batch) -> Metrics:
        step = self.natural_step(batch, self.objective(batch))
        acted, changed, distance = (float(x) for x in self.tally)
        self.tally = [0.0, 0.0, 0.0]
        step["safety_layer/rate"] = changed / max(acted, 1.0)
        step["safety_layer/size"] = distance / max(changed, 1.0)
        return step | self.fit_value(batch) | self.fit_model(batch)


@dataclass(frozen=True)
class TrpoSlSettings(SafetyLayerSettings):
    """`cost_limit` bounds the predicted cost of each step."""

    signal: Literal["cost", "clearance"] = "cost"
    """What the model predicts: the cost, as published, or the negative clearance. A cost is 0 until the
    constraint is broken, so that it gives no warning. The limit is then one on negative clearance."""
    slack: float = number(0.0)
    """Predicted cost above the limit that is still left alone. At 0, as in the paper, the layer corrects
    every action that the model predicts to raise a zero cost: about half of them. With clearances a
    negative one keeps a distance."""


class TrpoSl(SafetyLayer):
    name = "trpo_sl"
    title = "TRPO-SL"
    settings_class = TrpoSlSettings
    settings: TrpoSlSettings

    @property
    def acts_on_cost(self) -> bool:
        return True

    def build(self) -> dict[str, nn.Module]:
        sizes = self.inputs, self.spec.action_size, self.spec.num_costs
        self.cost_model = ActionSlope(*sizes, self.settings.hidden)
        return super().build() | {"cost_model": self.cost_model}

    def make_safe(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        level = step.cost if self.settings.signal == "cost" else -step.clearance
        new = step.ended.unsqueeze(-1)  # a new episode: no cost yet, and no clearance is known
        level = level.masked_fill(new, 0.0 if self.settings.signal == "cost" else -math.inf)
        offset = (level - self.limit - self.settings.slack).clamp(min=-1e6)
        slopes = self.cost_model.slopes(inputs)
        possible = action.clamp(-1.0, 1.0)  # what the environment would make of it
        predicted = offset + (slopes @ possible.unsqueeze(-1)).squeeze(-1)
        unsafe = (predicted > 0).any(dim=1, keepdim=True)
        safe, _ = project_safe_box(action, slopes, offset)
        return torch.where(unsafe, safe, action)

    def fit_model(self, batch: Batch) -> Metrics:
        """Fit how the executed action changes the signal."""
        rollout = batch.rollout
        executed = rollout.executed.flatten(0, 1).clamp(-1, 1)
        pairs = torch.cat([batch.inputs, executed], dim=1)
        if self.settings.signal == "clearance":
            change = torch.zeros_like(rollout.clearance)
            change[1:] = rollout.clearance[:-1] - rollout.clearance[1:]
            known = ~rollout.ended[:-1].flatten()  # the row before is of the same episode
            rows = known.nonzero()[:, 0] + rollout.reward.shape[1]
            return self.critics.fit(pairs, {"cost_model": change.flatten(0, 1)}, (rows,))
        cost = rollout.cost.flatten(0, 1)
        change = cost - rollout.last_cost.flatten(0, 1)
        # As many zero costs as others.
        positive, zero = (cost > 0).any(1).nonzero()[:, 0], (cost == 0).all(1).nonzero()[:, 0]
        if len(positive) == 0:
            return {"critic/cost_model_loss": 0.0}  # nothing to learn from, and much to unlearn
        pools = (positive, zero) if 0 < len(positive) < len(zero) else ()
        return self.critics.fit(pairs, {"cost_model": change}, pools)
