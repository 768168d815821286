"""A run that is made longer equals one that was as long from the start."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

import statewise
from statewise.cli import main
from statewise.runs.folder import RunFolder
from statewise.training import api
from statewise.training.loop import Training

SMALL: dict[str, Any] = {
    "steps": 480,
    "steps_per_epoch": 160,
    "num_envs": 8,
    "checkpoint_every": 2,
    "tensorboard": False,
    "quiet": True,
    "hidden": (8,),
    "critic_iterations": 3,
    "threads": 1,
}


def train(out: Path, **settings: Any) -> Path:
    return statewise.train("Point-Hazard-8", out=str(out), **(SMALL | settings))


def metrics(run: Path) -> list[dict[str, Any]]:
    """Epochs of a run, without what depends on the clock."""
    lines = RunFolder.open(run).metrics()
    return [{k: v for k, v in m.items() if not k.startswith(("time/", "memory/"))} for m in lines]


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six epochs at once."""
    return train(tmp_path_factory.mktemp("long"), steps=960)


def test_a_finished_run_extended_equals_the_long_run_to_the_last_digit(
    long: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(tmp_path)
    with caplog.at_level(logging.WARNING):
        assert main(["resume", str(run), "--steps", "960", "--quiet"]) == 0
    assert not caplog.records
    assert metrics(run) == metrics(long)
    assert (run / "episodes.csv").read_bytes() == (long / "episodes.csv").read_bytes()
    config = json.loads((run / "config.json").read_text())
    assert config["train"]["steps"] == 960 and config["extended"] == [480]
    assert main(["verify", str(run)]) == 0


def test_an_unfinished_run_can_be_extended_twice(long: Path, tmp_path: Path) -> None:
    run = train(tmp_path)
    state = RunFolder.open(run)
    state.extend(640)  # as if the extension had been killed at once
    assert not api.finished(run)
    statewise.resume(run, steps=960, quiet=True)
    assert metrics(run) == metrics(long)
    assert json.loads((run / "config.json").read_text())["extended"] == [480, 640]


def test_an_unfinished_run_can_be_shortened_to_what_is_done(tmp_path: Path) -> None:
    run = train(tmp_path)
    RunFolder.open(run).extend(960)
    statewise.resume(run, steps=480, quiet=True)
    assert api.finished(run) and len(metrics(run)) == 3


@pytest.mark.parametrize("steps", ["320", "1"])
def test_fewer_steps_than_done_are_refused_and_change_nothing(
    tmp_path: Path, steps: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = train(tmp_path)
    before = {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}
    assert main(["resume", str(run), "--steps", steps]) == 2
    told = capsys.readouterr().err
    assert f"--steps is {steps}, and the run has done 480 already: give at least 480" in told
    assert before == {p: p.read_bytes() for p in run.rglob("*") if p.is_file()}


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"algo": "trpo-sl"}, "warmup"),
        ({"final_radius": 0.5}, "final_radius"),
        ({"final_noise": 0.2}, "final_noise"),
        ({"final_batch": 2}, "final_batch"),
    ],
)
def test_a_schedule_over_the_whole_run_is_named_in_one_warning(
    tmp_path: Path, settings: dict[str, Any], name: str, caplog: pytest.LogCaptureFixture
) -> None:
    run = train(tmp_path, **settings)
    with caplog.at_level(logging.WARNING):
        assert Training.resume(run, steps=960).settings.steps == 960
    (told,) = [record.getMessage() for record in caplog.records]
    assert told.startswith(f"{name} of") and "run of 960 steps from the start" in told


def test_train_has_no_second_way_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "unknown option --resume" in capsys.readouterr().err
