"""Facts of a compiled scene that tasks and constraints ask for: joint limits and the robot's size."""

from __future__ import annotations

import itertools

import mujoco
import numpy as np

from statewise.sim.scene import ROBOT, Scene


def joint_limits(scene: Scene) -> dict[str, tuple[float, float]]:
    """The range of every limited hinge that has a position sensor, by the sensor's name. Radians."""
    model, found = scene.model, {}
    for i in range(model.nsensor):
        joint = model.sensor_objid[i]
        if (
            model.sensor_type[i] == mujoco.mjtSensor.mjSENS_JOINTPOS
            and model.jnt_type[joint] == mujoco.mjtJoint.mjJNT_HINGE
            and model.jnt_limited[joint]
        ):
            low, high = model.jnt_range[joint].tolist()
            found[model.sensor(i).name.removeprefix(ROBOT)] = (low, high)
    return found


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
