"""Speed and memory of training, as shares of bare physics and of each other in the same run.

    python benchmarks/training.py [--suite Point-Hazard-8] [--epochs 20]

Each algorithm runs in a process of its own, one epoch at a time in turn, so that noise of the
machine hits all of them; a ratio is taken in every round, and what is printed is the median of
the rounds with the quartiles. Bare physics is `mujoco.batch.Batch.step(nstep=10)` with as many worlds.
"""

from __future__ import annotations

import multiprocessing as mp
import statistics
import tempfile
from dataclasses import dataclass
from multiprocessing.connection import Connection

from environment import measure

from statewise.settings import cli

ALGOS = ("trpo", "cpo", "scpo")


@dataclass(frozen=True)
class Args:
    suite: str = "Point-Hazard-8"
    epochs: int = 20
    """Measured epochs, after the warm-up; at least 2."""
    warmup: int = 12
    """Epochs before: episodes are then of many ages, and goals are reached."""
    num_envs: int = 128


def worker(pipe: Connection, suite: str, algo: str, num_envs: int) -> None:
    """Train an epoch for each message, and answer with its metrics."""
    from statewise.algos import get_algorithm
    from statewise.training.config import TrainSettings
    from statewise.training.loop import Training

    with tempfile.TemporaryDirectory() as out:
        settings = TrainSettings(suite, algo=algo, num_envs=num_envs, out=out)
        training = Training.start(settings, get_algorithm(algo).settings_class())
        while pipe.recv():
            pipe.send(training.run_epoch())


def main(args: Args) -> None:
    context = mp.get_context("spawn")
    pipes, processes = {}, []
    for algo in ALGOS:
        pipes[algo], theirs = context.Pipe()
        process = context.Process(target=worker, args=(theirs, args.suite, algo, args.num_envs))
        process.start()
        processes.append(process)
    bare, epochs = [], {algo: [] for algo in ALGOS}
    for i in range(args.warmup + args.epochs):
        for algo, pipe in pipes.items():
            pipe.send(True)
            metrics = pipe.recv()
            if i >= args.warmup:
                epochs[algo].append(metrics)
        if i >= args.warmup:
            bare.append(measure(args.suite, args.num_envs, 0.5)[1])
    for pipe in pipes.values():
        pipe.send(False)
    for process in processes:
        process.join()

    print(f"{args.suite}, {args.num_envs} worlds, default settings, {args.epochs} rounds; "
          f"bare physics {statistics.median(bare):,.0f} steps/s")  # fmt: skip
    print(f"{'':6} {'collect s':>10} {'update s':>9} {'steps/s':>9} {'of bare':>18} {'MiB':>6}")
    for algo, rows in epochs.items():
        speed = column(rows, "time/steps_per_second")
        collect, update = column(rows, "time/collect"), column(rows, "time/update")
        print(
            f"{algo:6} {statistics.median(collect):10.2f} {statistics.median(update):9.2f} "
            f"{statistics.median(speed):9,.0f} {ratio(speed, bare):>18} "
            f"{rows[-1]['memory/process_mib']:6.0f}"
        )
    for other in ("cpo", "trpo"):
        update = ratio(*(column(epochs[algo], "time/update") for algo in ("scpo", other)))
        memory = epochs["scpo"][-1]["memory/process_mib"] / epochs[other][-1]["memory/process_mib"]
        print(f"scpo's update / {other}'s: {update}, its memory / {other}'s: {memory:.2f}")


def column(rows: list[dict[str, float]], name: str) -> list[float]:
    return [row[name] for row in rows]


def ratio(above: list[float], below: list[float]) -> str:
    """Of each round: the median, and the quartiles."""
    low, middle, high = statistics.quantiles([a / b for a, b in zip(above, below, strict=True)])
    return f"{middle:.2f} ({low:.2f}..{high:.2f})"


if __name__ == "__main__":
    main(cli(Args))
