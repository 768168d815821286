"""Collect rollouts, and the episodes that end in them."""

from __future__ import annotations

from typing import Any

import torch

from statewise.algos import Algorithm
from statewise.core.mmdp import episode_age
from statewise.envs.env import Env
from statewise.sim.cpu import one_torch_thread
from statewise.types import Act, Episodes, Rollout, Step


class Collector:
    """Steps an environment with an algorithm. Episodes continue from one rollout to the next."""

    def __init__(self, env: Env, algo: Algorithm, seed: int, spread_ages: bool = False) -> None:
        """spread_ages: start the worlds at different ages, if the environment supports it."""
        self.env, self.algo, self.spread_ages = env, algo, spread_ages
        self.generator = torch.Generator(env.device).manual_seed(seed)
        """For the noise of actions."""
        self._step: Step | None = None
        b, m = env.num_envs, env.spec.num_costs
        self._age = torch.zeros(b, dtype=torch.long, device=env.device)
        self._return = torch.zeros(b, device=env.device)
        self._cost = torch.zeros(b, m, device=env.device)
        self._success = torch.zeros(b, dtype=torch.bool, device=env.device)
        self._whole = torch.ones(b, dtype=torch.bool, device=env.device)
        """[B] whether the running episode has its full time limit"""

    def collect(self, horizon: int) -> tuple[Rollout, Episodes]:
        """Take `horizon` steps in every world. Return them and the episodes that ended."""
        step = self.begin()
        before: list[Step] = []
        acts: list[Act] = []
        after: list[Step] = []
        with one_torch_thread():
            for _ in range(horizon):
                act = self.algo.act(step, self.generator)
                before.append(step)
                acts.append(act)
                step = self.env.step(act.executed)
                after.append(step)
        self._step = step
        rollout = self._stack(before, acts, after)
        return rollout, self._finish(rollout, after)

    def begin(self, seed: int | None = None) -> Step:
        """Return the step to continue from. The first call starts the first episodes."""
        if self._step is None:
            self._step = self.env.reset(seed)
            self.algo.remember_starts(self._step.obs)
            if self.spread_ages and self.env.can_set_age:
                self._spread()
        return self._step

    def _spread(self) -> None:
        """Let the first episodes end at different times, as if they had begun at different times.

        If all worlds start together, none ends early on. Estimates then depend on the critics alone.
        """
        longest = self.env.spec.max_episode_steps
        self._age = torch.randint(
            longest, self._age.shape, generator=self.generator, device=self.env.device
        )
        self._whole = self._age == 0
        self.env.set_age(self._age)

    def _stack(self, before: list[Step], acts: list[Act], after: list[Step]) -> Rollout:
        ended = torch.stack([s.ended for s in after])
        went_on = [~s.ended.unsqueeze(-1) for s in before]
        age = episode_age(ended, self._age)
        self._age = (age[-1] + 1).masked_fill(ended[-1], 0)
        return Rollout(
            obs=torch.stack([s.obs for s in before]),
            next_obs=torch.stack([s.final_obs for s in after]),
            action=torch.stack([a.action for a in acts]),
            executed=torch.stack([a.executed for a in acts]),
            reward=torch.stack([s.reward for s in after]),
            cost=torch.stack([s.cost for s in after]),
            true_cost=torch.stack([s.true_cost for s in after]),
            clearance=torch.stack([s.clearance for s in after]),
            last_cost=torch.stack([s.cost * on for s, on in zip(before, went_on, strict=True)]),
            cost_max_before=torch.stack([s.cost_max_before for s in after]),
            cost_max=torch.stack([s.cost_max for s in after]),
            true_cost_max_before=torch.stack(
                [s.true_cost_max * on for s, on in zip(before, went_on, strict=True)]
            ),
            true_cost_max=torch.stack([s.true_cost_max for s in after]),
            terminated=torch.stack([s.terminated for s in after]),
            truncated=torch.stack([s.truncated for s in after]),
            sim_fault=torch.stack([s.sim_fault for s in after]),
            age=age,
        )

    def _finish(self, rollout: Rollout, steps: list[Step]) -> Episodes:
        """Return the complete episodes that ended, including their parts in earlier rollouts."""
        ended = rollout.ended
        first = ended & (ended.cumsum(0) == 1)
        counted = ended & (self._whole | ~first)
        self._whole = self._whole | ended.any(0)
        gathered = torch.cat([rollout.reward.unsqueeze(-1), rollout.true_cost], dim=-1)
        carried = torch.cat([self._return.unsqueeze(-1), self._cost], dim=-1)
        totals = torch.empty_like(gathered)
        success = torch.stack([s.success for s in steps])
        for t, over in enumerate(ended):
            totals[t] = carried + gathered[t]
            carried = totals[t].masked_fill(over.unsqueeze(-1), 0.0)
            success[t] |= self._success
            self._success = success[t] & ~over
        self._return, self._cost = carried[:, 0], carried[:, 1:]
        # Found once and brought to the host at once: reading them one by one makes a GPU wait.
        rows = counted.nonzero(as_tuple=True)
        totals = totals[rows].cpu()
        return Episodes(
            returns=totals[:, 0],
            cost=totals[:, 1:],
            cost_max=torch.stack([s.true_cost_max for s in steps])[rows].cpu(),
            min_clearance=torch.stack([s.min_clearance for s in steps])[rows].cpu(),
            length=rollout.age[rows].cpu() + 1,
            terminated=rollout.terminated[rows].cpu(),
            fault=rollout.sim_fault[rows].cpu(),
            success=success[rows].cpu(),
        )

    def state_dict(self) -> dict[str, Any]:
        step = self.begin()
        return {
            "env": self.env.state_dict(),
            "generator": self.generator.get_state(),
            "step": dict(vars(step)),
            "age": self._age,
            "return": self._return,
            "cost": self._cost,
            "success": self._success,
            "whole": self._whole,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        fresh = self.env.load_state_dict(state["env"])
        self.generator.set_state(state["generator"].cpu())
        device = self.env.device
        self._step = Step(**{name: x.to(device) for name, x in state["step"].items()})
        self._age, self._return, self._cost, self._success, self._whole = (
            state[name].to(device) for name in ("age", "return", "cost", "success", "whole")
        )
        if fresh is not None:  # the worlds could not be restored, and began new episodes
            self._step = fresh
            self._age = torch.zeros_like(self._age)
            self._return = torch.zeros_like(self._return)
            self._cost = torch.zeros_like(self._cost)
            self._success = torch.zeros_like(self._success)
            self._whole = torch.ones_like(self._whole)
