"""Measure the return and the safety of a policy, over fresh episodes with exact intervals."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

import torch

from statewise.algos import Algorithm
from statewise.core.statistics import rate_interval
from statewise.envs.env import Env
from statewise.runs.identity import PolicyId
from statewise.sim.cpu import one_torch_thread
from statewise.training.worst import WorstEpisodes
from statewise.types import Episodes

_MOST_EPISODES = 10**8
"""Most episodes of one evaluation."""
_FRESH = 1 << 40
"""Evaluation seeds start here, so that no layout of a training run is ever replayed."""


@dataclass(frozen=True)
class Violation:
    """One constraint over the episodes of an evaluation."""

    name: str
    episode_cost: float
    """Mean sum of costs"""
    max_cost: float
    """Mean of the largest cost"""
    worst_cost: float
    """Largest cost of any step"""
    cost_rate: float
    """Mean cost of a step"""
    violations: int
    """Episodes with a step whose cost exceeds the threshold"""
    rate: float
    low: float
    high: float
    """Exact 95 % interval (Clopper-Pearson) of the violation rate"""
    min_clearance: float
    """Mean of the smallest clearance of an episode, in the constraint's own unit"""
    worst_clearance: float
    """Smallest clearance of any step"""


@dataclass(frozen=True)
class Evaluation:
    """The result of an evaluation."""

    suite: str
    algo: str
    episodes: int
    seed: int
    sampled: bool
    threshold: float
    mean_return: float
    return_std: float
    length: float
    success: float
    """Share of the episodes in which the task succeeded, such as by reaching the goal"""
    sim_faults: int
    constraints: tuple[Violation, ...]
    policy: PolicyId | None = None
    """The run, checkpoint and hash of the policy; None for one that was not loaded from a run"""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def evaluate(
    algo: Algorithm,
    env: Env,
    episodes: int,
    seed: int,
    sampled: bool = False,
    threshold: float = 0.0,
    worst: WorstEpisodes | None = None,
) -> Evaluation:
    """Run the policy for `episodes` fresh episodes and summarise them.

    sampled: draw actions from the policy instead of taking its mean.
    threshold: a step violates a constraint if its cost is above this.
    worst: keeps the worst of these episodes.
    """
    if not 1 <= episodes <= _MOST_EPISODES:
        raise ValueError(f"episodes is {episodes}: give a number from 1 to {_MOST_EPISODES:,}")
    if not (math.isfinite(threshold) and threshold >= 0):
        # Nothing is above nan and every cost above -1: either would read as a finding.
        raise ValueError(
            f"threshold is {threshold}: costs are never negative; give a finite number, 0 or more"
        )
    found = run_episodes(algo, env, episodes, seed, sampled, worst)
    steps = int(found.length.sum())
    constraints = []
    for i, name in enumerate(env.spec.cost_names):
        largest = found.cost_max[:, i]
        count = int((largest > threshold).sum())
        interval = rate_interval(count, episodes)
        constraints.append(
            Violation(
                name=name,
                episode_cost=float(found.cost[:, i].mean()),
                max_cost=float(largest.mean()),
                worst_cost=float(largest.max()),
                cost_rate=float(found.cost[:, i].sum()) / steps,
                violations=count,
                rate=interval.estimate,
                low=interval.low,
                high=interval.high,
                min_clearance=float(found.min_clearance[:, i].mean()),
                worst_clearance=float(found.min_clearance[:, i].min()),
            )
        )
    return Evaluation(
        suite=env.spec.name,
        algo=algo.name,
        episodes=episodes,
        seed=seed,
        sampled=sampled,
        threshold=threshold,
        mean_return=float(found.returns.mean()),
        return_std=float(found.returns.std(correction=0)),
        length=float(found.length.float().mean()),
        success=float(found.success.float().mean()),
        sim_faults=int(found.fault.sum()),
        constraints=tuple(constraints),
    )


def run_episodes(
    algo: Algorithm,
    env: Env,
    episodes: int,
    seed: int,
    sampled: bool = False,
    worst: WorstEpisodes | None = None,
) -> Episodes:
    """Run exactly `episodes` episodes, equally many in each world.

    Each world has its quota before the first step. Taking whichever episodes finish first would
    prefer the short ones.

    worst: keeps the worst of these episodes.
    """
    b, m = env.num_envs, env.spec.num_costs
    quota = torch.full((b,), episodes // b)
    quota[: episodes % b] += 1
    quota = quota.to(env.device)
    generator = torch.Generator(env.device).manual_seed(seed) if sampled else None
    total = torch.zeros(b, 1 + m, device=env.device)
    length = torch.zeros(b, dtype=torch.long, device=env.device)
    done = torch.zeros(b, dtype=torch.long, device=env.device)
    success = torch.zeros(b, dtype=torch.bool, device=env.device)
    parts: list[Episodes] = []
    step = env.reset(seed=_FRESH + seed)
    if worst is not None:
        worst.begin(step)
    with one_torch_thread():
        while bool((done < quota).any()):
            step = env.step(algo.act(step, generator).executed)
            total += torch.cat([step.reward.unsqueeze(1), step.true_cost], dim=1)
            length += 1
            success |= step.success
            counted = step.ended & (done < quota)
            if worst is not None:
                worst.add(step, counted)
            if bool(counted.any()):
                parts.append(
                    Episodes(
                        total[counted, 0],
                        total[counted, 1:],
                        step.true_cost_max[counted],
                        step.min_clearance[counted],
                        length[counted],
                        step.terminated[counted],
                        step.sim_fault[counted],
                        success[counted],
                    )
                )
            done += step.ended
            total.masked_fill_(step.ended.unsqueeze(1), 0.0)
            length.masked_fill_(step.ended, 0)
            success &= ~step.ended
    names = Episodes.__annotations__
    return Episodes(*(torch.cat([getattr(p, name) for p in parts]).cpu() for name in names))


def world_count(episodes: int, most: int = 256) -> int:
    """Worlds to evaluate in: each runs about four episodes."""
    return max(1, min(most, math.ceil(episodes / 4)))
