"""Speed of environments and of training on a GPU, beside bare physics measured in the same run.

    python benchmarks/gpu.py [--suites ...] [--worlds 256 1024 ...] [--out gpu.json] [--markdown]

Bare physics is `mujoco_warp.step` ten times in one graph: the same model and buffers, new random
controls for each step as the environment gets them (how long the solver takes depends on them), nothing
else. Every cell is warmed up, then timed for at least `--seconds`; a cell
that fails is reported, and the others go on. `--device warp-cpu` tries it out without a GPU.
"""

from __future__ import annotations

import dataclasses
import gc
import itertools
import json
import platform
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mujoco
import mujoco_warp as mjw
import torch
import warp as wp

import statewise
from statewise import VecEnv
from statewise.core.placement import LayoutError
from statewise.settings import cli

SUITES = ("Point-Hazard-8", "Point-Pillar-4", "Swimmer-Hazard-8", "Drone-3DHazard-8",
          "Walker-Hazard-8", "Ant-Hazard-8", "Arm3-Hazard-8", "Humanoid-Hazard-8")  # fmt: skip


@dataclass(frozen=True)
class Args:
    suites: tuple[str, ...] = SUITES
    worlds: tuple[int, ...] = (256, 1024, 4096, 16384, 65536)
    device: str = "cuda"
    deterministic: bool = False
    seconds: float = 1.0
    """Least measured time of a cell, for each of environment and bare physics."""
    steps: int = 10
    """Least measured steps of a cell."""
    layout_seconds: float = 60.0
    """Leave out cells whose first layouts would take longer to draw, on the host."""
    train_suites: tuple[str, ...] = SUITES
    """Suites to train for a few epochs; none: leave training out."""
    algo: str = "scpo"
    train_worlds: tuple[int, ...] = (256, 1024, 2048, 4096, 16384)
    epochs: int = 4
    """Measured epochs, after three to warm up."""
    out: Path | None = None
    """File to write everything to, as JSON."""
    markdown: bool = False
    """Print the tables once more, to paste into a page."""


@dataclass(frozen=True)
class Cell:
    """One suite with one number of worlds."""

    suite: str
    worlds: int
    build_seconds: float
    """Making the environment; in a suite's first cell with compiling, unless that was cached."""
    layout_seconds: float
    """The first reset: drawing a layout for every world."""
    env_steps_per_second: float
    bare_steps_per_second: float
    env_step_ms: float
    bare_step_ms: float
    faults: int
    mib: float
    """Memory of the device in use, of every program."""

    @property
    def share(self) -> float:
        return self.env_steps_per_second / self.bare_steps_per_second


@dataclass(frozen=True)
class Trained:
    """Training of one suite: medians over warm epochs."""

    suite: str
    algo: str
    worlds: int
    steps: int
    collect_seconds: float
    update_seconds: float
    epoch_seconds: float
    steps_per_second: float


def main(args: Args) -> None:
    about = machine(args.device)
    print(", ".join(f"{name} {value}" for name, value in about.items()), "\n")
    print(f"{'suite':20} {'worlds':>6} {'build s':>8} {'layouts s':>9} {'env ms':>8} {'bare ms':>8} "
          f"{'env steps/s':>12} {'bare steps/s':>12} {'share':>6} {'MiB':>7} {'faults':>6}")  # fmt: skip
    cells, failed = [], {}
    for suite in args.suites:
        for worlds in args.worlds:
            try:
                cell = measure(suite, worlds, args)
            except (RuntimeError, LayoutError) as error:  # out of memory, CUDA, no room
                failed[f"{suite}, {worlds} worlds"] = str(error)
                print(f"{suite:20} {worlds:6} failed: {error}", flush=True)
                continue
            finally:
                release()
            cells.append(cell)
            print(f"{suite:20} {worlds:6} {cell.build_seconds:8.1f} {cell.layout_seconds:9.2f} "
                  f"{cell.env_step_ms:8.2f} {cell.bare_step_ms:8.2f} "
                  f"{cell.env_steps_per_second:12,.0f} {cell.bare_steps_per_second:12,.0f} "
                  f"{cell.share:6.2f} {cell.mib:7,.0f} {cell.faults:6}", flush=True)  # fmt: skip
    trained = []
    print("\ntraining", args.algo)
    for suite, worlds in itertools.product(args.train_suites, args.train_worlds):
        try:
            trained.append(row := train(suite, worlds, args))
        except RuntimeError as error:  # out of memory, CUDA
            failed[f"training {suite}, {worlds} worlds"] = str(error)
            print(f"{suite:20} {worlds:6} failed: {error}", flush=True)
            continue
        finally:
            release()
        print(f"{suite:20} {worlds:6} {row.steps:6} steps an epoch: {row.steps_per_second:10,.0f} "
              f"steps/s; {row.epoch_seconds:.3f} s an epoch, {row.collect_seconds:.3f} collecting, "
              f"{row.update_seconds:.3f} updating", flush=True)  # fmt: skip
    if args.markdown:
        print("\n" + markdown(cells, trained))
    if args.out:
        found = {"machine": about, "settings": dataclasses.asdict(args), "failed": failed,
                 "cells": [dataclasses.asdict(c) | {"share": c.share} for c in cells],
                 "training": [dataclasses.asdict(row) for row in trained]}  # fmt: skip
        args.out.write_text(json.dumps(found, indent=1, default=str) + "\n")


def machine(device: str) -> dict[str, str]:
    """What it was measured on and with."""
    name = platform.processor() or platform.machine()
    if device.startswith("cuda"):
        name = torch.cuda.get_device_name(device)
    return {
        "device": name,
        "python": platform.python_version(),
        "mujoco": mujoco.__version__,
        "mujoco_warp": mjw.__version__,
        "warp": wp.__version__,
        "torch": torch.__version__,
        "CUDA of torch": str(torch.version.cuda),
        "statewise": statewise.__version__,
    }


def measure(suite: str, worlds: int, args: Args) -> Cell:
    check_layouts(suite, worlds, args.layout_seconds)
    start = time.perf_counter()
    env = statewise.make_env(suite, worlds, device=args.device, deterministic=args.deterministic)
    build = time.perf_counter() - start
    env.reset()
    wait(env.device)
    layouts = time.perf_counter() - start - build

    def env_step() -> None:
        env.step(torch.rand(worlds, env.spec.action_size, device=env.device) * 2 - 1)

    sim, stock = cast(Any, env.sim), cast(Any, env._stock)
    while stock._drawn - stock._known < 2 * worlds:  # layouts ahead are drawn in the first steps
        env_step()
    per_env_step = seconds_per_call(env_step, env.device, args)
    faults = env.faults
    graph, ctrl = bare_graph(sim), sim._view["ctrl"]

    def bare_step() -> None:
        ctrl.uniform_(-1, 1)  # the control range of every robot of the paper
        sim._launch(graph)

    per_bare_step = seconds_per_call(bare_step, env.device, args)
    return Cell(suite, worlds, build, layouts, worlds / per_env_step, worlds / per_bare_step,
                1e3 * per_env_step, 1e3 * per_bare_step, faults, memory(env))  # fmt: skip


def check_layouts(suite: str, worlds: int, most_seconds: float) -> None:
    """Raise LayoutError if layouts for so many worlds would take too long to draw."""
    small = statewise.make_env(suite, 1)
    small.reset()
    start, drawn, chunks = time.perf_counter(), 0, itertools.count(1)
    while time.perf_counter() - start < 0.3:
        drawn += len(small._layouts.chunk(next(chunks)))
    needed = worlds * (time.perf_counter() - start) / drawn
    if needed > most_seconds:
        raise LayoutError(
            f"drawing the first layouts would take about {needed:.0f} s (--layout-seconds)"
        )


def bare_graph(sim: Any) -> Any:
    """One control step of the simulator's own model and worlds, and nothing else."""
    with wp.ScopedDevice(sim._warp_device):
        wait(sim.device)
        with wp.ScopedCapture(device=sim._warp_device) as capture:
            for _ in range(sim.scene.substeps):
                mjw.step(sim._m, sim._d)
        return capture.graph


def seconds_per_call(call: Callable[[], None], device: torch.device, args: Args) -> float:
    for _ in range(max(3, args.steps // 4)):
        call()
    wait(device)
    calls, start = 0, time.perf_counter()
    while calls < args.steps or time.perf_counter() - start < args.seconds:
        for _ in range(args.steps):
            call()
        calls += args.steps
        wait(device)
    return (time.perf_counter() - start) / calls


def train(suite: str, worlds: int, args: Args) -> Trained:
    from statewise.algos import get_algorithm
    from statewise.training.config import TrainSettings
    from statewise.training.loop import Training

    steps = max(1, round(30_000 / worlds)) * worlds
    with tempfile.TemporaryDirectory() as out:
        settings = TrainSettings(suite, algo=args.algo, num_envs=worlds, out=out,
                                 steps_per_epoch=steps, device=args.device,
                                 tensorboard=False)  # fmt: skip
        training = Training.start(settings, get_algorithm(args.algo).settings_class())
        epochs = [training.run_epoch() for _ in range(3 + args.epochs)][3:]
    collect, update, speed = (
        statistics.median(float(metrics[name]) for metrics in epochs)
        for name in ("time/collect", "time/update", "time/steps_per_second")
    )
    return Trained(suite, args.algo, worlds, steps, collect, update, steps / speed, speed)


def markdown(cells: list[Cell], trained: list[Trained]) -> str:
    """Steps/s and the share of bare physics, a row for each suite; then training."""
    worlds = sorted({cell.worlds for cell in cells})
    lines = ["| | " + " | ".join(f"{n:,}" for n in worlds) + " |", "|---" * (len(worlds) + 1) + "|"]
    for suite in dict.fromkeys(cell.suite for cell in cells):
        found = {cell.worlds: cell for cell in cells if cell.suite == suite}
        texts = [
            f"{found[n].env_steps_per_second:,.0f} ({found[n].share:.0%})" if n in found else "-"
            for n in worlds
        ]
        lines.append(f"| {suite} | " + " | ".join(texts) + " |")
    if trained:
        lines += [
            "",
            "| | worlds | steps/s | epoch s | collecting s | updating s |",
            "|---" * 6 + "|",
        ]
    for row in trained:
        lines.append(f"| {row.suite}, {row.algo} | {row.worlds} | {row.steps_per_second:,.0f} | "
                     f"{row.epoch_seconds:.2f} | {row.collect_seconds:.2f} | "
                     f"{row.update_seconds:.2f} |")  # fmt: skip
    return "\n".join(lines)


def memory(env: VecEnv) -> float:
    """MiB of the device in use."""
    if env.device.type != "cuda":
        return 0.0
    free, total = torch.cuda.mem_get_info(env.device)
    return (total - free) / 2**20


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def release() -> None:
    """Give the memory of the last cell back."""
    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main(cli(Args))
