"""Claims about the violation rate, and the evidence for and against them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from statewise.core.sequential import (
    check_probability,
    log_evidence_above,
    log_evidence_below,
    sequential_bounds,
)
from statewise.core.statistics import rate_interval

Verdict = Literal["proved", "refuted", "undecided"]


@dataclass
class Claim:
    """An episode violates `constraint` with probability at most `max_violation`."""

    constraint: str
    max_violation: float
    alpha: float
    """Largest probability that its verdict is wrong, and that each of its bounds is"""
    verdict: Verdict = "undecided"
    violations: int = 0
    episodes: int = 0
    low: float = 0.0
    high: float = 1.0
    violating: list[int] = field(default_factory=list)
    """The numbers of the episodes that violate"""

    def bounds(self, sequential: bool) -> tuple[float, float]:
        """Lower and upper bound on the rate. Each one is wrong with probability at most `alpha`."""
        if self.episodes == 0:
            return 0.0, 1.0
        if sequential:
            low, high = sequential_bounds(self.violations, self.episodes, self.alpha)
            return max(low, self.low), min(high, self.high)
        interval = rate_interval(self.violations, self.episodes, level=1 - 2 * self.alpha)
        return interval.low, interval.high


def make_claims(
    constraints: Sequence[str], max_violation: Sequence[float], confidence: float
) -> list[Claim]:
    """One claim for each constraint. Together they are wrong with probability at most 1 - confidence.

    max_violation: one probability for all constraints, or one for each.
    """
    check_probability("confidence", confidence)
    for value in max_violation:
        check_probability("max_violation", value)
    if not constraints:
        raise ValueError("the environment has no constraints, so there is nothing to certify")
    if len(max_violation) not in (1, len(constraints)):
        raise ValueError(
            f"{len(max_violation)} values of max_violation for the constraints "
            f"{', '.join(constraints)}: give one for all, or one for each"
        )
    rates = [*max_violation] * (len(constraints) if len(max_violation) == 1 else 1)
    alpha = (1 - confidence) / len(constraints)
    return [Claim(name, rate, alpha) for name, rate in zip(constraints, rates, strict=True)]


def add_sequentially(claims: Sequence[Claim], broken: np.ndarray) -> bool:
    """Count episodes `broken [k, m]` one by one. Return whether the claims are decided.

    They are decided once every claim is proved or one is refuted. Later episodes are not counted.
    """
    counts = [claim.violations + broken[:, i].cumsum() for i, claim in enumerate(claims)]
    n = claims[0].episodes + np.arange(1, len(broken) + 1)
    proved, refuted = [], []
    for claim, k in zip(claims, counts, strict=True):
        enough = -math.log(claim.alpha)
        below = log_evidence_below(claim.max_violation, k, n) >= enough
        above = log_evidence_above(claim.max_violation, k, n) >= enough
        # What was decided once stays decided, and a claim that was proved is not refuted later.
        proved.append(np.logical_or.accumulate(below) | (claim.verdict == "proved"))
        refuted.append(above & ~proved[-1])
    stop = np.all(proved, axis=0) | np.any(refuted, axis=0)
    count = int(stop.argmax()) + 1 if stop.any() else len(broken)
    for i, claim in enumerate(claims):
        before = claim.verdict
        _count(claim, broken[:count, i])
        if proved[i][count - 1]:
            claim.verdict = "proved"
        elif refuted[i][count - 1]:
            claim.verdict = "refuted"
        if claim.verdict != before:
            first = int(proved[i].argmax()) if claim.verdict == "proved" else count - 1
            claim.low, claim.high = sequential_bounds(
                int(counts[i][first]), int(n[first]), claim.alpha
            )
    return bool(stop.any())


def add_fixed(claims: Sequence[Claim], broken: np.ndarray) -> None:
    """Count episodes `broken [k, m]` of a number that was fixed beforehand."""
    for i, claim in enumerate(claims):
        _count(claim, broken[:, i])


def conclude(claims: Sequence[Claim], sequential: bool) -> Verdict:
    """Set the final bounds and verdicts of all claims. Return the verdict on all of them together."""
    for claim in claims:
        claim.low, claim.high = claim.bounds(sequential)
        if not sequential:
            proved, refuted = claim.high <= claim.max_violation, claim.low > claim.max_violation
            claim.verdict = "proved" if proved else "refuted" if refuted else "undecided"
    verdicts = {claim.verdict for claim in claims}
    return (
        "refuted" if "refuted" in verdicts else "proved" if verdicts == {"proved"} else "undecided"
    )


def _count(claim: Claim, broken: np.ndarray) -> None:
    claim.violating += (claim.episodes + broken.nonzero()[0]).tolist()
    claim.violations += int(broken.sum())
    claim.episodes += len(broken)
