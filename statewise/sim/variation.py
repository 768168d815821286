"""Physics that varies from episode to episode. Each CPU world has a model of its own.

A variation draws one value for each episode, uniformly from its range, when a world is reset. Pushes are
drawn anew in every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import mujoco
import numpy as np
import torch
from torch import Tensor

from statewise.sim.cpu import _CURRENT, CpuSim
from statewise.sim.scene import Scene

_FACTORS = {
    "friction": ("geom_friction", "pair_friction"),
    "mass": ("body_mass", "body_inertia"),
    "strength": ("actuator_gainprm", "actuator_biasprm", "actuator_forcerange"),
    "damping": ("dof_damping", "dof_frictionloss"),
}
"""Variations that multiply fields of the model."""
_PUSHES_PER_SECOND = 1.0
_DERIVED = ("body_mass", "body_inertia")
"""Fields that other constants of the model are computed from."""


def variations_of(scene: Scene) -> dict[str, str]:
    """The variations that a scene has, each with what it does. One without effect is left out."""
    model = scene.model
    found = {"mass": "factor on the mass and inertia of every part of the robot"}
    if _touches(scene):
        found["friction"] = "factor on the friction of all contacts"
    linear = (mujoco.mjtGain.mjGAIN_FIXED, mujoco.mjtGain.mjGAIN_AFFINE)
    if np.isin(model.actuator_gaintype, [int(kind) for kind in linear]).all():
        found["strength"] = "factor on the force of every actuator"
    if (model.dof_damping > 0).any() or (model.dof_frictionloss > 0).any():
        found["damping"] = "factor on the damping and dry friction of every joint"
    if model.body_dofnum[_root(scene)] > 0:
        found["push"] = "change of the robot's speed by a push, m/s, about once a second"
    found["start"] = "range of the first joint speeds (m/s, rad/s) and inner joint angles (rad)"
    return found


class VariedSim:
    """A `CpuSim` whose worlds vary (the `Simulator` contract).

    ranges: the lowest and highest value of each variation.
    """

    by_mask = False

    def __init__(self, sim: CpuSim, ranges: Mapping[str, tuple[float, float]], seed: int) -> None:
        self.inner, self.scene, self.model, self.device = sim, sim.scene, sim.model, sim.device
        self._batch = sim._batch
        self._names = list(ranges)
        low, high = torch.tensor(list(ranges.values()), dtype=torch.float64).unbind(1)
        self._low, self._width = low, high - low
        self._values = torch.zeros(len(sim.fault), len(ranges), dtype=torch.float64)
        self._generator = torch.Generator().manual_seed(seed)
        model, root = self.model, _root(sim.scene)
        self._root = root
        self._robot_mass = float(model.body_subtreemass[root])
        self._step_seconds = self.scene.control_dt
        inner = [j for j in range(model.njnt) if model.jnt_bodyid[j] != root]
        slide = int(mujoco.mjtJoint.mjJNT_SLIDE)  # and hinges: joints of one number
        simple = [j for j in inner if model.jnt_type[j] >= slide]
        self._inner_qpos = np.array([model.jnt_qposadr[j] for j in simple], dtype=int)
        self._fields: dict[str, list[tuple[np.ndarray, np.ndarray]]] = {}
        for name in self._names:
            fields = [f for f in _FACTORS.get(name, ()) if getattr(model, f).size]
            self._fields[name] = [(self._batch.expand(f), _base(model, f)) for f in fields]
        self._derive = any(f in _DERIVED for name in self._names for f in _FACTORS.get(name, ()))

    @property
    def fault(self) -> Tensor:
        return self.inner.fault

    @property
    def messages(self) -> dict[int, str]:
        return self.inner.messages

    def reset(self, where: Tensor, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor) -> Tensor:
        """Draw the values of new episodes in the worlds `where [k]`, and reset these worlds."""
        self._values[where] = self._low + self._width * self._uniform(len(where), len(self._names))
        self._apply(where)
        if "start" not in self._names:
            return self.inner.reset(where, qpos, mocap_pos, mocap_quat)
        size = self._values[where, self._names.index("start")].unsqueeze(1)
        qpos = qpos.clone()
        angles = size * (2 * self._uniform(len(where), len(self._inner_qpos)) - 1)
        qpos[:, self._inner_qpos] += angles.float()
        self.inner.reset(where, qpos, mocap_pos, mocap_quat)
        index = where.numpy().astype(np.int32)
        speed = size * (2 * self._uniform(len(where), self.model.nv) - 1)
        self._batch.bind("qvel")[index] = speed.numpy()
        self._batch.forward(index, stage=_CURRENT)
        return self.inner._sensordata[where].float()

    def step(self, ctrl: Tensor) -> Tensor:
        """Advance every world by one control step, with a push where one is due."""
        if "push" in self._names:
            self._push(self._values[:, self._names.index("push")])
        return self.inner.step(ctrl)

    def positions(self) -> dict[str, Tensor]:
        return self.inner.positions()

    def state(self) -> dict[str, Any]:
        return self.inner.state() | {
            "values": self._values.clone(),
            "generator": self._generator.get_state(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self.inner.load_state(state)
        self._values = state["values"].clone()
        self._generator.set_state(state["generator"])
        self._apply(torch.arange(len(self._values)))

    def worlds(self) -> dict[str, Tensor]:
        return self.inner.worlds() | {"values": self._values.clone()}

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        self.inner.set_worlds(where, rows)
        self._values[where] = rows["values"]
        self._apply(where)

    def data(self, world: int) -> mujoco.MjData:
        return self.inner.data(world)

    def _uniform(self, *shape: int) -> Tensor:
        return torch.rand(*shape, generator=self._generator, dtype=torch.float64)

    def _apply(self, where: Tensor) -> None:
        """Write the values of some worlds into their models."""
        index = where.numpy().astype(np.int32)
        for column, name in enumerate(self._names):
            factor = self._values[where, column].numpy()
            for field, base in self._fields[name]:
                field[index] = factor.reshape(-1, *[1] * base.ndim) * base
        if self._derive:
            self._batch.set_const(index)

    def _push(self, speed: Tensor) -> None:
        """Push robots by a force in the plane that lasts one control step."""
        due = self._uniform(len(speed)) < _PUSHES_PER_SECOND * self._step_seconds
        size = speed * self._uniform(len(speed)) * due * (self._robot_mass / self._step_seconds)
        angle = 2 * torch.pi * self._uniform(len(speed))
        force = self._batch.bind("xfrc_applied")
        force[:, self._root, 0] = (size * torch.cos(angle)).numpy()
        force[:, self._root, 1] = (size * torch.sin(angle)).numpy()


def _root(scene: Scene) -> int:
    return int(scene.model.body(scene.root).id)


def _base(model: mujoco.MjModel, name: str) -> np.ndarray:
    """Return a copy of a field of the model."""
    return np.array(getattr(model, name), dtype=np.float64)


def _touches(scene: Scene) -> bool:
    """Whether the robot can touch anything: pillars, or the floor within a second from the start."""
    if scene.bodies:
        return True
    data = mujoco.MjData(scene.model)
    data.qpos[:], data.ctrl[:] = scene.qpos, scene.ctrl
    for _ in range(round(1.0 / scene.model.opt.timestep)):
        mujoco.mj_step(scene.model, data)
        if data.ncon:
            return True
    return False
