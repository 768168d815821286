"""Catch a goal that moves."""

from __future__ import annotations

import torch
from torch import Tensor

from statewise.core import motion
from statewise.envs.tasks import task
from statewise.envs.tasks.goal import Goal
from statewise.envs.world import World

SPEED = 0.5
"""Metres per second of the goal. Set by hand, a third of what the Point drives."""


@task("Chase")
class Chase(Goal):
    """Catch a goal that walks straight on and turns at the arena's edge. Otherwise as Goal."""

    success = "goal caught"
    draws = 1

    def remember(self, world: World) -> Tensor:
        """[R, 3] the distance to the goal and its direction"""
        if world.starts:
            direction = motion.directions(world.draws[:, 0])
        else:
            at = world.objects("goal")[:, 0, :2]
            direction = motion.turned(world.memory[:, 1:], at, world.extent)
        return torch.cat([world.distance("goal"), direction], dim=1)

    def move(self, world: World) -> dict[str, Tensor]:
        at = world.objects("goal")
        step = SPEED * world.dt * world.memory[:, None, 1:]
        return {"goal": torch.cat([at[..., :2] + step, at[..., 2:]], dim=-1)}
