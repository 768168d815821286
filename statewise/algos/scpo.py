"""SCPO, State-wise Constrained Policy Optimization (Zhao et al., 2023): the paper's method.

The running maximum M of each cost joins the state, so that its increments D sum to the largest cost
of the episode. J_D = E[Σ D] is then bounded by a limit w, as CPO bounds a sum of costs.

Departures from the paper: `docs/algorithms/scpo.md` lists them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import torch
from torch import Tensor

from statewise.algos.base import Algorithm, CostSettings, Metrics
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.evidence import Evidence
from statewise.algos.steps import (
    Reliability,
    constrained_step,
    cost_surrogates,
    reward_surrogate,
)
from statewise.core.line_search import RewardTest
from statewise.core.mmdp import state_wise_penalty
from statewise.types import Rollout


@dataclass(frozen=True)
class ScpoSettings(CostSettings):
    """`cost_limit` is w: the largest cost of an episode, on average over episodes."""

    policy_sees_maximum: bool = True
    """Whether the policy reads the running maximum M too, or only the critics do. One that does not needs
    no costs to be measured where it is used; but what it does cannot depend on what was met before."""
    cost_gamma: float = 1.0
    """Discount of the increments; 1 makes their sum the maximum."""
    cost_lam: float = 0.8
    """Decay of the advantage estimate of the increments. The paper's table says 0.97 and its code
    ran 0.95; increments are so rare that at either the gradient is nearly all noise."""
    enough_costs: int = 10
    """Rises of the maximum in a batch that are enough to trust it. With fewer, `cost_lam` is smaller in
    proportion, which relies on V_D, and V_D is fitted to as many of the last epochs as hold that many
    (at most eight, with `subsample` "none"). 0 trusts every batch, as the paper does."""
    cost_critic_lr: float = 3e-4
    """Learning rate of V_D, lower than that of V: the few costs of a batch are soon learned by heart."""
    subsample: Literal["none", "resample", "once", "weighted"] = "none"
    """How V_D is fitted where most targets are zero: to all rows; to as many zeros as positive
    targets, drawn anew in each step ("resample", the paper) or once in an epoch; or to all rows,
    weighted to the same effect. All but the first make V_D too large."""
    recovery_fraction: float = 0.97
    """Most of the decrease within the trust region that a violated constraint may ask for; 1 is the
    paper, and can starve the reward."""
    tolerance: float = 0.003
    """Violation, in units of the largest cost of a step, from which on that much may be asked for;
    a smaller one asks for less, and below three quarters of it a step may raise the cost, since a
    limit of 0 is never met to the last digit."""
    reliable: bool = True
    """Ask for as much more as the batch's noise makes of each predicted decrease (measured on two
    halves of the worlds); off asks for the violation as it is, as the paper does."""
    reward_test: RewardTest = "reference"
    """When a step may lower the reward: "paper" if no step is feasible, "reference" (the published
    code) while a limit is violated, not at all with "always" (test), at any time with "never"."""
    cost_reduction: float = 0.0
    """Decrease of the surrogate cost that a violated constraint must see to accept a step."""
    bound_coefficient: float = 0.0
    """Share of the corrected bound term of the theory added to the violation (see docs/theory.md)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.cost_critic_lr > 0.0:
            raise ValueError(f"cost_critic_lr is {self.cost_critic_lr}: give a number above 0")
        if self.enough_costs < 0:
            raise ValueError(f"enough_costs is {self.enough_costs}: give 0 or more")
        if not 0.0 < self.recovery_fraction <= 1.0:
            raise ValueError(
                f"recovery_fraction is {self.recovery_fraction}: give a fraction above 0, at most 1"
            )


class Scpo(Algorithm):
    name = "scpo"
    settings_class = ScpoSettings
    settings: ScpoSettings
    sees_maximum = True
    positive_costs = True

    @property
    def policy_inputs(self) -> int:
        return self.inputs if self.settings.policy_sees_maximum else self.spec.num_live

    @property
    def acts_on_cost(self) -> bool:
        return self.settings.policy_sees_maximum

    def build(self) -> None:
        self.reliability = Reliability(self.spec.num_costs)
        self.evidence = Evidence(self.spec.num_costs, self.settings.enough_costs)

    @cached_property
    def lam(self) -> Tensor:
        """[m] `cost_lam` as it is now; always the same tensor, which graphs read."""
        return torch.full((self.spec.num_costs,), self.settings.cost_lam, device=self.device)

    def learning_rate(self, name: str) -> float:
        return self.settings.cost_critic_lr if name == "cost_value" else self.settings.critic_lr

    def extra_state(self) -> dict[str, Any]:
        return {
            "total": self.reliability.total,
            "noise": self.reliability.noise,
            "evidence": self.evidence.state_dict(),
        }

    def load_extra_state(self, state: dict[str, Any]) -> None:
        self.reliability.total = state["total"].cpu()
        self.reliability.noise = state["noise"].cpu()
        if "evidence" in state:  # not where the run is older than `enough_costs`
            self.evidence.load_state_dict(state["evidence"], self.device)

    @property
    def cost_signal(self) -> CostSignal:
        s = self.settings
        return CostSignal("increment", s.cost_gamma, self.lam, bootstrap_truncated=False)

    def look(self, rollout: Rollout) -> None:
        self.evidence.count(rollout)
        self.lam.copy_(self.settings.cost_lam * self.evidence.trust)

    def improve(self, batch: Batch) -> Metrics:
        s = self.settings
        bound = self.bound(batch, self.target_kl)
        violation = batch.J - s.limits(self.spec.num_costs) + s.bound_coefficient * bound
        step = constrained_step(
            self,
            batch,
            [reward_surrogate(batch), *cost_surrogates(batch)],
            violation.tolist(),
            recovery_fraction=s.recovery_fraction,
            reward_test=s.reward_test,
            cost_reduction=s.cost_reduction,
            tolerance=s.tolerance,
            reliability=self.reliability if s.reliable else None,
        )
        return step | self.predict(batch, step) | self.fit_critics(batch) | self.trusted()

    def bound(self, batch: Batch, kl: float) -> Tensor:
        """[m] the most by which J_D can exceed its first-order prediction (corrected form)."""
        epsilon = batch.cost_advantage.abs().amax(dim=0).double().cpu().numpy()
        horizon = self.spec.max_episode_steps - 1
        return torch.as_tensor(state_wise_penalty(epsilon, kl, batch.length, horizon))

    def predict(self, batch: Batch, step: Metrics) -> Metrics:
        """J_D of the new policy: to first order, with the corrected bound, with the paper's."""
        bound = self.bound(batch, step["policy/kl"])
        metrics: Metrics = {}
        for i, name in enumerate(self.spec.cost_names):
            first = float(batch.J[i]) + step[f"constraint/{name}/change"]
            epsilon = float(batch.cost_advantage[:, i].abs().max())
            printed = 2 * self.spec.max_episode_steps * epsilon * math.sqrt(step["policy/kl"] / 2)
            metrics |= {
                f"constraint/{name}/predicted": first,
                f"constraint/{name}/bound": first + float(bound[i]),
                f"constraint/{name}/bound_paper": first + printed,
            }
        return metrics

    def trusted(self) -> Metrics:
        """How many costs the batch held, and what was made of that."""
        metrics: Metrics = {"critic/cost_epochs": float(len(self.evidence.epochs) or 1)}
        for i, name in enumerate(self.spec.cost_names):
            metrics[f"constraint/{name}/rises"] = float(self.evidence.latest[i])
            metrics[f"constraint/{name}/lam"] = float(self.lam[i])
        return metrics

    def fit_critics(self, batch: Batch) -> Metrics:
        """Fit V, and V_D with its zero targets, which are most of them, as `subsample` says."""
        mode, inputs, targets = self.settings.subsample, batch.inputs, batch.cost_target
        if mode == "none":
            return self.fit_to_enough(batch) | {"critic/zero_targets_kept": 1.0}
        zero, positive = (~batch.positive).nonzero()[:, 0], batch.positive.nonzero()[:, 0]
        kept = len(positive) / len(zero) if 0 < len(positive) < len(zero) else 1.0
        if kept == 1.0:
            # Also when there is no positive target at all: then V_D is pulled to zero everywhere.
            return super().fit_critics(batch) | {"critic/zero_targets_kept": 1.0}
        metrics = self.fit_value(batch) | {"critic/zero_targets_kept": kept}
        if mode == "weighted":
            weights = torch.where(batch.positive, 1.0, kept)
            return metrics | self.fit(
                inputs, {"cost_value": targets}, weights=weights / weights.mean()
            )
        zeros = self.draw(zero, len(positive))[0] if mode == "once" else zero
        return metrics | self.fit(inputs, {"cost_value": targets}, pools=(positive, zeros))

    def fit_to_enough(self, batch: Batch) -> Metrics:
        """Fit V to the batch, and V_D to the last epochs that hold enough costs."""
        if not self.settings.enough_costs:
            return super().fit_critics(batch)
        epochs = self.evidence.remember(batch.inputs, batch.cost_target.clone())
        if len(epochs) == 1:
            return super().fit_critics(batch)
        rows = torch.arange(sum(len(epoch.inputs) for epoch in epochs), device=self.device)
        if self.settings.critic_batch:
            # What a GPU records has to keep its shape: the rest is never drawn.
            epochs = epochs + [epochs[-1]] * (self.evidence.MOST - len(epochs))
        return self.fit_value(batch) | self.fit(
            torch.cat([epoch.inputs for epoch in epochs]),
            {"cost_value": torch.cat([epoch.target for epoch in epochs])},
            pools=(rows,),
        )
