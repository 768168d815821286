"""Add the sensors that an environment needs to a robot's model, where its file lacks them."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterator, Sequence
from pathlib import Path

import mujoco

from statewise.sim.base import Base
from statewise.sim.errors import RobotFileError

_S, _OBJ = mujoco.mjtSensor, mujoco.mjtObj
_IMU = {
    "accelerometer": _S.mjSENS_ACCELEROMETER,
    "velocimeter": _S.mjSENS_VELOCIMETER,
    "gyro": _S.mjSENS_GYRO,
    "magnetometer": _S.mjSENS_MAGNETOMETER,
}
_FRAME = {
    "pos": _S.mjSENS_FRAMEPOS,
    "x": _S.mjSENS_FRAMEXAXIS,
    "y": _S.mjSENS_FRAMEYAXIS,
    "z": _S.mjSENS_FRAMEZAXIS,
}
_JOINT = {
    "jointpos": (_S.mjSENS_JOINTPOS, _S.mjSENS_BALLQUAT),
    "jointvel": (_S.mjSENS_JOINTVEL, _S.mjSENS_BALLANGVEL),
}
_IMU_SITE = "statewise_imu"
_RESERVED = ("contact_",)
"""Prefixes of the arena's sensors, which measure contacts with its objects."""
_FORCE = "force"  # force_<actuator>


class LacksSensor(RobotFileError):
    """A sensor that was asked for is not in the file, and cannot be added."""

    def __init__(self, path: Path, pattern: str, has: Sequence[str]) -> None:
        self.path, self.pattern = path, pattern
        self.has = ", ".join(filter(None, has)) or "none"
        super().__init__(
            f"{path} lacks the sensor {pattern!r}. It has: {self.has}. Add it to the file's <sensor> "
            f"section, or name the robot's own sensors when you register it"
        )


def check_names(spec: mujoco.MjSpec, path: Path) -> None:
    """Refuse names that the sensors of the arena use."""
    for sensor in spec.sensors:
        if sensor.name.startswith(_RESERVED):
            raise RobotFileError(
                f"{path}: the sensor name {sensor.name!r} is reserved, as names that begin with "
                f"{' or '.join(map(repr, _RESERVED))} are those of the arena: rename it"
            )


def add_sensors(
    spec: mujoco.MjSpec,
    model: mujoco.MjModel,
    base: Base,
    wanted: Sequence[str],
    places: Sequence[str],
    path: Path,
) -> None:
    """Add the `wanted` sensors, by name or pattern, and the `places` that the file does not have.

    Known are an IMU on the root, `jointpos_<joint>`, `jointvel_<joint>` and `force_<actuator>`.
    A place is `<point>_pos`, `_x`, `_y` or `_z`; a point is `root` or the name of a body or site.
    """
    for name, kind in _IMU.items():
        _check_kind(spec, name, kind, path)
    for place in places:
        _check_kind(spec, place, _FRAME[place.rpartition("_")[2]], path)
    own = [sensor.name for sensor in spec.sensors]
    taken = set(own)
    for pattern in dict.fromkeys([*wanted, *places]):
        if any(fnmatch.fnmatchcase(name, pattern) for name in own):
            continue
        found = [
            s for s in _known(spec, model, base, pattern) if fnmatch.fnmatchcase(s[0], pattern)
        ]
        if not found:
            raise LacksSensor(path, pattern, [sensor.name for sensor in spec.sensors])
        for name, kind, objtype, objname in found:
            if name not in taken:  # a pattern before may have asked for some of them
                taken.add(name)
                spec.add_sensor(name=name, type=kind, objtype=objtype, objname=objname)


def _known(
    spec: mujoco.MjSpec, model: mujoco.MjModel, base: Base, pattern: str
) -> Iterator[tuple[str, mujoco.mjtSensor, mujoco.mjtObj, str]]:
    """Sensors that can be added: name, type, kind and name of the object."""
    if pattern in _IMU:
        yield pattern, _IMU[pattern], _OBJ.mjOBJ_SITE, _imu_site(spec, base)
    for prefix, kinds in _JOINT.items():
        for name in base.joints if pattern.startswith(prefix[:5]) else ():
            ball = model.joint(name).type[0] == mujoco.mjtJoint.mjJNT_BALL
            yield f"{prefix}_{name}", kinds[int(ball)], _OBJ.mjOBJ_JOINT, name
    if pattern.startswith(_FORCE):
        for i, actuator in enumerate(spec.actuators):
            actuator.name = actuator.name or f"actuator{i}"
            name = actuator.name
            yield f"{_FORCE}_{name}", _S.mjSENS_ACTUATORFRC, _OBJ.mjOBJ_ACTUATOR, name
    point, _, part = pattern.rpartition("_")
    if part in _FRAME:
        if point == "root" or spec.body(point) is not None:
            body = base.root if point == "root" else point
            yield pattern, _FRAME[part], _OBJ.mjOBJ_XBODY, body
        elif spec.site(point) is not None:
            yield pattern, _FRAME[part], _OBJ.mjOBJ_SITE, point


def _imu_site(spec: mujoco.MjSpec, base: Base) -> str:
    """The site of the file's own IMU on the root, or a new one at its origin."""
    root = spec.body(base.root)
    mine = {site.name for site in root.sites}
    for sensor in spec.sensors:
        if sensor.type in _IMU.values() and sensor.objname in mine:
            return str(sensor.objname)
    name = _IMU_SITE
    while spec.site(name) is not None:
        name += "_"
    root.add_site(name=name, rgba=[0, 0, 0, 0])
    return name


def _check_kind(spec: mujoco.MjSpec, name: str, kind: mujoco.mjtSensor, path: Path) -> None:
    """A sensor whose name has a meaning must be of that kind: constraints read it by its name."""
    if any(sensor.name == name and sensor.type != kind for sensor in spec.sensors):
        wanted = kind.name.removeprefix("mjSENS_").lower()
        raise RobotFileError(
            f"{path}: the sensor {name!r} is no {wanted}, which this name means here: rename it"
        )
