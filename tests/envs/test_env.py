"""The environment contract: its defaults, who keeps it, and environments by name."""

import ast
import logging
import re
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from line_env import LineEnv
from torch import Tensor

import statewise
from statewise import Env, EnvSpec, GymEnv, Step, VecEnv
from statewise.algos import get_algorithm
from statewise.envs.make import make_env
from statewise.training.collect import Collector
from statewise.training.config import TrainSettings
from statewise.training.loop import build_env
from statewise.types import first_step

PACKAGE = Path(statewise.__file__).parent


class Still(gymnasium.Env):
    """Nothing happens."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: object) -> tuple:
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.0}


gymnasium.register("TestStill-v0", entry_point=Still, max_episode_steps=5)


class Smallest(Env):
    """The least that an environment has to define: its facts, `reset` and `step`."""

    def __init__(self) -> None:
        self.num_envs, self.device, self.time = 3, torch.device("cpu"), 0
        self.spec = EnvSpec(
            name="Smallest", obs_size=1, action_size=1, cost_names=("cost",), cost_ceiling=(1.0,),
            max_episode_steps=4, control_dt=1.0, blocks={"time": slice(0, 1)},
        )  # fmt: skip

    def reset(self, seed: int | None = None) -> Step:
        self.time = 0
        return first_step(torch.zeros(3, 1), 1)

    def step(self, action: Tensor) -> Step:
        self.time += 1
        obs, zero = torch.full((3, 1), float(self.time)), torch.zeros(3, 1)
        late = torch.full((3,), self.time >= 4)
        self.time %= 4
        no = late & False
        return Step.from_costs(obs, zero[:, 0], zero, zero, zero, no, late, obs, no)


def collector(env: Env) -> Collector:
    kind = get_algorithm("trpo")
    return Collector(env, kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0), 0, True)


# The contract ----------------------------------------------------------------------------------


@pytest.mark.parametrize("room", sorted(p.name for p in PACKAGE.iterdir() if p.suffix != ".typed"))
def test_nobody_outside_of_envs_inspects_an_environment(room: str) -> None:
    if room == "envs":
        return
    wrong = []
    path = PACKAGE / room
    for file in [path] if path.is_file() else path.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and node.args:
                looks = ast.unparse(node.func) in ("hasattr", "getattr", "isinstance")
                if looks and re.search(r"(^|[._])(env|envs|worlds)$", ast.unparse(node.args[0])):
                    wrong.append(f"{file.relative_to(PACKAGE)}:{node.lineno} {ast.unparse(node)}")
    assert not wrong, wrong


def test_an_environment_that_defines_the_least_is_collected_from() -> None:
    with Smallest() as env:
        assert (env.faults, env.continuing, env.can_set_age, env.has_time_limit) == (
            0, False, False, True,
        )  # fmt: skip
        with pytest.raises(NotImplementedError, match="Smallest cannot change the age"):
            env.set_age(torch.zeros(3))
        rollout, episodes = collector(env).collect(8)
        assert rollout.ended.sum() == 6 and (episodes.length == 4).all()


def test_an_environment_that_saves_nothing_begins_new_episodes_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    gatherer, again = collector(Smallest()), collector(Smallest())
    gatherer.collect(3)
    with caplog.at_level(logging.WARNING, "statewise"):
        again.load_state_dict(gatherer.state_dict())
    assert "Smallest cannot save its worlds: new episodes begin" in caplog.text
    rollout, _ = again.collect(4)
    assert rollout.age[:, 0].tolist() == [0, 1, 2, 3]


def test_every_environment_names_what_it_can_do() -> None:
    suite, task = VecEnv("Point-Hazard-1"), VecEnv("Point-Hazard-1", continuing=True)
    gym, line = GymEnv(Still), LineEnv(2)
    assert all(isinstance(env, Env) for env in (suite, task, gym, line))
    assert [env.can_set_age for env in (suite, task, gym, line)] == [True, True, False, False]
    assert [env.continuing for env in (suite, task, gym, line)] == [False, True, False, False]
    assert [env.has_time_limit for env in (suite, gym, line)] == [True, False, True]
    assert GymEnv(Still, max_episode_steps=100_000).has_time_limit


def test_an_environment_closes_what_it_holds_when_it_is_left() -> None:
    closed = []

    class Held(Still):
        def close(self) -> None:
            closed.append(self)

    with GymEnv(Held, 2):
        assert len(closed) == 1  # the one that showed the costs
    assert len(closed) == 3


# By name ---------------------------------------------------------------------------------------


def test_one_function_makes_suites_and_gymnasium_environments() -> None:
    suite = make_env("Point-Hazard-1", 2, seed=3, compact=True)
    gym = make_env("gym:TestStill-v0", 2, seed=3, cost_ceiling=2.0)
    assert isinstance(suite, VecEnv) and isinstance(gym, GymEnv)
    assert suite.spec.obs_size == 12 + 3 + 2 * 16 and gym.spec.cost_ceiling == (2.0,)
    assert (gym.spec.name, gym.num_envs, gym.seed) == ("gym:TestStill-v0", 2, 3)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("Point-Hazard-1", {"cost_keys": "slip"}, "no option 'cost_keys', which is for .* gym:ID"),
        ("Point-Hazard-1", {"max_episode_steps": 5}, "no option 'max_episode_steps'"),
        ("Point-Hazard-1", {"compct": True}, "no option 'compct'. Did you mean compact"),
        ("gym:TestStill-v0", {"compact": False}, "no option 'compact', which is for suites"),
        ("gym:TestStill-v0", {"integrator": "RK4"}, "no option 'integrator', which is for suites"),
        ("gym:TestStill-v0", {"cost_celing": 2.0}, "Did you mean cost_ceiling"),
    ],
)
def test_an_option_that_does_not_apply_is_refused_by_name(
    name: str, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        make_env(name, **options)


@pytest.mark.parametrize("option", ["compact", "continuing", "deterministic"])
def test_training_refuses_a_setting_that_its_environment_would_ignore(option: str) -> None:
    settings = TrainSettings(suite="gym:TestStill-v0", num_envs=2, device="cpu")
    assert build_env(settings).num_envs == 2
    with pytest.raises(ValueError, match=f"gym:TestStill-v0 has no option '{option}'"):
        build_env(
            TrainSettings(suite="gym:TestStill-v0", num_envs=2, device="cpu", **{option: True})
        )  # type: ignore[arg-type]
