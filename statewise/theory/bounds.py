"""The paper's bounds on how far a change of policy can move a cost or a return, and corrected ones.

Each takes a `Comparison` of two policies on a finite problem; `tabular.py` has the legend.
"""

from __future__ import annotations

import numpy as np

from statewise.theory.tabular import Array, Comparison


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


def proposition_2_printed(c: Comparison) -> Array:
    """sqrt(2 delta) gamma eps / (1 - gamma) with delta = E_dbar[KL(new || old)], as printed."""
    scale = c.gamma / (1 - c.gamma)
    return np.asarray(np.sqrt(2 * c.kl_printed.sum(-1)) * scale * c.eps)


def printed_kl_form(c: Comparison) -> Array:
    """2 (H+1) eps sqrt(E_dbar[KL(new || old)] / 2): the paper's penalty, with a summed KL."""
    d = c.gamma ** np.arange(c.tv.shape[-1])
    return np.asarray(2 * c.gamma * d.sum() * c.eps * np.sqrt(c.kl_printed.sum(-1) / 2))
