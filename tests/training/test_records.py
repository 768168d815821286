"""What training tells of its episodes, and what it passes on: columns, rates, locks, settings."""

import csv
import json
from pathlib import Path
from typing import Any

import pytest
import torch
from line_env import LineEnv

import statewise
from statewise.algos import get_algorithm
from statewise.cli import main
from statewise.envs import vec_env
from statewise.envs.vec_env import VecEnv
from statewise.metrics import describe
from statewise.runs.folder import RunFolder
from statewise.runs.lock import RunLockedError, is_locked
from statewise.training import api
from statewise.training.collect import Collector
from statewise.training.config import TrainSettings
from statewise.training.evaluate import evaluate
from statewise.training.loop import Training, build_env
from statewise.types import Episodes

SMALL: dict[str, Any] = {
    "steps": 640,
    "steps_per_epoch": 320,
    "num_envs": 16,
    "tensorboard": False,
    "quiet": True,
    "hidden": (8,),
    "critic_iterations": 3,
}


def test_nobody_else_may_write_to_a_run_while_it_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, tried = api.run_with_display, []

    def beside(training: Training, quiet: bool) -> Path:
        tried.append(is_locked(training.folder.path))
        with pytest.raises(RunLockedError, match="another process"):
            api.resume(training.folder.path, quiet=True)
        return go(training, quiet)

    monkeypatch.setattr(api, "run_with_display", beside)
    run = statewise.train("Point-Hazard-1", out=str(tmp_path), **SMALL)
    assert tried == [True] and not is_locked(run)
    assert len(RunFolder.open(run).metrics()) == 2


def test_violation_rates_and_large_maxima_are_those_of_each_cost() -> None:
    """Of 20 episodes 5 have a cost, the largest ones of 0.1 to 0.5; the other cost never occurs."""
    largest = torch.zeros(20, 2)
    largest[:5, 0] = torch.tensor([0.3, 0.1, 0.5, 0.2, 0.4])
    no = torch.zeros(20, dtype=torch.bool)
    episodes = Episodes(
        torch.ones(20), 2 * largest, largest, -largest, torch.full((20,), 8), ~no, no, ~no
    )
    env = LineEnv(4, num_costs=2)
    algo = get_algorithm("trpo")(env.spec, get_algorithm("trpo").settings_class(), 1, 0)
    rollout, _ = Collector(env, algo, 0).collect(2)
    found = describe(rollout, episodes, env.spec.cost_names, [0.0, 0.0], rollout.size)
    assert (found["cost/edge0/violation_rate"], found["cost/edge1/violation_rate"]) == (0.25, 0.0)
    # Between the second largest (18 of 19 steps up) and the largest: 0.05 of the way.
    assert found["cost/edge0/max_p95"] == pytest.approx(0.405)
    assert found["cost/edge1/max_p95"] == 0.0
    assert found["cost/edge0/max"] == pytest.approx(1.5 / 20)
    assert found["cost/edge0/episode"] == pytest.approx(3.0 / 20)


def test_every_number_of_an_episode_is_in_the_column_of_its_name(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    yes, no = torch.tensor([True, False]), torch.tensor([False, False])
    for epoch, (ended, fault) in enumerate([(yes, no), (~no, yes)], start=1):
        episodes = Episodes(
            returns=torch.tensor([1.5, -2.0]),
            cost=torch.tensor([[3.0, 4.0], [0.0, 0.0]]),
            cost_max=torch.tensor([[0.25, 0.5], [0.0, 0.0]]),
            min_clearance=torch.tensor([[-0.25, -0.5], [0.1, 0.2]]),
            length=torch.tensor([7, 8]),
            terminated=ended,
            fault=fault,
            success=ended & ~fault,
        )
        folder.log_episodes(epoch, episodes, ("hazard", "pillar"))
    folder.close()
    with open(tmp_path / "episodes.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0] == {
        "epoch": "1", "return": "1.5", "cost/hazard/episode": "3", "cost/hazard/max": "0.25",
        "cost/pillar/episode": "4", "cost/pillar/max": "0.5", "length": "7", "terminated": "1",
        "sim_fault": "0",
    }  # fmt: skip
    ends = [(r["epoch"], r["terminated"], r["sim_fault"]) for r in rows]
    assert ends == [("1", "1", "0"), ("1", "0", "0"), ("2", "1", "1"), ("2", "1", "0")]


def test_settings_of_a_run_reach_its_worlds(monkeypatch: pytest.MonkeyPatch) -> None:
    made, make = [], vec_env.make_simulator

    def record(*args: Any, **more: Any) -> Any:
        made.append(args[1:])
        return make(*args, **more)

    monkeypatch.setattr(vec_env, "make_simulator", record)
    settings = TrainSettings(
        "Point-Hazard-1", num_envs=3, seed=5, device="cpu", threads=2, compact=True,
        continuing=True, deterministic=True, contact_room=2.5,
    )  # fmt: skip
    env = build_env(settings)
    assert made[0] == (3, "cpu", 2, True, 2.5)
    assert isinstance(env, VecEnv)
    assert (env.seed, env.continuing, env.spec.num_zeros) == (5, True, 0)


def test_a_violation_is_a_cost_above_the_threshold() -> None:
    """A policy that always goes right reaches a cost of 1.5 in every episode."""
    env = LineEnv(4)
    kind = get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
    for p in algo.policy.parameters():
        p.data.zero_()
    algo.policy.layers[-1].bias.data.fill_(1.0)
    found = [evaluate(algo, env, 8, 0, threshold=x).constraints[0] for x in (0.0, 1.4, 1.5)]
    assert [f.violations for f in found] == [8, 8, 0]
    assert {f.max_cost for f in found} == {1.5}


def test_the_command_passes_its_options_on_to_the_evaluation(tmp_path: Path) -> None:
    run = statewise.train("Point-Hazard-1", out=str(tmp_path), **SMALL)
    path = tmp_path / "found.json"
    command = ["evaluate", str(run), "--episodes", "1", "--threshold", "0.61", "--seed", "9"]
    assert main([*command, "--sampled", "--json", str(path)]) == 0
    found = json.loads(path.read_text())
    told = {key: found[key] for key in ("episodes", "threshold", "seed", "sampled")}
    assert told == {"episodes": 1, "threshold": 0.61, "seed": 9, "sampled": True}
    assert found["constraints"][0]["violations"] == 0  # no cost can be larger than 0.6
