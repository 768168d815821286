"""The constrained trust-region step, exactly, for any number of constraints.

    maximise gᵀx   subject to   ½ xᵀF x <= δ   and   c_i + b_iᵀx <= 0,  i = 1..m

is the convex program of the paper's Algorithm 1. Anything F-orthogonal to F⁻¹g and F⁻¹b_i costs KL
and changes nothing, so x = F⁻¹(α g - Σ β_i b_i) and only products of these vectors matter:

    q = gᵀF⁻¹g,   r_i = gᵀF⁻¹b_i,   S_ij = b_iᵀF⁻¹b_j.

Legend: g, b_i gradients of the reward and cost surrogates (g is ascended), F Fisher matrix, δ size
of the region, c_i = J_i - limit_i (positive: violated), λ and ν multipliers of the region and the
constraints.

Inside, everything is in units in which g and b_i have length one and the region is the unit ball
(x = sqrt(2δ) y): a scaled c_i above 1 cannot be met, one below -1 cannot be broken, and one
tolerance serves every unit of cost and reward. The answer is found by writing down the closed-form
optimum for each set of active constraints, keeping those that the constraints confirm, and taking
the best.
"""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from itertools import combinations

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from statewise.core.projection import gram_columns, least_distance, nearest_point

Array = npt.NDArray[np.float64]
_Given = npt.ArrayLike | Tensor

_ENUMERATE = 6
"""Up to this many constraints all 2^m active sets are tried; above it, those a homotopy visits."""
_SLACK = 1e-9
"""Excess of a scaled constraint or of the unit ball that counts as rounding."""
_DEPENDENT = 1e-9
"""Smallest eigenvalue of a correlation matrix whose gradients count as independent."""
_PARALLEL = 1e-12
"""Squared sine below which the reward gradient lies in the span of the active cost gradients."""


class Case(IntEnum):
    """What the subproblem looked like; the numbers are those CPO and SCPO logs use for m = 1."""

    RECOVERY = 0
    """no step in the region satisfies the constraints: reduce the largest violation"""
    VIOLATED = 1
    """some c_i >= 0, and the region reaches the safe side"""
    CROSSING = 2
    """all c_i < 0, and the boundary of the safe set crosses the region"""
    SLACK = 3
    """all c_i < 0, and the whole region is safe"""
    UNCONSTRAINED = 4
    """no constraint that a step could affect"""


@dataclass(frozen=True)
class Plan:
    """The step x = F⁻¹(α g - Σ β_i b_i), and what the quadratic model predicts of it."""

    alpha: float
    beta: tuple[float, ...]
    case: Case
    feasible: bool
    """whether the model's constraints can all be met; False with the two fields below"""
    active: tuple[int, ...]
    """constraints that hold with equality (in recovery: those at the largest violation)"""
    hopeless: tuple[int, ...]
    """violated constraints whose gradient is zero; the step is the best for the others"""
    lam: float
    """multiplier λ of the region; 0 where the region does not bind, and in recovery"""
    nu: tuple[float, ...]
    """multipliers ν_i of the constraints; in recovery their weights in the largest violation"""
    reward_change: float
    """gᵀx"""
    cost_change: tuple[float, ...]
    """b_iᵀx"""
    kl: float
    """½ xᵀF x"""


def solve(
    q: _Given, r: _Given, S: _Given, c: _Given, delta: float, recovery_scale: _Given | None = None
) -> Plan:
    """The exact step; see the top of this file. r, c: [m]; S: [m, m]; m may be 0.

    recovery_scale: [m] positive sizes that make the costs comparable (their limits or ranges; 1 by
        default). Used when the constraints cannot be met: the step then makes the largest
        (c_i + b_iᵀx) / scale_i as small as the region allows. A constraint that the whole region
        changes by less than 1e-8 of its scale counts as one with a zero gradient.

    Constraints with a zero gradient are left out of the step; where violated they are `hopeless`.
    """
    problem = _Problem.scaled(q, r, S, c, delta, recovery_scale)
    point = _best(problem, _optima(problem, _active_sets(problem)))
    case = problem.case() if point else Case.RECOVERY
    if point is None:
        point = _recover(problem)
    return problem.plan(point, case)


def recover(
    q: _Given, r: _Given, S: _Given, c: _Given, delta: float, recovery_scale: _Given | None = None
) -> Plan:
    """The step that makes the largest (c_i + b_iᵀx) / scale_i smallest, whatever the reward does.

    What `solve` falls back on; here for callers whose line search rejected the step it returned.
    """
    problem = _Problem.scaled(q, r, S, c, delta, recovery_scale)
    return problem.plan(_recover(problem), Case.RECOVERY)


def step(plan: Plan, u: Tensor, v: Tensor) -> Tensor:
    """x = α u - Σ β_i v_i, [P], from u = F⁻¹g [P] and v_i = F⁻¹b_i, v [m, P]."""
    beta = torch.as_tensor(plan.beta, dtype=torch.float64, device=u.device).to(u.dtype)
    return plan.alpha * u - beta @ v if len(plan.beta) else plan.alpha * u


def limit_request(c: _Given, S: _Given, delta: float, eta: float) -> Array:
    """The decrease that violated constraints ask for, limited to a share η of the region's radius; [m].

    c_i is what each would like; those at most 0 stay as they are. The shortest step that grants all
    requests is at most η · sqrt(2δ) long, so that with η < 1 a part of the region is left to the reward.
    For one constraint that is min(c, η · sqrt(2 δ S)), for several first that and then all are shortened
    alike. η = 1 asks for c whatever the region allows, as the paper does. Constraints with a zero
    gradient keep c_i: no request can be met.
    """
    if not 0.0 <= eta <= 1.0:
        raise ValueError(f"eta is {eta}; give a fraction from 0 to 1 (1 is the paper)")
    asked = np.array(_array(c))
    gram = _array(S).reshape(len(asked), len(asked))
    most = eta * np.sqrt(2.0 * delta * np.maximum(np.diagonal(gram), 0.0))
    rows = np.flatnonzero((asked > 0.0) & (np.diagonal(gram) > 0.0))
    if eta == 1.0 or not len(rows):
        return asked
    asked[rows] = np.minimum(asked[rows], most[rows])
    gram = gram[np.ix_(rows, rows)]
    beta, possible = nearest_point(gram, asked[rows])
    length = math.sqrt(max(float(beta @ gram @ beta), 0.0))
    if possible and length > 0.0:
        asked[rows] *= min(1.0, eta * math.sqrt(2.0 * delta) / length)
    return asked


# --- the scaled problem ------------------------------------------------------------------------


@dataclass(frozen=True)
class _Point:
    """y = a ĝ - Σ b_i b̂_i in the scaled problem, with its multipliers."""

    a: float
    b: Array
    lam: float
    nu: Array
    active: tuple[int, ...]


@dataclass(frozen=True)
class _Problem:
    """maximise ĝ·y over ‖y‖ <= 1, c + B̂ᵀy <= 0, for the rows that a step can affect."""

    c: Array
    r: Array
    S: Array
    has_reward: bool
    weight: Array
    """scaled size of one unit of violation, for recovery"""
    rows: npt.NDArray[np.intp]
    """where these constraints stood in the original problem"""
    reward_unit: float
    """sqrt(q): change of the reward for a unit of ĝ·y, over sqrt(2δ)"""
    cost_unit: Array
    """sqrt(S_ii)"""
    original: tuple[float, Array, Array, Array, float]

    @staticmethod
    def scaled(
        q: _Given, r: _Given, S: _Given, c: _Given, delta: float, recovery_scale: _Given | None
    ) -> "_Problem":
        q, r, S, c, scale = _checked(q, r, S, c, delta, recovery_scale)
        reward_unit, cost_unit = math.sqrt(max(q, 0.0)), np.sqrt(np.maximum(np.diagonal(S), 0.0))
        reach = math.sqrt(2.0 * delta) * cost_unit
        known = 0.0 if recovery_scale is None else 1e-8 * scale
        rows = np.flatnonzero(reach > known)
        unit, reach = cost_unit[rows], reach[rows]
        correlation = S[np.ix_(rows, rows)] / np.outer(unit, unit)
        with_reward = r[rows] / (unit * reward_unit) if reward_unit > 0.0 else np.zeros(len(rows))
        return _Problem(
            c=c[rows] / reach,
            r=np.clip(with_reward, -1.0, 1.0),
            S=np.clip(0.5 * (correlation + correlation.T), -1.0, 1.0),
            has_reward=reward_unit > 0.0,
            weight=scale[rows] / reach,
            rows=rows,
            reward_unit=reward_unit,
            cost_unit=unit,
            original=(q, r, S, c, delta),
        )

    def excess(self, point: _Point) -> Array:
        """c + B̂ᵀy"""
        return self.c + point.a * self.r - self.S @ point.b

    def square(self, point: _Point) -> float:
        """‖y‖²"""
        own = point.a**2 if self.has_reward else 0.0
        return float(own - 2.0 * point.a * (self.r @ point.b) + point.b @ self.S @ point.b)

    def gain(self, point: _Point) -> float:
        """ĝ·y"""
        return float(point.a * self.has_reward - self.r @ point.b)

    def case(self) -> Case:
        if not len(self.c):
            return Case.UNCONSTRAINED
        if (self.c >= 0.0).any():
            return Case.VIOLATED
        return Case.CROSSING if (self.c >= -1.0).any() else Case.SLACK

    def plan(self, point: _Point, case: Case) -> Plan:
        q, r, S, c, delta = self.original
        radius = math.sqrt(2.0 * delta)
        alpha = radius * point.a / self.reward_unit if self.has_reward else 0.0
        beta, nu = np.zeros(len(c)), np.zeros(len(c))
        beta[self.rows] = radius * point.b / self.cost_unit
        nu[self.rows] = point.nu / self.cost_unit
        if case != Case.RECOVERY:
            nu *= self.reward_unit
        zero_gradient = np.setdiff1d(np.arange(len(c)), self.rows)
        hopeless = tuple(int(i) for i in zero_gradient if c[i] > 0.0)
        return Plan(
            alpha=alpha,
            beta=tuple(beta.tolist()),
            case=case,
            feasible=case != Case.RECOVERY and not hopeless,
            active=tuple(int(i) for i in self.rows[list(point.active)]),
            hopeless=hopeless,
            lam=point.lam * self.reward_unit / radius,
            nu=tuple(nu.tolist()),
            reward_change=float(alpha * q - r @ beta),
            cost_change=tuple((alpha * r - S @ beta).tolist()),
            kl=max(0.5 * float(alpha**2 * q - 2.0 * alpha * (r @ beta) + beta @ S @ beta), 0.0),
        )


def _checked(
    q: _Given, r: _Given, S: _Given, c: _Given, delta: float, recovery_scale: _Given | None
) -> tuple[float, Array, Array, Array, Array]:
    q, r, c = float(_array(q)), _array(r).ravel(), _array(c).ravel()
    m = len(c)
    if len(r) != m or _array(S).size != m * m:
        raise ValueError(
            f"{len(r)} entries in r, {_array(S).size} in S and {m} in c; give [m], [m, m] and [m]"
        )
    S = _array(S).reshape(m, m)
    if not delta > 0.0 or not math.isfinite(delta):
        raise ValueError(f"delta is {delta}; give a positive trust-region size, such as 0.02")
    for name, number in (("q", np.asarray(q)), ("r", r), ("S", S), ("c", c)):
        if not np.isfinite(number).all():
            raise ValueError(
                f"{name} is {number}, not finite; look for non-finite advantages or gradients"
            )
    scale = np.ones(m) if recovery_scale is None else _array(recovery_scale).ravel()
    if len(scale) != m or not (scale > 0.0).all():
        raise ValueError(f"recovery_scale is {scale}; give {m} positive numbers")
    return q, r, S, c, scale


def _array(values: _Given) -> Array:
    if isinstance(values, Tensor):
        values = values.detach().cpu().double().numpy()
    return np.asarray(values, dtype=np.float64)


# --- the optimum -------------------------------------------------------------------------------


def _active_sets(problem: _Problem) -> Iterable[tuple[int, ...]]:
    m = len(problem.c)
    if m > _ENUMERATE:
        return _visited_sets(problem)
    return (chosen for size in range(m + 1) for chosen in combinations(range(m), size))


def _optima(problem: _Problem, sets: Iterable[tuple[int, ...]]) -> Iterator[_Point]:
    """For each active set the optimum if these constraints, and only these, held with equality.

    With n = c_AᵀS_A⁻¹c_A and p = 1 - r_AᵀS_A⁻¹r_A: λ = sqrt(p / (1 - n)), ν_A = S_A⁻¹(r_A + λ c_A),
    y = (ĝ - B̂ν) / λ. Where g lies in the span of the active gradients (p = 0) every point of the
    face is as good; then, and as the candidate that decides feasibility, the face's shortest point.
    """
    for active in sets:
        A = list(active)
        solved = _independent_solve(problem.S[np.ix_(A, A)], problem.c[A], problem.r[A])
        if solved is None:
            continue
        from_c, from_r = solved
        left = 1.0 - float(problem.c[A] @ from_c)
        if left < -_SLACK:
            continue
        share = 1.0 - float(problem.r[A] @ from_r) if problem.has_reward else 0.0
        yield _Point(0.0, _spread(problem, A, from_c), 0.0, _spread(problem, A, from_r), active)
        if share > _PARALLEL and left > 0.0:
            lam = math.sqrt(share / left)
            nu = from_r + lam * from_c
            b = _spread(problem, A, from_c + from_r / lam)
            yield _Point(1.0 / lam, b, lam, _spread(problem, A, nu), active)


def _best(problem: _Problem, points: Iterable[_Point]) -> _Point | None:
    """The point of largest gain among those inside the ball and the constraints; None if none is.

    Among points of equal gain the shortest: it spends the least KL.
    """
    best, best_rank = None, (-math.inf, -math.inf)
    for point in points:
        square = problem.square(point)
        inside = square <= 1.0 + _SLACK and (problem.excess(point) <= _SLACK).all()
        rank = (round(problem.gain(point), 12), -round(square, 12))
        if inside and rank > best_rank:
            best, best_rank = point, rank
    return best


def _visited_sets(problem: _Problem) -> Iterator[tuple[int, ...]]:
    """The active sets on the way to the optimum when there are too many to try them all.

    y(τ) = nearest point to τ ĝ that satisfies the constraints has a length that grows with τ, and
    is the optimum where it reaches 1: double τ until it does, then bisect.
    """
    columns = gram_columns(problem.S)
    low, high = 0.0, 1.0

    def reach(tau: float) -> tuple[float, tuple[int, ...]]:
        beta, exists = least_distance(columns, problem.c + tau * problem.r, 1.0)
        if not exists:
            return math.inf, ()
        point = _Point(tau, beta, 0.0, beta, ())
        return problem.square(point), _support(beta)

    yield reach(0.0)[1]
    while high < 1e8:
        square, active = reach(high)
        yield active
        if square >= 1.0:
            break
        low, high = high, 4.0 * high
    for _ in range(60):
        middle = 0.5 * (low + high)
        square, active = reach(middle)
        yield active
        low, high = (middle, high) if square < 1.0 else (low, middle)


# --- recovery ----------------------------------------------------------------------------------


def _recover(problem: _Problem) -> _Point:
    """The point of the ball with the smallest largest excess, in units of ``weight``.

    At the optimum a set A of constraints shares the largest violation t, and y = -B̂_A p, p >= 0.
    Then p = S_A⁻¹(c_A - t w_A) and ‖y‖ = 1 make t the root of a quadratic; with one constraint
    y = -b̂. Where the gradients of A balance, Σ p_i b̂_i = 0, no step helps all: t is their mean.
    """
    m = len(problem.c)
    if m == 0:
        return _Point(0.0, np.zeros(0), 0.0, np.zeros(0), ())
    if m > _ENUMERATE:
        return _recover_by_bisection(problem)
    sets = (chosen for size in range(1, m + 1) for chosen in combinations(range(m), size))
    best, best_rank = None, (math.inf, math.inf)
    for active in sets:
        for point in _recovery_points(problem, active):
            square = problem.square(point)
            worst = float((problem.excess(point) / problem.weight).max())
            rank = (round(worst, 12), round(square, 12))
            if square <= 1.0 + _SLACK and rank < best_rank:
                best, best_rank = point, rank
    # A lone constraint can always be moved against, so that there is a best point.
    assert best is not None
    return best


def _recovery_points(problem: _Problem, active: tuple[int, ...]) -> Iterator[_Point]:
    A = list(active)
    S, c, w = problem.S[np.ix_(A, A)], problem.c[A], problem.weight[A]
    solved = _independent_solve(S, c, w)
    if solved is not None:
        from_c, from_w = solved
        quadratic, linear = float(w @ from_w), float(w @ from_c)
        constant = float(c @ from_c) - 1.0
        root = math.sqrt(max(linear**2 - quadratic * constant, 0.0))
        lengths = [from_c - (linear - sign * root) / quadratic * from_w for sign in (1.0, -1.0)]
    else:
        _, vectors = np.linalg.eigh(S)
        balance = vectors[:, 0]
        total = float(w @ balance)
        if abs(total) < _DEPENDENT * float(w.max()):
            return
        level = float(c @ balance) / total
        lengths = [np.linalg.pinv(S, rcond=_DEPENDENT, hermitian=True) @ (c - level * w)]
    for length in lengths:
        weights = _spread(problem, A, length)
        total = float(np.abs(weights).sum())
        yield _Point(0.0, weights, 0.0, weights / total if total > 0.0 else weights, active)


def _recover_by_bisection(problem: _Problem) -> _Point:
    """As `_recover`: the shortest step that brings every excess down to t, for the smallest t."""
    columns = gram_columns(problem.S)
    ratio = problem.c / problem.weight
    worst = int(np.argmax(ratio))
    # Without a step t is the largest ratio; a step of length 1 takes at most 1 off the worst row.
    low, high = float(ratio[worst] - 1.0 / problem.weight[worst]), float(ratio[worst])
    best = np.zeros(len(ratio))
    for _ in range(100):
        level = 0.5 * (low + high)
        beta, exists = least_distance(columns, problem.c - level * problem.weight, 1.0)
        if exists and float(beta @ problem.S @ beta) <= 1.0:
            best, high = beta, level
        else:
            low = level
    total = float(best.sum())
    return _Point(0.0, best, 0.0, best / total if total > 0.0 else best, _support(best))


# --- linear algebra ----------------------------------------------------------------------------


def _independent_solve(S: Array, *sides: Array) -> list[Array] | None:
    """S⁻¹ of each side, or None where the gradients are (numerically) dependent.

    Dependent sets may be skipped: some optimal multipliers always live on an independent set.
    """
    if not len(S):
        return [np.zeros(0) for _ in sides]
    values, vectors = np.linalg.eigh(S)
    if values[0] < _DEPENDENT:
        return None
    return [vectors @ ((vectors.T @ side) / values) for side in sides]


def _support(weights: Array) -> tuple[int, ...]:
    """Where non-negative weights are not zero, up to rounding."""
    return tuple(np.flatnonzero(weights > _SLACK * weights.max(initial=0.0)).tolist())


def _spread(problem: _Problem, active: list[int], values: Array) -> Array:
    """[m], zero outside the active set."""
    out = np.zeros(len(problem.c))
    out[active] = values
    return out
