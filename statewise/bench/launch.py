"""Train the runs of a grid side by side on this machine, each in a process of its own."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from statewise.bench.grid import FAILED_FILE, Grid, Run
from statewise.bench.worker import BUSY, FINISHED, STOPPED, describe_job, last_lines, start_worker
from statewise.runs.files import write_atomically
from statewise.settings import check, number
from statewise.training.interrupts import count_interrupts

Report = Callable[[Sequence[Run], str], None]
"""Called about twice a second with all runs, and with a notice for the user or an empty text."""

_POLL_SECONDS = 0.1
REPORT_SECONDS = 0.5
_RUNS_PER_GPU, RUNS_PER_SHARED_GPU = 3, 16
"""Processes take turns on a GPU: three on one H200 had 1.2 times the throughput of one. Under NVIDIA's
Multi-Process Service they really share it: sixteen had about three times the throughput (docs/gpu.md)."""
_RUN_MEMORY = 7 * 2**30
"""Bytes of a GPU for each run: 6.3 GiB were seen."""
STOPPING = "stopping: every run saves at the end of its epoch; Ctrl-C again stops at once"


@dataclass(frozen=True)
class LaunchOptions:
    """Where and how many at a time."""

    launcher: Literal["local", "ray"] = "local"
    """Train on this machine, or on a Ray cluster."""
    jobs: int = number(0, least=0, most=4096)
    """Runs at the same time on this machine. 0 takes one for each core (with --threads 2, for each
    two), or three for each GPU, up to sixteen where NVIDIA's MPS runs."""
    threads: int = number(0, least=0, most=1024)
    """CPU threads of a run. 0 takes one here and --cpus-per-run on Ray. A run that is continued keeps
    the number it began with, so that it stays exact."""
    address: str = ""
    """Ray cluster, such as 10.0.0.1:6379. By default the one this machine belongs to."""
    cpus_per_run: int = number(1, least=1, most=4096)
    """CPUs that a run takes on Ray."""
    gpus_per_run: float | None = number(None, least=0, most=64)
    """GPUs that a run takes on Ray, such as 0.5 for two runs on each. By default 1 with --device cuda,
    otherwise 0."""
    retries: int = number(10, least=0)
    """How often Ray starts a run again whose node was lost."""

    def __post_init__(self) -> None:
        check(self)
        if self.address and self.launcher != "ray":
            raise ValueError(f"--address {self.address} needs --launcher ray")


def launch(grid: Grid, options: LaunchOptions, report: Report) -> list[Run]:
    """Train all runs that are not finished, and return all runs with their states.

    Runs that Ctrl-C (or SIGTERM) stopped are `interrupted`. Runs that were not started are `new`.
    """
    runs = grid.open()
    pool = _Pool(job_count(runs, options), options.threads or 1)
    waiting, told, reported = unfinished(runs), 0, 0.0
    with count_interrupts() as interrupts, pool:
        while pool.workers or (waiting and not told):
            if not told:
                pool.fill(waiting)
            pool.reap()
            if interrupts() > told:
                told += 1
                pool.stop(at_once=told > 1)
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                for run, _ in pool.workers.values():
                    run.refresh()
                report(runs, STOPPING if told else "")
            time.sleep(_POLL_SECONDS)
    report(runs, "")
    return runs


class _Pool:
    """The workers on this machine, one in each slot."""

    def __init__(self, jobs: int, threads: int) -> None:
        self.jobs, self.threads = jobs, threads
        self.workers: dict[int, tuple[Run, subprocess.Popen[bytes]]] = {}
        self._killed = False

    def __enter__(self) -> _Pool:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop(at_once=True)  # none is left unless something went wrong

    def fill(self, waiting: list[Run]) -> None:
        """Start runs in the free slots."""
        for slot in set(range(self.jobs)) - self.workers.keys():
            run = _next(waiting)
            if run is not None:
                job = describe_job(run, self.threads)
                try:
                    self.workers[slot] = (run, start_worker(job, run.folder, _gpu(run, slot)))
                except OSError as error:  # a file where its folder should be, say: others go on
                    run.state, run.note = "failed", f"its process could not be started: {error}"

    def reap(self) -> None:
        """Settle the runs whose workers have ended."""
        for slot, (run, process) in list(self.workers.items()):
            status = process.poll()
            if status is not None:
                del self.workers[slot]
                settle(run, STOPPED if self._killed else status)

    def stop(self, at_once: bool) -> None:
        """Ask the workers to save and stop, or kill them."""
        self._killed = at_once
        for _, process in self.workers.values():
            process.send_signal(signal.SIGKILL if at_once else signal.SIGINT)


def unfinished(runs: Sequence[Run]) -> list[Run]:
    """Return the runs to train. Runs that have already begun come first."""
    order = ("interrupted", "new", "failed")
    wanted = [run for run in runs if run.state in order]
    return sorted(wanted, key=lambda run: order.index(run.state))


def job_count(runs: Sequence[Run], options: LaunchOptions) -> int:
    """How many runs to train at the same time on this machine.

    Each run gets one thread. The threads of one run would wait for the slowest of them at every physics
    step and every matrix product, but runs never wait for each other (docs/bench.md).
    """
    if options.jobs:
        return options.jobs
    most = len(os.sched_getaffinity(0)) // (options.threads or 1)
    if any(run.train.device.startswith("cuda") for run in runs):
        import torch

        gpus = max(1, torch.cuda.device_count())
        shared = min(RUNS_PER_SHARED_GPU * gpus, most, _memory() // _RUN_MEMORY) if _mps() else 0
        return max(_RUNS_PER_GPU * gpus, shared)
    return max(1, most)


def _memory() -> int:
    """Bytes of all GPUs."""
    import torch

    count = torch.cuda.device_count()
    return sum(torch.cuda.get_device_properties(i).total_memory for i in range(count))


def _mps() -> bool:
    """Whether NVIDIA's Multi-Process Service runs here: its daemon keeps a pipe open."""
    return Path(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps"), "control").exists()


def settle(run: Run, status: int) -> None:
    """Set the state of a run whose worker has ended, and write down a failure in its folder."""
    run.refresh()
    if status == FINISHED or run.complete:  # a crash after the last epoch loses nothing
        run.state = "finished"
    elif status in (STOPPED, -signal.SIGINT, -signal.SIGTERM):  # the latter two while it starts
        run.state = "interrupted" if (run.folder / "config.json").exists() else "new"
    elif status == BUSY:
        run.state, run.note = "busy", last_lines(run.folder, 1)
    else:
        by = f"signal {-status}" if status < 0 else f"exit status {status}"
        run.state, run.note = "failed", f"its process ended with {by}\n{last_lines(run.folder)}"
        with contextlib.suppress(OSError):  # a full disk, say, must not end the other runs
            write_atomically(run.folder / FAILED_FILE, (run.note.rstrip() + "\n").encode())


def _next(waiting: list[Run]) -> Run | None:
    """Take the next run that still needs training: another grid may have trained it meanwhile."""
    while waiting:
        run = waiting.pop(0)
        run.look()
        if run.state in ("interrupted", "new", "failed"):
            run.state, run.note = "running", ""
            return run
    return None


def _gpu(run: Run, slot: int) -> dict[str, str]:
    """Return the environment variables of a worker. Workers take turns on the GPUs of a machine."""
    if not run.train.device.startswith("cuda"):
        return {}
    import torch

    count = torch.cuda.device_count()
    if count < 2:
        return {}
    listed = os.environ.get("CUDA_VISIBLE_DEVICES") or ",".join(map(str, range(count)))
    return {"CUDA_VISIBLE_DEVICES": listed.split(",")[slot % count]}
