"""What someone else's environment tells of itself: spaces, limits, costs, and what it can save."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import gymnasium
import numpy as np
import torch
from gymnasium import spaces, wrappers
from torch import Tensor

AnyEnv = gymnasium.Env[Any, Any]

LARGEST = float(np.finfo(np.float32).max)
"""What is larger is infinite as a float32, in which costs are kept."""

_STATELESS = (
    wrappers.OrderEnforcing,
    wrappers.PassiveEnvChecker,
    wrappers.TimeLimit,  # steps are counted here as well
    wrappers.RescaleAction,
    wrappers.FlattenObservation,
)
"""Wrappers that an exact resume may look through."""


# Spaces and limits -----------------------------------------------------------------------------


def env_name(env: AnyEnv) -> str:
    return env.spec.id if env.spec is not None else type(env.unwrapped).__name__


def action_box(space: gymnasium.Space[Any], name: str) -> spaces.Box:
    if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
        raise ValueError(
            f"{name} has the action space {space}: the policies give real numbers, so it must be a "
            f"Box of floating point numbers"
        )
    if not (np.isfinite(space.low) & np.isfinite(space.high)).all():
        raise ValueError(
            f"{name} has the action space {space}: actions from -1 to 1 are stretched to its "
            f"bounds, so they must be finite: give it the bounds that make sense"
        )
    return space


def flat_size(space: gymnasium.Space[Any], name: str) -> int:
    if not space.is_np_flattenable:
        raise ValueError(
            f"{name} has the observation space {space}, which has no fixed size: wrap it so that "
            f"its observations are arrays"
        )
    return spaces.utils.flatdim(space)


def observation_blocks(space: gymnasium.Space[Any], size: int) -> dict[str, slice]:
    """Where the entries of a Dict lie in the flat observation; one block for anything else."""
    if not isinstance(space, spaces.Dict):
        return {"observation": slice(0, size)}
    blocks, start = {}, 0
    for name, part in space.spaces.items():
        stop = start + spaces.utils.flatdim(part)
        blocks[str(name)] = slice(start, stop)
        start = stop
    return blocks


def _layers(env: AnyEnv) -> list[AnyEnv]:
    """The wrappers from the outside in, and the environment itself."""
    layers = [env]
    while isinstance(layers[-1], gymnasium.Wrapper):
        layers.append(layers[-1].env)
    return layers


def time_limits(env: AnyEnv) -> list[int]:
    """The time limits of an environment and its wrappers: the shortest is the one that holds."""
    layers = _layers(env)
    limits = [layer.spec.max_episode_steps for layer in layers if layer.spec is not None]
    # A wrapper around something unregistered has no spec to tell it.
    limits += [e._max_episode_steps for e in layers if isinstance(e, wrappers.TimeLimit)]
    return [limit for limit in limits if limit is not None]


def control_dt(env: AnyEnv) -> float:
    """Seconds in a step: the environment's `dt`, or a frame of its `render_fps`, or 1."""
    dt = getattr(env.unwrapped, "dt", None)
    if isinstance(dt, int | float | np.number) and 0 < float(dt) < math.inf:
        return float(dt)
    fps = (env.metadata or {}).get("render_fps")
    return 1.0 / fps if fps else 1.0


# Costs -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Channel:
    """Where the cost of one constraint stands: in `info`, or in its entry `inside`."""

    name: str
    key: str | int
    inside: str | None = None

    def __str__(self) -> str:
        return f"{self.key!r}" if self.inside is None else f"{self.inside}[{self.key!r}]"


def find_channels(info: Mapping[str, Any], keys: tuple[str, ...], name: str) -> tuple[Channel, ...]:
    """The costs an info shows: the named keys, or `costs`, or `cost`, or none."""
    if keys:
        return tuple(Channel(key, key) for key in keys)
    costs = info.get("costs")
    if costs is None:
        return (Channel("cost", "cost"),) if "cost" in info else ()
    if isinstance(costs, str) or not hasattr(costs, "__len__") or len(costs) == 0:
        raise ValueError(
            f"{name} reports 'costs' as {costs!r}: give a number for each constraint in a sequence "
            f"or a dict, or a single one as 'cost'"
        )
    if isinstance(costs, Mapping):
        return tuple(Channel(str(key), key, "costs") for key in costs)
    return tuple(Channel(f"cost_{i}", i, "costs") for i in range(len(costs)))


def read_costs(channels: tuple[Channel, ...], info: Mapping[str, Any], where: str) -> list[float]:
    """[m] finite and not negative; anything else raises ValueError, and never counts as zero."""
    if not channels:
        for key in ("costs", "cost"):
            if info.get(key) is not None:
                raise ValueError(
                    f"{where} reported a cost {key!r}, which the trial step did not: report it at "
                    f"every step"
                )
        return []
    inside = channels[0].inside
    if inside is not None and info.get(inside) is not None and len(info[inside]) != len(channels):
        raise ValueError(
            f"{where} reported {len(info[inside])} {inside!r}; the trial step had {len(channels)}: "
            f"{info[inside]}"
        )
    return [_read_cost(channel, info, where) for channel in channels]


def _read_cost(channel: Channel, info: Mapping[str, Any], where: str) -> float:
    box: Any = info if channel.inside is None else info.get(channel.inside)
    try:
        value = box[channel.key]
    except (KeyError, IndexError, TypeError):
        value = None
    if value is None:
        raise ValueError(f"{where} reported no cost {channel}: report it at every step, 0 if none")
    try:
        cost = float(value)
    except (TypeError, ValueError, OverflowError) as error:
        raise ValueError(
            f"{where} reported the cost {channel} as {value!r:.40}: give a number"
        ) from error
    if not 0.0 <= cost <= LARGEST:
        raise ValueError(
            f"{where} reported the cost {channel} as {cost}: costs are finite, also as float32, and "
            f"never negative"
        )
    return cost


def five_values(result: Any, where: str) -> tuple[Any, float, bool, bool, dict[str, Any]]:
    """A step as observation, reward, terminated, truncated, info.

    Safety-Gymnasium's six values have the cost after the reward; it joins the info.
    """
    if not isinstance(result, tuple) or len(result) not in (5, 6):
        count = len(result) if isinstance(result, tuple) else type(result).__name__
        raise ValueError(
            f"{where}: step() returned {count} values; five (observation, reward, terminated, "
            f"truncated, info) or six (a cost after the reward) are understood"
        )
    obs, reward, *cost, terminated, truncated, info = result
    if cost:
        info = {**info, "cost": cost[0]}
    return obs, reward, terminated, truncated, info


# Saving ----------------------------------------------------------------------------------------


def keeper(env: AnyEnv) -> AnyEnv | None:
    """The layer that can save and restore itself, if nothing outside of it has a state."""
    for layer in _layers(env):
        if _takes(layer, "get_state", 0) and _takes(layer, "set_state", 1):
            return layer
        if type(layer) not in _STATELESS:
            return None
    return None


def _takes(env: AnyEnv, method: str, count: int) -> bool:
    """Whether there is such a method to be called with so many arguments."""
    call = getattr(env, method, None)
    if not callable(call):
        return False
    try:
        inspect.signature(call).bind(*range(count))
    except (TypeError, ValueError):
        return False
    return True


def random_state(env: AnyEnv) -> Mapping[str, Any]:
    return env.unwrapped.np_random.bit_generator.state


def plain(state: Any) -> Any:
    """A copy made of tensors and plain values, which checkpoints can hold."""
    if isinstance(state, np.ndarray):
        return torch.from_numpy(state.copy())
    if isinstance(state, np.generic):
        return state.item()
    if isinstance(state, Mapping):
        return {plain(key): plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)([plain(value) for value in state])
    if state is None or isinstance(state, bool | int | float | str):
        return state
    raise TypeError(
        f"the state holds a {type(state).__name__}: give arrays, numbers, strings, and lists, "
        f"tuples and dicts of them"
    )


def restored(state: Any) -> Any:
    """What `plain` was given: a copy, with arrays again."""
    if isinstance(state, Tensor):
        return state.cpu().numpy().copy()
    if isinstance(state, dict):
        return {key: restored(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return type(state)([restored(value) for value in state])
    return state


class Blame:
    """Adds the number of the world to what an environment raises; nothing is kept back."""

    def __init__(self, name: str, call: str, world: int = 0) -> None:
        self.name, self.call, self.world = name, call, world

    def __enter__(self) -> Blame:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, Exception):
            raise RuntimeError(
                f"world {self.world} of {self.name} failed in {self.call}(): "
                f"{type(error).__name__}: {error}"
            ) from error
