"""Returns and advantages, by hand and against a loop over single trajectories."""

import pytest
import torch

from statewise.core.returns import advantages, positive_ahead, returns_to_go

NO = torch.zeros(4, 1, dtype=torch.bool)


def column(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)[:, None]


def at(*rows, length=4):
    flag = torch.zeros(length, 1, dtype=torch.bool)
    flag[list(rows)] = True
    return flag


def brute_force(signal, value, next_value, terminated, truncated, gamma, lam, bootstrap):
    """One world, one channel at a time: sum the geometric series of errors as it is defined."""
    steps = len(signal)
    out = torch.zeros_like(signal)
    for t in range(steps):
        weight = 1.0
        for k in range(t, steps):
            worth = next_value[k]
            if terminated[k] or (truncated[k] and not bootstrap):
                worth = torch.zeros_like(worth)
            out[t] += weight * (signal[k] + gamma * worth - value[k])
            weight *= gamma * lam
            if terminated[k] or truncated[k]:
                break
    return out


@pytest.mark.parametrize("bootstrap", [True, False])
@pytest.mark.parametrize(("gamma", "lam"), [(0.99, 0.97), (1.0, 0.95), (0.9, 0.0), (1.0, 1.0)])
def test_advantages_equal_the_sum_they_are_defined_by(gamma, lam, bootstrap):
    generator = torch.Generator().manual_seed(0)
    T, B, m = 12, 7, 2
    signal, value, next_value = torch.randn(3, T, B, m, generator=generator, dtype=torch.float64)
    terminated = torch.rand(T, B, generator=generator) < 0.15
    truncated = torch.rand(T, B, generator=generator) < 0.15
    got = advantages(
        signal, value, next_value, terminated, truncated,
        gamma=gamma, lam=lam, bootstrap_truncated=bootstrap,
    )  # fmt: skip
    for world in range(B):
        expected = brute_force(
            signal[:, world], value[:, world], next_value[:, world],
            terminated[:, world], truncated[:, world], gamma, lam, bootstrap,
        )  # fmt: skip
        torch.testing.assert_close(got[:, world], expected)


def test_one_step_advantage_by_hand():
    # λ = 0: reward + γ V' - V. Row 1 terminates, row 2 times out, row 3 is the cut.
    got = advantages(
        column(1, 2, 3, 4), column(10, 20, 30, 40), column(20, 7, 8, 9), at(1), at(2),
        gamma=0.5, lam=0.0,
    )  # fmt: skip
    torch.testing.assert_close(got, column(1 + 10 - 10, 2 - 20, 3 + 4 - 30, 4 + 4.5 - 40))


def test_nothing_flows_across_the_end_of_an_episode():
    value, following = column(0, 0, 0, 0), column(0, 0, 0, 0)
    for end in (dict(terminated=at(1), truncated=NO), dict(terminated=NO, truncated=at(1))):
        quiet = advantages(column(1, 1, 0, 0), value, following, **end, gamma=1, lam=1)
        loud = advantages(column(1, 1, 99, 99), value, following, **end, gamma=1, lam=1)
        torch.testing.assert_close(quiet[:2], loud[:2])
        torch.testing.assert_close(quiet[:2], column(2, 1))


def test_lambda_one_gives_the_return_minus_the_value():
    generator = torch.Generator().manual_seed(1)
    signal, value, after = torch.randn(3, 30, 5, generator=generator, dtype=torch.float64)
    terminated = torch.rand(30, 5, generator=generator) < 0.1
    truncated = torch.rand(30, 5, generator=generator) < 0.1
    # It only telescopes if the successor's value is the next row's value inside an episode.
    inside = ~(terminated | truncated)
    inside[-1] = False
    after = torch.where(inside, value.roll(-1, 0), after)
    gain = advantages(signal, value, after, terminated, truncated, gamma=0.9, lam=1.0)
    total = returns_to_go(signal, after, terminated, truncated, gamma=0.9)
    torch.testing.assert_close(gain + value, total)


def test_return_bootstraps_a_time_out_and_the_cut_but_not_a_termination():
    signal, after = column(1, 1, 1, 1), column(100, 100, 100, 100)
    total = returns_to_go(signal, after, at(0), at(1), gamma=0.5)
    # row 0 terminates: 1. Row 1 times out: 1 + 50. Rows 2, 3 are cut: 1 + (1 + 50)/2, 1 + 50.
    torch.testing.assert_close(total, column(1, 51, 26.5, 51))


def test_time_out_can_count_as_an_end_while_the_cut_never_does():
    signal, after = column(1, 1, 1, 1), column(100, 100, 100, 100)
    total = returns_to_go(signal, after, at(0), at(1), gamma=0.5, bootstrap_truncated=False)
    torch.testing.assert_close(total, column(1, 1, 26.5, 51))


def test_termination_wins_over_a_time_out_in_the_same_step():
    total = returns_to_go(column(1, 1, 1, 1), column(9, 9, 9, 9), at(3), at(3), gamma=1.0)
    torch.testing.assert_close(total, column(4, 3, 2, 1))


def test_increments_of_an_episode_sum_to_what_is_left_of_its_maximum():
    # costs 0 2 1 5 give M before = 0 0 2 2 and D = 0 2 0 3; G_t = M_end - M_t.
    total = returns_to_go(
        column(0, 2, 0, 3), column(0, 0, 0, 0), at(3), NO, gamma=1.0, bootstrap_truncated=False
    )
    torch.testing.assert_close(total, 5 - column(0, 0, 2, 2))


def test_a_value_that_is_not_a_number_past_a_true_end_is_not_read():
    after = column(0, float("nan"), 0, 0)
    args = (column(1, 1, 1, 1), column(0, 0, 0, 0), after, at(1), NO)
    assert advantages(*args, gamma=0.9, lam=0.9).isfinite().all()
    assert returns_to_go(args[0], *args[2:], gamma=0.9).isfinite().all()


def test_zero_targets_are_decided_by_the_raw_signal_and_not_by_the_bootstrapped_sum():
    signal = column(0, 1, 0, 0, 0, 0)
    ended = at(2, length=6)
    ahead = positive_ahead(signal, ended)
    # the second episode has no positive row: a critic's guess after the cut does not make it one
    assert ahead[:, 0].tolist() == [True, True, False, False, False, False]
    tail = torch.full_like(signal, 1e-3)
    target = returns_to_go(signal, tail, ended, ~ended & False, gamma=1.0)
    assert (target[3:] > 0).all()


def test_positive_ahead_looks_at_each_constraint_alone():
    signal = torch.zeros(3, 2, 2)
    signal[2, 0, 1] = 1.0
    ahead = positive_ahead(signal, torch.zeros(3, 2, dtype=torch.bool))
    assert ahead[:, 0, 1].all() and ahead.sum() == 3


def test_wrong_shapes_and_numbers_are_refused_with_what_to_do():
    signal = torch.zeros(4, 1)
    with pytest.raises(ValueError, match=r"gamma is 1\.5; give a number between 0 and 1"):
        returns_to_go(signal, signal, NO, NO, gamma=1.5)
    with pytest.raises(ValueError, match=r"next_value has shape \[4, 1, 2\]; give \[4, 1\]"):
        returns_to_go(signal, torch.zeros(4, 1, 2), NO, NO, gamma=1.0)
    with pytest.raises(ValueError, match=r"terminated is torch\.float32"):
        returns_to_go(signal, signal, signal, NO, gamma=1.0)
