"""Train the runs of a grid on a Ray cluster: each is a task that starts the same worker process.

All nodes must see the folder of the runs under the same path, as on a cluster's shared disk. Then a
lost node costs the epochs since its runs' last checkpoints: Ray starts them on other nodes, where
they go on.
"""

from __future__ import annotations

import dataclasses
import logging
import os
import re
import signal
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

from statewise.bench.grid import Grid, Run
from statewise.bench.launch import (
    REPORT_SECONDS,
    STOPPING,
    LaunchOptions,
    Report,
    settle,
    unfinished,
)
from statewise.bench.worker import STOPPED, describe_job, start_worker
from statewise.extras import need
from statewise.runs.lock import LOCK_FILE
from statewise.training.interrupts import count_interrupts
from statewise.version import __version__

log = logging.getLogger("statewise")

CONNECT_SECONDS = 5.0
_UNSEEN = 5
"""Exit status of a task on a node that cannot see the folder of the driver."""
_POLL_SECONDS = 0.2
_START = (
    "start a cluster with `ray start --head` and join nodes with `ray start --address HOST:6379`"
)


def launch(grid: Grid, options: LaunchOptions, report: Report) -> list[Run]:
    """Train all runs that are not finished on the cluster; every run with the state it ended in.

    Runs that Ctrl-C (or SIGTERM) stopped are left `interrupted`, those never begun `new`. What Ray
    has to say meanwhile goes to ray.log beside the runs.
    """
    out = Path(grid.out).resolve()  # a node's working folder is another one
    runs = dataclasses.replace(grid, out=str(out)).open()
    with (
        _cluster(options.address, out) as ray,
        _permit(out) as permit,
        count_interrupts() as interrupts,
    ):
        stamps = {id(run): _stamp(run) for run in runs}
        tasks, told = _submit(ray, runs, options, permit), 0
        while tasks and told < 2:
            ended, _ = ray.wait(list(tasks), num_returns=len(tasks), timeout=REPORT_SECONDS)
            for task in ended:
                _settle(ray, task, tasks.pop(task), stopping=told > 0)
            if interrupts() > told:
                told += 1
                permit.unlink(missing_ok=True)
            for run in tasks.values():
                if _stamp(run) != stamps[id(run)]:
                    run.state = "running"
                    run.refresh()
            report(runs, STOPPING if told else "")
        for run in tasks.values():  # stopped at once: workers end with the connection
            settle(run, STOPPED)
    report(runs, "")
    return runs


def work(job: str, folder: str, permit: str, version: str) -> int:
    """The task, on a node of the cluster: train a run in a worker; its exit status.

    permit: a file that the driver wrote beside the runs. When it disappears, the run saves and
    stops.
    """
    if version != __version__:
        raise RuntimeError(f"statewise {__version__} is installed here, {version} on the driver")
    if not Path(permit).exists():
        return _UNSEEN
    process = start_worker(job, Path(folder))
    asked = False
    while process.poll() is None:
        if not asked and not Path(permit).exists():
            asked = True
            process.send_signal(signal.SIGINT)
        time.sleep(_POLL_SECONDS)
    return int(process.returncode)


def _submit(ray: Any, runs: Sequence[Run], options: LaunchOptions, permit: Path) -> dict[Any, Run]:
    """Hand all runs that are not finished to Ray, which trains as many at a time as fit."""
    gpus = options.gpus_per_run
    if gpus is None:
        gpus = 1.0 if any(run.train.device.startswith("cuda") for run in runs) else 0.0
    asked = {"CPU": float(options.cpus_per_run), "GPU": gpus}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    if not any(all(node.get(k, 0.0) >= n for k, n in asked.items()) for node in nodes):
        log.warning(
            "no node of the cluster has %d CPUs and %g GPUs, which a run takes: waiting for one",
            options.cpus_per_run,
            gpus,
        )
    task = ray.remote(
        num_cpus=options.cpus_per_run, num_gpus=gpus, max_retries=options.retries
    )(work)  # fmt: skip
    threads = options.threads or options.cpus_per_run
    return {
        task.remote(describe_job(run, threads), str(run.folder), str(permit), __version__): run
        for run in unfinished(runs)
    }


def _settle(ray: Any, task: Any, run: Run, stopping: bool) -> None:
    """Set the state of a run whose task has ended."""
    try:
        status = ray.get(task)
    except ray.exceptions.RayError as error:
        lines = str(error).strip().splitlines() or [type(error).__name__]
        run.state, run.note = "failed", "\n".join(["Ray could not train it", *lines[-6:]])
        return
    if status == _UNSEEN and not stopping:
        raise ValueError(
            f"a node of the cluster does not see {Path(run.train.out)}: results could not land "
            f"there. Give --out a folder that all nodes share under the same path"
        )
    settle(run, STOPPED if status == _UNSEEN else status)


def _stamp(run: Run) -> int:
    """Return a value that changes when a worker starts on the run."""
    path = run.folder / LOCK_FILE
    return path.stat().st_mtime_ns if path.exists() else 0


@contextmanager
def _permit(out: Path) -> Iterator[Path]:
    """Create a file that tells the tasks to train, and remove it at the end."""
    path = out / f".ray-{uuid.uuid4().hex[:12]}"
    path.write_text(f"runs train while this file exists (driver on {socket.gethostname()})\n")
    try:
        yield path
    finally:
        path.unlink(missing_ok=True)


@contextmanager
def _cluster(address: str, out: Path) -> Iterator[Any]:
    """The `ray` module, connected; an address where no Ray answers raises ValueError in seconds.

    What Ray prints on the way, dumps of lost nodes for instance, goes to ray.log in `out`.
    """
    need("--launcher ray", "ray")
    import ray

    if ray.is_initialized():  # by the caller, whose connection it stays
        out.mkdir(parents=True, exist_ok=True)
        yield ray
        return
    named = "--address"
    if not address:  # Ray's own order
        named, address = "RAY_ADDRESS", os.environ.get("RAY_ADDRESS", "")
        address = "" if address == "auto" else address
    if address:
        _check_answers(address, named)
    try:
        ray.init(address=address or "auto", log_to_driver=False, logging_level=logging.ERROR)
    except (ConnectionError, RuntimeError, ValueError) as error:
        where = f"the Ray cluster at {address}" if address else "a Ray cluster of this machine"
        why = str(error).strip().splitlines()[0]
        raise ValueError(f"cannot join {where} ({why}): {_START}") from error
    out.mkdir(parents=True, exist_ok=True)
    with open(out / "ray.log", "a") as said, redirect_stdout(said):
        try:
            yield ray
        finally:
            ray.shutdown()


def _check_answers(address: str, named: str) -> None:
    """Raise ValueError if no Ray answers at an address. `ray.init` would wait for minutes.

    named: where the address was given.
    """
    import grpc

    target = address.removeprefix("ray://")
    if not re.fullmatch(r"[^\s:/]+:\d+|\[[0-9a-fA-F:]+\]:\d+", target):
        raise ValueError(f"{named} is {address!r}: give HOST:PORT, such as 10.0.0.1:6379")
    if os.environ.get("RAY_USE_TLS") == "1":
        return
    with grpc.insecure_channel(target) as channel:
        try:
            grpc.channel_ready_future(channel).result(timeout=CONNECT_SECONDS)
        except grpc.FutureTimeoutError:
            raise ValueError(
                f"no Ray cluster answers at {address}, which {named} names (tried for "
                f"{CONNECT_SECONDS:g} s): check the address and the firewall, or {_START}"
            ) from None
