"""Honest summaries of few runs: robust means, bootstrap intervals, exact bounds on a rate."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.stats import beta as beta_distribution
from scipy.stats import trim_mean

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Interval:
    """An estimate and the interval that covers the truth with probability ``level``."""

    low: float
    estimate: float
    high: float
    level: float


@dataclass(frozen=True)
class Summary:
    """The usual numbers of a sample; ``std`` is the sample one (n - 1), 0 for a single value."""

    count: int
    mean: float
    std: float
    minimum: float
    quartile_low: float
    median: float
    quartile_high: float
    maximum: float


def summary(values: npt.ArrayLike) -> Summary:
    """Count, mean, spread and quartiles of all ``values``, whatever their shape."""
    sample = _sample(values).ravel()
    low, median, high = np.quantile(sample, (0.25, 0.5, 0.75))
    std = float(sample.std(ddof=1)) if sample.size > 1 else 0.0
    return Summary(
        count=sample.size,
        mean=float(sample.mean()),
        std=std,
        minimum=float(sample.min()),
        quartile_low=float(low),
        median=float(median),
        quartile_high=float(high),
        maximum=float(sample.max()),
    )


def iqm(values: npt.ArrayLike) -> float:
    """Interquartile mean: the mean of the middle half, over all ``values`` whatever their shape.

    A quarter of the values, rounded down, is cut from each side; three or fewer keep all.
    """
    return float(trim_mean(_sample(values).ravel(), proportiontocut=0.25))


def mean(values: npt.ArrayLike) -> float:
    """The plain mean over all ``values``, for use as a statistic below."""
    return float(_sample(values).mean())


def stratified_bootstrap(
    scores: npt.ArrayLike,
    statistic: Callable[[Array], float] = iqm,
    *,
    level: float = 0.95,
    resamples: int = 2000,
    seed: int = 0,
) -> Interval:
    """Percentile bootstrap interval of ``statistic(scores)``.

    scores: [runs, tasks], or [runs] for one task. Runs are drawn with replacement within each task
    and independently between tasks, so no task is ever over- or under-represented.
    """
    _check_level(level)
    table = _sample(scores)
    table = table[:, None] if table.ndim == 1 else table
    if table.ndim != 2:
        raise ValueError(f"scores have shape {table.shape}; give [runs] or [runs, tasks]")
    generator = np.random.default_rng(seed)
    rows = generator.integers(len(table), size=(resamples, *table.shape))
    draws = [statistic(np.take_along_axis(table, chosen, axis=0)) for chosen in rows]
    low, high = np.quantile(draws, ((1 - level) / 2, (1 + level) / 2))
    return Interval(float(low), statistic(table), float(high), level)


def rate_interval(events: int, trials: int, *, level: float = 0.95) -> Interval:
    """Exact two-sided (Clopper-Pearson) interval for the probability of an event.

    Covers the true rate with probability at least ``level`` whatever the rate and the trials.
    """
    _check_counts(events, trials)
    _check_level(level)
    tail = (1 - level) / 2
    return Interval(
        _lower_bound(events, trials, tail),
        events / trials,
        _upper_bound(events, trials, tail),
        level,
    )


def _lower_bound(events: int, trials: int, tail: float) -> float:
    """The rate at which ``events`` or more have probability ``tail``."""
    return float(beta_distribution.ppf(tail, events, trials - events + 1)) if events else 0.0


def _upper_bound(events: int, trials: int, tail: float) -> float:
    """The rate at which ``events`` or fewer have probability ``tail``."""
    if events == trials:
        return 1.0
    return float(beta_distribution.ppf(1 - tail, events + 1, trials - events))


def _sample(values: npt.ArrayLike) -> Array:
    sample = np.asarray(values, dtype=np.float64)
    if sample.size == 0:
        raise ValueError("there are no values to summarise; give at least one")
    if not np.isfinite(sample).all():
        raise ValueError(
            f"{int((~np.isfinite(sample)).sum())} of {sample.size} values are not finite; "
            "remove them knowingly before summarising"
        )
    return sample


def _check_counts(events: int, trials: int) -> None:
    if trials < 1 or not 0 <= events <= trials:
        raise ValueError(
            f"{events} events in {trials} trials; give 0 <= events <= trials, trials >= 1"
        )


def _check_level(level: float) -> None:
    if not 0.0 < level < 1.0:
        raise ValueError(
            f"level is {level}; give a probability strictly between 0 and 1, such as 0.95"
        )
