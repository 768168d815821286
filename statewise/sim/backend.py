"""What a physics backend offers. All else in the environment is torch code on top of it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Protocol

import mujoco
import torch
from torch import Tensor

from statewise.extras import need
from statewise.sim.cpu import CpuSim
from statewise.sim.scene import Scene

_DEVICES = "'cpu', 'cuda', 'cuda:1', ..., or 'warp-cpu' (the GPU's code on the CPU, for tests)"


class Simulator(Protocol):
    """A batch of worlds of one compiled model."""

    scene: Scene
    model: mujoco.MjModel
    device: torch.device
    by_mask: bool
    """Whether `reset` takes a mask. On a GPU it does, because reading ids would wait for the device."""

    @property
    def fault(self) -> Tensor:
        """`[B]`: the worlds in which the last `step` failed"""

    @property
    def messages(self) -> dict[int, str]:
        """Why worlds failed in the last call. On a GPU: since this was last read."""

    def reset(self, where: Tensor, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor) -> Tensor:
        """Set worlds to a state, at rest, and return their sensors.

        where: ids `[k]`, with k rows of each. If `by_mask`, a mask `[B]`, with rows for all worlds.
        """

    def step(self, ctrl: Tensor) -> Tensor:
        """Advance every world by one control step, and return the sensors `[B, ns]`."""

    def positions(self) -> dict[str, Tensor]:
        """Copies of qpos `[B, nq]`, mocap_pos `[B, nmocap, 3]` and mocap_quat `[B, nmocap, 4]`."""

    def state(self) -> dict[str, Any]: ...

    def load_state(self, state: dict[str, Any]) -> None: ...

    def worlds(self) -> dict[str, Tensor]:
        """A copy of the state of each world: tensors with one row for each."""

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Put rows `[k, ...]` of `worlds` into the worlds of ids `where [k]`."""

    def data(self, world: int) -> mujoco.MjData: ...


class GpuError(RuntimeError):
    """A GPU cannot be used as asked; the message says what to do."""


def make_simulator(
    scene: Scene,
    num_worlds: int,
    device: str,
    threads: int = 0,
    deterministic: bool = False,
    contact_room: float = 1.0,
) -> Simulator:
    """The backend for `device`: 'cpu', 'cuda', 'cuda:1', or 'warp-cpu'.

    threads: of the CPU backend, which is always deterministic.
    deterministic, contact_room: of the GPU backend (docs/gpu.md).
    """
    if device == "cpu":
        return CpuSim(scene, num_worlds, threads)
    if not re.fullmatch(r"cuda(:\d+)?|warp-cpu", device):
        raise ValueError(f"unknown device {device!r}: use {_DEVICES}")
    need(f"device {device!r}", "gpu")
    from statewise.sim.gpu import WarpSim

    return WarpSim(scene, num_worlds, device, deterministic, contact_room)
