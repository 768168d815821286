"""Environments by name: a suite such as `Point-Hazard-8`, or `gym:ID`."""

from __future__ import annotations

import inspect
from typing import Any

from statewise.envs.env import Env
from statewise.plugins import GYM, is_gym
from statewise.settings import typed, unknown


@typed
def make_env(
    name: str, num_envs: int = 1, seed: int = 0, device: str = "cpu", **options: Any
) -> Env:
    """A batch of worlds: of a suite such as "Point-Hazard-8", or of a Gymnasium environment.

    The latter is "gym:MyEnv-v0", or "gym:my_module:MyEnv-v0" to import its module first.

    device: where the tensors are, and where the physics of a suite runs: "cpu", "cuda", "cuda:1".
    options: those of `VecEnv` for a suite, those of `GymEnv` for a Gymnasium environment.
    """
    kind = _kind(is_gym(name))
    known = _options(kind)
    for option in options:
        if option in known:
            continue
        if option in _options(_kind(not is_gym(name))):
            other = "suites such as Point-Hazard-8" if is_gym(name) else f"environments {GYM}ID"
            raise ValueError(f"{name} has no option {option!r}, which is for {other}: leave it out")
        raise ValueError(unknown("option", option, known, name))
    return kind(name, num_envs, seed, device, **options)


def _kind(gym: bool) -> Any:
    # Imported when asked for: the one needs gymnasium, the other MuJoCo.
    if gym:
        from statewise.envs.from_gym import GymEnv

        return GymEnv
    from statewise.envs.vec_env import VecEnv

    return VecEnv


def _options(kind: Any) -> list[str]:
    parameters = inspect.signature(kind).parameters.values()
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY]
