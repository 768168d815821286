"""From a rollout to what an update needs: advantages, critic targets, J of the current policy."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch
from torch import Tensor

from statewise.core import mmdp, returns
from statewise.cuda_graphs import Graphed
from statewise.types import Rollout

if TYPE_CHECKING:
    from statewise.algos.base import Algorithm


AGES = (0, 10, 30, 100, 300)
"""Steps of an episode from which on metrics that change along it are gathered together."""


@dataclass(frozen=True)
class CostSignal:
    """The cost a method learns from, and how its future is summed."""

    kind: Literal["cost", "increment"]
    gamma: float
    lam: float | Tensor
    """One for all costs, or `[m]`: then a tensor whose numbers may change"""
    bootstrap_truncated: bool
    """Whether the future past the time limit counts. Not for increments: the limit is part of the
    finite-horizon Maximum MDP."""


@dataclass(frozen=True, eq=False)
class Batch:
    """A rollout as N rows of data. Without a cost signal the cost tensors have no columns."""

    rollout: Rollout
    inputs: Tensor
    """[N, k] what the networks read"""
    action: Tensor
    """[N, a]"""
    advantage: Tensor
    """[N] of the reward: mean 0, standard deviation 1"""
    target: Tensor
    """[N] of V"""
    cost_advantage: Tensor
    """[N, m] mean 0; not scaled, since its size counts against the limit"""
    cost_target: Tensor
    """[N, m] of the cost critic"""
    positive: Tensor
    """[N] whether any cost is still to come in the row's episode, as far as the rollout saw"""
    J: Tensor
    """[m] float64: what an episode of the current policy costs (sum, or maximum for increments)"""
    length: float
    """Mean episode length"""
    episodes: float
    """How many episodes the rollout is worth"""

    def finite(self) -> bool:
        """Whether every number is."""
        # Raw observations too: scaled, an infinite one is only a large one.
        tensors = (self.rollout.obs, self.rollout.next_obs, self.inputs, self.action, self.advantage,
                   self.target, self.cost_advantage, self.cost_target)  # fmt: skip
        here = torch.stack([torch.isfinite(x).all() for x in tensors]).all()
        return bool(here) and bool(torch.isfinite(self.J).all())

    def metrics(self, cost_names: tuple[str, ...]) -> dict[str, float]:
        """What the rollout says, before anything is learned from it."""
        out = {
            "estimate/length": self.length,
            "estimate/episodes": self.episodes,
            "critic/value_target/mean": float(self.target.mean()),
            **_spread("critic/value_target", self.target),
        }
        if self.cost_target.shape[1]:
            out["critic/zero_target_share"] = 1.0 - float(self.positive.float().mean())
            for i, name in enumerate(cost_names):
                out[f"constraint/{name}/estimate"] = float(self.J[i])
                size = self.cost_advantage[:, i].abs()
                out[f"constraint/{name}/max_advantage"] = float(size.max())
                out |= self.by_age(f"constraint/{name}/max_advantage", size, "amax")
                out |= _spread(f"constraint/{name}/target", self.cost_target[:, i])
        return out

    def by_age(self, name: str, rows: Tensor, reduce: Literal["sum", "amax"]) -> dict[str, float]:
        """Sum or maximum of `rows [N]` over the steps of episodes from one age to the next."""
        edges = torch.tensor(AGES[1:], device=rows.device)
        bins = torch.bucketize(self.rollout.age.flatten(), edges, right=True)
        out = rows.new_zeros(len(AGES)).scatter_reduce(0, bins, rows, reduce)
        return {f"{name}/age_{age}": x for age, x in zip(AGES, out.tolist(), strict=True)}


def _spread(name: str, values: Tensor) -> dict[str, float]:
    """Quantiles of `values [N]`."""
    shares = torch.tensor([0.05, 0.5, 0.95, 0.99, 1.0], device=values.device)
    labels = ("p05", "p50", "p95", "p99", "max")
    quantiles = torch.quantile(values, shares).tolist()
    return {f"{name}/{label}": x for label, x in zip(labels, quantiles, strict=True)}


@torch.no_grad()
def estimate(algo: Algorithm, rollout: Rollout) -> Batch:
    """Evaluate the critics on a rollout and turn it into a batch."""
    signal = algo.cost_signal
    inputs = algo.observe(rollout.obs, rollout.cost_max_before)
    next_inputs = algo.observe(rollout.next_obs, rollout.cost_max)
    cost = rollout.cost if signal is None or signal.kind == "cost" else rollout.increment
    evaluate = algo.graphs.setdefault(("evaluate",), Graphed(evaluation(algo)))
    advantage, target, cost_advantage, cost_target, value, next_value = evaluate(
        inputs, next_inputs, rollout.reward, cost, rollout.terminated, rollout.truncated
    )
    values: dict[str, Tensor] = {}
    if signal is not None and algo.cost_value is not None:
        values = {"value": value, "next_value": next_value}
        if algo.start_inputs is not None:
            values["start_value"] = algo.cost_value(algo.scale(algo.start_inputs))
    # A maximum is no larger than the largest cost of a step: the ceiling, or more where an
    # environment of somebody else's shows more.
    increments = signal is not None and signal.kind == "increment"
    most = torch.tensor(
        [(increments and ceiling) or math.inf for ceiling in algo.spec.cost_ceiling],
        dtype=torch.float64,
    )
    most = torch.maximum(most, rollout.cost_max.flatten(0, 1).amax(dim=0).double().cpu())
    about = mmdp.episode_mean(cost, rollout.ended, rollout.age, **values)
    # Nor is it believed to be smaller than what was seen of it: V_D learns slowly, and where a stream of
    # episodes is not steady its errors can hide every cost. Costs are not negative, so less than 0 is
    # noise, and would switch a limit of 0 off.
    least = about.seen if increments else torch.zeros_like(about.seen)
    return Batch(
        rollout=rollout,
        inputs=inputs.flatten(0, 1),
        action=rollout.action.flatten(0, 1),
        advantage=advantage.flatten(),
        target=target.flatten(),
        cost_advantage=cost_advantage.flatten(0, 1),
        cost_target=cost_target.flatten(0, 1),
        positive=returns.positive_ahead(cost, rollout.ended).any(-1).flatten(),
        J=torch.minimum(torch.maximum(about.mean, least).cpu(), most),
        length=about.length,
        episodes=about.episodes,
    )


def evaluation(algo: Algorithm) -> Callable[..., tuple[Tensor, ...]]:
    """A function of a rollout's tensors, `[T, B, ...]` each: what the critics make of it.

    Returns advantage and target of the reward, advantage and target of the cost signal (without
    columns if there is none), and the values of the cost critic at inputs and next inputs.
    """
    settings, signal = algo.settings, algo.cost_signal

    @torch.no_grad()
    def evaluate(
        inputs: Tensor, next_inputs: Tensor, reward: Tensor, cost: Tensor, *ends: Tensor
    ) -> tuple[Tensor, ...]:
        value, next_value = (algo.value(x).squeeze(-1) for x in (inputs, next_inputs))
        advantage = returns.advantages(
            reward, value, next_value, *ends, gamma=settings.gamma, lam=settings.lam
        )
        target = returns.returns_to_go(reward, next_value, *ends, gamma=settings.gamma)
        advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
        if signal is None or algo.cost_value is None:
            return advantage, target, *[cost[..., :0]] * 4
        value, next_value = algo.cost_value(inputs), algo.cost_value(next_inputs)
        past_limit = signal.bootstrap_truncated
        cost_advantage = returns.advantages(
            cost, value, next_value, *ends,
            gamma=signal.gamma, lam=signal.lam, bootstrap_truncated=past_limit,
        )  # fmt: skip
        cost_advantage = cost_advantage - cost_advantage.mean(dim=(0, 1))
        cost_target = returns.returns_to_go(
            cost, next_value, *ends, gamma=signal.gamma, bootstrap_truncated=past_limit
        )
        return advantage, target, cost_advantage, cost_target, value, next_value

    return evaluate
