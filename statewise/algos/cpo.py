"""CPO, Constrained Policy Optimization (Achiam et al., 2017): bounds the sum of costs.

Violation and surrogate are both per episode; dividing both by the mean length, as the original does,
leaves the step unchanged. As there, J_C is undiscounted and its gradient uses discounted advantages.
"""

from __future__ import annotations

from dataclasses import dataclass

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.steps import constrained_step, cost_surrogates, reward_surrogate
from statewise.core.line_search import RewardTest


@dataclass(frozen=True)
class CpoSettings(CostSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    recovery_fraction: float = 1.0
    """Most of the decrease within the trust region that a violated constraint may ask for."""
    reward_test: RewardTest = "reference"
    """When a step may lower the reward: "paper" if no step is feasible, "reference" (the published
    code) while a limit is violated, not at all with "always" (test), at any time with "never"."""
    cost_reduction: float = 0.0
    """Decrease of the surrogate cost that a violated constraint must see to accept a step."""


class Cpo(Algorithm):
    name = "cpo"
    settings_class = CpoSettings
    settings: CpoSettings

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam, bootstrap_truncated=True)

    def improve(self, batch: Batch) -> Metrics:
        s = self.settings
        step = constrained_step(
            self,
            batch,
            [reward_surrogate(batch), *cost_surrogates(batch)],
            (batch.J - s.limits(self.spec.num_costs)).tolist(),
            recovery_fraction=s.recovery_fraction,
            reward_test=s.reward_test,
            cost_reduction=s.cost_reduction,
        )
        return step | self.fit_critics(batch)
