"""Every algorithm still does what it did: a few epochs against recorded numbers."""

from __future__ import annotations

import json

import pytest
from record_reference import ALGORITHMS, FILE, WORLDS, record

REFERENCE = json.loads(FILE.read_text())
SHARE, SMALL = 0.05, 0.005
"""How far another processor's rounding may move a number: a share of it, and a little more. Measured
with torch's and MKL's plain instruction sets (ATEN_CPU_CAPABILITY=default MKL_CBWR=COMPATIBLE)."""
FICKLE = ("policy/cg_residual", "policy/line_search_tries", "policy/rejected")
"""Numbers that the last digits decide."""


@pytest.mark.parametrize("name", REFERENCE)
def test_an_algorithm_gives_the_numbers_that_were_recorded(name: str) -> None:
    found, wanted = record(*name.split(": ")), REFERENCE[name]
    assert len(found) == len(wanted)
    for mine, then in zip(found, wanted, strict=True):
        assert steady(mine) == steady(then)
        for key, value in then.items():
            if value is None or mine[key] is None:
                assert mine[key] == value, key
            elif not key.startswith(FICKLE):
                assert abs(mine[key] - value) <= SHARE * abs(value) + SMALL, (key, mine[key], value)


def steady(metrics: dict[str, float | None]) -> set[str]:
    """The keys that are there whatever the last digits are."""
    return {key for key in metrics if not key.startswith(FICKLE)}


def test_all_algorithms_are_recorded_with_one_and_with_two_constraints() -> None:
    assert len(REFERENCE) == len(ALGORITHMS) * len(WORLDS)
    keys = {key for epochs in REFERENCE.values() for key in epochs[0]}
    assert {"cost/hazard/max", "cost/pillar/max", "cost/edge0/max", "cost/edge1/max"} <= keys
