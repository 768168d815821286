"""The shapes of a model and the poses of its bodies, for a viewer outside of MuJoCo."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import mujoco
import numpy as np

from statewise.sim.draw import body_box
from statewise.sim.scene import ROBOT

Kind = Literal["plane", "sphere", "capsule", "ellipsoid", "cylinder", "box", "mesh"]
_KINDS: dict[int, Kind] = {
    mujoco.mjtGeom.mjGEOM_PLANE.value: "plane",
    mujoco.mjtGeom.mjGEOM_SPHERE.value: "sphere",
    mujoco.mjtGeom.mjGEOM_CAPSULE.value: "capsule",
    mujoco.mjtGeom.mjGEOM_ELLIPSOID.value: "ellipsoid",
    mujoco.mjtGeom.mjGEOM_CYLINDER.value: "cylinder",
    mujoco.mjtGeom.mjGEOM_BOX.value: "box",
    mujoco.mjtGeom.mjGEOM_MESH.value: "mesh",
}
_SHOWN_GROUPS = 3
"""Geoms of the first three groups are drawn, as in MuJoCo's viewer. The others are for collisions."""
_DEFAULT_COLOUR = np.array([0.5, 0.5, 0.5, 1.0], dtype=np.float32)


@dataclass(frozen=True)
class Geom:
    """One shape, fixed to a body."""

    kind: Kind
    body: int
    size: tuple[float, float, float]
    """As in MJCF: radius, half length, half sides. A plane of size 0 has no end."""
    pos: tuple[float, ...]
    """[3] in the frame of the body"""
    quat: tuple[float, ...]
    """[4] w, x, y, z"""
    rgba: tuple[float, ...]
    mesh: int = -1
    """Index into `Shapes.meshes`"""


@dataclass(frozen=True, eq=False)
class Mesh:
    """A triangle mesh."""

    vertices: np.ndarray
    """[V, 3] float32"""
    faces: np.ndarray
    """[F, 3] int32"""


@dataclass(frozen=True)
class Shapes:
    """All visible shapes of a model."""

    geoms: tuple[Geom, ...]
    meshes: tuple[Mesh, ...]


def shapes(model: mujoco.MjModel) -> Shapes:
    """The visible geoms of a model, and the meshes that they use.

    Height fields and signed distance functions are left out.
    """
    geoms: list[Geom] = []
    numbers: dict[int, int] = {}
    for i in range(model.ngeom):
        kind, rgba = _KINDS.get(int(model.geom_type[i])), _colour(model, i)
        if kind is None or rgba[3] == 0.0 or model.geom_group[i] >= _SHOWN_GROUPS:
            continue
        mesh = -1
        if kind == "mesh":
            mesh = numbers.setdefault(int(model.geom_dataid[i]), len(numbers))
        x, y, z = model.geom_size[i].tolist()
        place = (tuple(model.geom_pos[i].tolist()), tuple(model.geom_quat[i].tolist()))
        geoms.append(Geom(kind, int(model.geom_bodyid[i]), (x, y, z), *place, rgba, mesh))
    return Shapes(tuple(geoms), tuple(_mesh(model, number) for number in numbers))


def body_poses(
    model: mujoco.MjModel, qpos: np.ndarray, mocap_pos: np.ndarray, mocap_quat: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Positions `[T, nbody, 3]` and quaternions `[T, nbody, 4]` of all bodies.

    From `qpos [T, nq]`, `mocap_pos [T, nmocap, 3]` and `mocap_quat [T, nmocap, 4]`.
    """
    data = mujoco.MjData(model)
    pos = np.empty((len(qpos), model.nbody, 3))
    quat = np.empty((len(qpos), model.nbody, 4))
    for t in range(len(qpos)):
        data.qpos[:] = qpos[t]
        data.mocap_pos[:], data.mocap_quat[:] = mocap_pos[t], mocap_quat[t]
        mujoco.mj_kinematics(model, data)
        pos[t], quat[t] = data.xpos, data.xquat
    return pos, quat


def sensor_rows(
    model: mujoco.MjModel, qpos: np.ndarray, mocap_pos: np.ndarray, mocap_quat: np.ndarray
) -> np.ndarray:
    """Sensors `[T, ns]` of states at rest, as for `body_poses`."""
    data = mujoco.MjData(model)
    rows = np.empty((len(qpos), model.nsensordata), dtype=np.float32)
    for t in range(len(qpos)):
        data.qpos[:] = qpos[t]
        data.mocap_pos[:], data.mocap_quat[:] = mocap_pos[t], mocap_quat[t]
        mujoco.mj_forward(model, data)
        rows[t] = data.sensordata
    return rows


def _colour(model: mujoco.MjModel, geom: int) -> tuple[float, ...]:
    """Return the colour of a geom, or of its material if it has none."""
    own, material = model.geom_rgba[geom], int(model.geom_matid[geom])
    use_material = material >= 0 and np.array_equal(own, _DEFAULT_COLOUR)
    return tuple((model.mat_rgba[material] if use_material else own).tolist())


def _mesh(model: mujoco.MjModel, number: int) -> Mesh:
    start, count = int(model.mesh_vertadr[number]), int(model.mesh_vertnum[number])
    first, faces = int(model.mesh_faceadr[number]), int(model.mesh_facenum[number])
    return Mesh(
        np.array(model.mesh_vert[start : start + count], dtype=np.float32),
        np.array(model.mesh_face[first : first + faces], dtype=np.int32),
    )


def sensor_body(model: mujoco.MjModel, name: str) -> int:
    """The body that a frame sensor of the robot is on."""
    sensor = model.sensor(ROBOT + name)
    number = int(model.sensor_objid[sensor.id])
    if model.sensor_objtype[sensor.id] == mujoco.mjtObj.mjOBJ_SITE.value:
        return int(model.site_bodyid[number])
    if model.sensor_objtype[sensor.id] == mujoco.mjtObj.mjOBJ_GEOM.value:
        return int(model.geom_bodyid[number])
    return number


def robot_size(model: mujoco.MjModel) -> float:
    """The length of the diagonal of a box around the robot, at rest."""
    data = mujoco.MjData(model)
    mujoco.mj_kinematics(model, data)
    low, high = body_box(model, data, ROBOT)
    return float(np.linalg.norm(high - low))
