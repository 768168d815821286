"""Layouts to construct states from."""

from collections.abc import Callable

import pytest
import torch

import statewise
from statewise import Step, VecEnv


@pytest.fixture
def put() -> Callable[..., Step]:
    """Put every world of an environment into the same constructed layout."""

    def place(
        env: VecEnv,
        robot: tuple[float, float] = (0.0, 0.0),
        yaw: float = 0.0,
        goal: tuple[float, ...] = (1.5, 1.5),
        hazards: list[tuple[float, ...]] | None = None,
        pillars: list[tuple[float, ...]] | None = None,
    ) -> Step:
        b, far = env.num_envs, (50.0, 50.0)

        def points(given: list[tuple[float, ...]] | None, count: int, z: float) -> torch.Tensor:
            rows = [p if len(p) == 3 else (*p, z) for p in (given or [])]
            rows += [(*far, z)] * (count - len(rows))
            return torch.tensor(rows).reshape(count, 3).expand(b, count, 3)

        return env.reset_to(
            torch.tensor(robot).expand(b, 2),
            torch.full((b,), yaw),
            points([goal], 1, 0.16)[:, 0],
            points(hazards, env.hazards.shape[1], 0.02),
            points(pillars, env.pillars.shape[1], 0.5),
        )

    return place


@pytest.fixture
def point() -> VecEnv:
    return statewise.make_env("Point-Hazard-8", num_envs=2)
