"""The lidars and the compass against a slow, obvious reference."""

import math

import numpy as np
import pytest
import torch

from statewise.core import lidar


def reference_planar(points: np.ndarray, reach: float | None, bins: int = 16) -> np.ndarray:
    """One object at a time, bin by bin, in double precision."""
    out = np.zeros(bins)
    for x, y in points.astype(np.float64):
        rho, phi, width = math.hypot(x, y), math.atan2(y, x) % (2 * math.pi), 2 * math.pi / bins
        s = math.exp(-rho) if reach is None else max(0.0, reach - rho) / reach
        b = min(int(phi / width), bins - 1)
        a = phi / width - b
        out[b] = max(out[b], s)
        out[(b + 1) % bins] = max(out[(b + 1) % bins], a * s)
        out[(b - 1) % bins] = max(out[(b - 1) % bins], (1 - a) * s)
    return out


def reference_spatial(points: np.ndarray, reach: float | None) -> np.ndarray:
    out = np.zeros((10, 6))
    for x, y, z in points.astype(np.float64):
        flat = math.hypot(x, y)
        d = math.hypot(flat, z)
        s = math.exp(-d) if reach is None else max(0.0, reach - d) / reach
        u = (math.atan2(y, x) % (2 * math.pi)) / math.radians(36)
        v = (math.atan2(z, flat) + math.pi / 2) / math.radians(30)
        i, j = min(int(u), 9), min(int(v), 5)
        a, b = u - i, v - j
        cells = [((i, j), 1.0), (((i + 1) % 10, j), a), (((i - 1) % 10, j), 1 - a)]
        if j + 1 < 6:
            cells.append(((i, j + 1), b))
        if j - 1 >= 0:
            cells.append(((i, j - 1), 1 - b))
        for cell, share in cells:
            out[cell] = max(out[cell], share * s)
    return out.reshape(60)


@pytest.mark.parametrize("reach", [None, 3.0])
def test_planar_lidar_equals_the_slow_reference(reach: float | None) -> None:
    points = torch.randn(300, 8, 2, generator=torch.Generator().manual_seed(0)) * 2
    ours = lidar.planar(points, reach).amax(dim=1)
    slow = np.stack([reference_planar(p.numpy(), reach) for p in points])
    np.testing.assert_allclose(ours.numpy(), slow, atol=3e-6)


@pytest.mark.parametrize("reach", [None, 4.0])
def test_spatial_lidar_equals_the_slow_reference(reach: float | None) -> None:
    points = torch.randn(300, 8, 3, generator=torch.Generator().manual_seed(1)) * 2
    ours = lidar.spatial(points, reach).amax(dim=1)
    slow = np.stack([reference_spatial(p.numpy(), reach) for p in points])
    np.testing.assert_allclose(ours.numpy(), slow, atol=5e-6)


@pytest.mark.parametrize("y", [-1e-9, -1e-30, -0.0, 0.0, 1e-9])
def test_an_object_straight_ahead_reads_fully_on_both_sides_of_the_seam(y: float) -> None:
    """At an angle of 0 or just under 2 pi: its bin reads 1, and so does the one across the seam."""
    reading = lidar.planar(torch.tensor([[[1.0, y]]]), None)[0, 0] / math.exp(-1)
    assert reading[0] == pytest.approx(1.0, abs=1e-5)
    assert reading[15] == pytest.approx(1.0, abs=1e-5)
    assert reading[1:15].abs().max() < 1e-5


def test_objects_straight_above_and_below_read_in_the_end_bins() -> None:
    up = lidar.spatial(torch.tensor([[[0.0, 0.0, 1.0]]]), None).view(10, 6)
    down = lidar.spatial(torch.tensor([[[0.0, 0.0, -1.0]]]), None).view(10, 6)
    assert up[0, 5] == pytest.approx(math.exp(-1))
    assert down[0, 0] == pytest.approx(math.exp(-1))


def test_readings_lie_between_0_and_1() -> None:
    points = torch.randn(50, 3, 3, generator=torch.Generator().manual_seed(2)) * 5
    for reading in (lidar.planar(points[..., :2], None), lidar.spatial(points, 4.0)):
        assert reading.min() >= 0 and reading.max() <= 1


def test_compass_points_at_the_goal_and_is_almost_a_unit_vector() -> None:
    goal = torch.tensor([[3.0, 0.0, 4.0], [0.0, 0.0, 0.0]])
    expected = torch.tensor([[3 / 5.001, 0.0, 4 / 5.001], [0.0, 0.0, 0.0]])
    torch.testing.assert_close(lidar.compass(goal), expected)
