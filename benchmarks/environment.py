"""Speed and memory of the environments, as shares of the bare physics measured in the same run.

    python benchmarks/environment.py [--suites ...] [--worlds 256] [--seconds 4]

Bare physics is `mujoco.batch.Batch.step(nstep=10)` on the same model with the same worlds, threads
and controls. Both are timed in alternating slices, so that noise of the machine hits both.

The last table compares suites with another constraint to Point-Hazard-8, again in alternating slices:
a constraint of a user, as a function, and eight ghosts in place of eight hazards. Shown is the median
over slices of the processor time beyond that of Point-Hazard-8 and of the function's own arithmetic.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import mujoco.batch
import torch

import statewise
from statewise.settings import cli

SUITES = ("Point-Hazard-8", "Point-Pillar-8", "Swimmer-Hazard-8", "Drone-3DHazard-8",
          "Walker-Hazard-8", "Ant-Hazard-8", "Arm3-Hazard-8", "Humanoid-Hazard-8")  # fmt: skip


@dataclass(frozen=True)
class Args:
    suites: tuple[str, ...] = SUITES
    worlds: int = 256
    seconds: float = 4.0
    """Measured time for each of the two."""


def main(args: Args) -> None:
    print(f"{args.worlds} worlds, {torch.get_num_threads()} threads, mujoco {mujoco.__version__}, "
          f"torch {torch.__version__}")  # fmt: skip
    print(f"\n{'suite':20} {'build s':>8} {'bare steps/s':>13} {'env steps/s':>12} {'share':>6}")
    for suite in args.suites:
        build, bare, env = measure(suite, args.worlds, args.seconds)
        print(f"{suite:20} {build:8.2f} {bare:13,.0f} {env:12,.0f} {env / bare:6.2f}")
    print(f"\n{'in place of Point-Hazard-8':28} {'extra time':>10} {'goal':>6}")
    for suite, (extra, goal) in compare_terms(args.worlds, args.seconds).items():
        print(f"{suite:28} {extra:10.1%} {goal:6.0%}")
    ours, torch_alone = import_seconds("statewise"), import_seconds("torch")
    print(f"\nimport statewise: {ours:.2f} s (torch alone: {torch_alone:.2f} s)")
    print(f"peak memory, Point-Hazard-8 with 1024 worlds: {peak_memory():.0f} MiB")


def measure(suite: str, worlds: int, seconds: float) -> tuple[float, float, float]:
    """Seconds to build, bare physics steps/s, environment steps/s."""
    start = time.perf_counter()
    env = statewise.make_env(suite, worlds)
    env.reset()
    build = time.perf_counter() - start
    threads = env.sim.threads  # type: ignore[attr-defined]
    batch = mujoco.batch.Batch(env.sim.model, worlds, threads)
    ctrl, rows = batch.bind("ctrl"), env.sim.state()["rows"].numpy()
    batch.state[:] = rows
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(64, worlds, env.spec.action_size, generator=generator) * 2 - 1

    def bare_slice() -> None:
        for action in actions:
            ctrl[:] = action.numpy()
            batch.step(nstep=10)

    def env_slice() -> None:
        for action in actions:
            env.step(action)

    bare_slice(), env_slice()  # warm up
    times: dict[Callable[[], Any], float] = {bare_slice: 0.0, env_slice: 0.0}
    slices = 0
    while sum(times.values()) < 2 * seconds or slices < 2:
        slices += 1
        for run in times:
            start = time.perf_counter()
            run()
            times[run] += time.perf_counter() - start
    steps = slices * len(actions) * worlds
    return build, steps / times[bare_slice], steps / times[env_slice]


def spin(world: statewise.World, limit: float) -> torch.Tensor:
    """Radians per second below a limit on turning: a constraint as users write them."""
    return limit - world.sensor("gyro")[:, 2].abs()


def compare_terms(worlds: int, seconds: float) -> dict[str, tuple[float, float]]:
    """For each suite the extra time of a step as a share, and the share that it should stay below."""
    statewise.constraint("BenchSpin", sensors=("gyro",), replace=True)(spin)
    names = {"Point-Hazard-8-BenchSpin-2": 0.03, "Point-Ghost-8": 0.10}
    envs = {name: statewise.make_env(name, worlds) for name in ("Point-Hazard-8", *names)}
    generator = torch.Generator().manual_seed(0)
    actions = torch.rand(64, worlds, 2, generator=generator) * 2 - 1
    own = envs["Point-Hazard-8-BenchSpin-2"]
    own.reset()
    world = own.rules.rest(own.worlds()["sensors"], worlds)

    def arithmetic() -> None:
        for _ in actions:
            spin(world, 2.0)

    def slice_of(env: statewise.VecEnv) -> Callable[[], None]:
        env.reset(seed=0)
        return lambda: [env.step(action) for action in actions] and None

    slices = {name: slice_of(env) for name, env in envs.items()} | {"arithmetic": arithmetic}
    times: dict[str, list[float]] = {name: [] for name in slices}
    while sum(map(sum, times.values())) < len(envs) * seconds or len(times["arithmetic"]) < 4:
        for name, run in slices.items():
            start = time.process_time()
            run()
            times[name].append(time.process_time() - start)
    base, alone = (torch.tensor(times[name][1:]) for name in ("Point-Hazard-8", "arithmetic"))
    found = {}
    for name, goal in names.items():
        known = base + alone if "Spin" in name else base
        found[name] = (float((torch.tensor(times[name][1:]) / known).median()) - 1.0, goal)
    return found


def import_seconds(module: str) -> float:
    code = f"import time; t = time.perf_counter(); import {module}; print(time.perf_counter() - t)"
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
            for _ in range(3)]  # fmt: skip
    return min(float(run.stdout) for run in runs)


def peak_memory() -> float:
    """MiB of a process of its own that steps 1024 worlds."""
    code = (
        "import resource, torch, statewise; env = statewise.make_env('Point-Hazard-8', 1024); "
        "env.reset(); [env.step(torch.rand(1024, 2) * 2 - 1) for _ in range(100)]; "
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return float(run.stdout)


if __name__ == "__main__":
    main(cli(Args))
