"""Three small tasks with one or two rules each. No default was tuned on them: `test_carries_over`."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import gymnasium
import numpy as np
from numpy.typing import NDArray

Observation = NDArray[np.float32]
Stepped = tuple[Observation, float, bool, bool, dict[str, Any]]


class SmallTask(gymnasium.Env[Observation, Observation]):
    """A state of a few numbers, one action from -1 to 1, and steps of 0.1 s."""

    DT: ClassVar[float] = 0.1
    SIZE: ClassVar[int]
    """Numbers of the state, all of which are observed."""

    def __init__(self) -> None:
        self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (self.SIZE,), np.float32)
        self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,))
        self.state = np.zeros(self.SIZE)

    def start(self) -> list[float]:
        """Draw the first state."""
        raise NotImplementedError

    def advance(self, action: float) -> tuple[float, bool, dict[str, float]]:
        """Change the state. Return the reward, whether the task is done, and the costs."""
        raise NotImplementedError

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Observation, dict[str, Any]]:
        super().reset(seed=seed)
        self.state = np.array(self.start())
        return self.state.astype(np.float32), {}

    def step(self, action: Observation) -> Stepped:
        reward, done, costs = self.advance(float(np.clip(action[0], -1.0, 1.0)))
        info = {"costs": costs, "is_success": done}
        return self.state.astype(np.float32), reward, done, False, info


class Tank(SmallTask):
    """Fill a tank to a mark without running over. The goal lies 5 cm below the rule.

    State: height of the water (m), its rate (m/s, follows the valve with a lag), the mark (m).
    """

    SIZE = 3

    def start(self) -> list[float]:
        return [float(self.np_random.uniform(0.0, 0.3)), 0.0, 0.8]

    def advance(self, action: float) -> tuple[float, bool, dict[str, float]]:
        height, rate, mark = self.state
        before = abs(mark - height)
        rate += 0.3 * (0.2 * action - rate)
        height = max(height + rate * self.DT, 0.0)
        self.state = np.array([height, rate, mark])
        full = abs(mark - height) < 0.02 and abs(rate) < 0.05
        reward = before - abs(mark - height) + float(full)
        return reward, full, {"overflow": max(0.0, height - (mark + 0.05))}


class Crane(SmallTask):
    """Move a hanging load to a place. It must not swing by more than 10 degrees, nor the crane run
    past its rail.

    State: position (m), speed (m/s), angle (rad) and angular speed of the load.
    """

    SIZE = 4
    SWING, RAIL = math.radians(10.0), 2.2

    def start(self) -> list[float]:
        return [-float(self.np_random.uniform(1.0, 2.0)), 0.0, 0.0, 0.0]

    def advance(self, action: float) -> tuple[float, bool, dict[str, float]]:
        x, speed, angle, turn = self.state
        before = abs(x)
        acceleration = 1.5 * action
        for _ in range(5):  # a pendulum of 1 m needs shorter steps
            turn += 0.02 * (-9.81 * math.sin(angle) - acceleration * math.cos(angle) - 0.5 * turn)
            angle += 0.02 * turn
            speed += 0.02 * acceleration
            x += 0.02 * speed
        self.state = np.array([x, speed, angle, turn])
        there = abs(x) < 0.1 and abs(speed) < 0.3
        costs = {
            "swing": max(0.0, abs(angle) - self.SWING),
            "rail": max(0.0, abs(x) - self.RAIL),
        }
        return before - abs(x) + float(there), there, costs


class Lander(SmallTask):
    """Land on the ground. The allowed speed falls with the height, so braking late breaks the rule.

    State: height (m) and speed (m/s, upwards).
    """

    SIZE = 2

    def start(self) -> list[float]:
        return [float(self.np_random.uniform(2.0, 4.0)), 0.0]

    def advance(self, action: float) -> tuple[float, bool, dict[str, float]]:
        height, speed = self.state
        before = height
        speed += self.DT * (2.0 * action - 0.5)  # thrust against gravity
        height = max(height + speed * self.DT, 0.0)
        self.state = np.array([height, speed])
        landed = height == 0.0
        reward = 0.5 * (before - height) + float(landed)
        allowed = 0.3 + 0.3 * height
        return reward, landed, {"speed": max(0.0, abs(speed) - allowed)}


TASKS = {"Tank-v0": Tank, "Crane-v0": Crane, "Lander-v0": Lander}
for name, task in TASKS.items():
    if name not in gymnasium.registry:
        gymnasium.register(name, entry_point=task, max_episode_steps=150)
