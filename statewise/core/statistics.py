"""Summaries of few runs: a robust mean, and exact bounds on a rate."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta as beta_distribution
from scipy.stats import trim_mean


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that covers the truth with probability ``level``."""

    low: float
    estimate: float
    high: float
    level: float


def iqm(values: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half, over all ``values`` whatever their shape.

    A quarter of the values, rounded down, is cut from each side; three or fewer keep all.
    """
    sample = np.asarray(values, dtype=np.float64).ravel()
    if sample.size == 0:
        raise ValueError("there are no values to summarise; give at least one")
    if not np.isfinite(sample).all():
        raise ValueError(
            f"{int((~np.isfinite(sample)).sum())} of {sample.size} values are not finite; "
            "remove them knowingly before summarising"
        )
    return float(trim_mean(sample, proportiontocut=0.25))


def rate_interval(events: int, trials: int, *, level: float = 0.95) -> Interval:
    """Exact two-sided (Clopper-Pearson) interval for the probability of an event.

    Covers the true rate with probability at least ``level`` whatever the rate and the trials.
    """
    if trials < 1 or not 0 <= events <= trials:
        raise ValueError(
            f"{events} events in {trials} trials; give 0 <= events <= trials, trials >= 1"
        )
    if not 0.0 < level < 1.0:
        raise ValueError(
            f"level is {level}; give a probability strictly between 0 and 1, such as 0.95"
        )
    tail, others = (1 - level) / 2, trials - events
    # The rates at which as many events or more, and as many or fewer, have probability `tail`.
    low = float(beta_distribution.ppf(tail, events, others + 1)) if events else 0.0
    high = float(beta_distribution.ppf(1 - tail, events + 1, others)) if others else 1.0
    return Interval(low, events / trials, high, level)
