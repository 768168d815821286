"""The names, order, units and scales that connect a policy to a robot."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import torch

from statewise.envs.env import Env

Measured = Literal["clearance", "cost"]
"""What the policy is told of each constraint."""
Charge = Literal["depth", "contact"]
"""How a clearance becomes a cost: distance below the margin up to a ceiling, or 1 below the margin"""
_UNITS = {
    "accelerometer": "m/s^2",
    "velocimeter": "m/s",
    "gyro": "rad/s",
    "magnetometer": "field of length 1",
    "jointpos": "rad (m for sliding joints)",
    "jointvel": "rad/s (m/s for sliding joints)",
    "touch": "N",
}
_JOINT = 0
"""MuJoCo's number for an actuator that drives a joint."""


def observation_blocks(env: Env) -> list[dict[str, Any]]:
    """Where each named block of the observation is, its unit and the sensors that it holds."""
    blocks = []
    simulated = env.simulated
    for name, where in env.spec.blocks.items():
        unit = "0 (far) to 1 (near)" if name.endswith("_lidar") else _UNITS.get(name, "")
        block = {"name": name, "start": where.start, "stop": where.stop, "unit": unit}
        if simulated is not None:
            named = simulated.sim.scene.match(simulated.suite.robot.sensors)
            sensors = [n for n in dict.fromkeys(named) if n.split("_")[0] == name]
            block |= {"sensors": sensors} if sensors else {}
        blocks.append(block)
    return blocks


def robot_facts(env: Env) -> dict[str, Any]:
    """The keys that mjlab's exporter writes, as far as the robot has them.

    An action a from -1 to 1 is the control `action_offset + action_scale * a` of each actuator.
    """
    facts: dict[str, Any] = {
        "joint_names": [],
        "default_joint_pos": [],
        "joint_stiffness": [],
        "joint_damping": [],
        "actuator_names": [],
        "action_scale": [1.0] * env.spec.action_size,
        "action_offset": [0.0] * env.spec.action_size,
        "command_names": [],
        "observation_names": list(env.spec.blocks),
    }
    if env.simulated is None:
        return facts
    model = env.simulated.sim.scene.model
    driven = [
        int(model.actuator_trnid[i, 0]) if model.actuator_trntype[i] == _JOINT else None
        for i in range(model.nu)
    ]
    joints = [model.joint(j) for j in driven if j is not None]
    low, high = np.array(model.actuator_ctrlrange, dtype=float).T
    return facts | {
        "joint_names": [_plain(joint.name) for joint in joints],
        "default_joint_pos": [float(model.qpos0[joint.qposadr[0]]) for joint in joints],
        "joint_stiffness": [float(joint.stiffness[0]) for joint in joints],
        "joint_damping": [float(joint.damping[0]) for joint in joints],
        "actuator_names": [_plain(model.actuator(i).name) for i in range(model.nu)],
        "action_scale": ((high - low) / 2).tolist(),
        "action_offset": ((high + low) / 2).tolist(),
    }


def charges_of(env: Env) -> list[Charge] | None:
    """Return how each clearance becomes a cost. It is not known for Gymnasium environments: None."""
    simulated = env.simulated
    if simulated is None:
        return None
    margin = torch.tensor(env.spec.margin)
    most = torch.tensor(env.spec.cost_ceiling) - margin
    depths = torch.stack([0.25 * most, 0.5 * most, 2.0 * most])
    found: list[Charge] = []
    for i, costs in enumerate(simulated.true_cost(-depths.to(env.device)).cpu().T):
        if torch.allclose(costs, depths[:, i].clamp(max=most[i])):
            found.append("depth")
        elif bool((costs == 1.0).all()):
            found.append("contact")
        else:
            return None
    return found


def _plain(name: str) -> str:
    return name.rpartition("/")[2]
