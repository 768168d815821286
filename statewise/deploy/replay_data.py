"""Recorded episodes as the data of the replay page: poses, objects and numbers, packed small."""

from __future__ import annotations

import base64
import dataclasses
from typing import Any

import numpy as np
import torch

from statewise.envs.vec_env import VecEnv
from statewise.envs.world import World
from statewise.sim import geometry
from statewise.training.recording import Recording

_STILL = 1e-5
"""A body or object that moves less than this, in metres, is stored once"""


def pack(array: np.ndarray, kind: str = "f4") -> dict[str, Any]:
    """An array for the page: raw numbers of a NumPy type, in base64.

    "i2" stores numbers as 16-bit integers and a scale, with an error of at most 2e-5 of the largest.
    """
    scale = 0.0
    if kind == "i2":
        scale = float(np.abs(array).max(initial=0.0)) / 32767 or 1.0
        array = np.rint(array / scale)
    raw = np.ascontiguousarray(array, dtype=f"<{kind}").tobytes()
    return {"type": kind, "scale": scale, "data": base64.b64encode(raw).decode()}


class Drawing:
    """How the worlds of an environment look."""

    def __init__(self, env: VecEnv) -> None:
        self.env, self.model = env, env.sim.model
        self.shapes = geometry.shapes(self.model)
        self.point = geometry.sensor_body(self.model, f"{env.suite.robot.point}_pos")

    def model_data(self) -> dict[str, Any]:
        meshes = [
            {
                "vertices": pack(mesh.vertices, "i2"),
                "faces": pack(mesh.faces, "u2" if len(mesh.vertices) < 2**16 else "u4"),
            }
            for mesh in self.shapes.meshes
        ]
        geoms = [_rounded(dataclasses.asdict(geom)) for geom in self.shapes.geoms]
        size = round(geometry.robot_size(self.model), 3)
        return {"geoms": geoms, "meshes": meshes, "size": size}

    def poses(self, one: Recording) -> dict[str, Any]:
        """Where the bodies are, and the point of the robot that is followed."""
        pos, quat = geometry.body_poses(self.model, one.qpos, one.mocap_pos, one.mocap_quat)
        poses = np.concatenate([pos, quat], axis=2)
        seen = sorted({geom.body for geom in self.shapes.geoms} - {0})
        moves = [body for body in seen if np.ptp(poses[:, body], axis=0).max() > _STILL]
        still = [body for body in seen if body not in moves]
        return {
            "poses": {
                "moving_bodies": moves,
                "moving": pack(poses[:, moves], "i2"),
                "still_bodies": still,
                "still": pack(poses[0, still]),
            },
            "track": pack(pos[:, self.point]),
        }

    def marks(self, one: Recording) -> list[dict[str, Any]]:
        """Goals, hazards and other things that are no part of physics."""
        rules, states = self.env.rules, (one.qpos, one.mocap_pos, one.mocap_quat)
        sensors = torch.from_numpy(geometry.sensor_rows(self.model, *states))
        kinds = [torch.from_numpy(one.objects[kind]) for kind in rules.stage.kinds]
        objects = torch.cat(kinds, dim=1) if kinds else sensors.new_zeros(len(sensors), 0, 3)
        draws, action = torch.from_numpy(one.draws), sensors.new_zeros(1, self.model.nu)
        drawn = []
        for t in range(len(sensors)):
            row, steps = slice(t, t + 1), torch.tensor([t])
            world = World(rules.stage, sensors[row], objects[row], action, steps, draws[row])
            drawn.append(rules.marks(world))
        marks = []
        for path in zip(*drawn, strict=True):
            way = np.array([mark.pos for mark in path])
            way = way if np.ptp(way, axis=0).max() > _STILL else way[:1]
            look = {"shape": path[0].shape, "size": path[0].size, "rgba": path[0].rgba}
            marks.append({**look, "pos": pack(way)})
        return marks


def side_data(one: Recording, drawing: Drawing | None) -> dict[str, Any]:
    """One episode of one policy. Index i of every series belongs to the state after i steps."""
    drawn = {} if drawing is None else {"marks": drawing.marks(one), **drawing.poses(one)}
    return {
        "steps": one.steps,
        "ending": one.ending,
        "reward": pack(_after(one.reward)),
        "cost": [pack(_after(column)) for column in one.cost.T],
        "clearance": [pack(_after(column)) for column in one.clearance.T],
        "value": [pack(np.append(column, np.nan)) for column in one.value.T],
        **drawn,
    }


def _after(column: np.ndarray) -> np.ndarray:
    """Numbers `[T]` of steps as numbers `[T + 1]` of the states that they led to."""
    return np.insert(column.astype(np.float32), 0, np.nan)


def _rounded(geom: dict[str, Any]) -> dict[str, Any]:
    return {
        name: [round(x, 5) for x in value] if isinstance(value, tuple) else value
        for name, value in geom.items()
    }
