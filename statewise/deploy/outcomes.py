"""Fresh episodes of a policy, one after another in the order in which they began.

Episodes run in parallel and short ones end first. If they were counted as they end, the first ones
counted would be the short ones, which are not typical. So each episode gets a number when it begins, and
its outcome is handed out only after those of all smaller numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from statewise.algos import Algorithm
from statewise.deploy.domain import Disturbance, Domain, enter
from statewise.envs.env import Env
from statewise.sim.cpu import one_torch_thread
from statewise.training.worst import WorstEpisodes

FRESH = 1 << 41
"""Certificates draw their episodes from seeds above this one. Training and evaluation never do."""
STRESS = 1 << 42
"""The same for stress tests, and one above it for rare events."""
RARE = 1 << 43


@dataclass(frozen=True, eq=False)
class Outcomes:
    """k episodes in the order in which they began."""

    cost_max: np.ndarray
    """[k, m] largest true cost"""
    clearance: np.ndarray
    """[k, m] smallest clearance"""
    length: np.ndarray
    """[k]"""
    fault: np.ndarray
    """[k] ended by a simulator fault"""
    success: np.ndarray
    """[k] the task succeeded"""

    def __len__(self) -> int:
        return len(self.length)

    def first(self, count: int) -> Outcomes:
        """The first `count` of them."""
        return Outcomes(*(getattr(self, f.name)[:count] for f in dataclasses.fields(self)))

    def violations(self, threshold: float) -> np.ndarray:
        """[k, m] whether an episode broke a constraint. A simulator fault breaks all of them."""
        broken: np.ndarray = (self.cost_max > threshold) | self.fault[:, None]
        return broken


def join(parts: Sequence[Outcomes]) -> Outcomes:
    """Join consecutive outcomes."""
    names = [f.name for f in dataclasses.fields(Outcomes)]
    return Outcomes(*(np.concatenate([getattr(p, name) for p in parts]) for name in names))


def run_in_order(
    algo: Algorithm,
    env: Env,
    seed: int,
    sampled: bool,
    domain: Domain,
    worst: WorstEpisodes | None = None,
) -> Iterator[Outcomes]:
    """Run fresh episodes without end and yield their outcomes in order, a few at a time.

    seed: of the layouts, of everything that varies, and of sampled actions.
    worst: keeps the worst episodes.
    """
    enter(env, domain, seed + 3)
    disturbance = Disturbance(domain, algo, env, seed + 1)
    generator = torch.Generator(env.device).manual_seed(seed + 2) if sampled else None
    b = env.num_envs
    queue = _Queue()
    number, started = np.arange(b), b
    length, success = np.zeros(b, dtype=int), np.zeros(b, dtype=bool)
    step = env.reset(seed=seed)
    disturbance.begin(torch.ones(b, dtype=torch.bool, device=env.device))
    if worst is not None:
        worst.begin(step)
    while True:
        with one_torch_thread():
            action = algo.act(disturbance.see(step), generator).executed
            step = env.step(disturbance.act(action))
        if worst is not None:
            worst.add(step)
        length += 1
        success |= step.success.cpu().numpy()
        ended = step.ended.cpu().numpy().nonzero()[0]
        if not len(ended):
            continue
        parts = (step.true_cost_max, step.min_clearance, step.sim_fault)
        cost, clearance, fault = (part.cpu().numpy()[ended] for part in parts)
        queue.put(number[ended], (cost, clearance, length[ended], fault, success[ended]))
        number[ended] = np.arange(started, started + len(ended))
        started += len(ended)
        length[ended], success[ended] = 0, False
        disturbance.begin(step.ended)
        ready = queue.take()
        if ready is not None:
            yield ready


class _Queue:
    """Takes outcomes in any order, and returns them by their number without gaps."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[np.ndarray, ...]] = {}
        self._next = 0

    def put(self, numbers: np.ndarray, columns: tuple[np.ndarray, ...]) -> None:
        for i, number in enumerate(numbers.tolist()):
            self._waiting[number] = tuple(column[i] for column in columns)

    def take(self) -> Outcomes | None:
        rows = []
        while self._next in self._waiting:
            rows.append(self._waiting.pop(self._next))
            self._next += 1
        if not rows:
            return None
        return Outcomes(*(np.stack(column) for column in zip(*rows, strict=True)))
