"""One Gymnasium environment as we use it: its spaces, time limits, costs, and how it is saved."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from types import TracebackType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces, wrappers
from numpy.typing import NDArray
from torch import Tensor

from statewise.envs.env import blocks_of

AnyEnv = gymnasium.Env[Any, Any]
Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]

LARGEST = float(np.finfo(np.float32).max)
"""Costs are kept as float32, in which anything larger is infinite."""

_STATELESS = (
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.TimeLimit,  # steps are counted here as well
    wrappers.RescaleAction,
    wrappers.FlattenObservation,
)
"""Wrappers without a state: an exact resume may ignore them."""


class World:
    """One instance. Its errors, and what it returns in a wrong form, are reported with its label."""

    def __init__(self, env: AnyEnv, label: str) -> None:
        self.env, self.label = env, label
        self._space, self._stepping = env.observation_space, _Blame(label, "step")
        self.keeper = _keeper(env)
        """The layer that can save and restore itself, if there is one."""

    def reset(self, seed: int | None) -> Floats:
        """Begin an episode; its first observation `[n]`."""
        with _Blame(self.label, "reset"):
            result = self.env.reset(seed=seed)
        if not isinstance(result, tuple) or len(result) != 2:
            raise ValueError(
                f"{self.label}: reset() must return (observation, info), as in Gymnasium 1"
            )
        obs = self._flat(result[0])
        if not np.isfinite(obs).all():
            raise ValueError(
                f"{self.label}: reset() gave an observation that is not finite: {obs.tolist()}"
            )
        return obs

    def step(self, control: NDArray[Any]) -> tuple[Floats, float, bool, bool, dict[str, Any]]:
        """Observation `[n]`, reward, terminated, truncated and info.

        Safety-Gymnasium's six values have the cost after the reward. It is moved into the info.
        """
        with self._stepping:
            result: Any = self.env.step(control)
        if not isinstance(result, tuple) or len(result) not in (5, 6):
            count = len(result) if isinstance(result, tuple) else type(result).__name__
            raise ValueError(
                f"{self.label}: step() returned {count} values; return five (observation, reward, "
                f"terminated, truncated, info) or six (a cost after the reward)"
            )
        obs, reward, *cost, terminated, truncated, info = result
        if cost:
            info = {**info, "cost": cost[0]}
        return self._flat(obs), reward, terminated, truncated, info

    def picture(self) -> NDArray[np.uint8]:
        """What it looks like now, drawn by the environment itself: `[height, width, 3]`."""
        try:
            pixels = self.env.render()
        except gymnasium.error.Error as error:  # such as a package of its renderer that is missing
            raise ValueError(f"{self.label} cannot be drawn: {error}") from error
        array = np.asarray(pixels)
        if array.ndim != 3 or array.shape[2] not in (3, 4) or array.dtype != np.uint8:
            shape = f"{array.dtype} of shape {array.shape}"
            raise ValueError(
                f"{self.label}: render() gave {shape}, not a picture [height, width, 3] of uint8"
            )
        return array[..., :3]

    def snapshot(self) -> dict[str, Any]:
        """What is known of its state: what `get_state` gives, and `qpos` if MuJoCo simulates it."""
        found = {"state": self.save()} if self.keeper is not None else {}
        data: Any = getattr(self.env.unwrapped, "data", None)
        if hasattr(data, "qpos"):
            found["qpos"] = torch.tensor(np.asarray(data.qpos), dtype=torch.float32)
        return found

    def save(self) -> Any:
        """Its state and that of its random generator, for a world with a `keeper`."""
        with _Blame(self.label, "get_state"):
            keeper: Any = self.keeper
            return _plain([keeper.get_state(), keeper.unwrapped.np_random.bit_generator.state])

    def restore(self, saved: Any) -> None:
        with _Blame(self.label, "set_state"):
            keeper: Any = self.keeper
            state, random = _with_arrays(saved)
            keeper.set_state(state)
            keeper.unwrapped.np_random.bit_generator.state = random

    def _flat(self, obs: Any) -> Floats:
        """[n]"""
        if not isinstance(self._space, spaces.Box):
            return np.asarray(spaces.utils.flatten(self._space, obs), np.float32)
        array, shape = np.asarray(obs, np.float32), self._space.shape
        if array.shape != shape:
            raise ValueError(f"{self.label}: the observation has shape {array.shape}, not {shape}")
        return array.reshape(-1)


class _Blame:
    """Adds the label of a world to the errors that its environment raises."""

    def __init__(self, label: str, call: str) -> None:
        self._label, self._call = label, call

    def __enter__(self) -> None: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            raise RuntimeError(
                f"{self._label} failed in {self._call}(): {type(error).__name__}: {error}"
            ) from error


# Spaces and limits -----------------------------------------------------------------------------


def env_name(env: AnyEnv) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def action_box(space: gymnasium.Space[Any], name: str) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{name} has the action space {space}: policies act with real numbers, so it must be a "
            f"Box of floating point numbers"
        )
    if not (np.isfinite(space.low) & np.isfinite(space.high)).all():
        raise ValueError(
            f"{name} has the action space {space}: actions from -1 to 1 are scaled to its bounds, "
            f"so give it finite ones"
        )
    return space


def observation_blocks(space: gymnasium.Space[Any], name: str) -> dict[str, slice]:
    """Where the entries of a Dict are in the flat observation; one block for any other space."""
    if not space.is_np_flattenable:
        raise ValueError(
            f"{name} has the observation space {space}, which has no fixed size: wrap it so that "
            f"its observations are arrays"
        )
    parts = space.spaces if isinstance(space, spaces.Dict) else {"observation": space}
    return blocks_of({str(key): spaces.utils.flatdim(part) for key, part in parts.items()})


def time_limits(env: AnyEnv) -> list[int]:
    """The time limits of an environment and its wrappers. The shortest one applies."""
    layers = _layers(env)
    limits = [layer.spec.max_episode_steps for layer in layers if layer.spec is not None]
    # A wrapper around an environment that is not registered has no spec.
    limits += [e._max_episode_steps for e in layers if isinstance(e, wrappers.TimeLimit)]
    return [limit for limit in limits if limit is not None]


def control_dt(env: AnyEnv) -> float:
    """Seconds in a step: the environment's `dt`, or a frame of its `render_fps`, or 1."""
    dt = getattr(env.unwrapped, "dt", None)
    if isinstance(dt, int | float | np.number) and 0 < float(dt) < math.inf:
        return float(dt)
    fps = (env.metadata or {}).get("render_fps")
    return 1.0 / fps if fps else 1.0


def _layers(env: AnyEnv) -> list[AnyEnv]:
    """The wrappers from the outside in, and the environment itself."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


# Costs -----------------------------------------------------------------------------------------


def costs_in(info: Mapping[str, Any], keys: tuple[str, ...], label: str) -> list[tuple[str, Any]]:
    """Names and values of the costs in an info: under these keys, or `costs`, or `cost`, or none."""
    if keys:
        return [(key, info.get(key)) for key in keys]
    costs = info.get("costs")
    if costs is None:
        return [("cost", info["cost"])] if "cost" in info else []
    if isinstance(costs, str) or not hasattr(costs, "__len__") or len(costs) == 0:
        raise ValueError(
            f"{label} reported 'costs' as {costs!r}: give a number for each constraint in a "
            f"sequence or a dict, or a single one as 'cost'"
        )
    if isinstance(costs, Mapping):
        return [(str(key), value) for key, value in costs.items()]
    return [(f"cost_{i}", value) for i, value in enumerate(costs)]


def read_costs(names: tuple[str, ...], found: list[tuple[str, Any]], label: str) -> list[float]:
    """[m] finite and not negative. Anything else raises ValueError, and never counts as zero."""
    values = dict(found)
    costs = [_read_cost(values.get(name), name, label) for name in names]
    for name, value in found if len(found) > len(names) else ():
        if name not in names and value is not None:
            raise ValueError(
                f"{label} reported a cost {name!r}, which the trial step did not: report it at "
                f"every step"
            )
    return costs


def _read_cost(value: Any, name: str, label: str) -> float:
    if value is None:
        raise ValueError(f"{label} reported no cost {name!r}: report it at every step, 0 if none")
    try:
        cost = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        given = f"{label} reported the cost {name!r} as {value!r:.40}"
        raise ValueError(f"{given}: give a number") from error
    if not 0.0 <= cost <= LARGEST:
        raise ValueError(
            f"{label} reported the cost {name!r} as {cost}: costs are finite, also as float32, and "
            f"never negative"
        )
    return cost


def read_clearance(info: Mapping[str, Any], names: tuple[str, ...], label: str) -> list[float]:
    """[m] the clearances in an info: a number, a sequence or a dict by the names of the costs."""
    given = info.get("clearance")
    if isinstance(given, Mapping):
        given = [given.get(name) for name in names]
    try:
        values = np.asarray(given, np.float32).reshape(-1)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f"{label} reported the clearance {given!r:.60}: give a number for each cost"
        ) from error
    if len(values) != len(names) or not np.isfinite(values).all():
        raise ValueError(
            f"{label} reported the clearance {given!r:.60}: give a finite number for each of the costs "
            f"{', '.join(names)}, at every step"
        )
    return [float(value) for value in values]


def success_in(info: Mapping[str, Any], by_task: bool) -> bool:
    """Whether the task succeeded: `success` or `is_success` of an info, or the task's end."""
    return bool(info.get("success", info.get("is_success", by_task)))


# Saving ----------------------------------------------------------------------------------------


def _keeper(env: AnyEnv) -> AnyEnv | None:
    """The layer that can save and restore itself, if nothing outside of it has a state."""
    for layer in _layers(env):
        if _takes(layer, "get_state", 0) and _takes(layer, "set_state", 1):
            return layer
        if type(layer) not in _STATELESS:
            return None
    return None


def _takes(env: AnyEnv, method: str, count: int) -> bool:
    """Whether there is a method of that name which takes so many arguments."""
    call = getattr(env, method, None)
    if not callable(call):
        return False
    try:
        inspect.signature(call).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def _plain(state: Any) -> Any:
    """A copy made of tensors and plain values, which checkpoints can hold."""
    if isinstance(state, np.ndarray):
        return torch.from_numpy(state.copy())
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, Mapping):
        return {_plain(key): _plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)([_plain(value) for value in state])
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(
        f"the state holds a {type(state).__name__}: give arrays, numbers, strings, and lists, "
        f"tuples and dicts of them"
    )


def _with_arrays(state: Any) -> Any:
    """What `_plain` was given: a copy, with arrays again."""
    if isinstance(state, Tensor):
        return state.cpu().numpy().copy()
    if isinstance(state, dict):
        return {key: _with_arrays(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)([_with_arrays(value) for value in state])
    return state
