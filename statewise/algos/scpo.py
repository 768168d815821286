"""SCPO, State-wise Constrained Policy Optimization (Zhao et al., 2023): the paper's method.

The running maximum M of each cost joins the state, so that its increments D sum to the largest cost
of the episode. J_D = E[Σ D] is then bounded by a limit w, as CPO bounds a sum of costs.

Departures from the paper: `docs/algorithms/scpo.md` lists them.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import ConstrainedAlgorithm, surrogates
from statewise.algos.shared_settings import ConstrainedSettings
from statewise.core.mmdp import Kind, state_wise_penalty
from statewise.settings import number


@dataclass(frozen=True)
class ScpoSettings(ConstrainedSettings):
    """`cost_limit` is w: the largest cost of an episode, on average over episodes, unless
    `constraint_kind` says otherwise."""

    constraint_kind: tuple[Kind, ...] = ("maximum",)
    """What each constraint bounds, one for all or one for each: maximum (the paper), sum, probability
    or deviation. `statewise train --algo cpo --help` explains each."""
    bound_coefficient: float = number(0.0, least=0, most=1)
    """Share of the corrected bound term of the theory added to the violation (see docs/theory.md).
    It needs `cost_feedback` 0."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bound_coefficient:
            self._without_feedback("bound_coefficient", self.bound_coefficient)


class Scpo(ConstrainedAlgorithm):
    name = "scpo"
    title = "SCPO"
    settings_class = ScpoSettings
    settings: ScpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        step = self.policy_step(batch, surrogates(batch))
        bound = self.settings.bound_coefficient * self.bound(batch, self.target_kl)
        taken = self.constrained_step(step, self.settings.violation(batch.J) + bound)
        return taken | self.predict(batch, taken) | self.fit_critics(batch)

    def bound(self, batch: Batch, kl: float) -> Tensor:
        """[m] the most by which J_D can exceed its first-order prediction (corrected form)."""
        epsilon = batch.cost_advantage.abs().amax(dim=0).double().cpu().numpy()
        horizon = self.spec.max_episode_steps - 1
        return torch.as_tensor(state_wise_penalty(epsilon, kl, batch.length, horizon))

    def predict(self, batch: Batch, taken: Metrics) -> Metrics:
        """J_D of the new policy to first order, and two diagnostics: with each penalty of the theory."""
        kl, limit = taken["policy/kl"], self.spec.max_episode_steps
        change = [taken[f"constraint/{name}/change"] for name in self.spec.cost_names]
        first = batch.J + torch.tensor(change, dtype=torch.float64)
        epsilon = batch.cost_advantage.abs().amax(dim=0).double().cpu()
        printed = 2 * limit * epsilon * math.sqrt(kl / 2)
        return self.by_constraint(
            predicted=first,
            predicted_corrected=first + self.bound(batch, kl),
            predicted_printed=first + printed,
        )
