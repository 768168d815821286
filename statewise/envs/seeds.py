"""Seeds for parts of a run, derived from the run's own."""

from __future__ import annotations

from numpy.random import SeedSequence

_WORD = 1 << 32


def part_of(seed: int, *numbers: int) -> SeedSequence:
    """Return an independent seed for one part of a run, for example one chunk of layouts.

    numpy splits a large seed into two words and ignores zeros at the end, so as plain lists
    `[7 + 2**40, 0]` and `[7, 256]` would be the same. Large seeds, which evaluations use, are
    therefore derived in another way.
    """
    return SeedSequence([seed, *numbers]) if seed < _WORD else SeedSequence(seed, spawn_key=numbers)
