"""Other people's environments: any Gymnasium environment with box actions, as a batch of worlds.

    env = import_env("gym:DockingCart-v0", num_envs=16, modules=("own_environment",))

What is asked of the environment, and what it may offer, is told in `docs/own_environment.md`.
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor

from statewise.envs.foreign import (
    LARGEST,
    AnyEnv,
    Blame,
    Channel,
    action_box,
    control_dt,
    env_name,
    find_channels,
    five_values,
    flat_size,
    keeper,
    observation_blocks,
    plain,
    random_state,
    read_costs,
    restored,
    time_limits,
)
from statewise.envs.seeds import part_of
from statewise.plugins import import_modules
from statewise.types import EnvSpec, Step, first_step

log = logging.getLogger("statewise")

Floats = NDArray[np.float32]

PREFIX = "gym:"
"""What the name of an environment that is not a suite begins with."""
NO_LIMIT = 100_000
"""Episodes of an environment without a time limit are truncated after this many steps."""


def import_env(
    name: str,
    num_envs: int = 1,
    seed: int = 0,
    modules: str | Sequence[str] = (),
    cost_keys: str | Sequence[str] = (),
    cost_ceiling: float = 1.0,
    max_episode_steps: int | None = None,
    device: str = "cpu",
) -> ImportedEnv:
    """A batch of worlds of a registered environment: "gym:MyEnv-v0" or "gym:my_module:MyEnv-v0".

    The rest is as in `ImportedEnv`.
    """
    return ImportedEnv(name.removeprefix(PREFIX), num_envs, seed, modules, cost_keys, cost_ceiling,
                       max_episode_steps, device)  # fmt: skip


class ImportedEnv:
    """`num_envs` instances of a Gymnasium environment, stepped one after the other.

    env_id: the id it is registered under ("MyEnv-v0", "my_module:MyEnv-v0"), or a function that
        makes a new instance at every call.
    modules: imported first, such as the one that registers the id.
    cost_keys: entries of `info` to take as costs, one constraint for each, instead of `costs` or
        `cost`.
    cost_ceiling: the cost of a step that counts as large. It is the size constraints are compared
        by, and what a fault is charged, unless a larger cost has been seen.
    max_episode_steps: instead of the time limit the id is registered with.

    The number of constraints is found by one step of an instance that is then thrown away: an
    environment that shows no cost there has none.
    """

    def __init__(
        self,
        env_id: str | Callable[[], AnyEnv],
        num_envs: int,
        seed: int = 0,
        modules: str | Sequence[str] = (),
        cost_keys: str | Sequence[str] = (),
        cost_ceiling: float = 1.0,
        max_episode_steps: int | None = None,
        device: str = "cpu",
    ) -> None:
        _require(num_envs >= 1, f"num_envs is {num_envs}: ask for at least 1 world")
        _require(seed >= 0, f"seed is {seed}: give 0 or more")
        good = 0 < cost_ceiling <= LARGEST
        _require(good, f"cost_ceiling is {cost_ceiling}: give a number above 0, finite as float32")
        good = max_episode_steps is None or max_episode_steps >= 1
        _require(good, f"max_episode_steps is {max_episode_steps}: an episode has at least 1")
        import_modules(modules)
        make, limit = _maker(env_id) if isinstance(env_id, str) else (env_id, None)
        self._envs: list[AnyEnv] = []
        # Whatever goes wrong, the probe is closed, and the worlds that were made until then.
        with closing(make()) as probe, ExitStack() as undo:
            undo.callback(self.close)
            self.name = PREFIX + env_name(probe)
            self.num_envs, self.seed = num_envs, seed
            self.device = torch.device(device)
            self.faults = 0
            """How many episodes a non-finite observation has ended since the environment was made."""
            self._space = probe.observation_space
            self._actions = action_box(probe.action_space, self.name)
            flat = flat_size(self._space, self.name)
            self._channels = self._probe_costs(probe, _names(cost_keys))
            self.spec = EnvSpec(
                name=self.name,
                obs_size=flat,
                action_size=math.prod(self._actions.shape),
                cost_names=tuple(c.name for c in self._channels),
                cost_ceiling=(float(cost_ceiling),) * len(self._channels),
                max_episode_steps=min(
                    [max_episode_steps or limit or NO_LIMIT, *time_limits(probe)]
                ),
                control_dt=control_dt(probe),
                blocks=observation_blocks(self._space, flat),
            )
            for _ in range(num_envs):
                self._envs.append(make())
            distinct = {id(e.unwrapped) for e in (probe, *self._envs)}
            _require(len(distinct) == num_envs + 1,
                     f"{self.name}: the function gave the same instance twice; let it make a new one "
                     f"at every call")  # fmt: skip
            undo.pop_all()
        keepers = [keeper(e) for e in self._envs]
        self._keepers = [k for k in keepers if k is not None]
        self.exact_resume = len(self._keepers) == num_envs
        """Whether a `state_dict` continues exactly; otherwise loading one begins new episodes."""

        self._ready = False
        self._fresh: Step | None = None
        self._resets = 0
        self._obs = np.zeros((num_envs, flat), np.float32)
        self._time = np.zeros(num_envs, np.int64)
        self._cost_max = np.zeros((num_envs, len(self._channels)), np.float32)
        self._ceiling = cost_ceiling
        self._largest = np.full(len(self._channels), cost_ceiling, np.float32)

    # Reset and step ----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world.

        With a seed, and the first time, each world gets a seed of its own derived from it; later
        resets go on with the worlds' own random generators.
        """
        _require(seed is None or seed >= 0, f"seed is {seed}: give 0 or more")
        if seed is not None:
            self.seed = seed
        seeded = seed is not None or self._resets == 0
        if seeded:
            self._resets = 0
            self._largest = np.full(len(self._channels), self._ceiling, np.float32)
        return self._begin(seeded)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action `[B, a]`, each component from -1 to 1."""
        self._check_action(action)
        self._ready = False  # until all worlds have been stepped: an error in one ends them all
        results = []
        controls = self._controls(action)
        with Blame(self.name, "step") as at:
            for at.world, env in enumerate(self._envs):
                results.append(env.step(controls[at.world]))

        final_obs, reward, terminated, truncated, infos = self._unpack(results)
        fault = np.asarray(~np.isfinite(final_obs).all(axis=1))
        final_obs[fault], reward[fault] = self._obs[fault], 0.0
        self._check_reward(reward)
        cost = self._costs(infos, fault)
        before, after = self._cost_max, np.maximum(self._cost_max, cost)

        self._time += 1
        terminated |= fault
        truncated = (truncated | (self._time >= self.spec.max_episode_steps)) & ~terminated
        self._count_faults(fault)
        obs = self._restart(terminated | truncated, final_obs, after)
        self._ready = True
        parts = (obs, reward, cost, before, after, terminated, truncated, final_obs, fault)
        return Step(*(torch.from_numpy(part).to(self.device) for part in parts))

    def close(self) -> None:
        """Close every world, the others too if one fails to."""
        with ExitStack() as stack:
            for env in self._envs:
                stack.callback(env.close)

    # Saving ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a continuation needs: tensors and plain values.

        With `exact_resume` that is everything. Otherwise it is little more than the number of
        episodes begun, from which `load_state_dict` derives the seed of new ones.
        """
        self._check_ready("state_dict")
        state: dict[str, Any] = {
            "name": self.name,
            "num_envs": self.num_envs,
            "seed": self.seed,
            "faults": self.faults,
            "resets": self._resets,
            "largest": torch.from_numpy(self._largest.copy()),
            "worlds": None,
        }
        if self.exact_resume:
            with Blame(self.name, "get_state") as at:
                worlds = []
                for at.world, keeper in enumerate(self._keepers):
                    worlds.append(plain([keeper.get_state(), random_state(keeper)]))  # type: ignore[attr-defined]
            state |= {
                "worlds": worlds,
                "obs": torch.from_numpy(self._obs.copy()),
                "time": torch.from_numpy(self._time.copy()),
                "cost_max": torch.from_numpy(self._cost_max.copy()),
            }
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict`, exactly if the worlds can be restored.

        Otherwise new episodes begin: a warning says so, and `fresh_step` gives their first Step.
        """
        mine, theirs = (self.name, self.num_envs), (state["name"], state["num_envs"])
        _require(mine == theirs, f"the saved environment is {theirs} (name, worlds), this one "
                 f"{mine}: make it alike before restoring")  # fmt: skip
        self.seed, self.faults, self._resets = state["seed"], state["faults"], state["resets"]
        self._largest = state["largest"].cpu().numpy().copy()
        resets = self._resets
        self._fresh = self._begin(seeded=True)
        if not self.exact_resume or state["worlds"] is None:
            log.warning(
                "%s cannot be restored exactly, since it has no get_state and set_state: training "
                "goes on with new episodes in all %d worlds",
                self.name,
                self.num_envs,
            )
            return
        with Blame(self.name, "set_state") as at:
            for at.world, keeper in enumerate(self._keepers):
                saved, random = restored(state["worlds"][at.world])
                keeper.set_state(saved)  # type: ignore[attr-defined]
                keeper.unwrapped.np_random.bit_generator.state = random
        self._fresh, self._resets = None, resets
        self._obs = state["obs"].cpu().numpy().copy()
        self._time = state["time"].cpu().numpy().copy()
        self._cost_max = state["cost_max"].cpu().numpy().copy()

    def fresh_step(self) -> Step | None:
        """The first Step of the episodes that the last `load_state_dict` began; None if it restored
        the old ones exactly, so that the Step saved with them is still the one to act on.
        """
        return self._fresh

    # Inside ------------------------------------------------------------------------------------

    def _begin(self, seeded: bool) -> Step:
        """New episodes everywhere; with seeds derived from (seed, world, episodes begun so far)."""
        begun = self._resets
        obs = np.empty_like(self._obs)
        for world in range(self.num_envs):
            obs[world] = self._reset_world(world, self._derived(world, begun) if seeded else None)
        self._obs = obs
        self._time = np.zeros_like(self._time)
        self._cost_max = np.zeros_like(self._cost_max)
        self._ready = True
        return first_step(torch.from_numpy(obs).to(self.device), self.spec.num_costs)

    def _restart(self, ended: NDArray[np.bool_], final_obs: Floats, cost_max: Floats) -> Floats:
        """Begin new episodes where they ended; the observations `[B, n]` to act on."""
        obs = final_obs
        if ended.any():
            # What is handed out is replaced, never written.
            obs, cost_max = obs.copy(), cost_max.copy()
            for world in np.flatnonzero(ended).tolist():
                obs[world] = self._reset_world(world, None)
            cost_max[ended], self._time[ended] = 0.0, 0
        self._obs, self._cost_max = obs, cost_max
        return obs

    def _reset_world(self, world: int, seed: int | None) -> Floats:
        """Begin an episode in one world; its first observation `[n]`."""
        with Blame(self.name, "reset", world):
            result = self._envs[world].reset(seed=seed)
        self._resets += 1
        _require(isinstance(result, tuple) and len(result) == 2,
                 f"world {world} of {self.name}: reset() must return (observation, info), as in "
                 f"Gymnasium 1")  # fmt: skip
        obs = self._flat(world, result[0])
        if not np.isfinite(obs).all():
            raise ValueError(
                f"world {world} of {self.name}: reset() gave an observation that is not finite: "
                f"{obs.tolist()}"
            )
        return obs

    def _derived(self, world: int, begun: int) -> int:
        return int(part_of(self.seed, world, begun).generate_state(1)[0])

    def _controls(self, action: Tensor) -> NDArray[Any]:
        """[B, ...] actions from -1 to 1, stretched to the bounds of the action space."""
        box = self._actions
        share = (action.detach().cpu().double().numpy().clip(-1.0, 1.0) + 1.0) / 2
        share = share.reshape(self.num_envs, *box.shape)
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        return (low + (high - low) * share).clip(low, high).astype(box.dtype)

    def _unpack(
        self, results: list[tuple[Any, ...]]
    ) -> tuple[Floats, Floats, NDArray[np.bool_], NDArray[np.bool_], list[dict[str, Any]]]:
        """Observations `[B, n]`, rewards, terminations, truncations `[B]` and infos."""
        batch = self.num_envs
        obs = np.empty((batch, self.spec.obs_size), np.float32)
        reward = np.empty(batch, np.float32)
        terminated, truncated = np.empty(batch, np.bool_), np.empty(batch, np.bool_)
        infos = []
        for world, result in enumerate(results):
            last, reward[world], terminated[world], truncated[world], info = five_values(
                result, f"world {world} of {self.name}"
            )
            obs[world] = self._flat(world, last)
            infos.append(info)
        return obs, reward, terminated, truncated, infos

    def _flat(self, world: int, obs: Any) -> Floats:
        """[n] float32"""
        if not isinstance(self._space, spaces.Box):
            return np.asarray(spaces.utils.flatten(self._space, obs), np.float32)
        array = np.asarray(obs, np.float32)
        if array.shape != self._space.shape:
            raise ValueError(
                f"world {world} of {self.name}: the observation has shape {array.shape}, its space "
                f"{self._space.shape}"
            )
        return array.reshape(-1)

    def _costs(self, infos: list[dict[str, Any]], fault: NDArray[np.bool_]) -> Floats:
        """[B, m] as reported; after a fault the largest ever seen, and at least the ceiling"""
        cost = np.zeros((self.num_envs, len(self._channels)), np.float32)
        for world, info in enumerate(infos):
            if not fault[world]:
                cost[world] = read_costs(self._channels, info, f"world {world} of {self.name}")
        self._largest = np.maximum(self._largest, cost.max(axis=0))
        cost[fault] = self._largest
        return cost

    def _probe_costs(self, probe: AnyEnv, keys: tuple[str, ...]) -> tuple[Channel, ...]:
        """The costs that one step of an instance shows."""
        with Blame(self.name, "reset"):
            probe.reset(seed=self._derived(0, 0))
        middle = (self._actions.low / 2 + self._actions.high / 2).astype(self._actions.dtype)
        with Blame(self.name, "step"):
            result = probe.step(middle)
        info = five_values(result, f"the trial step of {self.name}")[-1]
        channels = find_channels(info, keys, self.name)
        for channel in channels:
            wrong = f"{self.name} calls a constraint {channel.name!r}: give it a name of one line"
            _require(channel.name.isprintable(), wrong)
        read_costs(channels, info, f"the trial step of {self.name}")
        return channels

    def _count_faults(self, fault: NDArray[np.bool_]) -> None:
        for world in np.flatnonzero(fault).tolist():
            self.faults += 1
            log.warning(
                "%s: the observation of world %d is not finite: its episode ends, at the highest "
                "cost",
                self.name,
                world,
            )

    def _check_ready(self, call: str) -> None:
        if not self._ready:
            raise RuntimeError(f"call reset() before {call}()")

    def _check_reward(self, reward: Floats) -> None:
        if not np.isfinite(reward).all():
            world = int(np.flatnonzero(~np.isfinite(reward))[0])
            raise ValueError(
                f"world {world} of {self.name} gave the reward {reward[world]}: give a finite one"
            )

    def _check_action(self, action: Tensor) -> None:
        self._check_ready("step")
        wanted = (self.num_envs, self.spec.action_size)
        if not isinstance(action, Tensor) or not action.is_floating_point():
            kind = action.dtype if isinstance(action, Tensor) else type(action).__name__
            raise TypeError(f"the action is of type {kind}: pass a tensor of floating point values")
        if tuple(action.shape) != wanted:
            raise ValueError(
                f"the action has shape {tuple(action.shape)}; {self.name} with {self.num_envs} "
                f"worlds takes {wanted}"
            )
        finite = torch.isfinite(action)
        if not finite.all():
            world = int((~finite.all(dim=1)).nonzero()[0, 0])
            raise ValueError(
                f"the action of world {world} is not finite: {action[world].tolist()}. Nothing was "
                f"stepped"
            )


# Making one ------------------------------------------------------------------------------------


def check_id(name: str) -> None:
    """Raise ValueError if Gymnasium knows no environment of that name, `gym:ID`."""
    _maker(name.removeprefix(PREFIX))


def _maker(env_id: str) -> tuple[Callable[[], AnyEnv], int | None]:
    """How to make an instance, and its time limit.

    The limit is counted by ImportedEnv: the wrapper that `make` adds for it takes five values only.
    """
    module, _, id = env_id.rpartition(":")
    import_modules((module,) if module else ())
    try:
        spec = copy.copy(gymnasium.spec(id))
    except gymnasium.error.Error as error:
        raise ValueError(
            f"Gymnasium knows no environment {id!r} ({error}). Import the module that registers "
            f"it: --import my_module, or {PREFIX}my_module:{id}"
        ) from error
    limit, spec.max_episode_steps, spec.disable_env_checker = spec.max_episode_steps, None, True
    return lambda: gymnasium.make(spec), limit


def _names(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _require(good: bool, message: str) -> None:
    if not good:
        raise ValueError(message)
