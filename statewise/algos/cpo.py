"""CPO, Constrained Policy Optimization (Achiam et al., 2017): bounds the sum of costs.

Violation and surrogate are both per episode; dividing both by the mean length, as the original does,
leaves the step unchanged. As there, J_C is undiscounted and its gradient uses discounted advantages.
"""

from dataclasses import dataclass

from statewise.algos.base import Metrics
from statewise.algos.batch import Batch
from statewise.algos.policy_step import ConstrainedAlgorithm, surrogates
from statewise.algos.shared_settings import ConstrainedSettings


@dataclass(frozen=True)
class CpoSettings(ConstrainedSettings):
    """`cost_limit` bounds the sum of costs of an episode, on average over episodes, unless
    `constraint_kind` says otherwise."""


class Cpo(ConstrainedAlgorithm):
    name = "cpo"
    title = "CPO"
    settings_class = CpoSettings
    settings: CpoSettings

    def update_networks(self, batch: Batch) -> Metrics:
        step = self.policy_step(batch, surrogates(batch))
        violation = self.settings.violation(batch.J)
        return self.constrained_step(step, violation) | self.fit_critics(batch)
