"""What stays behind when something ends or goes wrong: no half-made run, no world left open."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_runs import SMALL

import statewise
from statewise.algos import get_algorithm
from statewise.bench.grid import Grid, RunSpec
from statewise.envs.from_gym import GymEnv
from statewise.paper.episodes import record
from statewise.runs import checkpoint
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.training import api
from statewise.training.config import TrainSettings
from statewise.training.loop import Training

CONFIG: dict[str, Any] = {"train": {"seed": 0}, "algorithm": {}}


# Run folders -----------------------------------------------------------------------------------


def test_a_start_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    settings = TrainSettings(
        "Point-Hazard-1", num_envs=8, steps=np.int64(1600), steps_per_epoch=160, out=str(tmp_path)
    )
    with pytest.raises(TypeError, match="int64 is not JSON serializable"):
        api.start(settings, get_algorithm("scpo").settings_class(), quiet=True)
    assert not list(tmp_path.iterdir())


def test_a_start_on_a_full_disk_can_be_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(OSError, match="No space left"):
            RunFolder.create(tmp_path, CONFIG)
    assert [p.name for p in tmp_path.iterdir()] == ["checkpoints"]
    assert RunFolder.create(tmp_path, CONFIG).config() == CONFIG


@pytest.mark.parametrize("links", [True, False])
def test_a_config_is_written_whole_and_never_over_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, links: bool
) -> None:
    def refuse(source: Path, target: Path) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")  # as exFAT says

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    RunFolder.create(tmp_path, CONFIG)
    with pytest.raises(RunFolderError, match="exists already"):
        RunFolder.create(tmp_path, CONFIG | {"train": {"seed": 1}})
    assert RunFolder.open(tmp_path).config() == CONFIG
    assert not list(tmp_path.glob("*.partial"))


def test_the_folder_of_runs_may_be_a_path(tmp_path: Path) -> None:
    run = statewise.train("Point-Hazard-1", "trpo", out=tmp_path, **SMALL | {"steps": 160})
    assert run.parents[2] == tmp_path
    assert RunFolder.open(run).config()["train"]["out"] == str(tmp_path)


def test_a_run_that_went_on_from_an_older_checkpoint_is_not_taken_for_damaged(
    tmp_path: Path,
) -> None:
    train = {k: SMALL[k] for k in ("steps", "steps_per_epoch", "num_envs", "checkpoint_every")}
    spec = RunSpec("Point-Hazard-1", "trpo", train=train | {"device": "cpu", "tensorboard": False})
    settings, own = spec.resolve(str(tmp_path))
    training = Training.start(settings, own)
    for _ in range(5):
        training.run_epoch()
    training.folder.close()
    newest = checkpoint.latest(training.folder.checkpoints)[0]
    newest.write_bytes(newest.read_bytes()[:-1])

    training = Training.resume(settings.folder)
    assert training.epoch == 2 and newest.name == "epoch-00004.ckpt"
    training.run_epoch()
    training.save()  # as on Ctrl-C
    training.folder.close()
    (run,) = Grid((spec,), str(tmp_path)).open()
    assert (run.state, run.note, run.epoch) == ("interrupted", "", 3)


# Worlds ----------------------------------------------------------------------------------------


class Counted(gymnasium.Env):
    """Knows which of its kind are open; may fail when the n-th is made, or in its n-th step."""

    observation_space = spaces.Box(-10.0, 10.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))
    made: ClassVar[int] = 0
    opened: ClassVar[list["Counted"]] = []
    fails_to_be_made: ClassVar[int] = 0
    fails_in_step: ClassVar[int] = 0

    def __init__(self) -> None:
        Counted.made += 1
        if Counted.made == self.fails_to_be_made:
            raise OSError("no window left")
        self.steps = 0
        self.opened.append(self)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        self.steps += 1
        if self.steps == self.fails_in_step:
            raise OSError("the window is gone")
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.5}

    def close(self) -> None:
        self.opened.remove(self)  # fails if it is closed twice


gymnasium.register("TestCounted-v0", entry_point=Counted, max_episode_steps=8)
SUITE = "gym:TestCounted-v0"


@pytest.fixture(autouse=True)
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in {"made": 0, "opened": [], "fails_to_be_made": 0, "fails_in_step": 0}.items():
        monkeypatch.setattr(Counted, name, value)
    yield


def train(out: Path) -> Path:
    return statewise.train(SUITE, out=str(out), **SMALL | {"steps": 320})


def test_worlds_are_closed_when_a_training_ends_and_when_it_cannot_begin(tmp_path: Path) -> None:
    run = train(tmp_path)
    assert (Counted.made, Counted.opened) == (9, [])
    with pytest.raises(RunFolderError, match="exists already"):
        train(tmp_path)
    assert (Counted.made, Counted.opened) == (18, [])
    statewise.resume(run, quiet=True)
    assert (Counted.made, Counted.opened) == (27, [])


def test_worlds_are_closed_after_the_last_of_several_seeds(tmp_path: Path) -> None:
    train = {k: SMALL[k] for k in ("steps_per_epoch", "num_envs", "tensorboard", "threads")}
    settings = TrainSettings(SUITE, algo="trpo", out=str(tmp_path), steps=320, **train)
    api.train_seeds(settings, get_algorithm("trpo").settings_class(), [0, 1], quiet=True)
    assert (Counted.made, Counted.opened) == (9, [])


def test_worlds_are_closed_after_an_evaluation_and_a_recording(tmp_path: Path) -> None:
    run = train(tmp_path)
    statewise.evaluate(run, episodes=8)
    assert (Counted.made, Counted.opened) == (12, [])
    record(run, SUITE, episodes=2)
    assert (Counted.made, Counted.opened) == (15, [])


def test_worlds_are_closed_when_one_of_them_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counted, "fails_in_step", 30)
    with pytest.raises(RuntimeError, match="the window is gone"):
        train(tmp_path)
    assert (Counted.made, Counted.opened) == (9, [])


@pytest.mark.parametrize(
    ("name", "number", "error"),
    [
        ("fails_in_step", 1, RuntimeError),  # the trial step
        ("fails_to_be_made", 4, OSError),  # the third world
    ],
)
def test_worlds_that_cannot_all_be_made_are_closed(
    monkeypatch: pytest.MonkeyPatch, name: str, number: int, error: type[Exception]
) -> None:
    monkeypatch.setattr(Counted, name, number)
    with pytest.raises(error, match="window"):
        GymEnv(Counted, 8)
    assert Counted.made > 0 and not Counted.opened


def test_a_world_that_cannot_be_closed_leaves_no_other_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = GymEnv(Counted, 3)
    Counted.opened[1].close()
    with pytest.raises(ValueError, match="not in list"):
        env.close()
    assert not Counted.opened
