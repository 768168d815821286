"""Physics on the CPU, by `mujoco.batch`. Results are bit-identical for any number of threads."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterator, Mapping
from typing import Any

import mujoco
import mujoco.batch
import numpy as np
import torch
from torch import Tensor

from statewise.sim.scene import Scene, with_mocap

log = logging.getLogger("statewise")

_CURRENT = mujoco.mjtStage.mjSTAGE_ACC.value  # every sensor speaks of the newest state


class CpuSim:
    """`num_worlds` copies of one scene (the `Simulator` contract)."""

    by_mask = False

    def __init__(self, scene: Scene, num_worlds: int, threads: int = 0) -> None:
        _keep_warnings()
        self.scene = scene
        self.model = scene.model
        self.device = torch.device("cpu")
        self.threads = threads or len(os.sched_getaffinity(0))
        self._batch = mujoco.batch.Batch(self.model, num_worlds, self.threads)
        self._ctrl = self._batch.bind("ctrl")
        self._sensordata = torch.from_numpy(_writable(self._batch.bind("sensordata")))
        self._warnings = self._warning_counts()
        self.fault = torch.zeros(num_worlds, dtype=torch.bool)
        self.messages: dict[int, str] = {}
        """Why each world that failed in the last call failed."""

    def reset(self, where: Tensor, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor) -> Tensor:
        """Set the worlds `where [k]` to a state, at rest, and return their sensors `[k, ns]`."""
        index = where.numpy().astype(np.int32)
        self._batch.reset(index, stage=mujoco.mjtStage.mjSTAGE_NONE.value)
        self._batch.bind("qpos")[index] = qpos.numpy()
        self._ctrl[index] = self.scene.ctrl
        if self.model.na:
            self._batch.bind("act")[index] = self.scene.act
        if self.model.nmocap:
            self._batch.bind("mocap_pos")[index] = mocap_pos.numpy()
            self._batch.bind("mocap_quat")[index] = mocap_quat.numpy()
        self._batch.forward(index, stage=_CURRENT)
        self._warnings[index] = self._warning_counts()[index]
        return self._sensordata[where].float()

    def step(self, ctrl: Tensor) -> Tensor:
        """Advance every world by one control step, and return the sensors `[B, ns]`.

        `fault [B]` then tells which worlds raised a MuJoCo error or warning in it.
        """
        self._ctrl[:] = ctrl.numpy()
        self.messages = {}
        self.fault = torch.zeros_like(self.fault)
        try:
            self._batch.step(nstep=self.scene.substeps, stage=_CURRENT)
        except mujoco.batch.SimulationError as error:
            self.messages = {int(i): self._batch.error(int(i)) for i in error.ids}
            self.fault[torch.as_tensor(error.ids, dtype=torch.long)] = True
        raised = self._warning_counts() != self._warnings
        if raised.any():
            for world in np.flatnonzero(raised.any(axis=1)):
                names = [mujoco.mjtWarning(int(w)).name for w in np.flatnonzero(raised[world])]
                self.messages.setdefault(int(world), ", ".join(names))
                self.fault[world] = True
            self._warnings = self._warning_counts()
        return self._sensordata.float()

    def _warning_counts(self) -> np.ndarray:
        """Return `[B, kinds of warning]`: how often each warning was raised so far."""
        return self._batch.warning[:, :, 1].copy()

    def positions(self) -> dict[str, Tensor]:
        """Copies of qpos `[B, nq]`, mocap_pos `[B, nmocap, 3]` and mocap_quat `[B, nmocap, 4]`."""
        names = ("qpos", "mocap_pos", "mocap_quat") if self.model.nmocap else ("qpos",)
        copies = {name: torch.from_numpy(self._batch.bind(name).copy()) for name in names}
        return with_mocap(copies)

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        return {"rows": torch.from_numpy(self._batch.state.copy())}

    def load_state(self, state: dict[str, Any]) -> None:
        if "rows" not in state:
            raise ValueError("saved physics is of another kind of device: restore it on that kind")
        rows = state["rows"].numpy()
        if rows.shape != self._batch.state.shape:
            raise ValueError(
                f"saved physics is of shape {rows.shape}, this batch of {self._batch.state.shape}: "
                f"restore it into the same suite with the same number of worlds"
            )
        self._batch.state[:] = rows

    def worlds(self) -> dict[str, Tensor]:
        """The state of each world, one row each: see `set_worlds`."""
        return self.state()

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Put rows `[k, ...]` of `worlds` into the worlds `where [k]`."""
        self._batch.state[where.numpy()] = rows["rows"].numpy()

    def data(self, world: int) -> mujoco.MjData:
        """Return one world as an MjData with all positions computed, for drawing or inspection."""
        data = self._batch.get_data(world)
        mujoco.mj_forward(self.model, data)
        return data


@contextlib.contextmanager
def one_torch_thread() -> Iterator[None]:
    """Run small tensor code on the calling thread only.

    After a parallel operation torch's other threads keep spinning for a while. They would take cores
    away from physics.
    """
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _keep_warnings() -> None:
    """Log MuJoCo's warnings, unless the user has a handler. Otherwise MuJoCo prints them and appends them
    to MUJOCO_LOG.TXT in the current folder."""
    if mujoco.get_mju_user_warning() is None:
        mujoco.set_mju_user_warning(lambda text: log.debug("MuJoCo: %s", text))


def _writable(array: np.ndarray) -> np.ndarray:
    """Return an array over the batch's memory that torch takes without a warning. Never write to it."""
    array = array.view()
    array.flags.writeable = True
    return array
