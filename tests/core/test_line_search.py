"""The line search takes the first acceptable fraction, or changes nothing."""

import math

import pytest
import torch

from statewise.core.line_search import (
    Measurement,
    backtrack,
    backtrack_parameters,
    trust_region_test,
)


def quadratic(fraction):
    """KL grows with the square of the fraction, reward with the fraction."""
    return Measurement(kl=fraction**2, reward_change=fraction, cost_change=(-fraction,))


def test_first_fraction_inside_the_region_is_taken():
    # 0.8^j with KL = 0.64^j <= 0.5 first at j = 2: 0.64² = 0.4096
    search = backtrack(quadratic, trust_region_test(0.5, [0.1]))
    assert search.accepted and search.tries == 3
    assert search.fraction == pytest.approx(0.64)
    assert search.measurement == quadratic(search.fraction)
    assert search.rejections == {"kl": 2}


def test_full_step_is_tried_first():
    search = backtrack(quadratic, trust_region_test(1.0, [0.1]))
    assert search.fraction == 1.0 and search.tries == 1 and search.rejections == {}


def test_search_gives_up_after_the_given_number_of_steps():
    search = backtrack(quadratic, lambda _: "never", coefficient=0.5, steps=7)
    assert not search.accepted and search.fraction == 0.0
    assert search.tries == 7 and search.rejections == {"never": 7}


@pytest.mark.parametrize(
    "broken",
    [
        Measurement(math.nan, 1.0, (0.0,)),
        Measurement(0.0, math.inf, (0.0,)),
        Measurement(0.0, 1.0, (-math.inf,)),
    ],
)
def test_numbers_that_are_not_finite_are_rejections_even_for_a_lenient_test(broken):
    good = Measurement(0.0, 1.0, (0.0,))
    search = backtrack(lambda f: broken if f > 0.7 else good, lambda _: None)
    assert search.rejections == {"non-finite": 2} and search.measurement == good


@pytest.mark.parametrize(
    ("c", "change", "reason"),
    [
        (-0.3, 0.2, None),  # slack of 0.3 may be used
        (-0.3, 0.4, "cost 0"),
        (0.5, 0.0, None),  # violated: the cost must not rise, but need not fall
        (0.5, 0.1, "cost 0"),
    ],
)
def test_cost_may_rise_by_its_slack_and_never_when_violated(c, change, reason):
    test = trust_region_test(0.02, [c])
    assert test(Measurement(0.01, 1.0, (change,))) == reason


def test_every_constraint_is_tested_and_named():
    test = trust_region_test(0.02, [0.0, 0.0, 0.0])
    assert test(Measurement(0.01, 1.0, (0.0, 0.0, 1e-9))) == "cost 2"


def test_cost_reduction_demands_progress_when_violated():
    test = trust_region_test(0.02, [0.5], cost_reduction=0.1)
    assert test(Measurement(0.0, 0.0, (-0.05,))) == "cost 0"
    assert test(Measurement(0.0, 0.0, (-0.2,))) is None


@pytest.mark.parametrize(
    ("mode", "c", "feasible", "falls"),
    [
        ("paper", 0.1, True, "reward"),
        ("paper", 0.1, False, None),
        ("reference", 0.0, True, None),  # the published code waives it whenever c >= 0
        ("reference", -0.1, True, "reward"),
        ("always", 0.1, False, "reward"),
        ("never", -0.1, True, None),
    ],
)
def test_reward_may_fall_only_when_the_mode_allows_it(mode, c, feasible, falls):
    test = trust_region_test(0.02, [c], feasible=feasible, reward_test=mode)
    assert test(Measurement(0.01, -1e-6, (-1.0,))) == falls


class Policy:
    def __init__(self):
        self.flat = torch.tensor([0.1, 0.2, 0.3])

    def set(self, flat):
        self.flat.copy_(flat)


def test_accepted_step_is_left_in_the_parameters():
    policy, step = Policy(), torch.tensor([1.0, 0.0, -1.0])
    theta = policy.flat.clone()
    measure = lambda: Measurement(float((policy.flat - theta).norm()), 0.0)  # noqa: E731
    search = backtrack_parameters(theta, step, policy.set, measure, trust_region_test(1.0))
    assert search.accepted and search.fraction == pytest.approx(0.64)
    torch.testing.assert_close(policy.flat, theta + search.fraction * step, rtol=0, atol=0)


def test_failed_line_search_leaves_parameters_unchanged():
    policy = Policy()
    kept = policy.flat.clone()
    # theta is the very storage that set() writes to: the search must have its own copy
    search = backtrack_parameters(
        policy.flat, torch.ones(3) * 1e8, policy.set, lambda: Measurement(1.0, 0.0), lambda _: "no"
    )
    assert not search.accepted and search.fraction == 0.0
    assert torch.equal(policy.flat, kept)


def test_error_while_measuring_leaves_parameters_unchanged():
    policy = Policy()
    kept = policy.flat.clone()

    def broken():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        backtrack_parameters(kept, torch.ones(3), policy.set, broken, lambda _: None)
    assert torch.equal(policy.flat, kept)


def test_impossible_settings_are_refused():
    with pytest.raises(ValueError, match=r"coefficient is 1\.0"):
        backtrack(quadratic, lambda _: None, coefficient=1.0)
    with pytest.raises(ValueError, match="steps is 0"):
        backtrack(quadratic, lambda _: None, steps=0)
