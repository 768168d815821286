"""Grids of runs: what is trained, skipped, resumed and refused, whatever happens on the way."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

import statewise
from statewise.algos import PAPER_ALGORITHMS
from statewise.bench.command import GridCommand, Paper, run_grid
from statewise.bench.estimate import as_text, grid_seconds_left
from statewise.bench.grid import LOG_FILE, Grid, Run, RunSpec, parse_seeds, product_grid
from statewise.bench.launch import LaunchOptions, job_count, launch, settle
from statewise.bench.table import GridView, picture, window
from statewise.bench.worker import STOPPED, describe_job, start_worker
from statewise.cli import main
from statewise.envs.suites import PAPER_SUITES
from statewise.paper.reference import ALGOS
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.lock import RunLockedError, is_locked, lock_run
from statewise.training.loop import Training

TRAIN: dict[str, Any] = {
    "steps": 3200,
    "steps_per_epoch": 160,
    "num_envs": 4,
    "checkpoint_every": 2,
    "tensorboard": False,
    "threads": 1,
}
OWN: dict[str, Any] = {"hidden": (8,), "critic_iterations": 3}
SUITE = "Point-Hazard-1"
EPOCHS = list(range(1, 21))
NINE = ["scpo", "trpo", "cpo", "pcpo", "trpo_lag", "trpo_fac", "trpo_ipo", "trpo_sl", "trpo_usl"]
CLOCK = ("time/", "memory/")


def metrics(run: Path) -> list[dict[str, Any]]:
    """Epochs of a run, without what depends on the clock."""
    lines = RunFolder.open(run).metrics()
    return [{k: v for k, v in m.items() if not any(c in k for c in CLOCK)} for m in lines]


def small_grid(out: Path, *algos: str, train: dict[str, Any] | None = None) -> Grid:
    return product_grid([SUITE], algos, [0], str(out), TRAIN | (train or {}) | OWN)


def states(grid: Grid) -> list[str]:
    return [run.state for run in grid.open()]


def quiet(runs: Sequence[Run], notice: str) -> None:
    """A report that shows nothing."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Runs that were never stopped, made without a launcher."""
    out = str(tmp_path_factory.mktemp("undisturbed"))
    return {
        algo: statewise.train(SUITE, algo, quiet=True, out=out, **TRAIN, **OWN)
        for algo in ("scpo", "trpo")
    }


# Which runs ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "seeds"),
    [("0..2", (0, 1, 2)), ("0,1,5", (0, 1, 5)), ("3", (3,)), ("0..1,7", (0, 1, 7))],
)
def test_seeds_are_ranges_lists_or_one(text: str, seeds: tuple[int, ...]) -> None:
    assert parse_seeds(text) == seeds


@pytest.mark.parametrize("text", ["", "a", "2..0", "-1", "0..", "1.5", "0 1"])
def test_other_seeds_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match="--seeds"):
        parse_seeds(text)


def test_the_papers_grid_is_every_algorithm_on_every_suite_once() -> None:
    grid = Paper().grid(Paper().suites, Paper().algos)
    assert len(grid.specs) == 16 * 9 * 2 and list(PAPER_ALGORITHMS) == list(ALGOS) == NINE
    found = {(s.suite, s.algo, s.seed) for s in grid.specs}
    assert found == {(s, a, n) for s in PAPER_SUITES for a in NINE for n in (0, 1)}
    assert {s.seed for s in grid.specs[: 16 * 9]} == {0}  # a whole comparison first


def test_a_variant_has_a_folder_of_its_own() -> None:
    plain = RunSpec(SUITE, "scpo", 1)
    variant = RunSpec(SUITE, "scpo", 1, algorithm={"cost_lam": 0.95}, label="scpo-lam-95")
    folders = [str(run.folder) for run in Grid((plain, variant), "out").open()]
    assert folders == [f"out/{SUITE}/scpo/seed-1", f"out/{SUITE}/scpo-lam-95/seed-1"]
    with pytest.raises(ValueError, match="label of its own"):
        Grid((plain, RunSpec(SUITE, "scpo", 1, algorithm={"cost_lam": 0.95})), "out").open()
    with pytest.raises(ValueError, match="names a folder"):
        Grid((RunSpec(SUITE, "scpo", label="../elsewhere"),)).open()


def test_settings_reach_the_algorithms_that_have_them(tmp_path: Path) -> None:
    given = {"cost_limit": "0.1 0.2", "hidden": "8 8", "compact": "true"}
    command = GridCommand(suites=(SUITE,), set=tuple(f"{k}={v}" for k, v in given.items()))
    assert command.given().items() >= {k: [v] for k, v in given.items()}.items()
    suite = "Point-Hazard-1-Pillar-1"
    scpo, trpo = product_grid([suite], ["scpo", "trpo"], [0], str(tmp_path), given).open()
    assert scpo.algorithm.cost_limit == (0.1, 0.2)  # type: ignore[attr-defined]
    assert scpo.algorithm.hidden == trpo.algorithm.hidden == (8, 8)
    assert scpo.train.compact and trpo.train.compact


def test_a_grid_is_the_product_of_everything_that_is_listed() -> None:
    command = GridCommand(
        suites=(SUITE, "Point-Hazard-4"), algos=("scpo", "trpo"), seeds="0..1",
        set=("cost_limit=0,0.01,0.05", "gamma=0.9"),
    )  # fmt: skip
    runs = command.grid(command.suites, command.algos).open()
    assert len(runs) == 2 * 2 * (3 + 1)  # trpo has no limit
    labels = {run.folder.parent.name for run in runs}
    assert labels == {"scpo-cost_limit-0", "scpo-cost_limit-0.01", "scpo-cost_limit-0.05", "trpo"}
    assert {run.algorithm.gamma for run in runs} == {0.9}
    limits = {run.algorithm.cost_limit for run in runs if run.train.algo == "scpo"}  # type: ignore[attr-defined]
    assert limits == {(0.0,), (0.01,), (0.05,)}


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--suites", "Pont-Hazard-8"], "Did you mean Point-Hazard-8"),
        (["--suites"], "expected at least one argument"),
        (["--algos", "scpq"], "Did you mean scpo"),
        (["--seeds", "2..0"], "lower seed first"),
        (["--jobs", "-1"], "jobs is -1: give a number from 0"),
        (["--address", "10.0.0.1:6379"], "needs --launcher ray"),
        (["--set", "cost_limt=1"], "Did you mean cost_limit"),
        (["--set", "cost_limit=0.1 0.2"], "cost_limit has 2 values for 1 constraint"),
        (["--suites", "gym:NoSuch-v0"], "--import my_module"),
        (["--set", "target_kl=small"], "target_kl is 'small': give a number"),
        (["--set", "seed=1"], "use --seeds"),
        (["--seeds", "0..100000000"], "are more than 10000"),
        (["--import", "no_such_module"], "no module 'no_such_module' to import"),
        (["--num-envs", "40000"], "more than the 30000 steps"),
    ],
)
def test_bad_input_is_one_line_and_status_2_before_anything_is_trained(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "paper", "--out", str(tmp_path / "runs"), *args]) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err.count("\n") == 1
    assert captured.err.startswith("error: ") and message in captured.err
    assert not (tmp_path / "runs").exists()


def test_a_dry_run_says_what_would_be_trained_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "paper", "--out", str(tmp_path / "runs"), "--dry-run"]) == 0
    said = capsys.readouterr().out
    assert "288 runs: 288 to start" in said and "Humanoid-Hazard-8" in said
    assert not (tmp_path / "runs").exists()


# What is on disk -------------------------------------------------------------------------------


def test_a_run_with_other_settings_is_flagged_and_left_alone(
    undisturbed: dict[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    run, out = undisturbed["scpo"], undisturbed["scpo"].parents[2]
    before = {p: p.stat().st_mtime_ns for p in run.rglob("*")}
    grid = small_grid(out, "scpo", train={"steps": 6400})
    assert states(grid) == ["conflict"]
    assert run_grid(grid, LaunchOptions(jobs=1)) == 1
    assert "steps is 3200 there, 6400 here" in capsys.readouterr().out
    assert {p: p.stat().st_mtime_ns for p in run.rglob("*")} == before


def test_settings_that_change_nothing_learned_do_not_matter(undisturbed: dict[str, Path]) -> None:
    out = undisturbed["scpo"].parents[2]
    same = {"threads": 2, "checkpoint_every": 5, "tensorboard": True}
    assert states(small_grid(out, "scpo", "trpo", train=same)) == ["finished", "finished"]


def test_a_damaged_folder_is_flagged(tmp_path: Path) -> None:
    grid = small_grid(tmp_path, "scpo")
    folder = grid.open()[0].folder
    folder.mkdir(parents=True)
    (folder / "config.json").write_text("{")
    run = grid.open()[0]
    assert run.state == "damaged" and "damaged" in run.note


@pytest.mark.parametrize(
    ("file", "content", "said"),
    [
        ("config.json", None, "no config.json"),
        ("config.json", "[]", "config.json cannot be read"),
        ("config.json", '{"train": null}', "config.json lacks algorithm"),
        ("metrics.jsonl", "null\n", "metrics.jsonl is damaged in its last line"),
        ("metrics.jsonl", "", "metrics.jsonl ends at epoch 0, before epoch-"),
    ],
)
def test_damage_of_any_kind_is_flagged_and_nothing_is_written_over_it(
    undisturbed: dict[str, Path], tmp_path: Path, file: str, content: str | None, said: str
) -> None:
    shutil.copytree(undisturbed["scpo"].parents[2], tmp_path / "runs")
    (path,) = (tmp_path / "runs").glob(f"*/scpo/seed-0/{file}")
    path.unlink() if content is None else path.write_text(content)
    (run,) = small_grid(tmp_path / "runs", "scpo").open()
    assert run.state == "damaged" and said in run.note
    if content is None:
        with pytest.raises(ValueError, match=r"no config\.json: move it away"):
            RunFolder.create(path.parent, {})


@pytest.mark.parametrize("kept", [0, 9])
def test_a_run_whose_metrics_were_cut_is_left_alone_instead_of_going_on_with_a_hole(
    undisturbed: dict[str, Path], tmp_path: Path, kept: int
) -> None:
    shutil.copytree(undisturbed["scpo"].parents[2], tmp_path / "runs")
    (path,) = (tmp_path / "runs").glob("*/scpo/seed-0/metrics.jsonl")
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:kept]))
    (run,) = launch(small_grid(tmp_path / "runs", "scpo"), LaunchOptions(jobs=1), quiet)
    assert run.state == "damaged" and f"metrics.jsonl ends at epoch {kept}" in run.note
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl is shorter than it was"):
        Training.resume(path.parent)
    path.write_text("".join(lines[:5]))
    shutil.rmtree(path.parent / "checkpoints")
    (run,) = small_grid(tmp_path / "runs", "scpo").open()
    assert run.state == "damaged" and "no checkpoint to go on from" in run.note


def test_a_worker_does_not_go_on_with_a_run_of_other_settings(tmp_path: Path) -> None:
    """It may have begun while the worker waited for its turn."""
    (run,) = small_grid(tmp_path, "trpo").open()
    RunFolder.create(run.folder, {"train": dataclasses.asdict(run.train), "algorithm":
                     dataclasses.asdict(run.algorithm) | {"target_kl": 0.5}})  # fmt: skip
    assert start_worker(describe_job(run, 1), run.folder).wait() not in (0, STOPPED)
    assert "made with other settings" in (run.folder / LOG_FILE).read_text()


def test_a_quiet_grid_says_only_which_runs_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / SUITE).mkdir()
    (tmp_path / SUITE / "trpo").write_text("a file, not a folder")
    grid = small_grid(tmp_path, "scpo", "trpo", train={"steps": 320})
    assert run_grid(grid, LaunchOptions(jobs=2), quiet=True) == 1
    said = capsys.readouterr().out
    assert said.startswith("failed Point-Hazard-1 trpo") and "finished" not in said
    with pytest.raises(ValueError, match="leave out --quiet"):
        GridCommand(dry_run=True, quiet=True)


def test_a_run_that_cannot_be_started_hurts_no_other(tmp_path: Path) -> None:
    (tmp_path / SUITE).mkdir()
    (tmp_path / SUITE / "trpo").write_text("a file, not a folder")
    grid = small_grid(tmp_path, "scpo", "trpo", train={"steps": 320})
    scpo, trpo = launch(grid, LaunchOptions(jobs=2), quiet)
    assert scpo.state == "finished"
    assert trpo.state == "failed" and "could not be started" in trpo.note


def test_exported_runs_copied_in_are_skipped_and_shown(
    undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    main(["report", str(undisturbed["scpo"].parents[2]), "--out", str(tmp_path / "page"),
          "--export", str(tmp_path / "runs")])  # fmt: skip
    runs = small_grid(tmp_path / "runs", "scpo", "pcpo").open()
    assert [run.state for run in runs] == ["finished", "new"]
    assert grid_seconds_left(runs, 1) > 0
    console = Console(width=130, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture(runs, 12, 130))
    assert "1 finished" in console.export_text()


def test_a_gpu_that_is_not_there_is_missed_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["bench", "paper", "--device", "cuda", "--out", str(tmp_path / "runs")]) == 2
    assert "needs a GPU" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists()
    planned = ["bench", "paper", "--device", "cuda", "--dry-run", "--out", str(tmp_path / "runs")]
    assert main(planned) == 0  # a plan needs none


@pytest.mark.parametrize("command", [["bench", "paper", "--out"], ["report", "RUNS", "--out"],
                                     ["report", "RUNS", "--export"]])  # fmt: skip
def test_a_place_that_is_no_folder_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("")
    (tmp_path / "RUNS").mkdir()
    assert main([*command, "file/there"]) == 2
    assert "is not a folder; choose another place" in " ".join(capsys.readouterr().err.split())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["RUNS", "file"]


def test_a_run_whose_last_epoch_is_not_saved_is_not_finished(
    undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    target = tmp_path / SUITE / "trpo" / "seed-0"
    shutil.copytree(undisturbed["trpo"], target)
    (target / "checkpoints" / "epoch-00020.ckpt").unlink()
    assert states(small_grid(tmp_path, "trpo")) == ["interrupted"]
    shutil.rmtree(target / "checkpoints")  # to save space, say: nothing to go on from
    assert states(small_grid(tmp_path, "trpo")) == ["finished"]


def test_a_run_has_one_writer(tmp_path: Path) -> None:
    grid = small_grid(tmp_path, "trpo")
    folder = grid.open()[0].folder
    with lock_run(folder):
        assert is_locked(folder)
        with pytest.raises(RunLockedError, match=rf"process {os.getpid()} on .*{folder}"), \
                lock_run(folder):  # fmt: skip
            pass
        assert [run.state for run in launch(grid, LaunchOptions(jobs=1), quiet)] == ["busy"]
    assert not is_locked(folder)
    assert not (folder / "config.json").exists()


# Launching -------------------------------------------------------------------------------------


def test_finished_runs_are_skipped_interrupted_ones_resumed_and_failures_hurt_no_other(
    undisturbed: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    grid = small_grid(tmp_path, "cpo", "trpo", "scpo")
    broken, stopped, new = grid.open()
    for run in (broken, stopped):
        training = Training.start(run.train, run.algorithm)
        training.save()
        for _ in range(5):
            training.run_epoch()  # as if it was killed in the sixth
    for path in (broken.folder / "checkpoints").glob("*.ckpt"):
        path.write_bytes(b"")
    assert states(grid) == ["interrupted", "interrupted", "new"]

    assert run_grid(grid, LaunchOptions(jobs=2)) == 1
    said = capsys.readouterr().out
    assert "2 finished, 1 failed" in said
    assert "no checkpoint that can be read" in said and "log.txt" in said
    assert states(grid) == ["failed", "finished", "finished"]
    assert metrics(stopped.folder) == metrics(undisturbed["trpo"])
    assert metrics(new.folder) == metrics(undisturbed["scpo"])

    for path in sorted(broken.folder.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (broken.folder / "failed.txt").write_text("as before\n")
    finished = {p: p.stat().st_mtime_ns for p in new.folder.rglob("*")}
    assert run_grid(grid, LaunchOptions(jobs=2)) == 0  # only the failed one is tried again
    assert states(grid) == ["finished"] * 3
    assert {p: p.stat().st_mtime_ns for p in new.folder.rglob("*")} == finished


def test_a_grid_stopped_and_killed_and_started_again_equals_one_never_disturbed(
    undisturbed: dict[str, Path], tmp_path: Path
) -> None:
    settings = {k: v for k, v in TRAIN.items() if k not in ("steps", "num_envs", "threads")}
    options = [f"{key}={value}" for key, value in settings.items()]
    options += ["hidden=8", "critic_iterations=3"]
    command = [sys.executable, "-m", "statewise.cli", "bench", "paper", "--suites", SUITE,
               "--algos", "scpo", "trpo", "--seeds", "0", "--steps", "3200", "--num-envs", "4",
               "--jobs", "2", "--out", str(tmp_path), "--set", *options]  # fmt: skip
    folders = {algo: tmp_path / SUITE / algo / "seed-0" for algo in ("scpo", "trpo")}

    def start() -> subprocess.Popen[str]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)

    def wait_for_epochs(count: int) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            logs = [f / "metrics.jsonl" for f in folders.values()]
            if any(p.exists() and p.read_text().count("\n") >= count for p in logs):
                return
            time.sleep(0.02)
        raise AssertionError("no run began")

    grid = start()
    wait_for_epochs(1)
    grid.send_signal(signal.SIGINT)
    said, _ = grid.communicate(timeout=60)
    assert grid.returncode == 130 and "the same command goes on" in said
    begun = max(len(metrics(f)) for f in folders.values() if (f / "metrics.jsonl").exists())
    assert begun < 20

    grid = start()
    wait_for_epochs(begun + 2)
    grid.kill()
    grid.communicate()
    deadline = time.monotonic() + 5
    while any(is_locked(f) for f in folders.values()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not any(is_locked(f) for f in folders.values())  # workers died with the launcher

    grid = start()
    said, _ = grid.communicate(timeout=120)
    assert grid.returncode == 0, said
    for algo, folder in folders.items():
        assert [m["epoch"] for m in metrics(folder)] == EPOCHS
        assert metrics(folder) == metrics(undisturbed[algo])


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_is_stopped_while_it_starts_has_not_failed(tmp_path: Path, number: int) -> None:
    (run,) = Grid((RunSpec(SUITE, "scpo", 0),), str(tmp_path)).open()
    settle(run, -number)
    assert run.state == "new"
    settle(run, -signal.SIGSEGV)
    assert run.state == "failed"


def test_the_machine_is_filled() -> None:
    runs = product_grid([SUITE], NINE, (0, 1)).open()
    cores = len(os.sched_getaffinity(0))
    assert job_count(runs, LaunchOptions()) == cores
    assert job_count(runs, LaunchOptions(threads=2)) == max(1, cores // 2)
    assert job_count(runs, LaunchOptions(jobs=7)) == 7


def test_a_gpu_that_processes_share_is_filled_with_more_of_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = product_grid([SUITE], NINE, (0, 1)).open()
    runs[0].train = dataclasses.replace(runs[0].train, device="cuda")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(64)))
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setattr("statewise.bench.launch._memory", lambda: 140 * 2**30)
    assert job_count(runs, LaunchOptions()) == 3
    (tmp_path / "control").touch()
    assert job_count(runs, LaunchOptions()) == 16
    assert job_count(runs, LaunchOptions(threads=8)) == 8
    monkeypatch.setattr("statewise.bench.launch._memory", lambda: 40 * 2**30)
    assert job_count(runs, LaunchOptions()) == 5


# What is shown ---------------------------------------------------------------------------------


def big_grid() -> list[Run]:
    """288 runs: 40 finished, one failed, two running, the others waiting."""
    runs = product_grid(PAPER_SUITES, NINE, (0, 1)).open()
    for i, run in enumerate(runs):
        run.state = "finished" if i < 40 else "running" if i in (40, 41) else "new"
        if i <= 41:
            epoch = run.train.epochs if i < 40 else run.train.epochs // 2
            steps = epoch * run.train.steps_per_epoch
            run.metrics = {"epoch": epoch, "steps": steps, "time/total": steps / 1e4,
                           "episode/return": 2.5, "cost/episode": None,
                           "time/steps_per_second": 1e4}  # fmt: skip
    runs[3].state, runs[3].note = "failed", "out of luck"
    return runs


def test_the_table_fits_the_terminal_and_shows_what_runs_and_what_failed() -> None:
    runs = big_grid()
    shown = window(runs, 12)
    assert len(shown) == 12
    assert {id(runs[i]) for i in (3, 40, 41)} <= {id(run) for run in shown}
    console = Console(width=130, height=20, record=True, file=open(os.devnull, "w"))  # noqa: SIM115
    console.print(picture(runs, 12, 130))
    text = console.export_text()
    assert "288 runs: 2 running, 39 finished, 1 failed, 246 waiting; about" in text
    assert text.count("\n") <= 20


def test_progress_is_by_steps_as_later_epochs_are_longer() -> None:
    (run,) = product_grid([SUITE], ["scpo"], [0]).open()
    lengths = [run.train.horizon(n) * run.train.num_envs for n in range(1, run.train.epochs + 1)]
    assert lengths[-1] == 4 * lengths[0] and sum(lengths) == run.train.planned_steps
    first = lengths.count(lengths[0])
    run.metrics = {"epoch": first, "steps": sum(lengths[:first])}
    assert first / len(lengths) > 0.75 and run.progress == pytest.approx(0.5, abs=0.01)


def test_time_left_is_work_over_jobs_and_never_less_than_the_longest_run() -> None:
    short, long = product_grid(["Point-Hazard-1", "Ant-Hazard-8"], ["scpo"], [0]).open()
    for run, seconds in ((short, 100.0), (long, 1000.0)):  # half done each
        half = run.train.planned_steps / 2
        run.metrics = {"epoch": 1, "time/total": seconds, "steps": half}
    assert grid_seconds_left([short, long], 1) == pytest.approx(1100)
    assert grid_seconds_left([short, long], 2) == pytest.approx(1000)
    assert [as_text(s) for s in (0.2, 40, 720, 12000, 187200)] == [
        "1 s", "40 s", "12 min", "3 h 20 min", "2 d 4 h",
    ]  # fmt: skip


def test_without_a_terminal_every_run_that_ends_is_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    runs = big_grid()
    with GridView(Console(width=140)) as view:
        view(runs, "")
        runs[40].state = "finished"
        view(runs, "")
        view(runs, "")
    said = capsys.readouterr().out
    assert said.count("\n") == 1
    assert said.startswith("finished: ") and "return 2.500, episode cost -" in said
