"""Bounds on the probability of an event that hold at every look (docs/certify.md derives them).

n trials, k events, q a candidate rate, c a bet on the odds of an event. If the true rate is at least q,
and c < 1, then c^k / (1 - (1 - c) q)^n is a nonnegative supermartingale that starts at 1. By Ville's
inequality it ever reaches 1/alpha with probability at most alpha. The same holds for c > 1 if the true
rate is at most q. A weighted mean over several c has the same property.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

_BETS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
"""c: the odds of an event are this many times those of the candidate rate. Chosen by simulation so that
few episodes are needed from a fifth of the rate up to 70 % of it (benchmarks/certify.py)."""


def log_evidence_below(rate: float, events: npt.ArrayLike, trials: npt.ArrayLike) -> Array:
    """Log of the evidence that the true rate is below `rate`, for each pair of counts `[...]`.

    It ever reaches log(1/alpha) with probability at most alpha if the true rate is `rate` or more.
    """
    return _log_mixture(np.array(_BETS), rate, events, trials)


def log_evidence_above(rate: float, events: npt.ArrayLike, trials: npt.ArrayLike) -> Array:
    """Log of the evidence that the true rate is above `rate`: the bets are the inverse ones."""
    return _log_mixture(1.0 / np.array(_BETS[1:]), rate, events, trials)


def sequential_bounds(events: int, trials: int, alpha: float) -> tuple[float, float]:
    """Lower and upper bound on the rate. Each one is ever wrong with probability at most `alpha`.

    The number of trials may depend on the outcomes so far: looking often costs nothing.
    """
    _check_counts(events, trials)
    check_probability("alpha", alpha)
    enough = math.log(1.0 / alpha)
    low, high = 0.0, 1.0
    if trials > events:  # the evidence below q grows with q
        high = _cross(lambda q: float(log_evidence_below(q, events, trials)) >= enough)
    if events:  # the evidence above q falls with q
        low = 1.0 - _cross(lambda q: float(log_evidence_above(1 - q, events, trials)) >= enough)
    return low, high


def _check_counts(events: int, trials: int) -> None:
    """Raise ValueError unless that many events can occur in that many trials."""
    if trials < 1 or not 0 <= events <= trials:
        raise ValueError(
            f"{events} events in {trials} trials: give 0 <= events <= trials, trials >= 1"
        )


def check_probability(name: str, value: float) -> None:
    """Raise ValueError unless a value lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} is {value}: give a number strictly between 0 and 1")


def _log_mixture(bets: Array, rate: float, events: npt.ArrayLike, trials: npt.ArrayLike) -> Array:
    """log of the mean over c of c^k / (1 + (c - 1) q)^n"""
    k, n = (np.asarray(x, dtype=np.float64)[..., None] for x in (events, trials))
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(k > 0, k * np.log(bets), 0.0)  # 0^0 is 1
    logs = gain - n * np.log1p((bets - 1.0) * rate)
    top = logs.max(axis=-1, keepdims=True)
    mean: Array = np.log(np.exp(logs - top).mean(axis=-1)) + top[..., 0]
    return mean


def _cross(reached: Callable[[float], bool], steps: int = 50) -> float:
    """Where a condition on (0, 1) that holds from some point on begins to hold; 1 if it never does."""
    low, high = 0.0, 1.0
    for _ in range(steps):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return high
