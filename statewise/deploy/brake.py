"""Fits a brake: a linear feedback that slows a robot down, from its response to random actions."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from statewise.envs.env import Env
from statewise.training.policy import random_policy

_VELOCITY = "velocimeter"
"""The block of the observation that holds the velocity in the robot's own frame."""
_STEPS, _STOP_TIME, _LEAST_EXPLAINED, _LEAST_STRENGTH = 150, 0.1, 0.5, 0.3
"""Steps of random actions; seconds in which small velocities should vanish; the share of the changes of
velocity that actions must explain; how strong an actuator must be, as a share of the strongest, to be
used (steering is not a brake). All were chosen by hand on Point."""


def fit_brake(env: Env, seed: int) -> dict[str, Any] | None:
    """Return the gain K of the brake a = -K v, and where v is in the observation. None if none fits.

    The model is Δv = A v + B a. It does not fit robots with legs or fins, which move by a gait.
    """
    block = env.spec.blocks.get(_VELOCITY)
    if block is None:
        return None
    act, step = random_policy(env, seed), env.reset(seed=seed)
    rows: list[torch.Tensor] = []
    for _ in range(_STEPS):
        before, action = step.obs[:, block], act(step)
        step = env.step(action)
        # In the rows that ended, the observation is that of the next episode.
        pair = torch.cat([before, action, step.final_obs[:, block] - before], dim=1)
        rows.append(pair[~step.sim_fault])
    data = torch.cat(rows).double().cpu().numpy()
    size = block.stop - block.start
    known, change = data[:, :-size], data[:, -size:]
    full, left = _fit(known, change)
    _, left_without = _fit(known[:, :size], change)
    if left > (1.0 - _LEAST_EXPLAINED) * left_without:
        return None
    drift, push = np.eye(size) + full[:size].T, full[size:].T
    strength = np.linalg.norm(push, axis=0)
    push = push * (strength >= _LEAST_STRENGTH * strength.max())
    gain = np.linalg.pinv(push) @ drift * min(1.0, env.spec.control_dt / _STOP_TIME)
    return {"start": block.start, "stop": block.stop, "gain": gain.round(6).tolist()}


def _fit(inputs: np.ndarray, outputs: np.ndarray) -> tuple[np.ndarray, float]:
    """Solve least squares. Return the coefficients and the sum of the squared residuals."""
    found = np.linalg.lstsq(inputs, outputs, rcond=None)[0]
    return found, float(((outputs - inputs @ found) ** 2).sum())
