"""The interface of environments, as training, evaluation and benchmarks use it."""

from __future__ import annotations

import itertools
import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from numbers import Integral
from typing import TYPE_CHECKING, Any, Self, cast

import torch
from torch import Tensor

from statewise.types import EnvSpec, Step

if TYPE_CHECKING:
    from statewise.envs.vec_env import VecEnv

_MOST_WORLDS = 2**20
"""Most worlds of one environment."""

log = logging.getLogger("statewise")


class Closeable:
    """Something to use in a `with` statement."""

    def close(self) -> None:
        """Release what is held, such as windows and processes. Default: nothing."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class Env(Closeable, ABC):
    """`num_envs` worlds that are stepped together, on tensors.

    `VecEnv` simulates a suite, and `GymEnv` wraps a Gymnasium environment. To write another, set
    `spec`, `num_envs` and `device`, and define `reset` and `step`. All other methods have defaults.
    """

    spec: EnvSpec
    num_envs: int
    device: torch.device
    """Where the tensors of a Step are."""
    continuing: bool = False
    """Whether a reached goal moves instead of ending the episode. Ends then do not count goals."""
    has_time_limit: bool = True
    """Whether the task has a time limit. If not, `spec.max_episode_steps` cuts endless episodes."""
    can_set_age: bool = False
    """Whether `set_age` is supported."""
    has_scene: bool = False
    """Whether a suite is simulated, whose scene can be read, drawn, recorded and varied."""
    _ready = False
    """Whether there are episodes to step."""

    @property
    def faults(self) -> int:
        """How many episodes a fault has ended since the environment was made. Default: none."""
        return 0

    @property
    def simulated(self) -> VecEnv | None:
        """This environment if it has a scene (see `has_scene`), otherwise None."""
        return cast("VecEnv", self) if self.has_scene else None

    @abstractmethod
    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world.

        A seed starts the sequence of episodes anew. Without one the sequence continues.
        """

    @abstractmethod
    def step(self, action: Tensor) -> Step:
        """Advance every world by one action `[B, a]`, each component from -1 to 1.

        A world whose episode ends starts a new one in the same step (see `Step`).
        """

    def set_age(self, age: Tensor) -> None:
        """Treat the running episodes as `age [B]` steps old. They then reach the time limit that much
        sooner. Default: not supported (see `can_set_age`).
        """
        raise NotImplementedError(f"{self.spec.name} cannot change the age of its episodes")

    def state_dict(self) -> dict[str, Any]:
        """Return the tensors and plain values that the next steps depend on. Default: nothing."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> Step | None:
        """Continue from a `state_dict`.

        Returns None if the saved episodes continue exactly. Otherwise new episodes have begun in
        all worlds, and their first Step is returned. Default: new episodes begin.
        """
        log.warning("%s cannot save its worlds: new episodes begin in all of them", self.spec.name)
        return self.reset()

    def worlds(self) -> dict[str, Tensor]:
        """Return the running episodes: tensors with one row for each world. Default: not supported."""
        raise NotImplementedError(f"{self.spec.name} cannot copy its worlds")

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Continue the episodes of `rows [k, ...]` of `worlds` in the worlds of ids `where [k]`."""
        raise NotImplementedError(f"{self.spec.name} cannot copy its worlds")

    def check_ready(self, call: str) -> None:
        """Raise RuntimeError if there are no episodes yet."""
        if not self._ready:
            raise RuntimeError(f"call reset() before {call}()")

    def check_action(
        self, action: Tensor, shape: tuple[int, ...] = (), finite: bool = True
    ) -> None:
        """Raise an error unless an action is a floating point tensor `[B, a]`, and finite.

        shape: that of an adapter's actions, if not `[B, a]`.
        finite: check the values too. This waits for the GPU.
        """
        self.check_ready("step")
        shape = shape or (self.num_envs, self.spec.action_size)
        if not isinstance(action, Tensor):
            given = type(action).__name__
            raise TypeError(f"the action is a {given}: pass a torch tensor of shape {shape}")
        if tuple(action.shape) != shape:
            raise ValueError(
                f"the action has shape {tuple(action.shape)}; {self.spec.name} takes {shape} here, "
                f"each component from -1 to 1"
            )
        if not action.is_floating_point():
            raise TypeError(f"the action has dtype {action.dtype}: pass floating point values")
        if finite and not torch.isfinite(action).all():
            world = int((~torch.isfinite(action).all(dim=1)).nonzero()[0, 0])
            raise ValueError(
                f"the action of world {world} is not finite: {action[world].tolist()}. Nothing was "
                f"stepped"
            )


def check_worlds(num_envs: int, seed: int) -> None:
    """Raise ValueError if the number of worlds or the seed is out of range."""
    if not 1 <= num_envs <= _MOST_WORLDS:
        raise ValueError(
            f"num_envs is {num_envs}: give a number of worlds from 1 to {_MOST_WORLDS}"
        )
    check_seed(seed)


def check_seed(seed: int | None) -> None:
    """Raise ValueError if a seed is not a whole number that random generators take."""
    if seed is None:
        return
    if not isinstance(seed, Integral) or isinstance(seed, bool) or not 0 <= seed < 2**63:
        raise ValueError(f"seed is {seed!r:.60}: give a whole number from 0 to 2**63 - 1")


def blocks_of(sizes: Mapping[str, int]) -> dict[str, slice]:
    """Where blocks of these sizes are in an observation, one after the other."""
    stops = itertools.accumulate(sizes.values())
    return {name: slice(stop - sizes[name], stop) for name, stop in zip(sizes, stops, strict=True)}
