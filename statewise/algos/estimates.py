"""From a rollout to what an update needs: advantages, critic targets, J of the current policy."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from statewise.core import mmdp, returns
from statewise.types import Rollout

AGES = (0, 10, 30, 100, 300)
"""Metrics that change along an episode are grouped by its age in steps; groups begin at these."""


@dataclass(frozen=True)
class CostSignal:
    """The cost a method learns from, and how its future is summed."""

    kind: Literal["cost", "increment"]
    gamma: float
    lam: float | Tensor
    """One for all costs, or a tensor `[m]`, whose numbers may change"""
    past_limit: bool = True
    """Whether the future past the time limit counts. It does not for increments: the limit is part
    of the finite-horizon Maximum MDP."""


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
    """[N] whether any cost is still to come in the row's episode, as far as the rollout shows"""
    J: Tensor
    """[m] float64: what an episode of the current policy costs (sum, or maximum for increments)"""
    length: float
    """Mean episode length"""
    episodes: float
    """How many episodes the rollout is worth"""

    def finite(self) -> bool:
        """Whether every number is."""
        # Raw observations too: scaled, an infinite one is only a large one.
        seen = (self.rollout.obs, self.rollout.next_obs, self.inputs, self.action)
        found = (self.advantage, self.target, self.cost_advantage, self.cost_target)
        here = torch.stack([torch.isfinite(x).all() for x in (*seen, *found)]).all()
        return bool(here) and bool(torch.isfinite(self.J).all())

    def metrics(self, cost_names: tuple[str, ...]) -> dict[str, float]:
        """What the rollout shows, before anything is learned from it."""
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
def make_batch(
    rollout: Rollout,
    inputs: Tensor,
    next_inputs: Tensor,
    evaluate: Callable[..., tuple[Tensor, ...]],
    signal: CostSignal | None,
    ceilings: Sequence[float],
    start_value: Tensor | None,
) -> Batch:
    """Turn a rollout into a batch.

    inputs, next_inputs: `[T, B, k]`, what networks read. evaluate: `evaluate_critics` of the critics.
    ceilings: the largest step cost of each constraint. start_value: `[n, m]`, the cost critic at start
    states, used if no episode starts in the rollout.
    """
    increments = signal is not None and signal.kind == "increment"
    cost = rollout.increment if increments else rollout.cost
    advantage, target, cost_advantage, cost_target, value, next_value = evaluate(
        inputs, next_inputs, rollout.reward, cost, rollout.terminated, rollout.truncated
    )
    values: dict[str, Tensor | None] = {}
    if signal is not None:
        values = {"value": value, "next_value": next_value, "start_value": start_value}
    # A maximum is no larger than the largest cost of a step: the ceiling, or more if an environment
    # of somebody else's shows more.
    bounds = [(increments and ceiling) or math.inf for ceiling in ceilings]
    most = torch.tensor(bounds, dtype=torch.float64)
    most = torch.maximum(most, rollout.cost_max.flatten(0, 1).amax(dim=0).double().cpu())
    about = mmdp.episode_mean(cost, rollout.ended, rollout.age, **values)
    # Nor is it smaller than what was seen of it, which the errors of V_D can hide. Costs are not
    # negative, so an estimate below 0 is noise, and would switch a limit of 0 off.
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


@torch.no_grad()
def evaluate_critics(
    value: nn.Module, gamma: float, lam: float,
    cost_value: nn.Module | None, signal: CostSignal | None,
    inputs: Tensor, next_inputs: Tensor, reward: Tensor, cost: Tensor, *ends: Tensor,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Advantage and target of the reward, advantage and target of the cost signal (without columns
    if there is none), and the cost critic at inputs and next inputs; `[T, B, ...]` each."""
    here, ahead = (value(x).squeeze(-1) for x in (inputs, next_inputs))
    advantage = returns.advantages(reward, here, ahead, *ends, gamma=gamma, lam=lam)
    target = returns.returns_to_go(reward, ahead, *ends, gamma=gamma)
    advantage = (advantage - advantage.mean()) / (advantage.std(correction=0) + 1e-8)
    if signal is None or cost_value is None:
        return advantage, target, *[cost[..., :0]] * 4
    here, ahead = cost_value(inputs), cost_value(next_inputs)
    how: dict[str, Any] = {"gamma": signal.gamma, "bootstrap_truncated": signal.past_limit}
    cost_advantage = returns.advantages(cost, here, ahead, *ends, lam=signal.lam, **how)
    cost_advantage = cost_advantage - cost_advantage.mean(dim=(0, 1))
    cost_target = returns.returns_to_go(cost, ahead, *ends, **how)
    return advantage, target, cost_advantage, cost_target, here, ahead
