"""Where the first episodes of training begin, and which of them are reported."""

import dataclasses

import pytest
import torch
from line_env import LineEnv

import statewise
from statewise import VecEnv
from statewise.algos import get_algorithm
from statewise.envs.env import Env
from statewise.envs.suites import parse_suite
from statewise.training.collect import Collector

LONGEST = 20


def collector(env: Env, spread_ages: bool) -> Collector:
    kind = get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
    return Collector(env, algo, 0, spread_ages)


def short_point(worlds: int) -> VecEnv:
    suite = dataclasses.replace(parse_suite("Point-Hazard-8"), max_episode_steps=LONGEST)
    return VecEnv(suite, worlds)


def test_spread_worlds_run_out_of_time_one_by_one() -> None:
    together, _ = collector(short_point(64), False).collect(LONGEST)
    assert not together.ended[:-1].any() and together.ended[-1].all()
    spread, _ = collector(short_point(64), True).collect(LONGEST)
    assert (spread.ended.sum(0) == 1).all()
    assert len(spread.ended.nonzero()[:, 0].unique()) > LONGEST / 2
    assert (spread.age[spread.ended] == LONGEST - 1).all()


def test_only_episodes_with_all_of_their_time_are_reported() -> None:
    gatherer = collector(short_point(64), True)
    rollout, first = gatherer.collect(LONGEST)
    assert len(first) == int((rollout.age[0] == 0).sum()) < 10
    _, second = gatherer.collect(LONGEST)
    assert len(second) == 64 and (second.length == LONGEST).all()


def test_which_episodes_are_whole_survives_a_restart() -> None:
    gatherer, again = (collector(short_point(64), True) for _ in range(2))
    gatherer.collect(5)
    again.load_state_dict(gatherer.state_dict())
    (_, here), (_, there) = (c.collect(LONGEST) for c in (gatherer, again))
    assert torch.equal(here.returns, there.returns) and 0 < len(here) < 64


def test_an_environment_that_cannot_be_told_an_age_begins_as_it_does() -> None:
    rollout, _ = collector(LineEnv(6), True).collect(3)
    assert (rollout.age[0] == 0).all()


def test_wrong_ages_are_refused() -> None:
    env = statewise.make_env("Point-Hazard-8", 2)
    with pytest.raises(RuntimeError, match="call reset"):
        env.set_age(torch.zeros(2))
    env.reset()
    with pytest.raises(ValueError, match="one for each of 2 worlds"):
        env.set_age(torch.zeros(3))
    for wrong in (-1, 1000):
        with pytest.raises(ValueError, match="not from 0 to 999"):
            env.set_age(torch.tensor([0, wrong]))
