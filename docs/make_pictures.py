"""Draw the pictures of the documentation: `make pictures`.

    python docs/make_pictures.py [FOLDER]

Everything is seeded, so the same versions draw the same pictures.
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from statewise import VecEnv, get_robot, make_env, robot_names
from statewise.envs.render import Renderer, View
from statewise.sim.draw import body_box
from statewise.sim.scene import ROBOT

SIZE = (640, 480)
TILE = (480, 360)

POSES: dict[str, tuple[list[float], int]] = {
    "Point": ([0.0, 0.0], 1),
    "Swimmer": ([0.12, -0.12], 2),
    "Ant": ([0.1, 0.3, -0.1, -0.3, 0.1, -0.3, -0.1, 0.3], 25),
    "Walker": ([0, 0, -0.30, -0.10, 0, 0, 0, 0.20, -0.12, 0], 14),
    "Humanoid": ([0, 0, 0, 0, 0, -0.45, -0.05, 0, 0, 0.25, -0.05, 0, 0, 0, 0, 0, 0], 10),
    "Drone": ([0.0, 0.0, 0.0, 0.0], 2),
    "Arm3": ([0.0, -1.0, 0.9], 30),
}
"""Each robot's portrait: an action and for how many steps it is held."""

PORTRAITS: dict[str, tuple[float, float, float]] = {
    "Point": (145, -25, 1.9),
    "Swimmer": (70, -42, 1.5),
    "Ant": (155, -32, 1.7),
    "Walker": (140, -14, 1.7),
    "Humanoid": (130, -10, 1.45),
    "Drone": (150, -24, 1.9),
    "Arm3": (125, -14, 1.45),
}
"""Azimuth, elevation, and distance in units of the robot's size."""

SUITES: dict[str, int] = {
    "Point-Hazard-8": 3,
    "Point-Pillar-8": 1,
    "Drone-3DHazard-8": 2,
    "Arm3-Hazard-8": 1,
    "Ant-Hazard-8": 1,
    "Humanoid-Hazard-8": 3,
    "Point-Hazard-8-Pillar-4": 0,
    "Point-Ghost-4": 1,
    "Point-Fence-2": 1,
    "Point-Push-Hazard-4": 2,
    "Point-Chase-Hazard-4": 1,
    "Ant-Run-Speed-2-Tilt-45": 0,
}
"""Suites to draw whole, and the seed of the layout."""

HERO: dict[str, tuple[int, float, float]] = {
    "Point-Hazard-8": (3, 2.0, -24),
    "Swimmer-Hazard-8": (2, 1.9, -26),
    "Ant-Hazard-8": (1, 2.0, -24),
    "Walker-Hazard-8": (1, 2.4, -18),
    "Humanoid-Hazard-8": (3, 3.4, -14),
    "Drone-3DHazard-4": (1, 3.4, -18),
    "Arm3-Hazard-8": (5, 5.0, -18),
    "Point-Pillar-4": (2, 2.6, -34),
}
"""Tiles of the montage: seed, distance and elevation of the camera."""


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in robot_names():
        save(portrait(name), folder / f"robot-{name.lower()}.png")
    for suite, seed in SUITES.items():
        save(whole_suite(suite, seed), folder / f"suite-{suite.lower()}.png")
    save(readout(), folder / "readout.png")
    save(montage(), folder / "hero.png", colours=256)


def portrait(name: str) -> Image.Image:
    """One robot alone on the floor, from close by."""
    env = make_env(f"{name}-{get_robot(name).constraints[0]}-1")
    away = torch.full((1, 1, 3), 60.0)
    env.reset_to(torch.zeros(1, 2), torch.zeros(1), away[:, 0], away)
    hold(env, name)
    azimuth, elevation, distance = PORTRAITS[name]
    with Renderer(env, *SIZE, lidar=False, fine=True) as renderer:
        low, high = body_box(env.sim.model, env.sim.data(0), ROBOT)
        x, y, z = ((low + high) / 2).tolist()
        size = float(np.linalg.norm(high - low))
        renderer.camera = View((x, y, z), distance * size, azimuth, elevation)
        return Image.fromarray(renderer.frame(overlay=False))


def whole_suite(suite: str, seed: int) -> Image.Image:
    """The arena with all that is in it."""
    env = make_env(suite, seed=seed)
    env.reset()
    hold(env, env.suite.robot.name)
    with Renderer(env, *SIZE, fine=True) as renderer:
        return Image.fromarray(renderer.frame(overlay=False))


def readout() -> Image.Image:
    """A frame of a video in which the robot stands in a hazard."""
    env = make_env("Point-Hazard-4")
    goal = torch.tensor([[1.2, 0.9, 0.16]])
    hazards = torch.tensor([[[0.1, 0.2, 0.02], [-1.2, 0.9, 0.02], [0.9, -0.8, 0.02],
                             [-1.0, -0.7, 0.02]]])  # fmt: skip
    env.reset_to(torch.tensor([[-0.75, -0.35]]), torch.tensor([0.6]), goal, hazards)
    with Renderer(env, *SIZE, fine=True) as renderer:
        for _ in range(100):
            renderer.follow(env.step(torch.tensor([[0.02, 0.0]])))
        return Image.fromarray(renderer.frame())


def montage() -> Image.Image:
    """Every robot in a suite, looking towards its goal."""
    image = Image.new("RGB", (4 * TILE[0], 2 * TILE[1]))
    for i, (suite, (seed, distance, elevation)) in enumerate(HERO.items()):
        row, column = divmod(i, 4)
        tile = towards_goal(suite, seed, distance, elevation)
        image.paste(tile, (column * TILE[0], row * TILE[1]))
    return image


def towards_goal(suite: str, seed: int, distance: float, elevation: float) -> Image.Image:
    env = make_env(suite, seed=seed)
    env.reset()
    hold(env, env.suite.robot.name)
    with Renderer(env, *TILE, fine=True) as renderer:
        low, high = body_box(env.sim.model, env.sim.data(0), ROBOT)
        centre = (low + high) / 2
        goal = env.goal[0].numpy()
        azimuth = math.degrees(math.atan2(goal[1] - centre[1], goal[0] - centre[0]))
        between = centre + 0.25 * (goal - centre)
        lookat = (float(between[0]), float(between[1]), float(centre[2]) * 0.8)
        renderer.camera = View(lookat, distance, azimuth - 18.0, elevation)
        return Image.fromarray(renderer.frame(overlay=False))


def hold(env: VecEnv, robot: str) -> None:
    """Bring the robot into the pose of its portrait."""
    action, steps = POSES[robot]
    for _ in range(steps):
        env.step(torch.tensor([action]))


def save(image: Image.Image, path: Path, colours: int = 192) -> None:
    """A small file: few colours, chosen for this picture."""
    few = image.quantize(colours, method=Image.Quantize.MEDIANCUT, dither=Image.Dither.NONE,
                         kmeans=2)  # fmt: skip
    few.save(path, optimize=True)
    print(f"{path}  {path.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent / "pictures")
