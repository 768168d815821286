"""Bounds that hold at every look."""

import math

import numpy as np
import pytest

from statewise.core.sequential import (
    log_evidence_above,
    log_evidence_below,
    sequential_bounds,
)
from statewise.core.statistics import rate_interval

ENOUGH = math.log(20)


def first_looks(rate: float, claim: float, policies: int, most: int, seed: int) -> np.ndarray:
    """After how many episodes each simulated policy is proved and refuted; `most + 1` if never."""
    outcomes = np.random.default_rng(seed).random((policies, most)) < rate
    k, n = outcomes.cumsum(axis=1), np.arange(1, most + 1)
    looks = []
    for evidence in (log_evidence_below, log_evidence_above):
        enough = evidence(claim, k, n) >= ENOUGH
        looks.append(np.where(enough.any(axis=1), enough.argmax(axis=1) + 1, most + 1))
    return np.stack(looks, axis=1)


def test_without_events_the_evidence_is_the_mean_of_the_bets_won() -> None:
    won = [(1 - (1 - c) * 0.5) ** -3 for c in (*np.arange(10) / 10, 0.95)]
    assert float(log_evidence_below(0.5, 0, 3)) == pytest.approx(math.log(np.mean(won)))


def test_evidence_has_mean_one_at_the_rate_itself() -> None:
    """All outcomes of 6 trials at rate 0.3, weighted by their probability."""
    k = np.arange(7)
    chance = np.array([math.comb(6, i) * 0.3**i * 0.7 ** (6 - i) for i in k])
    for evidence in (log_evidence_below, log_evidence_above):
        assert chance @ np.exp(evidence(0.3, k, np.full(7, 6))) == pytest.approx(1.0)


def test_a_bad_policy_is_seldom_proved_and_a_good_one_seldom_refuted_at_any_look() -> None:
    """The claim is 1 %, at 95 %, and the rate is at its very edge, where errors are most likely."""
    proved, refuted = (first_looks(0.01, 0.01, 400, 3000, seed=3) <= 3000).mean(axis=0)
    assert 0.0 < proved <= 0.05 + 0.022  # two standard errors of 400 policies
    assert 0.0 < refuted <= 0.05 + 0.022


def test_clear_cases_are_decided_soon() -> None:
    proved = first_looks(0.002, 0.01, 200, 3000, seed=1)[:, 0]
    refuted = first_looks(0.03, 0.01, 200, 3000, seed=2)[:, 1]
    assert np.median(proved) <= 1000 and np.median(refuted) <= 500


def test_bounds_agree_with_the_evidence_and_are_wider_than_those_for_one_look() -> None:
    low, high = sequential_bounds(7, 500, 0.05)
    assert float(log_evidence_below(high, 7, 500)) == pytest.approx(ENOUGH, abs=1e-6)
    assert float(log_evidence_above(low, 7, 500)) == pytest.approx(ENOUGH, abs=1e-6)
    once = rate_interval(7, 500, level=0.9)
    assert 0 < low < once.low < 7 / 500 < once.high < high < 0.05


@pytest.mark.parametrize(("events", "trials"), [(0, 1), (0, 10**6), (5, 5), (10**6, 10**6), (1, 2)])
def test_bounds_contain_the_observed_share_at_the_extremes(events: int, trials: int) -> None:
    low, high = sequential_bounds(events, trials, 0.01)
    assert 0.0 <= low <= events / trials <= high <= 1.0


@pytest.mark.parametrize(("counts", "alpha"), [((2, 1), 0.05), ((0, 0), 0.05), ((0, 5), 0.0)])
def test_impossible_counts_and_confidences_are_refused(
    counts: tuple[int, int], alpha: float
) -> None:
    with pytest.raises(ValueError, match="give"):
        sequential_bounds(*counts, alpha)
