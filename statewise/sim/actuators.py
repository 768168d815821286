"""Control ranges of a robot's actuators, and what an action of 0 means for each."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import mujoco
import numpy as np

from statewise.sim.base import Base
from statewise.sim.errors import RobotFileError

if TYPE_CHECKING:
    from statewise.sim.robot_file import RobotFile

_TRN, _DYN = mujoco.mjtTrn, mujoco.mjtDyn
_BASE_SPEED = 1.0  # metres or radians a second: the range of a base that has no range of positions


@dataclass(frozen=True)
class Controls:
    """Controls of an action: `zero` at 0, `zero + up` at 1, `zero - down` at -1. Each `[nu]`."""

    zero: np.ndarray
    up: np.ndarray
    down: np.ndarray
    act: np.ndarray
    """Activations of the start pose `[na]`"""


def find_controls(
    spec: mujoco.MjSpec,
    model: mujoco.MjModel,
    data: mujoco.MjData,
    key: int | None,
    base: Base,
    file: RobotFile,
) -> Controls:
    """Give every actuator of the spec a control range, and find the controls of the start pose.

    Position actuators hold the start pose at an action of 0 and move by `action_scale` from there.
    Other actuators have the controls of the keyframe at 0, or the middle of their range.
    """
    given = key is not None and len(list(spec.keys[key].ctrl)) > 0
    zero, up, down = np.zeros(model.nu), np.zeros(model.nu), np.zeros(model.nu)
    act: list[float] = []
    for i, actuator in enumerate(spec.actuators):
        if _drives_endless_base(model, i, base):
            low, high = file.ctrlrange or (-_BASE_SPEED, _BASE_SPEED)
            actuator.dyntype = _DYN.mjDYN_INTEGRATOR  # the target moves at the commanded speed
            act.append(_held(model, data, i))
            scale = math.inf
        else:
            low, high = _range(model, data, i, file)
            zero[i] = (low + high) / 2
            scale = math.inf
            if _is_position(model, i):
                zero[i] = model.key_ctrl[key][i] if given else _held(model, data, i)
                scale = _scale(model, i, base, file.action_scale)
            elif given and low < model.key_ctrl[key][i] < high:
                zero[i] = model.key_ctrl[key][i]
            zero[i] = min(max(zero[i], low), high)
            act += _activations(model, data, i, zero[i])
        actuator.ctrlrange = [low, high]
        actuator.ctrllimited = mujoco.mjtLimited.mjLIMITED_TRUE
        up[i], down[i] = min(high - zero[i], scale), min(zero[i] - low, scale)
    if not (np.isfinite(zero).all() and np.isfinite(act).all()):
        raise RobotFileError(f"{file.path}: the controls of the start pose are not finite")
    return Controls(zero, up, down, np.array(act))


def _is_position(model: mujoco.MjModel, i: int) -> bool:
    """Whether a control is a position to hold: force = gain * ctrl - kp * length - ..."""
    return (
        model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_FIXED
        and model.actuator_biastype[i] == mujoco.mjtBias.mjBIAS_AFFINE
        and model.actuator_biasprm[i][1] < 0
        and model.actuator_gainprm[i][0] > 0
        and model.actuator_dyntype[i] != _DYN.mjDYN_INTEGRATOR
    )


def _drives_endless_base(model: mujoco.MjModel, i: int, base: Base) -> bool:
    """Whether it holds a position of the base that has no limits: that would be an absolute one."""
    if not (_is_position(model, i) and _on_joint(model, i)) or model.actuator_ctrlrange[i].any():
        return False
    joint = int(model.actuator_trnid[i][0])
    return not model.jnt_limited[joint] and model.joint(joint).name not in base.joints


def _on_joint(model: mujoco.MjModel, i: int) -> bool:
    kind = mujoco.mjtTrn(int(model.actuator_trntype[i]))
    return kind in (_TRN.mjTRN_JOINT, _TRN.mjTRN_JOINTINPARENT)


def _held(model: mujoco.MjModel, data: mujoco.MjData, i: int) -> float:
    """The control that holds the present position."""
    bias, gain = model.actuator_biasprm[i], model.actuator_gainprm[i][0]
    return float((-bias[1] * data.actuator_length[i] - bias[0]) / gain)


def _scale(model: mujoco.MjModel, i: int, base: Base, scale: float) -> float:
    """The action scale in units of the control. Slides, tendons and bases use their whole range."""
    if not _on_joint(model, i):
        return math.inf
    joint = model.actuator_trnid[i][0]
    if model.jnt_type[joint] != mujoco.mjtJoint.mjJNT_HINGE:
        return math.inf
    if model.joint(joint).name not in base.joints:
        return math.inf
    per_radian = -model.actuator_biasprm[i][1] / model.actuator_gainprm[i][0]
    return scale * abs(per_radian * model.actuator_gear[i][0])


def _range(
    model: mujoco.MjModel, data: mujoco.MjData, i: int, file: RobotFile
) -> tuple[float, float]:
    """The control range of an actuator: from the file, or from the limits of force or position."""
    low, high = (float(v) for v in model.actuator_ctrlrange[i])
    if (low, high) == (0.0, 0.0):
        found = (
            _position_range(model, data, i) if _is_position(model, i) else _force_range(model, i)
        ) or file.ctrlrange
        name = model.actuator(i).name or str(i)
        if found is None:
            raise RobotFileError(
                f"{file.path}: the actuator {name!r} needs a ctrlrange, to which actions in [-1, 1] "
                f"are scaled, and has no forcerange or joint limits to take one from; add it to "
                f"the file or pass ctrlrange=(low, high)"
            )
        low, high = found
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        name = model.actuator(i).name or str(i)
        raise RobotFileError(
            f"{file.path}: the ctrlrange of the actuator {name!r} is {low:g} to {high:g}: give two "
            f"finite numbers, the smaller one first"
        )
    return low, high


def _position_range(
    model: mujoco.MjModel, data: mujoco.MjData, i: int
) -> tuple[float, float] | None:
    """The range of the joint or tendon. A hinge without limits turns half a circle either way."""
    target, gear = int(model.actuator_trnid[i][0]), float(model.actuator_gear[i][0])
    if _on_joint(model, i) and model.jnt_limited[target]:
        length = model.jnt_range[target] * gear
    elif _on_joint(model, i) and model.jnt_type[target] == mujoco.mjtJoint.mjJNT_HINGE:
        length = data.actuator_length[i] + gear * np.array([-math.pi, math.pi])
    elif model.actuator_trntype[i] == _TRN.mjTRN_TENDON and model.tendon_limited[target]:
        length = model.tendon_range[target] * gear
    else:
        return None
    bias, gain = model.actuator_biasprm[i], model.actuator_gainprm[i][0]
    low, high = sorted((-bias[1] * length - bias[0]) / gain)
    return float(low), float(high)


def _force_range(model: mujoco.MjModel, i: int) -> tuple[float, float] | None:
    """The controls that give the largest forces, for a muscle or an actuator with a fixed gain."""
    gain = float(model.actuator_gainprm[i][0])
    if model.actuator_gaintype[i] == mujoco.mjtGain.mjGAIN_MUSCLE:
        return 0.0, 1.0
    if model.actuator_gaintype[i] != mujoco.mjtGain.mjGAIN_FIXED or gain == 0:
        return None
    force = model.actuator_forcerange[i]
    if not model.actuator_forcelimited[i]:
        joint = int(model.actuator_trnid[i][0])
        if not _on_joint(model, i) or not model.jnt_actfrclimited[joint]:
            return None
        force = model.jnt_actfrcrange[joint] / model.actuator_gear[i][0]
    low, high = sorted(force / gain)
    return float(low), float(high)


def _activations(model: mujoco.MjModel, data: mujoco.MjData, i: int, ctrl: float) -> list[float]:
    """Activations of an actuator at rest, unless the keyframe has some."""
    kind, at = model.actuator_dyntype[i], int(model.actuator_actadr[i])
    if at < 0:
        return []
    values = data.act[at : at + int(model.actuator_actnum[i])].tolist()
    if data.act.any():
        return values
    if kind == _DYN.mjDYN_FILTER or kind == _DYN.mjDYN_FILTEREXACT:
        values[-1] = ctrl
    elif kind == _DYN.mjDYN_INTEGRATOR and model.actuator_biasprm[i][1] < 0:
        values[-1] = _held(model, data, i)
    return values
