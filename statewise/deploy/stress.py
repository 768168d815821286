"""Stress test: one thing at a time, step by step away from what it was in training."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from statewise.core.statistics import rate_interval
from statewise.deploy.domain import VARIATIONS, Domain, variations_in
from statewise.deploy.outcomes import STRESS, join, run_in_order
from statewise.deploy.plan import MOST_WORLDS, Plan
from statewise.training.policy import Policy, worlds_for

_POINTS = 5
_EPISODES_PER_WORLD = 4


@dataclass(frozen=True)
class StressRow:
    """One constraint at one value of one variation."""

    variation: str
    value: float
    constraint: str
    max_violation: float
    violations: int
    rate: float
    low: float
    high: float
    """Exact 95 % interval, for this row alone"""
    claim: Literal["holds", "broken", "open"]


def stress_test(
    policy: Policy,
    plan: Plan,
    episodes: int = 400,
    report: Callable[[str, float], None] | None = None,
) -> dict[str, Any]:
    """Sweep every variation that the suite has, and say where the claims break.

    report: called with the variation and the value that come next.
    """
    with worlds_for(policy, 1) as env:
        names = list(variations_in(env))
    rows: list[StressRow] = []
    for name in names:
        for value in _values(name):
            if report is not None:
                report(name, value)
            rows += _row(policy, plan, name, value, episodes)
    return {
        "episodes": episodes,
        "rows": [asdict(row) for row in rows],
        "summary": [_summary(name, rows) for name in names],
    }


def _values(name: str) -> list[float]:
    kind = VARIATIONS[name]
    values = np.linspace(*kind.stress, _POINTS)
    return [float(round(v) if kind.whole else v) for v in values]


def _row(policy: Policy, plan: Plan, name: str, value: float, episodes: int) -> list[StressRow]:
    """One value of one variation, for every constraint."""
    domain = Domain({name: (value, value)})
    with worlds_for(policy, min(MOST_WORLDS, -(-episodes // _EPISODES_PER_WORLD))) as env:
        parts, count = [], 0
        for part in run_in_order(policy.algo, env, STRESS + plan.seed, plan.sampled, domain):
            parts.append(part.first(episodes - count))
            count += len(part)
            if count >= episodes:
                break
        broken = join(parts).violations(plan.threshold)
        constraints = env.spec.cost_names
    claimed = [*plan.max_violation] * (len(constraints) if len(plan.max_violation) == 1 else 1)
    rows = []
    for i, constraint in enumerate(constraints):
        violations = int(broken[:, i].sum())
        found, most = rate_interval(violations, episodes), claimed[i]
        claim: Literal["holds", "broken", "open"] = "open"
        if found.high <= most:
            claim = "holds"
        elif found.low > most:
            claim = "broken"
        rows.append(
            StressRow(name, value, constraint, most, violations, found.estimate, found.low, found.high,
                      claim)
        )  # fmt: skip
    return rows


def _summary(name: str, rows: Sequence[StressRow]) -> str:
    """Where the claims about any constraint break."""
    mine = [row for row in rows if row.variation == name]
    broken = sorted({row.value for row in mine if row.claim == "broken"})
    if not broken:
        return f"{name}: no value from {mine[0].value:g} to {mine[-1].value:g} breaks the claim."
    return f"{name}: the claim breaks at {', '.join(f'{value:g}' for value in broken)}."
