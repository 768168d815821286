"""Gymnasium environments as batches of worlds to train in: `make_env("gym:MyEnv-v0", 16)`.

`docs/own_environment.md` says what is asked of such an environment, and what it may offer.
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
from numpy.typing import NDArray
from torch import Tensor

from statewise.envs import gym_protocol as gym
from statewise.envs.env import Env, check_seed, check_worlds
from statewise.envs.gym_protocol import AnyEnv, Bools, Floats, World
from statewise.envs.seeds import part_of
from statewise.plugins import GYM, import_modules, module_and_id
from statewise.settings import asked, typed
from statewise.types import EnvSpec, Step, first_step

log = logging.getLogger("statewise")

NO_LIMIT = 100_000
"""Episodes of an environment without a time limit are truncated after this many steps."""
_SAVED = ("obs", "time", "cost_max", "min_clearance")
"""Arrays of the running episodes: `_obs` and so on."""


class GymEnv(Env):
    """`num_envs` instances of a Gymnasium environment, stepped one after the other.

    env_id: the id it is registered under ("gym:MyEnv-v0", "gym:my_module:MyEnv-v0"), or a function
        that makes a new instance at every call.
    device: where the tensors are.
    modules: imported first, such as the one that registers the id.
    cost_keys: entries of `info` to take as costs, one constraint for each, instead of `costs` or
        `cost`.
    cost_ceiling: the cost of a step that counts as large. Constraints are compared by it, and a
        fault is charged with it, unless a larger cost has been seen.
    max_episode_steps: instead of the time limit the id is registered with.
    render_mode: how the worlds are drawn, "rgb_array" for `picture` or "human" for windows.

    The constraints are found by one step of an instance that is then closed. If it shows no cost,
    there are none.
    """

    @typed
    def __init__(
        self,
        env_id: str | Callable[[], AnyEnv],
        num_envs: int = 1,
        seed: int = 0,
        device: str = "cpu",
        *,
        modules: str | Sequence[str] = (),
        cost_keys: str | Sequence[str] = (),
        cost_ceiling: float = 1.0,
        max_episode_steps: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_worlds(num_envs, seed)
        if not 0 < cost_ceiling <= gym.LARGEST:
            raise ValueError(
                f"cost_ceiling is {cost_ceiling}: give a number above 0, finite as float32"
            )
        if max_episode_steps is not None and max_episode_steps < 1:
            raise ValueError(f"max_episode_steps is {max_episode_steps}: an episode has at least 1")
        import_modules(modules)
        make, limit = _maker(env_id) if isinstance(env_id, str) else (env_id, None)
        self.num_envs, self.seed, self.device = num_envs, seed, torch.device(device)
        self._worlds: list[World] = []
        # Whatever goes wrong, the probe is closed, and the worlds that were made until then.
        with closing(_first(make)) as probe, ExitStack() as undo:
            undo.callback(self.close)
            name = GYM + gym.env_name(probe)
            self._actions = gym.action_box(probe.action_space, name)
            blocks = gym.observation_blocks(probe.observation_space, name)
            flat = gymnasium.spaces.utils.flatdim(probe.observation_space)
            self._keys = (cost_keys,) if isinstance(cost_keys, str) else tuple(cost_keys)
            costs, self._gives_clearance = self._probe(World(probe, f"the trial step of {name}"))
            limits = [n for n in (max_episode_steps or limit,) if n] + gym.time_limits(probe)
            self.has_time_limit = bool(limits)
            self.spec = EnvSpec(
                name=name,
                obs_size=flat,
                action_size=math.prod(self._actions.shape),
                cost_names=costs,
                cost_ceiling=(float(cost_ceiling),) * len(costs),
                max_episode_steps=min(limits, default=NO_LIMIT),
                control_dt=gym.control_dt(probe),
                blocks=blocks,
            )
            shown = _shown(make, render_mode, probe, name)
            for i in range(num_envs):
                self._worlds.append(World(shown(), f"world {i} of {name}"))
            if len({id(e.unwrapped) for e in (probe, *(w.env for w in self._worlds))}) <= num_envs:
                raise ValueError(
                    f"{name}: the function gave the same instance twice; let it make a new one at "
                    f"every call"
                )
            undo.pop_all()
        self.exact_resume = all(world.keeper is not None for world in self._worlds)
        """Whether a `state_dict` continues exactly. Otherwise loading one begins new episodes."""

        self._recording, self._frame = False, None  # type: bool, dict[str, Any] | None
        self._faults = self._resets = 0
        self._obs = np.zeros((num_envs, flat), np.float32)
        self._time = np.zeros(num_envs, np.int64)
        self._cost_max = np.zeros((num_envs, len(costs)), np.float32)
        self._min_clearance = np.full_like(self._cost_max, np.inf)
        self._largest = np.array(self.spec.cost_ceiling, np.float32)
        """[m] the largest costs seen, and at least the ceiling: what a fault is charged with"""

    @property
    def faults(self) -> int:
        """How many episodes a non-finite observation has ended since the environment was made."""
        return self._faults

    def picture(self, world: int = 0) -> NDArray[np.uint8]:
        """One world as it draws itself, uint8 `[height, width, 3]`. Needs render_mode "rgb_array"."""
        return self._worlds[world].picture()

    def record(self, on: bool = True) -> None:
        """Keep a `frame` of every step from now on, or stop doing so."""
        self._recording, self._frame = on, None

    @property
    def frame(self) -> dict[str, Any]:
        """The worlds after the last step and before any restart.

        `obs [B, n]`; `state`, one of each world, if it has `get_state`; `qpos [B, nq]`, if MuJoCo
        simulates it.
        """
        if self._frame is None:
            raise RuntimeError("no frame yet: call record() before reset() or step()")
        return self._frame

    # Reset and step ----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world.

        With a seed, and the first time, each world gets a seed of its own derived from it. Later
        resets continue with the worlds' own random generators.
        """
        check_seed(seed)
        if seed is not None:
            self.seed = seed
        seeded = seed is not None or self._resets == 0
        if seeded:
            self._resets = 0
            self._largest = np.array(self.spec.cost_ceiling, np.float32)
        return self._begin(seeded)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action `[B, a]`, each component from -1 to 1."""
        self.check_action(action)
        self._ready = False  # until all worlds have been stepped: an error in one ends them all
        final_obs, reward, cost, terminated, truncated, fault, infos = self._step_worlds(
            action.detach()
        )
        self._keep_frame(final_obs)
        self._largest = np.maximum(self._largest, cost.max(axis=0))
        cost[fault] = self._largest
        clearance = self._clearances(infos, cost, fault)
        min_clearance = np.minimum(self._min_clearance, clearance)
        cost_max_before, cost_max = self._cost_max, np.maximum(self._cost_max, cost)
        self._time += 1
        terminated |= fault
        truncated = (truncated | (self._time >= self.spec.max_episode_steps)) & ~terminated
        by_task = zip(infos, (terminated & ~fault).tolist(), strict=True)
        success = np.array([gym.success_in(info, ended) for info, ended in by_task]) & ~fault
        obs = self._restart(terminated | truncated, final_obs, cost_max, min_clearance)
        self._ready = True
        parts = (obs, reward, cost, cost_max_before, cost_max, terminated, truncated, final_obs,
                 fault, success, clearance, min_clearance)  # fmt: skip
        return Step.from_costs(*(torch.from_numpy(part).to(self.device) for part in parts))

    def close(self) -> None:
        """Close every world, the others too if one fails to."""
        with ExitStack() as stack:
            for world in self._worlds:
                stack.callback(world.env.close)

    # Saving ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a continuation needs: tensors and plain values.

        With `exact_resume` that is everything. Otherwise it is little more than the number of
        episodes begun, from which `load_state_dict` derives the seeds of new ones.
        """
        self.check_ready("state_dict")
        state: dict[str, Any] = {
            "name": self.spec.name,
            "num_envs": self.num_envs,
            "seed": self.seed,
            "faults": self.faults,
            "resets": self._resets,
            "largest": torch.from_numpy(self._largest.copy()),
            "worlds": None,
        }
        if self.exact_resume:
            state["worlds"] = [world.save() for world in self._worlds]
            for name in _SAVED:
                state[name] = torch.from_numpy(getattr(self, f"_{name}").copy())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> Step | None:
        """Go on from a `state_dict`: exactly if the worlds can be restored, else with new episodes.

        New ones are announced by a warning, and their first Step is returned.
        """
        mine, theirs = (self.spec.name, self.num_envs), (state["name"], state["num_envs"])
        if mine != theirs:
            raise ValueError(
                f"the saved environment is {theirs} (name, worlds), this one {mine}: make it alike "
                f"before restoring"
            )
        self.seed, self._faults, self._resets = state["seed"], state["faults"], state["resets"]
        self._largest = state["largest"].cpu().numpy().copy()
        fresh = self._begin(seeded=True)
        if not self.exact_resume or state["worlds"] is None:
            log.warning(
                "%s cannot be restored exactly, since it has no get_state and set_state: training "
                "goes on with new episodes in all worlds", self.spec.name
            )  # fmt: skip
            return fresh
        for world, saved in zip(self._worlds, state["worlds"], strict=True):
            world.restore(saved)
        self._resets = state["resets"]
        for name in _SAVED:
            setattr(self, f"_{name}", state[name].cpu().numpy().copy())
        return None

    # Inside ------------------------------------------------------------------------------------

    def _begin(self, seeded: bool) -> Step:
        """New episodes everywhere; with seeds derived from (seed, world, episodes begun so far)."""
        begun = self._resets
        obs = np.empty_like(self._obs)
        for i in range(self.num_envs):
            obs[i] = self._reset_world(i, self._derived(i, begun) if seeded else None)
        self._obs = obs
        self._keep_frame(obs)
        self._time = np.zeros_like(self._time)
        self._cost_max = np.zeros_like(self._cost_max)
        self._min_clearance = np.full_like(self._cost_max, np.inf)
        self._ready = True
        return first_step(torch.from_numpy(obs).to(self.device), self.spec.num_costs)

    def _keep_frame(self, obs: Floats) -> None:
        if not self._recording:
            return
        rows = [world.snapshot() for world in self._worlds]
        self._frame = {"obs": torch.from_numpy(obs.copy())}
        if all("state" in row for row in rows):
            self._frame["state"] = [row["state"] for row in rows]
        if all("qpos" in row for row in rows):
            self._frame["qpos"] = torch.stack([row["qpos"] for row in rows])

    def _restart(
        self, ended: Bools, final_obs: Floats, cost_max: Floats, min_clearance: Floats
    ) -> Floats:
        """Begin new episodes where they ended; the observations `[B, n]` to act on."""
        obs = final_obs
        if ended.any():
            # What is handed out is replaced, never written.
            obs, cost_max, min_clearance = obs.copy(), cost_max.copy(), min_clearance.copy()
            for i in np.flatnonzero(ended).tolist():
                obs[i] = self._reset_world(i, None)
            cost_max[ended], min_clearance[ended], self._time[ended] = 0.0, np.inf, 0
        self._obs, self._cost_max, self._min_clearance = obs, cost_max, min_clearance
        return obs

    def _reset_world(self, i: int, seed: int | None) -> Floats:
        self._resets += 1
        return self._worlds[i].reset(seed)

    def _derived(self, i: int, begun: int) -> int:
        return int(part_of(self.seed, i, begun).generate_state(1)[0])

    def _step_worlds(
        self, action: Tensor
    ) -> tuple[Floats, Floats, Floats, Bools, Bools, Bools, list[dict[str, Any]]]:
        """Observations `[B, n]`, rewards `[B]`, costs `[B, m]`, terminations, truncations, faults
        and infos.

        After a fault the observation is the last one that was finite, and there is no reward.
        """
        obs, cost = np.empty_like(self._obs), np.zeros_like(self._cost_max)
        reward = np.empty(self.num_envs, np.float32)
        terminated, truncated = np.empty((2, self.num_envs), np.bool_)
        infos = []
        for i, control in enumerate(self._controls(action)):
            obs[i], reward[i], terminated[i], truncated[i], info = self._worlds[i].step(control)
            infos.append(info)
        fault = np.asarray(~np.isfinite(obs).all(axis=1))
        obs[fault], reward[fault] = self._obs[fault], 0.0
        good = np.isfinite(reward)
        for i, (info, world) in enumerate(zip(infos, self._worlds, strict=True)):
            if not good[i]:
                raise ValueError(f"{world.label} gave the reward {reward[i]}: give a finite one")
            if fault[i]:
                text = "%s: its observation is not finite: its episode ends, at the highest cost"
                log.warning(text, world.label)
                self._faults += 1
            else:
                found = gym.costs_in(info, self._keys, world.label)
                cost[i] = gym.read_costs(self.spec.cost_names, found, world.label)
        return obs, reward, cost, terminated, truncated, fault, infos

    def _clearances(self, infos: list[dict[str, Any]], cost: Floats, fault: Bools) -> Floats:
        """[B, m] those that the environments report, or the negative costs."""
        clearance = -cost
        if self._gives_clearance:
            for i in np.flatnonzero(~fault).tolist():
                label = self._worlds[i].label
                clearance[i] = gym.read_clearance(infos[i], self.spec.cost_names, label)
        return clearance

    def _controls(self, action: Tensor) -> NDArray[Any]:
        """[B, ...] actions from -1 to 1, scaled to the bounds of the action space."""
        box = self._actions
        share = (action.detach().cpu().double().numpy().clip(-1.0, 1.0) + 1.0) / 2
        share = share.reshape(self.num_envs, *box.shape)
        low, high = box.low.astype(np.float64), box.high.astype(np.float64)
        return (low + (high - low) * share).clip(low, high).astype(box.dtype)

    def _probe(self, world: World) -> tuple[tuple[str, ...], bool]:
        """The names of the costs that one step of an instance shows, and whether it has clearances."""
        world.reset(self._derived(0, 0))
        middle = (self._actions.low / 2 + self._actions.high / 2).astype(self._actions.dtype)
        info = world.step(middle)[-1]
        found = gym.costs_in(info, self._keys, world.label)
        names = tuple(name for name, _ in found)
        for name in names:
            if not name.isprintable():
                raise ValueError(
                    f"{world.label} calls a constraint {name!r}: give it a name of one line"
                )
        gym.read_costs(names, found, world.label)
        if "clearance" in info:
            gym.read_clearance(info, names, world.label)
        return names, "clearance" in info


# Making one ------------------------------------------------------------------------------------


def check_id(name: str) -> None:
    """Raise ValueError if Gymnasium knows no environment of that name, `gym:ID`."""
    _maker(name)


def _shown(
    make: Callable[..., AnyEnv], render_mode: str | None, probe: AnyEnv, name: str
) -> Callable[[], AnyEnv]:
    """How to make an instance that is drawn in this mode."""
    if render_mode is None:
        return make
    modes = [mode for mode in (probe.metadata or {}).get("render_modes") or () if mode]
    if render_mode not in modes:
        can = f"it can be drawn as {', '.join(modes)}" if modes else "it cannot be drawn"
        raise ValueError(f"{name} has no render mode {render_mode!r}: {can}")
    return lambda: make(render_mode=render_mode)


def _first(make: Callable[[], AnyEnv]) -> AnyEnv:
    """The first environment that a function makes. ValueError if it makes something else."""
    env: object = make()
    if not isinstance(env, gymnasium.Env):
        raise ValueError(f"env_id makes {env!r:.60}: give a function that makes a gymnasium.Env")
    return env


def _maker(name: str) -> tuple[Callable[..., AnyEnv], int | None]:
    """How to make an instance, and its time limit.

    The limit is counted by GymEnv: the wrapper that `make` adds for it takes five values only.
    """
    module, id = module_and_id(name)
    import_modules((module,) if module else ())
    try:
        spec = copy.copy(gymnasium.spec(id))
    except gymnasium.error.Error as error:
        raise ValueError(
            f"Gymnasium knows no environment {id!r} ({error}). Import the module that registers "
            f"it: {asked('imports', 'my_module')}, or {GYM}my_module:{id}"
        ) from error
    limit, spec.max_episode_steps, spec.disable_env_checker = spec.max_episode_steps, None, True
    return lambda **how: gymnasium.make(spec, **how), limit
