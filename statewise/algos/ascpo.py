"""ASCPO, Absolute State-wise Constrained Policy Optimization (Zhao et al., 2024), as published.

SCPO bounds the mean of the largest cost; ASCPO bounds its mean plus k times its variance. The published
code does so in the surrogate by two terms: a mean of variances over states, and a variance of means,
with ω₁ and ω₂ in place of quantities that cannot be measured. Two things in it do not do what they are
meant to, and both are switches here: the second term has no gradient, and the violation is that of the
mean alone. `--constraint-kind deviation` bounds mean plus deviations exactly.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import Candidate, ConstrainedAlgorithm, Objective, surrogates
from statewise.algos.shared_settings import ConstrainedSettings
from statewise.core.mmdp import Kind
from statewise.settings import number


@dataclass(frozen=True)
class AscpoSettings(ConstrainedSettings):
    """`cost_limit` is w: the mean of the largest cost of an episode plus k times its variance."""

    constraint_kind: tuple[Kind, ...] = ("maximum",)
    """What each constraint bounds; its variance is added. Other kinds than maximum are not published."""
    k: float = number(7.0, least=0, finite=True)
    """Weight of the variance. The published code has 7."""
    omega_1: float = number(0.005, least=0, finite=True)
    """Stands for the largest density of start states; published: 0.005."""
    omega_2: float = number(0.007, least=0, finite=True)
    """Stands for the largest of an advantage's bounds; published: 0.007."""
    mean_has_gradient: bool = False
    """Let the variance of means depend on the policy. In the published code it does not: off."""
    variance_in_violation: bool = False
    """Add k times the measured variance of the largest cost to the violation. In the published code the
    violation is that of the mean: off. It needs `cost_feedback` 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.variance_in_violation:
            self._without_feedback("variance_in_violation", True)


class Ascpo(ConstrainedAlgorithm):
    name = "ascpo"
    title = "ASCPO"
    settings_class = AscpoSettings
    settings: AscpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        reward, *costs = surrogates(batch)
        absolute = [self.with_variance(batch, cost, i) for i, cost in enumerate(costs)]
        step = self.policy_step(batch, [reward, *absolute])
        variance = self.variance(batch)
        violation = self.settings.violation(batch.J)
        if self.settings.variance_in_violation:
            violation = violation + self.settings.k * variance
        taken = self.constrained_step(step, violation)
        return taken | self.by_constraint(variance=variance) | self.fit_critics(batch)

    def with_variance(self, batch: Batch, cost: Objective, i: int) -> Objective:
        """The surrogate of constraint i, and k times the published bound of its variance."""
        s, advantage = self.settings, batch.cost_advantage[:, i]
        scale, mean_value = len(advantage) / batch.episodes, batch.cost_target[:, i].mean().abs()

        def total(policy: Candidate) -> Tensor:
            rho = policy.ratio
            spread = ((rho - 1.0) * advantage.square() + 2.0 * rho * advantage * s.omega_2).abs()
            of_means = (rho * advantage).mean() * scale
            if not s.mean_has_gradient:
                of_means = of_means.detach()
            means = (of_means.square() + 2.0 * of_means.abs() * mean_value).abs()
            return cost(policy) + s.k * s.omega_1 * (spread.mean() * scale + means)

        return total

    def variance(self, batch: Batch) -> Tensor:
        """[m] float64: of the largest cost over the episodes that ended in the batch"""
        rollout = batch.rollout
        largest = rollout.cost_max[rollout.ended].double().cpu()
        return largest.var(dim=0, correction=0) if len(largest) else torch.zeros_like(batch.J)
