"""What a physics backend offers. All else in the environment is torch code on top of it."""

from __future__ import annotations

from typing import Any, Protocol

import mujoco
import torch
from torch import Tensor

from statewise.sim.cpu import CpuSim
from statewise.sim.scene import Scene


class Simulator(Protocol):
    """A batch of worlds of one compiled model."""

    scene: Scene
    model: mujoco.MjModel
    device: torch.device
    fault: Tensor
    """[B] the worlds in which the last `step` failed"""
    messages: dict[int, str]

    def reset(self, ids: Tensor, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor) -> Tensor: ...

    def step(self, ctrl: Tensor) -> Tensor: ...

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...

    def data(self, world: int) -> mujoco.MjData: ...


def make_simulator(scene: Scene, num_worlds: int, device: str, threads: int = 0) -> Simulator:
    """The backend for `device`: physics on the CPU for "cpu"."""
    if device == "cpu":
        return CpuSim(scene, num_worlds, threads)
    raise ValueError(f"unknown device {device!r}: use 'cpu'")
