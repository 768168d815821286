"""Nearest points: of a policy step to its constraints (PCPO), of an action to a safe set.

Legend: x step of the parameters, g and b_i gradients of reward and costs, F Fisher matrix,
c_i = J_i - limit_i, q = gᵀF⁻¹g, r_i = gᵀF⁻¹b_i, S_ij = b_iᵀF⁻¹b_j, η length of the reward step;
a action, h_i normals and o_i offsets of the safe half-spaces o_i + h_i·a <= 0.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch
from scipy.optimize import nnls
from torch import Tensor

Array = npt.NDArray[np.float64]

_FLAT = 1e-12
"""Squares of unit quantities below this are rounding."""


# --- steps of the parameters -------------------------------------------------------------------


@dataclass(frozen=True)
class ProjectedStep:
    """x = η F⁻¹g - Σ_i β_i L⁻¹b_i, with L = F or I as the Gram matrix said."""

    eta: float
    beta: tuple[float, ...]
    feasible: bool
    """False when no step at all satisfies every linearised constraint"""


def projected_step(
    q: float,
    r: npt.ArrayLike,
    c: npt.ArrayLike,
    gram: npt.ArrayLike,
    delta: float,
) -> ProjectedStep:
    """PCPO: the full trust-region step on the reward, then the nearest step with c + Bᵀx <= 0.

    gram: [m, m]. S for the KL projection (L = F; then combine with F⁻¹b_i), the plain products
        b_iᵀb_j for the Euclidean one (L = I; then combine with b_i). r, c: [m].

    With one constraint β = max(0, (c + η r) / gram). The quadratic KL of the result may exceed δ
    (it does where |c| > η|r|), so a caller that wants the trust region kept must backtrack on it.
    """
    r, c, gram = _vector(r), _vector(c), np.asarray(gram, dtype=np.float64)
    eta = float(np.sqrt(2.0 * delta / q)) if q > 0.0 else 0.0
    beta, feasible = nearest_point(gram, c + eta * r)
    return ProjectedStep(eta, tuple(beta.tolist()), feasible)


def nearest_point(gram: Array, excess: Array) -> tuple[Array, bool]:
    """Multipliers β >= 0 of the shortest move y = -Σ β_i b_i with excess + Bᵀy <= 0.

    gram: [m, m], b_iᵀb_j in the metric of the move; excess: [m], how far each constraint is passed.
    They minimise ½ βᵀ gram β - excessᵀβ. The flag says whether such a move exists. If not,
    constraints that no move affects are left out, and those that contradict each other give way.
    """
    scale = np.sqrt(np.maximum(np.diagonal(gram), 0.0))
    movable = scale > 0.0
    hopeless = ~movable & (excess > 0.0)
    beta = np.zeros(len(excess))
    if not movable.any():
        return beta, not bool(hopeless.any())
    scale = scale[movable]
    unit_gram = gram[np.ix_(movable, movable)] / np.outer(scale, scale)
    unit_excess = excess[movable] / scale
    unit = float(np.abs(unit_excess).max())
    solution, exists = least_distance(gram_columns(unit_gram), unit_excess, unit)
    if not exists:
        # Half a squared unit of violation now weighs as much as half a squared unit of move.
        softened = gram_columns(unit_gram + np.eye(len(scale)))
        solution, _ = least_distance(softened, unit_excess, unit)
    beta[movable] = solution / scale
    return beta, exists and not bool(hopeless.any())


def least_distance(columns: Array, excess: Array, unit: float) -> tuple[Array, bool]:
    """β >= 0 [m] of the shortest y = -columns·β with excess + columnsᵀy <= 0, and if there is one.

    If there is none, β is the proof: columns·β = 0 although excess·β > 0.

    columns: [n, m] of about unit length; unit: the length of a typical move. A set a million times
    farther away counts as empty. Least-distance programming (Lawson and Hanson, 1974, ch. 23): a
    non-negative least-squares problem whose residual either vanishes, which proves that the set is
    empty, or points at the answer. It needs no rank condition on the columns.
    """
    if (excess <= 0.0).all():
        return np.zeros(len(excess)), True
    stacked = np.vstack([-columns, excess[None, :] / unit])
    target = np.zeros(len(stacked))
    target[-1] = 1.0
    # Constraints with much room are long columns, which would hide the others from the solver.
    length = np.linalg.norm(stacked, axis=0)
    weights, residual = nnls(stacked / length, target, maxiter=100 * len(excess))
    weights = weights / length
    remainder = 1.0 - float(stacked[-1] @ weights)
    if residual**2 < _FLAT or remainder <= 0.0:
        return np.asarray(weights), False
    beta = np.asarray(weights * (unit / remainder))
    # Near the edge of the empty sets rounding can pass a proof of emptiness off as an answer.
    reached = bool((excess - columns.T @ (columns @ beta) <= 1e-9 * unit).all())
    return beta, reached


def gram_columns(gram: Array) -> Array:
    """[m, m], columns whose products are ``gram``; tiny and negative eigenvalues are rounding."""
    values, vectors = np.linalg.eigh(0.5 * (gram + gram.T))
    values = np.where(values > _FLAT * len(values), values, 0.0)
    return np.asarray(np.sqrt(values)[:, None] * vectors.T)


def _vector(values: npt.ArrayLike) -> Array:
    return np.atleast_1d(np.asarray(values, dtype=np.float64))


# --- actions -----------------------------------------------------------------------------------


@torch.no_grad()
def project_safe_box(
    action: Tensor,
    normals: Tensor,
    offsets: Tensor,
    *,
    low: float = -1.0,
    high: float = 1.0,
    iterations: int = 30,
) -> tuple[Tensor, Tensor]:
    """Nearest action in the box that satisfies every half-space, and whether there is one.

    action: [B, act]; normals: [B, m, act]; offsets: [B, m]. Returns ([B, act], bool [B]).

    An action that is safe once clipped to the box comes back just clipped: nothing in the box is
    nearer. The others are solved in float64, all worlds at once: one half-space exactly, more by an
    interior-point method, to about 1e-6. Where no action in the box is safe, the answer has the
    smallest sum of distances to the half-spaces.
    """
    clipped = action.clamp(low, high)
    size = torch.linalg.vector_norm(normals, dim=-1)
    unsafe = _excess(normals, offsets, clipped) > 0.0
    solve = unsafe.any(-1)
    result, feasible = clipped.clone(), ~solve
    # Asking a GPU which rows are unsafe would wait for it: there all are solved.
    rows = slice(None) if action.is_cuda else solve
    if not action.is_cuda and not bool(solve.any()):
        return result, feasible
    # Unit normals: one tolerance then means one distance. A zero normal cannot be helped.
    usable = (size > 0.0)[rows]
    length = torch.where(usable, size[rows], 1.0).double()
    unit = normals[rows].double() / length.unsqueeze(-1)
    offset = torch.where(usable, offsets[rows].double() / length, -1.0)
    centre, half = 0.5 * (low + high), 0.5 * (high - low)
    target = (action[rows].double() - centre) / half
    shifted = ((unit * centre).sum(-1) + offset) / half
    if unit.shape[1] == 1:
        point = _project_one(target, unit[:, 0], shifted[:, 0])
    else:
        point = _elastic_projection(target, unit, shifted, iterations)
    nearest = (point * half + centre).to(action.dtype).clamp(low, high)
    worst = _excess(unit, offset, nearest.double()).amax(-1)
    solved = (worst <= 1e-5 * half) & ~(unsafe[rows] & ~usable).any(-1)
    result[rows] = torch.where(solve[rows].unsqueeze(-1), nearest, result[rows])
    feasible[rows] = solved | feasible[rows]
    return result, feasible


def _excess(normals: Tensor, offsets: Tensor, action: Tensor) -> Tensor:
    return offsets + (normals @ action.unsqueeze(-1)).squeeze(-1)


def _project_one(target: Tensor, normal: Tensor, offset: Tensor) -> Tensor:
    """Nearest point of the box [-1, 1] with offset + h·x <= 0, or the one that comes closest to it.

    The answer is clip(target - ν h) for the smallest ν >= 0 that is safe. The excess falls
    piecewise linearly in ν and bends only where a coordinate enters or leaves the box, so it is
    enough to look at those ν and to interpolate. target, normal [B, n], offset [B]; returns [B, n].
    """
    moving = normal != 0.0
    divisor = torch.where(moving, normal, 1.0)
    sides = torch.stack([(target - 1.0) / divisor, (target + 1.0) / divisor], -1)
    bends = torch.where(moving.unsqueeze(-1), sides, 0.0).clamp_min(0.0).flatten(1)
    bends = torch.cat([torch.zeros_like(bends[:, :1]), bends.sort(-1).values], -1)
    points = (target.unsqueeze(1) - bends.unsqueeze(-1) * normal.unsqueeze(1)).clamp(-1.0, 1.0)
    excess = offset.unsqueeze(-1) + _matvec(points, normal)
    # The first bend that is safe, or the last one if none is; the answer lies just before it.
    after = (excess > 0.0).sum(-1, True).clamp(1, bends.shape[-1] - 1)
    high, low = excess.gather(-1, after - 1), excess.gather(-1, after)
    fall = high - low
    part = torch.where(fall > 0.0, high / torch.where(fall > 0.0, fall, 1.0), 1.0).clamp(0.0, 1.0)
    start, end = bends.gather(-1, after - 1), bends.gather(-1, after)
    return (target - (start + part * (end - start)) * normal).clamp(-1.0, 1.0)


def _elastic_projection(
    target: Tensor, normals: Tensor, offsets: Tensor, iterations: int
) -> Tensor:
    """Minimise ½‖x - target‖² + ρ Σ s over the box [-1, 1] with offsets + H x <= s, s >= 0.

    The slacks s make every problem solvable; for ρ above the multipliers of the problem without
    them they are zero at the solution. Primal-dual interior point, started strictly inside:
    y (for t = s - offsets - Hx) and z = ρ - y (for s), u and l (for the two sides of the box), and
    Newton steps on y t = z s = u (1 - x) = l (1 + x) = μ, with ds, dy, du and dl eliminated.

    target [B, n], normals [B, m, n], offsets [B, m], all float64; returns x [B, n].
    """
    rho = 1e4
    transposed = normals.transpose(1, 2)
    x = torch.zeros_like(target)
    s = offsets.clamp_min(0.0) + 1.0
    # All but x stay positive, so each is updated by itself: 1 - x would soon be lost to rounding.
    positive = {
        "s": s,
        "t": s - offsets,
        "y": torch.ones_like(s),
        "z": torch.full_like(s, rho - 1.0),
        "above": torch.ones_like(x),
        "below": torch.ones_like(x),
        "u": torch.ones_like(x),
        "l": torch.ones_like(x),
    }
    for _ in range(iterations):
        dx, change = _newton_step(x, target, normals, transposed, positive)
        # Rounding can spoil a step after convergence, and where nothing is safe: stay then.
        everything = torch.cat([dx, *change.values()], -1)
        good = torch.isfinite(everything).all(-1, True)
        shrink = [(-change[name] / positive[name]).amax(-1, True) for name in positive]
        step = 0.995 / torch.stack(shrink).amax(0).clamp_min(0.995)
        x = torch.where(good, x + step * dx, x)
        for name, value in positive.items():
            positive[name] = torch.where(good, value + step * change[name], value)
    return x


def _newton_step(
    x: Tensor, target: Tensor, normals: Tensor, transposed: Tensor, positive: dict[str, Tensor]
) -> tuple[Tensor, dict[str, Tensor]]:
    """dx, and the changes of the positive quantities, towards a tenth of their mean product μ."""
    s, t, y, z, above, below, u, l = positive.values()  # noqa: E741
    products = torch.cat([y * t, z * s, u * above, l * below], -1)
    mu = (0.1 * products.mean(-1, True)).clamp_min(1e-13)
    spread = t / y + s / z
    shift = (mu / y - t) - (mu / z - s)
    gradient = x - target + _matvec(transposed, y + shift / spread) + mu / above - mu / below
    # (diag(1/inverse) + Hᵀ diag(1/spread) H) dx = -gradient, by an m x m system.
    inverse = 1.0 / (1.0 + u / above + l / below)
    scaled = normals * inverse.unsqueeze(1)
    small = torch.diag_embed(spread) + scaled @ transposed
    pushed = torch.linalg.solve_ex(small, _matvec(scaled, gradient).unsqueeze(-1))[0].squeeze(-1)
    dx = inverse * (_matvec(transposed, pushed) - gradient)
    dy = (_matvec(normals, dx) + shift) / spread
    ds = (mu + s * dy) / z - s
    return dx, {
        "s": ds,
        "t": (mu - t * dy) / y - t,
        "y": dy,
        "z": (mu - z * ds) / s - z,
        "above": -dx,
        "below": dx,
        "u": (mu + u * dx) / above - u,
        "l": (mu - l * dx) / below - l,
    }


def _matvec(matrix: Tensor, vector: Tensor) -> Tensor:
    return (matrix @ vector.unsqueeze(-1)).squeeze(-1)
