"""Runs that survive: killed, damaged, out of disk, and continued as if nothing had happened."""

import dataclasses
import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from line_env import LineEnv

import statewise
from statewise.algos import get_algorithm
from statewise.algos.scpo import ScpoSettings
from statewise.bench.grid import Grid, RunSpec
from statewise.cli import main
from statewise.report.assemble import assemble
from statewise.report.curves import draw_curves
from statewise.report.groups import group_runs
from statewise.report.markdown import markdown
from statewise.runs import checkpoint
from statewise.runs.export import export_runs
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.reader import find_runs
from statewise.training import api
from statewise.training.config import TrainSettings
from statewise.training.loop import Training

SMALL: dict[str, Any] = {
    "steps": 1600,
    "steps_per_epoch": 160,
    "num_envs": 8,
    "checkpoint_every": 2,
    "tensorboard": False,
    "quiet": True,
    "hidden": (8,),
    "critic_iterations": 3,
    "threads": 1,
}
CLOCK = ("time/", "memory/")


def metrics(run: Path) -> list[dict[str, Any]]:
    """Epochs of a run, without what depends on the clock."""
    lines = RunFolder.open(run).metrics()
    return [{k: v for k, v in m.items() if not any(c in k for c in CLOCK)} for m in lines]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run never disturbed."""
    return statewise.train("Point-Hazard-8", out=str(tmp_path_factory.mktemp("runs")), **SMALL)


def test_a_run_folder_holds_what_reproduces_and_describes_the_run(finished: Path) -> None:
    config = json.loads((finished / "config.json").read_text())
    assert config["train"]["suite"] == "Point-Hazard-8" and config["algorithm"]["target_kl"] == 0.02
    described = json.loads((finished / "environment.json").read_text())
    assert described["packages"]["torch"].startswith("2.") and described["cores"] >= 1
    lines = metrics(finished)
    assert [m["epoch"] for m in lines] == list(range(1, 11))
    assert lines[-1]["steps"] == 1600
    for key in (
        "episode/return", "cost/episode", "cost/max", "cost/rate", "policy/kl", "policy/case",
        "sim/faults", "constraint/hazard/estimate", "constraint/hazard/violation",
        "constraint/hazard/nu", "constraint/hazard/predicted_corrected", "critic/value_loss",
    ):  # fmt: skip
        assert key in lines[-1], key
    assert (finished / "episodes.csv").exists()
    kept = [p.name for p in checkpoint.latest(finished / "checkpoints")]
    assert kept == ["epoch-00010.ckpt", "epoch-00008.ckpt", "epoch-00006.ckpt"]


def test_the_cost_rate_is_all_cost_over_all_steps(finished: Path) -> None:
    lines = metrics(finished)
    mean = sum(m["cost/epoch_rate"] for m in lines) / len(lines)  # epochs are of equal size
    assert lines[-1]["cost/rate"] == pytest.approx(mean, rel=1e-5, abs=1e-9)


def test_the_same_seed_gives_the_same_run(finished: Path, tmp_path: Path) -> None:
    again = statewise.train("Point-Hazard-8", out=str(tmp_path), **SMALL)
    assert metrics(again) == metrics(finished)


@pytest.mark.parametrize("delay", [0.5, 1.1])
def test_a_run_killed_at_any_point_and_resumed_equals_one_never_killed(
    finished: Path, tmp_path: Path, delay: float
) -> None:
    code = (
        "import torch, statewise, sys; torch.set_num_threads(1); "
        f"statewise.train('Point-Hazard-8', out=sys.argv[1], **{SMALL!r})"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)])
    run = tmp_path / "Point-Hazard-8" / "scpo" / "seed-0"
    deadline = time.monotonic() + 60
    while not list((run / "checkpoints").glob("epoch-*.ckpt")) and time.monotonic() < deadline:
        time.sleep(0.01)
    time.sleep(delay * 0.2)  # somewhere in an epoch, or while something is being written
    process.send_signal(signal.SIGKILL)
    process.wait()
    statewise.resume(run, quiet=True)
    assert metrics(run) == metrics(finished)
    ours, theirs = ((r / "episodes.csv").read_bytes() for r in (run, finished))
    assert ours == theirs
    a, b = (
        RunFolder.open(r).load(lambda _, s: s)["algo"]["modules"]["policy"] for r in (run, finished)
    )
    assert all(torch.equal(a[name], b[name]) for name in a)


@pytest.mark.parametrize(
    ("number", "more"), [(signal.SIGINT, ()), (signal.SIGTERM, ("--seeds", "0..1"))]
)
def test_ctrl_c_and_sigterm_save_say_how_to_resume_and_end_with_status_130(
    tmp_path: Path, number: int, more: tuple[str, ...]
) -> None:
    small = "--steps 1000000 --steps-per-epoch 160 --num-envs 8 --critic-iterations 3 --threads 1"
    options = ["--out", str(tmp_path), "--no-tensorboard", *small.split(), *more]
    process = subprocess.Popen(
        [sys.executable, "-m", "statewise.cli", "train", "Point-Hazard-8", *options],
        stdout=subprocess.PIPE,
        text=True,
    )
    run = tmp_path / "Point-Hazard-8" / "scpo" / "seed-0"
    deadline = time.monotonic() + 60
    while not (run / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    process.send_signal(number)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "statewise resume" in said and "saved" in said
    epoch = metrics(run)[-1]["epoch"]
    assert Training.resume(run).epoch == epoch  # nothing of what was done is lost


def test_a_finished_run_that_is_resumed_ends_with_status_0(copy: Path) -> None:
    assert main(["resume", str(copy)]) == 0


@pytest.fixture
def copy(finished: Path, tmp_path: Path) -> Path:
    import shutil

    target = tmp_path / "run"
    shutil.copytree(finished, target)
    return target


@pytest.mark.parametrize("damage", ["truncated", "flipped", "version", "garbage", "empty"])
def test_a_damaged_checkpoint_is_refused_and_the_one_before_is_used(
    copy: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    newest, before, _ = checkpoint.latest(copy / "checkpoints")
    content = newest.read_bytes()
    newest.write_bytes(
        {
            "truncated": content[:-100],
            "flipped": content[:-50] + bytes([content[-50] ^ 1]) + content[-49:],
            "version": re.sub(rb"format \d+", b"format 999", content, count=1),
            "garbage": b"not a checkpoint\n" * 10,
            "empty": b"",
        }[damage]
    )
    with pytest.raises(checkpoint.CheckpointError):
        checkpoint.load(newest)
    path, state = RunFolder.open(copy).load(lambda path, state: (path, state))
    assert path == before and state["epoch"] == 8
    assert newest.name in caplog.text
    statewise.resume(copy, quiet=True)
    assert metrics(copy)[-1]["epoch"] == 10


def test_a_run_without_a_readable_checkpoint_says_so(copy: Path) -> None:
    for path in checkpoint.latest(copy / "checkpoints"):
        path.write_bytes(b"")
    with pytest.raises(ValueError, match="no checkpoint that can be read"):
        statewise.resume(copy)


def test_a_metrics_file_cut_in_a_line_is_read_to_its_last_whole_one(copy: Path) -> None:
    path = copy / "metrics.jsonl"
    path.write_text(path.read_text()[:-20])
    assert len(RunFolder.open(copy).metrics()) == 9


def test_a_run_with_a_setting_that_is_not_known_is_refused(copy: Path) -> None:
    path = copy / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"algorithm": config["algorithm"] | {"memory": 3}}))
    with pytest.raises(ValueError, match=r"config.json was changed after"):
        statewise.load_policy(copy)
    del config["train"]["suite"]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=r"config.json"):
        statewise.load_policy(copy)


def test_an_existing_run_is_never_overwritten(finished: Path) -> None:
    out = finished.parents[2]
    before = (finished / "metrics.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"exists already.*statewise resume"):
        statewise.train("Point-Hazard-8", out=str(out), **SMALL)
    assert (finished / "metrics.jsonl").read_bytes() == before


def test_a_full_disk_leaves_the_last_good_checkpoint(
    copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    newest = checkpoint.latest(copy / "checkpoints")[0]
    before = newest.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        checkpoint.save(newest, {"epoch": 11})
    assert newest.read_bytes() == before
    assert not list((copy / "checkpoints").glob("*.partial"))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"num_envs": 200}, "200 worlds are more than the 160 steps"),
        ({"num_envs": 60, "steps_per_epoch": 160}, "not divisible by 60 worlds.*120 or 180"),
        ({"algo": "scp"}, "Did you mean scpo"),
        ({"cost_limt": 0.1}, "unknown setting 'cost_limt'. Did you mean cost_limit"),
        ({"cost_limit": -0.1}, "allow_negative_limit"),
        ({"checkpoint_every": 0}, "checkpoint_every"),
        ({"device": "tpu"}, "unknown device"),
    ],
)
def test_impossible_settings_are_refused_and_leave_nothing_behind(
    tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        statewise.train("Point-Hazard-8", out=str(tmp_path), **(SMALL | settings))
    assert not list(tmp_path.iterdir())


def test_paper_defaults_are_filled_in() -> None:
    point, ant = (
        TrainSettings(s, device="cpu").resolved() for s in ("Point-Hazard-8", "Ant-Hazard-8")
    )
    # Of 30 208 steps for 512 worlds, and four times as many in the second half of the steps.
    assert (point.epochs, ant.epochs) == (124, 621)
    assert point.steps_per_epoch == 59 * 512


@pytest.mark.parametrize(
    ("suite", "device", "steps", "worlds"),
    [
        ("Point-Hazard-8", "cpu", 0, 512),
        ("Point-Hazard-8", "cuda", 0, 512),
        ("Point-Hazard-8", "cpu", 600_000, 128),
        ("gym:CartPole-v1", "cpu", 6_000_000, 128),
        ("Ant-Hazard-8", "cpu", 0, 512),
        ("Ant-Hazard-8", "cuda", 0, 4096),
    ],
)
def test_the_usual_worlds_are_the_same_on_every_device_but_for_short_runs_and_legs(
    suite: str, device: str, steps: int, worlds: int
) -> None:
    assert TrainSettings(suite, steps=steps, device=device).resolved().num_envs == worlds


def test_a_run_saved_before_its_first_epoch_knows_its_start_states(tmp_path: Path) -> None:
    # With worlds of different ages a rollout may hold no start of an episode to estimate from.
    settings = TrainSettings("Point-Hazard-1", num_envs=20, device="cpu", out=str(tmp_path))
    state = Training.start(settings, ScpoSettings()).state_dict()
    assert state["algo"]["start_inputs"] is not None


def test_a_run_without_checkpoints_keeps_its_metrics(finished: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    shutil.rmtree(run / "checkpoints")
    before = (run / "metrics.jsonl").read_bytes()
    with pytest.raises(RunFolderError, match="no checkpoint to go on from"):
        statewise.resume(run, quiet=True)
    assert (run / "metrics.jsonl").read_bytes() == before
    with pytest.raises(RunFolderError, match="has metrics but no checkpoint"):
        statewise.load_policy(run)


def test_of_those_that_begin_a_run_at_once_one_gets_it_with_its_own_settings(
    tmp_path: Path,
) -> None:
    def begin(path: Path, number: int) -> int | None:
        try:
            RunFolder.create(path, {"train": {"seed": number}, "algorithm": {}})
        except RunFolderError:
            return None
        return number

    with ThreadPoolExecutor(8) as pool:
        for i in range(20):
            path = tmp_path / str(i)
            won = [
                n for n in pool.map(lambda n, path=path: begin(path, n), range(8)) if n is not None
            ]
            assert [RunFolder.open(path).config()["train"]["seed"]] == won


@pytest.mark.parametrize("content", ["{", "[]", "{}"])
def test_a_damaged_config_is_named(finished: Path, tmp_path: Path, content: str) -> None:
    run = Path(shutil.copytree(finished, tmp_path / "run"))
    (run / "config.json").write_text(content)
    with pytest.raises(RunFolderError, match=r"config\.json .* put it back from a copy"):
        statewise.load_policy(run)


def test_a_run_on_all_cores_names_their_number_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2})
    settings = TrainSettings(
        "Point-Hazard-1", num_envs=8, steps=160, steps_per_epoch=80, device="cpu", out=str(tmp_path)
    )
    torch.set_num_threads(2)  # what somebody, or a run before it, had
    training = Training.start(settings, ScpoSettings())
    training.save()
    assert torch.get_num_threads() == 3
    path = training.folder.path / "config.json"
    config = json.loads(path.read_text())
    assert config["train"]["threads"] == 3

    monkeypatch.setattr(os, "sched_getaffinity", lambda process: {0, 1, 2, 3})  # elsewhere
    as_by_bench = dataclasses.replace(settings.resolved(), threads=1)
    api.open_run(as_by_bench, ScpoSettings(), path.parent)
    assert torch.get_num_threads() == 3
    config["train"]["threads"] = 0  # a run from before the number was written down
    path.write_text(json.dumps(config))
    api.open_run(as_by_bench, ScpoSettings(), path.parent)
    assert torch.get_num_threads() == 4


def test_an_environment_without_costs_has_none_rather_than_costs_of_zero(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = TrainSettings(
        "gym:Line-v0", algo="trpo", num_envs=8, steps=320, steps_per_epoch=160, device="cpu",
        tensorboard=False, threads=1, out=str(tmp_path),
    )  # fmt: skip
    own = get_algorithm("trpo").settings_class(hidden=(4,), critic_iterations=3)
    run = api.run_with_display(Training.start(settings, own, LineEnv(8, num_costs=0)), quiet=False)
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("epoch 2/2")]
    assert "return" in line and "cost" not in line
    last = metrics(run)[-1]
    assert last["episode/count"] > 0
    for key in ("cost/episode", "cost/max", "cost/rate", "cost/epoch_rate"):
        assert last[key] is None
    assert draw_curves([run], tmp_path / "curves.png").exists()
    reading = find_runs([tmp_path])
    assert reading.runs[0].summary.late["cost/episode"] is None
    said = markdown(assemble(reading))
    assert "Its environment reports no cost: nothing is known of its safety." in said


def test_checkpoints_are_in_the_order_of_their_epochs_however_many(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, {"run": "a", "train": {}, "algorithm": {}})
    for epoch in (9_990, 99_990, 100_000, 100_010):
        folder.save(epoch, {"epoch": epoch}, keep=2)
    assert [p.name for p in checkpoint.latest(folder.checkpoints)] == [
        "epoch-100010.ckpt",
        "epoch-100000.ckpt",
    ]
    assert folder.load(lambda path, state: state["epoch"]) == 100_010


def test_an_infinite_setting_is_json_that_anyone_can_read_and_comes_back(tmp_path: Path) -> None:
    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is not JSON")

    small = {k: v for k, v in SMALL.items() if k not in ("quiet", "hidden", "critic_iterations")}
    spec = RunSpec("Point-Hazard-8", "trpo_lag", 0, small, {"hidden": (8,), "critic_iterations": 3})
    settings, own = spec.resolve(str(tmp_path / "runs"))
    run = api.run_with_display(api.open_run(settings, own, settings.folder), quiet=True)
    path = run / "config.json"
    assert (
        json.loads(path.read_text(), parse_constant=refuse)["algorithm"]["multiplier_cap"] == "inf"
    )
    assert Training.resume(run).algo.settings == own and own.multiplier_cap == float("inf")
    (planned,) = Grid((spec,), settings.out).open()
    assert planned.state == "finished"
    for _ in range(2):  # the second time it is known for the same run
        (small_form,) = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    json.loads((small_form / "config.json").read_text(), parse_constant=refuse)
    for root in (tmp_path / "runs", tmp_path / "small"):
        (group,) = group_runs(find_runs([root]).runs)
        assert "multiplier_cap" not in group.changed


def test_a_constraint_may_have_a_comma_and_quotes_in_its_name(tmp_path: Path) -> None:
    env, name = LineEnv(8), 'speed, "left"'
    env.spec = dataclasses.replace(env.spec, cost_names=(name,))
    settings = TrainSettings(
        "gym:Line-v0", algo="trpo", num_envs=8, steps=320, steps_per_epoch=160, device="cpu",
        tensorboard=False, threads=1, out=str(tmp_path),
    )  # fmt: skip
    own = get_algorithm("trpo").settings_class(hidden=(4,), critic_iterations=3)
    training = Training.start(settings, own, env)
    training.save()
    training.run_epoch()
    training.folder.close()
    api.run_with_display(Training.resume(training.folder.path, env), quiet=True)
    (run,) = find_runs([tmp_path]).runs
    (channel,) = run.summary.channels
    assert run.notes == () and channel.name == name
    assert channel.worst_cost is not None and channel.worst_cost >= channel.max_cost > 0


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{\n", "metrics.jsonl is damaged in line 3 (Expecting"),
        (b"\xff\xfe\x00\n", "metrics.jsonl is damaged in line 3 ("),
        (b"5\n", "metrics.jsonl is damaged in line 3 ("),
        (b"{}\n", "metrics.jsonl is damaged in line 3 (it lacks epoch, steps)"),
    ],
)
def test_a_damaged_line_of_the_metrics_is_named(
    copy: Path, capsys: pytest.CaptureFixture[str], line: bytes, reason: str
) -> None:
    path = copy / "metrics.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([*lines[:2], line, *lines[3:]]))
    assert main(["plot", str(copy), "--out", str(copy / "curves.png")]) == 2
    assert f"{copy}/{reason}" in capsys.readouterr().err
    with pytest.raises(RunFolderError, match=r"metrics\.jsonl.* put it back from a copy"):
        Training.resume(copy)
    assert statewise.evaluate(copy, episodes=2).episodes == 2  # which needs no metrics


@pytest.mark.parametrize("best_safe", [False, True])
def test_an_export_is_said_to_hold_no_policy(
    finished: Path, tmp_path: Path, best_safe: bool
) -> None:
    (small,) = export_runs(find_runs([finished]).runs, tmp_path)
    with pytest.raises(RunFolderError, match="is an export of a run, without its policy"):
        statewise.load_policy(small, best_safe)
