"""Keep torch to one thread (tests run side by side, on small tensors), and registries clean."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from statewise.envs import robots

torch.set_num_threads(1)
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def keep_robots() -> Iterator[None]:
    """Robots that a test registers are gone after it."""
    before = dict(robots._ROBOTS)
    yield
    robots._ROBOTS.clear()
    robots._ROBOTS.update(before)


@pytest.fixture(autouse=True)
def keep_threads() -> Iterator[None]:
    """A run sets torch's threads, and the next test has one again."""
    yield
    torch.set_num_threads(1)
