"""The data types that parts of the library exchange, with the shapes of their tensors.

B worlds, T steps of a rollout, m constraints, n observation size, a action size.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class EnvSpec:
    """The fixed facts of an environment."""

    name: str
    obs_size: int
    action_size: int
    cost_names: tuple[str, ...]
    """One for each constraint: the channels of `Step.cost`."""
    cost_ceiling: tuple[float, ...]
    """The largest `cost` of a step on each channel, margin included. A simulator fault gets this cost."""
    max_episode_steps: int
    control_dt: float
    """Seconds of simulated time in one step."""
    blocks: Mapping[str, slice]
    """Where each named block of the observation lies."""
    num_zeros: int = 0
    """How many numbers at the end of an observation are always zero. Networks ignore them."""
    margin: tuple[float, ...] = ()
    """How far before each constraint is broken `Step.cost` begins, in its unit. Default: 0 each."""
    clearance_units: tuple[str, ...] = ()
    """The unit of each clearance, such as "m". Default: unknown, ""."""

    def __post_init__(self) -> None:
        names = self.cost_names
        for field, default in (("margin", 0.0), ("clearance_units", "")):
            given = getattr(self, field) or (default,) * len(names)
            if len(given) != len(names):
                raise ValueError(
                    f"{self.name} has {len(names)} constraints, but the {field} {given}: give one each"
                )
            object.__setattr__(self, field, tuple(given))
        if len(set(names)) < len(names):
            raise ValueError(
                f"{self.name} has two constraints of the same name, {names}: rename one"
            )
        wrong = [name for name in names if not name or "/" in name]
        if wrong:
            raise ValueError(
                f"{self.name} calls a constraint {wrong[0]!r}: give it a name without slashes, which "
                f"separate the parts of a metric's key"
            )

    @property
    def num_costs(self) -> int:
        return len(self.cost_names)

    @property
    def num_live(self) -> int:
        """How many numbers at the start of an observation may differ from zero."""
        return self.obs_size - self.num_zeros


@dataclass(frozen=True, eq=False)
class Step:
    """What a batch of worlds returns from `reset` and `step`.

    A world whose episode ended starts a new one in the same step: `obs` is then the first
    observation of the new episode. All other fields describe the episode that ended.

    `cost` and its maxima are what algorithms learn from. With a training margin they begin before a
    constraint is broken. Reports use `true_cost`, `true_cost_max` and the clearances.
    """

    obs: Tensor
    """[B, n] observation for the next action"""
    reward: Tensor
    """[B]"""
    cost: Tensor
    """[B, m] one channel for each constraint, never negative. It begins `EnvSpec.margin` early."""
    cost_max_before: Tensor
    """[B, m] largest cost of the episode before this step: the M that the policy saw"""
    cost_max: Tensor
    """[B, m] largest cost of the episode up to and including this step"""
    terminated: Tensor
    """[B] the task itself ended the episode (goal reached, simulator fault)"""
    truncated: Tensor
    """[B] the time limit ended it"""
    final_obs: Tensor
    """[B, n] the observation after this step. If the episode ended, this is its true last one"""
    sim_fault: Tensor
    """[B] the simulator failed: the episode is terminated and gets the cost ceiling"""
    success: Tensor
    """[B] the task succeeded in this step, such as by reaching the goal"""
    true_cost: Tensor
    """[B, m] the cost without a margin: above 0 only where a constraint is broken"""
    true_cost_max: Tensor
    """[B, m] largest true cost of the episode up to and including this step"""
    clearance: Tensor
    """[B, m] how far each constraint is from being broken, in its own unit; negative once broken"""
    min_clearance: Tensor
    """[B, m] smallest clearance of the episode up to and including this step"""

    @classmethod
    def from_costs(
        cls,
        obs: Tensor,
        reward: Tensor,
        cost: Tensor,
        cost_max_before: Tensor,
        cost_max: Tensor,
        terminated: Tensor,
        truncated: Tensor,
        final_obs: Tensor,
        sim_fault: Tensor,
        success: Tensor | None = None,
        clearance: Tensor | None = None,
        min_clearance: Tensor | None = None,
    ) -> Step:
        """A Step of an environment without a margin. Unless given, a clearance is the negative cost,
        and an episode succeeds when the task ends it.
        """
        return cls(
            obs, reward, cost, cost_max_before, cost_max, terminated, truncated, final_obs, sim_fault,
            terminated & ~sim_fault if success is None else success,
            cost, cost_max,
            -cost if clearance is None else clearance,
            -cost_max if min_clearance is None else min_clearance,
        )  # fmt: skip

    @property
    def ended(self) -> Tensor:
        """[B]"""
        return self.terminated | self.truncated

    @property
    def increment(self) -> Tensor:
        """[B, m] the Maximum MDP's D: by how much this step raised the episode's largest cost"""
        return self.cost_max - self.cost_max_before

    @property
    def obs_cost_max(self) -> Tensor:
        """[B, m] the M that belongs to `obs`: `cost_max`, or 0 where a new episode began"""
        return self.cost_max.masked_fill(self.ended.unsqueeze(-1), 0.0)


def first_step(obs: Tensor, num_costs: int, clearance: Tensor | None = None) -> Step:
    """Return the Step of a reset: observations, and zeros for everything else.

    clearance: `[B, m]` at the start, if known.
    """
    batch = len(obs)
    zero = obs.new_zeros(batch, num_costs)
    no = torch.zeros(batch, dtype=torch.bool, device=obs.device)
    start = zero if clearance is None else clearance
    return Step.from_costs(
        obs, obs.new_zeros(batch), zero, zero, zero, no, no, obs, no, no, start, start
    )


@dataclass(frozen=True, eq=False)
class Act:
    """The actions that an algorithm chooses for a Step."""

    action: Tensor
    """[B, a] the action that the policy proposed. It learns from this one"""
    executed: Tensor
    """[B, a] the action for the environment: the same, or corrected by a safety layer"""


@dataclass(frozen=True, eq=False)
class Rollout:
    """T steps of B worlds. Row t holds one step of every world. Episodes may span rollouts."""

    obs: Tensor
    """[T, B, n]"""
    next_obs: Tensor
    """[T, B, n] the true successor: the final observation where an episode ended"""
    action: Tensor
    """[T, B, a] proposed"""
    executed: Tensor
    """[T, B, a]"""
    reward: Tensor
    """[T, B]"""
    cost: Tensor
    """[T, B, m] with the training margin"""
    true_cost: Tensor
    """[T, B, m] without the margin. Reports use this one"""
    clearance: Tensor
    """[T, B, m]"""
    last_cost: Tensor
    """[T, B, m] cost of the step before, 0 where an episode starts"""
    cost_max_before: Tensor
    """[T, B, m] M, as the policy saw it"""
    cost_max: Tensor
    """[T, B, m] M after the row's cost"""
    true_cost_max_before: Tensor
    """[T, B, m] the same of the true costs"""
    true_cost_max: Tensor
    """[T, B, m]"""
    terminated: Tensor
    """[T, B]"""
    truncated: Tensor
    """[T, B]"""
    sim_fault: Tensor
    """[T, B]"""
    age: Tensor
    """[T, B] steps of the episode before this row. 0 is the first step of an episode"""

    @property
    def ended(self) -> Tensor:
        """[T, B]"""
        return self.terminated | self.truncated

    @property
    def increment(self) -> Tensor:
        """[T, B, m] the Maximum MDP's D"""
        return self.cost_max - self.cost_max_before

    @property
    def size(self) -> int:
        """N = T B"""
        return self.reward.numel()


@dataclass(frozen=True, eq=False)
class Episodes:
    """k finished episodes, in the order they ended, on the CPU."""

    returns: Tensor
    """[k] sum of rewards"""
    cost: Tensor
    """[k, m] sum of each true cost"""
    cost_max: Tensor
    """[k, m] largest of each true cost"""
    min_clearance: Tensor
    """[k, m] smallest of each clearance"""
    length: Tensor
    """[k] steps"""
    terminated: Tensor
    """[k] ended by the task. The others reached the time limit"""
    fault: Tensor
    """[k] ended by a simulator fault"""
    success: Tensor
    """[k] the task succeeded in at least one step"""

    def __len__(self) -> int:
        return len(self.returns)
