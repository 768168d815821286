"""Keeps the worst episodes while a policy is judged: states, costs and what the critic expected."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import torch
from torch import Tensor

from statewise.algos import Algorithm
from statewise.envs.env import Env
from statewise.training.policy import hash_policy
from statewise.training.recording import Facts, Recording
from statewise.types import Step

_PARTS = ("qpos", "mocap_pos", "mocap_quat", "draws")
"""What a state has beside objects"""
_TRIM = 64
"""Steps after which rows that no running episode needs are dropped"""


class WorstEpisodes:
    """The worst episodes of each constraint: largest true cost, then smallest clearance.

    worst = WorstEpisodes(env, algo, keep=5)
    worst.begin(env.reset(seed))
    worst.add(step)                     # every step that the environment returns
    worst.recordings()

    The running episodes are kept as one row of numbers for each world and step. That takes about 160
    bytes for Point-Hazard-8: 4 MB for 256 worlds and episodes of 100 steps.
    """

    def __init__(self, env: Env, algo: Algorithm, keep: int = 5) -> None:
        if keep < 1:
            raise ValueError(f"keep is {keep}: keep at least one episode of each constraint")
        self.env, self.algo, self.keep = env, algo, keep
        self._drawn = env.simulated
        if self._drawn is not None:
            self._drawn.record()
        self._found: list[list[tuple[tuple[float, float], int]]] = [[] for _ in env.spec.cost_names]
        """For each constraint: how bad, and the number of the episode. The worst is first."""
        self._episodes: dict[int, Recording] = {}
        self._number = 0
        self._min_clearance = torch.full((env.num_envs, env.spec.num_costs), torch.inf)

    def begin(self, step: Step) -> None:
        """Start with the step that `env.reset` returned."""
        self._rows: list[np.ndarray] = []
        """[B, W] for each step from `_first` on: numbers of the step, then the state it led to"""
        self._first = 0
        self._time = 0
        self._begun = np.zeros(self.env.num_envs, dtype=np.int64)
        """[B] the step that each running episode began with"""
        self._start = self._state(now=True)
        """[B, S] the first state of each running episode"""
        self._last = step

    def add(self, step: Step, counted: Tensor | None = None) -> None:
        """Take in a step. counted: `[B]` the worlds whose ending episodes may be kept (default: all)."""
        parts = [
            step.reward.unsqueeze(1),
            step.true_cost,
            step.clearance,
            self._value_of(self._last),
        ]
        numbers = torch.cat(parts, dim=1).cpu().numpy()
        self._rows.append(np.concatenate([numbers, self._state()], axis=1, dtype=np.float32))
        self._time += 1
        self._last = step
        ended = step.ended if counted is None else step.ended & counted
        for world in ended.nonzero()[:, 0].tolist():
            self._finish(world, step)
        over = step.ended.cpu().numpy()
        if over.any():
            self._start = np.where(over[:, None], self._state(now=True), self._start)
            self._begun[over] = self._time
        if self._time % _TRIM == 0:
            oldest = int(self._begun.min())
            del self._rows[: oldest - self._first]
            self._first = oldest

    def recordings(self) -> list[Recording]:
        """The episodes kept, worst first, constraint by constraint; none of them twice."""
        out: dict[int, Recording] = {}
        names = self.env.spec.cost_names
        for rank in range(self.keep):
            for name, found in zip(names, self._found, strict=True):
                if rank >= len(found):
                    continue
                number = found[rank][1]
                one = out.get(number) or dataclasses.replace(self._episodes[number], rank=rank)
                out[number] = dataclasses.replace(one, worst_of=(*one.worst_of, name))
        return list(out.values())

    def facts(self, episodes: int, seed: int, sampled: bool) -> Facts:
        """What a file of the recordings says about them."""
        spec, signal = self.env.spec, self.algo.cost_signal
        name = "" if signal is None else "D" if signal.needs_maximum else "C"
        return Facts(
            spec.name, self.algo.name, hash_policy(self.algo), episodes, seed, sampled,
            spec.cost_names, spec.clearance_units, spec.control_dt, name,
        )  # fmt: skip

    # Inside ------------------------------------------------------------------------------------

    def _state(self, now: bool = False) -> np.ndarray:
        """[B, S] the state that the last step led to, or the one that the worlds are in `now`."""
        if self._drawn is None:
            return np.empty((self.env.num_envs, 0), dtype=np.float32)
        frame = self._drawn.snapshot() if now else self._drawn.frame
        parts = [*(frame[name] for name in _PARTS), *frame["objects"].values()]
        rows: np.ndarray = torch.cat([p.flatten(1).float() for p in parts], dim=1).cpu().numpy()
        return rows

    @torch.no_grad()
    def _value_of(self, step: Step) -> Tensor:
        """[B, m] what the cost critic expects from the states of a step on"""
        critic = self.algo.cost_value
        if critic is None:
            return step.reward.new_empty(len(step.reward), 0)
        value: Tensor = critic(self.algo.observe(step.obs, step.obs_cost_max))
        return value

    def _finish(self, world: int, step: Step) -> None:
        """Keep an episode that ended if it is among the worst."""
        number, self._number = self._number, self._number + 1
        worse = []
        for i, found in enumerate(self._found):
            key = (float(step.true_cost_max[world, i]), -float(step.min_clearance[world, i]))
            if len(found) < self.keep or key > found[-1][0]:
                worse.append((found, key))
        if not worse:
            return
        self._episodes[number] = self._recording(world, step)
        for found, key in worse:
            found.append((key, number))
            found.sort(key=lambda one: one[0], reverse=True)
            del found[self.keep :]
        kept = {one for found in self._found for _, one in found}
        self._episodes = {one: self._episodes[one] for one in self._episodes if one in kept}

    def _recording(self, world: int, step: Step) -> Recording:
        begun = int(self._begun[world]) - self._first
        rows = np.stack([row[world] for row in self._rows[begun:]])
        m, widths = self.env.spec.num_costs, {"reward": 1}
        widths |= {"cost": m, "clearance": m}
        widths["value"] = rows.shape[1] - self._start.shape[1] - sum(widths.values())
        ends = np.cumsum(list(widths.values()))
        numbers: dict[str, Any] = dict(zip(widths, np.split(rows, ends, axis=1), strict=False))
        states = np.concatenate([self._start[world, None], rows[:, ends[-1] :]])
        numbers["reward"] = numbers["reward"][:, 0]
        named = self._split(_finite(states))
        return Recording(**numbers, **named, ending=self._ending(world, step), world=world)

    def _ending(self, world: int, step: Step) -> str:
        if step.sim_fault[world]:
            return "simulator fault"
        if not step.terminated[world]:
            return "time limit"
        word = self._drawn.suite.task.success if self._drawn is not None else "task succeeded"
        return word if step.success[world] else "task ended"

    def _split(self, states: np.ndarray) -> dict[str, Any]:
        """The parts of states `[T + 1, S]`."""
        n = len(states)
        if self._drawn is None:
            none = states.reshape(n, 0)
            return {"qpos": none, "mocap_pos": none.reshape(n, 0, 3),
                    "mocap_quat": none.reshape(n, 0, 4), "draws": none, "objects": {}}  # fmt: skip
        frame = self._drawn.frame
        shapes = {name: frame[name].shape[1:] for name in _PARTS}
        kinds = {name: x.shape[1:] for name, x in frame["objects"].items()}
        ends = np.cumsum([shape.numel() for shape in (*shapes.values(), *kinds.values())])
        parts = iter(np.split(states, ends[:-1], axis=1))
        named: dict[str, Any] = {k: next(parts).reshape(n, *shape) for k, shape in shapes.items()}
        named["objects"] = {k: next(parts).reshape(n, *shape) for k, shape in kinds.items()}
        return named


def _finite(states: np.ndarray) -> np.ndarray:
    """States `[T + 1, S]`; those that are not finite, after a fault, repeat the one before."""
    good = np.isfinite(states).all(axis=1)
    last = np.maximum.accumulate(np.where(good, np.arange(len(states)), 0))
    return np.nan_to_num(states[last], posinf=0.0, neginf=0.0)
