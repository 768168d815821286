"""Worlds to judge a policy in."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager

from statewise.envs.env import Env
from statewise.training import loop
from statewise.training.policy import Policy

_MOST = 256


@contextmanager
def worlds_for(policy: Policy, episodes: int, most: int = _MOST) -> Iterator[Env]:
    """Worlds of the suite that a policy was trained in, on the CPU: at most one for each episode."""
    settings = dataclasses.replace(
        policy.settings, num_envs=max(1, min(most, episodes)), device="cpu", threads=0
    )
    with loop.build_env(settings) as env:
        policy.check(env.spec)
        yield env
