"""Several seeds in the same worlds: each run is what it would have been alone."""

import shutil
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

import pytest
from test_runs import SMALL, metrics

import statewise
from statewise.algos import get_algorithm
from statewise.cli import main
from statewise.runs.folder import RunFolderError
from statewise.runs.lock import RunLockedError, lock_run
from statewise.training import api
from statewise.training.config import TrainSettings

TRAIN = {k: v for k, v in SMALL.items() if k not in ("quiet", "hidden", "critic_iterations")}
OWN: dict[str, Any] = {k: SMALL[k] for k in ("hidden", "critic_iterations")}


def train_seeds(out: Path, *seeds: int, **changed: Any) -> list[Path]:
    settings = TrainSettings("Point-Hazard-8", out=str(out), **(TRAIN | changed))
    own = get_algorithm("scpo").settings_class(**OWN)
    return api.train_seeds(settings, own, seeds, quiet=True)


def test_each_seed_gives_the_run_it_gives_alone(tmp_path: Path) -> None:
    together = train_seeds(tmp_path / "together", 3, 4)
    for path, seed in zip(together, (3, 4), strict=True):
        alone = statewise.train("Point-Hazard-8", seed=seed, out=str(tmp_path / "alone"), **SMALL)
        assert metrics(path) == metrics(alone)


def test_finished_seeds_are_left_alone_and_the_others_trained(tmp_path: Path) -> None:
    (first,) = train_seeds(tmp_path, 0)
    before = (first / "metrics.jsonl").read_bytes()
    assert len(train_seeds(tmp_path, 0, 1)) == 2
    assert (first / "metrics.jsonl").read_bytes() == before
    assert len(metrics(tmp_path / "Point-Hazard-8" / "scpo" / "seed-1")) == 10


def test_a_finished_seed_is_left_alone_without_its_checkpoints(tmp_path: Path) -> None:
    (first,) = train_seeds(tmp_path, 0)
    shutil.rmtree(first / "checkpoints")
    before = {p.name: p.read_bytes() for p in first.iterdir()}
    assert len(train_seeds(tmp_path, 0, 1)) == 2
    assert {p.name: p.read_bytes() for p in first.iterdir()} == before
    assert len(metrics(tmp_path / "Point-Hazard-8" / "scpo" / "seed-1")) == 10

    lines = before["metrics.jsonl"].splitlines(keepends=True)
    (first / "metrics.jsonl").write_bytes(b"".join(lines[:-1]))  # one epoch is still to be done
    with pytest.raises(RunFolderError, match="no checkpoint to go on from"):
        train_seeds(tmp_path, 0)


def test_runs_of_other_settings_are_not_taken_for_these(tmp_path: Path) -> None:
    train_seeds(tmp_path, 0)
    with pytest.raises(ValueError, match="made with other settings"):
        train_seeds(tmp_path, 0, steps=3200)
    train_seeds(tmp_path, 0, checkpoint_every=7)  # says nothing about what is learned


def test_a_summary_of_the_seeds_is_printed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--steps", "1600", "--steps-per-epoch", "160", "--num-envs", "8", "--no-tensorboard"]
    command = ["train", "Point-Hazard-8", "--seeds", "0..1", "--out", str(tmp_path), *options]
    assert main([*command, "--critic-iterations", "3"]) == 0
    table = capsys.readouterr().out.split("finished: ")[-1]
    for word in ("seed", "return", "maximum cost", "mean"):
        assert word in table


def test_a_run_that_is_being_written_cannot_be_resumed_beside_it(tmp_path: Path) -> None:
    (run,) = train_seeds(tmp_path, 0)
    before = (run / "metrics.jsonl").read_bytes()
    with lock_run(run):
        with pytest.raises(RunLockedError, match="another process"):
            api.resume(run, quiet=True)
        with pytest.raises(RunLockedError, match="another process"):
            train_seeds(tmp_path, 0)
    assert (run / "metrics.jsonl").read_bytes() == before


class FakeWandb(ModuleType):
    """Like Weights & Biases: `init` gives the run that is open, and a new one only if none is."""

    class Run:
        def __init__(self, name: str) -> None:
            self.name, self.open, self.steps = name, True, list[int]()

        def log(self, metrics: dict[str, float], step: int) -> None:
            assert self.open
            self.steps.append(step)

        def __enter__(self) -> "FakeWandb.Run":
            return self

        def __exit__(
            self,
            kind: type[BaseException] | None,
            error: BaseException | None,
            trace: TracebackType | None,
        ) -> None:
            self.open = False

    def __init__(self) -> None:
        super().__init__("wandb")
        self.__spec__ = ModuleSpec("wandb", None)
        self.runs: list[FakeWandb.Run] = []

    def init(self, project: str, name: str, config: dict[str, Any]) -> "FakeWandb.Run":
        if not (self.runs and self.runs[-1].open):
            self.runs.append(self.Run(name))
        return self.runs[-1]


def test_each_seed_has_a_run_of_its_own_at_weights_and_biases(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wandb = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    train_seeds(tmp_path, 0, 1, wandb=True)
    assert [run.name for run in wandb.runs] == [f"Point-Hazard-8/scpo/seed-{n}" for n in (0, 1)]
    assert [len(run.steps) for run in wandb.runs] == [10, 10]
    assert not any(run.open for run in wandb.runs)
