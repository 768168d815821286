"""A task: what it places and observes, its reward, when an episode is over and when it succeeded."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from statewise.envs.terms import Term
from statewise.envs.world import World


class Task(Term):
    """What a robot has to do.

    A subclass defines `reward`, and `succeeded` or `ended` unless only time ends its episodes. Its
    `__init__` takes the robot and the numbers in a suite's name.
    """

    max_steps: ClassVar[int | None] = 1000
    """After so many steps an episode is truncated. None: only the task ends it."""
    success: ClassVar[str] = "task done"
    """What success is called in pictures and tables."""

    def reward(self, world: World) -> Tensor:
        """[R] the reward of the step that led here"""
        raise NotImplementedError(f"{type(self).__name__} defines no reward")

    def succeeded(self, world: World) -> Tensor:
        """[R] whether the task succeeds in this step. Default: never"""
        return torch.zeros(len(world), dtype=torch.bool, device=world.sensors.device)

    def ended(self, world: World) -> Tensor:
        """[R] whether the episode is over. Default: when the task succeeded"""
        return self.succeeded(world)

    def may_start(self, world: World) -> Tensor:
        """[R] whether an episode may start so. Default: unless it is over at once"""
        return ~self.ended(world)


def refuse_fixed(task: Task) -> None:
    """Refuse a robot whose base is fixed, in a task for robots that move."""
    if task.robot.pinned:
        raise ValueError(
            f"{task.kind} is a task for robots that move, and the base of the {task.robot.name} is "
            f"fixed: choose another task"
        )


def check_ends(task: Task) -> None:
    """Refuse a task whose episodes would never end."""
    kind = type(task)
    if kind.max_steps is not None:
        if isinstance(kind.max_steps, bool) or not isinstance(kind.max_steps, int):
            raise ValueError(
                f"task {task.kind}: max_steps is {kind.max_steps!r}: give an int or None"
            )
        if kind.max_steps < 1:
            raise ValueError(f"task {task.kind}: max_steps is {kind.max_steps}: give at least 1")
    elif kind.ended is Task.ended and kind.succeeded is Task.succeeded:
        raise ValueError(
            f"task {task.kind} has no time limit and defines neither `ended` nor `succeeded`: its "
            f"episodes would never end. Define one of them, or set max_steps"
        )
