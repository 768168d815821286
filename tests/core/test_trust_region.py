"""The constrained step is exact: checked by hand, and against a conic solver."""

import math
from dataclasses import dataclass

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse

from statewise.core.trust_region import Case, Plan, limit_request, recover, solve, step

DELTA = 0.02
SIZE = 5


@dataclass
class Problem:
    """Explicit vectors in the metric F = I, so that Gram data are plain products."""

    g: np.ndarray  # [n]
    b: np.ndarray  # [m, n]
    c: np.ndarray  # [m]

    def plan(self, **options) -> Plan:
        return solve(self.g @ self.g, self.b @ self.g, self.b @ self.b.T, self.c, DELTA, **options)

    def x(self, plan: Plan) -> np.ndarray:
        return plan.alpha * self.g - np.asarray(plan.beta) @ self.b


def random_problem(generator: np.random.Generator, m: int) -> Problem:
    """A random problem; about half are degenerate in some way, and units differ wildly."""
    g = generator.normal(size=SIZE)
    b = generator.normal(size=(m, SIZE))
    radius = math.sqrt(2 * DELTA)
    c = generator.normal(size=m) * radius * np.linalg.norm(b, axis=1)
    kind = generator.integers(12)
    if m and kind == 0:
        c[:] = 0.0
    if m and kind == 1:
        g = b.T @ generator.normal(size=m)  # the reward lies in the span of the costs
    if m > 1 and kind == 2:
        b[1] = 2.0 * b[0]  # parallel
    if m > 1 and kind == 3:
        b[1] = -b[0]  # opposite: a slab, or nothing
    if m and kind == 4:
        b[0], c[0] = 0.0, -abs(c[0])
    if m > 2 and kind == 5:
        b[2] = b[0] + b[1]  # dependent
    b_unit = 10.0 ** generator.integers(-5, 6, size=m)
    return Problem(g * 10.0 ** generator.integers(-5, 6), b * b_unit[:, None], c * b_unit)


def conic(objective: np.ndarray, rows: np.ndarray, right: np.ndarray, extra: int = 0):
    """Minimise objective·(y, extras) with rows·(y, extras) <= right and y in the unit ball."""
    width = SIZE + extra
    ball = np.zeros((SIZE + 1, width))
    ball[1:, :SIZE] = -np.eye(SIZE)
    A = sparse.csc_matrix(np.vstack([rows, ball]))
    rhs = np.concatenate([right, [1.0], np.zeros(SIZE)])
    cones = [clarabel.NonnegativeConeT(len(rows)), clarabel.SecondOrderConeT(SIZE + 1)]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    empty = sparse.csc_matrix((width, width))
    result = clarabel.DefaultSolver(empty, objective, A, rhs, cones, settings).solve()
    return np.array(result.x), str(result.status)


def scaled(problem: Problem) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """ĝ, b̂, ĉ: unit vectors and the unit ball, so that one tolerance fits all."""
    radius = math.sqrt(2 * DELTA)
    length = np.linalg.norm(problem.b, axis=1)
    keep = length > 0
    b = problem.b[keep] / length[keep, None]
    size = np.linalg.norm(problem.g)
    g = problem.g / size if size > 0 else problem.g
    return g, b, problem.c[keep] / (length[keep] * radius)


@pytest.mark.parametrize("m", range(5))
def test_step_is_the_optimum_that_a_conic_solver_finds(m):
    generator = np.random.default_rng(m)
    seen = {True: 0, False: 0}
    for _ in range(220):
        problem = random_problem(generator, m)
        plan = problem.plan()
        g, b, c = scaled(problem)
        reference, status = conic(-g, b, -c)
        y = problem.x(plan) / math.sqrt(2 * DELTA)
        # The answer of the conic solver itself may be off by its tolerance where sets just touch.
        slack = recovery_level(b, c)[0] if len(c) else -1.0
        if abs(slack) < 1e-8:
            continue
        assert plan.feasible == ("Solved" in status) == (slack < 0)
        seen[plan.feasible] += 1
        assert np.linalg.norm(y) <= 1 + 1e-8
        if plan.feasible:
            assert (c + b @ y <= 1e-8).all()
            assert g @ y == pytest.approx(g @ reference[:SIZE], abs=1e-6)
            if plan.lam > 0 and plan.kl == pytest.approx(DELTA):
                # strictly convex there: one optimum only
                sharpness = plan.lam * math.sqrt(2 * DELTA) / np.linalg.norm(problem.g)
                np.testing.assert_allclose(y, reference[:SIZE], atol=5e-5 / min(sharpness, 1.0))
    assert seen[True] > 50
    assert m == 0 or seen[False] > 15


def recovery_level(b, c, weight=None):
    """Smallest largest violation in the ball, from the conic solver."""
    weight = np.ones(len(c)) if weight is None else weight
    rows = np.hstack([b, -weight[:, None]])
    objective = np.zeros(SIZE + 1)
    objective[-1] = 1.0
    x, status = conic(objective, rows, -c, extra=1)
    assert "Solved" in status
    return x[-1], x[:SIZE]


@pytest.mark.parametrize("m", [1, 2, 3, 4, 8])
def test_recovery_has_the_smallest_largest_violation(m):
    generator = np.random.default_rng(100 + m)
    recovered = 0
    while recovered < 60:
        g, b = generator.normal(size=SIZE), generator.normal(size=(m, SIZE))
        scale = np.exp(generator.normal(size=m))
        if m > 1 and recovered % 3 == 0:
            b[1] = -b[0] * np.exp(generator.normal())
        c = generator.normal(size=m) * 0.6 + 0.2
        problem = Problem(g, b, c)
        plan = problem.plan(recovery_scale=scale)
        if plan.feasible:
            continue
        recovered += 1
        assert plan.case == Case.RECOVERY
        radius = math.sqrt(2 * DELTA)
        level, _ = recovery_level(b * radius, c, scale)
        worst = ((c + b @ problem.x(plan)) / scale).max()
        assert worst == pytest.approx(level, abs=1e-6)
        assert plan.kl <= DELTA * (1 + 1e-8)
        assert plan.alpha == 0.0


@pytest.mark.parametrize("m", [7, 9, 12])
def test_many_constraints_are_solved_without_trying_every_active_set(m):
    generator = np.random.default_rng(m)
    for _ in range(60):
        problem = random_problem(generator, m)
        problem.c -= 0.5 * math.sqrt(2 * DELTA) * np.linalg.norm(problem.b, axis=1)
        plan = problem.plan()
        g, b, c = scaled(problem)
        slack = recovery_level(b, c)[0]
        if abs(slack) < 1e-8:
            continue
        assert plan.feasible == (slack < 0)
        if plan.feasible:
            reference, _ = conic(-g, b, -c)
            y = problem.x(plan) / math.sqrt(2 * DELTA)
            assert (c + b @ y <= 1e-8).all()
            assert g @ y == pytest.approx(g @ reference[:SIZE], abs=1e-6)


def test_one_constraint_agrees_with_the_closed_form():
    # g = (1, 0), b = (1, 1), δ = 1/2: the unit disc. c = -1/2 asks for x1 + x2 <= 1/2.
    # q = 1, r = 1, s = 2: λ = sqrt((1 - 1/2) / (1 - 1/8)), ν = (1 - λ/2) / 2.
    plan = solve(1.0, [1.0], [[2.0]], [-0.5], 0.5)
    lam = math.sqrt(0.5 / 0.875)
    nu = (1.0 - 0.5 * lam) / 2.0
    assert plan.case == Case.CROSSING and plan.feasible and plan.active == (0,)
    assert plan.lam == pytest.approx(lam) and plan.nu == pytest.approx((nu,))
    assert plan.alpha == pytest.approx(1 / lam) and plan.beta == pytest.approx((nu / lam,))
    x = np.array([plan.alpha - plan.beta[0], -plan.beta[0]])
    assert x.sum() == pytest.approx(0.5)
    assert x @ x == pytest.approx(1.0)
    assert plan.reward_change == pytest.approx(x[0])
    assert plan.cost_change == pytest.approx((0.5,))
    assert plan.kl == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("c", "case", "feasible"),
    [
        (-2.0, Case.SLACK, True),  # the unit disc never reaches x1 = 2
        (-0.5, Case.CROSSING, True),
        (0.0, Case.VIOLATED, True),  # a safe epoch with limit 0: common, and must not divide by c
        (0.5, Case.VIOLATED, True),
        (2.0, Case.RECOVERY, False),
    ],
)
def test_cases_carry_the_numbers_of_the_published_logs(c, case, feasible):
    plan = solve(1.0, [1.0], [[1.0]], [c], 0.5)
    assert (plan.case, plan.feasible) == (case, feasible)
    assert [int(k) for k in Case] == [0, 1, 2, 3, 4]


def test_without_constraints_the_step_is_the_natural_gradient_on_the_boundary():
    plan = solve(4.0, [], [], [], 0.02)
    assert plan.case == Case.UNCONSTRAINED
    assert plan.alpha == pytest.approx(math.sqrt(2 * 0.02 / 4.0))
    assert plan.kl == pytest.approx(0.02)


def test_recovery_from_one_constraint_is_the_steepest_descent_of_its_cost():
    # c = 2 and s = 4 with δ = 1/2: the most a step can remove is sqrt(2 δ s) = 2 < 3.
    plan = solve(1.0, [0.3], [[4.0]], [3.0], 0.5)
    assert plan.case == Case.RECOVERY and not plan.feasible
    assert plan.alpha == 0.0 and plan.beta == pytest.approx((math.sqrt(2 * 0.5 / 4.0),))
    assert plan.cost_change == pytest.approx((-2.0,))


def test_recovery_weighs_violations_by_their_scale():
    # Orthogonal unit costs in the unit disc, both violated by 2. In equal units the step is
    # diagonal; if the second is measured in units of 1000, only the first is worth reducing.
    equal = solve(0.0, [0, 0], np.eye(2), [2.0, 2.0], 0.5)
    assert equal.cost_change == pytest.approx((-math.sqrt(0.5),) * 2)
    first = solve(0.0, [0, 0], np.eye(2), [2.0, 2.0], 0.5, recovery_scale=[1.0, 1000.0])
    assert first.cost_change == pytest.approx((-1.0, 0.0), abs=1e-9)
    assert first.active == (0,)


def test_recovery_can_be_asked_for_where_the_problem_is_feasible():
    # solve() would spend the region on the reward; recover() takes all of it off the cost
    assert solve(1.0, [0.5], [[1.0]], [0.1], 0.02).alpha > 0
    plan = recover(1.0, [0.5], [[1.0]], [0.1], 0.02)
    assert plan.alpha == 0.0 and plan.cost_change == pytest.approx((-0.2,))
    nothing = recover(1.0, [0.0], [[0.0]], [0.1], 0.02)
    assert nothing.beta == (0.0,) and nothing.kl == 0.0 and nothing.hopeless == (0,)


def test_zero_cost_gradient_does_not_bind_when_satisfied_and_is_reported_when_violated():
    satisfied = solve(1.0, [0.0], [[0.0]], [-0.1], 0.02)
    assert satisfied.case == Case.UNCONSTRAINED and satisfied.feasible
    exactly_met = solve(1.0, [0.0], [[0.0]], [0.0], 0.02)
    assert exactly_met.feasible and exactly_met.hopeless == ()
    violated = solve(1.0, [0.0], [[0.0]], [0.1], 0.02)
    assert not violated.feasible and violated.hopeless == (0,)
    # Nothing can be done about it, so the reward is not starved for it either.
    assert violated.alpha == satisfied.alpha > 0
    # With a second, live constraint the step is that of the live one alone.
    both = solve(1.0, [0.0, 0.5], [[0, 0], [0, 1.0]], [0.1, 0.05], 0.02)
    alone = solve(1.0, [0.5], [[1.0]], [0.05], 0.02)
    assert both.hopeless == (0,) and both.active == (1,)
    assert both.beta == pytest.approx((0.0, alone.beta[0]))


def test_gradient_below_the_stated_cost_scale_counts_as_zero():
    noise = dict(q=1.0, r=[1e-12], S=[[1e-24]], c=[0.3], delta=0.02)
    assert solve(**noise).case == Case.RECOVERY
    assert solve(**noise, recovery_scale=[1.0]).hopeless == (0,)


def test_without_a_reward_gradient_the_step_is_the_shortest_that_is_safe():
    plan = solve(0.0, [0.0], [[4.0]], [0.1], 0.5)
    # c / s along -F⁻¹b: cost falls by exactly c, and no KL is wasted.
    assert plan.alpha == 0.0 and plan.beta == pytest.approx((0.1 / 4.0,))
    assert plan.cost_change == pytest.approx((-0.1,))
    assert plan.kl == pytest.approx(0.5 * 0.1**2 / 4.0)
    assert solve(0.0, [0.0], [[4.0]], [-0.1], 0.5).kl == 0.0


def test_reward_that_is_a_cost_stops_at_the_limit_without_dividing_by_zero():
    # g = b: the best is to raise the cost up to its limit, with any KL left unspent.
    plan = solve(1.0, [1.0], [[1.0]], [-0.1], 0.5)
    assert plan.cost_change == pytest.approx((0.1,)) and plan.reward_change == pytest.approx(0.1)
    assert plan.kl == pytest.approx(0.5 * 0.1**2)
    assert plan.lam == 0.0 and plan.nu == pytest.approx((1.0,))


def test_of_parallel_constraints_the_tighter_one_binds():
    plan = solve(1.0, [1.0, 1.0], np.ones((2, 2)), [-0.3, -0.2], 0.5)
    assert plan.active == (1,)
    assert plan.cost_change == pytest.approx((0.2, 0.2))


def test_units_of_reward_and_cost_do_not_change_the_step():
    generator = np.random.default_rng(3)
    g, b, c = generator.normal(size=SIZE), generator.normal(size=(2, SIZE)), np.array([0.05, -0.1])
    x = Problem(g, b, c).x(Problem(g, b, c).plan())
    for reward, cost in ((1e-9, 1e9), (1e6, 1e-12)):
        same = Problem(reward * g, cost * b, cost * c)
        np.testing.assert_allclose(same.x(same.plan()), x, rtol=1e-7, atol=1e-9)


def test_multipliers_satisfy_stationarity():
    generator = np.random.default_rng(4)
    for _ in range(50):
        problem = Problem(generator.normal(size=SIZE), generator.normal(size=(3, SIZE)),
                          generator.normal(size=3) * 0.1)  # fmt: skip
        plan = problem.plan()
        if plan.feasible:
            residual = problem.g - np.asarray(plan.nu) @ problem.b - plan.lam * problem.x(plan)
            np.testing.assert_allclose(residual, 0.0, atol=1e-7)
            assert min(plan.nu) > -1e-9


def test_indefinite_gram_data_from_inexact_solves_never_give_nan():
    generator = np.random.default_rng(5)
    for _ in range(300):
        m = int(generator.integers(1, 9))
        S = generator.normal(size=(m, m))
        plan = solve(
            generator.normal(), generator.normal(size=m), S, generator.normal(size=m), 0.02
        )
        numbers = [plan.alpha, plan.lam, plan.kl, plan.reward_change]
        assert np.isfinite([*numbers, *plan.beta, *plan.nu, *plan.cost_change]).all()


def test_non_finite_data_are_refused_by_name():
    with pytest.raises(ValueError, match="q is nan"):
        solve(float("nan"), [0.0], [[1.0]], [0.0], 0.02)
    with pytest.raises(ValueError, match="c is"):
        solve(1.0, [0.0], [[1.0]], [float("inf")], 0.02)
    with pytest.raises(ValueError, match="delta is 0"):
        solve(1.0, [], [], [], 0.0)


def test_step_combines_natural_gradients_of_either_precision():
    plan = solve(1.0, [0.5], [[1.0]], [0.1], 0.02)
    u, v = torch.tensor([1.0, 0.0, 2.0]), torch.tensor([[0.0, 1.0, 1.0]])
    x = step(plan, u, v)
    assert x.dtype == torch.float32
    torch.testing.assert_close(x, plan.alpha * u - plan.beta[0] * v[0])
    torch.testing.assert_close(step(solve(1.0, [], [], [], 0.5), u, v[:0]), u)


def test_request_is_limited_to_a_fraction_of_what_the_region_can_remove():
    # sqrt(2 · 0.02 · s) is 0.2 for s = 1 and 0.4 for s = 4.
    S = [[1.0, 0, 0, 0], [0, 4.0, 0, 0], [0, 0, 1.0, 0], [0, 0, 0, 0]]
    limited = limit_request([1.0, 0.0, -3.0, 0.5], S, 0.02, 0.5)
    # too much; nothing; satisfied; no gradient, so the violation stays visible
    np.testing.assert_allclose(limited, [0.1, 0.0, -3.0, 0.5])


def test_several_requests_share_the_fraction_of_the_region():
    """Orthogonal gradients of s = 1 and 4: each may ask for half, 0.1 and 0.2, both for 1/√2 of that."""
    limited = limit_request([1.0, 1.0], [[1.0, 0.0], [0.0, 4.0]], 0.02, 0.5)
    np.testing.assert_allclose(limited, np.array([0.1, 0.2]) / np.sqrt(2))
    # The same gradient twice is one request.
    limited = limit_request([1.0, 1.0], [[1.0, 1.0], [1.0, 1.0]], 0.02, 0.5)
    np.testing.assert_allclose(limited, [0.1, 0.1])
    plan = solve(1.0, [0.1, 0.1], [[1.0, 0.0], [0.0, 4.0]], limited, 0.02)
    assert plan.feasible and plan.alpha > 0.0


def test_limited_request_leaves_room_for_the_reward():
    q, r, S, c = 1.0, [0.2], [[1.0]], [5.0]
    assert solve(q, r, S, c, 0.02).alpha == 0.0
    plan = solve(q, r, S, limit_request(c, S, 0.02, 0.7), 0.02)
    assert plan.feasible and plan.alpha > 0.0
    assert plan.cost_change == pytest.approx((-0.7 * 0.2,))


def test_full_request_is_the_recovery_step_of_the_paper():
    q, r, S, c = 1.0, [0.2], [[1.0]], [5.0]
    plan = solve(q, r, S, limit_request(c, S, 0.02, 1.0), 0.02)
    assert plan.alpha == pytest.approx(0.0, abs=1e-6)
    assert plan.beta == pytest.approx(solve(q, r, S, c, 0.02).beta, rel=1e-6)
