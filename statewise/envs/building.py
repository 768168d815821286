"""What an environment is built from: the scene of a suite, its rules, and which layouts may start."""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from statewise.envs.rules import FAR, Rules
from statewise.envs.suites import Suite
from statewise.envs.world import Stage, World
from statewise.sim.backend import make_simulator
from statewise.sim.scene import Scene, build_scene


def suite_scene(suite: Suite, integrator: str | None) -> Scene:
    """The scene of a suite, with all bodies and sensors that its terms ask for."""
    bodies = {
        f"{things.kind}{i}": things.body
        for things in suite.things
        if things.body is not None
        for i in range(things.count)
    }
    wanted = [pattern for term in suite.terms for pattern in term.sensors]
    file = suite.robot.mjcf
    file = dataclasses.replace(file, sensors=tuple(dict.fromkeys([*file.sensors, *wanted])))
    return build_scene(file, bodies, integrator)


def sensors_at_rest(scene: Scene) -> Tensor:
    """Sensors `[1, ns]` of a robot at the origin with nothing around it, by CPU physics."""
    sim = make_simulator(scene, 1, "cpu", threads=1)
    zeros = torch.zeros(1, 2, dtype=torch.float32)
    away = zeros.new_full((1, len(scene.bodies), 3), FAR)
    start = scene.start_state(zeros, zeros[:, 0], away)
    return sim.reset(torch.zeros(1, dtype=torch.long), *start)


def make_rules(
    suite: Suite, scene: Scene, compact: bool, device: torch.device, rest: Tensor
) -> Rules:
    """The rules of a suite on a device. rest: sensors `[1, ns]` of a robot at rest."""
    stage = Stage(
        scene,
        suite.robot,
        suite.things,
        extent=suite.arena.extent,
        max_steps=suite.max_episode_steps,
        device=device,
    )
    return Rules(suite, stage, compact, rest.to(device))


def may_start(
    suite: Suite,
    rules: Rules,
    rest: Tensor,
    robot: Tensor,
    yaw: Tensor,
    objects: Tensor,
    draws: Tensor,
) -> Tensor:
    """Layouts whose episode begins free of cost, short of the goal and with it in reach.

    rest: sensors `[1, ns]` of a robot at rest. No method: threads that draw layouts ahead should not
    keep an environment alive.
    """
    # Seen from the robot: turn the objects instead of the robot.
    moved = objects[..., :2] - robot.unsqueeze(1)
    x, y = moved.unbind(-1)
    cos, sin = torch.cos(yaw).unsqueeze(1), torch.sin(yaw).unsqueeze(1)
    turned = torch.stack([cos * x + sin * y, cos * y - sin * x, objects[..., 2]], dim=-1)
    world = World(rules.stage, rest.expand(len(yaw), -1), turned, draws=draws)
    world.memories = rules.remember(world)
    good = rules.may_start(world)
    if suite.robot.reach is not None and suite.has_goal:
        good &= torch.linalg.vector_norm(objects[:, 0], dim=-1) <= suite.robot.reach
    return good
