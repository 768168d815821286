"""The goal task: distance, cost and observation, each a function of sensors and object positions.

R rows (worlds, or worlds twice: before and after a reset), objects ordered goal, hazards, pillars.
"""

from __future__ import annotations

import torch
from torch import Tensor

from statewise.core import lidar
from statewise.envs.env import blocks_of
from statewise.envs.suites import Suite
from statewise.sim.scene import Scene

UNUSED_LIDARS = ("vase_lidar", "gremlin_lidar")
"""Lidars of Safety Gym objects that no suite has: the paper's observation holds their zeros."""


class GoalTask:
    """What one suite measures and observes."""

    def __init__(self, suite: Suite, scene: Scene, compact: bool, device: torch.device) -> None:
        robot = suite.robot
        self.suite = suite
        self.num_hazards = suite.count("hazard")
        self.num_pillars = suite.count("pillar")
        self._spatial = robot.spatial
        self._reach = robot.lidar_reach
        self._hazards = slice(1, 1 + self.num_hazards)
        self._pillars = slice(1 + self.num_hazards, 1 + self.num_hazards + self.num_pillars)
        self._radius = {c.name: c.radius for c in suite.constraints}

        names = list(dict.fromkeys(scene.match(robot.sensors)))
        blocks = [_block(name) for name in names]
        names.sort(key=lambda name: blocks.index(_block(name)))  # a block lies in one piece
        self._internal = _columns(scene, names, device)
        self.point = scene.sensors[f"{robot.point}_pos"]
        self._frame = _columns(scene, [f"{robot.point}_{part}" for part in "xyz"], device)
        self._ground = torch.tensor([1.0, 1.0, 0.0], dtype=torch.float32, device=device)
        self._capsules = [
            (scene.sensors[start], scene.sensors[end], radius)
            for start, end, radius in robot.capsules
        ]
        self._contacts = _columns(scene, scene.match(["contact_pillar*"]), device)

        bins = lidar.SPATIAL_BINS if robot.spatial else lidar.PLANAR_BINS
        sizes = _internal_sizes(scene, names) | {"goal_compass": 3, "goal_lidar": bins}
        if self.num_hazards:
            sizes["hazard_lidar"] = bins
        if self.num_pillars:
            sizes["pillar_lidar"] = lidar.PLANAR_BINS
        self.num_zeros = 0
        if not compact and not robot.spatial:
            sizes |= dict.fromkeys(UNUSED_LIDARS, lidar.PLANAR_BINS)
            self.num_zeros = len(UNUSED_LIDARS) * lidar.PLANAR_BINS
        self.blocks = blocks_of(sizes)
        self.obs_size = sum(sizes.values())

    def measure(self, sensors: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Distance to the goal `[R]` and clearances `[R, m]`, from `[R, ns]` and `[R, K, 3]`."""
        reaching = objects[:, : self._hazards.stop] - sensors[:, None, self.point]
        x, y, z = reaching.unbind(-1)
        distance = torch.hypot(x, y)  # several times faster than a norm over so short an axis
        if self._spatial:
            distance = torch.hypot(distance, z)
        clearances = {}
        if self.num_hazards:
            nearest = distance[:, 1:].amin(dim=1)
            if self._capsules:
                nearest = self._gap(sensors, objects[:, self._hazards])
            clearances["hazard"] = nearest - self._radius["hazard"]
        if self.num_pillars:
            x, y, _ = (objects[:, self._pillars] - sensors[:, None, self.point]).unbind(-1)
            gap = torch.hypot(x, y).amin(dim=1) - self._radius["pillar"]
            touch = (sensors[:, self._contacts] > 0).any(dim=1)
            clearances["pillar"] = torch.where(touch, gap.clamp(max=-0.001), gap.clamp(min=0.0))
        clearance = torch.stack([clearances[c.name] for c in self.suite.constraints], dim=1)
        return distance[:, 0], clearance

    def observe(self, sensors: Tensor, objects: Tensor) -> Tensor:
        """The observation `[R, n]`, its blocks in the order of `blocks`."""
        point = sensors[:, None, self.point]
        to_local = sensors[:, self._frame].reshape(-1, 3, 3).transpose(1, 2)
        local = torch.bmm(objects - point, to_local)
        parts = [sensors[:, self._internal], lidar.compass(local[:, 0])]
        # Ground lidars see every centre at height 0, through the robot's full rotation.
        planar = local
        if not self._spatial or self.num_pillars:
            planar = torch.bmm(objects * self._ground - point, to_local[..., :2])
            planar = lidar.planar(planar, self._reach)
        volume = lidar.spatial(local, self._reach) if self._spatial else planar
        parts.append(volume[:, 0])
        if self.num_hazards:
            parts.append(volume[:, self._hazards].amax(dim=1))
        if self.num_pillars:
            parts.append(planar[:, self._pillars].amax(dim=1))
        if self.num_zeros:
            parts.append(sensors.new_zeros(len(sensors), self.num_zeros))
        return torch.cat(parts, dim=1)

    def _gap(self, sensors: Tensor, centres: Tensor) -> Tensor:
        """Least distance `[R]` from any capsule's surface to any of the centres `[R, N, 3]`."""
        gaps = []
        for start, end, radius in self._capsules:
            a, b = sensors[:, None, start], sensors[:, None, end]
            along, to_centre = b - a, centres - a
            share = (to_centre * along).sum(-1) / (along * along).sum(-1).clamp(min=1e-12)
            nearest = share.clamp(0.0, 1.0).unsqueeze(-1) * along
            gap = torch.linalg.vector_norm(to_centre - nearest, dim=-1).amin(dim=1)
            gaps.append(gap - radius)
        return torch.stack(gaps, dim=1).amin(dim=1)


def _block(sensor: str) -> str:
    return sensor.split("_")[0]


def _columns(scene: Scene, names: list[str], device: torch.device) -> slice | Tensor:
    """Where these sensors lie, one after the other: a slice where they do so in the file too."""
    columns = [i for n in names for i in range(scene.sensors[n].start, scene.sensors[n].stop)]
    if columns and columns == list(range(columns[0], columns[-1] + 1)):
        return slice(columns[0], columns[-1] + 1)
    return torch.tensor(columns, dtype=torch.long, device=device)


def _internal_sizes(scene: Scene, names: list[str]) -> dict[str, int]:
    """Sizes of the internal blocks: sensors that share a prefix (`jointpos_`) are one block."""
    sizes: dict[str, int] = {}
    for name in names:
        s, block = scene.sensors[name], _block(name)
        sizes[block] = sizes.get(block, 0) + s.stop - s.start
    return sizes
