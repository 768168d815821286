"""Promises of the kinds of constraints, checked exactly on finite problems."""

import itertools

import numpy as np
import pytest
import torch

from statewise.core.mmdp import CostSignal
from statewise.theory import tabular as tb
from statewise.theory.kinds import signal

TOLERANCE = 1e-12


def expected(problem: tb.Problem, pi: np.ndarray, what: str, threshold: float = 0.0) -> np.ndarray:
    chain, g = signal(problem, what, threshold)
    return tb.expected_return(chain, tb.values(chain, g, pi))


def test_every_kind_is_what_all_paths_say():
    rng = np.random.default_rng(3)
    problem = tb.random_problem(rng, B=1, S=2, A=2, K=3, H=2)
    pi, levels = rng.dirichlet(np.ones(2), (1, 1, 6)), problem.levels[0]
    z = 0.5 * (levels[1] + levels[2])
    truth = dict.fromkeys(("maximum", "sum", "probability", "square"), 0.0)
    for path in itertools.product(range(2), repeat=7):  # s0 a0 s1 a1 s2 a2 s3
        states, actions, M, total = path[::2], path[1::2], 0, 0.0
        prob = problem.mu[0, states[0]]
        for s, a, after in zip(states, actions, states[1:], strict=False):
            prob *= pi[0, 0, s * 3 + M, a] * problem.P[0, s, a, after]
            cost = int(problem.C[0, s, a, after])
            M, total = max(M, cost), total + levels[cost]
        truth["maximum"] += prob * levels[M]
        truth["sum"] += prob * total
        truth["probability"] += prob * (levels[M] > z)
        truth["square"] += prob * levels[M] ** 2
    for what, value in truth.items():
        np.testing.assert_allclose(expected(problem, pi, what, z), value, atol=TOLERANCE)


def test_probability_and_second_moment_are_those_of_the_final_maximum():
    for pair in tb.random_pairs(seed=4, groups=12):
        last, M = tb.law(pair.chain, pair.pi)[:, -1], tb.running_maximum(pair.problem)
        z = float(np.median(M))
        for what, phi in (("probability", 1.0 * (z < M)), ("square", M**2)):
            found = expected(pair.problem, pair.pi, what, z)
            np.testing.assert_allclose(found, (last * phi).sum(-1), atol=TOLERANCE)


def test_the_channels_of_a_deviation_give_its_value_and_its_first_order_change():
    """Mean + κ · deviation, and its slope along a change of policy, against central differences."""
    kappa, h = 2.0, 1e-5
    reads = CostSignal(("deviation",), 1.0, 1.0, (0.0,), kappa)
    for pair in tb.random_pairs(seed=5, groups=8, B=5):
        direction = np.log(pair.new) - np.log(pair.pi)

        def moments(step: float, pair: tb.Pair = pair, along: np.ndarray = direction) -> np.ndarray:
            pi = tb.tilt(pair.pi, step * along)
            return np.stack([expected(pair.problem, pi, what) for what in ("maximum", "square")])

        def deviation(m: np.ndarray) -> np.ndarray:
            return m[0] + kappa * np.sqrt(np.maximum(m[1] - m[0] ** 2, 0.0))

        here, up, down = moments(0.0), moments(h), moments(-h)
        for i in range(here.shape[1]):
            if here[1, i] - here[0, i] ** 2 < 1e-2:
                continue  # where the maximum hardly varies its deviation has no slope
            value, slope = reads.values(torch.tensor(here[:, i]), (1.0,))
            assert float(value[0]) == pytest.approx(deviation(here)[i], abs=TOLERANCE)
            change = slope.numpy()[0] @ ((up - down)[:, i] / (2 * h))
            truth = (deviation(up)[i] - deviation(down)[i]) / (2 * h)
            assert change == pytest.approx(truth, rel=1e-5, abs=1e-7)


def test_increments_of_sampled_episodes_sum_to_what_each_kind_bounds():
    """What training reads, row by row, is what the theory sums."""
    draw = torch.Generator().manual_seed(0)
    cost = torch.rand(20, 5, 4, generator=draw, dtype=torch.float64)
    after = torch.cummax(cost, dim=0).values
    before = torch.cat([torch.zeros_like(after[:1]), after[:-1]])
    kinds = ("maximum", "sum", "probability", "deviation")
    reads = CostSignal(kinds, 0.99, 0.8, (0.0, 0.0, 0.97, 0.0), 3.0)
    total, top = reads.read(cost, before, after).sum(0), after[-1]
    torch.testing.assert_close(total[:, 0], top[:, 0])
    torch.testing.assert_close(total[:, 1], cost[..., 1].sum(0))
    torch.testing.assert_close(total[:, 2], (top[:, 2] > 0.97).double())
    torch.testing.assert_close(total[:, 3], top[:, 3])
    torch.testing.assert_close(total[:, 4], top[:, 3] ** 2)
    discounts, beyond = reads.discounts(torch.device("cpu"))
    assert beyond.tolist() == [False, True, False, False, False]
    assert discounts.tolist() == pytest.approx([1.0, 0.99, 1.0, 1.0, 1.0])
