"""The robots: one MJCF file and one entry each. `register_robot` adds yours.

`Robot` states everything that an environment needs to know. `register_robot` reads the file and fills
in what you leave out.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statewise import settings as checked
from statewise.settings import number, typed, unknown

if TYPE_CHECKING:
    from statewise.sim.measure import Facts
    from statewise.sim.robot_file import RobotFile

_FILES = Path(__file__).parent / "robots"

_IMU = ("accelerometer", "velocimeter", "gyro", "magnetometer")
_JOINTS = ("jointpos_*", "jointvel_*")
_LEGS = (*_IMU, *_JOINTS, "touch_*")
_ACTION_SCALE = 0.25
"""Radians. With 0.5 the noise of a new policy alone makes quadrupeds fall (Barkour: every world tilts by
more than 30 degrees within 200 steps, with 0.25 none does)."""
_CONTROL_DT = 0.02
SHORT, LONG = 6_000_000, 30_000_000


def _length(default: float) -> Any:
    return number(default, above=0.0, most=100.0)


@dataclass(frozen=True)
class Robot:
    """A robot and the numbers of its goal task. Lengths in metres."""

    name: str
    file: Path
    sensors: tuple[str, ...] = _IMU
    """Sensors of the internal observation, by name or pattern, in order."""
    point: str = "root"
    """What has to reach the goal and carries the lidar: `root`, a body or a site. Or the prefix of the
    file's own frame sensors."""
    constraints: tuple[str, ...] = ("Hazard", "Pillar")
    """Kinds of objects that it can have around it."""
    spatial: bool = False
    """Goals and hazards are spheres in the air, seen by the 3D lidar, instead of on the ground."""
    keepout: float = _length(0.4)
    """Room kept free around the robot's start."""
    goal_radius: float = _length(0.3)
    """How close the point has to come."""
    goal_height: tuple[float, float] = number((0.0, 0.0), least=0.0, most=100.0)
    """Range of the height of goals and hazards in the air."""
    goal_keepout: float = _length(0.4)
    """Room kept free around the goal."""
    hazard_radius: float = _length(0.3)
    lone_hazard_radius: float = _length(0.6)
    """Radius of a hazard that is the only one."""
    hazard_keepout: float = _length(0.4)
    """Room kept free around a hazard's centre."""
    lidar_reach: float | None = number(None, above=0.0, most=1000.0)
    """Range of a linear lidar. None: readings fall off exponentially."""
    capsules: tuple[tuple[str, str, float], ...] = ()
    """Parts that must stay out of hazards: two position sensors, such as `<body>_pos`, and a radius
    each. Empty: the point itself."""
    pinned: bool = False
    """The robot's base stands at the centre of the arena."""
    reach: float | None = number(None, above=0.0, most=100.0)
    """Goals and hazards lie within this distance of the centre."""
    extent: float = _length(2.0)
    """Half the side of the square in which things are placed."""
    root: str = ""
    """Body whose frame is the robot's: x forwards, z up. Empty: the base that the actuators move."""
    keyframe: str = ""
    """Keyframe of the start pose. Empty: `home`, or the first, or the pose of the file."""
    start_height: float | None = number(None, least=-100.0, most=100.0)
    """Height of a free root at the start. None: as in the file."""
    action_scale: float = number(math.inf, above=0.0)
    """Radians by which a full action moves the target of a position actuator from the start pose."""
    ctrlrange: tuple[float, ...] | None = number(None, finite=True)
    """Control range (low, high) of actuators that have none in the file."""
    substeps: int = number(10, least=1, most=10_000)
    """Steps of physics in one control step."""
    steps: int = number(SHORT, least=1, most=10**13)
    """Environment steps to train for by default."""

    def __post_init__(self) -> None:
        checked.check(self)
        if self.goal_height[0] > self.goal_height[1]:
            raise ValueError(f"goal_height is {self.goal_height}: give the lower height first")
        if self.ctrlrange is not None and not (
            len(self.ctrlrange) == 2 and self.ctrlrange[0] < self.ctrlrange[1]
        ):
            raise ValueError(f"ctrlrange is {self.ctrlrange}: give two numbers, low and high")
        for start, end, radius in self.capsules:
            for name in (start, end):
                if not name.endswith("_pos"):
                    raise ValueError(
                        f"capsules name position sensors: write {name}_pos for a body or site {name!r}"
                    )
            if not (0 < radius <= 100):
                raise ValueError(
                    f"the capsule from {start} to {end} has the radius {radius}: give a number "
                    f"above 0, at most 100"
                )

    @property
    def mjcf(self) -> RobotFile:
        """The file, and how to use it as this robot."""
        from statewise.sim.robot_file import RobotFile

        frame = [f"{self.point}_{part}" for part in ("pos", "x", "y", "z")]
        ends = [name for start, end, _ in self.capsules for name in (start, end)]
        low_high = None if self.ctrlrange is None else (self.ctrlrange[0], self.ctrlrange[1])
        return RobotFile(
            path=self.file,
            sensors=self.sensors,
            places=tuple(dict.fromkeys([*frame, *ends])),
            root=self.root,
            keyframe=self.keyframe,
            start_height=self.start_height,
            action_scale=self.action_scale,
            ctrlrange=low_high,
            substeps=self.substeps,
        )


_ROBOTS: dict[str, Robot] = {
    robot.name: robot
    for robot in (
        Robot("Point", _FILES / "point.xml"),
        Robot("Swimmer", _FILES / "swimmer.xml", _LEGS, hazard_keepout=0.5),
        Robot("Ant", _FILES / "ant.xml", _LEGS, hazard_keepout=0.5, steps=LONG),
        Robot("Walker", _FILES / "walker.xml", _LEGS, steps=LONG),
        Robot(
            "Humanoid",
            _FILES / "humanoid.xml",
            _LEGS,
            goal_radius=0.5,
            lone_hazard_radius=0.3,
            steps=LONG,
        ),
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


@typed
def get_robot(name: str) -> Robot:
    """The robot of that name; an unknown one raises ValueError with the closest names."""
    if name not in _ROBOTS:
        raise ValueError(unknown("robot", name, _ROBOTS))
    return _ROBOTS[name]


def training_steps(suite: str) -> int:
    """Environment steps to train for by default in a suite, or in another environment."""
    robot = _ROBOTS.get(suite.split("-")[0])
    return SHORT if robot is None else robot.steps


@typed
def register_robot(
    name: str,
    file: str | Path,
    sensors: Sequence[str] | None = None,
    replace: bool = False,
    *,
    control_rate: float | None = None,
    **settings: Any,
) -> Robot:
    """Add a robot, so that `{name}-Hazard-8` and every other suite of its name can be built.

    file: an MJCF file as it was published. It is read and checked now.
    sensors: names or patterns of the sensors that make up the internal observation. None takes an IMU
        at the root, and the angles and rates of all joints. Those that the file lacks are added.
    control_rate: actions a second, 50 by default. `substeps` gives steps of physics instead.
    settings: other fields of `Robot`. What you leave out is found in the file (docs/own_robot.md).
    """
    if not isinstance(name, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(
            f"robot name {name!r} must be letters, digits and '_': it starts the suite"
        )
    if name in _ROBOTS and not replace:
        raise ValueError(f"robot {name!r} is registered already; pass replace=True to replace it")
    fields = Robot.__dataclass_fields__
    for setting in settings:
        if setting not in fields:
            raise ValueError(unknown("robot setting", setting, fields))
    if not isinstance(file, str | Path):
        raise ValueError(f"file is {file!r}: give the path of an MJCF file")
    given = settings | {"name": name, "file": Path(file).expanduser().absolute()}
    if sensors is not None:
        given["sensors"] = sensors
    if control_rate is not None:
        given["substeps"] = _substeps(given["file"], control_rate, settings)
    robot = _complete(given)
    _ROBOTS[name] = robot
    return robot


def _substeps(file: Path, rate: Any, settings: dict[str, Any]) -> int:
    from statewise.sim.robot_file import control_substeps

    if "substeps" in settings:
        raise ValueError("control_rate and substeps are both given: give one of them")
    if isinstance(rate, bool) or not isinstance(rate, int | float) or not (0 < rate <= 10_000):
        raise ValueError(f"control_rate is {rate!r}: give actions a second, from 0 to 10000")
    return control_substeps(file, float(rate))


def _complete(given: dict[str, Any]) -> Robot:
    """Read the file, then fill in what was not given from what it holds."""
    from statewise.sim.measure import measure
    from statewise.sim.robot_file import read_robot

    asked = checked.parse(Robot, given, text=False)
    facts = measure(read_robot(dataclasses.replace(asked.mjcf, sensors=(), places=())))
    robot = checked.parse(Robot, _found(facts, asked) | given, text=False)
    read_robot(robot.mjcf)  # now with the sensors it needs
    return robot


def _found(facts: Facts, asked: Robot) -> dict[str, Any]:
    """Settings that suit a robot with these measures."""
    found: dict[str, Any] = {
        "sensors": (
            *_IMU,
            *(_JOINTS if facts.joints else ()),
            *(["touch_*"] if facts.touch else ()),
        ),
        "keepout": max(0.4, math.ceil(20 * facts.radius) / 20),
        "substeps": max(1, round(_CONTROL_DT / facts.timestep)),
    }
    if facts.kind == "fixed":
        return found | _arm(facts)
    found["action_scale"] = _ACTION_SCALE
    if facts.flies:
        height = sum(asked.goal_height) / 2 or 1.0
        return found | _FLYING | {"start_height": height}
    if facts.kind == "free":
        found |= {"start_height": facts.height, "steps": LONG if facts.joints >= 4 else SHORT}
    return found


_FLYING = {
    "constraints": ("3DHazard", "Pillar"),
    "spatial": True,
    "goal_radius": 0.5,
    "goal_height": (1.0, 1.0),
    "hazard_radius": 0.5,
    "lone_hazard_radius": 0.5,
    "hazard_keepout": 0.5,
    "lidar_reach": 4.0,
}
"""As for the Drone of the paper."""


def _arm(facts: Facts) -> dict[str, Any]:
    """A robot with a fixed base reaches with its tip for things in the air around it."""
    reach = max(0.8 * facts.reach, 0.1)
    low = max(0.0, facts.base_height)
    return {
        "point": facts.tip,
        "spatial": True,
        "pinned": True,
        "reach": low + reach,
        "extent": low + reach,
        "keepout": 0.2 * reach,
        "goal_radius": 0.2 * reach,
        "goal_height": (low + 0.2 * reach, low + 0.6 * reach),
        "goal_keepout": 0.1 * reach,
        "hazard_radius": 0.1 * reach,
        "lone_hazard_radius": 0.2 * reach,
        "hazard_keepout": 0.15 * reach,
    }
