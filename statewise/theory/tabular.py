"""Finite problems on which the theory of state-wise safety can be checked exactly.

A finite-horizon MDP with finitely many cost levels becomes, once the running maximum M is part of
the state, an ordinary MDP over s^ = (s, M) whose signal is the increment D = max(C - M, 0). Values
come from backward induction and state laws from a forward pass, so every bound of the paper can be
compared with the truth to rounding. Nothing here is sampled except the problems themselves.

`theory/bounds.py` has the bounds, `theory/study.py` the checks; docs/theory.md explains both.

Legend (the paper's symbol, then ours)
    t = 0..H             steps; H + 1 of them, and x[..., t, :] is time-indexed
    s^ = (s, M)          n = S * K augmented states, index s * K + M
    p_t = P(s^_t | pi)   `law`; d-bar = sum_t p_t has mass H + 1, so "E over d-bar" is a sum
    J, V, Q, A           `values`; those of J_D when the signal is D, of J when it is the reward R
    delta'_t(s^)         E_{a ~ pi'} A_t(s^, a), the drift of the new policy under the old values
    eps                  max |delta'_t(s^)| over states that can occur
    TV_t, KL_t           divergences of pi' and pi at s^_t, averaged over p_t (the OLD policy)

Leading `...` are batch axes. A time axis may have length 1 for "the same at each step".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
_Ints = npt.NDArray[np.int64]

_NOISE = (0.01, 0.1, 0.5, 2.0)
"""Scales of the log-policy noise in `random_pairs`, from a trust-region step to a new policy."""


# --- problems ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A batch of MDPs with S states, A actions and K cost levels, run for H + 1 steps."""

    P: Array
    """[..., S, A, S] transition probabilities."""
    C: _Ints
    """[..., S, A, S] index of the cost level of a transition."""
    R: Array
    """[..., S, A, S] reward."""
    levels: Array
    """[..., K] non-decreasing cost levels; levels[0] = 0 is also the initial maximum."""
    mu: Array
    """[..., S] law of the first state."""
    H: int
    """Index of the last step."""


@dataclass(frozen=True)
class Chain:
    """A batch of controlled chains on n (augmented) states."""

    T: Array
    """[..., 1 | H+1, n, A, n] transition probabilities."""
    mu: Array
    """[..., n] law of the first state."""
    H: int
    """Index of the last step."""


def augment(problem: Problem) -> tuple[Chain, Array, Array]:
    """The Maximum MDP: the chain on (s, M), its increments D and its rewards R.

    D and R are [..., 1, n, A, n]. D is max(C - M, 0) and M starts at zero, so the increments of an
    episode sum to its largest cost. Another non-decreasing function of the maximum, such as
    1[M > w] or M^2, needs only `levels` replaced by its values.
    """
    *batch, S, A, _ = problem.P.shape
    K = problem.levels.shape[-1]
    M = np.arange(K)[:, None, None]
    C = problem.C[..., :, None, :, :]  # [..., S, 1, A, S]
    arrives = np.maximum(C, M)[..., None] == np.arange(K)  # [..., S, K, A, S, K]
    T = problem.P[..., :, None, :, :, None] * arrives
    level = np.take_along_axis(problem.levels, problem.C.reshape(*batch, -1), -1)
    over = level.reshape(*batch, S, 1, A, S) - problem.levels[..., None, :, None, None]
    D = np.broadcast_to(np.maximum(over, 0.0)[..., None], T.shape)
    R = np.broadcast_to(problem.R[..., :, None, :, :, None], T.shape)
    mu = np.zeros((*batch, S, K))
    mu[..., 0] = problem.mu
    flat = (*batch, 1, S * K, A, S * K)
    chain = Chain(T.reshape(flat), mu.reshape(*batch, S * K), problem.H)
    return chain, D.reshape(flat), R.reshape(flat)


def running_maximum(problem: Problem) -> Array:
    """M of every augmented state, [..., n]."""
    return np.tile(problem.levels, problem.P.shape[-1])


def random_problem(
    rng: np.random.Generator, B: int, S: int, A: int, K: int, H: int, ends: bool = False
) -> Problem:
    """B random problems with Dirichlet dynamics; low costs are likelier than high ones.

    With `ends` the last state is absorbing and free of cost and reward: an episode that is over.
    """
    P = rng.dirichlet(np.ones(S), (B, S, A))
    weight = 0.5 ** np.arange(K)
    C = rng.choice(K, size=P.shape, p=weight / weight.sum()).astype(np.int64)
    R = rng.normal(size=P.shape)
    mu = rng.dirichlet(np.ones(S), B)
    if ends:
        P[:, -1] = np.eye(S)[-1]
        C[:, -1] = 0
        R[:, -1] = 0.0
        mu[:, -1] = 0.0
        mu /= mu.sum(-1, keepdims=True)
    levels = np.cumsum(rng.uniform(0.05, 1.0, (B, K)), -1)
    return Problem(P, C, R, levels - levels[:, :1], mu, H)


def tilt(pi: Array, direction: Array) -> Array:
    """pi * exp(direction), normalised over the last axis: a softmax policy after a logit step."""
    z = np.log(np.maximum(pi, np.finfo(float).tiny)) + direction
    e = np.exp(z - z.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@dataclass(frozen=True)
class Pair:
    """B problems of one shape, augmented, each with an old and a new policy."""

    problem: Problem
    chain: Chain
    D: Array
    R: Array
    pi: Array
    """[B, 1, n, A] old policy."""
    new: Array
    """[B, 1, n, A] new policy, pi * exp(noise)."""


def random_pairs(seed: int, groups: int = 40, B: int = 100, ends: bool = False) -> Iterator[Pair]:
    """`groups` batches of B random problems: S <= 4, A <= 3, K <= 4, H <= 8, and two policies.

    Problem b of a batch moves its policy by Gaussian log-noise of scale NOISE[b % 4]. With `ends`
    the two policies agree in the absorbing state, where nothing is left to decide.
    """
    rng = np.random.default_rng(seed)
    for _ in range(groups):
        S, A, K, H = (int(rng.integers(lo, hi + 1)) for lo, hi in ((2, 4), (2, 3), (2, 4), (1, 8)))
        problem = random_problem(rng, B, S, A, K, H, ends)
        chain, D, R = augment(problem)
        pi = rng.dirichlet(np.ones(A), (B, 1, S * K))
        scale = np.resize(_NOISE, B)[:, None, None, None]
        new = tilt(pi, scale * rng.normal(size=pi.shape))
        if ends:
            new[:, :, -K:] = pi[:, :, -K:]
        yield Pair(problem, chain, D, R, pi, new)


# --- exact values and laws -----------------------------------------------------------------------


@dataclass(frozen=True)
class Values:
    """Exact time-indexed values of one policy for one signal."""

    V: Array
    """[..., H+2, n], zero in the last place."""
    Q: Array
    """[..., H+1, n, A]."""

    @property
    def A(self) -> Array:
        """[..., H+1, n, A] advantages."""
        return self.Q - self.V[..., :-1, :, None]


def _at(x: Array, t: int) -> Array:
    """Step t of an array whose time axis, fourth from the end, may have length 1."""
    return x[..., t if x.shape[-4] > 1 else 0, :, :, :]


def each_step(pi: Array, H: int) -> Array:
    """A policy [..., 1 | H+1, n, A] with its time axis written out."""
    return np.broadcast_to(pi, (*pi.shape[:-3], H + 1, *pi.shape[-2:]))


def values(chain: Chain, g: Array, pi: Array, gamma: float = 1.0) -> Values:
    """Backward induction for the signal g [..., 1 | H+1, n, A, n] under pi [..., 1 | H+1, n, A]."""
    H, n, A = chain.H, chain.T.shape[-3], chain.T.shape[-2]
    batch, pi = chain.mu.shape[:-1], each_step(pi, chain.H)
    V, Q = np.zeros((*batch, H + 2, n)), np.zeros((*batch, H + 1, n, A))
    for t in reversed(range(H + 1)):
        target = _at(g, t) + gamma * V[..., t + 1, None, None, :]
        Q[..., t, :, :] = (_at(chain.T, t) * target).sum(-1)
        V[..., t, :] = (pi[..., t, :, :] * Q[..., t, :, :]).sum(-1)
    return Values(V, Q)


def law(chain: Chain, pi: Array) -> Array:
    """p_t [..., H+2, n]; the last place is the law after the last step, where M is the maximum."""
    pi = each_step(pi, chain.H)
    p = np.zeros((*chain.mu.shape[:-1], chain.H + 2, chain.mu.shape[-1]))
    p[..., 0, :] = chain.mu
    for t in range(chain.H + 1):
        joint = p[..., t, :, None] * pi[..., t, :, :]  # [..., n, A]
        p[..., t + 1, :] = np.einsum("...sa,...sax->...x", joint, _at(chain.T, t))
    return p


def expected_return(chain: Chain, v: Values) -> Array:
    """J [...]: J_D = E[max cost] when the values are those of the increments."""
    return (chain.mu * v.V[..., 0, :]).sum(-1)


def return_variance(chain: Chain, g: Array, pi: Array) -> Array:
    """Var(sum of g) = Var(V_0(s_0)) + E sum_t (g + V_{t+1} - V_t)^2, [...].

    The errors g + V_{t+1} - V_t are martingale differences, so their cross terms vanish. For the
    increments this is the variance of the largest cost.
    """
    v, p, pi = values(chain, g, pi), law(chain, pi), each_step(pi, chain.H)
    total = (chain.mu * v.V[..., 0, :] ** 2).sum(-1) - expected_return(chain, v) ** 2
    for t in range(chain.H + 1):
        error = _at(g, t) + v.V[..., t + 1, None, None, :] - v.V[..., t, :, None, None]
        squared = (_at(chain.T, t) * error**2).sum(-1)  # [..., n, A]
        total = total + (p[..., t, :, None] * pi[..., t, :, :] * squared).sum((-1, -2))
    return np.asarray(total)


# --- comparing two policies ----------------------------------------------------------------------


@dataclass(frozen=True)
class Comparison:
    """What the bounds know about moving from pi to pi', and the truth they are held against."""

    gap: Array
    """[...] J(pi') - J(pi)."""
    identity: Array
    """[...] sum_t gamma^t E_{p'_t}[delta'_t]; equals `gap` exactly."""
    surrogate: Array
    """[...] sum_t gamma^t E_{p_t}[delta'_t], the first-order prediction of `gap`."""
    eps: Array
    """[...] largest |delta'_t| over the states either policy can reach."""
    span: Array
    """[..., H+1] max - min of delta'_t over those states."""
    tv: Array
    """[..., H+1] E_{p_t}[TV(pi', pi)]."""
    kl: Array
    """[..., H+1] E_{p_t}[KL(pi || pi')], OLD policy first: the direction that works."""
    kl_printed: Array
    """[..., H+1] E_{p_t}[KL(pi' || pi)], new policy first: the direction the paper prints."""
    gamma: float

    @property
    def excess(self) -> Array:
        """[...] |gap - surrogate|: what a penalty has to cover."""
        return np.abs(self.gap - self.surrogate)


def kl_divergence(p: Array, q: Array) -> Array:
    """KL(p || q) over the last axis, with 0 log 0 = 0."""
    with np.errstate(divide="ignore", invalid="ignore"):
        terms = np.where(p > 0, p * (np.log(p) - np.log(q)), 0.0)
    return np.asarray(np.maximum(terms.sum(-1), 0.0))  # rounding can take a zero below it


def mean_over(p: Array, x: Array) -> Array:
    """E_p[x] over the last axis; x may be infinite where p is zero."""
    return (p * np.where(p > 0, x, 0.0)).sum(-1)


def compare(chain: Chain, g: Array, pi: Array, new: Array, gamma: float = 1.0) -> Comparison:
    """Every ingredient of the bounds for the move pi -> new, exactly."""
    v = values(chain, g, pi, gamma)
    p, p_new = law(chain, pi)[..., :-1, :], law(chain, new)[..., :-1, :]
    pi, new = each_step(pi, chain.H), each_step(new, chain.H)
    drift = (new * v.A).sum(-1)  # delta' [..., H+1, n]
    met = (p > 0) | (p_new > 0)
    highest = np.where(met, drift, -np.inf).max(-1)
    lowest = np.where(met, drift, np.inf).min(-1)
    discount = gamma ** np.arange(chain.H + 1)
    gap = expected_return(chain, values(chain, g, new, gamma)) - expected_return(chain, v)
    return Comparison(
        gap=gap,
        identity=(discount * mean_over(p_new, drift)).sum(-1),
        surrogate=(discount * mean_over(p, drift)).sum(-1),
        eps=np.maximum(highest, -lowest).max(-1),
        span=highest - lowest,
        tv=mean_over(p, np.abs(new - pi).sum(-1) / 2),
        kl=mean_over(p, kl_divergence(pi, new)),
        kl_printed=mean_over(p, kl_divergence(new, pi)),
        gamma=gamma,
    )
