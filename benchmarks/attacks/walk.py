"""A tiny environment whose runs take milliseconds and continue exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
from gymnasium import spaces

import statewise

SUITE = "gym:AttackWalk-v0"
SETTINGS: dict[str, Any] = {
    "algo": "trpo", "steps": 240, "steps_per_epoch": 80, "num_envs": 4, "checkpoint_every": 1,
    "keep_checkpoints": 2, "tensorboard": False, "hidden": (4,), "critic_iterations": 2, "threads": 1,
    "device": "cpu", "quiet": True,
}  # fmt: skip


class Walk(gymnasium.Env):
    """A point on a line. Each step costs how far it is to the right."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))
    x = 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.normal())
        return self._obs(), {}

    def step(self, action: Any) -> Any:
        self.x = float(np.clip(self.x + action[0] + 0.1 * self.np_random.normal(), -9, 9))
        return self._obs(), self.x, False, False, {"cost": max(0.0, self.x / 9)}

    def _obs(self) -> Any:
        return np.array([self.x], np.float32)

    def get_state(self) -> dict[str, float]:
        return {"x": self.x}

    def set_state(self, state: dict[str, float]) -> None:
        self.x = state["x"]


if "AttackWalk-v0" not in gymnasium.registry:
    gymnasium.register("AttackWalk-v0", entry_point=Walk, max_episode_steps=8)


def train(out: Path, **more: Any) -> Path:
    """A short run with three epochs, each with a checkpoint."""
    return statewise.train(SUITE, out=str(out), **SETTINGS | more)
