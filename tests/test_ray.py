"""The grid on a real Ray cluster of two nodes on this machine, one of which is lost on the way."""

from __future__ import annotations

import dataclasses
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import statewise
from statewise.bench import ray_launcher
from statewise.bench.grid import Run, product_grid
from statewise.bench.launch import LaunchOptions
from statewise.cli import main
from statewise.extras import MissingPackage
from statewise.runs.folder import RunFolder

pytest.importorskip("ray")

TRAIN: dict[str, Any] = {
    "steps": 24_000,
    "steps_per_epoch": 160,
    "final_batch": 1,
    "num_envs": 4,
    "checkpoint_every": 2,
    "tensorboard": False,
}
OWN: dict[str, Any] = {"hidden": (8,), "critic_iterations": 3}
SUITE = "Point-Hazard-1"
EPOCHS = list(range(1, 151))
CLOCK = ("time/", "memory/")


def metrics(run: Path) -> list[dict[str, Any]]:
    """Epochs of a run, without what depends on the clock."""
    lines = RunFolder.open(run).metrics()
    return [{k: v for k, v in m.items() if not any(c in k for c in CLOCK)} for m in lines]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """Two nodes of one CPU each; nothing of it is left afterwards."""
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 1, "object_store_memory": 80_000_000, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=node)
    try:
        made.add_node(**node)
        yield made
    finally:
        made.shutdown()


def options(cluster: Any) -> LaunchOptions:
    return LaunchOptions(launcher="ray", address=cluster.address)


def test_a_node_that_does_not_see_the_folder_is_an_error_with_the_fix(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Path, "write_text", lambda self, text: 0)  # the permit reaches no one
    grid = product_grid([SUITE], ["trpo"], [0], str(tmp_path), TRAIN | OWN)
    with pytest.raises(ValueError, match="folder that all nodes share"):
        ray_launcher.launch(grid, options(cluster), lambda runs, notice: None)
    assert not list(tmp_path.glob("*/*/*"))


def test_a_grid_that_is_stopped_and_then_loses_a_node_finishes_with_nothing_lost(
    cluster: Any, tmp_path: Path
) -> None:
    grid = product_grid([SUITE], ["scpo", "trpo"], [0], str(tmp_path / "ray"), TRAIN | OWN)
    notices: list[str] = []

    def press_ctrl_c(runs: Sequence[Run], notice: str) -> None:
        notices.append(notice)
        if min(run.epoch for run in runs) >= 1 and not any(notices):
            signal.raise_signal(signal.SIGINT)

    runs = ray_launcher.launch(grid, options(cluster), press_ctrl_c)
    assert [run.state for run in runs] == ["interrupted", "interrupted"]
    saved = [len(metrics(run.folder)) for run in runs]
    other = next(node for node in cluster.worker_nodes)

    def lose_a_node(runs: Sequence[Run], notice: str) -> None:
        further = all(run.epoch > n + 2 for run, n in zip(runs, saved, strict=True))
        if further and other in cluster.worker_nodes:
            cluster.remove_node(other, allow_graceful=False)

    runs = ray_launcher.launch(grid, options(cluster), lose_a_node)
    assert other not in cluster.worker_nodes, "the runs ended before the node was lost"
    assert [run.state for run in runs] == ["finished", "finished"]
    starts = [(run.folder / "log.txt").read_text().count("150 epochs of 160") for run in runs]
    assert sorted(starts) == [2, 3]  # only the run of the lost node was started once more
    for run in runs:
        assert [m["epoch"] for m in metrics(run.folder)] == EPOCHS
        alone = statewise.train(
            SUITE, run.spec.algo, quiet=True, out=str(tmp_path / "alone"), threads=1, **TRAIN, **OWN
        )
        assert metrics(run.folder) == metrics(alone)
    assert not list((tmp_path / "ray").glob(".ray-*"))


@pytest.mark.parametrize("listening", [False, True])
def test_an_address_without_ray_fails_within_seconds_with_the_fix(
    listening: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.setattr(ray_launcher, "CONNECT_SECONDS", 1.0)
    with socket.socket() as other:  # something that is not Ray, or nothing at all
        other.bind(("127.0.0.1", 0))
        if listening:
            other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        started = time.monotonic()
        status = main(["bench", "paper", "--suites", SUITE, "--launcher", "ray",
                       "--address", address, "--out", str(tmp_path / "runs")])  # fmt: skip
    assert status == 2 and time.monotonic() - started < 5
    error = capsys.readouterr().err
    assert address in error and "ray start --head" in error and error.count("\n") == 1
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize("address", ["somewhere", "10.0.0.1", "ray://"])
def test_an_address_is_a_host_and_a_port(address: str, tmp_path: Path) -> None:
    grid = product_grid([SUITE], ["trpo"], [0], str(tmp_path), TRAIN | OWN)
    with pytest.raises(ValueError, match="give HOST:PORT"):
        wrong = dataclasses.replace(LaunchOptions(launcher="ray"), address=address)
        ray_launcher.launch(grid, wrong, lambda runs, notice: None)


def test_without_ray_the_error_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    grid = product_grid([SUITE], ["trpo"], [0], str(tmp_path), TRAIN | OWN)
    with pytest.raises(MissingPackage, match=r"pip install 'statewise\[ray\]'"):
        ray_launcher.launch(grid, LaunchOptions(launcher="ray"), lambda runs, notice: None)
