"""How the final policy of a run was judged: `judged.json`, beside its metrics."""

from __future__ import annotations

import os
import typing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statewise.runs.shapes import check, read_json

JUDGED = "judged.json"


@dataclass(frozen=True)
class JudgedConstraint:
    """One constraint over the fresh episodes."""

    name: str
    violations: int
    """Episodes with a step of positive cost"""
    episode_cost: float
    """Mean sum of costs of an episode"""
    max_cost: float
    """Mean of the largest cost of an episode"""


@dataclass(frozen=True)
class Judged:
    """The result of fresh episodes of the final policy, with mean actions."""

    epoch: int
    """The epoch of the policy"""
    seed: int
    """Of the layouts"""
    episodes: int
    mean_return: float
    success: float
    """Share of the episodes in which the task succeeded"""
    constraints: tuple[JudgedConstraint, ...]

    def __post_init__(self) -> None:
        if worst := [c.name for c in self.constraints if c.violations > self.episodes]:
            raise ValueError(f"more episodes than there are violate {worst[0]:.40}")


def read_judged(folder: Path, epoch: int) -> tuple[Judged | None, list[str]]:
    """How the policy of an epoch was judged, if it was, and notes on what is wrong with the file."""
    if not os.path.lexists(folder / JUDGED):
        return None, []
    kinds, inner = typing.get_type_hints(Judged), typing.get_type_hints(JudgedConstraint)
    content: dict[str, Any] = read_json(folder / JUDGED) or {}
    try:
        check(content, kinds | {"constraints": [inner]}, "it")
        constraints = tuple(JudgedConstraint(**{k: c[k] for k in inner})
                            for c in content["constraints"])  # fmt: skip
        found = Judged(**{k: content[k] for k in kinds} | {"constraints": constraints})
    except ValueError as error:
        return None, [f"{JUDGED} cannot be used ({error})"]
    if found.epoch != epoch:
        return None, [f"{JUDGED} is of epoch {found.epoch}, not of the last one: it is left out"]
    return found, []
