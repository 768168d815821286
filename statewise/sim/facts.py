"""Facts of a compiled scene that tasks and constraints ask for: joint limits, gears, the robot's size."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import mujoco
import numpy as np

from statewise.sim.scene import MOUNT, ROBOT, Scene

_AT_LIMIT = math.radians(1.0)
"""A start pose this close to a limit is at the limit: a straight knee, for example."""


@dataclass(frozen=True)
class JointLimit:
    """A limited hinge that has a position sensor. Radians.

    A limit that the start pose is at, or beyond, is left out: low is then -inf, or high inf.
    """

    sensor: str
    low: float
    high: float
    start: float
    """Its angle in the start pose"""

    @property
    def room(self) -> float:
        """From the start pose to the nearer limit"""
        return min(self.start - self.low, self.high - self.start)

    @property
    def left_out(self) -> list[str]:
        """The limits that are left out, in words"""
        ends = (("lower", self.low), ("upper", self.high))
        return [f"the {end} limit of {self.sensor}" for end, at in ends if math.isinf(at)]


@dataclass(frozen=True)
class Gear:
    """An actuator that has a force sensor."""

    sensor: str
    gear: float
    """Force or torque at the joint for each unit of the actuator's own force"""
    most: float
    """The largest force or torque at the joint. Infinite if the file does not limit it."""


def joint_limits(scene: Scene) -> list[JointLimit]:
    """Every limited hinge that has a position sensor."""
    model, found = scene.model, []
    sensors = _sensors_of(model, mujoco.mjtSensor.mjSENS_JOINTPOS)
    for joint in _limited_hinges(model):
        if joint in sensors:
            low, high = model.jnt_range[joint].tolist()
            start = float(scene.qpos[model.jnt_qposadr[joint]])
            low = low if start - low > _AT_LIMIT else -math.inf
            high = high if high - start > _AT_LIMIT else math.inf
            found.append(JointLimit(sensors[joint], low, high, start))
    return found


def gears(scene: Scene) -> list[Gear]:
    """Every actuator that has a force sensor."""
    model, found = scene.model, []
    sensors = _sensors_of(model, mujoco.mjtSensor.mjSENS_ACTUATORFRC)
    for actuator, name in sensors.items():
        gear = float(np.linalg.norm(model.actuator_gear[actuator]))
        found.append(Gear(name, gear, gear * _largest_force(model, actuator)))
    return found


def unwatched_joints(scene: Scene) -> list[str]:
    """The limited hinges of the robot that have no position sensor: no constraint can watch them.

    A file that has sensors `jointpos_...` of its own may have them for some joints only.
    """
    model = scene.model
    watched = _sensors_of(model, mujoco.mjtSensor.mjSENS_JOINTPOS)
    mine = _tree(model, model.body(scene.root).id)
    return [
        model.joint(joint).name.removeprefix(ROBOT)
        for joint in _limited_hinges(model)
        if joint not in watched and _tree(model, int(model.jnt_bodyid[joint])) == mine
    ]


def unwatched_actuators(scene: Scene) -> list[str]:
    """The actuators that have no force sensor."""
    model = scene.model
    watched = _sensors_of(model, mujoco.mjtSensor.mjSENS_ACTUATORFRC)
    names = [model.actuator(i).name.removeprefix(ROBOT) or str(i) for i in range(model.nu)]
    return [name for i, name in enumerate(names) if i not in watched]


def _tree(model: mujoco.MjModel, body: int) -> int:
    """The topmost body above this one, below a mount."""
    mount = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, MOUNT)
    while (above := int(model.body_parentid[body])) not in (0, mount):
        body = above
    return body


def _sensors_of(model: mujoco.MjModel, kind: mujoco.mjtSensor) -> dict[int, str]:
    """The first sensor of a kind of each object. One without a name cannot be read: it does not count."""
    found: dict[int, str] = {}
    for i in range(model.nsensor):
        name = model.sensor(i).name.removeprefix(ROBOT)
        if model.sensor_type[i] == kind and name:
            found.setdefault(int(model.sensor_objid[i]), name)
    return found


def _limited_hinges(model: mujoco.MjModel) -> list[int]:
    hinge = mujoco.mjtJoint.mjJNT_HINGE
    return [j for j in range(model.njnt) if model.jnt_type[j] == hinge and model.jnt_limited[j]]


def _largest_force(model: mujoco.MjModel, actuator: int) -> float:
    """The largest force of an actuator, before its gear."""
    if model.actuator_forcelimited[actuator]:
        return float(np.abs(model.actuator_forcerange[actuator]).max())
    fixed = model.actuator_gaintype[actuator] == mujoco.mjtGain.mjGAIN_FIXED
    plain = model.actuator_biastype[actuator] == mujoco.mjtBias.mjBIAS_NONE
    if fixed and plain and model.actuator_ctrllimited[actuator]:
        gain = abs(float(model.actuator_gainprm[actuator, 0]))
        return gain * float(np.abs(model.actuator_ctrlrange[actuator]).max())
    return math.inf


def robot_radius(scene: Scene, point: str) -> float:
    """Largest horizontal distance from the robot's point to any part of it, at the start. Metres."""
    model, data = scene.model, mujoco.MjData(scene.model)
    data.qpos[:] = scene.qpos
    mujoco.mj_forward(model, data)
    centre = data.sensordata[scene.sensors[f"{point}_pos"]][:2]
    furthest = 0.0
    for geom in range(model.ngeom):
        if model.body(model.geom_bodyid[geom]).name.startswith(ROBOT):
            furthest = max(furthest, _far_side(model, data, geom, centre))
    return furthest


def _far_side(model: mujoco.MjModel, data: mujoco.MjData, geom: int, centre: np.ndarray) -> float:
    at, turn = data.geom_xpos[geom], data.geom_xmat[geom].reshape(3, 3)
    if model.geom_type[geom] == mujoco.mjtGeom.mjGEOM_SPHERE:
        return float(np.hypot(*(at[:2] - centre)) + model.geom_size[geom][0])
    middle, half = model.geom_aabb[geom][:3], model.geom_aabb[geom][3:]
    corners = [middle + half * signs for signs in itertools.product((-1, 1), repeat=3)]
    flat = [(at + turn @ corner)[:2] - centre for corner in corners]
    return float(max(np.hypot(x, y) for x, y in flat))
