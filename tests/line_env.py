"""A task with a known answer, to see whether an algorithm does what it claims.

A point starts at 0 on a line, moves by up to 0.25 in each of 8 steps, and is paid for the way it makes.
Beyond 0.5 each step costs its distance beyond. Unconstrained, the best is to run: return 2, largest cost
1.5. With the largest cost, or the sum of costs, kept to `limit` <= 0.25 the best return is 0.5 + limit:
wait at 0.5, and step over it at the very end.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from statewise.envs.env import Env
from statewise.types import EnvSpec, Step, first_step

LENGTH = 8
STRIDE = 0.25
EDGE = 0.5


class LineEnv(Env):
    """`num_costs` copies of the same cost, to try several constraints.

    units: of each cost, if not 1: both the cost and its ceiling are that many times as large.
    truncates: time runs out after the last step, instead of the task ending.
    """

    def __init__(
        self,
        num_envs: int = 64,
        num_costs: int = 1,
        units: Sequence[float] = (),
        truncates: bool = False,
    ) -> None:
        self.num_envs, self.device = num_envs, torch.device("cpu")
        self.units, self.truncates = torch.tensor(units or (1.0,) * num_costs), truncates
        self.spec = EnvSpec(
            name="Line",
            obs_size=2,
            action_size=1,
            cost_names=tuple(f"edge{i}" for i in range(num_costs)),
            cost_ceiling=tuple((LENGTH * STRIDE * self.units).tolist()),
            max_episode_steps=LENGTH,
            control_dt=1.0,
            blocks={"x": slice(0, 1), "time": slice(1, 2)},
        )

    def reset(self, seed: int | None = None) -> Step:
        self.x = torch.zeros(self.num_envs)
        # Worlds start at different times, so that their episodes end at different ones.
        self.t = (
            torch.arange(self.num_envs) % LENGTH if seed is None else torch.zeros(self.num_envs)
        )
        self.top = torch.zeros(self.num_envs, self.spec.num_costs)
        return first_step(self._obs(), self.spec.num_costs)

    def _obs(self) -> Tensor:
        return torch.stack([self.x, self.t / LENGTH], dim=1)

    def step(self, action: Tensor) -> Step:
        move = STRIDE * action[:, 0].clamp(-1.0, 1.0)
        self.x, self.t = self.x + move, self.t + 1
        cost = (self.x - EDGE).clamp(min=0.0).unsqueeze(1) * self.units
        before, after = self.top, torch.maximum(self.top, cost)
        ended = self.t >= LENGTH
        no = torch.zeros_like(ended)
        terminated, truncated = (no, ended) if self.truncates else (ended, no)
        final_obs = self._obs()
        self.x = self.x.masked_fill(ended, 0.0)
        self.t = self.t.masked_fill(ended, 0)
        self.top = after.masked_fill(ended.unsqueeze(1), 0.0)
        obs = self._obs()
        return Step.from_costs(obs, move, cost, before, after, terminated, truncated, final_obs, no)

    def state_dict(self) -> dict[str, Any]:
        return {"x": self.x, "t": self.t, "top": self.top}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.x, self.t, self.top = state["x"], state["t"], state["top"]
