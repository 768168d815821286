"""What the launcher of a grid costs: time of its slots that was not spent in training epochs.

    python benchmarks/launcher.py [--steps 1_200_000] [--rounds 2]

Trains `rounds` runs in each slot, one after another, and compares the slots' time (wall time x
slots) with the runs' own time, which is that of their epochs (`seconds` in metrics.jsonl). The rest
is everything else: starting Python, building the run, checkpoints, TensorBoard, gaps between runs,
and the launcher's own work.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass

from statewise.bench.grid import Run, product_grid
from statewise.bench.launch import LaunchOptions, job_count, launch
from statewise.settings import cli


@dataclass(frozen=True)
class Args:
    suite: str = "Point-Hazard-8"
    algo: str = "scpo"
    steps: int = 1_200_000
    """Environment steps of each run; the paper takes 6 million."""
    rounds: int = 2
    """Runs in each slot, one after another."""
    jobs: int = 0
    """Slots; 0: as many as the launcher takes."""


def main(args: Args) -> None:
    options = LaunchOptions(jobs=args.jobs)
    with tempfile.TemporaryDirectory() as out:
        grid = product_grid([args.suite], [args.algo], [0], out, {"steps": args.steps})
        jobs = job_count(grid.open(), options)
        seeds = range(jobs * args.rounds)
        grid = product_grid([args.suite], [args.algo], seeds, out, {"steps": args.steps})
        began, used = time.perf_counter(), time.process_time()
        runs = launch(grid, options, quiet)
        slots = (time.perf_counter() - began) * jobs
        used = time.process_time() - used
    for run in runs:
        if run.state != "finished":
            raise SystemExit(f"{run} is {run.state}: {run.note}")
    own = sum(run.metrics["time/total"] for run in runs)
    idle = (slots - own) / len(runs)
    print(
        f"{len(runs)} runs of {args.algo} on {args.suite}, {args.steps:,} steps each, {jobs} at a time"
    )
    print(f"runs' own time      {own:8.1f} s   {own / len(runs):7.1f} s each")
    print(f"slots' time         {slots:8.1f} s")
    print(f"overhead            {slots / own - 1:8.2%}     {idle:7.1f} s each")
    print(f"launcher's CPU time {used:8.1f} s   {used / own:7.2%} of the runs' own time")


def quiet(runs: Sequence[Run], notice: str) -> None:
    """A report that shows nothing."""


if __name__ == "__main__":
    main(cli(Args))
