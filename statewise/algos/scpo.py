"""SCPO, State-wise Constrained Policy Optimization (Zhao et al., 2023): the paper's method.

The running maximum M of each cost joins the state, so that its increments D sum to the largest cost
of the episode. J_D = E[Σ D] is then bounded by a limit w, as CPO bounds a sum of costs.

Departures from the paper: `docs/algorithms/scpo.md` lists them.
"""

import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from statewise.algos.base import Metrics
from statewise.algos.cpo import Cpo, CpoSettings
from statewise.algos.estimates import Batch, CostSignal
from statewise.algos.policy_step import surrogates
from statewise.algos.rare_costs import CostHistory, GradientNoise, contrasts, within_tolerance
from statewise.core.mmdp import state_wise_penalty
from statewise.core.trust_region import limit_request
from statewise.settings import number
from statewise.types import Rollout


@dataclass(frozen=True)
class ScpoSettings(CpoSettings):
    """`cost_limit` is w: the largest cost of an episode, on average over episodes."""

    policy_sees_maximum: bool = True
    """Whether the policy reads the running maximum M too, or only the critics do. A policy that does
    not needs no measured costs once it is trained, but cannot depend on the costs met before."""
    cost_gamma: float = number(1.0, least=0, most=1)
    """Discount of the increments; 1 makes their sum the maximum."""
    cost_lam: float = number(0.8, least=0, most=1)
    """Decay of the advantage estimate of the increments. The paper's table says 0.97 and its code
    ran 0.95; increments are so rare that at either the gradient is nearly all noise."""
    enough_costs: int = number(10, least=0)
    """Rises of the maximum in a batch that are enough to trust it. With fewer, `cost_lam` is smaller in
    proportion, which relies on V_D, and V_D is fitted to as many of the last epochs as hold that many
    (at most eight, with `subsample` "none"). 0 trusts every batch, as the paper does."""
    cost_critic_lr: float = number(3e-4, above=0)
    """Learning rate of V_D. It is lower than that of V: V_D soon overfits the few costs of a batch."""
    subsample: Literal["none", "resample", "once", "weighted"] = "none"
    """How V_D is fitted where most targets are zero: to all rows; to as many zeros as positive
    targets, drawn anew in each step ("resample", the paper) or once in an epoch; or to all rows,
    weighted to the same effect. All but the first make V_D too large."""
    recovery_fraction: float = number(0.97, above=0, most=1)
    """Most of the decrease within the trust region that a violated constraint may ask for; 1 is the
    paper, and can starve the reward."""
    tolerance: float = number(0.003, least=0)
    """Violation, as a share of the largest step cost, above which that full decrease is requested.
    Smaller violations request proportionally less, and below three quarters of the tolerance a step
    may raise the cost, since a limit of 0 is never met to the last digit."""
    reliable: bool = True
    """Ask for more than the violation to make up for the part of the predicted decrease that is noise
    (measured on two halves of the worlds); off asks for the violation, as the paper does."""
    bound_coefficient: float = number(0.0, least=0, most=1)
    """Share of the corrected bound term of the theory added to the violation (see docs/theory.md)."""


class Scpo(Cpo):
    name = "scpo"
    title = "SCPO"
    settings_class = ScpoSettings
    settings: ScpoSettings
    sees_maximum = True
    positive_costs = True

    @property
    def acts_on_cost(self) -> bool:
        return self.settings.policy_sees_maximum

    def build(self) -> dict[str, nn.Module]:
        self.noise = GradientNoise(self.spec.num_costs)
        self.history = CostHistory(self.spec.num_costs, self.settings.enough_costs)
        return {}

    @cached_property
    def lam(self) -> Tensor:
        """[m] `cost_lam` as it is now; always the same tensor, which CUDA graphs read."""
        return torch.full((self.spec.num_costs,), self.settings.cost_lam, device=self.device)

    @property
    def cost_signal(self) -> CostSignal:
        gamma = self.settings.cost_gamma
        return CostSignal("increment", gamma, self.lam, past_limit=False)

    def learning_rate(self, name: str) -> float:
        return self.settings.cost_critic_lr if name == "cost_value" else self.settings.critic_lr

    def observe_rollout(self, rollout: Rollout) -> None:
        self.history.count(rollout)
        self.lam.copy_(self.settings.cost_lam * self.history.trust)

    def update_networks(self, batch: Batch) -> Metrics:
        s = self.settings
        bound = s.bound_coefficient * self.bound(batch, self.target_kl)
        step = self.step(batch, (s.violation(batch.J) + bound).tolist())
        return step | self.predict(batch, step) | self.fit_critics(batch) | self.trusted()

    def step(self, batch: Batch, violation: list[float]) -> Metrics:
        """CPO's step, with a tolerance, and asking for more where the gradient is noisy."""
        s = self.settings
        worlds = batch.rollout.reward.shape[1]
        measure = s.reliable and self.epoch % GradientNoise.EVERY == 1 and worlds > 1
        step = self.policy_step(batch, surrogates(batch), contrasts(batch) if measure else ())
        if measure:
            self.noise.update(step.S.diagonal(), step.gram.diagonal()[1 + len(violation) :])
        tolerance = s.tolerance * np.array([ceiling or 1.0 for ceiling in self.spec.cost_ceiling])
        aim = within_tolerance(violation, tolerance)
        reliability = self.noise.reliability.numpy() if s.reliable else np.ones(len(aim))
        wanted = np.where(aim > 0, aim / reliability, aim)
        share = (aim / np.maximum(tolerance, 1e-12)).clip(0.0, 1.0)
        asked = limit_request(wanted, step.S, self.target_kl, s.recovery_fraction * share)
        metrics = self.constrained_step(step, violation, asked, aim.tolist())
        return metrics | (self.by_constraint(reliability=reliability) if s.reliable else {})

    def bound(self, batch: Batch, kl: float) -> Tensor:
        """[m] the most by which J_D can exceed its first-order prediction (corrected form)."""
        epsilon = batch.cost_advantage.abs().amax(dim=0).double().cpu().numpy()
        horizon = self.spec.max_episode_steps - 1
        return torch.as_tensor(state_wise_penalty(epsilon, kl, batch.length, horizon))

    def predict(self, batch: Batch, step: Metrics) -> Metrics:
        """J_D of the new policy to first order, and two diagnostics: with each penalty of the theory."""
        kl, limit = step["policy/kl"], self.spec.max_episode_steps
        change = [step[f"constraint/{name}/change"] for name in self.spec.cost_names]
        first = batch.J + torch.tensor(change, dtype=torch.float64)
        epsilon = batch.cost_advantage.abs().amax(dim=0).double().cpu()
        printed = 2 * limit * epsilon * math.sqrt(kl / 2)
        return self.by_constraint(
            predicted=first,
            predicted_corrected=first + self.bound(batch, kl),
            predicted_printed=first + printed,
        )

    def trusted(self) -> Metrics:
        """How many costs the batch held, and how far it was trusted for that."""
        epochs = {"critic/cost_epochs": float(len(self.history.epochs) or 1)}
        return epochs | self.by_constraint(rises=self.history.latest, lam=self.lam)

    def fit_critics(self, batch: Batch) -> Metrics:
        """Fit V, and V_D with its zero targets, which are most of them, as `subsample` says."""
        mode, targets = self.settings.subsample, {"cost_value": batch.cost_target}
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
            weights = weights / weights.mean()
            return metrics | self.critics.fit(batch.inputs, targets, weights=weights)
        zeros = self.critics.draw(zero, len(positive))[0] if mode == "once" else zero
        return metrics | self.critics.fit(batch.inputs, targets, (positive, zeros))

    def fit_to_enough(self, batch: Batch) -> Metrics:
        """Fit V to the batch, and V_D to the last epochs that hold enough costs."""
        if not self.settings.enough_costs:
            return super().fit_critics(batch)
        epochs = self.history.remember(batch.inputs, batch.cost_target.clone())
        if len(epochs) == 1:
            return super().fit_critics(batch)
        rows = torch.arange(sum(len(x) for x, _, _ in epochs), device=self.device)
        if self.settings.critic_batch:
            # A recording on a GPU needs a fixed shape: the rows added here are never drawn.
            epochs = epochs + [epochs[-1]] * (CostHistory.MOST - len(epochs))
        inputs, targets = (torch.cat(kept) for kept in list(zip(*epochs, strict=True))[:2])
        return self.fit_value(batch) | self.critics.fit(inputs, {"cost_value": targets}, (rows,))

    def extra_state(self) -> dict[str, Any]:
        noise = {"total": self.noise.total, "noise": self.noise.noise}
        return {"gradient_noise": noise, "cost_history": self.history.state_dict()}

    def load_extra_state(self, state: dict[str, Any]) -> None:
        noise = state["gradient_noise"]
        self.noise.total, self.noise.noise = noise["total"].cpu(), noise["noise"].cpu()
        self.history.load_state_dict(state["cost_history"], self.device)
