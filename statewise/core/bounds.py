"""The paper's bounds on how far a change of policy can move a cost or a return, and corrected ones.

Each takes a `Comparison` of two policies on a finite problem (`core/tabular.py` has the legend);
`state_wise_penalty` takes what a rollout can measure.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from statewise.core.tabular import Array, Comparison


def sum_before(x: Array) -> Array:
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
    return np.asarray(2 * c.eps * (d * sum_before(c.tv)).sum(-1))


def theorem_1_span(c: Comparison) -> Array:
    """sum_t span(delta'_t) sum_{k<t} E_{p_k}[TV_k]: no larger than the (H - t) form."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray((d * c.span * sum_before(c.tv)).sum(-1))


def path_pinsker(c: Comparison) -> Array:
    """2 eps sum_{t=1}^{H} gamma^t min(1, sqrt(K_{<t} / 2)): the corrected KL form.

    K_{<t} = sum_{k<t} E_{p_k}[KL(old || new)] is the divergence of the paths up to step t, and
    Pinsker's inequality on those paths bounds the change of p_t.
    """
    d = c.gamma ** np.arange(c.kl.shape[-1])
    return np.asarray(2 * c.eps * (d * np.minimum(1.0, np.sqrt(sum_before(c.kl) / 2))).sum(-1))


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
