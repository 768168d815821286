"""The subcommands of `statewise` but for `bench`: dataclasses of their options, each with a `run`."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
import webbrowser
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch
from rich.console import Console
from rich.progress import track
from torch import Tensor

from statewise import settings
from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.algos.base import Settings
from statewise.cli import STOPPED_STATUS, OptionParser
from statewise.cli_tables import (
    algorithm_table,
    evaluation_table,
    play_table,
    robot_table,
    suite_table,
)
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
from statewise.plugins import import_modules, is_gym
from statewise.runs.files import write_atomically
from statewise.runs.folder import check_folder
from statewise.settings import number, option
from statewise.training import api
from statewise.training.config import TrainSettings, parse_run
from statewise.training.policy import load_policy, random_policy
from statewise.types import Step

_VIDEO_RATE = 34.0
"""Frames per second of a video at most: faster robots are shown every few steps."""
_SPEED_WORLDS = 256
_SPEED_SECONDS = 2.0
_SEEDS_HELP = "Train once with each of these seeds, one after another: 0..7, or 0,3,5."


@dataclass(frozen=True, kw_only=True)
class Plugins:
    """Options of the commands that open run folders."""

    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Plug-ins to import first, such as the one that registers the run's algorithm."""
    trust: bool = False
    """Import the plug-ins that run folders name, which runs their code."""


@dataclass(frozen=True)
class Train:
    """A new run: what to train, and with which seeds."""

    train: TrainSettings
    algorithm: Settings
    seeds: str = ""

    @classmethod
    def from_command_line(cls, args: Sequence[str]) -> Train | Resume:
        """With the options of the algorithm that `--algo` names, once plug-ins are imported."""
        first = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
        first.add_argument("--algo", default="scpo")
        first.add_argument("--import", nargs="+", default=(), dest="imports")
        first.add_argument("--resume", nargs="?", const="")
        early = first.parse_known_args(args)[0]
        if early.resume is not None:
            parser = OptionParser("train --resume", Resume.__doc__ or "")
            settings.add_options(parser, Resume)
            return settings.parse(Resume, parser.read(args))
        import_modules(early.imports)
        kind = get_algorithm(early.algo)
        _check_own_settings(kind, args)
        parser = OptionParser(
            "train",
            f"Train {kind.name} in a suite. `--algo NAME --help` shows the settings of another\n"
            f"algorithm ({', '.join(ALGORITHMS)}).\n"
            f"`statewise train --resume RUN` continues a run.",
        )
        parser.usage = "statewise train SUITE [options]"
        settings.add_options(parser, TrainSettings, "what to train")
        settings.add_options(parser, kind.settings_class, f"settings of {kind.name}")
        parser.add_argument("--seeds", default="", metavar="SEEDS", help=_SEEDS_HELP)
        given = parser.read(args)
        seeds = given.pop("seeds")
        return cls(*parse_run(given, text=True), seeds)

    def run(self) -> None:
        from statewise.bench.grid import parse_seeds

        if self.seeds:
            paths = api.train_seeds(self.train, self.algorithm, parse_seeds(self.seeds))
        else:
            paths = [api.start(self.train, self.algorithm)]
        _leave_if_stopped(paths[-1])


@dataclass(frozen=True, kw_only=True)
class Resume(Plugins):
    """Continue a run from its last checkpoint."""

    resume: Path = option(metavar="RUN")
    """The run folder."""

    def run(self) -> None:
        _leave_if_stopped(api.resume(self.resume, imports=self.imports, trust=self.trust))


@dataclass(frozen=True, kw_only=True)
class Evaluate(Plugins):
    """Say how good and how safe a trained policy is, over fresh episodes."""

    path: Path = option(positional=True, metavar="RUN")
    """A run folder, or one of its checkpoint files."""
    episodes: int = number(1000, least=1)
    """How many episodes to run."""
    seed: int = number(7, least=0, most=2**32 - 1)
    """Seed of the layouts."""
    sampled: bool = False
    """Draw actions from the policy instead of taking its mean."""
    threshold: float = number(0.0, least=0.0, finite=True)
    """A step violates a constraint if it costs more than this."""
    suite: str | None = None
    """Evaluate in another suite of the same sizes than the one it was trained in."""
    best_safe: bool = False
    """Take the policy of the run's safest epoch instead of its last one."""
    json: Path | None = None
    """Write the numbers to this file too."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        if self.json is not None:  # now, and not after all the episodes
            if self.json.is_dir():
                raise ValueError(f"--json {self.json} is a folder: name a file")
            check_folder("--json", self.json.parent)
        found = api.evaluate(
            self.path, self.episodes, self.seed, self.sampled, self.threshold, self.suite,
            self.best_safe, self.imports, self.trust,
        )  # fmt: skip
        _console().print(evaluation_table(found))
        if self.json is not None:
            write_atomically(self.json, (json.dumps(found.as_dict(), indent=2) + "\n").encode())
            print(f"numbers: {self.json}")


@dataclass(frozen=True, kw_only=True)
class Play(Plugins):
    """Watch a policy in a suite: as a video, in a window, or as numbers only."""

    what: str = option(positional=True, metavar="SUITE|RUN")
    """A suite such as Point-Hazard-8, or a run folder or one of its checkpoint files, whose policy is
    then played."""
    policy: Literal["random", "zero"] | None = None
    """What chooses the actions in a suite: random ones, each held for 0.1 s (if not said), or none."""
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
    width: int = number(960, least=16, most=7680)
    """Width of the video in pixels."""
    height: int = number(720, least=16, most=4320)
    """Height of the video in pixels."""
    continuing: bool = False
    """Move the goal when it is reached and go on, instead of ending the episode."""
    best_safe: bool = False
    """Play the policy of the run's safest epoch instead of its last one."""
    speed: bool = True
    """Measure the speed of the environment with 256 worlds too (about two seconds)."""

    def __post_init__(self) -> None:
        settings.check(self)

    def run(self) -> None:
        if self.video is not None:
            check_video_path(self.video)
        trained, suite, compact, continuing = None, self.what, False, self.continuing
        if _is_path(self.what):
            trained = load_policy(self.what, self.best_safe, self.imports, self.trust)
            if self.policy is not None:
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
        if is_gym(suite):
            raise ValueError(f"{suite} is not ours to draw: play shows the suites of statewise")
        env = VecEnv(suite, 1, self.seed, compact=compact, continuing=continuing)
        started = time.perf_counter()
        if trained is None:
            episodes, running = self._play(env, _policy(self.policy or "random", env, self.seed))
        else:
            trained.check(env.spec)
            algo = trained.algo
            episodes, running = self._play(env, lambda step: algo.act(step, None).executed)
        _console().print(play_table(env, episodes, running))
        if self.video is not None:
            took = time.perf_counter() - started
            print(f"video: {self.video} ({took:.1f} s to simulate and draw)")
        if self.speed:
            speed = _measure_speed(suite, _SPEED_WORLDS, _SPEED_SECONDS)
            print(
                f"speed: {speed:,.0f} environment steps/s ({_SPEED_WORLDS} worlds, random actions)"
            )

    def _play(self, env: VecEnv, act: Callable[[Step], Tensor]) -> tuple[list[Episode], Tally]:
        """Step, show and count: the finished episodes and the running one."""
        steps = max(1, round(self.seconds / env.spec.control_dt))
        every = max(1, math.ceil(1 / env.spec.control_dt / _VIDEO_RATE))
        episodes: list[Episode] = []
        tally = Tally(env)
        step = env.reset(self.seed)
        renderer = Renderer(env, self.width, self.height, self.camera) if self.video else None
        viewer = Viewer(env) if self.window else None
        video = VideoFile(self.video, 1 / env.spec.control_dt / every) if self.video else None
        for shown in (renderer, viewer):
            if shown is not None:
                shown.tally = tally
        try:
            for i in track(
                range(steps),
                f"{env.suite.name}, {self.seconds:g} s",
                console=_console(stderr=True),
                transient=True,
            ):
                step = env.step(act(step))
                episodes += tally.add(step)
                if renderer is not None and video is not None and i % every == 0:
                    video.add(renderer.frame())
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


@dataclass(frozen=True)
class Plot:
    """Draw the learning curves of runs: a colour for each algorithm, a band over its seeds."""

    runs: tuple[Path, ...] = option((), positional=True, metavar="RUN")
    """Run folders."""
    out: Path = Path("curves.png")
    """The picture to write (.png, .svg or .pdf)."""
    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Plug-ins to import first, which may name algorithms."""

    def run(self) -> None:
        from statewise.report.curves import draw_curves

        import_modules(self.imports)
        if not self.runs:
            raise ValueError("name at least one run folder to draw")
        print(f"curves: {draw_curves(self.runs, self.out)}")


@dataclass(frozen=True)
class Report:
    """Make a web page, and its Markdown twin, of all runs in some folders."""

    runs: tuple[Path, ...] = option((), positional=True, metavar="RUNS")
    """Folders that are searched for runs."""
    out: Path = Path("report")
    """Where index.html, report.md and pictures/ go."""
    notes: Path | None = None
    """A Markdown file of explanations, with a heading for each suite, as in `# Point-Hazard-8`."""
    baseline: str | None = None
    """The algorithm that others are compared with (default: trpo, if it is there)."""
    export: Path | None = None
    """Write the runs there too, in a small form from which the same report can be made."""
    open: bool = False
    """Show the page in the browser."""
    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Plug-ins to import first, which may name algorithms."""

    def run(self) -> None:
        from statewise.paper.report import paper_parts
        from statewise.report.write import write_report
        from statewise.runs.reader import find_runs

        import_modules(self.imports)
        for option_name, folder in (("--out", self.out), ("--export", self.export)):
            if folder is not None:
                check_folder(option_name, folder)
        reading = find_runs(self.runs)
        reference, sections = paper_parts(reading, self.runs, self.export)
        default = "trpo" if any(run.algo == "trpo" for run in reading.runs) else None
        page = write_report(
            reading, self.out, self.notes, self.baseline or default, reference, sections,
            self.export,
        )  # fmt: skip
        print(f"report: {page} and {self.out / 'report.md'}")
        if self.export is not None:
            print(f"exported: {len(reading.runs)} runs to {self.export}")
        if self.open:
            webbrowser.open(page.resolve().as_uri())


@dataclass(frozen=True)
class List:
    """Print a table of the algorithms, the suites or the robots."""

    what: Literal["algos", "suites", "robots"] = option(
        positional=True, metavar="{algos,suites,robots}"
    )
    """Which of them."""
    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Plug-ins to import first."""

    def run(self) -> None:
        import_modules(self.imports)
        tables = {"algos": algorithm_table, "suites": suite_table, "robots": robot_table}
        _console().print(tables[self.what]())


@dataclass(frozen=True)
class Demo:
    """Train SCPO on Point-Hazard-8 for a minute, evaluate it, draw its curves, record a video."""

    steps: int = number(600_000, least=30_000)
    """Environment steps to train for. A full run takes 6 million."""
    out: Path = Path("out/demo")
    """Where everything goes, in a new folder for each demo."""

    def run(self) -> None:
        out = self.out / time.strftime("%Y%m%d-%H%M%S")
        run = api.train("Point-Hazard-8", steps=self.steps, out=str(out))
        _leave_if_stopped(run)
        Evaluate(path=run, episodes=500, json=out / "evaluation.json").run()
        Plot((run,), out / "curves.png").run()
        Play(what=str(run), video=out / "policy.mp4", seconds=10, speed=False).run()
        print(f"\nall of it is in {out}")


def _measure_speed(suite: str, num_envs: int, seconds: float) -> float:
    """Environment steps per second, of all worlds together, under random actions."""
    env = VecEnv(suite, num_envs)
    act = random_policy(env, seed=0, hold=0.0)
    step = env.reset()
    for _ in range(3):
        step = env.step(act(step))
    count, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        step = env.step(act(step))
        count += num_envs
    return count / (time.perf_counter() - started)


def _check_own_settings(kind: type[Algorithm], args: Sequence[str]) -> None:
    """ValueError for an option that only other algorithms have, which says which."""
    names = {algo: settings.hints_of(other.settings_class) for algo, other in ALGORITHMS.items()}
    for arg in args:
        name = arg.split("=")[0].removeprefix("--").replace("-", "_")
        both = {name, name.removeprefix("no_")}  # of a switch
        having = [algo for algo, own in names.items() if both & own.keys()]
        if arg.startswith("--") and having and kind.name not in having:
            raise ValueError(
                f"{kind.name} has no setting {arg.split('=')[0]}: leave it out, or choose an --algo "
                f"that has it ({', '.join(having)})"
            )


def _leave_if_stopped(run: Path) -> None:
    """End with status 130 if Ctrl-C or SIGTERM stopped the training: a script must not go on."""
    if not api.finished(run):
        raise SystemExit(STOPPED_STATUS)


def _is_path(what: str) -> bool:
    """Whether `play` is given a path, to a run, and not a suite."""
    path = Path(what)
    if path.is_file() or (path / "config.json").exists():
        return True
    if is_gym(what):  # an id may have a slash
        return False
    # Runs with `--out .` lie in a folder that is called as their suite.
    return os.sep in what or (path.is_dir() and what.split("-")[0] not in robot_names())


def _policy(name: str, env: VecEnv, seed: int) -> Callable[[Step], Tensor]:
    """Actions `[B, a]` for every world, step by step."""
    if name == "zero":
        shape = (env.num_envs, env.spec.action_size)
        return lambda step: torch.zeros(shape, device=env.device)
    return random_policy(env, seed)


def _console(stderr: bool = False) -> Console:
    """A console whose tables keep their columns when the output is not a terminal."""
    console = Console(stderr=stderr)
    return console if console.is_terminal else Console(stderr=stderr, width=120)
