"""Injected simulator faults: each is charged the ceiling, in its own world and in no other."""

from __future__ import annotations

import logging
from typing import Any

import torch
from torch import Tensor

from attacks.harness import Outcome
from statewise.envs.vec_env import VecEnv


def attack_simulator(
    tries: int, suites: tuple[str, ...] = ("Point-Hazard-8", "Point-Pillar-4"), worlds: int = 256,
    seed: int = 0,
) -> Outcome:  # fmt: skip
    """Make sensors of random worlds not finite, `tries` times in all."""
    outcome = Outcome("simulator faults", identical=0)
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with outcome.timed():
            for number, suite in enumerate(suites):
                share = tries // len(suites) + (number < tries % len(suites))
                _attack(suite, share, worlds, seed, outcome)
    finally:
        logging.disable(level)
    return outcome


def _attack(suite: str, tries: int, worlds: int, seed: int, outcome: Outcome) -> None:
    generator = torch.Generator().manual_seed(seed)
    env = VecEnv(suite, worlds, seed)
    env.reset()
    hit = torch.zeros(worlds, dtype=torch.bool)
    _inject(env, lambda: hit, generator)
    done = 0
    while done < tries:
        wanted = min(tries - done, worlds // 2)
        chosen = torch.randperm(worlds, generator=generator)[:wanted]
        hit = torch.zeros(worlds, dtype=torch.bool).index_fill_(0, chosen, True)
        action = 2 * torch.rand(worlds, env.spec.action_size, generator=generator) - 1
        step = env.step(action)
        ceiling = torch.tensor(env.spec.cost_ceiling)
        bad = {
            "at a cost of 0 or less": hit & (step.true_cost <= 0).any(dim=1),
            "below the ceiling": hit & (step.cost < ceiling).any(dim=1),
            "not ended": hit & ~step.terminated,
            "not told": hit & ~step.sim_fault,
        }
        others = (~hit & step.sim_fault) | ~torch.isfinite(step.obs).all(dim=1)
        told = [f"a fault in world {int(w)} {how}" for how, x in bad.items() for w in x.nonzero()]
        told += [f"world {int(w)} has a fault that was not injected" for w in others.nonzero()]
        outcome.failures += told
        outcome.tries += wanted
        outcome.survived += wanted - len(told)
        outcome.identical = (outcome.identical or 0) + wanted - int(others.sum())
        done += wanted


def _inject(env: VecEnv, hit: Any, generator: torch.Generator) -> None:
    """Have the simulator return NaN, infinite or huge sensors in some worlds."""
    simulate = env.sim.step
    values = torch.tensor([torch.nan, torch.inf, -torch.inf])

    def step(*args: Any, **more: Any) -> Any:
        result = simulate(*args, **more)
        sensors: Tensor = result[0] if isinstance(result, tuple) else result
        rows = hit().nonzero()[:, 0]
        columns = torch.randint(sensors.shape[1], rows.shape, generator=generator)
        sensors[rows, columns] = values[torch.randint(3, rows.shape, generator=generator)]
        return result

    env.sim.step = step  # type: ignore[method-assign]
