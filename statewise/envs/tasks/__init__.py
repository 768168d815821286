"""Tasks: one file each. `task` adds yours."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from statewise.envs.registry import Entry, Registry
from statewise.envs.tasks.base import Task

__all__ = ["TASKS", "Task", "task", "task_entries"]

K = TypeVar("K", bound=type[Task])

TASKS: Registry[Task] = Registry("task")


def task(kind: str, *, replace: bool = False) -> Callable[[K], K]:
    """Register a subclass of `Task` under a name for suites: `@statewise.task("Push")`.

    Suites are then called `Point-Push-Hazard-4`. replace: replace a task of that name.
    """

    if not isinstance(kind, str):
        raise TypeError(f'task needs a name: write @statewise.task("Name"), not {kind!r}')

    def register(made: K) -> K:
        if not (isinstance(made, type) and issubclass(made, Task)):
            raise TypeError(f"{kind}: a task is a subclass of statewise.Task, not {made!r}")
        if made.reward is Task.reward:
            raise TypeError(f"{kind}: {made.__name__} defines no method reward(self, world)")
        TASKS.add(kind, made, made, replace)
        made.kind = kind
        return made

    return register


def task_entries() -> list[Entry[Task]]:
    """All registered tasks: name, description, parameters."""
    return list(TASKS.entries.values())


from statewise.envs.tasks import (  # noqa: E402, I001  in the order of lists
    goal as goal, push as push, chase as chase, run as run,
)  # fmt: skip

# Their names are taken too, whichever is imported first.
import statewise.envs.constraints  # noqa: E402, F401
