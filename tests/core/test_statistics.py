"""Summaries, bootstrap intervals and exact bounds."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from statewise.core.statistics import iqm, mean, rate_interval, stratified_bootstrap, summary


def test_iqm_is_the_mean_of_the_middle_half():
    # of eight values the lowest and highest two go: mean(3, 4, 5, 6)
    assert iqm([1000, 1, 2, 3, 4, 5, 6, -1000]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm([1.0, 2.0, 9.0]) == 4.0


def test_iqm_pools_all_runs_and_tasks():
    assert iqm([[0, 1], [2, 100]]) == pytest.approx(1.5)


def test_summary_by_hand():
    got = summary([1.0, 2.0, 3.0, 4.0])
    assert (got.count, got.mean, got.minimum, got.maximum, got.median) == (4, 2.5, 1, 4, 2.5)
    assert got.std == pytest.approx(math.sqrt(5 / 3))
    assert (got.quartile_low, got.quartile_high) == (1.75, 3.25)
    assert summary([7.0]).std == 0.0


def test_bootstrap_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(0)
    covered = 0
    for trial in range(200):
        interval = stratified_bootstrap(
            generator.normal(size=(30, 1)), mean, resamples=200, seed=trial
        )
        covered += interval.low <= 0.0 <= interval.high
    assert 0.87 <= covered / 200 <= 0.99


def test_bootstrap_resamples_within_each_task():
    # Tasks differ, runs within a task do not: resampling inside tasks leaves nothing to vary.
    scores = np.tile([0.0, 10.0, 100.0], (5, 1))
    interval = stratified_bootstrap(scores, mean, resamples=50)
    assert interval.low == interval.high == interval.estimate == pytest.approx(110 / 3)


def test_bootstrap_is_reproducible_and_takes_one_task():
    scores = np.random.default_rng(1).normal(size=12)
    assert stratified_bootstrap(scores, seed=3) == stratified_bootstrap(scores, seed=3)
    assert stratified_bootstrap(scores, seed=3) != stratified_bootstrap(scores, seed=4)


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
        summary([1.0, math.nan])
    with pytest.raises(ValueError, match="5 events in 3 trials"):
        rate_interval(5, 3)
    with pytest.raises(ValueError, match="level is 95"):
        rate_interval(1, 3, level=95)
