"""PCPO, Projection-based CPO (Yang et al., 2020): a reward step, then the nearest safe one."""

from dataclasses import dataclass
from typing import Literal

import torch

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import ConstrainedAlgorithm, surrogates
from statewise.algos.shared_settings import ConstrainedSettings
from statewise.core import line_search
from statewise.core.projection import projected_step


@dataclass(frozen=True)
class PcpoSettings(ConstrainedSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes, unless
    `constraint_kind` says otherwise."""

    projection: Literal["kl", "l2"] = "kl"
    """What "nearest" means: in KL divergence, or in the parameters."""
    keep_region: bool = True
    """Shorten a step that leaves the trust region. The paper does not."""


class Pcpo(ConstrainedAlgorithm):
    name = "pcpo"
    title = "PCPO"
    settings_class = PcpoSettings
    settings: PcpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        s = self.settings
        step = self.policy_step(batch, surrogates(batch))
        violation, costs = s.violation(batch.J), step.gradients[1:]
        request = self.request(step, violation)
        asked = request.decrease
        kl = s.projection == "kl"
        gram = step.S if kl else (costs.double() @ costs.double().T).cpu()
        plan = projected_step(step.q, step.r, asked, gram, self.target_kl)
        beta = torch.tensor(plan.beta, dtype=costs.dtype, device=costs.device)
        direction = plan.eta * step.natural[0] - beta @ (step.natural[1:] if kl else costs)

        region = self.target_kl if s.keep_region else float("inf")
        test = line_search.trust_region_test(region, reward_test="never")
        search = step.search(direction, lambda m: test(line_search.Measurement(m.kl, 0.0)))
        metrics = step.metrics(search) | {"policy/feasible": float(plan.feasible)}
        metrics |= self.requested(request, violation) | self.by_constraint(beta=plan.beta)
        return metrics | self.fit_critics(batch)
