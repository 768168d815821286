"""An environment of one's own, with two constraints, trained by statewise.

    cd examples
    python own_environment.py

or, the same from the command line:

    statewise train gym:DockingCart-v0 --import own_environment --steps 300_000 --num-envs 20 \
        --steps-per-epoch 4000

A cart on a rail has to come to rest at a dock. It must never go faster than 0.5 m/s, and never run
past the dock, where the wall is. Being quick pays, so a method that looks at the reward alone goes
twice as fast as it may (try `--algo trpo`).
"""

from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
from numpy.typing import NDArray

DT = 0.1
MAX_ACCELERATION = 1.0
SPEED_LIMIT = 0.5
DOCKED_DISTANCE = 0.05
DOCKED_SPEED = 0.2

Observation = NDArray[np.float32]


class DockingCart(gymnasium.Env[Observation, Observation]):
    """Observation: position (m, the dock is at 0, the cart starts left of it) and speed (m/s).

    Action: acceleration in m/s². Reward: the way made towards the dock, and 1 for docking.
    """

    dt = DT  # optional: seconds in a step

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (2,), np.float32)
        self.action_space = gymnasium.spaces.Box(-MAX_ACCELERATION, MAX_ACCELERATION, (1,))
        self.position, self.speed = 0.0, 0.0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.position, self.speed = -float(self.np_random.uniform(0.5, 2.0)), 0.0
        return self._observation(), {}

    def step(self, action: Observation) -> tuple[Observation, float, bool, bool, dict[str, Any]]:
        before = abs(self.position)
        self.speed += float(action[0]) * DT
        self.position += self.speed * DT
        docked = abs(self.position) < DOCKED_DISTANCE and abs(self.speed) < DOCKED_SPEED
        reward = before - abs(self.position) + float(docked)
        # One number for each constraint, at every step; zero means that it holds.
        costs = {
            "speed": max(0.0, abs(self.speed) - SPEED_LIMIT),
            "wall": max(0.0, self.position - DOCKED_DISTANCE),
        }
        return self._observation(), reward, docked, False, {"costs": costs}

    def _observation(self) -> Observation:
        return np.array([self.position, self.speed], np.float32)

    # Optional: with these two, a run that was stopped continues exactly.

    def get_state(self) -> dict[str, float]:
        """All that the next steps depend on; `np_random` is saved beside it."""
        return {"position": self.position, "speed": self.speed}

    def set_state(self, state: dict[str, float]) -> None:
        self.position, self.speed = state["position"], state["speed"]


if "DockingCart-v0" not in gymnasium.registry:
    gymnasium.register("DockingCart-v0", entry_point=DockingCart, max_episode_steps=100)


def main() -> None:
    import statewise

    statewise.train(
        "gym:DockingCart-v0",
        algo="scpo",
        steps=300_000,
        num_envs=20,
        steps_per_epoch=4000,
        out="runs",
        imports=("own_environment",),
    )


if __name__ == "__main__":
    main()
