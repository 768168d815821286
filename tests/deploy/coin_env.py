"""Episodes whose outcomes are known when they begin: a violation takes long, a safe episode is short."""

import torch
from torch import Tensor

from statewise.algos import Algorithm, get_algorithm
from statewise.envs.env import Env
from statewise.types import EnvSpec, Step, first_step

LONG, SHORT = 12, 2


class CoinEnv(Env):
    """Each episode draws whether it will violate, for each constraint, and costs 1 at its end if so.

    rates: of each constraint. `drawn` lists the outcomes in the order in which episodes began.
    faulty: violations are simulator faults without a cost.
    """

    def __init__(self, *rates: float, num_envs: int = 16, faulty: bool = False) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.rates, self.faulty = torch.tensor(rates), faulty
        names = tuple(f"coin{i}" for i in range(len(rates)))
        self.spec = EnvSpec("Coin", 1, 1, names, (1.0,) * len(rates), LONG, 1.0, {"x": slice(0, 1)})
        self.drawn: list[list[bool]] = []
        self.chance = torch.Generator()

    def reset(self, seed: int | None = None) -> Step:
        if seed is not None:
            self.chance.manual_seed(seed)
        self.drawn.clear()
        self.bad = self._draw(self.num_envs)
        self.t = torch.zeros(self.num_envs)
        return first_step(self.t.unsqueeze(1), self.spec.num_costs)

    def _draw(self, count: int) -> Tensor:
        bad = torch.rand(count, len(self.rates), generator=self.chance) < self.rates
        self.drawn += bad.tolist()
        return bad

    def step(self, action: Tensor) -> Step:
        self.t = self.t + 1
        ended = self.t >= torch.where(self.bad.any(dim=1), LONG, SHORT)
        broken = self.bad & ended.unsqueeze(1)
        no = torch.zeros(self.num_envs, dtype=torch.bool)
        cost = torch.zeros(broken.shape) if self.faulty else broken.float()
        fault = broken.any(dim=1) if self.faulty else no
        final = self.t.unsqueeze(1)
        self.t = self.t.masked_fill(ended, 0.0)
        self.bad = self.bad.clone()
        self.bad[ended] = self._draw(int(ended.sum()))
        before = torch.zeros_like(cost)
        reward = torch.zeros(self.num_envs)
        return Step.from_costs(
            self.t.unsqueeze(1), reward, cost, before, cost, ended, no, final, fault
        )


def coin_algo(env: Env) -> Algorithm:
    kind = get_algorithm("trpo")
    return kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
