"""Promises of the theory, checked exactly on finite problems."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from statewise.core.mmdp import state_wise_penalty
from statewise.theory import bounds
from statewise.theory import study as theory
from statewise.theory import tabular as tb

TOLERANCE = 1e-12


def costs(pair: tb.Pair) -> tb.Comparison:
    return tb.compare(pair.chain, pair.D, pair.pi, pair.new)


def rewards(pair: tb.Pair, gamma: float = 0.97) -> tb.Comparison:
    return tb.compare(pair.chain, pair.R, pair.pi, pair.new, gamma)


# --- the Maximum MDP -----------------------------------------------------------------------------


def test_sum_of_increments_is_the_expected_largest_cost_over_all_paths():
    rng = np.random.default_rng(0)
    problem = tb.random_problem(rng, B=1, S=2, A=2, K=3, H=2)
    chain, D, _ = tb.augment(problem)
    pi = rng.dirichlet(np.ones(2), (1, 1, 6))
    expected = variance = 0.0
    for path in itertools.product(range(2), repeat=7):  # s0 a0 s1 a1 s2 a2 s3
        states, actions, M = path[::2], path[1::2], 0
        prob = problem.mu[0, states[0]]
        for s, a, after in zip(states, actions, states[1:], strict=False):
            prob *= pi[0, 0, s * 3 + M, a] * problem.P[0, s, a, after]
            M = max(M, int(problem.C[0, s, a, after]))
        expected += prob * problem.levels[0, M]
        variance += prob * problem.levels[0, M] ** 2
    variance -= expected**2
    J_D = tb.expected_return(chain, tb.values(chain, D, pi))
    np.testing.assert_allclose(J_D, expected, atol=TOLERANCE)
    np.testing.assert_allclose(tb.return_variance(chain, D, pi), variance, atol=TOLERANCE)


def test_values_of_a_coin_flip_are_the_hand_computed_ones():
    # One state, two steps; action 0 costs 1 and is taken with probability 1/4.
    one = np.ones((1, 2, 1))
    C = np.array([1, 0])[None, :, None]
    problem = tb.Problem(one, C, 2 * one, np.array([0.0, 1.0]), np.ones(1), H=1)
    chain, D, R = tb.augment(problem)
    pi = np.array([[[0.25, 0.75], [0.25, 0.75]]])
    v = tb.values(chain, D, pi)
    np.testing.assert_allclose(v.V, [[1 - 0.75**2, 0], [0.25, 0], [0, 0]])
    np.testing.assert_allclose(v.Q[:, 0], [[1, 0.25], [1, 0]])
    np.testing.assert_allclose(tb.law(chain, pi)[:, 0], [1, 0.75, 0.75**2])
    np.testing.assert_allclose(
        tb.expected_return(chain, tb.values(chain, R, pi, gamma=0.5)), 2 + 0.5 * 2
    )


def test_laws_have_mass_one_and_final_maximum_has_mean_j_d_and_the_stated_variance():
    for pair in tb.random_pairs(seed=1):
        p, M = tb.law(pair.chain, pair.pi), tb.running_maximum(pair.problem)
        J_D = tb.expected_return(pair.chain, tb.values(pair.chain, pair.D, pair.pi))
        mean, square = (p[:, -1] * M).sum(-1), (p[:, -1] * M**2).sum(-1)
        np.testing.assert_allclose(p.sum(-1), 1.0, atol=TOLERANCE)
        np.testing.assert_allclose(J_D, mean, atol=TOLERANCE)
        variance = tb.return_variance(pair.chain, pair.D, pair.pi)
        np.testing.assert_allclose(variance, square - mean**2, atol=TOLERANCE)


def test_j_d_dominates_the_expected_cost_of_every_step():
    for pair in tb.random_pairs(seed=2, groups=10):
        C, K = pair.problem.C, pair.problem.levels.shape[-1]
        level = np.take_along_axis(pair.problem.levels, C.reshape(len(C), -1), -1)
        step_cost = (pair.problem.P * level.reshape(C.shape)).sum(-1)  # [B, S, A]
        step_cost = np.repeat(step_cost, K, axis=1)[:, None]  # [B, 1, n, A]
        p = tb.law(pair.chain, pair.pi)[:, :-1]
        expected = (p * (pair.pi * step_cost).sum(-1)).sum(-1)  # E[C_t], [B, H+1]
        J_D = tb.expected_return(pair.chain, tb.values(pair.chain, pair.D, pair.pi))
        assert np.all(expected.max(-1) <= J_D + TOLERANCE)


def test_replacing_the_levels_gives_a_chance_constraint():
    for pair in tb.random_pairs(seed=3, groups=5):
        limit = pair.problem.levels[:, 1:2]
        chance = replace(pair.problem, levels=(pair.problem.levels > limit).astype(float))
        chain, D, _ = tb.augment(chance)
        J = tb.expected_return(chain, tb.values(chain, D, pair.pi))
        above = tb.running_maximum(pair.problem) > limit
        np.testing.assert_allclose(
            J, (tb.law(pair.chain, pair.pi)[:, -1] * above).sum(-1), atol=TOLERANCE
        )


# --- what holds ----------------------------------------------------------------------------------


@pytest.mark.parametrize("view", [costs, rewards])
def test_performance_identity_is_exact(view):
    for pair in tb.random_pairs(seed=4):
        c = view(pair)
        np.testing.assert_allclose(c.gap, c.identity, atol=TOLERANCE)


@pytest.mark.parametrize("view", [costs, rewards])
@pytest.mark.parametrize(
    "form",
    [
        bounds.theorem_1,
        bounds.theorem_1_2h,
        bounds.theorem_1_steps,
        bounds.theorem_1_span,
        bounds.path_pinsker,
    ],
    ids=lambda form: form.__name__,
)  # fmt: skip
def test_bound_is_never_violated(form, view):
    for pair in tb.random_pairs(seed=5):
        c = view(pair)
        assert np.all(c.excess <= form(c) + TOLERANCE)


def test_theorem_1_forms_are_ordered_from_loose_to_sharp():
    forms = (bounds.theorem_1, bounds.theorem_1_2h, bounds.theorem_1_steps, bounds.theorem_1_span)
    for pair in tb.random_pairs(seed=6, groups=10):
        sizes = [form(costs(pair)) for form in forms]
        for loose, sharp in itertools.pairwise(sizes):
            assert np.all(sharp <= loose + TOLERANCE)


@pytest.mark.parametrize("gamma", [1.0, 0.97])
def test_penalty_from_training_measurements_bounds_the_truth_when_episodes_end_early(gamma):
    for pair in tb.random_pairs(seed=7, ends=True):
        g = pair.D if gamma == 1.0 else pair.R
        c = tb.compare(pair.chain, g, pair.pi, pair.new, gamma)
        K, H = pair.problem.levels.shape[-1], pair.chain.H
        live = tb.law(pair.chain, pair.pi)[:, :-1, :-K].sum((-1, -2))  # mean episode length
        penalty = state_wise_penalty(c.eps, c.kl.sum(-1) / live, live, H, gamma)
        assert np.all(c.excess <= penalty + TOLERANCE)
        assert np.all(bounds.path_pinsker(c) <= penalty + TOLERANCE)
        live_new = tb.law(pair.chain, pair.new)[:, :-1, :-K].sum((-1, -2))
        assert np.all(c.excess <= c.eps * (live + live_new - 2) + TOLERANCE)


def test_penalty_has_the_stated_size():
    # 2 H eps min(1, sqrt(T delta / 2)): 75 steps after the first, K = 76 * 0.02 = 1.52.
    assert state_wise_penalty(1.0, 0.02, 76, 75) == pytest.approx(2 * 75 * 0.76**0.5)
    assert state_wise_penalty(1.0, 0.02, 1000, 999) == pytest.approx(2 * 999)  # capped
    assert state_wise_penalty(1.0, -1e-9, 10, 9) == 0.0
    assert state_wise_penalty([0.0, 0.5], 0.0, 10, 9).shape == (2,)
    assert state_wise_penalty(1.0, 9.0, 3, 2, gamma=0.5) == pytest.approx(2 * (0.5 + 0.25))


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ((-1, 0, 1, 1), "epsilon"),
        ((1, 0, 0, 1), "mean_length"),
        ((1, 0, 3, 1), "mean_length"),
        ((1, 0, 1, -1), "horizon"),
    ],
)
def test_penalty_names_the_argument_that_is_wrong(arguments, name):
    with pytest.raises(ValueError, match=name):
        state_wise_penalty(*arguments)


def test_proposition_2_as_printed_holds_for_summed_kl_of_the_old_policy():
    gamma, met = 0.97, 0
    for pair in tb.random_pairs(seed=8):
        c = rewards(pair, gamma)
        scale = gamma * (1 - gamma**pair.chain.H) / (1 - gamma)
        loss = np.sqrt(2 * c.kl.sum(-1)) * scale * c.eps
        feasible = c.surrogate >= 0  # what the update promises when the old policy is feasible
        assert np.all(c.gap[feasible] >= -loss[feasible] - TOLERANCE)
        assert np.all(c.gap >= c.surrogate - loss - TOLERANCE)
        met += int(feasible.sum())
    assert met > 1000


# --- what does not -------------------------------------------------------------------------------


def test_jensen_step_fails_on_an_unnormalised_measure_and_holds_with_its_mass():
    failed = total = 0
    for pair in tb.random_pairs(seed=9):
        c = costs(pair)
        tv, kl = c.tv.sum(-1), c.kl_printed.sum(-1)
        failed += int((tv > np.sqrt(kl / 2)).sum())
        total += tv.size
        assert np.all(tv <= np.sqrt((pair.chain.H + 1) * kl / 2) + TOLERANCE)
    assert failed > 0.85 * total


def test_theorem_1_fails_with_an_advantage_that_ignores_time():
    change, bound = theory.time_free_example()
    assert change == pytest.approx(0.7**10 - 0.699**10)  # P(never a) before and after
    assert change == pytest.approx(4.01e-4, rel=1e-3)
    assert bound == pytest.approx(1.33e-4, rel=5e-3)


def test_proposition_1_fails_with_the_printed_direction_of_kl():
    c = tb.compare(*theory.leave_or_stay(12, 60, 0.005, 0.3, 1e-4))
    t = np.minimum(np.arange(72), 12)
    assert c.gap - c.surrogate == pytest.approx(2e-4 * (0.995**t - 0.7**t).sum())
    assert c.excess == pytest.approx(0.01281, abs=5e-6)
    assert bounds.printed_kl_form(c) == pytest.approx(0.01060, abs=5e-6)
    assert bounds.path_pinsker(c) == pytest.approx(0.01412, abs=5e-6)
    assert bounds.theorem_1(c) == pytest.approx(0.01406, abs=5e-6)


def test_every_listed_case_breaks_the_printed_constant_and_not_the_corrected_one():
    for n, N, alpha, beta in theory.PROPOSITION_1:
        c = tb.compare(*theory.leave_or_stay(n, N, alpha, beta, 1e-4))
        assert bounds.printed_kl_form(c) < c.excess <= bounds.path_pinsker(c)
        assert c.excess < np.sqrt(2) * bounds.printed_kl_form(c)  # the limit of this family


def test_corrected_constant_is_nearly_attained():
    c = tb.compare(*theory.leave_or_stay(1, 71, 0.44, 0.62, 1e-4))
    assert 0.99 < c.excess / bounds.path_pinsker(c) <= 1.0


@pytest.mark.parametrize(("steps", "ratio"), [(6, 1.146), (10, 1.559), (1000, 16.81)])
def test_proposition_1_with_a_mean_kl_fails_by_half_the_root_of_the_length(steps, ratio):
    assert theory.random_walk_ratio(steps) == pytest.approx(ratio, rel=1e-3)
    corrected = ratio / np.sqrt(steps)  # the penalty with K = length * mean KL
    assert corrected < steps / (steps + 1)


def test_random_walk_ratio_agrees_with_the_exact_machinery():
    c = tb.compare(*theory.random_walk(10, 1e-3, 1e-6))
    printed = 2 * 10 * c.eps * np.sqrt(c.kl_printed.mean() / 2)
    assert c.excess / printed == pytest.approx(theory.random_walk_ratio(10, 1e-3), rel=1e-4)
    assert c.excess <= state_wise_penalty(c.eps, c.kl.mean(), 10, 9)


@pytest.mark.parametrize(
    ("case", "ratio"), [(theory.PROPOSITION_2[0], 1.039), (theory.PROPOSITION_2[1], 1.059)]
)
def test_proposition_2_fails_with_the_printed_direction_of_kl(case, ratio):
    gamma, n, N, alpha, beta = case
    c = tb.compare(*theory.leave_or_stay(n, N, alpha, beta, 1e-4, sign=-1.0), gamma)
    assert c.surrogate >= 0
    assert -c.gap / bounds.proposition_2_printed(c) == pytest.approx(ratio, abs=1e-3)
    assert c.gap >= c.surrogate - bounds.path_pinsker(c)


# --- a step that keeps its promise ---------------------------------------------------------------


def test_scpo_step_with_the_corrected_penalty_stays_within_the_limit_and_improves():
    over, gain = theory.scpo_run(seed=0)
    assert over.max() <= TOLERANCE
    assert np.all(gain >= -TOLERANCE)
    assert np.median(gain) > 1.0


def test_scpo_step_without_a_penalty_can_cross_the_limit():
    over, _ = theory.scpo_run(seed=0, penalised=False)
    assert (over.max(0) > 1e-6).any()


def test_table_prints(capsys):
    print("\n".join(theory.check_random(groups=2) + theory.check_examples()))
    assert "200 random problems" in capsys.readouterr().out
