"""The robots: one MJCF file and one entry each. `register_robot` adds yours.

A robot file has a root body named `robot`, the sensors named in its entry, the frame sensors
`<point>_pos`, `<point>_x`, `<point>_y`, `<point>_z`, and actuators with a control range.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from statewise.settings import unknown

_FILES = Path(__file__).parent / "robots"

_IMU = ("accelerometer", "velocimeter", "gyro", "magnetometer")
_LEGS = (*_IMU, "jointpos_*", "jointvel_*", "touch_*")
_ConstraintKind = Literal["Hazard", "3DHazard", "Pillar"]


@dataclass(frozen=True)
class Robot:
    """A robot and the numbers of its goal task. Lengths in metres."""

    name: str
    file: Path
    sensors: tuple[str, ...] = _IMU
    """Sensors of the internal observation, by name or pattern, in order."""
    point: str = "root"
    """Prefix of the frame sensors of the point that has to reach the goal and carries the lidar."""
    constraints: tuple[_ConstraintKind, ...] = ("Hazard", "Pillar")
    spatial: bool = False
    """Goals and hazards are spheres in the air, seen by the 3D lidar, instead of on the ground."""
    keepout: float = 0.4
    goal_radius: float = 0.3
    goal_height: tuple[float, float] = (0.0, 0.0)
    """Range of the height of goals and hazards in the air."""
    hazard_radius: float = 0.3
    lone_hazard_radius: float = 0.6
    """Radius of a hazard that is the only one."""
    hazard_keepout: float = 0.4
    lidar_reach: float | None = None
    """Range of a linear lidar; None: readings fall off exponentially."""
    capsules: tuple[tuple[str, str, float], ...] = ()
    """Parts that must stay out of hazards: two position sensors and a radius each. Empty: the
    point itself."""
    pinned: bool = False
    """The robot's base stands at the centre of the arena."""
    reach: float | None = None
    """Goals and hazards lie within this distance of the centre."""

    @property
    def required_sensors(self) -> tuple[str, ...]:
        frame = tuple(f"{self.point}_{part}" for part in ("pos", "x", "y", "z"))
        ends = tuple(name for start, end, _ in self.capsules for name in (start, end))
        return (*self.sensors, *frame, *dict.fromkeys(ends))


_ROBOTS: dict[str, Robot] = {
    robot.name: robot
    for robot in (
        Robot("Point", _FILES / "point.xml"),
        Robot("Swimmer", _FILES / "swimmer.xml", _LEGS, hazard_keepout=0.5),
        Robot("Ant", _FILES / "ant.xml", _LEGS, hazard_keepout=0.5),
        Robot("Walker", _FILES / "walker.xml", _LEGS),
        Robot("Humanoid", _FILES / "humanoid.xml", _LEGS, goal_radius=0.5, lone_hazard_radius=0.3),
        Robot(
            "Drone",
            _FILES / "drone.xml",
            constraints=("3DHazard", "Pillar"),
            spatial=True,
            goal_radius=0.5,
            goal_height=(1.0, 1.0),
            hazard_radius=0.5,
            lone_hazard_radius=0.5,
            hazard_keepout=0.5,
            lidar_reach=4.0,
        ),
        Robot(
            "Arm3",
            _FILES / "arm3.xml",
            ("accelerometer_*", "velocimeter_*", "gyro_*", "magnetometer_*", *_LEGS[4:]),
            point="hand",
            spatial=True,
            goal_radius=0.5,
            goal_height=(0.5, 1.5),
            lone_hazard_radius=0.3,
            capsules=(
                ("link1_pos", "link2_pos", 0.2),
                ("link2_pos", "link3_pos", 0.15),
                ("link3_pos", "link4_pos", 0.2),
                ("link4_pos", "link5_pos", 0.1),
            ),
            pinned=True,
            reach=2.0,
        ),
    )
}


def robot_names() -> list[str]:
    return list(_ROBOTS)


def get_robot(name: str) -> Robot:
    """The robot of that name; an unknown one raises ValueError with the closest names."""
    if name not in _ROBOTS:
        raise ValueError(unknown("robot", name, _ROBOTS))
    return _ROBOTS[name]


def register_robot(
    name: str,
    file: str | Path,
    sensors: Sequence[str] = _IMU,
    replace: bool = False,
    **settings: object,
) -> Robot:
    """Add a robot, so that `{name}-Hazard-8` and every other suite of its name can be built.

    `sensors` are names or patterns of the MJCF's sensors that make up the internal observation;
    `settings` are the other fields of `Robot`. The file is read and checked when a suite is built.
    """
    if not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(
            f"robot name {name!r} must be letters, digits and '_': it starts the suite"
        )
    if name in _ROBOTS and not replace:
        raise ValueError(f"robot {name!r} is registered already; pass replace=True to replace it")
    for setting in settings:
        if setting not in Robot.__dataclass_fields__:
            raise ValueError(unknown("robot setting", setting, Robot.__dataclass_fields__))
    robot = Robot(name, Path(file), tuple(sensors), **settings)  # type: ignore[arg-type]
    _ROBOTS[name] = robot
    return robot
