"""What the two safety layers share: TRPO whose actions are corrected before they are executed."""

from dataclasses import dataclass

from torch import Tensor, nn

from statewise.algos.base import LimitSettings, Metrics
from statewise.algos.estimates import Batch
from statewise.algos.policy_step import (
    Objective,
    TrustRegionAlgorithm,
    TrustRegionSettings,
    surrogate,
)
from statewise.settings import number
from statewise.types import Step


@dataclass(frozen=True)
class SafetyLayerSettings(LimitSettings, TrustRegionSettings):
    """Shared by the safety layers."""

    warmup: float = number(1 / 3, least=0, most=1)
    """Share of the epochs in which the cost model is trained and corrects nothing."""


class SafetyLayer(TrustRegionAlgorithm):
    """Trains a model of the cost beside the policy, and after a warm-up corrects actions with it.

    The policy learns from what it proposed: the layer is part of its world.
    """

    settings: SafetyLayerSettings

    def build(self) -> dict[str, nn.Module]:
        self.tally: list[float | Tensor] = [0.0, 0.0, 0.0]
        """Actions of this epoch, how many were changed, and by what distance in all."""
        return {}

    def objective(self, batch: Batch) -> Objective:
        return surrogate(batch.advantage)

    def fit_model(self, batch: Batch) -> Metrics:
        """Fit the model of the cost."""
        raise NotImplementedError

    def make_safe(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        """Actions `[B, a]` that the model calls safe."""
        raise NotImplementedError

    @property
    def correcting(self) -> bool:
        return self.epoch >= self.settings.warmup * self.epochs

    def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
        if not self.correcting:
            return action
        executed = self.make_safe(step, inputs, action)
        moved = (executed - action).norm(dim=1)
        new = (len(moved), (moved > 0).sum(), moved.sum())  # still on the GPU: nothing waits for it
        self.tally = [x + y for x, y in zip(self.tally, new, strict=True)]
        return executed

    def update_networks(self, batch: Batch) -> Metrics:
        step = self.natural_step(batch, self.objective(batch))
        acted, changed, distance = (float(x) for x in self.tally)
        self.tally = [0.0, 0.0, 0.0]
        step["safety_layer/rate"] = changed / max(acted, 1.0)
        step["safety_layer/size"] = distance / max(changed, 1.0)
        return step | self.fit_value(batch) | self.fit_model(batch)
