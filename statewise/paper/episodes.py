"""Episodes of a policy, step by step: the cost targets of question 3, and the paper's Figure 1."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from statewise.core.mmdp import increments, running_maximum
from statewise.core.returns import returns_to_go
from statewise.envs.env import Env
from statewise.envs.make import make_env
from statewise.paper.answers import rises
from statewise.report.table import short
from statewise.runs.reader import last_epoch
from statewise.sim.cpu import one_torch_thread
from statewise.training.loop import build_env
from statewise.training.policy import load_policy, random_policy
from statewise.types import Step

_COST_GAMMA = 0.99
"""Discount of the costs, as the methods that bound their sum have it."""
_FRESH = 1 << 41
"""Seeds start here, so that no layout of a training or an evaluation is replayed."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """One episode in each world."""

    suite: str
    policy: str
    """What acted, in words"""
    constraint: str
    cost: Tensor
    """[T, B, 1] of the first constraint, float64; 0 after the end of the episode"""
    ended: Tensor
    """[T, B] true at the last step of each episode"""

    @property
    def lengths(self) -> list[int]:
        """[B] steps of each episode"""
        return [int(n) + 1 for n in self.ended.int().argmax(0)]


def record(run: Path | None, suite: str, episodes: int, seed: int = 0) -> Recorded:
    """Fresh episodes of a run's policy, or of a random one in `suite` if no run is given.

    Actions are drawn from the policy, as in training. Runs on the CPU; the same seed, the same
    episodes.
    """
    if run is None:
        env = make_env(suite, episodes, seed)
        return _record(env, random_policy(env, seed), "a random policy", seed)
    policy = load_policy(run)
    settings = dataclasses.replace(
        policy.settings, num_envs=episodes, seed=seed, device="cpu", threads=0
    )
    generator = torch.Generator().manual_seed(seed)
    steps = last_epoch(run).get("steps", 0)
    words = f"{run.parent.name}, seed {policy.settings.seed}, after {steps:,} steps"
    with build_env(settings) as env:
        policy.check(env.spec)
        return _record(env, lambda step: policy.algo.act(step, generator).executed, words, seed)


def targets(recorded: Recorded, count: int = 5, seed: int = 0) -> dict[str, Any]:
    """What V_C and V_D are fitted to along some episodes, for `draw_targets`.

    V_C: discounted cost to go. V_D: increments to go, undiscounted. Nothing is added past an
    episode's end. The episodes are drawn among those with a cost, since the others are flat lines;
    the shares of zeros are over the steps of all.
    """
    cost, ended, lengths = recorded.cost, recorded.ended, recorded.lengths
    never, nothing = torch.zeros_like(ended), torch.zeros_like(cost)
    d = increments(cost, running_maximum(cost, never)[0])
    to_go = {
        "V_C": returns_to_go(cost, nothing, ended, never, gamma=_COST_GAMMA)[..., 0],
        "V_D": returns_to_go(d, nothing, ended, never, gamma=1.0)[..., 0],
    }
    rows = torch.arange(len(cost)).unsqueeze(1) < torch.tensor(lengths)
    costly = (cost[..., 0].sum(0) > 0).nonzero()[:, 0]
    order = torch.randperm(len(costly), generator=torch.Generator().manual_seed(seed))
    chosen = sorted(costly[order[:count]].tolist())
    return {
        "suite": recorded.suite,
        "policy": recorded.policy,
        "constraint": recorded.constraint,
        "gamma": _COST_GAMMA,
        "episodes": len(lengths),
        "costly": len(costly),
        "steps": int(rows.sum()),
        "zeros": {key: float((v[rows] == 0).double().mean()) for key, v in to_go.items()},
        "targets": [{key: short(v[: lengths[i], i].tolist(), 6) for key, v in to_go.items()}
                    for i in chosen],
    }  # fmt: skip


def episode(recorded: Recorded) -> dict[str, Any]:
    """C, M and D along one episode, for `draw_episode`: the one with the most rises that matter.

    M is the largest cost up to and including a step, D by how much that step raised it, so that D
    sums to the last M.
    """
    cost = recorded.cost
    before, after = running_maximum(cost, torch.zeros_like(recorded.ended))
    d = increments(cost, before)[..., 0]
    shares = []
    for column in d.T:  # rises as shares of the last M, if a twentieth or more
        sizes = [
            float(column[start : end + 1].sum() / column.sum()) for start, end in rises(column)
        ]
        shares.append([size for size in sizes if size >= 0.05])
    # Among equals the one whose smallest rise is seen best.
    best = max(range(len(shares)), key=lambda i: (len(shares[i]), min(shares[i], default=0.0)))
    length = recorded.lengths[best]
    return {
        "suite": recorded.suite,
        "policy": recorded.policy,
        "constraint": recorded.constraint,
        "episodes": len(shares),
        "rises": len(shares[best]),
        "C": short(cost[:length, best, 0].tolist(), 6),
        "M": short(after[:length, best, 0].tolist(), 6),
        "D": short(d[:length, best].tolist(), 6),
    }


def _record(env: Env, act: Callable[[Step], Tensor], policy: str, seed: int) -> Recorded:
    """Step until the first episode of every world has ended."""
    if not env.spec.cost_names:
        raise ValueError(f"{env.spec.name} reports no costs, and there is nothing else to show")
    step = env.reset(seed=_FRESH + seed)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    cost, ended = [], []
    with one_torch_thread():
        while bool(running.any()):
            step = env.step(act(step))
            cost.append(step.cost[:, :1].double() * running.unsqueeze(1))
            ended.append(step.ended & running)
            running = running & ~step.ended
    return Recorded(
        env.spec.name, policy, env.spec.cost_names[0], torch.stack(cost), torch.stack(ended)
    )
