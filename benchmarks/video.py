"""How long a second of video takes to simulate, draw and encode.

    python benchmarks/video.py [--suites ...] [--width 600] [--height 450] [--seconds 4]

A factor below 1 is faster than real time. On a busy machine, read the processor time
instead: drawing without a GPU uses one core.
"""

from __future__ import annotations

import math
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import torch

from statewise.commands.play import VIDEO_RATE
from statewise.envs.render import Renderer, Tally, VideoFile
from statewise.envs.vec_env import VecEnv
from statewise.settings import cli

SUITES = ("Point-Hazard-8", "Drone-3DHazard-8", "Ant-Hazard-8", "Humanoid-Hazard-8")


@dataclass(frozen=True)
class Args:
    suites: tuple[str, ...] = SUITES
    width: int = 600
    height: int = 450
    seconds: float = 4.0
    """Simulated time to draw."""


def main(args: Args) -> None:
    print(f"{args.width} x {args.height} pixels")
    print(f"\n{'suite':20} {'frames/s':>9} {'ms a frame':>11} {'processor ms':>13} {'factor':>7}")
    for suite in args.suites:
        rate, wall, processor = measure(suite, args)
        print(f"{suite:20} {rate:9.1f} {1e3 * wall:11.1f} {1e3 * processor:13.1f} "
              f"{rate * wall:7.2f}")  # fmt: skip


def measure(suite: str, args: Args) -> tuple[float, float, float]:
    """Frames of a second of video, seconds for a frame, processor seconds for a frame."""
    env = VecEnv(suite, 1)
    env.reset()
    every = max(1, math.ceil(1 / env.spec.control_dt / VIDEO_RATE))
    rate = 1 / env.spec.control_dt / every
    frames, action = round(args.seconds * rate), torch.zeros(1, env.spec.action_size)
    with (
        tempfile.TemporaryDirectory() as folder,
        Renderer(env, args.width, args.height) as renderer,
        VideoFile(Path(folder) / "video.mp4", rate) as video,
    ):
        renderer.tally = Tally(env)
        video.add(renderer.frame())  # the first takes longer
        start = time.perf_counter(), time.process_time()
        for _ in range(frames):
            for _ in range(every):
                renderer.tally.add(env.step(action))
            video.add(renderer.frame())
        wall, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    return rate, wall / frames, processor / frames


if __name__ == "__main__":
    main(cli(Args))
