"""Compose one MuJoCo model from a robot file, a floor and other bodies. Compiled once for each suite.

Goals and hazards do not collide, so they are not part of physics. Mocap bodies place what moves between
episodes: the pillars, and the `mount` that carries a robot whose root is not free. The axes of its root
joints therefore turn with the start heading, and a root spring pulls towards that heading.
"""

from __future__ import annotations

import fnmatch
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import mujoco
import numpy as np
import torch
from torch import Tensor

from statewise.sim.errors import RobotFileError
from statewise.sim.robot_file import ReadRobot, RobotFile, read_robot
from statewise.sim.things import Body, apply

ROBOT = "robot/"  # prefix of every name that comes from the robot's file
MOUNT = "mount"  # body that carries a robot whose root is not free
_SIZES = ("njmax", "nconmax", "nstack", "nkey", "nuserdata", "nuser_body", "nuser_jnt",
          "nuser_geom", "nuser_site", "nuser_cam", "nuser_tendon", "nuser_actuator",
          "nuser_sensor")  # fmt: skip
"""Sizes of a model that a file may set, and that nothing here reads."""
_SURFACE = ("condim", "friction", "margin", "gap", "solmix", "solref", "solimp")


@dataclass(frozen=True)
class Scene:
    """A compiled model and where to find things in it."""

    model: mujoco.MjModel
    sensors: Mapping[str, slice]
    """Sensor name, without prefix, to its slice of `sensordata`."""
    root: str
    """Name of the body whose frame is the robot's"""
    free: tuple[int, ...]
    """Where the position of each free joint of the robot's file starts in qpos"""
    bodies: tuple[int | None, ...]
    """The bodies beside the robot: where the pose of one that moves starts in qpos, else None"""
    substeps: int
    qpos: np.ndarray
    """Start pose `[nq]` of a robot at the origin"""
    ctrl: np.ndarray
    """Controls `[nu]` of an action of 0, with which an episode starts"""
    reach: tuple[np.ndarray, np.ndarray]
    """By how much actions of 1 and of -1 change the controls: `[nu]` each"""
    act: np.ndarray
    """Activations `[na]` at the start"""
    _rest: dict[torch.device, Tensor] = field(default_factory=dict, repr=False, compare=False)
    """The start pose on each device. It is copied there once, because a copy waits for the device."""

    @property
    def control_dt(self) -> float:
        """Seconds of one control step"""
        return float(self.model.opt.timestep * self.substeps)

    @property
    def sha256(self) -> str:
        """Hash of the compiled model. It depends on the version of MuJoCo."""
        content = np.zeros(mujoco.mj_sizeModel(self.model), dtype=np.uint8)
        mujoco.mj_saveModel(self.model, None, content)
        return hashlib.sha256(content.tobytes()).hexdigest()

    def match(self, patterns: Sequence[str]) -> list[str]:
        """Names of the sensors that match, pattern by pattern, in the file's order."""
        return [name for p in patterns for name in self.sensors if fnmatch.fnmatchcase(name, p)]

    def controls(self, device: torch.device) -> Controls:
        """The map from actions to controls, on a device."""
        return Controls(self.ctrl, *self.reach, device)

    def start_state(
        self, robot: Tensor, yaw: Tensor, bodies: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the start of k worlds from `robot [k, 2]`, `yaw [k]` and the other `bodies [k, P, 3]`.

        Returns qpos `[k, nq]`, mocap positions `[k, nmocap, 3]` and quaternions `[k, nmocap, 4]`.
        """
        k, device = len(yaw), yaw.device
        if device not in self._rest:
            self._rest[device] = torch.tensor(self.qpos, dtype=torch.float32, device=device)
        qpos = self._rest[device].repeat(k, 1)
        upright = qpos.new_zeros(k, 4)
        upright[:, 0], upright[:, 3] = torch.cos(yaw / 2), torch.sin(yaw / 2)
        mocap_quat = qpos.new_zeros(k, self.model.nmocap, 4)
        mocap_quat[:, :, 0] = 1.0
        for at in self.free:
            _turn(qpos[:, at : at + 7], robot, yaw, upright)
        for i, place in enumerate(self.bodies):
            if place is not None:
                qpos[:, place : place + 3] = bodies[:, i]
        mocap = bodies[:, [i for i, place in enumerate(self.bodies) if place is None]]
        if self.free:
            return qpos, mocap, mocap_quat
        mount = torch.cat([robot, qpos.new_zeros(k, 1)], dim=1).unsqueeze(1)
        mocap_quat[:, 0] = upright
        return qpos, torch.cat([mount, mocap], dim=1), mocap_quat

    def start_place(
        self, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The `robot [k, 2]` and `yaw [k]` that `start_state` was given."""
        if not self.free:
            turned = mocap_quat[:, 0]
            return mocap_pos[:, 0, :2].float(), 2 * torch.atan2(turned[:, 3], turned[:, 0]).float()
        at = self.free[0]
        rest, pose = torch.as_tensor(self.qpos[at : at + 7]).float(), qpos[:, at : at + 7].float()
        w, x, y, z = rest[3:]
        # The parts w and z of the turn that leads from the resting to the present orientation.
        turned_w = pose[:, 3:] @ torch.stack([w, x, y, z])
        turned_z = pose[:, 3:] @ torch.stack([-z, -y, x, w])
        yaw = 2 * torch.atan2(turned_z, turned_w)
        cos, sin = torch.cos(yaw), torch.sin(yaw)
        moved = torch.stack([cos * rest[0] - sin * rest[1], sin * rest[0] + cos * rest[1]], dim=1)
        return pose[:, :2] - moved, yaw


def with_mocap(positions: dict[str, Tensor]) -> dict[str, Tensor]:
    """Positions `[B, ...]` by name, with empty ones of mocap bodies where a model has none."""
    qpos = positions["qpos"]
    none = {
        "mocap_pos": qpos.new_zeros(len(qpos), 0, 3),
        "mocap_quat": qpos.new_zeros(len(qpos), 0, 4),
    }
    return none | positions


class Controls:
    """Maps actions `[R, nu]` from -1 to 1 to controls. The map is linear on either side of 0."""

    def __init__(
        self, zero: np.ndarray, up: np.ndarray, down: np.ndarray, device: torch.device
    ) -> None:
        self._zero, self._up, self._down = (
            torch.tensor(part, dtype=torch.float32, device=device) for part in (zero, up, down)
        )
        self._even = bool(np.array_equal(up, down))

    def __call__(self, action: Tensor) -> Tensor:
        action = action.clamp(-1.0, 1.0)
        reach = self._up if self._even else torch.where(action > 0, self._up, self._down)
        return self._zero + reach * action


def _turn(pose: Tensor, robot: Tensor, yaw: Tensor, upright: Tensor) -> None:
    """Move poses `[k, 7]` around the origin, in place: turned by `yaw`, then shifted to `robot`."""
    cos, sin = torch.cos(yaw), torch.sin(yaw)
    x, y = pose[:, 0].clone(), pose[:, 1].clone()
    pose[:, 0] = cos * x - sin * y + robot[:, 0]
    pose[:, 1] = sin * x + cos * y + robot[:, 1]
    w, i, j, k = pose[:, 3:].clone().unbind(1)
    c, s = upright[:, 0], upright[:, 3]
    pose[:, 3:] = torch.stack([c * w - s * k, c * i - s * j, c * j + s * i, c * k + s * w], dim=1)


def build_scene(
    robot: RobotFile,
    bodies: Mapping[str, Body] | None = None,
    integrator: str | None = None,
) -> Scene:
    """Compile the scene of a robot on a floor among other bodies, by name."""
    bodies = bodies or {}
    read = read_robot(robot)
    scene = mujoco.MjSpec()
    scene.modelname = read.spec.modelname
    scene.option = read.spec.option
    scene.memory = read.spec.memory
    # A world that fails must be seen to fail, not be put back by the engine.
    scene.option.disableflags |= mujoco.mjtDisableBit.mjDSBL_AUTORESET
    if integrator is not None:
        scene.option.integrator = _integrator(integrator)
    _decorate(scene)

    if read.base.kind == "free":
        frame = scene.worldbody.add_frame()
    else:
        frame = scene.worldbody.add_body(name=MOUNT, mocap=True).add_frame()
    surface = {name: getattr(read.spec.default.geom, name) for name in _SURFACE}
    _take_over(scene, read.spec)
    scene.attach(read.spec, frame=frame, prefix=ROBOT)
    masks = _collision_bits(read)
    _add_floor(scene, surface | masks)
    mass = float(read.model.body_subtreemass[read.model.body(read.base.top).id])
    for name, body in bodies.items():
        geom = body.add(scene, name, surface, ROBOT + read.base.top, mass)
        apply(geom, masks)
    try:
        model = scene.compile()
    except ValueError as error:
        text = " ".join(str(error).split())
        raise RobotFileError(f"{robot.path} cannot be put into a scene: {text}") from error
    if read.spec.compiler.settotalmass > 0:
        _keep_masses(model, read.model)
    return _found(model, read, robot, bodies)


def _take_over(scene: mujoco.MjSpec, robot: mujoco.MjSpec) -> None:
    """Give the robot's file the scene's sizes and looks, because MuJoCo warns of those that differ."""
    robot.visual = scene.visual
    for name in _SIZES:
        setattr(robot, name, getattr(scene, name))


def _keep_masses(model: mujoco.MjModel, alone: mujoco.MjModel) -> None:
    """Give the robot the masses of its file alone: `settotalmass` scales them for a whole model only."""
    for body in range(1, alone.nbody):
        here = mujoco.mj_name2id(model, mujoco.mjtObj.mjOBJ_BODY, ROBOT + alone.body(body).name)
        if here >= 0:
            model.body_mass[here] = alone.body_mass[body]
            model.body_inertia[here] = alone.body_inertia[body]
    mujoco.mj_setConst(model, mujoco.MjData(model))


def _found(
    model: mujoco.MjModel, read: ReadRobot, robot: RobotFile, bodies: Mapping[str, Body]
) -> Scene:
    """Return the compiled scene with the robot's start pose."""
    sensors = {
        model.sensor(i).name.removeprefix(ROBOT): slice(int(adr), int(adr + dim))
        for i, (adr, dim) in enumerate(zip(model.sensor_adr, model.sensor_dim, strict=True))
    }
    qpos, free = model.qpos0.copy(), []
    for name, values in read.joints.items():
        at = int(model.joint(ROBOT + name).qposadr[0])
        qpos[at : at + len(values)] = values
        if len(values) == 7:
            free.append(at)
    controls = read.controls
    return Scene(
        model=model,
        sensors=sensors,
        root=ROBOT + read.base.root,
        free=tuple(free),
        bodies=tuple(
            int(model.joint(name).qposadr[0]) if body.moves else None
            for name, body in bodies.items()
        ),
        substeps=robot.substeps,
        qpos=qpos,
        ctrl=controls.zero,
        reach=(controls.up, controls.down),
        act=controls.act,
    )


def _collision_bits(read: ReadRobot) -> dict[str, int]:
    """Return collision bits for floor and pillars, if the robot would pass through the usual ones."""
    model = read.model
    mine = model.body_rootid[model.geom_bodyid] == model.body(read.base.top).id
    contype, conaffinity = model.geom_contype[mine], model.geom_conaffinity[mine]
    if ((contype | conaffinity) & 1).any() or not (contype | conaffinity).any():
        return {}
    every = int(np.bitwise_or.reduce(contype | conaffinity))
    return {"contype": every, "conaffinity": every}


def _integrator(name: str) -> int:
    known = ("Euler", "RK4", "implicit", "implicitfast")
    if name not in known:
        raise ValueError(f"unknown integrator {name!r}: use one of {', '.join(known)}")
    return int(getattr(mujoco.mjtIntegrator, f"mjINT_{name.upper()}"))


def _decorate(scene: mujoco.MjSpec) -> None:
    """Add lights and the texture of the ground, for pictures only."""
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


def _add_floor(scene: mujoco.MjSpec, surface: Mapping[str, object]) -> None:
    floor = scene.worldbody.add_geom(name="floor", type=mujoco.mjtGeom.mjGEOM_PLANE,
                                     size=[3.5, 3.5, 0.1], material="ground")  # fmt: skip
    apply(floor, surface)
