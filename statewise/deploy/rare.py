"""Rare violations of a policy, estimated by splitting."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from statewise.deploy.domain import Disturbance, enter
from statewise.deploy.outcomes import RARE
from statewise.deploy.plan import Plan
from statewise.deploy.splitting import PARTICLES, estimate
from statewise.training.policy import Policy, worlds_for
from statewise.types import Step


def check_random(plan: Plan) -> str:
    """Return what is random within an episode. Raises ValueError if nothing is."""
    names = [name for name in ("noise", "push") if plan.domain.ranges.get(name, (0, 0))[1] > 0]
    names = (["sampled actions"] if plan.sampled else []) + names
    if not names:
        raise ValueError(
            "--rare continues copies of episodes, and here copies would all be the same: mean actions "
            "and physics have no randomness in time. Add --sampled, or vary noise or push"
        )
    return ", ".join(names)


def rare_events(policy: Policy, plan: Plan) -> dict[str, Any]:
    """Estimates for every constraint, as a part of a certificate."""
    random = check_random(plan)
    found = []
    for constraint in range(policy.spec.num_costs):
        with worlds_for(policy, PARTICLES) as env:
            seed = RARE + 1000 * plan.seed + 100 * constraint
            enter(env, plan.domain, seed)
            disturbance = Disturbance(plan.domain, policy.algo, env, seed + 50)
            generator = None
            if plan.sampled:
                generator = torch.Generator(env.device).manual_seed(seed + 51)

            def act(step: Step, d: Disturbance = disturbance, g: Any = generator) -> Tensor:
                return d.act(policy.algo.act(d.see(step), g).executed)

            found.append(
                estimate(env, act, constraint, seed, parts=[disturbance], begin=disturbance.begin)
            )
    return {"random": random, "estimates": [dataclasses.asdict(one) for one in found]}
