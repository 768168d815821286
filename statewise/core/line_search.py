"""Backtracking: the first fraction of a step that passes the test (the paper's Algorithm 1).

Legend: ξ backtracking coefficient, δ trust-region size, c_i = J_i - limit_i (positive: violated).
"""

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from torch import Tensor

RewardTest = Literal["paper", "reference", "always", "never"]


@dataclass(frozen=True)
class Measurement:
    """What a candidate policy does to the surrogates, as plain numbers."""

    kl: float
    reward_change: float
    cost_change: Sequence[float] = ()


Test = Callable[[Measurement], str | None]
"""Judges a candidate: the reason to reject it, or None to accept it."""


@dataclass(frozen=True)
class Search:
    """How a line search went."""

    accepted: bool
    fraction: float
    """of the step that was taken; 0 when none was accepted"""
    tries: int
    measurement: Measurement | None
    """of the accepted candidate, else of the last one tried"""
    rejections: Mapping[str, int] = field(default_factory=dict)
    """how often each reason was given"""


def backtrack(
    evaluate: Callable[[float], Measurement],
    test: Test,
    *,
    coefficient: float = 0.8,
    steps: int = 100,
) -> Search:
    """Try the fractions 1, ξ, ξ², ... (``steps`` of them) and stop at the first that passes.

    A candidate with any non-finite number is rejected as "non-finite" before ``test`` sees it,
    because a comparison with NaN is neither true nor false in the direction one hoped.
    """
    if not 0.0 < coefficient < 1.0:
        raise ValueError(f"coefficient is {coefficient}; give a number strictly between 0 and 1")
    if steps < 1:
        raise ValueError(f"steps is {steps}; give at least 1")
    rejections: Counter[str] = Counter()
    measurement = None
    for j in range(steps):
        fraction = coefficient**j
        measurement = evaluate(fraction)
        reason = test(measurement) if _finite(measurement) else "non-finite"
        if reason is None:
            return Search(True, fraction, j + 1, measurement, dict(rejections))
        rejections[reason] += 1
    return Search(False, 0.0, steps, measurement, dict(rejections))


def backtrack_parameters(
    theta: Tensor,
    step: Tensor,
    set_flat: Callable[[Tensor], None],
    evaluate: Callable[[], Measurement],
    test: Test,
    *,
    coefficient: float = 0.8,
    steps: int = 100,
) -> Search:
    """Search over θ + fraction · step, both [P], and leave the parameters at the outcome.

    ``set_flat`` writes a flat vector into the policy and ``evaluate`` measures the policy as it is.
    If nothing passes, or something raises, the parameters are θ again, bit for bit.
    """
    theta = theta.detach().clone()  # it may be a view of the very parameters that set_flat writes
    accepted = False

    def evaluate_fraction(fraction: float) -> Measurement:
        set_flat(theta + fraction * step)
        return evaluate()

    try:
        search = backtrack(evaluate_fraction, test, coefficient=coefficient, steps=steps)
        accepted = search.accepted
    finally:
        if not accepted:
            set_flat(theta)
    return search


def trust_region_test(
    delta: float,
    c: Sequence[float] = (),
    *,
    feasible: bool = True,
    reward_test: RewardTest = "paper",
    cost_reduction: float = 0.0,
) -> Test:
    """The test of Algorithm 1: KL <= δ, cost changes <= max(-c_i, -cost_reduction), reward kept.

    ``reward_test`` says when the reward may fall: "paper" if the subproblem was infeasible,
    "reference" (the published code) if any c_i >= 0, "always" enforces it, "never" waives it.
    Reasons given, the first that applies: "kl", "cost 0", "cost 1", ..., "reward".
    """
    allowed = [max(-float(violation), -cost_reduction) for violation in c]
    waived = {
        "paper": not feasible,
        "reference": any(violation >= 0 for violation in c),
        "always": False,
        "never": True,
    }[reward_test]

    def test(measurement: Measurement) -> str | None:
        if measurement.kl > delta:
            return "kl"
        for i, (change, most) in enumerate(zip(measurement.cost_change, allowed, strict=True)):
            if change > most:
                return f"cost {i}"
        if not waived and measurement.reward_change < 0.0:
            return "reward"
        return None

    return test


def _finite(measurement: Measurement) -> bool:
    numbers = (measurement.kl, measurement.reward_change, *measurement.cost_change)
    return all(math.isfinite(number) for number in numbers)
