"""CPO, Constrained Policy Optimization (Achiam et al., 2017): bounds the sum of costs.

Violation and surrogate are both per episode; dividing both by the mean length, as the original does,
leaves the step unchanged. As there, J_C is undiscounted and its gradient uses discounted advantages.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from statewise.algos.base import CostSettings, Metrics
from statewise.algos.estimates import Batch
from statewise.algos.policy_step import (
    PolicyStep,
    TrustRegionAlgorithm,
    TrustRegionSettings,
    surrogates,
)
from statewise.core import line_search, trust_region
from statewise.core.line_search import RewardTest
from statewise.settings import number


@dataclass(frozen=True)
class CpoSettings(CostSettings, TrustRegionSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    recovery_fraction: float = number(1.0, least=0, most=1)
    """Most of the decrease within the trust region that a violated constraint may ask for."""
    reward_test: RewardTest = "reference"
    """When a step may lower the reward: "paper" if no step is feasible, "reference" (the published
    code) while a limit is violated, not at all with "always" (test), at any time with "never"."""
    cost_reduction: float = number(0.0, least=0)
    """Decrease of the surrogate cost that a violated constraint must see to accept a step."""


class Cpo(TrustRegionAlgorithm):
    name = "cpo"
    title = "CPO"
    settings_class = CpoSettings
    settings: CpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        step = self.policy_step(batch, surrogates(batch))
        c, share = self.settings.violation(batch.J).tolist(), self.settings.recovery_fraction
        asked = trust_region.limit_request(c, step.S, self.target_kl, share)
        return self.constrained_step(step, c, asked, c) | self.fit_critics(batch)

    def constrained_step(
        self, step: PolicyStep, c: Sequence[float], asked: np.ndarray, aim: Sequence[float]
    ) -> Metrics:
        """Raise the reward objective with every cost objective within its limit.

        c: by how much each constraint is violated, in units of its objective. asked: the decrease that
        each asks the step for. aim: the violation that the line search tests candidates against.
        """
        s, q, r, S, delta = self.settings, step.q, step.r, step.S, self.target_kl
        scale = [ceiling or 1.0 for ceiling in self.spec.cost_ceiling]
        plan = trust_region.solve(q, r, S, asked, delta, scale)
        test = line_search.trust_region_test(
            delta, aim, feasible=plan.feasible,
            reward_test=s.reward_test, cost_reduction=s.cost_reduction,
        )  # fmt: skip
        search = step.follow(plan, test)
        metrics, rescued = step.metrics(search), False
        if not search.accepted and step.finite and max(c) > 0 and s.reward_test != "always":
            # No part of the step will do: lower the violated costs, whatever it does to the reward.
            rescue = trust_region.recover(q, r, S, c, delta, scale)
            search = step.follow(rescue, line_search.trust_region_test(delta, c, feasible=False))
            again = step.metrics(search).items()
            metrics |= {k: v for k, v in again if not k.startswith("policy/rejected")}
            rescued = search.accepted
        metrics |= {"policy/case": float(plan.case), "policy/rescued": float(rescued)}
        metrics |= {"policy/q": q, "policy/lambda": plan.lam, "policy/alpha": plan.alpha}
        taken = search.measurement.cost_change if search.accepted and search.measurement else ()
        for i, name in enumerate(self.spec.cost_names):
            for j, other in enumerate(self.spec.cost_names[:i]):
                metrics[f"constraint/{name}/s/{other}"] = float(S[i, j])
        return metrics | self.by_constraint(
            violation=c, requested=asked, change=taken or [0.0] * len(c), r=r, s=S.diagonal(),
            change_planned=plan.cost_change, nu=plan.nu, beta=plan.beta,
        )  # fmt: skip
