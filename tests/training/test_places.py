"""What an environment or a simulator does to the current folder does not move or litter a run."""

import os
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from attacks import walk

import statewise
from statewise.cli import main
from statewise.envs.vec_env import VecEnv

FEW = {name: value for name, value in walk.SETTINGS.items() if name != "algo"}


class Wandering(walk.Walk):
    """Changes the current folder when it is made, and at every step."""

    def __init__(self) -> None:
        os.chdir("/")

    def step(self, action: Any) -> Any:
        os.chdir("/tmp")
        return super().step(action)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.chdir(tmp_path)
    gymnasium.register("Wandering-v0", entry_point=Wandering, max_episode_steps=8)
    yield tmp_path
    del gymnasium.registry["Wandering-v0"]


def test_an_environment_that_changes_the_folder_does_not_move_the_run(here: Path) -> None:
    run = statewise.train("gym:Wandering-v0", "trpo", **FEW)
    assert run == here / "runs" / "gym-Wandering-v0" / "trpo" / "seed-0"
    assert len(list((run / "checkpoints").glob("epoch-*.ckpt"))) == 2
    os.chdir(here)
    statewise.evaluate(run.relative_to(here), 2, worst=1)
    assert (run / "worst.npz").exists()
    os.chdir(here)
    assert (
        main(["evaluate", str(run.relative_to(here)), "--episodes", "2", "--json", "n.json"]) == 0
    )
    assert (here / "n.json").exists()
    os.chdir(here)
    assert main(["verify", str(run.relative_to(here))]) == 0


def test_several_seeds_stay_in_their_folders_too(here: Path) -> None:
    words = ["train", "gym:Wandering-v0", "--algo", "trpo", "--steps", "160", "--steps-per-epoch", "80",
             "--num-envs", "4", "--seeds", "0..1", "--no-tensorboard"]  # fmt: skip
    assert main(words) == 0
    assert len(list(here.glob("runs/*/trpo/seed-*/config.json"))) == 2


def test_warnings_of_the_simulator_leave_no_file_in_the_current_folder(here: Path) -> None:
    env = VecEnv("Point-Hazard-1", 2)
    env.reset()
    env.sim._batch.bind("qvel")[1] = 1e30  # type: ignore[attr-defined]
    assert env.step(torch.zeros(2, env.spec.action_size)).sim_fault.tolist() == [False, True]
    assert list(here.iterdir()) == []
