"""A robust mean, and exact bounds on a rate."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from statewise.core.statistics import (
    iqm,
    mean_interval,
    pooled_error,
    rate_interval,
    rate_over_seeds,
    ratio_bootstrap,
)


def test_iqm_is_the_mean_of_the_middle_half():
    # of eight values the lowest and highest two go: mean(3, 4, 5, 6)
    assert iqm([1000, 1, 2, 3, 4, 5, 6, -1000]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm([1.0, 2.0, 9.0]) == 4.0


def test_iqm_pools_all_runs_and_tasks():
    assert iqm([[0, 1], [2, 100]]) == pytest.approx(1.5)


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    base, covered = np.ones(1), 0
    for trial in range(200):
        values = generator.normal(1.0, 1.0, size=(30, 1))
        tasks = [(one, base) for one in values.T]
        interval = ratio_bootstrap(tasks, resamples=200, seed=trial)
        covered += interval.low <= 1.0 <= interval.high
    assert 0.87 <= covered / 200 <= 0.99


def test_bootstrap_resamples_within_each_task():
    # Tasks differ, runs within a task do not: resampling inside tasks leaves nothing to vary.
    tasks = [(np.full(5, value), np.ones(2)) for value in (0.0, 10.0, 100.0)]
    interval = ratio_bootstrap(tasks, resamples=50)
    # Of fifteen values three go on each side: two zeros, five tens and two hundreds are left.
    assert interval.low == interval.high == interval.estimate == pytest.approx(250 / 9)


def test_bootstrap_is_reproducible():
    tasks = [(np.random.default_rng(1).normal(size=12), np.ones(1))]
    assert ratio_bootstrap(tasks, seed=3) == ratio_bootstrap(tasks, seed=3)
    assert ratio_bootstrap(tasks, seed=3) != ratio_bootstrap(tasks, seed=4)


def test_one_run_in_every_task_has_no_interval_instead_of_one_of_width_zero():
    base = np.array([0.9, 1.1])  # its runs alone say nothing about the method's
    found = ratio_bootstrap([(np.array([0.2]), base), (np.array([0.4]), base)])
    assert found.estimate == pytest.approx(0.3)
    assert math.isnan(found.low) and math.isnan(found.high)


def test_mean_interval_is_students_and_never_negative():
    found = mean_interval([0.1, 0.2, 0.3])
    assert found is not None
    # t(0.975, 2) = 4.3027 times 0.1 / sqrt(3); the lower end would be negative
    assert found.low == 0.0
    assert found.high == pytest.approx(0.2 + 4.3027 * 0.1 / math.sqrt(3), 1e-4)
    assert mean_interval([0.1]) is None


def test_pooled_error_is_that_of_all_values_together():
    one, two = np.array([1.0, 3.0, 2.0]), np.array([5.0, 9.0])
    both = np.concatenate([one, two])
    found = pooled_error([(3, one.mean(), one.std()), (2, two.mean(), two.std())])
    assert found == pytest.approx(both.std(ddof=1) / math.sqrt(5))
    assert pooled_error([(1, 2.0, 0.0)]) is None


def test_rate_interval_agrees_with_published_values():
    # Clopper and Pearson for 4 of 20 at 95 %: (0.0573, 0.4366)
    got = rate_interval(4, 20)
    assert got.low == pytest.approx(0.0573, abs=1e-4)
    assert got.high == pytest.approx(0.4366, abs=1e-4)
    assert got.estimate == 0.2


def test_rate_interval_ends_at_zero_and_one():
    assert rate_interval(0, 10).low == 0.0 and rate_interval(10, 10).high == 1.0


@pytest.mark.parametrize("rate", [0.001, 0.02, 0.3, 0.9])
def test_exact_intervals_cover_every_rate_at_least_as_often_as_they_say(rate):
    n = 40
    events = np.arange(n + 1)
    chance = binom.pmf(events, n, rate)
    two_sided = [rate_interval(int(k), n) for k in events]
    inside = np.array([i.low <= rate <= i.high for i in two_sided])
    assert chance[inside].sum() >= 0.95


def test_what_cannot_be_summarised_is_refused():
    with pytest.raises(ValueError, match="no values"):
        iqm([])
    with pytest.raises(ValueError, match="1 of 2 values are not finite"):
        iqm([1.0, math.nan])
    with pytest.raises(ValueError, match="5 events in 3 trials"):
        rate_interval(5, 3)
    with pytest.raises(ValueError, match="level is 95"):
        rate_interval(1, 3, level=95)


def coverage(rate: float, spread: float, seeds: int) -> tuple[float, float]:
    """How often the intervals over seeds, and of all trials together, cover the mean rate of seeds
    whose rates are drawn from a beta distribution with that mean and standard deviation."""
    generator = np.random.default_rng(0)
    size = rate * (1 - rate) / spread**2 - 1
    over_seeds = pooled = 0
    for _ in range(300):
        rates = generator.beta(rate * size, (1 - rate) * size, seeds)
        counts = [(int(events), 400) for events in generator.binomial(400, rates)]
        found = rate_over_seeds(counts)
        together = rate_interval(sum(n for n, _ in counts), 400 * seeds)
        over_seeds += found.low <= rate <= found.high
        pooled += together.low <= rate <= together.high
    return over_seeds / 300, pooled / 300


@pytest.mark.parametrize(("rate", "spread"), [(0.02, 0.01), (0.1, 0.05), (0.3, 0.09)])
@pytest.mark.parametrize("seeds", [2, 5])
def test_an_interval_over_seeds_covers_where_pooled_trials_do_not(rate, spread, seeds):
    covered, pooled = coverage(rate, spread, seeds)
    assert covered >= 0.92
    assert pooled < 0.82


def test_an_interval_over_seeds_is_never_narrower_than_that_of_all_trials():
    alike = rate_over_seeds([(5, 100), (5, 100), (5, 100)])
    assert alike == rate_interval(15, 300)
    assert rate_over_seeds([(0, 50), (0, 50)]) == rate_interval(0, 100)


def test_the_interval_of_one_seed_is_the_exact_one():
    assert rate_over_seeds([(3, 40)]) == rate_interval(3, 40)
    assert rate_over_seeds([(3, 40), (0, 0)]) == rate_interval(3, 40)  # no trial is no seed
