"""PCPO, Projection-based CPO (Yang et al., 2020): a reward step, then the nearest safe one."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.steps import PolicyStep, cost_surrogates, reward_surrogate
from statewise.core import line_search
from statewise.core.projection import projected_step


@dataclass(frozen=True)
class PcpoSettings(CostSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes."""

    projection: Literal["kl", "l2"] = "kl"
    """What "nearest" means: in KL divergence, or in the parameters."""
    keep_region: bool = True
    """Shorten a step that leaves the trust region; off takes it as it is, as the paper does."""


class Pcpo(Algorithm):
    name = "pcpo"
    settings_class = PcpoSettings
    settings: PcpoSettings

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("cost", s.cost_gamma, s.cost_lam, bootstrap_truncated=True)

    def improve(self, batch: Batch) -> Metrics:
        s = self.settings
        step = PolicyStep(self, batch, [reward_surrogate(batch), *cost_surrogates(batch)])
        violation = batch.J - s.limits(self.spec.num_costs)
        costs = step.gradients[1:]
        kl = s.projection == "kl"
        gram = step.gram[1:, 1:] if kl else (costs.double() @ costs.double().T).cpu()
        plan = projected_step(
            float(step.gram[0, 0]), step.gram[1:, 0], violation, gram, self.target_kl
        )
        beta = torch.tensor(plan.beta, dtype=costs.dtype, device=costs.device)
        direction = plan.eta * step.natural[0] - beta @ (step.natural[1:] if kl else costs)

        region = self.target_kl if s.keep_region else float("inf")
        test = line_search.trust_region_test(region, reward_test="never")
        search = step.search(direction, lambda m: test(line_search.Measurement(m.kl, 0.0)))
        metrics = step.metrics(search) | {"policy/feasible": float(plan.feasible)}
        for i, name in enumerate(self.spec.cost_names):
            metrics |= {
                f"constraint/{name}/violation": float(violation[i]),
                f"constraint/{name}/beta": plan.beta[i],
            }
        return metrics | self.fit_critics(batch)
