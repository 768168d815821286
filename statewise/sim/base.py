"""Find the base of a robot in a model."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import mujoco
import numpy as np

from statewise.settings import unknown
from statewise.sim.errors import RobotFileError

_JOINT = mujoco.mjtJoint


@dataclass(frozen=True)
class Base:
    """Where a robot is attached to the world."""

    root: str
    """Body whose frame is the robot's"""
    top: str
    """Body at the top of the robot's tree: the root, or one above it"""
    kind: Literal["free", "sliding", "fixed"]
    """How the root moves: freely, on slides of its own, or not at all"""
    qpos: int
    """Where the free joint's position starts in qpos, if there is one"""
    joints: tuple[str, ...]
    """Joints that are part of the robot but not of its base, in the file's order"""


def find_base(model: mujoco.MjModel, data: mujoco.MjData, root: str, path: Path) -> Base:
    """Find the base: the body named `root`, or the one whose tree the actuators move."""
    names = [model.body(b).name for b in range(1, model.nbody)]
    driven = sorted(_driven_trees(model, data))
    if root:
        if root not in names:
            raise RobotFileError(unknown("body", root, names, str(path)))
        body = model.body(root).id
    else:
        body = _descend(model, _choose(model, driven, path))
    top = int(model.body_rootid[body])
    chain = chain_to(model, body)
    types = {int(model.jnt_type[j]) for b in chain for j in _joints_of(model, b)}
    kind: Literal["free", "sliding", "fixed"] = "fixed"
    if int(_JOINT.mjJNT_FREE) in types:
        kind = "free"
    elif int(_JOINT.mjJNT_SLIDE) in types:
        kind = "sliding"
    carried = set() if kind == "fixed" else set(chain)
    joints = [
        model.joint(j).name
        for j in range(model.njnt)
        if model.body_rootid[model.jnt_bodyid[j]] in {*driven, top}
        and model.jnt_bodyid[j] not in carried
        and model.jnt_type[j] != _JOINT.mjJNT_FREE
    ]
    qpos = int(model.jnt_qposadr[model.body_jntadr[top]]) if kind == "free" else -1
    return Base(model.body(body).name, model.body(top).name, kind, qpos, tuple(joints))


def _choose(model: mujoco.MjModel, driven: list[int], path: Path) -> int:
    """The top body of the robot's tree."""
    if not driven:
        raise RobotFileError(f"{path}: no actuator moves anything; name the base with root=")
    if len(driven) == 1:
        return driven[0]
    free = [b for b in driven if _is_free(model, b)]
    if len(free) == 1:
        return free[0]
    names = [model.body(b).name for b in driven]
    if "robot" in names:
        return driven[names.index("robot")]
    raise RobotFileError(
        f"{path}: actuators move several bodies ({', '.join(names)}); say which of them is the "
        f"robot's base, for example root={names[0]!r}"
    )


def _driven_trees(model: mujoco.MjModel, data: mujoco.MjData) -> set[int]:
    """The top bodies of the trees that the actuators move."""
    moved = np.abs(moments(model, data)).sum(axis=0) > 0
    return {int(model.body_rootid[model.dof_bodyid[d]]) for d in np.flatnonzero(moved)}


def moments(model: mujoco.MjModel, data: mujoco.MjData) -> np.ndarray:
    """How each actuator's force acts on each degree of freedom: `[nu, nv]`"""
    dense = np.zeros((model.nu, model.nv))
    mujoco.mju_sparse2dense(
        dense, data.actuator_moment, data.moment_rownnz, data.moment_rowadr, data.moment_colind
    )
    return dense


def _is_free(model: mujoco.MjModel, body: int) -> bool:
    return any(model.jnt_type[j] == _JOINT.mjJNT_FREE for j in _joints_of(model, body))


def _joints_of(model: mujoco.MjModel, body: int) -> range:
    first = int(model.body_jntadr[body])
    return range(first, first + int(model.body_jntnum[body]))


def _descend(model: mujoco.MjModel, body: int) -> int:
    """Skip bodies without geoms, such as the slides of a mobile base. Return the body they carry."""
    while not _is_free(model, body) and model.body_geomnum[body] == 0:
        children = np.flatnonzero(model.body_parentid == body)
        if len(children) != 1:
            break
        body = int(children[0])
    return body


def chain_to(model: mujoco.MjModel, body: int) -> list[int]:
    """The bodies from the world to this one."""
    chain: list[int] = []
    while body:
        chain.append(body)
        body = int(model.body_parentid[body])
    return chain[::-1]
