"""Measure a robot in its start pose, to choose sensible settings for it."""

from __future__ import annotations

from dataclasses import dataclass

import mujoco
import numpy as np

from statewise.sim.base import Base, chain_to, moments
from statewise.sim.robot_file import ReadRobot

_GAP = 0.001  # so that rounding does not decide whether a foot touches at the start


@dataclass(frozen=True)
class Facts:
    """What the file of a robot says about it. Lengths in metres."""

    timestep: float
    """Seconds of one step of physics"""
    kind: str
    """How its base moves: free, sliding or fixed"""
    flies: bool
    joints: int
    """Joints that are no part of the base"""
    touch: bool
    """Whether the file has sensors `touch_*`"""
    height: float | None
    """Height of the root with the lowest part of the robot just above the ground"""
    radius: float
    """Largest horizontal distance from the root to any part"""
    base_height: float
    tip: str
    """Last body of the longest chain of joints"""
    reach: float
    """Length of that chain"""


def measure(robot: ReadRobot) -> Facts:
    """Measure the robot in its start pose."""
    model, data, base = robot.model, robot.data, robot.base
    root_height = float(data.xpos[model.body(base.root).id][2])
    low = _lowest_point(model, data, base)
    tip, reach = _tip(model, base)
    high = robot.controls.zero + robot.controls.up
    return Facts(
        timestep=float(model.opt.timestep),
        kind=base.kind,
        flies=_lifts_itself(model, data, base, high),
        joints=len(base.joints),
        touch=any(sensor.name.startswith("touch_") for sensor in robot.spec.sensors),
        height=None if low is None else root_height - low + _GAP,
        radius=_radius(model, data, base),
        base_height=root_height,
        tip=tip,
        reach=reach,
    )


def _lowest_point(model: mujoco.MjModel, data: mujoco.MjData, base: Base) -> float | None:
    """Height of the lowest point of the robot that can collide. None if nothing can."""
    geoms = [g for g in _geoms(model, base) if model.geom_contype[g] | model.geom_conaffinity[g]]
    return min((_lowest(model, data, g) for g in geoms), default=None)


def _lowest(model: mujoco.MjModel, data: mujoco.MjData, geom: int) -> float:
    kind, size = model.geom_type[geom], model.geom_size[geom]
    rotation, z = data.geom_xmat[geom].reshape(3, 3), data.geom_xpos[geom][2]
    down = rotation[2]  # the world's vertical, seen from the geom
    types = mujoco.mjtGeom
    if kind == types.mjGEOM_SPHERE:
        extent = size[0]
    elif kind == types.mjGEOM_CAPSULE:
        extent = size[0] + size[1] * abs(down[2])
    elif kind == types.mjGEOM_CYLINDER:
        extent = size[0] * np.hypot(down[0], down[1]) + size[1] * abs(down[2])
    elif kind == types.mjGEOM_ELLIPSOID:
        extent = float(np.linalg.norm(size * down))
    elif kind == types.mjGEOM_MESH:
        mesh = model.geom_dataid[geom]
        first, count = model.mesh_vertadr[mesh], model.mesh_vertnum[mesh]
        extent = -float((model.mesh_vert[first : first + count] @ down).min())
    else:
        centre, half = model.geom_aabb[geom][:3], model.geom_aabb[geom][3:]
        extent = float(np.abs(down) @ half - down @ centre)
    return float(z - extent)


def _radius(model: mujoco.MjModel, data: mujoco.MjData, base: Base) -> float:
    """Largest horizontal distance from the root to any part of the robot."""
    centre = data.xpos[model.body(base.root).id]
    furthest = 0.0
    for g in _geoms(model, base):
        middle, half = model.geom_aabb[g][:3], model.geom_aabb[g][3:]
        signs = np.array(np.meshgrid([-1, 1], [-1, 1], [-1, 1])).reshape(3, -1).T
        corners = (middle + signs * half) @ data.geom_xmat[g].reshape(3, 3).T + data.geom_xpos[g]
        furthest = max(furthest, float(np.hypot(*(corners - centre)[:, :2].T).max()))
    return furthest


def _geoms(model: mujoco.MjModel, base: Base) -> list[int]:
    top = model.body(base.top).id
    return [g for g in range(model.ngeom) if model.body_rootid[model.geom_bodyid[g]] == top]


def _lifts_itself(model: mujoco.MjModel, data: mujoco.MjData, base: Base, high: np.ndarray) -> bool:
    """Whether the actuators can carry a free robot in the air: whether it flies."""
    if base.kind != "free":
        return False
    top = model.body(base.top).id
    vertical = int(model.body_dofadr[top]) + 2
    lift = moments(model, data)[:, vertical] * model.actuator_gainprm[:, 0] * high
    weight = model.body_subtreemass[top] * np.linalg.norm(model.opt.gravity)
    return bool(weight > 0 and lift.clip(min=0).sum() > weight)


def _tip(model: mujoco.MjModel, base: Base) -> tuple[str, float]:
    """The last body of the longest chain of joints above a base, and how far it can reach."""
    root, best, most = model.body(base.root).id, model.body(base.root).id, (0, 0.0)
    reach = 0.0
    for body in range(1, model.nbody):
        chain = chain_to(model, body)
        if root not in chain:
            continue
        below = chain[chain.index(root) + 1 :]
        joints = sum(int(model.body_jntnum[b]) for b in chain)
        length = float(sum(np.linalg.norm(model.body_pos[b]) for b in below))
        if (joints, length) > most:
            best, most, reach = body, (joints, length), length
    return model.body(best).name, reach
