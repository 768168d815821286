"""The Maximum Markov decision process: running maxima, increments, and episode estimates.

Legend (paper, Section 3.3): C cost of a step, M largest cost of the episode so far,
D = max(C - M, 0) the increment (eq. 7). The increments of an episode sum to its largest cost, so
that J_D = E[Σ D] (eq. 8) is the expected maximum cost and needs no discount. All are [m], one for
each constraint.

Estimating J of the current policy from a rollout [T, B] whose worlds were *not* reset at its start
------------------------------------------------------------------------------------------------
Which episodes may be averaged is a trap. In a rollout of few rows and many worlds

* those that *finish* in it are the short ones, as long as the worlds started together. Once their
  ages have spread, finished episodes are a fair sample, though mostly driven by older policies;
* those that are *alive* in it are the long ones (a long episode meets more rollouts);
* those that *start* in it are a fair sample always: whether an episode starts is decided before it
  begins. What they do after the cut is unknown, and a value function must stand for it.

`episode_mean` is the estimator to train with. Let K be the number of episodes that start, N = T·B,
and δ = signal + V(successor) - V(state), V = 0 past an end. Then

    J ≈ mean V(start states) + Σ δ / E,        E = max(K, N / longest age reached).

Along a whole episode δ telescopes to (sum of signal) - V(start), whatever V is. Hence

* if all worlds start at row 0, this is the mean over the started episodes of what was seen plus V
  of the rest, exactly;
* in a stationary stream of episodes it is unbiased for *any* V, even V = 0, because the rollout is
  then a fair sample of the steps of an episode and N / K estimates the mean episode length;
* if V is exact it is unbiased whatever the ages and whatever E is, because δ has mean zero.

So an error needs both: a wrong V *and* a stream that is not steady, because worlds are of similar
age or because a policy that has just learned to reach its goal ends many episodes at once. The
bound on E covers rollouts in which few or no episodes start: no episode is longer than the ages that
occur. V may be discounted: that makes it another V, no less valid here.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor


def running_maximum(cost: Tensor, ended: Tensor) -> tuple[Tensor, Tensor]:
    """M before and after the cost of each row, both [T, B, m].

    cost: [T, B, m]; ended: bool [T, B], terminated or truncated. Every world starts an episode in
    the first row. M starts at 0, so that with C >= 0 the first increment is the first cost.
    """
    lowest = cost.min() if cost.numel() else cost.new_zeros(())
    if not lowest >= 0.0:
        raise ValueError(f"the smallest cost is {float(lowest)}: give costs of 0 or more")
    maximum = torch.zeros_like(cost[0])
    before, after = torch.empty_like(cost), torch.empty_like(cost)
    for t in range(len(cost)):
        before[t] = maximum
        torch.maximum(maximum, cost[t], out=after[t])
        maximum = after[t].masked_fill(ended[t].unsqueeze(-1), 0.0)
    return before, after


def increments(cost: Tensor, before: Tensor) -> Tensor:
    """D = max(C - M, 0) of each row, [T, B, m] (eq. 7); ``before`` is M before the row's cost."""
    return (cost - before).clamp_min(0.0)


def episode_age(ended: Tensor, start: Tensor) -> Tensor:
    """Steps the episode had taken before each row, int64 [T, B]; 0 marks the start of an episode.

    ended: bool [T, B]; start: int [B], the steps taken before the first row.
    """
    age = torch.empty(ended.shape, dtype=torch.int64, device=ended.device)
    current = start.to(torch.int64)
    for t in range(len(ended)):
        age[t] = current
        current = (current + 1).masked_fill(ended[t], 0)
    return age


@dataclass(frozen=True)
class EpisodeEstimate:
    """What a rollout says about one episode of the current policy."""

    mean: Tensor
    """[m] expected sum of the signal over an episode"""
    seen: Tensor
    """[m] the same with V = 0: what there was of the signal, for each episode"""
    episodes: float
    """E: how many episodes the rollout is worth; divide a sum over the rollout by it"""
    length: float
    """N / E: the mean episode length, never longer than the longest age reached"""


def episode_mean(
    signal: Tensor,
    ended: Tensor,
    age: Tensor,
    *,
    value: Tensor | None = None,
    next_value: Tensor | None = None,
    start_value: Tensor | None = None,
) -> EpisodeEstimate:
    """Mean episode sum of ``signal``, counting every row once; see the top of this file.

    For J_D give the increments and V_D, for J_C the costs and V_C; without values V = 0.

    signal: [T, B, m]; ended: bool [T, B]; age: int [T, B], see `episode_age`.
    value, next_value: [T, B, m], V of the state and of its true successor (ignored past an end).
    start_value: [n, m], V at any n start states, used if no episode starts in the rollout. Start
        states do not depend on the policy, so those of the first reset will always do.
    """
    first = age == 0
    rows, started = ended.numel(), int(first.sum())
    longest = int(age.max()) + 1
    episodes = max(float(started), rows / longest)
    length = min(rows / episodes, float(longest))  # rounding may not make it longer than any
    total = signal.double().sum((0, 1))
    seen = total / episodes
    if value is None or next_value is None:
        return EpisodeEstimate(seen, seen, episodes, length)

    tail = torch.where(ended.unsqueeze(-1), torch.zeros_like(next_value), next_value)
    error = total + (tail.double() - value.double()).sum((0, 1))
    if started:
        start_value = value[first]
    elif start_value is None:
        raise ValueError(
            f"none of {rows} rows starts an episode, so V at a start state is not known: give "
            "start_value, for instance the critic at the observations of the first reset"
        )
    mean = start_value.double().mean(0) + error / episodes
    return EpisodeEstimate(mean, seen, episodes, length)


def state_wise_penalty(
    epsilon: npt.ArrayLike,
    mean_kl: npt.ArrayLike,
    mean_length: npt.ArrayLike,
    horizon: int,
    gamma: float = 1.0,
) -> npt.NDArray[np.float64]:
    """The corrected bound term, from what training measures: 2 H eps min(1, sqrt(K / 2)).

    K = mean_length * mean_kl is the KL divergence of whole episodes. With it
    J_D(pi') <= J_D(pi) + E_dbar[A_D] + state_wise_penalty(...) for any two policies.

    epsilon      max over states of |E_{a ~ pi'} A_D(s^, a)|
    mean_kl      KL(pi || pi'), OLD policy first, averaged over the visited steps
    mean_length  mean number of steps of an episode of pi, at most horizon + 1
    horizon      H, index of the last step an episode can have: the time limit minus one, also
                 when episodes may end early, because the new policy may live longer
    gamma        1 for the cost increments; the discount for a reward, when H becomes
                 sum_{t=1}^{H} gamma^t and the term bounds the loss of return (Proposition 2)

    Arguments broadcast; the result is an array of their shape. The maximum over states cannot be
    measured from samples, so in training this is a diagnostic and not a guarantee.
    """
    eps, kl, length = (np.asarray(x, dtype=np.float64) for x in (epsilon, mean_kl, mean_length))
    if horizon < 0:
        raise ValueError(f"horizon is {horizon}; it is the index of the last step, at least 0")
    if np.any(eps < 0):
        raise ValueError(f"epsilon is {eps}; it is a largest absolute value, at least 0")
    if np.any((length <= 0) | (length > horizon + 1)):
        raise ValueError(f"mean_length is {length}; it must lie in (0, {horizon + 1}]")
    steps = float((gamma ** np.arange(1, horizon + 1)).sum())
    root = np.sqrt(length * np.maximum(kl, 0.0) / 2)  # an estimate of zero can round below it
    return np.asarray(2 * steps * eps * np.minimum(1.0, root))


# --- what a constraint bounds ------------------------------------------------------------------

Kind = Literal["maximum", "sum", "probability", "deviation"]
"""What a constraint bounds: E[max C], E[Σ C], P[max C > z], or E[max C] + κ · Std[max C]"""

Channel = tuple[int, Literal["maximum", "sum", "probability", "square"]]
"""A constraint, and the signal of it that a cost critic learns"""

_LEAST_DEVIATION = 1e-3
"""Smallest standard deviation in the slope of a deviation, as a share of the largest cost: the slope of
a root is infinite at 0, where no cost was seen."""


@dataclass(frozen=True)
class CostSignal:
    """What a cost critic learns of each constraint, and what a constraint makes of it.

    For any φ that never falls, the increments φ(M after) - φ(M before) of an episode sum to φ of its
    largest cost (from φ(0) = 0). So E[M], P[M > z] and E[M²] are all sums, and need no discount. They
    end with the episode's time. A sum of costs is discounted, and goes on past the time limit.
    """

    kinds: tuple[Kind, ...]
    """[m]"""
    gamma: float
    """Discount of sums"""
    lam: float
    """Decay of the advantage estimate"""
    threshold: tuple[float, ...] = ()
    """[m] z of each constraint, if one is a probability"""
    kappa: float = 0.0
    """κ of deviations"""

    @property
    def channels(self) -> list[Channel]:
        """[k] one for each constraint, two for a deviation"""
        out: list[Channel] = []
        for i, kind in enumerate(self.kinds):
            out += [(i, "maximum"), (i, "square")] if kind == "deviation" else [(i, kind)]
        return out

    @property
    def needs_maximum(self) -> bool:
        """Whether the running maxima must be part of the state."""
        return any(kind != "sum" for kind in self.kinds)

    def discounts(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """[k] the discount of each channel, and whether it goes on past the time limit"""
        sums = torch.tensor([what == "sum" for _, what in self.channels], device=device)
        return torch.where(sums, self.gamma, 1.0), sums

    def read(self, cost: Tensor, before: Tensor, after: Tensor) -> Tensor:
        """The signals `[T, B, k]` of costs and of the maxima before and after them, `[T, B, m]` each."""
        out = []
        for i, what in self.channels:
            c, low, high = cost[..., i], before[..., i], after[..., i]
            if what == "probability":
                z = self.threshold[i]
                out.append((high > z).to(c.dtype) - (low > z).to(c.dtype))
            elif what == "square":
                out.append(high.square() - low.square())
            else:
                out.append(c if what == "sum" else high - low)
        return torch.stack(out, dim=-1) if out else cost.new_zeros((*cost.shape[:-1], 0))

    def ceilings(self, largest: Sequence[float]) -> list[float]:
        """[k] the most that an episode can have of each channel; largest: [m] step cost, 0 if unknown"""
        of = {"maximum": 1, "square": 2}
        tops = [(largest[i] or math.inf, what) for i, what in self.channels]
        whole = {"sum": math.inf, "probability": 1.0}
        return [whole[what] if what in whole else top ** of[what] for top, what in tops]

    def values(self, J: Tensor, largest: Sequence[float]) -> tuple[Tensor, Tensor]:
        """What each constraint bounds `[m]`, and its slope `[m, k]` in the channels; J: `[k]` float64."""
        channels = self.channels
        value, slope = J.new_zeros(len(self.kinds)), J.new_zeros(len(self.kinds), len(J))
        for j, (i, what) in enumerate(channels):
            if what != "square":
                value[i], slope[i, j] = J[j], 1.0
                continue
            mean, variance = J[j - 1], (J[j] - J[j - 1].square()).clamp(min=0.0)
            sigma = variance.sqrt().clamp(min=_LEAST_DEVIATION * (largest[i] or 1.0))
            value[i] += self.kappa * variance.sqrt()
            slope[i, j - 1] -= self.kappa * mean / sigma
            slope[i, j] = 0.5 * self.kappa / sigma
        return value, slope


def sums_of_costs(num_costs: int, gamma: float, lam: float) -> CostSignal:
    """The signal of methods that bound sums."""
    kinds: tuple[Kind, ...] = ("sum",)
    return CostSignal(kinds * num_costs, gamma, lam)
