"""A robust mean, and exact bounds on a rate."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from statewise.core.statistics import iqm, rate_interval


def test_iqm_is_the_mean_of_the_middle_half():
    # of eight values the lowest and highest two go: mean(3, 4, 5, 6)
    assert iqm([1000, 1, 2, 3, 4, 5, 6, -1000]) == pytest.approx((2 + 3 + 4 + 5) / 4)
    assert iqm([1.0, 2.0, 9.0]) == 4.0


def test_iqm_pools_all_runs_and_tasks():
    assert iqm([[0, 1], [2, 100]]) == pytest.approx(1.5)


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
