"""The claim of a certificate, and how it is tested."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

from statewise.deploy.domain import Domain

MOST_WORLDS = 256


@dataclass(frozen=True)
class Plan:
    """The claim and how it is tested."""

    max_violation: tuple[float, ...] = (0.01,)
    """Largest violation probability: one for all constraints, or one for each"""
    confidence: float = 0.95
    """Of all claims together"""
    episodes: int | None = None
    """Exactly so many episodes, with exact bounds. None: as many as it takes, up to `budget`."""
    budget: int = 10_000
    seed: int = 0
    sampled: bool = False
    """Judge sampled actions instead of the mean ones"""
    best_safe: bool = False
    """The policy is the one of the run's safest epoch"""
    threshold: float = 0.0
    """A step violates a constraint if it costs more than this."""
    domain: Domain = dataclasses.field(default_factory=Domain)

    def __post_init__(self) -> None:
        if self.most < 1:
            raise ValueError(f"{self.most} episodes: ask for at least 1")
        if not (math.isfinite(self.threshold) and self.threshold >= 0):
            raise ValueError(f"threshold is {self.threshold}: give a finite number, 0 or more")
        if not 0 <= self.seed < 2**32:
            raise ValueError(f"seed is {self.seed}: give a whole number from 0 to {2**32 - 1}")

    @property
    def sequential(self) -> bool:
        """Whether the number of episodes depends on their outcomes."""
        return self.episodes is None

    @property
    def worlds(self) -> int:
        """In how many worlds the episodes are run"""
        return min(MOST_WORLDS, self.most)

    @property
    def most(self) -> int:
        """The largest number of episodes"""
        return self.budget if self.episodes is None else self.episodes
