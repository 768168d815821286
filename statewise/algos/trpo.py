"""TRPO (Schulman et al., 2015): the reward alone. Costs are logged and not used."""

from __future__ import annotations

from statewise.algos.base import Algorithm, Metrics
from statewise.algos.estimates import Batch
from statewise.algos.steps import natural_step, reward_surrogate


class Trpo(Algorithm):
    name = "trpo"
    constrained = False

    def improve(self, batch: Batch) -> Metrics:
        step = natural_step(self, batch, reward_surrogate(batch))
        return step | self.fit_value(batch)
