"""Finite problems on which the theory of state-wise safety can be checked exactly.

A finite-horizon MDP with finitely many cost levels becomes, once the running maximum M is part of
the state, an ordinary MDP over s^ = (s, M) whose signal is the increment D = max(C - M, 0). Values
come from backward induction and state laws from a forward pass, so every bound of the paper can be
compared with the truth to rounding. Nothing here is sampled except the problems themselves.

`python -m statewise.core.tabular` prints what holds and what does not; docs/theory.md explains it.

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

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

NOISE = (0.01, 0.1, 0.5, 2.0)
"""Scales of the log-policy noise in `random_pairs`, from a trust-region step to a new policy."""


# --- problems ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Problem:
    """A batch of MDPs with S states, A actions and K cost levels, run for H + 1 steps."""

    P: Array
    """[..., S, A, S] transition probabilities."""
    C: Ints
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
        scale = np.resize(NOISE, B)[:, None, None, None]
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


def _steps(pi: Array, H: int) -> Array:
    """A policy [..., 1 | H+1, n, A] with its time axis written out."""
    return np.broadcast_to(pi, (*pi.shape[:-3], H + 1, *pi.shape[-2:]))


def values(chain: Chain, g: Array, pi: Array, gamma: float = 1.0) -> Values:
    """Backward induction for the signal g [..., 1 | H+1, n, A, n] under pi [..., 1 | H+1, n, A]."""
    H, n, A = chain.H, chain.T.shape[-3], chain.T.shape[-2]
    batch, pi = chain.mu.shape[:-1], _steps(pi, chain.H)
    V, Q = np.zeros((*batch, H + 2, n)), np.zeros((*batch, H + 1, n, A))
    for t in reversed(range(H + 1)):
        target = _at(g, t) + gamma * V[..., t + 1, None, None, :]
        Q[..., t, :, :] = (_at(chain.T, t) * target).sum(-1)
        V[..., t, :] = (pi[..., t, :, :] * Q[..., t, :, :]).sum(-1)
    return Values(V, Q)


def law(chain: Chain, pi: Array) -> Array:
    """p_t [..., H+2, n]; the last place is the law after the last step, where M is the maximum."""
    pi = _steps(pi, chain.H)
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
    v, p, pi = values(chain, g, pi), law(chain, pi), _steps(pi, chain.H)
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


def _mean(p: Array, x: Array) -> Array:
    """E_p[x] over the last axis; x may be infinite where p is zero."""
    return (p * np.where(p > 0, x, 0.0)).sum(-1)


def compare(chain: Chain, g: Array, pi: Array, new: Array, gamma: float = 1.0) -> Comparison:
    """Every ingredient of the bounds for the move pi -> new, exactly."""
    v = values(chain, g, pi, gamma)
    p, p_new = law(chain, pi)[..., :-1, :], law(chain, new)[..., :-1, :]
    pi, new = _steps(pi, chain.H), _steps(new, chain.H)
    drift = (new * v.A).sum(-1)  # delta' [..., H+1, n]
    met = (p > 0) | (p_new > 0)
    highest = np.where(met, drift, -np.inf).max(-1)
    lowest = np.where(met, drift, np.inf).min(-1)
    discount = gamma ** np.arange(chain.H + 1)
    gap = expected_return(chain, values(chain, g, new, gamma)) - expected_return(chain, v)
    return Comparison(
        gap=gap,
        identity=(discount * _mean(p_new, drift)).sum(-1),
        surrogate=(discount * _mean(p, drift)).sum(-1),
        eps=np.maximum(highest, -lowest).max(-1),
        span=highest - lowest,
        tv=_mean(p, np.abs(new - pi).sum(-1) / 2),
        kl=_mean(p, kl_divergence(pi, new)),
        kl_printed=_mean(p, kl_divergence(new, pi)),
        gamma=gamma,
    )


# --- the bounds ----------------------------------------------------------------------------------


def _before(x: Array) -> Array:
    """sum_{k < t} x_k along the last axis."""
    return np.concatenate([np.zeros_like(x[..., :1]), np.cumsum(x[..., :-1], -1)], -1)


def theorem_1(c: Comparison) -> Array:
    """2 (sum_{j=1}^{H+1} gamma^j) eps E_dbar[TV]: Theorem 1, 2 (H+1) eps E_dbar[TV] at gamma 1.

    Below gamma 1, E_dbar weighs step t with gamma^t: Theorem 2 before its last inequality.
    """
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray(2 * c.gamma * d.sum() * c.eps * (d * c.tv).sum(-1))


def theorem_1_2h(c: Comparison) -> Array:
    """Theorem 1 with 2H in place of 2(H+1): the first state law is common to both policies."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray(2 * d[1:].sum() * c.eps * (d * c.tv).sum(-1))


def theorem_1_steps(c: Comparison) -> Array:
    """2 eps sum_t (H - t) E_{p_t}[TV_t]: a change at step t can only matter in the H - t after."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray(2 * c.eps * (d * _before(c.tv)).sum(-1))


def theorem_1_span(c: Comparison) -> Array:
    """sum_t span(delta'_t) sum_{k<t} E_{p_k}[TV_k]: no larger than the (H - t) form."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray((d * c.span * _before(c.tv)).sum(-1))


def path_pinsker(c: Comparison) -> Array:
    """2 eps sum_{t=1}^{H} gamma^t min(1, sqrt(K_{<t} / 2)): the corrected KL form.

    K_{<t} = sum_{k<t} E_{p_k}[KL(old || new)] is the divergence of the paths up to step t, and
    Pinsker's inequality on those paths bounds the change of p_t.
    """
    d = c.gamma ** np.arange(c.kl.shape[-1])
    return np.asarray(2 * c.eps * (d * np.minimum(1.0, np.sqrt(_before(c.kl) / 2))).sum(-1))


def state_wise_penalty(
    epsilon: npt.ArrayLike,
    mean_kl: npt.ArrayLike,
    mean_length: npt.ArrayLike,
    horizon: int,
    gamma: float = 1.0,
) -> Array:
    """The corrected bound term, from what training measures: 2 H eps min(1, sqrt(K / 2)).

    K = mean_length * mean_kl is the KL divergence of whole episodes. With it
    J_D(pi') <= J_D(pi) + E_dbar[A_D] + state_wise_penalty(...) for any two policies.

    epsilon      max over states of |E_{a ~ pi'} A_D(s^, a)|
    mean_kl      KL(pi || pi'), OLD policy first, averaged over the visited steps
    mean_length  mean number of steps of an episode of pi, at most horizon + 1
    horizon      H, index of the last step an episode can have: the time limit minus one, also
                 when episodes may end early, because the new policy may live longer
    gamma        1 for the cost increments; the discount for a reward, when H becomes
                 sum_{t=1}^{H} gamma^t and the term bounds the loss of return (Proposition 2)

    Arguments broadcast; the result is an array of their shape. The maximum over states cannot be
    measured from samples, so in training this is a diagnostic and not a guarantee.
    """
    eps, kl, length = (np.asarray(x, dtype=np.float64) for x in (epsilon, mean_kl, mean_length))
    if horizon < 0:
        raise ValueError(f"horizon is {horizon}; it is the index of the last step, at least 0")
    if np.any(eps < 0):
        raise ValueError(f"epsilon is {eps}; it is a largest absolute value, at least 0")
    if np.any((length <= 0) | (length > horizon + 1)):
        raise ValueError(f"mean_length is {length}; it must lie in (0, {horizon + 1}]")
    steps = float((gamma ** np.arange(1, horizon + 1)).sum())
    root = np.sqrt(length * np.maximum(kl, 0.0) / 2)  # an estimate of zero can round below it
    return np.asarray(2 * steps * eps * np.minimum(1.0, root))


def proposition_2_printed(c: Comparison) -> Array:
    """sqrt(2 delta) gamma eps / (1 - gamma) with delta = E_dbar[KL(new || old)], as printed."""
    scale = c.gamma / (1 - c.gamma)
    return np.asarray(np.sqrt(2 * c.kl_printed.sum(-1)) * scale * c.eps)


def printed_kl_form(c: Comparison) -> Array:
    """2 (H+1) eps sqrt(E_dbar[KL(new || old)] / 2): the paper's penalty, with a summed KL."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray(2 * c.gamma * d.sum() * c.eps * np.sqrt(c.kl_printed.sum(-1) / 2))


# --- counter-examples ----------------------------------------------------------------------------

PROPOSITION_1 = (
    (17, 27, 5e-4, 0.264),
    (12, 60, 0.005, 0.3),
    (20, 52, 4.5e-4, 0.2245),
    (64, 596, 1.5e-4, 0.079),
)
"""(n, N, alpha, beta) of `leave_or_stay` whose excess is above the printed penalty."""

PROPOSITION_2 = ((0.99, 6, 1994, 0.0342, 0.1141), (0.999, 24, 11976, 0.0072, 0.029))
"""(gamma, n, N, alpha, beta) of `leave_or_stay` (sign -1) that lose more than printed."""


def time_free_example(p_a: float = 0.3, p_new: float = 0.301, H: int = 9) -> tuple[float, float]:
    """True change of J_D, and Theorem 1's right-hand side with an advantage that ignores time.

    One state; action a costs 1 and b nothing. The advantage is the literal definition, "start at
    s^ with the full horizon ahead", used at every step.
    """
    C = np.array([1, 0])[None, :, None]
    one = np.ones((1, 2, 1))
    chain, D, _ = augment(Problem(one, C, 0 * one, np.array([0.0, 1.0]), np.ones(1), H))
    pi = np.array([[[p_a, 1 - p_a], [p_a, 1 - p_a]]])  # [1, (M=0, M=1), A]
    new = np.array([[[p_new, 1 - p_new], [p_a, 1 - p_a]]])
    c = compare(chain, D, pi, new)
    drift = (new[0] * values(chain, D, pi).A[0]).sum(-1)  # [n], from step 0 only
    surrogate = float((law(chain, pi)[:-1] * drift).sum())
    return float(c.gap), surrogate + 2 * (H + 1) * float(np.abs(drift).max() * c.tv.sum())


def leave_or_stay(
    n: int, N: int, alpha: float, beta: float, eta: float, sign: float = 1.0
) -> tuple[Chain, Array, Array, Array]:
    """Two states, n early steps in which one may leave the first for good, then N late steps.

    Every step also takes a bad or a good action; a bad one raises the maximum by 1 whatever the
    state (the level reached is part of the state and is dropped: no value depends on it). pi leaves
    with probability beta and errs with 1/2. pi' leaves with alpha and errs with 1/2 + sign * eta
    where it stayed, 1/2 - sign * eta where it left. Returns chain, increments, pi, pi'.
    """
    early = (np.arange(n + N) < n).astype(float)
    T = np.zeros((n + N, 2, 2, 2, 2))  # [t, s, leave, bad, s']
    T[:, 1, :, :, 1] = 1.0
    T[:, 0, 0, :, 0] = 1.0
    T[:, 0, 1, :, 1] = early[:, None]
    T[:, 0, 1, :, 0] = 1 - early[:, None]
    g = np.broadcast_to(np.array([0.0, 1.0])[:, None], (1, 2, 2, 2, 2))

    def policy(leave: float, tilt_bad: float) -> Array:
        out = np.stack([early * leave, 0 * early], -1)  # [t, s]
        bad = np.array([0.5 + tilt_bad, 0.5 - tilt_bad])  # [s]
        both = np.stack([1 - out, out], -1)[..., None] * np.stack([1 - bad, bad], -1)[:, None]
        return both.reshape(n + N, 2, 4)

    chain = Chain(T.reshape(n + N, 2, 4, 2), np.array([1.0, 0.0]), n + N - 1)
    return chain, g.reshape(1, 2, 4, 2), policy(beta, 0.0), policy(alpha, sign * eta)


def random_walk(steps: int, kappa: float, eta: float) -> tuple[Chain, Array, Array, Array]:
    """A fair walk on the line with a bad or good action at every step, as in `leave_or_stay`.

    pi moves up with 1/2 and errs with 1/2; pi' moves up with 1/2 + kappa and errs with
    1/2 + eta * sign(position). Returns chain, increments, pi, pi'.
    """
    n = 2 * steps + 1
    x = np.arange(n)
    T = np.zeros((n, 2, 2, n))  # [x, up, bad, x']
    T[x, 0, :, np.maximum(x - 1, 0)] = 1.0
    T[x, 1, :, np.minimum(x + 1, n - 1)] = 1.0
    g = np.broadcast_to(np.array([0.0, 1.0])[:, None], T.shape)

    def policy(up: float, tilt_bad: float) -> Array:
        bad = 0.5 + tilt_bad * np.sign(x - steps)
        both = np.array([1 - up, up])[:, None] * np.stack([1 - bad, bad], -1)[:, None]
        return both.reshape(1, n, 4)

    chain = Chain(T.reshape(1, n, 4, n), np.eye(n)[steps], steps - 1)
    return chain, g.reshape(1, n, 4, n), policy(0.5, 0.0), policy(0.5 + kappa, eta)


def random_walk_ratio(steps: int, kappa: float = 1e-5) -> float:
    """Excess / penalty in `random_walk` (eta << kappa) if the delta of the paper is a MEAN KL.

    Only the law of the position matters, so a thousand steps take no time: the excess is
    eta * sum_t E_{p'_t - p_t}[sign(x_t)], the penalty 2 (H+1) eta sqrt(mean KL / 2).
    """
    p = p_new = np.ones(1)
    excess = 0.0
    for t in range(steps):
        excess += float(((p_new - p) * np.sign(2 * np.arange(t + 1) - t)).sum())
        p = np.convolve(p, [0.5, 0.5])
        p_new = np.convolve(p_new, [0.5 - kappa, 0.5 + kappa])
    mean_kl = float(kl_divergence(np.array([0.5 + kappa, 0.5 - kappa]), np.full(2, 0.5)))
    return excess / (2 * steps * np.sqrt(mean_kl / 2))


# --- a step that keeps its promise ---------------------------------------------------------------


def scpo_step(
    chain: Chain,
    D: Array,
    R: Array,
    pi: Array,
    w: Array,
    delta: float = 0.5,
    gamma: float = 0.99,
    penalised: bool = True,
) -> Array:
    """One SCPO update of tabular softmax policies pi [B, H+1, n, A] with limits w [B].

    Candidates are pi * exp(x (A - nu A_D)), the solutions of the Lagrangian of the paper's update
    problem (and the natural-gradient steps of a softmax table), over a grid of x and nu. Of those
    with summed KL(old || new) <= delta and J_D + E_dbar[A_D] + path-Pinsker penalty <= w, the one
    with the best reward surrogate is taken; a policy without such a candidate is left unchanged.
    `penalised=False` drops the penalty, as practical implementations do.
    """
    v, v_D = values(chain, R, pi, gamma), values(chain, D, pi)
    p, J_D = law(chain, pi)[..., :-1, :], expected_return(chain, v_D)
    pi = _steps(pi, chain.H)
    discount = gamma ** np.arange(chain.H + 1)
    unit = np.abs(v.A).max((-1, -2, -3), keepdims=True) + 1e-12
    unit_D = np.abs(v_D.A).max((-1, -2, -3), keepdims=True) + 1e-12
    best, best_gain = pi.copy(), np.zeros(pi.shape[0])
    for nu in (0.0, 0.25, 0.5, 1.0, 2.0, 4.0):
        for x in 4.0 * 0.6 ** np.arange(16):
            new = tilt(pi, x * (v.A / unit - nu * v_D.A / unit_D))
            drift_D = (new * v_D.A).sum(-1)
            gain = (discount * _mean(p, (new * v.A).sum(-1))).sum(-1)
            kl = _mean(p, kl_divergence(pi, new))
            bound = J_D + _mean(p, drift_D).sum(-1)
            if penalised:
                eps = np.where(p > 0, np.abs(drift_D), 0.0).max((-1, -2))
                bound += 2 * eps * np.minimum(1.0, np.sqrt(_before(kl) / 2)).sum(-1)
            better = (kl.sum(-1) <= delta) & (bound <= w) & (gain > best_gain)
            best[better], best_gain[better] = new[better], gain[better]
    return best


def scpo_run(
    seed: int, B: int = 100, iterations: int = 10, penalised: bool = True
) -> tuple[Array, Array]:
    """J_D - w after every update [iterations, B], and the total gain in return [B].

    B random problems start from random policies within 10 % below their limit w.
    """
    rng = np.random.default_rng(seed)
    chain, D, R = augment(random_problem(rng, B, S=3, A=3, K=3, H=6))
    n, gamma = chain.mu.shape[-1], 0.99
    pi = _steps(rng.dirichlet(np.ones(3), (B, 1, n)), chain.H)
    w = expected_return(chain, values(chain, D, pi)) * rng.uniform(1.0, 1.1, B)
    start = expected_return(chain, values(chain, R, pi, gamma))
    over = np.zeros((iterations, B))
    for i in range(iterations):
        pi = scpo_step(chain, D, R, pi, w, gamma=gamma, penalised=penalised)
        over[i] = expected_return(chain, values(chain, D, pi)) - w
    return over, expected_return(chain, values(chain, R, pi, gamma)) - start


# --- the table -----------------------------------------------------------------------------------


def check_random(seed: int = 0, groups: int = 100) -> list[str]:
    """Lines of the table for `groups` * 100 random problems, costs and rewards (gamma = 0.97)."""
    bounds = (theorem_1, theorem_1_2h, theorem_1_steps, theorem_1_span, path_pinsker)
    forms = {f.__name__: f for f in (*bounds, printed_kl_form)}
    violated = dict.fromkeys(forms, 0)
    ratio: dict[str, list[Array]] = {name: [] for name in forms}
    error = variance = 0.0
    total = jensen = mass_jensen = 0
    for pair in random_pairs(seed, groups):
        c = compare(pair.chain, pair.D, pair.pi, pair.new)
        r = compare(pair.chain, pair.R, pair.pi, pair.new, 0.97)
        total += c.gap.size
        error = max(error, float(np.abs(c.gap - c.identity).max()))
        M, p = running_maximum(pair.problem), law(pair.chain, pair.pi)[:, -1]
        var = (p * M**2).sum(-1) - (p * M).sum(-1) ** 2
        var_error = np.abs(var - return_variance(pair.chain, pair.D, pair.pi)).max()
        variance = max(variance, float(var_error))
        tv, kl = c.tv.sum(-1), c.kl_printed.sum(-1)
        jensen += int((tv > np.sqrt(kl / 2)).sum())
        mass_jensen += int((tv > np.sqrt((pair.chain.H + 1) * kl / 2) + 1e-12).sum())
        for name, form in forms.items():
            for x in (c, r):
                violated[name] += int((x.excess > form(x) + 1e-12).sum())
            moved = c.excess > 1e-12
            ratio[name].append(form(c)[moved] / c.excess[moved])
    lines = [
        f"{total} random problems",
        f"  performance identity, largest error         {error:.1e}",
        f"  variance identity, largest error            {variance:.1e}",
        f"  Jensen step on d-bar fails                  {jensen} of {total}",
        f"  the same with the factor sqrt(H+1) fails    {mass_jensen} of {total}",
        "  penalty form       violated (cost + reward)   median penalty / excess (cost)",
    ]
    for name in forms:
        median = float(np.median(np.concatenate(ratio[name])))
        lines.append(f"    {name:16s} {violated[name]:>6d} of {2 * total:<20d} {median:8.0f}")
    return lines


def check_examples() -> list[str]:
    """Lines of the table for the counter-examples."""
    change, bound = time_free_example()
    lines = [
        "Theorem 1 with an advantage that ignores time (one state, H = 9)",
        f"  true change {change:.3e} > right-hand side {bound:.3e}",
        "Proposition 1 with KL(new || old): excess, printed, corrected, Theorem 1, excess/printed",
    ]
    for n, N, alpha, beta in PROPOSITION_1:
        c = compare(*leave_or_stay(n, N, alpha, beta, 1e-4))
        row = [float(x) for x in (c.excess, printed_kl_form(c), path_pinsker(c), theorem_1(c))]
        numbers = " ".join(f"{x:.5f}" for x in row)
        lines.append(f"  {n + N:4d} steps (n = {n:2d}) {numbers}   {row[0] / row[1]:.3f}")
    c = compare(*leave_or_stay(1, 71, 0.44, 0.62, 1e-4))
    lines.append(
        f"  sharpest corrected case: excess / corrected {float(c.excess / path_pinsker(c)):.3f}"
    )
    walks = ", ".join(f"{random_walk_ratio(n):.2f} ({n} steps)" for n in (6, 10, 100, 1000))
    lines.append(f"Proposition 1 with a mean KL: excess/printed {walks}")
    for gamma, n, N, alpha, beta in PROPOSITION_2:
        c = compare(*leave_or_stay(n, N, alpha, beta, 1e-4, sign=-1.0), gamma)
        loss, printed = -float(c.gap), float(proposition_2_printed(c))
        lines.append(
            f"Proposition 2 with KL(new || old), gamma {gamma}: loss {loss:.5f}, printed"
            f" {printed:.5f} (ratio {loss / printed:.3f}), corrected {float(path_pinsker(c)):.5f}"
        )
    return lines


def main() -> None:
    """Print what holds and what does not."""
    began = time.perf_counter()
    print("\n".join(check_random() + check_examples()))
    for penalised in (True, False):
        over, gain = scpo_run(0, penalised=penalised)
        name = "corrected penalty" if penalised else "no penalty       "
        crossed = int((over.max(0) > 1e-12).sum())
        print(
            f"SCPO step, {name}: limit crossed in {crossed} of {gain.size} problems,"
            f" worst J_D - w {over.max():+.1e}, median gain in return {np.median(gain):.3f}"
        )
    print(f"{time.perf_counter() - began:.1f} s")


if __name__ == "__main__":
    main()
