"""Layouts keep what they promise."""

import pytest
import torch

from statewise.core.placement import Arena, LayoutError, sample_layouts
from statewise.envs.suites import PAPER_SUITES, parse_suite


def smallest_slack(arena: Arena, count: int) -> float:
    """Least (distance - sum of keepouts) over all pairs of things in `count` layouts."""
    drawn = sample_layouts(torch.Generator().manual_seed(0), count, arena)
    points = torch.cat([drawn.robot.unsqueeze(1), drawn.objects], dim=1)
    keepout = torch.tensor([arena.robot_keepout, *arena.keepouts])
    gap = torch.cdist(points, points) - keepout - keepout.unsqueeze(1)
    gap[:, torch.eye(len(keepout), dtype=torch.bool)] = torch.inf
    inside = arena.extent - keepout.unsqueeze(-1) - points.abs()
    assert inside.min() >= -1e-6
    return float(gap.min())


@pytest.mark.parametrize("suite", ["Point-Hazard-8", "Point-Pillar-8", "Point-Hazard-8-Pillar-4"])
def test_layouts_keep_every_keepout_over_10_000_samples(suite: str) -> None:
    assert smallest_slack(parse_suite(suite).arena, 10_000) >= -1e-6


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_every_suite_keeps_its_keepouts(suite: str) -> None:
    assert smallest_slack(parse_suite(suite).arena, 500) >= -1e-6


def test_the_goal_is_as_far_away_as_in_the_paper() -> None:
    """A perfect agent earns E[d] - 0.3 + 1 = 2.58 in the paper's tables, so E[d] is about 1.88."""
    drawn = sample_layouts(torch.Generator().manual_seed(0), 10_000,
                           parse_suite("Point-Hazard-8").arena)  # fmt: skip
    distance = (drawn.robot - drawn.objects[:, 0]).norm(dim=-1)
    assert float(distance.mean()) == pytest.approx(1.88, abs=0.03)
    assert float(distance.min()) >= 0.8 - 1e-6


def test_the_same_seed_gives_the_same_layouts() -> None:
    arena = parse_suite("Point-Hazard-8").arena
    a, b = (sample_layouts(torch.Generator().manual_seed(3), 100, arena) for _ in range(2))
    assert torch.equal(a.objects, b.objects) and torch.equal(a.yaw, b.yaw)


def test_a_pinned_robot_stands_at_the_centre_with_the_hazards_in_reach() -> None:
    arena = parse_suite("Arm3-Hazard-8").arena
    drawn = sample_layouts(torch.Generator().manual_seed(0), 500, arena)
    assert not drawn.robot.any()
    assert drawn.objects[:, 1:].norm(dim=-1).max() <= 2.0


def test_an_arena_without_room_is_an_error() -> None:
    with pytest.raises(LayoutError, match="do not fit the 4 m arena"):
        sample_layouts(torch.Generator(), 1, Arena((0.4, *[0.9] * 8)))
