"""Certify a policy: run fresh episodes until a claim about its violations is proved or refuted."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np

from statewise.deploy.certificate import Certificate, write_down
from statewise.deploy.claims import Claim, add_fixed, add_sequentially, conclude, make_claims
from statewise.deploy.domain import Domain
from statewise.deploy.outcomes import FRESH, Outcomes, join, run_in_order
from statewise.deploy.plan import Plan
from statewise.envs.env import Env
from statewise.training.policy import Policy, load_policy, worlds_for
from statewise.training.worst import WorstEpisodes

Report = Callable[[Sequence[Claim]], None]
"""Called with the claims after every few episodes."""


def certify(
    run: str | Path,
    max_violation: float | Sequence[float] = 0.01,
    confidence: float = 0.95,
    *,
    episodes: int | None = None,
    budget: int = 10_000,
    seed: int = 0,
    sampled: bool = False,
    best_safe: bool = False,
    threshold: float = 0.0,
    domain: Domain | None = None,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Certificate:
    """Test the claim that an episode of a policy violates a constraint with probability at most p.

    run: a run folder, or one of its checkpoint files.
    max_violation: p, one for all constraints or one for each.
    episodes: run exactly so many. Otherwise run until the claim is decided, at most `budget`.
    sampled: judge sampled actions instead of the mean ones.
    best_safe: judge the policy of the run's safest epoch.
    domain: what varies beside the layouts (docs/certify.md).
    imports, trust: as for `resume`.
    """
    rates = (max_violation,) if isinstance(max_violation, int | float) else tuple(max_violation)
    plan = Plan(rates, confidence, episodes, budget, seed, sampled, best_safe, threshold,
                domain or Domain())  # fmt: skip
    policy = load_policy(run, best_safe, imports, trust)
    make_claims(
        policy.spec.cost_names, rates, confidence
    )  # mistakes are named before worlds are made
    with worlds_for(policy, plan.worlds) as env:
        return certify_policy(policy, env, plan)


def certify_policy(
    policy: Policy,
    env: Env,
    plan: Plan,
    report: Report | None = None,
    worst: WorstEpisodes | None = None,
) -> Certificate:
    """Run the episodes of a plan and judge its claims. worst: keeps the worst episodes."""
    claims = make_claims(env.spec.cost_names, plan.max_violation, plan.confidence)
    parts, decided = [], False
    for part in _episodes_of(policy, env, plan, worst):
        broken = part.violations(plan.threshold)
        before = claims[0].episodes
        if plan.sequential:
            decided = add_sequentially(claims, broken)
        else:
            add_fixed(claims, broken)
        parts.append(part.first(claims[0].episodes - before))
        if report is not None:
            report(claims)
        if decided:
            break
    verdict = conclude(claims, plan.sequential)
    return write_down(verdict, claims, plan, join(parts), policy, env)


def _episodes_of(
    policy: Policy, env: Env, plan: Plan, worst: WorstEpisodes | None = None
) -> Iterator[Outcomes]:
    """The outcomes of a plan's episodes in order, no more than it asks for."""
    left = plan.most
    for part in run_in_order(policy.algo, env, FRESH + plan.seed, plan.sampled, plan.domain, worst):
        yield part.first(left)
        left -= len(part)
        if left <= 0:
            return


def rerun(policy: Policy, env: Env, plan: Plan, episodes: int) -> np.ndarray:
    """Run the first episodes of a plan again. Return `[episodes, m]`: which constraints were violated."""
    few = dataclasses.replace(plan, episodes=episodes)
    return join(list(_episodes_of(policy, env, few))).violations(plan.threshold)
