"""The suites as Gymnasium environments: `gymnasium.make("statewise/Point-Hazard-8-v0")`.

`make` gives one world that waits for `reset` when its episode ends. `make_vec` gives the batched
`VecEnv` itself, which begins new episodes in the same step. Both speak numpy.

`info` holds, of the step just taken: `cost` (the sum over constraints), `costs [m]` (one for each),
`cost_max [m]` (the largest of the episode so far), `clearance [m]` (negative once a constraint is
broken), `success`, and `sim_fault`.
"""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from torch import Tensor

from statewise.envs.suites import Suite, parse_suite
from statewise.envs.vec_env import VecEnv
from statewise.types import Step

Floats = NDArray[np.float32]

_RENDER_MODES = ("human", "rgb_array")


class _Worlds:
    """What one world and many of them have in common."""

    metadata: dict[str, Any] = {"render_modes": list(_RENDER_MODES), "render_fps": 50}  # noqa: RUF012
    np_random: np.random.Generator

    def __init__(
        self,
        suite: str,
        num_envs: int = 1,
        render_mode: str | None = None,
        max_episode_steps: int | None = None,
        width: int = 960,
        height: int = 720,
        **options: Any,
    ) -> None:
        if render_mode is not None and render_mode not in _RENDER_MODES:
            raise ValueError(
                f"unknown render_mode {render_mode!r}: use {' or '.join(_RENDER_MODES)}"
            )
        self.worlds = VecEnv(_suite(suite, max_episode_steps), num_envs, **options)
        self.render_mode, self._size = render_mode, (width, height)
        self.metadata = self.metadata | {"render_fps": round(1.0 / self.worlds.spec.control_dt)}
        self._started = False
        self._shown: Any = None
        """The Renderer or, in "human" mode, the Viewer. Opened by the first reset."""
        self._due = 0.0

    def _begin(self, seed: int | None, options: dict[str, Any] | None, anew: bool) -> Tensor:
        """Reset the worlds; observations `[B, n]`. `anew`: the episodes that ran were broken off."""
        if options:
            raise ValueError(
                f"unknown reset option {next(iter(options))!r}: these environments have none"
            )
        if seed is None and not self._started:  # draw one, as other environments do
            seed = int(self.np_random.integers(2**31))
        step = self.worlds.reset(seed)
        self._started = True
        if self.render_mode is not None:
            self._show(anew)
        return step.obs

    def _show(self, anew: bool) -> None:
        """Show the first moment of an episode."""
        from statewise.envs import render

        if self._shown is None and self.render_mode == "human":
            self._shown = render.Viewer(self.worlds)
        elif self._shown is None:
            self._shown = render.Renderer(self.worlds, *self._size)
        if anew:
            self._shown.tally = None
        if self.render_mode == "human":
            self._shown.sync()

    def _step(self, action: Floats, shape: tuple[int, ...]) -> tuple[Step, dict[str, NDArray[Any]]]:
        """Advance; the step and its info, a batch for each name."""
        given = torch.from_numpy(np.array(action))
        self.worlds.check_action(given, shape, finite=False)  # the worlds look at the values
        rows = given.to(self.worlds.device, torch.float32).reshape(self.worlds.num_envs, -1)
        step = self.worlds.step(rows)
        self._follow(step)
        return step, {
            "cost": _numpy(step.true_cost.double().sum(dim=1)),
            "costs": _numpy(step.true_cost),
            "cost_max": _numpy(step.true_cost_max),
            "clearance": _numpy(step.clearance),
            "success": _numpy(step.success),
            "sim_fault": _numpy(step.sim_fault),
        }

    def _follow(self, step: Step) -> None:
        """Count a step for the readout. Update the window, and wait for the clock."""
        if self._shown is not None:
            self._shown.follow(step)
        if self._shown is not None and self.render_mode == "human":
            self._shown.sync()
            now = time.perf_counter()
            time.sleep(max(0.0, self._due - now))
            self._due = max(self._due, now) + self.worlds.spec.control_dt

    def _pictures(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture of each world; None in a window, which is up to date anyway."""
        if not self._started:
            raise RuntimeError("call reset() before render()")
        if self.render_mode is None:
            gymnasium.logger.warn(
                'render() shows nothing without a render mode: pass render_mode="rgb_array" or '
                '"human" when making the environment'
            )
        if self._shown is None or self.render_mode == "human":
            return None
        return tuple(self._shown.frame(world) for world in range(self.worlds.num_envs))

    def _close(self) -> None:
        if self._shown is not None:
            self._shown.close()
        self._shown = None


class GoalEnv(_Worlds, gymnasium.Env[Floats, Floats]):
    """One world of a suite.

    settings: `render_mode`, `max_episode_steps` (instead of the suite's), `width` and `height` of a
        picture, and the options of `VecEnv`. `threads` is 1 unless given.
    """

    def __init__(self, suite: str, **settings: Any) -> None:
        super().__init__(suite, 1, autoreset=False, **{"threads": 1} | settings)
        self.observation_space = observation_space(self.worlds)
        self.action_space = action_space(self.worlds)
        self._ended = False

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode. A seed starts the sequence of layouts anew; without one it goes on.

        The sequence is that of `make_env(suite, num_envs=1).reset(seed)`.
        """
        super().reset(seed=seed)
        obs = self._begin(seed, options, anew=not self._ended)
        self._ended = False
        return _numpy(obs[0]), {}

    def step(self, action: Floats) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Take an action `[a]`. At the end of an episode the observation is its last one."""
        if self._ended:
            raise RuntimeError("the episode has ended: call reset() before the next step()")
        step, infos = self._step(action, (self.worlds.spec.action_size,))
        self._ended = bool(step.ended[0])
        info = {name: batch[0] if batch.ndim > 1 else batch[0].item()
                for name, batch in infos.items()}  # fmt: skip
        return (_numpy(step.final_obs[0]), step.reward[0].item(), bool(step.terminated[0]),
                bool(step.truncated[0]), info)  # fmt: skip

    def render(self) -> NDArray[np.uint8] | None:
        """A picture `[height, width, 3]`, or the window brought up to date in "human" mode."""
        frames = self._pictures()
        return None if frames is None else frames[0]

    def close(self) -> None:
        self._close()


class GoalVectorEnv(_Worlds, VectorEnv[Floats, Floats, NDArray[Any]]):
    """Many worlds of a suite, stepped together; episodes begin anew in the step that ends them.

    Where one ended, the observation is the first of the new episode and everything else is of the
    old one. Its last observation and its info are in `final_obs` and `final_info`, in the form of
    Gymnasium's `SyncVectorEnv` in this mode. (There, `cost` and the others are absent where an
    episode ended. Here they hold the step's own values in every world, so that costs add up.)

    settings: those of `GoalEnv`. `threads` is 0, for all cores, unless given.
    """

    metadata = _Worlds.metadata | {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, suite: str, num_envs: int = 1, **settings: Any) -> None:
        super().__init__(suite, num_envs, **settings)
        self.num_envs = num_envs
        self.single_observation_space = observation_space(self.worlds)
        self.single_action_space = action_space(self.worlds)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Floats, dict[str, Any]]:
        """Begin an episode in every world, as `make_env(suite, num_envs).reset(seed)` does."""
        super().reset(seed=seed)
        return _numpy(self._begin(seed, options, anew=True)), {}

    def step(
        self, actions: Floats
    ) -> tuple[Floats, NDArray[Any], NDArray[Any], NDArray[Any], dict[str, Any]]:
        """Take the actions `[B, a]`: observations `[B, n]`, rewards, terminations, truncations."""
        step, infos = self._step(actions, (self.num_envs, self.worlds.spec.action_size))
        return (_numpy(step.obs), _numpy(step.reward.double()), _numpy(step.terminated),
                _numpy(step.truncated), _batched(infos, step))  # fmt: skip

    def render(self) -> tuple[NDArray[np.uint8], ...] | None:
        """A picture of each world, or the window on the first one in "human" mode."""
        return self._pictures()

    def close_extras(self, **kwargs: Any) -> None:
        self._close()


def observation_space(worlds: VecEnv) -> gymnasium.spaces.Box[np.float32]:
    """Lidars read 0 to 1, the compass -1 to 1, and the robot's own sensors any finite number."""
    limit = np.finfo(np.float32).max
    low = np.full(worlds.spec.obs_size, -limit, dtype=np.float32)
    high = np.full(worlds.spec.obs_size, limit, dtype=np.float32)
    for name, block in worlds.spec.blocks.items():
        if name.endswith(("_lidar", "_compass")):
            low[block], high[block] = (0.0 if name.endswith("_lidar") else -1.0), 1.0
    return gymnasium.spaces.Box(low, high, dtype=np.float32)


def action_space(worlds: VecEnv) -> gymnasium.spaces.Box[np.float32]:
    return gymnasium.spaces.Box(-1.0, 1.0, (worlds.spec.action_size,), dtype=np.float32)


def _suite(name: str, max_episode_steps: int | None) -> Suite:
    suite = parse_suite(name)
    if max_episode_steps is None:
        return suite
    if max_episode_steps < 1:
        raise ValueError(f"max_episode_steps is {max_episode_steps}: an episode has at least 1")
    return dataclasses.replace(suite, max_episode_steps=max_episode_steps)


def _batched(infos: dict[str, NDArray[Any]], step: Step) -> dict[str, Any]:
    """Infos of many worlds in Gymnasium's form: beside each `name`, `_name` tells who has it."""
    ended = _numpy(step.ended)
    batched: dict[str, Any] = _masked(infos, np.ones_like(ended))
    if ended.any():
        final_obs = np.full(len(ended), None, dtype=object)
        for world in np.flatnonzero(ended):
            final_obs[world] = _numpy(step.final_obs[world])
        final = {"final_obs": final_obs, "final_info": _masked(infos, ended)}
        batched |= final | {f"_{name}": ended.copy() for name in final}
    return batched


def _masked(infos: dict[str, NDArray[Any]], mask: NDArray[np.bool_]) -> dict[str, Any]:
    masked: dict[str, Any] = {}
    for name, values in infos.items():
        some = mask.reshape(-1, *[1] * (values.ndim - 1))
        masked[name] = np.where(some, values, np.zeros_like(values))
        masked[f"_{name}"] = mask.copy()
    return masked


def _numpy(tensor: Tensor) -> NDArray[Any]:
    """A copy: the caller may write into it."""
    return np.array(tensor.cpu().numpy())
