"""Summaries of few runs: robust means, bootstrap intervals, exact bounds on a rate."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta as beta_distribution
from scipy.stats import t as student_t
from scipy.stats import trim_mean

Array = npt.NDArray[np.float64]


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


def mean_interval(values: npt.ArrayLike, level: float = 0.95) -> Interval | None:
    """Student t interval for the mean of a quantity that is never negative.

    Returns None for fewer than two values, which say nothing about the spread.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.size < 2:
        return None
    mean, error = float(sample.mean()), float(sample.std(ddof=1)) / math.sqrt(sample.size)
    reach = float(student_t.ppf((1 + level) / 2, sample.size - 1)) * error
    return Interval(max(0.0, mean - reach), mean, mean + reach, level)


def pooled_error(parts: Sequence[tuple[int, float, float]]) -> float | None:
    """Standard error of the mean over several samples taken together; None for fewer than two values.

    parts: the count, mean and standard deviation of each sample.
    """
    total = sum(n for n, _, _ in parts)
    if total < 2:
        return None
    mean = sum(n * m for n, m, _ in parts) / total
    squares = sum(n * (std**2 + (m - mean) ** 2) for n, m, std in parts)
    return math.sqrt(squares / (total - 1) / total)


def ratio_bootstrap(
    tasks: Sequence[tuple[Array, Array]],
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Interquartile mean of values divided by the mean of a base, with a percentile interval.

    tasks: the values of the runs in each task, and those of the base there, whose mean is positive; the
    same array twice where the runs are the base. Runs are drawn with replacement within each task, those
    of the base too, since its mean is an estimate. If every task has one run only, nothing is known about
    the spread and both bounds are NaN.
    """
    estimate = iqm(np.concatenate([values / base.mean() for values, base in tasks]))
    if max(len(values) for values, _ in tasks) < 2:
        return Interval(math.nan, estimate, math.nan, level)
    generator = np.random.default_rng(seed)

    def draw(sample: Array) -> Array:
        return sample[generator.integers(len(sample), size=(resamples, len(sample)))]

    draws = []
    for values, base in tasks:
        drawn = draw(base)
        # Draws whose mean is not positive are replaced by others. The sample itself is one that is.
        drawn = np.concatenate([drawn[drawn.mean(axis=1) > 0], base[None]])
        drawn = np.resize(drawn, (resamples, len(base)))
        above = drawn if values is base else draw(values)
        draws.append(above / drawn.mean(axis=1, keepdims=True))
    scores = trim_mean(np.concatenate(draws, axis=1), 0.25, axis=1)
    low, high = np.quantile(scores, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(low), estimate, float(high), level)


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


def rate_over_seeds(counts: Sequence[tuple[int, int]], *, level: float = 0.95) -> Interval:
    """Interval for the mean rate of an event over seeds, from the events and trials of each seed.

    Seeds differ more than binomially, so the trials of several seeds are not trials of one coin. The
    seeds' rates have a Student t interval on the arcsine scale, which evens out their spread. It is
    never narrower than the exact interval of all trials together, which stands alone for one seed.
    """
    pooled = rate_interval(sum(n for n, _ in counts), sum(n for _, n in counts), level=level)
    rates = np.array([events / trials for events, trials in counts if trials])
    if len(rates) < 2:
        return pooled
    angles = np.arcsin(np.sqrt(rates))
    reach = student_t.ppf((1 + level) / 2, len(rates) - 1) * angles.std(ddof=1) / len(rates) ** 0.5
    ends = np.clip([angles.mean() - reach, angles.mean() + reach], 0.0, math.pi / 2)
    low, high = np.sin(ends) ** 2
    return Interval(
        min(float(low), pooled.low), pooled.estimate, max(float(high), pooled.high), level
    )
