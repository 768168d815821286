"""`statewise play`: a policy in an environment, as a video, in a window or as numbers."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from rich.progress import track
from torch import Tensor

from statewise import settings
from statewise.cli_tables import play_table
from statewise.console import console, say
from statewise.envs.env import Env
from statewise.envs.make import make_env
from statewise.envs.render import (
    Camera,
    Episode,
    Renderer,
    Tally,
    VideoFile,
    Viewer,
    check_video_path,
)
from statewise.envs.robots import robot_names
from statewise.envs.vec_env import VecEnv
from statewise.extras import need
from statewise.plugins import PluginOptions, import_modules, is_gym
from statewise.settings import number, option
from statewise.training.policy import load_policy, random_policy
from statewise.types import Step
from statewise.zoo import pretrained

VIDEO_RATE = 15.0
"""Frames per second of a video at most: faster robots are shown every few steps. Two cores without a
GPU draw so many in real time (benchmarks/video.py)."""
_SPEED_WORLDS = 256
_SPEED_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Play(PluginOptions):
    """Watch a policy: as a video, in a window, or as numbers only."""

    what: str = option(positional=True, metavar="SUITE|RUN")
    """A suite such as Point-Hazard-8, or a Gymnasium environment gym:ID. A run folder, or one of its
    checkpoint files, plays its policy."""
    policy: str = ""
    """Actions in a suite: random, each held for 0.1 s (the default), zero, or the name of an algorithm
    whose trained policy comes with statewise, such as scpo."""
    video: Path | None = None
    """Write a video to this file (.mp4 or .gif)."""
    window: bool = False
    """Open a window, in real time."""
    seconds: float = number(20.0, above=0.0, finite=True)
    """How much simulated time to play."""
    seed: int = number(0, least=0, most=2**32 - 1)
    """Seed of layouts and actions: the same seed plays the same scenes."""
    camera: Camera = "arena"
    """Where the video looks from: over the arena, behind the robot, or from the top."""
    width: int = number(600, least=16, most=7680)
    """Width of the video in pixels."""
    height: int = number(450, least=16, most=4320)
    """Height of the video in pixels."""
    continuing: bool = False
    """Move the goal when it is reached and go on, instead of ending the episode."""
    best_safe: bool = False
    """Play the policy of the run's safest epoch instead of its last one."""
    speed: bool = True
    """Also measure the speed of the environment with 256 worlds (about two seconds)."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        if self.video is not None:
            need("--video", "video")
            check_video_path(self.video)
        trained, suite, compact, continuing = None, self.what, False, self.continuing
        if self.policy not in ("", "random", "zero") and not _is_path(self.what):
            trained = load_policy(pretrained(self.what, self.policy))
            suite = trained.settings.suite
        elif _is_path(self.what):
            trained = load_policy(self.what, self.best_safe, self.imports, self.trust)
            if self.policy:
                raise ValueError(
                    f"--policy is for suites, and {self.what} has a policy of its own: leave it out"
                )
            suite, compact = trained.settings.suite, trained.settings.compact
            continuing = continuing or trained.settings.continuing
        elif self.best_safe:
            raise ValueError(
                f"--best-safe is for runs, and {self.what} is none: give a run folder, or leave it out"
            )
        import_modules(self.imports)
        env = self._env(suite, compact, continuing)
        started = time.perf_counter()
        if trained is None:
            episodes, running = self._play(env, _policy(self.policy or "random", env, self.seed))
        else:
            trained.check(env.spec)
            algo = trained.algo
            episodes, running = self._play(env, lambda step: algo.act(step, None).executed)
        console().print(play_table(env, episodes, running))
        if self.video is not None:
            took = time.perf_counter() - started
            say(f"video: {self.video} ({took:.1f} s to simulate and draw)")
        env.close()
        if self.speed:
            speed = _measure_speed(suite, _SPEED_WORLDS, _SPEED_SECONDS)
            say(f"speed: {speed:,.0f} environment steps/s ({_SPEED_WORLDS} worlds, random actions)")

    def _env(self, suite: str, compact: bool, continuing: bool) -> Env:
        """One world, ready to be shown in the way that was asked for."""
        if not is_gym(suite):
            return VecEnv(suite, 1, self.seed, compact=compact, continuing=continuing)
        if continuing:
            raise ValueError(f"--continuing is for suites of statewise: leave it out for {suite}")
        mode = "rgb_array" if self.video else "human" if self.window else None
        return make_env(suite, 1, self.seed, modules=self.imports, render_mode=mode)

    def _play(self, env: Env, act: Callable[[Step], Tensor]) -> tuple[list[Episode], Tally]:
        """Step, show and count: the finished episodes and the running one."""
        steps = max(1, round(self.seconds / env.spec.control_dt))
        every = max(1, math.ceil(1 / env.spec.control_dt / VIDEO_RATE))
        episodes: list[Episode] = []
        tally = Tally(env)
        step = env.reset(self.seed)
        renderer = viewer = None
        simulated = env.simulated
        if simulated is not None:
            renderer = (
                Renderer(simulated, self.width, self.height, self.camera) if self.video else None
            )
            viewer = Viewer(simulated) if self.window else None
        video = VideoFile(self.video, 1 / env.spec.control_dt / every) if self.video else None
        for shown in (renderer, viewer):
            if shown is not None:
                shown.tally = tally
        try:
            for i in track(
                range(steps),
                f"playing {self.seconds:g} s",
                console=console(stderr=True),
                transient=True,
            ):
                step = env.step(act(step))
                episodes += tally.add(step)
                if video is not None and i % every == 0:
                    video.add(cast(Any, env).picture() if renderer is None else renderer.frame())
                if viewer is not None:
                    if not viewer.is_open:
                        break
                    viewer.sync()
                    time.sleep(env.spec.control_dt)
        finally:
            for thing in (video, renderer, viewer):
                if thing is not None:
                    thing.close()
        return episodes, tally


def _measure_speed(suite: str, num_envs: int, seconds: float) -> float:
    """Environment steps per second, of all worlds together, under random actions."""
    env = make_env(suite, num_envs)
    act = random_policy(env, seed=0, hold=0.0)
    step = env.reset()
    for _ in range(3):
        step = env.step(act(step))
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        step = env.step(act(step))
        count += num_envs
    took = time.perf_counter() - started
    env.close()
    return count / took


def _is_path(what: str) -> bool:
    """Whether `play` is given a path, to a run, and not a suite."""
    path = Path(what)
    if path.is_file() or (path / "config.json").exists():
        return True
    if is_gym(what):  # an id may have a slash
        return False
    # Runs with `--out .` lie in a folder that is called as their suite.
    return os.sep in what or (path.is_dir() and what.split("-")[0] not in robot_names())


def _policy(name: str, env: Env, seed: int) -> Callable[[Step], Tensor]:
    """Actions `[B, a]` for every world, step by step."""
    if name == "zero":
        shape = (env.num_envs, env.spec.action_size)
        return lambda step: torch.zeros(shape, device=env.device)
    return random_policy(env, seed)
