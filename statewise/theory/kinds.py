"""The kinds of constraints on finite problems: each is a sum of increments, exactly.

For a function φ of the largest cost that never falls, with φ(0) = 0, the increments of φ(M) along an
episode sum to φ of its largest cost. So the probability to exceed a threshold and the second moment
have values, advantages and a first-order change like any return. docs/theory.md explains it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from statewise.theory.tabular import Array, Chain, Problem, augment

_Signal = Literal["maximum", "sum", "probability", "square"]


def signal(problem: Problem, what: _Signal, threshold: float = 0.0) -> tuple[Chain, Array]:
    """The chain on (s, M), and the signal [..., 1, n, A, n] whose sum is what a constraint bounds."""
    levels = problem.levels
    if what == "sum":
        chain, increments, _ = augment(problem)
        K, (S, A) = levels.shape[-1], problem.P.shape[-3:-1]
        batch = problem.P.shape[:-3]
        cost = np.take_along_axis(levels, problem.C.reshape(*batch, -1), -1)
        cost = cost.reshape(*batch, S, 1, A, S, 1)
        return chain, np.broadcast_to(cost, (*batch, S, K, A, S, K)).reshape(increments.shape)
    changed = {
        "maximum": levels,
        "square": np.square(levels),
        "probability": (levels > threshold).astype(np.float64),
    }
    chain, increments, _ = augment(replace(problem, levels=changed[what]))
    return chain, increments
