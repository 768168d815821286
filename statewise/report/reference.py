"""Published numbers that runs are shown beside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from statewise.text import millions


@dataclass(frozen=True)
class Reference:
    """What somebody else reported: numbers at the last epoch, and how they were made."""

    name: str
    """What tables and sentences call it, as in "the NAME's return"."""
    cite: str
    """Where it is to be found, in a sentence for readers"""
    values: Mapping[tuple[str, str, str], str]
    """Suite, algorithm and metric to the number as it is printed there"""
    steps: Mapping[str, int]
    """Environment steps that it trains in each suite, which are its suites in their order"""
    seeds: int
    algos: Sequence[str]
    """Its algorithms in their order"""
    task: Mapping[str, Any] = field(default_factory=dict)
    """Settings that make the task. Runs with others are not held against its numbers."""

    def text(self, suite: str, algo: str, metric: str) -> str | None:
        return self.values.get((suite, algo, metric))

    def value(self, suite: str, algo: str, metric: str) -> float | None:
        text = self.text(suite, algo, metric)
        return None if text is None else float(text)

    def has(self, suite: str) -> bool:
        """Whether it has any number of a suite."""
        return any(key[0] == suite for key in self.values)

    def other_task(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings that ask for another task than this reference's."""

        def same(value: Any, wanted: Any) -> bool:  # one number stands for all constraints
            return all(v == wanted for v in value) if isinstance(value, list) else value == wanted

        named = {k: settings[k] for k in self.task if k in settings}
        return {k: v for k, v in named.items() if not same(v, self.task[k])}

    def shorter(self, suite: str, steps: Sequence[int]) -> str:
        """What to say where some runs of so many steps are shorter: 0.6 of 6 million steps."""
        wanted = self.steps.get(suite, 0)
        if min(steps, default=wanted) >= 0.99 * wanted:
            return ""
        ends = (min(steps), min(max(steps), wanted))
        span = " to ".join(dict.fromkeys(millions(n) for n in ends))
        return f"{span} of {millions(wanted)} million steps"
