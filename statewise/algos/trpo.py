"""TRPO (Schulman et al., 2015): the reward alone. Costs are logged and not used."""

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import TrustRegionAlgorithm, surrogate


class Trpo(TrustRegionAlgorithm):
    name = "trpo"
    title = "TRPO"
    constrained = False

    def update_networks(self, batch: Batch) -> Metrics:
        return self.natural_step(batch, surrogate(batch.advantage)) | self.fit_value(batch)
