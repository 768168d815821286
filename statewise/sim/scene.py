"""Compose one MuJoCo model from a robot file, a floor and other bodies. Compiled once for each suite.

Goals and hazards do not collide, so they are no part of physics. What moves between episodes moves
through mocap bodies: the pillars, and the `mount` that carries a robot whose root is not free. So
the axes of its root joints turn with the start heading, and a root spring pulls to that heading.
"""

from __future__ import annotations

import fnmatch
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import mujoco
import torch
from torch import Tensor

from statewise.sim.things import Body

SUBSTEPS = 10
ROBOT = "robot/"  # prefix of every name that comes from the robot's file
_SURFACE = ("condim", "friction", "margin", "gap", "solmix", "solref", "solimp")


class RobotFileError(ValueError):
    """A robot's MJCF file lacks something the environment needs."""


@dataclass(frozen=True)
class Scene:
    """A compiled model and where to find things in it."""

    model: mujoco.MjModel
    sensors: Mapping[str, slice]
    """Sensor name, without prefix, to its slice of `sensordata`."""
    free_root: bool
    bodies: tuple[int | None, ...]
    """The bodies beside the robot: where the pose of one that moves starts in qpos, else None"""
    _rest: dict[torch.device, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """qpos at rest `[nq]` on each device: brought there once, as a copy waits for the device."""

    def match(self, patterns: Sequence[str]) -> list[str]:
        """Names of the sensors that match, pattern by pattern, in the file's order."""
        return [name for p in patterns for name in self.sensors if fnmatch.fnmatchcase(name, p)]

    def start_state(
        self, robot: Tensor, yaw: Tensor, bodies: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Where k worlds begin, from `robot [k, 2]`, `yaw [k]` and the other `bodies [k, P, 3]`.

        Returns qpos `[k, nq]`, mocap positions `[k, nmocap, 3]` and quaternions `[k, nmocap, 4]`.
        """
        k, device = len(yaw), yaw.device
        if device not in self._rest:
            self._rest[device] = torch.tensor(self.model.qpos0, dtype=torch.float32, device=device)
        qpos = self._rest[device].repeat(k, 1)
        upright = qpos.new_zeros(k, 4)
        upright[:, 0], upright[:, 3] = torch.cos(yaw / 2), torch.sin(yaw / 2)
        mocap_quat = qpos.new_zeros(k, self.model.nmocap, 4)
        mocap_quat[:, :, 0] = 1.0
        for i, at in enumerate(self.bodies):
            if at is not None:
                qpos[:, at : at + 3] = bodies[:, i]
        mocap = bodies[:, [i for i, at in enumerate(self.bodies) if at is None]]
        if self.free_root:
            qpos[:, :2] += robot
            qpos[:, 3:7] = upright
            return qpos, mocap, mocap_quat
        mount = torch.cat([robot, qpos.new_zeros(k, 1)], dim=1).unsqueeze(1)
        mocap_quat[:, 0] = upright
        return qpos, torch.cat([mount, mocap], dim=1), mocap_quat


def build_scene(
    robot_file: Path,
    required_sensors: Sequence[str],
    bodies: Mapping[str, Body] | None = None,
    integrator: str | None = None,
) -> Scene:
    """Compile the scene. `required_sensors` are names or patterns that must match something.

    bodies: what stands around the robot, by name.
    """
    bodies = bodies or {}
    robot = _load(robot_file)
    if any(name.startswith("force_") for name in required_sensors):
        _add_forces(robot)
    root = robot.body("robot")
    free_root = any(j.type == mujoco.mjtJoint.mjJNT_FREE for j in root.joints)

    scene = mujoco.MjSpec()
    scene.modelname = robot.modelname
    scene.option = robot.option
    # A world that fails must be seen to fail, not be put back by the engine.
    scene.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    if integrator is not None:
        scene.option.integrator = _integrator(integrator)
    _decorate(scene)

    if free_root:
        frame = scene.worldbody.add_frame()
    else:
        frame = scene.worldbody.add_body(name="mount", mocap=True).add_frame()
    surface = {name: getattr(robot.default.geom, name) for name in _SURFACE}
    scene.attach(robot, frame=frame, prefix=ROBOT)
    _add_floor(scene, surface)
    for name, body in bodies.items():
        body.add(scene, name, surface, f"{ROBOT}robot")

    model = scene.compile()
    sensors = {
        model.sensor(i).name.removeprefix(ROBOT): slice(int(adr), int(adr + dim))
        for i, (adr, dim) in enumerate(zip(model.sensor_adr, model.sensor_dim, strict=True))
    }
    free = tuple(
        int(model.joint(name).qposadr[0]) if body.moves else None for name, body in bodies.items()
    )
    compiled = Scene(model, sensors, free_root, free)
    _check(compiled, robot_file, required_sensors)
    return compiled


def _load(robot_file: Path) -> mujoco.MjSpec:
    if not robot_file.is_file():
        raise RobotFileError(f"robot file {robot_file} does not exist")
    try:
        robot = mujoco.MjSpec.from_file(str(robot_file))
    except ValueError as error:
        raise RobotFileError(f"MuJoCo cannot read {robot_file}: {error}") from error
    if robot.body("robot") is None:
        raise RobotFileError(
            f"{robot_file} has no body named 'robot': name its root body so, as its frame is the "
            f"robot's position and heading"
        )
    return robot


def _integrator(name: str) -> int:
    known = ("Euler", "RK4", "implicit", "implicitfast")
    if name not in known:
        raise ValueError(f"unknown integrator {name!r}: use one of {', '.join(known)}")
    return int(getattr(mujoco.mjtIntegrator, f"mjINT_{name.upper()}"))


def _decorate(scene: mujoco.MjSpec) -> None:
    """Light and ground texture: for pictures only."""
    scene.visual.headlight.ambient = [0.35, 0.35, 0.35]
    scene.visual.headlight.diffuse = [0.32, 0.32, 0.32]
    scene.visual.headlight.specular = [0.1, 0.1, 0.1]
    scene.visual.global_.offwidth, scene.visual.global_.offheight = 1920, 1080
    scene.add_texture(name="sky", type=mujoco.mjtTexture.mjTEXTURE_SKYBOX,
                      builtin=mujoco.mjtBuiltin.mjBUILTIN_GRADIENT, width=256, height=256,
                      rgb1=[0.80, 0.87, 0.94], rgb2=[0.97, 0.98, 1.0])  # fmt: skip
    scene.add_texture(name="ground", type=mujoco.mjtTexture.mjTEXTURE_2D, width=256, height=256,
                      builtin=mujoco.mjtBuiltin.mjBUILTIN_CHECKER,
                      rgb1=[0.86, 0.86, 0.84], rgb2=[0.80, 0.80, 0.78])  # fmt: skip
    ground = scene.add_material(name="ground", texrepeat=[1, 1], texuniform=True, reflectance=0.05)
    ground.textures[mujoco.mjtTextureRole.mjTEXROLE_RGB] = "ground"
    scene.worldbody.add_light(name="sun", pos=[0, -2, 5], dir=[0.1, 0.4, -1], castshadow=True,
                              type=mujoco.mjtLightType.mjLIGHT_DIRECTIONAL,
                              diffuse=[0.5, 0.5, 0.5])  # fmt: skip


def _add_forces(robot: mujoco.MjSpec) -> None:
    """A sensor `force_<actuator>` of the force of each actuator."""
    for i, actuator in enumerate(robot.actuators):
        actuator.name = actuator.name or f"actuator{i}"
        robot.add_sensor(name=f"force_{actuator.name}", type=mujoco.mjtSensor.mjSENS_ACTUATORFRC,
                         objtype=mujoco.mjtObj.mjOBJ_ACTUATOR, objname=actuator.name)  # fmt: skip


def _add_floor(scene: mujoco.MjSpec, surface: Mapping[str, object]) -> None:
    floor = scene.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE,
                                     size=[3.5, 3.5, 0.1], material="ground")  # fmt: skip
    _apply(floor, surface)


def _apply(geom: mujoco.MjsGeom, surface: Mapping[str, object]) -> None:
    for name, value in surface.items():
        setattr(geom, name, value)


def _check(scene: Scene, robot_file: Path, required: Sequence[str]) -> None:
    for pattern in required:
        if not scene.match([pattern]):
            raise RobotFileError(
                f"{robot_file} lacks the sensor {pattern!r}. It has: "
                f"{', '.join(scene.sensors) or 'none'}. Add it to the file's <sensor> section, or "
                f"name the robot's own sensors in its Robot entry"
            )
    limits, limited = scene.model.actuator_ctrlrange, scene.model.actuator_ctrllimited
    if scene.model.nu == 0 or not limited.all() or not (limits[:, 0] < limits[:, 1]).all():
        raise RobotFileError(
            f"{robot_file} needs at least one actuator, each with a ctrlrange: actions in [-1, 1] "
            f"are scaled to it"
        )
