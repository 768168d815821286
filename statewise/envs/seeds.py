"""Seeds for parts of a run, derived from the run's own."""

from __future__ import annotations

from numpy.random import SeedSequence

_WORD = 1 << 32


def part_of(seed: int, *numbers: int) -> SeedSequence:
    """Of the part of that number, or numbers, of a run with this seed.

    To numpy a large seed is two words, and zeros at the end count for nothing: as plain lists
    `[7 + 2**40, 0]` and `[7, 256]` would be the same. So large seeds, those of evaluations, are a
    family of their own.
    """
    return SeedSequence([seed, *numbers]) if seed < _WORD else SeedSequence(seed, spawn_key=numbers)
