"""Physics on a GPU, by `mujoco_warp`. Each call launches one graph for all worlds.

It needs the packages of `pip install 'statewise[gpu]'`. This module is imported only if a GPU is
requested. Worlds are float32 and stay on the device. The tensors here are views of their memory.
"""

from __future__ import annotations

import copy
import logging
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import mujoco
import mujoco_warp as mjw
import numpy as np
import torch
import warp as wp
from torch import Tensor

from statewise.sim.backend import GpuError
from statewise.sim.scene import Scene, with_mocap

log = logging.getLogger("statewise")
wp.config.log_level = max(wp.config.log_level, wp.LOG_WARNING)  # it tells of every kernel it loads
wp.init()

_NO_SENSORS = int(mujoco.mjtDisableBit.mjDSBL_SENSOR)
_HUGE = 1e10  # beyond it the CPU backend calls a state bad
_POSES = 256
_DEEP = 0.05  # metres: deeper inside each other bodies are not found
_REPEATED = 5  # steps taken twice to see whether they repeat
_POOLED = 48  # room for contacts, in worlds' average: they share one buffer
_CLEARED = ("qvel", "qacc_warmstart", "time", "qfrc_applied", "xfrc_applied")
_STATE = (*_CLEARED, "qpos", "ctrl", "act", "mocap_pos", "mocap_quat")

_BAD_STATE = 1 << 30
_REASONS = {
    int(mjw.OverflowType.NEFC): "more constraint rows than room for them",
    int(mjw.OverflowType.NJMAX_NNZ): "more constraint entries than room for them",
    int(mjw.OverflowType.BROADPHASE): "more pairs of close bodies in all worlds than room for them",
    int(mjw.OverflowType.NARROWPHASE): "more contacts in all worlds than room for them",
    int(mjw.OverflowType.CCD): "more contacts of convex bodies than room for them",
    int(mjw.OverflowType.HFIELD): "more contacts with a height field than room for them",
    int(mjw.OverflowType.CONTACT_MATCH): "more contacts at a contact sensor than room for them",
    int(mjw.OverflowType.EPA_HORIZON): "a contact of convex bodies too complex for its buffer",
}
_OVERFLOWS = sum(_REASONS)
_REASONS[_BAD_STATE] = "non-finite or huge state"
_ROWS_FULL = int(mjw.OverflowType.NEFC)
_PAIRS_FULL, _CONTACTS_FULL = int(mjw.OverflowType.BROADPHASE), int(mjw.OverflowType.NARROWPHASE)


@wp.kernel(enable_backward=False)
def _faults_kernel(
    qpos: wp.array2d[float],
    qvel: wp.array2d[float],
    qacc: wp.array2d[float],
    overflow: wp.array[int],
    rows: wp.array[int],
    contacts: wp.array[int],
    pairs: wp.array[int],
    most_rows: int,
    most_contacts: int,
    fault: wp.array[bool],
    reason: wp.array[int],
) -> None:
    """Find the worlds in which the last step failed, and collect the reasons so far."""
    world = wp.tid()
    bits = overflow[world] & wp.static(_OVERFLOWS)
    # The engine looks at these when it integrates, so not after the last substep.
    if rows[world] > most_rows:
        bits = bits | wp.static(_ROWS_FULL)
    if contacts[0] > most_contacts:  # one buffer: which worlds lost some is not known
        bits = bits | wp.static(_CONTACTS_FULL)
    if pairs[0] > most_contacts:
        bits = bits | wp.static(_PAIRS_FULL)
    for i in range(qpos.shape[1]):
        if not wp.abs(qpos[world, i]) <= wp.static(_HUGE):  # true of NaN as well
            bits = bits | wp.static(_BAD_STATE)
    for i in range(qvel.shape[1]):
        if not wp.abs(qvel[world, i]) <= wp.static(_HUGE):
            bits = bits | wp.static(_BAD_STATE)
        if not wp.abs(qacc[world, i]) <= wp.static(_HUGE):
            bits = bits | wp.static(_BAD_STATE)
    fault[world] = bits != 0
    reason[world] = reason[world] | bits


class WarpSim:
    """`num_worlds` copies of one scene (the `Simulator` contract)."""

    by_mask = True

    def __init__(
        self,
        scene: Scene,
        num_worlds: int,
        device: str = "cuda",
        deterministic: bool = False,
        contact_room: float = 1.0,
    ) -> None:
        if contact_room <= 0:
            raise ValueError(f"contact_room is {contact_room}: give a factor above 0")
        self.scene = scene
        self.model = scene.model
        self.device = _torch_device(device)
        self._warp_device = wp.get_device(str(self.device))
        self._streams: dict[int, Any] = {}
        try:
            with wp.ScopedDevice(self._warp_device):
                self._build(num_worlds, deterministic, contact_room)
        except RuntimeError as error:
            if not _out_of_memory(error):
                raise
            raise GpuError(self._too_many(num_worlds, contact_room)) from error

    # The contract ------------------------------------------------------------------------------

    def reset(self, where: Tensor, qpos: Tensor, mocap_pos: Tensor, mocap_quat: Tensor) -> Tensor:
        """Set the worlds of a mask `where [B]` to a state, at rest, and return all sensors `[B, ns]`.

        It takes rows for every world, `[B, nq]`, `[B, nmocap, 3]`, `[B, nmocap, 4]`, and uses those of
        the mask. The other worlds and their sensors do not change. It never waits for the device.
        """
        given = {"qpos": qpos, "mocap_pos": mocap_pos, "mocap_quat": mocap_quat} | self._start
        for name, view in self._view.items():
            rows = where.view(-1, *[1] * (view.dim() - 1))
            if name in given:
                view.copy_(torch.where(rows, given[name], view))
            elif name in _CLEARED:
                view.masked_fill_(rows, 0)
        self._launch(self._look_graph)
        return self._sensors.clone()

    def step(self, ctrl: Tensor) -> Tensor:
        """Advance every world by one control step, and return the sensors `[B, ns]`.

        `fault [B]` then tells in which worlds the state is not finite or a buffer was too small.
        Never waits for the device.
        """
        self._view["ctrl"].copy_(ctrl)
        self._launch(self._advance_graph)
        return self._sensors.clone()

    @property
    def messages(self) -> dict[int, str]:
        """Why worlds failed since this was last read. It waits for the device."""
        reasons = self._reasons.tolist()
        self._reasons.zero_()
        return {world: _explain(bits) for world, bits in enumerate(reasons) if bits}

    def positions(self) -> dict[str, Tensor]:
        """Copies of qpos `[B, nq]`, mocap_pos `[B, nmocap, 3]` and mocap_quat `[B, nmocap, 4]`."""
        names = ("qpos", "mocap_pos", "mocap_quat") if self.model.nmocap else ("qpos",)
        return with_mocap({name: self._view[name].clone() for name in names})

    def state(self) -> dict[str, Any]:
        """Return everything that the next step depends on."""
        return {name: view.clone() for name, view in self._view.items()}

    def worlds(self) -> dict[str, Tensor]:
        return self.state()

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        for name, view in self._view.items():
            view.index_copy_(0, where, rows[name])

    def load_state(self, state: dict[str, Any]) -> None:
        mine = {name: tuple(view.shape) for name, view in self._view.items()}
        theirs = {name: tuple(value.shape) for name, value in state.items()}
        if mine != theirs:
            raise ValueError(
                f"saved physics is of shapes {theirs}, this batch of {mine}: restore it into the "
                f"same suite with the same number of worlds on the same kind of device"
            )
        for name, view in self._view.items():
            view.copy_(state[name])

    def data(self, world: int) -> mujoco.MjData:
        """Return one world as an MjData with all positions computed, for drawing or inspection."""
        data = mujoco.MjData(self.model)
        for name, view in self._view.items():
            value = view[world].cpu().numpy()
            if name == "time":
                data.time = float(value)
            else:
                getattr(data, name)[:] = value
        mujoco.mj_forward(self.model, data)
        return data

    # Inside ------------------------------------------------------------------------------------

    def _build(self, num_worlds: int, deterministic: bool, contact_room: float) -> None:
        model = _for_warp(self.model)
        try:
            self._m = mjw.put_model(model)
        except (NotImplementedError, ValueError) as error:
            text = " ".join(str(error).split())
            raise GpuError(
                f"MuJoCo Warp {mjw.__version__} cannot simulate this robot: {text}. Use device 'cpu'"
            ) from error
        self._m.opt.deterministic = deterministic
        self._m.opt.warn_overflow = False  # kernels do not print: `fault` tells
        self._d = _make_data(model, self._m, num_worlds, contact_room)
        self._view = {
            name: wp.to_torch(getattr(self._d, name))
            for name in _STATE
            if math.prod(getattr(self._d, name).shape) > 0
        }
        self._start = {
            name: torch.tensor(value, dtype=torch.float32, device=self.device)
            for name, value in (("ctrl", self.scene.ctrl), ("act", self.scene.act))
        }
        self._sensors = wp.to_torch(self._d.sensordata)
        self._fault = wp.zeros(num_worlds, dtype=wp.bool)
        self._reason = wp.zeros(num_worlds, dtype=wp.int32)
        self.fault = wp.to_torch(self._fault)
        self._reasons = wp.to_torch(self._reason)
        self._prepare(deterministic)

    def _prepare(self, deterministic: bool) -> None:
        """Compile every kernel and record the graphs. The worlds do not change."""
        self._finish()
        start = self.state()
        self._finish()
        began = time.perf_counter()
        self._advance()  # a graph records only kernels that are loaded
        self._finish()
        seconds = time.perf_counter() - began
        if seconds > 5.0:
            log.info("compiled the GPU's physics in %.0f s; it is cached for next time", seconds)
        self._advance_graph = self._record(self._advance)
        self._look_graph = self._record(self._look)
        self._finish()
        if deterministic and not self._repeats(start):
            log.warning(
                "deterministic was asked for, but the same %d steps taken twice from the same state "
                "differ: MuJoCo Warp %s does not put contacts and constraints in order. Runs on this "
                "device will part from each other; on 'cpu' they repeat bit for bit",
                _REPEATED, mjw.__version__,
            )  # fmt: skip
        self.load_state(start)
        self._reasons.zero_()
        self.fault.zero_()
        self._finish()

    def _repeats(self, start: dict[str, Any]) -> bool:
        """Whether a few steps with random controls give the same bits twice."""
        shape = (_REPEATED, *self._view["ctrl"].shape)
        generator = torch.Generator().manual_seed(0)
        controls = torch.rand(shape, generator=generator, dtype=torch.float32) * 2 - 1
        ends = []
        for _ in range(2):
            self.load_state(start)
            for ctrl in controls.to(self.device):
                sensors = self.step(ctrl)
            ends.append(sensors)
        return torch.equal(*ends)

    def _finish(self) -> None:
        """Wait for the device. While building, Warp and torch use streams of their own."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def _record(self, call: Callable[[], None]) -> Any:
        """Record a call as a graph, and launch it once so that it keeps its memory.

        It is recorded on Warp's own stream, because CUDA cannot record on torch's default stream.
        """
        with wp.ScopedCapture(device=self._warp_device) as capture:
            call()
        wp.capture_launch(capture.graph)
        return capture.graph

    def _launch(self, graph: Any) -> None:
        """Launch a graph on torch's stream."""
        if self.device.type == "cpu":
            wp.capture_launch(graph)
            return
        current = torch.cuda.current_stream(self.device)
        if current.cuda_stream not in self._streams:
            self._streams[current.cuda_stream] = wp.stream_from_torch(current)
        wp.capture_launch(graph, stream=self._streams[current.cuda_stream])

    def _advance(self) -> None:
        """Take one control step, and update the sensors to the newest state."""
        flags = self._m.opt.disableflags
        self._m.opt.disableflags = flags | _NO_SENSORS  # only the last ones are read
        for _ in range(self.scene.substeps):
            mjw.step(self._m, self._d)
        self._m.opt.disableflags = flags
        mjw.forward(self._m, self._d)
        self._find_faults()
        self._d.overflow.zero_()  # only now: what the look after a reset left counts in this step

    def _look(self) -> None:
        """Update the sensors to the current state. The state does not change."""
        mjw.forward(self._m, self._d)

    def _find_faults(self) -> None:
        """Write `fault`, and keep the reasons, for the step that was just taken."""
        d = self._d
        wp.launch(
            _faults_kernel,
            dim=d.nworld,
            inputs=[d.qpos, d.qvel, d.qacc, d.overflow, d.nefc, d.nacon, d.ncollision,
                    d.njmax, d.naconmax],
            outputs=[self._fault, self._reason],
        )  # fmt: skip

    def _too_many(self, num_worlds: int, contact_room: float) -> str:
        """Return the message for worlds that do not fit the device."""
        few = 64
        with wp.ScopedDevice("cpu"):
            model = _for_warp(self.model)
            data = _make_data(model, mjw.put_model(model), few, contact_room)
        one = sum(array.capacity for array in _arrays(data)) / few
        one *= 1.5  # the arrays of the solver, which come and go
        total = torch.cuda.get_device_properties(self.device).total_memory
        return (
            f"{num_worlds} worlds do not fit the {total / 2**30:.0f} GiB of {self.device}: about "
            f"{int(total / one)} do, at {one / 1024:.0f} KiB each, if nothing else is on it. Ask "
            f"for fewer worlds"
        )


def _for_warp(model: mujoco.MjModel) -> mujoco.MjModel:
    """Return a copy without a flag that Warp refuses. Warp never resets a world by itself."""
    model = copy.copy(model)
    model.opt.disableflags &= ~int(mujoco.mjtDisableBit.mjDSBL_AUTORESET)
    return model


def _make_data(model: mujoco.MjModel, m: Any, num_worlds: int, contact_room: float) -> Any:
    pairs = len(m.nxn_pairid_filtered)
    contacts, rows = buffer_sizes(model, pairs, num_worlds, contact_room)
    return mjw.make_data(model, nworld=num_worlds, naconmax=contacts, njmax=rows)


def buffer_sizes(
    model: mujoco.MjModel, pairs: int, num_worlds: int, room: float
) -> tuple[int, int]:
    """Contacts of all worlds together, and constraint rows of one world, to make room for.

    The rows cover every joint at its limit, and twice the contacts of the worst random pose. Poses deep
    inside something do not count. There is at least one contact for every geom that moves, because a
    robot that flies hardly touches the floor in a random pose. Contacts and the `pairs` of geoms that
    may touch share one buffer for all worlds. It holds what worlds have on average, and all that some
    worlds can have. Both sizes are multiplied by `room`.
    """
    contact_rows, other_rows = _worst_pose(model)
    limits = int(model.jnt_limited.sum() + model.tendon_limited.sum())
    moving = (model.geom_contype | model.geom_conaffinity) > 0
    moving &= model.body_weldid[model.geom_bodyid] > 0
    once = int(_contact_rows(model, model.geom_condim[moving]).sum())
    rows = max(2 * contact_rows, once) + other_rows + limits + 16
    most = 4 * max(pairs, 4)
    pooled = max(num_worlds * min(most, _POOLED), min(num_worlds, 32) * most)
    return max(1, math.ceil(room * pooled)), max(1, math.ceil(room * rows))


def _worst_pose(model: mujoco.MjModel) -> tuple[int, int]:
    """Return the most constraint rows of contacts, and of equalities and friction, over random poses."""
    data, generator = mujoco.MjData(model), np.random.default_rng(0)
    limited = (model.jnt_limited > 0) & (model.jnt_type >= mujoco.mjtJoint.mjJNT_SLIDE.value)
    joints, ranges = model.jnt_qposadr[limited], model.jnt_range[limited].T
    contacts = others = 0
    for _ in range(_POSES):
        mujoco.mj_resetData(model, data)
        moved = generator.uniform(-math.pi, math.pi, model.nv) * generator.uniform()
        mujoco.mj_integratePos(model, data.qpos, moved, 1.0)
        data.qpos[joints] = data.qpos[joints].clip(*ranges)
        mujoco.mj_forward(model, data)
        rows = _contact_rows(model, data.contact.dim[data.contact.dist > -_DEEP])
        contacts, others = max(contacts, int(rows.sum())), max(others, data.ne + data.nf)
    return contacts, others


def _contact_rows(model: mujoco.MjModel, size: np.ndarray) -> np.ndarray:
    """Return the constraint rows of contacts with these numbers of dimensions."""
    pyramid = model.opt.cone == mujoco.mjtCone.mjCONE_PYRAMIDAL
    return np.maximum(1, 2 * (size - 1)) if pyramid else size


def _torch_device(name: str) -> torch.device:
    """Return the torch device of "cuda", "cuda:1" or "warp-cpu". GpuError if there is no such GPU."""
    if name == "warp-cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available() or not wp.get_cuda_devices():
        raise GpuError(
            f"device {name!r} needs a CUDA GPU, and none is to be found here (torch "
            f"{torch.__version__}, Warp {wp.__version__}): check the driver with nvidia-smi and "
            f"that torch is a CUDA build, or use 'cpu'"
        )
    device = torch.device(name)
    index = torch.cuda.current_device() if device.index is None else device.index
    if index >= torch.cuda.device_count():
        raise GpuError(f"there is no {name}: this machine has {torch.cuda.device_count()} GPU(s)")
    return torch.device("cuda", index)


def _explain(bits: int) -> str:
    """Return the reasons for a fault, and what to do about them."""
    found = [text for bit, text in _REASONS.items() if bits & bit]
    advice = "; make the environment with a larger contact_room" if bits & _OVERFLOWS else ""
    return ", ".join(found) + advice


def _arrays(owner: Any) -> Iterator[Any]:
    """Every Warp array of a (nested) dataclass."""
    for field in fields(owner):
        value = getattr(owner, field.name)
        if isinstance(value, wp.array):
            yield value
        elif is_dataclass(value):
            yield from _arrays(value)


def _out_of_memory(error: RuntimeError) -> bool:
    return "Failed to allocate" in str(error) or "out of memory" in str(error)
