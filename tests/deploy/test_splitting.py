"""Rare events: splitting finds known small probabilities with few episodes."""

from collections.abc import Mapping

import numpy as np
import pytest
import torch
from torch import Tensor

from statewise.deploy.splitting import estimate
from statewise.envs.env import Env
from statewise.types import EnvSpec, Step, first_step

STEPS = 64


class Walk(Env):
    """A fair walk of 64 steps by one, up or down. Reaching `edge` breaks the constraint."""

    def __init__(self, edge: int, num_envs: int = 512) -> None:
        self.num_envs, self.device, self.edge = num_envs, torch.device("cpu"), edge
        self.spec = EnvSpec("Walk", 1, 1, ("edge",), (1.0,), STEPS, 1.0, {"x": slice(0, 1)})
        self.chance = torch.Generator()

    def reset(self, seed: int | None = None) -> Step:
        self.chance.manual_seed(seed or 0)
        self.x = torch.zeros(self.num_envs)
        self.t = torch.zeros(self.num_envs)
        self.low = torch.full((self.num_envs, 1), float(self.edge))
        return first_step(self.x.unsqueeze(1), 1, self.low)

    def step(self, action: Tensor) -> Step:
        up = torch.rand(self.num_envs, generator=self.chance) < 0.5
        self.x, self.t = self.x + 2.0 * up - 1.0, self.t + 1
        clearance = (self.edge - 0.5 - self.x).unsqueeze(1)
        low = self.low = torch.minimum(self.low, clearance)
        ended = self.t >= STEPS
        final = self.x.unsqueeze(1)
        self.x, self.t = self.x.masked_fill(ended, 0.0), self.t.masked_fill(ended, 0.0)
        self.low = low.masked_fill(ended.unsqueeze(1), float(self.edge))
        cost, no, zero = (clearance < 0).float(), torch.zeros_like(ended), torch.zeros(len(low))
        worst = (low < 0).float()
        return Step.from_costs(
            self.x.unsqueeze(1), zero, cost, worst, worst, no, ended, final, no, no, clearance, low
        )

    def worlds(self) -> dict[str, Tensor]:
        return {"x": self.x, "t": self.t, "low": self.low}

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        for name in ("x", "t", "low"):
            setattr(self, name, getattr(self, name).index_copy(0, where, rows[name]))


def truth(edge: int) -> float:
    """The probability that the walk ever reaches the edge, by summing over all places."""
    chance, reached = np.zeros(2 * STEPS + 3), 0.0
    chance[STEPS] = 1.0
    for _ in range(STEPS):
        chance = (np.roll(chance, 1) + np.roll(chance, -1)) / 2
        reached += chance[STEPS + edge]
        chance[STEPS + edge] = 0.0
    return reached


def still(step: Step) -> Tensor:
    return torch.zeros(len(step.obs), 1)


@pytest.mark.parametrize(("edge", "rate"), [(31, 1e-4), (37, 2e-6)])
def test_known_small_probabilities_are_found_with_a_tenth_of_the_episodes_of_counting(
    edge: int, rate: float
) -> None:
    """Counting needs about 10 violations to be within a factor of two, so 10 / rate episodes."""
    true = truth(edge)
    assert rate / 2 < true < rate * 2
    found = estimate(Walk(edge, 256 if edge == 31 else 512), still, 0, seed=5)
    assert true / 2 < found.probability < true * 2
    assert found.episodes <= 0.1 * 10 / true
    assert found.relative_error is not None and found.relative_error < 0.4


def test_splitting_agrees_with_plain_counting_at_one_percent() -> None:
    env = Walk(20, 12_800)
    step = env.reset(seed=1)
    for _ in range(STEPS):
        step = env.step(still(step))
    counted = float((step.min_clearance < 0).float().mean())
    found = estimate(Walk(20, 64), still, 0, seed=5)
    assert 0.005 < counted / 2 < found.probability < counted * 2
    assert found.episodes <= 12_800 / 10


def test_estimates_have_the_right_mean() -> None:
    found = [estimate(Walk(20, 32), still, 0, seed=1000 * i, repeats=6) for i in range(8)]
    values = [one.probability for one in found]
    error = np.std(values) / len(values) ** 0.5
    assert abs(np.mean(values) - truth(20)) < 3 * error < 0.5 * truth(20)


def test_episodes_that_cannot_be_ranked_are_refused() -> None:
    class Blind(Walk):
        def step(self, action: Tensor) -> Step:
            step = super().step(action)
            flat = torch.ones_like(step.clearance)
            return Step.from_costs(
                step.obs, step.reward, step.cost, step.cost, step.cost, step.terminated,
                step.truncated, step.final_obs, step.sim_fault, step.success, flat, flat,
            )  # fmt: skip

    with pytest.raises(ValueError, match="nothing to rank"):
        estimate(Blind(20, 16), still, 0, seed=0)
