"""Public functions refuse wrong arguments by name, and at once."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from attacks import walk

import statewise


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: statewise.make_env(3), "name is 3: give a string"),
        (lambda: statewise.make_env("Point-Hazard-1", num_envs="x"), "num_envs is 'x': give a whole"),
        (lambda: statewise.make_env("Point-Hazard-1", num_envs=2**64), "worlds from 1 to 1048576"),
        (lambda: statewise.make_env("Point-Hazard-1", seed=-1), "seed is -1: give a whole number"),
        (lambda: statewise.make_env("Point-Hazard-1", device=None), "device is None: give a string"),
        (lambda: statewise.VecEnv(b"Point"), "suite is b'Point': give a string or a Suite"),
        (lambda: statewise.parse_suite(None), "name is None: give a string"),
        (lambda: statewise.get_robot(()), "name is (): give a string"),
        (lambda: statewise.get_algorithm(1.5), "name is 1.5: give a string"),
        (lambda: statewise.register_robot("A", 3), "file is 3: give a string or a path"),
        (lambda: statewise.GymEnv(int), "env_id makes 0: give a function"),
        (lambda: statewise.train(3), "suite is 3: give a string"),
        (lambda: statewise.resume(3), "path is 3: give a string or a path"),
        (lambda: statewise.evaluate(None), "path is None: give a string or a path"),
        (lambda: statewise.load_policy(torch.zeros(2)), "path is tensor([0., 0.]): give a string"),
        (lambda: statewise.read_runs([3]), "paths is [3]: give a string or a path or several"),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_kind_is_refused_by_the_name_of_its_argument(
    call: Callable[[], Any], said: str
) -> None:
    with pytest.raises(ValueError) as error:
        call()
    assert said in str(error.value)


@pytest.mark.parametrize("count", ["300000000", "1000000000", "1" * 20, "1" * 5000])
def test_too_many_objects_are_refused_at_once_with_the_range(count: str) -> None:
    start = time.perf_counter()
    with pytest.raises(ValueError, match="give a whole number from 1 to"):
        statewise.parse_suite(f"Point-Hazard-{count}")
    assert time.perf_counter() - start < 5.0


@pytest.mark.parametrize("name", ["Point-Hazard-1", walk.SUITE])
def test_an_action_may_require_a_gradient(name: str) -> None:
    env = statewise.make_env(name)
    env.reset()
    action = torch.zeros(1, env.spec.action_size, requires_grad=True)
    step = env.step(action)
    assert not step.obs.requires_grad and torch.isfinite(step.obs).all()


def test_more_episodes_than_an_evaluation_has_are_refused(tmp_path: Path) -> None:
    run = walk.train(tmp_path)
    with pytest.raises(ValueError, match="episodes is 1000000000000: give a number from 1 to"):
        statewise.evaluate(run, episodes=10**12)
