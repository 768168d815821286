"""Which runs of a grid are started, in which order and where: workers are shams that end at once."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from statewise.bench import worker
from statewise.bench.grid import FAILED_FILE, Grid, Run, product_grid
from statewise.bench.launch import LaunchOptions, launch
from statewise.bench.worker import describe_job
from statewise.runs.folder import RunFolder
from statewise.settings import to_json

TRAIN: dict[str, Any] = {
    "steps": 320, "steps_per_epoch": 160, "num_envs": 4, "tensorboard": False, "device": "cpu",
}  # fmt: skip
OWN: dict[str, Any] = {"hidden": (8,), "critic_iterations": 3}
Started = list[tuple[dict[str, Any], dict[str, str]]]


def small_grid(out: Path, *algos: str, **train: Any) -> Grid:
    return product_grid(["Point-Hazard-1"], algos, [0], str(out), TRAIN | train | OWN)


def quiet(runs: Sequence[Run], notice: str) -> None:
    """A report that shows nothing."""


def begin(run: Run, epoch: int = 0) -> None:
    """Write a run as if some process had trained it up to an epoch."""
    parts = {"train": run.train, "algorithm": run.algorithm}
    RunFolder.create(run.folder, {k: to_json(v) for k, v in parts.items()})
    if epoch:
        (run.folder / "metrics.jsonl").write_text(
            json.dumps({"epoch": epoch, "steps": epoch}) + "\n"
        )


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> Started:
    """What each worker was told, and its environment, in the order they were started."""
    found: Started = []

    def start(
        job: str, folder: Path, environment: Mapping[str, str] | None = None
    ) -> subprocess.Popen[bytes]:
        found.append((json.loads(job)["train"], dict(environment or {})))
        return subprocess.Popen(["true"])

    monkeypatch.setattr("statewise.bench.launch.start_worker", start)
    return found


def test_runs_begun_already_come_first_and_failed_ones_last(
    tmp_path: Path, started: Started
) -> None:
    grid = small_grid(tmp_path, "cpo", "trpo", "pcpo", "scpo")
    failed, _, _, interrupted = grid.open()
    failed.folder.mkdir(parents=True)
    (failed.folder / FAILED_FILE).write_text("out of luck\n")
    begin(interrupted)
    assert [run.state for run in grid.open()] == ["failed", "new", "new", "interrupted"]
    launch(grid, LaunchOptions(jobs=1), quiet)
    assert [train["algo"] for train, _ in started] == ["scpo", "trpo", "pcpo", "cpo"]


def test_a_run_that_another_process_finished_meanwhile_is_not_trained_again(
    tmp_path: Path, started: Started
) -> None:
    grid = small_grid(tmp_path, "cpo", "trpo", "scpo")
    elsewhere = grid.open()[1]
    first: list[bool] = []

    def report(runs: Sequence[Run], notice: str) -> None:
        if not first:  # while the first of them is being trained
            first.append(True)
            begin(elsewhere, elsewhere.train.epochs)

    runs = launch(grid, LaunchOptions(jobs=1), report)
    assert [train["algo"] for train, _ in started] == ["cpo", "scpo"]
    assert [run.state for run in runs] == ["finished"] * 3


@pytest.mark.parametrize(
    ("gpus", "visible", "device", "expected"),
    [
        (2, None, "cuda", ["0", "1", "0", "1"]),
        (2, "4,7", "cuda", ["4", "7", "4", "7"]),
        (1, None, "cuda", [None] * 4),
        (2, None, "cpu", [None] * 4),
    ],
)
def test_the_gpus_of_a_machine_are_taken_in_turn(
    tmp_path: Path, started: Started, monkeypatch: pytest.MonkeyPatch, gpus: int,
    visible: str | None, device: str, expected: list[str | None],
) -> None:  # fmt: skip
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if visible:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    grid = small_grid(tmp_path, "cpo", "trpo", "scpo", "pcpo", device=device)
    launch(grid, LaunchOptions(jobs=4), quiet)
    assert [environment.get("CUDA_VISIBLE_DEVICES") for _, environment in started] == expected


@pytest.mark.parametrize(("asked", "given"), [(0, 1), (3, 3)])
def test_a_run_has_one_thread_unless_more_are_asked_for(
    tmp_path: Path, started: Started, asked: int, given: int
) -> None:
    launch(small_grid(tmp_path, "trpo"), LaunchOptions(jobs=1, threads=asked), quiet)
    assert [train["threads"] for train, _ in started] == [given]


@pytest.fixture
def in_process(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], int]:
    """A worker in this process, which is not to die with a launcher that there is not."""
    monkeypatch.setattr(worker, "_die_with_launcher", lambda: None)

    def work(job: str) -> int:
        handler, threads = signal.getsignal(signal.SIGINT), torch.get_num_threads()
        try:
            return worker.main(job)
        finally:
            signal.signal(signal.SIGINT, handler)
            torch.set_num_threads(threads)

    return work


@pytest.mark.parametrize(("began", "threads"), [(None, 3), (0, 5), (2, 2)])
def test_a_run_keeps_the_threads_it_began_with(
    tmp_path: Path, in_process: Callable[[str], int], monkeypatch: pytest.MonkeyPatch,
    began: int | None, threads: int,
) -> None:  # fmt: skip
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(5)))  # which 0 means
    seen: list[int] = []
    monkeypatch.setattr(
        "statewise.training.api.run_with_display",
        lambda training, quiet: seen.append(torch.get_num_threads()),
    )
    if began is not None:
        (run,) = small_grid(tmp_path, "trpo", threads=began).open()
        begin(run)
    (run,) = small_grid(tmp_path, "trpo").open()
    assert in_process(describe_job(run, 3)) == worker.STOPPED
    assert seen == [threads]


def test_why_a_run_failed_is_forgotten_when_it_is_trained_after_all(
    tmp_path: Path, in_process: Callable[[str], int]
) -> None:
    (run,) = small_grid(tmp_path, "trpo").open()
    run.folder.mkdir(parents=True)
    (run.folder / FAILED_FILE).write_text("out of luck\n")
    run.look()
    assert (run.state, run.note) == ("failed", "out of luck")
    assert in_process(describe_job(run, 1)) == worker.FINISHED
    run.look()
    assert (run.state, run.note) == ("finished", "")
    assert not (run.folder / FAILED_FILE).exists()
