"""TRPO-USL, the unrolled safety layer (Zhang et al., 2022): actions descend a learned cost-to-go.

After a warm-up each action takes a few gradient steps on Q_C(s, a) while that exceeds the limit, and
never leaves the box.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import Candidate, Objective, surrogate
from statewise.algos.trpo_sl import SafetyLayer, SafetyLayerSettings
from statewise.nets import mlp
from statewise.settings import number
from statewise.types import Step


@dataclass(frozen=True)
class TrpoUslSettings(SafetyLayerSettings):
    """`cost_limit` bounds the predicted cost-to-go of each action."""

    cost_gamma: float = number(0.99, least=0, most=1)
    """Discount of the cost-to-go."""
    slack: float = number(0.01, least=0)
    """Predicted cost-to-go above the limit that is left alone. At 0, as in the paper, every action
    is corrected, since the prediction is always positive."""
    correction_steps: int = number(20, least=0)
    """Most gradient steps on an action."""
    correction_rate: float = number(0.05, least=0)
    """Length of such a step, in its largest component."""
    penalty: float = number(0.0, least=0)
    """Weight κ of E[(Q_C(s, μ(s)) - limit - slack)+] in the policy's loss; the original method used
    5, the paper leaves it out."""


class TrpoUsl(SafetyLayer):
    name = "trpo_usl"
    title = "TRPO-USL"
    settings_class = TrpoUslSettings
    settings: TrpoUslSettings

    def build(self) -> dict[str, nn.Module]:
        size, outputs = self.inputs + self.spec.action_size, self.spec.num_costs
        self.cost_to_go = mlp(size, self.settings.hidden, outputs, softplus=True)
        return super().build() | {"cost_to_go": self.cost_to_go}

    def objective(self, batch: Batch) -> Objective:
        reward, penalty = surrogate(batch.advantage), self.settings.penalty

        def priced(policy: Candidate) -> Tensor:
            return reward(policy) - penalty * self.excess(batch.inputs, policy.mean).mean()

        return priced if penalty else reward

    def excess(self, inputs: Tensor, action: Tensor) -> Tensor:
        """`[B]` sum over constraints of (Q_C - limit)+"""
        predicted = self.cost_to_go(torch.cat([inputs, action], dim=1))
        return (predicted - self.limit - self.settings.slack).clamp(min=0.0).sum(dim=1)

    @torch.enable_grad()
    def make_safe(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        """Take gradient steps on the actions whose predicted cost exceeds the limit."""
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

    def fit_model(self, batch: Batch) -> Metrics:
        """Fit Q_C to c + γ Q_C(next), the next action being the one that was executed."""
        rollout, gamma = batch.rollout, self.settings.cost_gamma
        with torch.no_grad():
            done = rollout.executed.flatten(0, 1).clamp(-1.0, 1.0)
            here = torch.cat([batch.inputs, done], dim=1)
            ahead = self.cost_to_go(here).view_as(rollout.cost)
            after = self.observe(rollout.next_obs, rollout.cost_max)
            # Where the next action is not in the rollout, the policy's mean stands in for it.
            proposed = torch.cat([after, self.policy(after).clamp(-1.0, 1.0)], dim=-1)
            ahead = torch.cat([ahead[1:], self.cost_to_go(proposed[-1:])])
            truncated, terminated = rollout.truncated[..., None], rollout.terminated[..., None]
            ahead = torch.where(truncated, self.cost_to_go(proposed), ahead)
            ahead = ahead.masked_fill(terminated, 0.0)
        return self.critics.fit(here, {"cost_to_go": (rollout.cost + gamma * ahead).flatten(0, 1)})
