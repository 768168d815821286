"""Bodies that an arena adds to a robot's scene: pillars that stand still and boxes to push."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import mujoco

_RGBA = {"pillar": [0.5, 0.5, 1.0, 1.0], "box": [0.93, 0.62, 0.16, 1.0]}


@dataclass(frozen=True)
class PillarBody:
    """A cylinder that never moves within an episode. A sensor tells whether the robot touches it."""

    radius: float
    half_height: float = 0.5
    moves: ClassVar[bool] = False

    def add(
        self,
        scene: mujoco.MjSpec,
        name: str,
        surface: Mapping[str, object],
        robot: str,
        robot_mass: float,
    ) -> mujoco.MjsGeom:
        """robot: the body whose whole tree is the robot. robot_mass: of that tree, in kilograms."""
        body = scene.worldbody.add_body(name=name, mocap=True, pos=[0, 0, self.half_height])
        geom = body.add_geom(type=mujoco.mjtGeom.mjGEOM_CYLINDER, rgba=_RGBA["pillar"],
                             size=[self.radius, self.half_height, 0])  # fmt: skip
        apply(geom, surface)
        geom.contype = 3  # bit 2 is for parts that pillars stop but the floor does not
        # "found": how many contacts there are between the robot's whole tree and the pillar.
        scene.add_sensor(name=f"contact_{name}", type=mujoco.mjtSensor.mjSENS_CONTACT,
                         objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=robot,
                         reftype=mujoco.mjtObj.mjOBJ_BODY, refname=name,
                         intprm=[1, 0, 1])  # fmt: skip
        return geom


@dataclass(frozen=True)
class BoxBody:
    """A free cube to push. A sensor tells where it is."""

    half: float
    """Half of a side. Metres."""
    mass: float = 0.2
    """As a share of the robot's mass, so that every robot can push it."""
    friction: float = 0.2
    moves: ClassVar[bool] = True

    def add(
        self,
        scene: mujoco.MjSpec,
        name: str,
        surface: Mapping[str, object],
        robot: str,
        robot_mass: float,
    ) -> mujoco.MjsGeom:
        body = scene.worldbody.add_body(name=name, pos=[0, 0, self.half])
        body.add_freejoint(name=name)
        geom = body.add_geom(type=mujoco.mjtGeom.mjGEOM_BOX, size=[self.half] * 3,
                             mass=self.mass * robot_mass, rgba=_RGBA["box"])  # fmt: skip
        apply(geom, surface)
        geom.friction = [self.friction, 0.005, 0.0001]
        geom.priority = 1  # this friction counts, whatever the floor's is
        geom.condim = max(3, geom.condim)
        geom.contype = 3
        scene.add_sensor(name=f"placed_{name}", type=mujoco.mjtSensor.mjSENS_FRAMEPOS,
                         objtype=mujoco.mjtObj.mjOBJ_XBODY, objname=name)  # fmt: skip
        return geom


Body = PillarBody | BoxBody


def apply(geom: mujoco.MjsGeom, surface: Mapping[str, object]) -> None:
    """Set attributes of a geom."""
    for name, value in surface.items():
        setattr(geom, name, value)
