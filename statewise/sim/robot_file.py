"""Read a published MJCF file and complete it as a robot. The file itself is never changed.

`read_robot` finds the base, takes the start pose from a keyframe, gives every actuator a control range,
adds the sensors that are missing and removes scenery (floor, lights, sky). `scene.py` puts the result
into a world.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import mujoco
import numpy as np

from statewise.settings import unknown
from statewise.sim.actuators import Controls, find_controls
from statewise.sim.base import Base, find_base
from statewise.sim.errors import RobotFileError
from statewise.sim.sensors import add_sensors, check_names

_JOINT, _GEOM, _TEXTURE = mujoco.mjtJoint, mujoco.mjtGeom, mujoco.mjtTexture
_MAX_TIMESTEP = 0.1


@dataclass(frozen=True)
class RobotFile:
    """An MJCF file and how to use it as a robot."""

    path: Path
    sensors: tuple[str, ...] = ()
    """Sensors of the observation, by name or pattern. Known ones are added."""
    places: tuple[str, ...] = ()
    """Sensors of frames: `<point>_pos`, `_x`, `_y`, `_z`, where a point is a body or site."""
    root: str = ""
    """Body whose frame is the robot's. Empty: the base that the actuators move."""
    keyframe: str = ""
    """Start pose. Empty: the keyframe `home`, or the first, or the pose of the file."""
    start_height: float | None = None
    """Height of a free root at the start. None: the height in the file."""
    action_scale: float = float("inf")
    """Radians by which a full action moves the target of a position actuator."""
    ctrlrange: tuple[float, float] | None = None
    """Control range of actuators that have none in the file."""
    substeps: int = 10
    """Steps of physics in one control step."""


@dataclass(frozen=True)
class ReadRobot:
    """A robot that is ready to be put into a scene."""

    spec: mujoco.MjSpec
    """The completed file, without keyframes and scenery"""
    model: mujoco.MjModel
    """The file as it was, compiled alone"""
    data: mujoco.MjData
    """The start pose, in the model"""
    base: Base
    controls: Controls
    joints: dict[str, np.ndarray]
    """Joint positions of the start pose, by the names of the joints in `spec`"""


def read_robot(file: RobotFile) -> ReadRobot:
    """Read the file and complete it. Raises RobotFileError, which names the file and the fault."""
    spec = _load(file.path)
    _name_everything(spec)
    check_names(spec, file.path)
    written = [_key_sizes(key) for key in spec.keys]  # compiling pads them, and adds some for nkey
    model = _compile(spec, file.path)
    _check_options(model, file.path)
    if len(spec.actuators) != model.nu or model.nu == 0:
        why = "has no actuators" if model.nu == 0 else "has actuators with several controls each"
        raise RobotFileError(f"{file.path} {why}: a robot needs actuators with one control each")
    data, key = _start_pose([k.name for k in spec.keys][: len(written)], model, file)
    if key is not None:
        _check_key(spec.keys[key].name, written[key], model, file.path)
    base = find_base(model, data, file.root, file.path)
    controls = find_controls(spec, model, data, key, base, file)
    if file.start_height is not None and base.kind == "free":
        data.qpos[base.qpos + 2] = file.start_height
    _move_to_origin(model, data, base)
    _check_pose(model, data, file.path)

    _remove_scenery(spec, base)
    for k in list(spec.keys):
        spec.delete(k)
    add_sensors(spec, model, base, file.sensors, file.places, file.path)
    joints = {model.joint(j).name: _joint_qpos(model, data, j) for j in range(model.njnt)}
    if base.kind != "free":
        _free_bodies_to_slides(spec, model, data, joints)
    return ReadRobot(spec, model, data, base, controls, joints)


def control_substeps(path: Path, rate: float) -> int:
    """Steps of physics for each action at this control rate in Hz."""
    spec = _load(path)
    timestep = float(spec.option.timestep)
    if not (0 < timestep <= _MAX_TIMESTEP):
        raise RobotFileError(_bad_timestep(path, timestep))
    exact = 1.0 / (rate * timestep)
    steps = max(1, round(exact))
    if abs(exact - steps) > 0.02 * steps:
        near = f"{1 / (steps * timestep):g} or {1 / ((steps + 1) * timestep):g}"
        raise RobotFileError(
            f"control_rate is {rate:g} Hz, which is no whole number of {timestep:g} s steps of "
            f"{path}: give {near}"
        )
    return steps


# Reading ---------------------------------------------------------------------------------------


def _load(path: Path) -> mujoco.MjSpec:
    if path.is_dir():
        raise RobotFileError(f"robot file {path} is a folder: give the MJCF file in it")
    if not path.is_file():
        raise RobotFileError(f"robot file {path} does not exist")
    try:
        return mujoco.MjSpec.from_file(str(path.resolve()))
    except (ValueError, mujoco.FatalError) as error:
        raise RobotFileError(f"MuJoCo cannot read {path}: {_line(error)}") from error


def _compile(spec: mujoco.MjSpec, path: Path) -> mujoco.MjModel:
    try:
        return spec.compile()
    except (ValueError, mujoco.FatalError) as error:
        raise RobotFileError(f"MuJoCo cannot compile {path}: {_line(error)}") from error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())


def _name_everything(spec: mujoco.MjSpec) -> None:
    """Give names to bodies and joints without one, so that they can be found in the scene."""
    for kind, items in (("body", spec.bodies), ("joint", spec.joints)):
        taken = {item.name for item in items}
        for i, item in enumerate(items):
            if not item.name:
                name = f"{kind}{i}"
                while name in taken:
                    name += "_"
                taken.add(name)
                item.name = name


def _bad_timestep(path: Path, timestep: float) -> str:
    return f"{path}: the timestep is {timestep:g} s: give one above 0 and at most {_MAX_TIMESTEP:g}"


def _check_options(model: mujoco.MjModel, path: Path) -> None:
    if not (0 < model.opt.timestep <= _MAX_TIMESTEP):
        raise RobotFileError(_bad_timestep(path, model.opt.timestep))
    for name in ("gravity", "wind", "magnetic", "density", "viscosity", "impratio"):
        if not np.isfinite(getattr(model.opt, name)).all():
            raise RobotFileError(f"{path}: <option {name}=...> is not finite")


# The start pose --------------------------------------------------------------------------------


def _start_pose(
    names: Sequence[str], model: mujoco.MjModel, file: RobotFile
) -> tuple[mujoco.MjData, int | None]:
    """The robot in its start pose, and the number of the keyframe it is from. names: all keyframes."""
    if file.keyframe and file.keyframe not in names:
        raise RobotFileError(unknown("keyframe", file.keyframe, names, str(file.path)))
    wanted = file.keyframe or "home"
    key = names.index(wanted) if wanted in names else 0 if names else None
    data = mujoco.MjData(model)
    if key is not None:
        data.qpos[:] = model.key_qpos[key]
        data.act[:] = model.key_act[key]
    mujoco.mj_forward(model, data)
    return data, key


def _key_sizes(key: mujoco.MjsKey) -> dict[str, int]:
    """How many numbers a keyframe gives of each kind."""
    return {"qpos": len(key.qpos), "act": len(key.act), "ctrl": len(key.ctrl)}


def _check_key(name: str, sizes: Mapping[str, int], model: mujoco.MjModel, path: Path) -> None:
    """Refuse a keyframe that MuJoCo would fill up with zeros."""
    wanted = {"qpos": model.nq, "act": model.na, "ctrl": model.nu}
    for part, size in sizes.items():
        if size not in (0, wanted[part]):
            raise RobotFileError(
                f"{path}: the keyframe {name!r} has {size} numbers in {part}, and the model has "
                f"{wanted[part]}: write all of them, or choose another one with keyframe="
            )


def _move_to_origin(model: mujoco.MjModel, data: mujoco.MjData, base: Base) -> None:
    """Move everything that is free sideways, so that a free root stands over the origin."""
    if base.kind == "free":
        shift = data.qpos[base.qpos : base.qpos + 2].copy()
        for j in np.flatnonzero(model.jnt_type == _JOINT.mjJNT_FREE):
            at = model.jnt_qposadr[j]
            data.qpos[at : at + 2] -= shift
    mujoco.mj_forward(model, data)


def _check_pose(model: mujoco.MjModel, data: mujoco.MjData, path: Path) -> None:
    if not (np.isfinite(data.qpos).all() and np.isfinite(data.qacc).all()):
        raise RobotFileError(f"{path}: physics is not finite in the start pose")


def _joint_qpos(model: mujoco.MjModel, data: mujoco.MjData, joint: int) -> np.ndarray:
    size = {int(_JOINT.mjJNT_FREE): 7, int(_JOINT.mjJNT_BALL): 4}.get(int(model.jnt_type[joint]), 1)
    at = model.jnt_qposadr[joint]
    return data.qpos[at : at + size].copy()


# Scenery ---------------------------------------------------------------------------------------


def _remove_scenery(spec: mujoco.MjSpec, base: Base) -> None:
    """Remove floor, lights and sky, because the arena has its own.

    A free robot starts anywhere, so other things that are fixed to the world go as well. Those of a
    robot on a mount, such as the table below an arm, move with the mount.
    """
    world = spec.worldbody
    flat = (_GEOM.mjGEOM_PLANE, _GEOM.mjGEOM_HFIELD)
    gone: list[object] = [g for g in world.geoms if base.kind == "free" or g.type in flat]
    gone += [*world.lights, *(t for t in spec.textures if t.type == _TEXTURE.mjTEXTURE_SKYBOX)]
    for body in world.bodies:
        body.mocap = False
        if base.kind == "free" and body.name != base.top and _is_static(body):
            gone.append(body)
    names = {g.name for g in world.geoms if g in gone}
    gone += [p for p in spec.pairs if {p.geomname1, p.geomname2} & names]
    for item in gone:
        spec.delete(item)


def _is_static(body: mujoco.MjsBody) -> bool:
    return not body.joints and all(_is_static(child) for child in body.bodies)


def _free_bodies_to_slides(
    spec: mujoco.MjSpec,
    model: mujoco.MjModel,
    data: mujoco.MjData,
    joints: dict[str, np.ndarray],
) -> None:
    """Attach loose bodies beside a fixed robot to its mount, by three slides and a ball joint.

    MuJoCo allows free joints at the top level only.
    """
    for body in spec.worldbody.bodies:
        free = next((j for j in body.joints if j.type == _JOINT.mjJNT_FREE), None)
        if free is None:
            continue
        i = model.body(body.name).id
        body.pos, body.quat = data.xpos[i], data.xquat[i]
        del joints[free.name]
        name = free.name
        spec.delete(free)
        for part, axis in zip("xyz", np.eye(3), strict=True):
            _plain(body.add_joint(name=f"{name}_{part}", type=_JOINT.mjJNT_SLIDE, axis=axis))
        _plain(body.add_joint(name=f"{name}_turn", type=_JOINT.mjJNT_BALL))


def _plain(joint: mujoco.MjsJoint) -> None:
    """Undo what the file's defaults for joints would add."""
    for name in ("damping", "stiffness", "frictionloss", "armature"):
        value = getattr(joint, name)
        setattr(joint, name, 0.0 if np.ndim(value) == 0 else np.zeros_like(value))
    joint.limited = mujoco.mjtLimited.mjLIMITED_FALSE
    joint.ref = 0.0
