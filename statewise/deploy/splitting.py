"""Rare violations by adaptive multilevel splitting (docs/certify.md explains it).

The score of an episode is its highest level so far, such as minus its smallest clearance. In each round
the worse half of the episodes, those with the lowest scores, is replaced: each of them continues a copy
of another episode from the step in which that one first rose above the cut. The product of the shares
that survive the rounds is an unbiased estimate of the probability to reach the last level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Protocol

import torch
from torch import Tensor

from statewise.envs.env import Env
from statewise.sim.cpu import one_torch_thread
from statewise.types import Step

PARTICLES = 256
_REPEATS = 4
_MOST_ROUNDS = 200


class _HasWorlds(Protocol):
    """Something with a state for each world, such as late actions."""

    def worlds(self) -> dict[str, Tensor]: ...

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None: ...


@dataclass(frozen=True)
class RareEstimate:
    """The estimated probability that an episode violates one constraint."""

    constraint: str
    probability: float
    relative_error: float | None
    """Standard error of the mean over the repeats, as a share of it; None where it is 0"""
    levels: int
    """Rounds of the longest repeat"""
    episodes: int
    """Episodes begun or continued in all repeats"""


@dataclass(frozen=True)
class _Once:
    probability: float
    rounds: int
    episodes: int


def estimate(
    env: Env,
    act: Callable[[Step], Tensor],
    constraint: int,
    seed: int,
    repeats: int = _REPEATS,
    parts: Sequence[_HasWorlds] = (),
    begin: Callable[[Tensor], None] = lambda where: None,
) -> RareEstimate:
    """Estimate how likely an episode violates a constraint, from independent repeats.

    act: actions for a step. Something must be random in time, here or in the environment, or copies
        of an episode would all go the same way.
    parts: what else belongs to the worlds and is copied with them.
    begin: called with a mask `[B]` of the worlds whose episodes begin.
    """
    runs = [
        _Splitting(env, act, constraint, [env, *parts], begin, seed + i).run()
        for i in range(repeats)
    ]
    values = torch.tensor([run.probability for run in runs], dtype=torch.float64)
    mean, error = float(values.mean()), None
    if mean > 0 and repeats > 1:
        error = float(values.std()) / math.sqrt(repeats) / mean
    name = env.spec.cost_names[constraint]
    rounds, episodes = max(run.rounds for run in runs), sum(run.episodes for run in runs)
    return RareEstimate(name, mean, error, rounds, episodes)


class _Splitting:
    """One repeat. Every world holds one episode."""

    def __init__(
        self,
        env: Env,
        act: Callable[[Step], Tensor],
        constraint: int,
        parts: Sequence[_HasWorlds],
        begin: Callable[[Tensor], None],
        seed: int,
    ) -> None:
        self._env, self._act, self._constraint = env, act, constraint
        self._parts, self._begin, self._seed = parts, begin, seed
        self._choose = torch.Generator().manual_seed(seed)
        self._records: list[list[_Record]] = [[] for _ in range(env.num_envs)]
        """Of each episode, the steps in which it rose above its score so far"""
        self._score = torch.full((env.num_envs,), -math.inf)
        """[B] the highest level of each episode"""

    def run(self) -> _Once:
        n, probability, rounds, episodes = self._env.num_envs, 1.0, 0, self._env.num_envs
        with one_torch_thread():
            self._start()
            while rounds < _MOST_ROUNDS:
                cut = float(self._score.sort().values[n // 2 - 1])
                if cut > 0:  # more than half of them violate
                    break
                lost = self._score <= cut
                if bool(lost.all()):
                    return _Once(0.0, rounds, episodes)
                probability *= 1.0 - float(lost.double().mean())
                self._continue(self._replace(lost, cut))
                rounds, episodes = rounds + 1, episodes + int(lost.sum())
        return _Once(probability * float((self._score > 0).double().mean()), rounds, episodes)

    def _start(self) -> None:
        """Run a whole episode in every world."""
        everywhere = torch.ones(self._env.num_envs, dtype=torch.bool)
        self._step = self._env.reset(self._seed)
        self._begin(everywhere.to(self._env.device))
        self._continue(everywhere)
        if bool((self._score == self._score[0]).all()):
            raise ValueError(
                "all episodes have the same smallest clearance, so there is nothing to rank them by: "
                "rare events need a clearance that changes before a constraint is broken"
            )

    def _replace(self, lost: Tensor, cut: float) -> Tensor:
        """Copy other episodes, chosen evenly, over the lost ones. Returns which of these can go on.

        A copy begins in the step in which the other one first rose above the cut.
        """
        kept, where = (~lost).nonzero()[:, 0], lost.nonzero()[:, 0]
        chosen = kept[torch.randint(len(kept), (len(where),), generator=self._choose)]
        going, rows = [], []
        for target, source in zip(where.tolist(), chosen.tolist(), strict=True):
            start = next(record for record in self._records[source] if record.level > cut)
            self._records[target] = [start]
            self._score[target] = start.level
            if not start.last:
                going.append(target)
                rows.append(start.rows())
        active = torch.zeros_like(lost)
        if going:
            active[going] = True
            ids = torch.tensor(going, device=self._env.device)
            *states, step = [_stack([row[i] for row in rows]) for i in range(len(rows[0]))]
            for part, state in zip(self._parts, states, strict=True):
                part.set_worlds(ids, state)
            self._step = _with_rows(self._step, ids, step)
        return active

    def _continue(self, active: Tensor) -> None:
        """Run the active episodes until they end or violate the constraint."""
        active = active.clone()
        while bool(active.any()):
            step = self._step = self._env.step(self._act(self._step))
            level, ended = -step.clearance[:, self._constraint].cpu(), step.ended.cpu()
            last = ended | (level > 0)
            self._record(level, last, active & (level > self._score))
            active &= ~last
            if bool(ended.any()):
                self._begin(step.ended)

    def _record(self, level: Tensor, last: Tensor, higher: Tensor) -> None:
        """Keep the states of the episodes that rose above their scores."""
        ids = higher.nonzero()[:, 0]
        if not len(ids):
            return
        where = ids.to(self._env.device)
        states = [{k: v[where] for k, v in part.worlds().items()} for part in self._parts]
        step = {f.name: getattr(self._step, f.name)[where] for f in fields(self._step)}
        for i, world in enumerate(ids.tolist()):
            record = _Record(float(level[world]), bool(last[world]), [*states, step], i)
            self._records[world].append(record)
        self._score = torch.where(higher, level, self._score)


@dataclass(frozen=True, eq=False)
class _Record:
    """One episode in one step, as one row of tensors that several records share."""

    level: float
    last: bool
    """The episode did not go on from here"""
    block: list[dict[str, Tensor]]
    row: int

    def rows(self) -> list[dict[str, Tensor]]:
        return [{name: values[self.row] for name, values in part.items()} for part in self.block]


def _stack(rows: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.stack([row[name] for row in rows]) for name in rows[0]}


def _with_rows(step: Step, where: Tensor, rows: Mapping[str, Tensor]) -> Step:
    """A step with some of its worlds replaced."""
    return replace(
        step, **{name: getattr(step, name).index_copy(0, where, new) for name, new in rows.items()}
    )
