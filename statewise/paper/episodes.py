"""Episodes of a policy, step by step: the cost targets of question 3, and the paper's Figure 1."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from statewise.core.mmdp import increments, running_maximum
from statewise.core.returns import returns_to_go
from statewise.envs.env import Env
from statewise.envs.make import make_env
from statewise.report.plots import Panel, Plot, Series
from statewise.runs.files import short
from statewise.runs.reader import last_epoch
from statewise.sim.cpu import one_torch_thread
from statewise.text import number, percent
from statewise.training.policy import load_policy, random_policy, worlds_for
from statewise.types import Step

_COST_GAMMA = 0.99
"""Discount of the costs, as the methods that bound their sum have it."""
_RED, _ORANGE, _GREEN = 0, 7, 4
"""Numbers of styles, near the colours of the paper's Figure 1."""
_FRESH = 1 << 41
"""Seeds start here, so that no layout of a training or an evaluation is replayed."""


@dataclass(frozen=True, eq=False)
class Recorded:
    """One episode in each world."""

    suite: str
    policy: str
    """What acted, in words"""
    constraint: str
    cost: Tensor
    """[T, B, 1] of the first constraint, float64; 0 after the end of the episode"""
    ended: Tensor
    """[T, B] true at the last step of each episode"""

    @property
    def lengths(self) -> list[int]:
        """[B] steps of each episode"""
        return [int(n) + 1 for n in self.ended.int().argmax(0)]


def record(run: Path | None, suite: str, episodes: int, seed: int = 0) -> Recorded:
    """Fresh episodes of a run's policy, or of a random one in `suite` if no run is given.

    Actions are drawn from the policy, as in training. Runs on the CPU; the same seed, the same
    episodes.
    """
    if run is None:
        env = make_env(suite, episodes, seed)
        return _record(env, random_policy(env, seed), "a random policy", seed)
    policy = load_policy(run)
    generator = torch.Generator().manual_seed(seed)
    steps = last_epoch(run).get("steps", 0)
    words = f"{run.parent.name}, seed {policy.settings.seed}, after {steps:,} steps"
    with worlds_for(policy, episodes, seed) as env:
        return _record(env, lambda step: policy.algo.act(step, generator).executed, words, seed)


def targets(recorded: Recorded, count: int = 5, seed: int = 0) -> Plot:
    """Q3: what V_C and V_D are fitted to along some episodes.

    V_C: discounted cost to go. V_D: increments to go, undiscounted. Nothing is added past an
    episode's end. The episodes are drawn among those with a cost, since the others are flat lines.
    The shares of zeros are over the steps of all.
    """
    cost, ended, lengths = recorded.cost, recorded.ended, recorded.lengths
    never, nothing = torch.zeros_like(ended), torch.zeros_like(cost)
    d = increments(cost, running_maximum(cost, never)[0])
    to_go = {
        f"target of V_C: cost to go, γ = {_COST_GAMMA}":
            returns_to_go(cost, nothing, ended, never, gamma=_COST_GAMMA)[..., 0],
        "target of V_D: increments to go, not discounted":
            returns_to_go(d, nothing, ended, never, gamma=1.0)[..., 0],
    }  # fmt: skip
    rows = torch.arange(len(cost)).unsqueeze(1) < torch.tensor(lengths)
    costly = (cost[..., 0].sum(0) > 0).nonzero()[:, 0]
    order = torch.randperm(len(costly), generator=torch.Generator().manual_seed(seed))
    chosen = sorted(costly[order[:count]].tolist())
    panels, zeros = [], []
    for title, values in to_go.items():
        zeros.append(percent(float((values[rows] == 0).double().mean())))
        shown = [_steps(values[: lengths[i], i], number) for number, i in enumerate(chosen)]
        panels.append(Panel(title, shown, note=f"{zeros[-1]} of all targets are 0"))
    text = (
        f"{recorded.suite}, {recorded.policy}, sampled actions. What the cost critics are fitted to, "
        f"along {len(chosen)} episodes drawn at random from the {len(costly)} with a cost, of "
        f"{len(lengths)} in all. Left: discounted cost to go, the target of V_C. Right: increments of "
        f"the maximum to go, the target of V_D, a staircase that ends at 0. Of all "
        f"{int(rows.sum()):,} steps, {zeros[0]} have a V_C target of exactly 0, {zeros[1]} a V_D target "
        f"of 0. Nothing is bootstrapped past an episode's end."
    )
    heading = f"{recorded.suite}, {recorded.policy}"
    return Plot(panels, "step of the episode", heading, caption=text, width=5.0, height=2.6)


def episode(recorded: Recorded) -> Plot:
    """Figure 1: C, M and D along the episode with the most rises that matter.

    M is the largest cost up to and including a step, D by how much that step raised it, so that D
    sums to the last M.
    """
    cost = recorded.cost
    before, after = running_maximum(cost, torch.zeros_like(recorded.ended))
    d = increments(cost, before)[..., 0]
    shares = []
    for column in d.T:  # rises as shares of the last M, if a twentieth or more
        sizes = [
            float(column[start : end + 1].sum() / column.sum()) for start, end in rises(column)
        ]
        shares.append([size for size in sizes if size >= 0.05])
    # Among equals the one whose smallest rise is seen best.
    best = max(range(len(shares)), key=lambda i: (len(shares[i]), min(shares[i], default=0.0)))
    length = recorded.lengths[best]
    c, m, d = cost[:length, best, 0], after[:length, best, 0], d[:length, best]
    x: list[float] = []
    y: list[float | None] = []
    for start, end in rises(d):  # a vertical line for each, with gaps between
        x += [float(end)] * 3
        y += [float(m[start] - d[start]), float(m[end]), None]
    above = [
        Series(x, y, "rise of M", _GREEN, bold=True),
        _steps(m, _RED, "M, largest so far"),
        replace(_steps(c, _ORANGE, "C, cost of the step"), kind="area"),
    ]
    bars = replace(_steps(d, _GREEN, "D, increment of M"), kind="bars")
    largest = number(float(m.max()))
    text = (
        f"{recorded.suite}, {recorded.policy}: cost C of each step, its running maximum M, and the "
        f"increments D, which sum to the largest cost of the episode ({largest}). Of {len(shares)} "
        f"episodes it is the one with the most rises of M that matter ({len(shares[best])})."
    )
    panels = [Panel("cost", [series for series in above if series.x]),
              Panel("increment", [bars], note=f"Σ D = {largest} = largest cost")]  # fmt: skip
    return Plot(panels, "step of the episode", f"{recorded.suite}, {recorded.policy}", caption=text,
                columns=1, width=9.0)  # fmt: skip


def rises(increments: Iterable[Tensor]) -> list[tuple[int, int]]:
    """First and last step of each stretch of positive increments one after another."""
    found: list[tuple[int, int]] = []
    for step, increment in enumerate(increments):
        if increment > 0:
            start = found.pop()[0] if found and found[-1][1] == step - 1 else step
            found.append((start, step))
    return found


def _steps(values: Tensor, number: int, name: str = "") -> Series:
    """A value for each step of an episode."""
    places = [float(place) for place in range(len(values))]
    return Series(places, short(values.tolist(), 6), name, number, "step", bold=True)


def _record(env: Env, act: Callable[[Step], Tensor], policy: str, seed: int) -> Recorded:
    """Step until the first episode of every world has ended."""
    if not env.spec.cost_names:
        raise ValueError(f"{env.spec.name} reports no costs, and there is nothing else to show")
    step = env.reset(seed=_FRESH + seed)
    running = torch.ones(env.num_envs, dtype=torch.bool)
    cost, ended = [], []
    with one_torch_thread():
        while bool(running.any()):
            step = env.step(act(step))
            cost.append(step.true_cost[:, :1].double() * running.unsqueeze(1))
            ended.append(step.ended & running)
            running = running & ~step.ended
    return Recorded(
        env.spec.name, policy, env.spec.cost_names[0], torch.stack(cost), torch.stack(ended)
    )
