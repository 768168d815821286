"""Film the three examples of the pages on your own robot, task and constraint.

    python docs/make_videos.py [quadruped=RUN] [walking_person=RUN] [pushed_box=RUN]

Each becomes an animated picture `NAME.webp` and a still `NAME.png` in docs/pictures. A RUN is the folder
of a trained policy. An example without one is steered by its own hand-written code. Everything is seeded.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from PIL import Image

import statewise
from statewise.envs.render import Renderer, View
from statewise.types import Step

DOCS = Path(__file__).parent
sys.path.insert(0, str(DOCS.parent / "examples"))

import pushed_box  # noqa: E402  from the folder examples
import quadruped  # noqa: E402
import walking_person  # noqa: E402

SIZE = (400, 300)
RATE = 12.5
"""Frames per second, in real time."""

Act = Callable[[Step], torch.Tensor]
"""Actions of the next step"""


@dataclass(frozen=True)
class Film:
    """What to film of an example."""

    suite: str
    steer: Callable[[statewise.VecEnv], Act]
    """The hand-written steering"""
    seed: int
    seconds: float
    still: float
    """When the still is taken. Seconds."""
    beside: bool = False
    """The camera stays beside the robot, instead of over the arena."""


def trot(env: statewise.VecEnv) -> Act:
    return lambda _: quadruped.trot(float(env.look(0, env._sensors).time))


def keep_clear(env: statewise.VecEnv) -> Act:
    goal, people = (env.spec.blocks[name] for name in ("goal_compass", "ghost_lidar"))
    return lambda step: walking_person.steer(step.obs[:, goal], step.obs[:, people], 1.0)


def push(env: statewise.VecEnv) -> Act:
    blocks = env.spec.blocks
    return lambda step: pushed_box.steer({name: step.obs[:, at] for name, at in blocks.items()})


FILMS = {
    "quadruped": Film(quadruped.SUITE, trot, 3, 6.0, 3.0, beside=True),
    "walking_person": Film(walking_person.SUITE, keep_clear, 2, 8.0, 2.0),
    "pushed_box": Film(pushed_box.SUITE, push, 9, 7.0, 4.5),
}


def main(runs: dict[str, str]) -> None:
    for name, film in FILMS.items():
        frames = shoot(name, film, runs.get(name))
        save(frames, film, DOCS / "pictures" / name)


def shoot(name: str, film: Film, run: str | None) -> list[Image.Image]:
    """The frames. An episode that ends is followed by the next one."""
    env = statewise.VecEnv(film.suite, 1, film.seed)
    step = env.reset()
    act = film.steer(env) if run is None else trained(run, name)
    every = max(1, round(1 / (RATE * env.spec.control_dt)))
    frames = []
    with Renderer(env, *SIZE, lidar=False) as renderer:
        for i in range(round(film.seconds / env.spec.control_dt)):
            if film.beside:
                renderer.camera = beside(env)
            if i % every == 0:
                frames.append(Image.fromarray(renderer.frame()))
            step = env.step(act(step))
            renderer.follow(step)
    return frames


def beside(env: statewise.VecEnv) -> View:
    """From the robot's right, a little ahead of it."""
    x, y, z = env.robot_pos[0].tolist()
    ahead_x, ahead_y, _ = env.look(0, env._sensors).axes[0, 0].tolist()
    return View((x, y, z), 1.5, math.degrees(math.atan2(ahead_y, ahead_x)) + 115.0, -18.0)


def trained(run: str, example: str) -> Act:
    policy = statewise.load_policy(run, imports=(example,) if example != "pushed_box" else ())
    return lambda step: policy.algo.act(step, None).executed


def save(frames: list[Image.Image], film: Film, path: Path) -> None:
    frames[0].save(
        path.with_suffix(".webp"), save_all=True, append_images=frames[1:],
        duration=round(1000 / RATE), loop=0, quality=45, method=6,
    )  # fmt: skip
    frames[round(film.still * RATE)].quantize(192, dither=Image.Dither.NONE).save(
        path.with_suffix(".png"), optimize=True
    )
    for file in (path.with_suffix(".webp"), path.with_suffix(".png")):
        print(f"{file}  {file.stat().st_size / 1000:.0f} kB")


def read(args: list[str]) -> dict[str, str]:
    """NAME=RUN pairs. An unknown name ends the program with the known ones."""
    runs = dict(arg.partition("=")[::2] for arg in args)
    if unknown := [name for name in runs if name not in FILMS]:
        sys.exit(f"no example {unknown[0]!r}: give {', '.join(FILMS)}\n{__doc__}")
    return runs


if __name__ == "__main__":
    main(read(sys.argv[1:]))
