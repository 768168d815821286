"""Projections land on the nearest safe point: by hand and against a quadratic-program solver."""

import clarabel
import numpy as np
import pytest
import torch
from scipy import sparse

from statewise.core.projection import (
    least_distance,
    nearest_point,
    project_safe_box,
    projected_step,
)


def quadratic_program(target, rows, right):
    """Nearest point to ``target`` with rows·x <= right, and whether there is one."""
    n = len(target)
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    settings.tol_gap_abs = settings.tol_gap_rel = settings.tol_feas = 1e-10
    identity = sparse.csc_matrix(np.eye(n))
    cones = [clarabel.NonnegativeConeT(len(rows))]
    solver = clarabel.DefaultSolver(
        identity, -np.asarray(target), sparse.csc_matrix(rows), right, cones, settings
    )
    result = solver.solve()
    return np.array(result.x), "Solved" in str(result.status)


# --- steps of the parameters -------------------------------------------------------------------


def test_step_that_is_safe_is_not_projected():
    step = projected_step(q=4.0, r=[1.0], c=[-1.0], gram=[[1.0]], delta=0.02)
    assert step.eta == pytest.approx(0.1) and step.beta == (0.0,) and step.feasible


def test_one_constraint_agrees_with_the_closed_form():
    # η = sqrt(2 · 0.02 / 4) = 0.1; β = (c + η r) / s = (0.3 + 0.2) / 5
    step = projected_step(q=4.0, r=[2.0], c=[0.3], gram=[[5.0]], delta=0.02)
    assert step.beta == pytest.approx((0.1,))


@pytest.mark.parametrize("metric", ["kl", "euclidean"])
def test_projected_step_is_the_nearest_safe_one_in_its_metric(metric):
    generator = np.random.default_rng(0)
    n, m, delta = 6, 3, 0.02
    for _ in range(50):
        root = generator.normal(size=(n, n)) + 2 * np.eye(n)
        F = root @ root.T
        g, b = generator.normal(size=n), generator.normal(size=(m, n))
        c = generator.normal(size=m) * 0.1
        u, v = np.linalg.solve(F, g), np.linalg.solve(F, b.T).T
        gram, moves = (b @ v.T, v) if metric == "kl" else (b @ b.T, b)
        step = projected_step(g @ u, b @ u, c, gram, delta)
        x = step.eta * u - np.asarray(step.beta) @ moves
        # in the coordinates w = Lᵀx of the metric the projection is Euclidean
        L = np.linalg.cholesky(F) if metric == "kl" else np.eye(n)
        rows = np.linalg.solve(L, b.T).T
        reference, _ = quadratic_program(L.T @ (step.eta * u), rows, -c)
        np.testing.assert_allclose(L.T @ x, reference, atol=1e-6)


def test_kl_of_the_projection_is_as_the_formula_says():
    # δ + (c² - η² r²) / (2 s): beyond δ exactly where |c| > η |r|
    q, r, s, delta = 2.0, 0.5, 1.5, 0.02
    eta = np.sqrt(2 * delta / q)
    for c in (0.01, 0.2):
        step = projected_step(q, [r], [c], [[s]], delta)
        beta = step.beta[0]
        kl = 0.5 * (step.eta**2 * q - 2 * step.eta * beta * r + beta**2 * s)
        assert kl == pytest.approx(delta + (c**2 - eta**2 * r**2) / (2 * s))
        assert (kl > delta) == (c > eta * r)


def test_no_reward_gradient_still_projects():
    step = projected_step(0.0, [0.0], [0.3], [[1.0]], 0.02)
    assert step.eta == 0.0 and step.beta == pytest.approx((0.3,))


def test_zero_gradient_is_left_out_and_reported_when_violated():
    assert projected_step(1.0, [0.0], [-0.1], [[0.0]], 0.02).feasible
    step = projected_step(1.0, [0.0, 0.0], [0.1, 0.2], [[0.0, 0.0], [0.0, 1.0]], 0.02)
    assert not step.feasible and step.beta == pytest.approx((0.0, 0.2))


def test_contradicting_constraints_give_a_finite_compromise():
    # b and -b, each asking to move by 1 the other way: by symmetry nothing moves
    beta, feasible = nearest_point(np.array([[1.0, -1.0], [-1.0, 1.0]]), np.array([1.0, 1.0]))
    assert not feasible and np.isfinite(beta).all()
    assert beta[0] == pytest.approx(beta[1])


def test_least_distance_proves_that_a_set_is_empty():
    columns = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]])
    excess = np.array([0.5, 0.1, -1.0])
    proof, exists = least_distance(columns, excess, 1.0)
    assert not exists
    np.testing.assert_allclose(columns @ proof, 0.0, atol=1e-9)
    assert excess @ proof > 0


def test_dependent_constraints_need_no_special_care():
    generator = np.random.default_rng(1)
    for _ in range(50):
        b = generator.normal(size=(2, 3))
        b = np.vstack([b, 2 * b[0], b[0] + b[1]])
        excess = generator.normal(size=4)
        beta, feasible = nearest_point(b @ b.T, excess)
        reference, exists = quadratic_program(np.zeros(3), b, -excess)
        assert feasible == exists
        if exists:
            np.testing.assert_allclose(-beta @ b, reference, atol=1e-6)


# --- actions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "m"), [(2, 1), (5, 1), (17, 1), (2, 2), (2, 3), (8, 3), (3, 6)])
def test_box_projection_is_the_nearest_safe_action(n, m):
    generator = torch.Generator().manual_seed(n + 10 * m)
    count = 80
    action = 1.5 * torch.randn(count, n, generator=generator, dtype=torch.float64)
    normals = torch.randn(count, m, n, generator=generator, dtype=torch.float64)
    normals *= 10 ** (2 * torch.rand(count, m, 1, generator=generator) - 1)
    offsets = 0.7 * torch.randn(count, m, generator=generator, dtype=torch.float64)
    offsets *= normals.norm(dim=-1)
    result, feasible = project_safe_box(action, normals, offsets)
    assert (result.abs() <= 1).all()
    box = np.vstack([np.eye(n), -np.eye(n)])
    for i in range(count):
        rows, right = np.vstack([normals[i], box]), np.concatenate([-offsets[i], np.ones(2 * n)])
        reference, exists = quadratic_program(action[i], rows, right)
        assert bool(feasible[i]) == exists
        if exists:
            np.testing.assert_allclose(result[i], reference, atol=1e-5)
            assert (offsets[i] + normals[i] @ result[i]).max() <= 1e-5
    assert feasible.any()


def test_single_precision_actions_land_in_the_safe_set():
    generator = torch.Generator().manual_seed(0)
    action, normals = torch.randn(4096, 2, generator=generator), torch.randn(
        4096, 2, 2, generator=generator
    )  # fmt: skip
    offsets = 0.3 * torch.randn(4096, 2, generator=generator)
    result, feasible = project_safe_box(action, normals, offsets)
    excess = offsets + (normals @ result.unsqueeze(-1)).squeeze(-1)
    assert result.dtype == torch.float32
    assert feasible.float().mean() > 0.9
    assert (excess[feasible] / normals[feasible].norm(dim=-1) <= 1e-5).all()


def test_safe_actions_come_back_bit_for_bit_and_others_are_only_clipped():
    action = torch.tensor([[0.1, -0.7], [3.0, 0.5]])
    normals, offsets = torch.tensor([[[1.0, 0.0]]] * 2), torch.tensor([[-1.0], [-1.0]])
    result, feasible = project_safe_box(action, normals, offsets)
    assert torch.equal(result, torch.tensor([[0.1, -0.7], [1.0, 0.5]])) and feasible.all()


def test_box_may_be_shifted():
    # a in [0, 4]², a_1 + a_2 <= 3 from (4, 2): the line's nearest point is (2.5, 0.5)
    for normals, offsets in (
        ([[1.0, 1.0]], [-3.0]),
        ([[1.0, 1.0], [0.0, 1.0]], [-3.0, -9.0]),
    ):
        rows, right = torch.tensor([normals]), torch.tensor([offsets])
        result, feasible = project_safe_box(torch.tensor([[4.0, 2.0]]), rows, right, low=0, high=4)
        assert feasible.all()
        torch.testing.assert_close(result, torch.tensor([[2.5, 0.5]]), atol=1e-5, rtol=0)


@pytest.mark.parametrize("m", [1, 2])
def test_where_nothing_is_safe_the_least_unsafe_action_is_given_and_flagged(m):
    # a_1 <= -3 cannot be met in the box; a_1 = -1 comes closest, a_2 stays
    normals, offsets = torch.tensor([[[1.0, 0.0]] * m]), torch.tensor([[3.0] * m])
    result, feasible = project_safe_box(torch.tensor([[0.5, 0.3]]), normals, offsets)
    assert not feasible.any()
    torch.testing.assert_close(result, torch.tensor([[-1.0, 0.3]]), atol=1e-4, rtol=0)


def test_zero_normal_with_positive_offset_is_flagged_and_does_not_disturb_the_rest():
    normals = torch.tensor([[[0.0, 0.0], [1.0, 0.0]]])
    result, feasible = project_safe_box(
        torch.tensor([[0.9, 0.9]]), normals, torch.tensor([[1.0, -0.5]])
    )
    assert not feasible.any()
    torch.testing.assert_close(result, torch.tensor([[0.5, 0.9]]), atol=1e-5, rtol=0)


def test_parallel_and_contradicting_half_spaces_never_give_nan():
    generator = torch.Generator().manual_seed(3)
    base = torch.randn(200, 1, 4, generator=generator, dtype=torch.float64)
    normals = torch.cat([base, 2 * base, -base], 1)
    offsets = torch.randn(200, 3, generator=generator, dtype=torch.float64)
    action = torch.randn(200, 4, generator=generator, dtype=torch.float64)
    result, feasible = project_safe_box(action, normals, offsets)
    assert result.isfinite().all() and 0 < feasible.sum() < 200
