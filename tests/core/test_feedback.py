"""The feedback on a cost, on numbers that can be checked by hand."""

import numpy as np
import pytest

from statewise.core.feedback import FIRST, control, relative_error, tightened


def test_half_way_the_limit_is_twice_the_wanted_one() -> None:
    way = [float(tightened(0.01, 2.0, progress)) for progress in (0.1, 0.25, 0.5, 1.0)]
    assert way == pytest.approx([0.1, 0.04, 0.02, 0.01])


def test_a_larger_power_lets_the_limit_fall_later() -> None:
    """A quarter of the way: 0.01 times 4 to the power of 1.5."""
    assert tightened([0.01], [2.0], 0.25, power=1.5) == pytest.approx([0.08])
    assert tightened([0.01], [2.0], 0.25, power=0.0) == pytest.approx([0.01])


def test_no_limit_is_above_half_of_its_scale_unless_that_is_asked_for() -> None:
    assert FIRST == 0.5
    assert tightened([0.1, 0.7], [1.0, 1.0], 0.01) == pytest.approx([0.5, 0.7])


def test_a_limit_of_zero_holds_from_the_start() -> None:
    assert tightened([0.0], [1.0], 0.01) == pytest.approx([0.0])


def test_the_error_is_a_share_of_the_limit_between_minus_one_and_one() -> None:
    error = relative_error(np.array([0.03, 0.01, -0.01, -0.02]), np.array([0.02] * 4))
    assert error == pytest.approx([1.0, 0.5, -0.5, -1.0])
    assert relative_error([0.1, 0.0], [0.0, 0.0]) == pytest.approx([1.0, -1.0])


def test_the_share_is_five_times_the_gain_for_the_error_and_the_gain_for_each_past_one() -> None:
    integral = np.zeros(1)
    shares = []
    for error in (1.0, 1.0, -1.0):
        share, integral = control(np.array([error]), integral, gain=0.1, most=0.97)
        shares.append(float(share[0]))
    assert shares == pytest.approx([0.5 + 0.1, 0.5 + 0.2, -0.5 + 0.1])


@pytest.mark.parametrize(("error", "bound"), [(1.0, 0.97), (-1.0, -1.0)])
def test_the_integral_stops_where_the_region_can_do_no_more(error: float, bound: float) -> None:
    integral = np.zeros(1)
    for _ in range(50):
        share, integral = control(np.array([error]), integral, gain=0.1, most=0.97)
    assert float(share[0]) == float(integral[0]) == bound
