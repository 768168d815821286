"""Keep torch to one thread (tests run side by side, on small tensors), and registries clean."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from statewise import algos
from statewise.envs import robots

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parent.parent / "benchmarks"))


@pytest.fixture(autouse=True)
def keep_registries() -> Iterator[None]:
    """Robots and algorithms that a test registers are gone after it."""
    registries: tuple[dict[str, Any], ...] = (robots._ROBOTS, algos.ALGORITHMS)
    before = [dict(registry) for registry in registries]
    yield
    for registry, entries in zip(registries, before, strict=True):
        registry.clear()
        registry.update(entries)


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    """A run sets torch's threads, and the next test has one again."""
    yield
    torch.set_num_threads(1)
