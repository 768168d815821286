"""TRPO-USL, the unrolled safety layer (Zhang et al., 2022): actions descend a learned cost-to-go.

After a warm-up each action takes a few gradient steps on Q_C(s, a) while that exceeds the limit, and
never leaves the box. The policy learns from what it proposed: the layer is part of its world.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from statewise.algos.base import Algorithm, LimitSettings, Metrics
from statewise.algos.estimates import Batch
from statewise.algos.filters import Corrections
from statewise.algos.steps import Candidate, natural_step, reward_surrogate
from statewise.nets import mlp
from statewise.types import Step


@dataclass(frozen=True)
class TrpoUslSettings(LimitSettings):
    """`cost_limit` bounds the predicted cost-to-go of each action."""

    cost_gamma: float = 0.99
    """Discount of the cost-to-go."""
    warmup: float = 1 / 3
    """Share of the epochs in which the cost model is trained and corrects nothing."""
    margin: float = 0.01
    """Predicted cost-to-go above the limit that is left alone. At 0, as in the paper, every action
    is corrected, since the prediction is always positive."""
    correction_steps: int = 20
    """Most gradient steps on an action."""
    correction_rate: float = 0.05
    """Length of such a step, in its largest component."""
    penalty: float = 0.0
    """Weight κ of E[(Q_C(s, μ(s)) - limit - margin)+] in the policy's loss; the original method used
    5, the paper leaves it out."""


class TrpoUsl(Algorithm):
    name = "trpo_usl"
    settings_class = TrpoUslSettings
    settings: TrpoUslSettings

    def build(self) -> None:
        size = self.inputs + self.spec.action_size
        self.cost_to_go = mlp(size, self.settings.hidden, self.spec.num_costs, softplus=True).to(
            self.device
        )
        self.corrections = Corrections()

    def extra_modules(self) -> dict[str, nn.Module]:
        return {"cost_to_go": self.cost_to_go}

    @property
    def correcting(self) -> bool:
        return self.epoch >= self.settings.warmup * self.epochs

    def improve(self, batch: Batch) -> Metrics:
        reward = reward_surrogate(batch)

        def objective(policy: Candidate) -> Tensor:
            if self.settings.penalty == 0.0:
                return reward(policy)
            excess = self.excess(batch.inputs, policy.mean)
            return reward(policy) - self.settings.penalty * excess.mean()

        step = natural_step(self, batch, objective)
        fitted = self.fit_value(batch) | self.fit_cost_to_go(batch)
        return step | fitted | self.corrections.take()

    def excess(self, inputs: Tensor, action: Tensor) -> Tensor:
        """`[B]` sum over constraints of (Q_C - limit)+"""
        predicted = self.cost_to_go(torch.cat([inputs, action], dim=1))
        return (predicted - self.limit - self.settings.margin).clamp(min=0.0).sum(dim=1)

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        if not self.correcting:
            return action
        with torch.enable_grad():
            executed = self.descend(inputs, action)
        self.corrections.add(action, executed)
        return executed

    def descend(self, inputs: Tensor, action: Tensor) -> Tensor:
        """Gradient steps on the actions `[B, a]` whose predicted cost exceeds the limit."""
        executed = action.clamp(-1.0, 1.0)
        for _ in range(self.settings.correction_steps):
            at = executed.detach().requires_grad_()
            excess = self.excess(inputs, at)
            unsafe = excess.detach() > 0
            if not unsafe.is_cuda and not bool(unsafe.any()):  # a GPU would be waited for
                break
            (slope,) = torch.autograd.grad(excess.sum(), at)
            unit = slope / slope.abs().amax(dim=1, keepdim=True).clamp(min=1e-12)
            lower = (executed - self.settings.correction_rate * unit).clamp(-1.0, 1.0)
            executed = torch.where(unsafe.unsqueeze(1), lower, executed)
        return executed

    def fit_cost_to_go(self, batch: Batch) -> Metrics:
        """Regress Q_C on c + γ Q_C(next), the next action being the one that was executed."""
        rollout, gamma = batch.rollout, self.settings.cost_gamma
        with torch.no_grad():
            done = rollout.executed.flatten(0, 1).clamp(-1.0, 1.0)
            here = torch.cat([batch.inputs, done], dim=1)
            ahead = self.cost_to_go(here).view_as(rollout.cost)
            after = self.observe(rollout.next_obs, rollout.cost_max)
            # Where the next action is not in the rollout, the policy's mean stands in for it.
            proposed = torch.cat([after, self.policy(after).clamp(-1.0, 1.0)], dim=-1)
            ahead = torch.cat([ahead[1:], self.cost_to_go(proposed[-1:])])
            ahead = torch.where(
                rollout.truncated.unsqueeze(-1), self.cost_to_go(proposed), ahead
            ).masked_fill(rollout.terminated.unsqueeze(-1), 0.0)
        return self.fit(here, {"cost_to_go": (rollout.cost + gamma * ahead).flatten(0, 1)})
