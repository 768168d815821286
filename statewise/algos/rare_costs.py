"""What SCPO does about rare costs: it measures noise, remembers costs, and allows a tolerance."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from statewise.algos.estimates import Batch
from statewise.algos.policy_step import Objective
from statewise.types import Rollout

SLACK = 3.0
"""How many times the unused part of a tolerance a step may add to the cost. Set by hand."""


def within_tolerance(violation: Sequence[float], tolerance: np.ndarray) -> np.ndarray:
    """c `[m]` as the step sees it: lower where part of a tolerance `[m]` is not used up.

    At c = tolerance nothing is left of it and c stands; at c = 0 a step may raise the cost by three
    tolerances. Without this a limit of 0 would end learning where it is first met. With no cost in
    the batch, the surrogate cost is only the critic's error, and half of all steps raise that a little.
    """
    c = np.asarray(violation, dtype=np.float64)
    return c - SLACK * (tolerance - c).clip(0.0, tolerance)


class GradientNoise:
    """Which share of a cost decrease predicted on a batch will hold on fresh data.

    A cost gradient is b = truth + noise, and the decrease predicted for a step along F⁻¹b, bᵀF⁻¹b,
    counts the noise as well. Two halves of the worlds have independent noise, so half the difference d
    of their gradients measures it: E[dᵀF⁻¹d] = E[noiseᵀF⁻¹noise].
    """

    EVERY = 4
    """It changes slowly, so it is measured in every fourth epoch and smoothed."""
    SMOOTHING = 0.65
    LEAST = 0.2

    def __init__(self, num_costs: int) -> None:
        self.total = torch.zeros(num_costs, dtype=torch.float64)
        self.noise = torch.zeros(num_costs, dtype=torch.float64)

    def update(self, total: Tensor, noise: Tensor) -> None:
        """Take in bᵀF⁻¹b and dᵀF⁻¹d of a batch, `[m]` each."""
        keep = self.SMOOTHING
        self.total = keep * self.total + (1 - keep) * total.double().cpu()
        self.noise = keep * self.noise + (1 - keep) * noise.double().cpu()

    @property
    def reliability(self) -> Tensor:
        """[m] the share, at least `LEAST`; 1 before anything was measured"""
        share = 1.0 - self.noise / self.total.clamp(min=1e-300)
        return torch.where(self.total > 0, share, 1.0).clamp(self.LEAST, 1.0)


def contrasts(batch: Batch) -> list[Objective]:
    """Half the difference of each cost surrogate between the even and the odd worlds."""
    worlds = batch.rollout.reward.shape[1]
    sign = 1.0 - 2.0 * (torch.arange(worlds, device=batch.action.device) % 2)
    if worlds % 2:
        sign[-1] = 0.0  # two halves of equal size
    weight = sign.repeat(len(batch.action) // worlds) * (len(batch.action) / batch.episodes)

    def of(advantage: Tensor) -> Objective:
        return lambda policy: (policy.ratio * advantage * weight).mean()

    return [of(advantage) for advantage in batch.cost_advantage.unbind(1)]


Epoch = tuple[Tensor, Tensor, Tensor]
"""What a cost critic can be fitted to: inputs `[N, k]`, targets `[N, m]`, rises of the maxima `[m]`"""


class CostHistory:
    """How often the maxima rise in a batch, and the last epochs that together hold enough rises.

    Steps of an episode that raise its maximum one after another are one rise: a robot that drives
    into a hazard is one piece of evidence, however long it takes.
    """

    MOST = 8
    """Epochs that are remembered at most."""
    SMOOTHING = 0.7
    AT_FIRST = 10.0
    """The count starts at this many times `enough`: a critic that has learned nothing is no better."""
    NONE = 0.05
    """Smoothed rises below which costs have ceased: a dozen epochs or more after the last one."""

    def __init__(self, num_costs: int, enough: int) -> None:
        self.enough = enough
        self.rises = torch.full((num_costs,), self.AT_FIRST * enough, dtype=torch.float64)
        """[m] in a batch, smoothed over epochs"""
        self.latest = torch.zeros_like(self.rises)
        """[m] in the latest batch"""
        self.epochs: list[Epoch] = []
        """The newest last."""

    def count(self, rollout: Rollout) -> None:
        """Take in how often the maxima of a rollout rose."""
        up = rollout.increment > 0
        went_on = up[1:] & up[:-1] & ~rollout.ended[:-1, :, None]
        self.latest = (up.sum(dim=(0, 1)) - went_on.sum(dim=(0, 1))).double().cpu()
        self.rises = self.SMOOTHING * self.rises + (1 - self.SMOOTHING) * self.latest

    @property
    def trust(self) -> Tensor:
        """[m] the rises as a share of what is enough, at most 1.

        If no cost has occurred for about a dozen epochs, the batch is trusted fully again. Its
        silence is better evidence than a critic that still predicts cost.
        """
        if not self.enough:
            return torch.ones_like(self.rises)
        few, none = self.rises / self.enough, 1.0 - self.rises / self.NONE
        return torch.maximum(few, none).clamp(max=1.0)

    def remember(self, inputs: Tensor, target: Tensor) -> list[Epoch]:
        """Take in the latest batch; the last epochs that hold enough rises of every maximum."""
        self.epochs = [*self.epochs, (inputs, target, self.latest)][-self.MOST :]
        rises = torch.stack([rises for _, _, rises in self.epochs])
        while len(rises) > 1 and bool((rises[1:].sum(dim=0) >= self.enough).all()):
            rises = rises[1:]
        self.epochs = self.epochs[-len(rises) :]
        return self.epochs

    def state_dict(self) -> dict[str, Any]:
        return {"rises": self.rises, "epochs": self.epochs}

    def load_state_dict(self, state: dict[str, Any], device: torch.device) -> None:
        self.rises = state["rises"].cpu()
        self.epochs = [(x.to(device), y.to(device), rises.cpu()) for x, y, rises in state["epochs"]]
