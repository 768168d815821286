"""A run that is made longer equals one that was as long from the start."""

import itertools
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import statewise
from statewise.cli import main
from statewise.runs.epochs import make_plan
from statewise.runs.folder import RunFolder, RunFolderError
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
    "tightening": 0.0,
    "threads": 1,
}
"""No setting of these is a schedule over the whole run."""


def train(out: Path, **settings: Any) -> Path:
    chosen = SMALL | settings
    if "algo" in settings:
        del chosen["tightening"]
    return statewise.train("Point-Hazard-8", out=str(out), **chosen)


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
    assert config["train"]["steps"] == 960 and config["extended"] == [[480, 3]]
    assert main(["verify", str(run)]) == 0


def test_an_unfinished_run_can_be_extended_twice(long: Path, tmp_path: Path) -> None:
    run = train(tmp_path)
    state = RunFolder.open(run)
    state.extend(640, 3)  # as if the extension had been killed at once
    assert not api.finished(run)
    statewise.resume(run, steps=960, quiet=True)
    assert metrics(run) == metrics(long)
    assert json.loads((run / "config.json").read_text())["extended"] == [[480, 3], [640, 3]]


def test_an_unfinished_run_can_be_shortened_to_what_is_done(tmp_path: Path) -> None:
    run = train(tmp_path)
    RunFolder.open(run).extend(960, 3)
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
        ({"tightening": 1.5}, "tightening"),
        ({"algo": "trpo-sl"}, "warmup"),
        ({"final_radius": 0.5}, "final_radius"),
        ({"final_noise": 0.2}, "final_noise"),
        ({"final_batch": 2, "steps": 800}, "final_batch"),
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


def lengths(run: Path) -> list[int]:
    """Steps of each epoch."""
    steps = [0, *(m["steps"] for m in metrics(run))]
    return [after - before for before, after in itertools.pairwise(steps)]


def test_a_run_with_longer_epochs_ends_at_the_steps_that_were_asked_for(tmp_path: Path) -> None:
    run = train(tmp_path, steps=8 * 160, final_batch=2)
    assert lengths(run) == [160] * 4 + [320] * 2
    statewise.resume(run, steps=16 * 160, quiet=True)
    # Half of the steps are done, so the epochs that are left are long ones.
    assert lengths(run) == [160] * 4 + [320] * 6
    assert metrics(run)[-1]["steps"] == 16 * 160 and api.finished(run)
    assert main(["verify", str(run)]) == 0
    statewise.resume(run, steps=40 * 160, quiet=True)
    # 16 of 40 units are done: four short epochs come before the second half.
    assert lengths(run) == [160] * 4 + [320] * 6 + [160] * 4 + [320] * 10


def test_an_extension_that_is_stopped_goes_on_to_the_last_digit(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", steps=8 * 160, final_batch=2)
    statewise.resume(whole, steps=16 * 160, quiet=True)
    parts = train(tmp_path / "parts", steps=8 * 160, final_batch=2)
    training = Training.resume(parts, steps=16 * 160)
    for _ in range(3):  # as if it was killed: the newest checkpoint is of the second of them
        training.run_epoch()
    training.folder.close()
    assert not api.finished(parts)
    statewise.resume(parts, quiet=True)
    assert metrics(parts) == metrics(whole)


def test_an_extension_before_the_longer_epochs_equals_the_long_run(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    long = train(tmp_path / "long", steps=12 * 160, final_batch=2)
    run = train(tmp_path / "run", steps=4 * 160, final_batch=2, checkpoint_every=1)
    newest = run / "checkpoints" / "epoch-00003.ckpt"
    newest.unlink()  # it goes on from the second epoch, before the longer one
    with caplog.at_level(logging.WARNING):
        statewise.resume(run, steps=12 * 160, quiet=True)
    assert not caplog.records
    assert metrics(run) == metrics(long)


@pytest.mark.parametrize("asked", [12_000_000, 9_000_000, 6_500_000, 30_000_000])
def test_a_default_run_ends_within_an_epoch_of_the_steps_it_is_extended_to(asked: int) -> None:
    done = make_plan(6_000_000, 30_000, 4)
    plan = make_plan(asked, 30_000, 4, ((6_000_000, done.epochs),))
    assert plan.until(done.epochs) == done
    assert abs(30_000 * plan.length - asked) <= 60_000


@given(
    steps=st.integers(1, 400), final_batch=st.integers(1, 8), asked=st.integers(1, 400),
    epoch=st.integers(0, 300),
)  # fmt: skip
def test_a_plan_goes_on_from_what_is_done(
    steps: int, final_batch: int, asked: int, epoch: int
) -> None:
    done = make_plan(steps, 1, final_batch).until(epoch)
    plan = make_plan(asked, 1, final_batch, ((steps, epoch),))
    assert plan.until(done.epochs) == done
    assert abs(plan.length - asked) <= final_batch or plan == done  # more was done than is asked
    # Extended once more at once, with the same length, it stays as it is.
    again = make_plan(asked, 1, final_batch, ((steps, epoch), (asked, done.epochs)))
    assert again == plan


@pytest.mark.parametrize("extended", [3, [480], [[480]], [[480, "3"]], [[480, 3, 1]], {"a": 1}])
def test_lengths_of_a_wrong_form_are_named(tmp_path: Path, extended: Any) -> None:
    run = train(tmp_path)
    config = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps(config | {"extended": extended}))
    with pytest.raises((ValueError, RunFolderError), match="extended"):
        statewise.resume(run, quiet=True)


def test_train_has_no_second_way_to_resume(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "--resume", str(tmp_path)]) == 2
    assert "unknown option --resume" in capsys.readouterr().err
