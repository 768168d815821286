"""Trained policies come with the package and work before anything was trained."""

import json
from pathlib import Path

import pytest

import statewise
from statewise import cli
from statewise.zoo import keep_policy, pretrained_policies


def test_a_kept_policy_acts_as_the_run_it_was_taken_from(tmp_path: Path) -> None:
    settings = {"steps": 600, "steps_per_epoch": 300, "num_envs": 10, "threads": 1, "quiet": True}
    run = statewise.train("Point-Hazard-1", out=str(tmp_path), **settings)
    kept = keep_policy(run, tmp_path / "kept")
    env = statewise.make_env("Point-Hazard-1", num_envs=1)
    obs = env.reset(seed=3).obs[0]
    one, other = statewise.load_policy(run), statewise.load_policy(kept)
    assert (one(obs) == other(obs)).all()
    assert one.source.sha256 == other.source.sha256
    assert str(tmp_path) not in (kept / "config.json").read_text()


@pytest.mark.parametrize(("suite", "algo"), pretrained_policies())
def test_policies_of_the_package_load_and_fit_their_suite(suite: str, algo: str) -> None:
    policy = statewise.load_policy(statewise.pretrained(suite, algo))
    policy.check(statewise.make_env(suite, num_envs=1).spec)
    assert policy.algo.name == algo


def test_there_are_policies_of_scpo_and_trpo() -> None:
    assert {("Point-Hazard-8", "scpo"), ("Point-Hazard-8", "trpo")} <= set(pretrained_policies())


def test_a_policy_that_is_not_there_is_answered_with_those_that_are() -> None:
    with pytest.raises(ValueError, match="Point-Hazard-8"):
        statewise.pretrained("Point-Hazard-9", "scpo")
    with pytest.raises(ValueError, match="scpo"):
        statewise.pretrained("Point-Hazard-8", "scppo")


def test_evaluate_takes_a_suite_and_the_name_of_a_policy(tmp_path: Path) -> None:
    numbers = tmp_path / "numbers.json"
    command = ["evaluate", "Point-Hazard-8", "--policy", "scpo", "--episodes", "8"]
    assert cli.main([*command, "--json", str(numbers)]) == 0
    assert json.loads(numbers.read_text())["algo"] == "scpo"
