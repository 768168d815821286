"""The suites through Gymnasium: its checker is content, and nothing of the worlds is lost."""

from __future__ import annotations

import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.utils.env_checker import check_env
from gymnasium.utils.passive_env_checker import env_render_passive_checker
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers.vector import DictInfoToList, RecordEpisodeStatistics

import statewise
from statewise import PAPER_SUITES, Step
from statewise.envs import render
from statewise.envs.to_gym import GoalEnv, GoalVectorEnv

Put = Callable[..., Step]
POINT = "statewise/Point-Hazard-8-v0"
FORWARD = np.array([1.0, 0.0], dtype=np.float32)
SIZE = {"width": 160, "height": 120}


@pytest.fixture(autouse=True)
def warnings_are_errors() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def random_actions(env: Any, steps: int) -> np.ndarray:
    """[T, a] or, of many worlds, [T, B, a]"""
    env.action_space.seed(0)
    return np.stack([env.action_space.sample() for _ in range(steps)])


def worlds(env: Any) -> statewise.VecEnv:
    return env.unwrapped.worlds


# Making them -----------------------------------------------------------------------------------


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_every_suite_of_the_paper_can_be_made(suite: str) -> None:
    env = gymnasium.make(f"statewise/{suite}-v0")
    spec = worlds(env).spec
    assert spec.name == suite
    assert env.observation_space.shape == (spec.obs_size,)
    assert env.observation_space.dtype == env.action_space.dtype == np.float32
    assert env.action_space == gymnasium.spaces.Box(-1.0, 1.0, (spec.action_size,))
    assert env.metadata["render_fps"] == round(1 / spec.control_dt)


@pytest.mark.parametrize("first", ["statewise", "gymnasium"])
def test_suites_are_known_in_whichever_order_modules_are_imported(first: str) -> None:
    """And Gymnasium is imported by the user only; torch and MuJoCo by the first environment."""
    modules = ["statewise", "gymnasium"] if first == "statewise" else ["gymnasium", "statewise"]
    code = f"""
import sys
import {modules[0]}
assert {first == "gymnasium"} or "gymnasium" not in sys.modules
import {modules[1]}
for id in ("statewise/Point-Hazard-8-v0", "statewise/Goal-v0"):
    gymnasium.spec(id)
assert not {{"torch", "mujoco"}} & set(sys.modules)
print(gymnasium.make("statewise/Point-Hazard-1-v0").observation_space.shape)
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert run.stdout == "(79,)\n", run.stderr


def test_any_other_suite_can_be_made_by_name() -> None:
    env = gymnasium.make("statewise:statewise/Goal-v0", suite="Point-Hazard-2-Pillar-2")
    env.reset(seed=0)
    info = env.step(FORWARD)[-1]
    assert info["costs"].shape == info["cost_max"].shape == (2,)


def test_settings_reach_the_worlds() -> None:
    env = gymnasium.make(POINT, compact=True, continuing=True, threads=2)
    assert env.observation_space.shape == (79 - 32,) and worlds(env).continuing
    many = gymnasium.make_vec(POINT, num_envs=3, compact=True, continuing=True, threads=1)
    assert many.observation_space.shape == (3, 79 - 32) and worlds(many).continuing


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"suite": "Point-Hazzard-8"}, "Did you mean"),
        ({"suite": "Point-Hazard-8", "max_episode_steps": 0}, "at least 1"),
        ({"suite": "Point-Hazard-8", "render_mode": "ascii"}, "human or rgb_array"),
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        GoalEnv(**settings)
    with pytest.raises(ValueError, match=message):
        GoalVectorEnv(**settings)


@pytest.mark.parametrize(
    "suite", ["Point-Hazard-8", "Point-Pillar-4", "Swimmer-Hazard-1", "Drone-3DHazard-1"]
)
def test_the_checker_of_gymnasium_is_content(suite: str) -> None:
    env = gymnasium.make(f"statewise/{suite}-v0")
    with warnings.catch_warnings(record=True) as complaints:
        warnings.simplefilter("always")
        check_env(env.unwrapped, skip_render_check=True)  # a window cannot be opened everywhere
    assert not [str(complaint.message) for complaint in complaints]


@pytest.mark.parametrize("suite", ["Point-Pillar-4", "Ant-Hazard-8", "Drone-3DHazard-4"])
def test_observations_lie_within_their_space(suite: str) -> None:
    env = gymnasium.make_vec(f"statewise/{suite}-v0", num_envs=16)
    obs, _ = env.reset(seed=0)
    for action in random_actions(env, 50):
        assert obs in env.observation_space
        obs, *_ = env.step(action)
    blocks = worlds(env).spec.blocks
    low, high = env.single_observation_space.low, env.single_observation_space.high
    assert (low[blocks["goal_lidar"]] == 0).all() and (high[blocks["goal_lidar"]] == 1).all()
    assert (low[blocks["goal_compass"]] == -1).all() and np.isfinite([low, high]).all()


# One world: episodes ---------------------------------------------------------------------------


def test_one_world_goes_through_the_episodes_of_a_vec_env() -> None:
    env = gymnasium.make_vec(POINT, max_episode_steps=5).unwrapped.worlds
    one = GoalEnv("Point-Hazard-8", max_episode_steps=5)
    step, (obs, info) = env.reset(seed=7), one.reset(seed=7)
    assert info == {}
    for action in random_actions(one, 23):
        assert np.array_equal(obs, step.obs[0].numpy())
        step = env.step(torch.from_numpy(action).unsqueeze(0))
        obs, reward, terminated, truncated, _ = one.step(action)
        assert np.array_equal(obs, step.final_obs[0].numpy())
        assert (reward, terminated, truncated) == (
            step.reward.item(), step.terminated.item(), step.truncated.item(),
        )  # fmt: skip
        if terminated or truncated:
            obs, _ = one.reset()  # no layout is skipped, none is used twice


def test_a_seed_starts_the_layouts_anew_and_none_goes_on() -> None:
    env = gymnasium.make(POINT)
    first, second = env.reset(seed=3)[0], env.reset()[0]
    assert not np.array_equal(first, second)
    env.step(FORWARD)
    assert np.array_equal(env.reset(seed=3)[0], first)
    assert np.array_equal(env.reset()[0], second)
    assert not np.array_equal(env.reset(seed=4)[0], first)


def test_environments_without_a_seed_differ() -> None:
    one, two = (gymnasium.make(POINT).reset()[0] for _ in range(2))
    assert not np.array_equal(one, two)
    many, more = (gymnasium.make_vec(POINT, num_envs=2).reset()[0] for _ in range(2))
    assert not np.array_equal(many, more)


def test_the_time_limit_truncates_and_nothing_else() -> None:
    env = gymnasium.make(POINT)
    env.reset(seed=0)
    endings = [env.step(np.zeros(2, dtype=np.float32))[2:4] for _ in range(1000)]
    assert endings == [(False, False)] * 999 + [(False, True)]


def test_reaching_the_goal_terminates_at_the_last_observation(put: Put) -> None:
    env = gymnasium.make("statewise/Point-Hazard-1-v0")
    env.reset(seed=0)
    put(worlds(env), goal=(0.5, 0.0))
    goal, terminated, info = worlds(env).goal.clone(), False, {}
    while not terminated:
        assert not info.get("success", False)
        obs, reward, terminated, truncated, info = env.step(FORWARD)
        assert not truncated
    assert reward > 1.0 and info["success"] and not info["sim_fault"]
    assert obs[worlds(env).spec.blocks["goal_compass"]][0] > 0.97  # the goal it drove up to
    assert torch.equal(worlds(env).goal, goal)  # and the world is still there to be looked at


def test_a_step_after_the_end_is_refused_until_reset() -> None:
    one = GoalEnv("Point-Hazard-8", max_episode_steps=2)
    with pytest.raises(RuntimeError, match=r"call reset\(\)"):
        one.step(FORWARD)
    one.reset(seed=0)
    one.step(FORWARD)
    assert one.step(FORWARD)[3]
    with pytest.raises(RuntimeError, match=r"has ended: call reset\(\)"):
        one.step(FORWARD)
    one.reset()
    one.step(FORWARD)


@pytest.mark.parametrize("many", [False, True])
def test_a_continuing_task_reports_goals_and_goes_on(put: Put, many: bool) -> None:
    make: Any = gymnasium.make_vec if many else gymnasium.make
    env = make("statewise/Point-Hazard-1-v0", continuing=True)
    env.reset(seed=0)
    put(worlds(env), goal=(0.5, 0.0))
    action, reached, moved = np.broadcast_to(FORWARD, env.action_space.shape), [], []
    for _ in range(60):
        before = worlds(env).goal.clone()
        _, _, terminated, truncated, info = env.step(action)
        assert not np.any(terminated) and not np.any(truncated)
        reached.append(bool(np.all(info["success"])))
        moved.append(not torch.equal(worlds(env).goal, before))
    assert any(reached) and reached == moved


# Costs and faults ------------------------------------------------------------------------------


def test_costs_come_one_for_each_constraint_with_sum_and_maximum(put: Put) -> None:
    env = gymnasium.make("statewise/Goal-v0", suite="Point-Hazard-1-Pillar-1")
    env.reset(seed=0)
    # A lone hazard has radius 0.6: at its centre's distance 0.5 the cost is 0.1, and falls as the
    # robot drives away from it. The nose touches a lone pillar (radius 0.4) ahead of it.
    put(worlds(env), goal=(0.0, 1.9), hazards=[(-0.5, 0.0)], pillars=[(0.56, 0.0)])
    infos = [env.step(FORWARD)[-1] for _ in range(40)]
    hazard, pillar = np.stack([info["costs"] for info in infos]).T
    assert hazard[0] == pytest.approx(0.1, abs=0.01) and hazard[-1] < hazard[0]
    assert pillar[0] == 0.0 and pillar.max() == 1.0
    for t, info in enumerate(infos):
        assert info["cost"] == pytest.approx(hazard[t] + pillar[t])
        assert info["cost_max"].tolist() == [hazard[: t + 1].max(), pillar[: t + 1].max()]
    assert isinstance(info["cost"], float) and isinstance(info["success"], bool)


@pytest.mark.parametrize("many", [False, True])
def test_a_simulator_fault_is_told_from_reaching_the_goal(many: bool) -> None:
    make: Any = gymnasium.make_vec if many else gymnasium.make
    env = make(POINT)
    last, _ = env.reset(seed=0)
    state = worlds(env).state_dict()
    state["sim"]["rows"][0] = torch.nan
    worlds(env).load_state_dict(state)
    obs, reward, terminated, truncated, info = env.step(np.zeros(env.action_space.shape, "f4"))
    assert np.all(info["sim_fault"]) and np.all(terminated) and not np.any(truncated)
    assert not np.any(info["success"]) and np.all(reward == 0.0)
    assert np.allclose(info["cost"], worlds(env).spec.cost_ceiling)
    final = info["final_obs"][0] if many else obs
    assert np.array_equal(final, last[0] if many else last)
    env.reset()
    assert not np.any(env.step(np.zeros(env.action_space.shape, "f4"))[-1]["sim_fault"])


@pytest.mark.parametrize("many", [False, True])
def test_what_is_returned_may_be_written_into(many: bool) -> None:
    make: Any = gymnasium.make_vec if many else gymnasium.make
    env, twin = make(POINT), make(POINT)
    env.reset(seed=0)[0][:] = 9.0
    twin.reset(seed=0)
    for action in random_actions(env, 5):
        obs, reward, *_, info = env.step(action)
        theirs = twin.step(action)
        assert np.array_equal(obs, theirs[0]) and np.array_equal(reward, theirs[1])
        assert np.array_equal(info["cost_max"], theirs[-1]["cost_max"])
        for array in (obs, info["costs"], info["cost_max"]):
            array[:] = 1.0


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (np.zeros(3, "f4"), ValueError, r"shape \(3,\); Point-Hazard-8 takes \(2,\)"),
        (np.zeros((1, 2), "f4"), ValueError, r"takes \(2,\)"),
        (np.zeros(2, "i4"), TypeError, "int32"),
        (np.array([np.nan, 0.0], "f4"), ValueError, "not finite"),
    ],
)
def test_bad_actions_are_refused_and_nothing_is_stepped(
    action: np.ndarray, error: type[Exception], message: str
) -> None:
    env, twin = gymnasium.make(POINT), gymnasium.make(POINT)
    env.reset(seed=0), twin.reset(seed=0)
    with pytest.raises(error, match=message):
        env.step(action)
    assert np.array_equal(env.step(FORWARD)[0], twin.step(FORWARD)[0])


def test_bad_actions_of_many_worlds_name_the_world() -> None:
    env = gymnasium.make_vec(POINT, num_envs=3)
    actions = np.zeros((3, 2), "f4")
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        env.step(actions)
    env.reset(seed=0)
    with pytest.raises(ValueError, match=r"takes \(3, 2\)"):
        env.step(actions[:2])
    actions[1, 0] = np.inf
    with pytest.raises(ValueError, match="world 1"):
        env.step(actions)


@pytest.mark.parametrize("many", [False, True])
def test_reset_options_that_mean_nothing_are_refused(many: bool) -> None:
    make: Any = gymnasium.make_vec if many else gymnasium.make
    env = make(POINT)
    env.reset(seed=0, options={})
    with pytest.raises(ValueError, match="reset_mask"):
        env.reset(options={"reset_mask": np.array([True])})


# Many worlds -----------------------------------------------------------------------------------


def test_many_worlds_are_the_vec_env_to_the_bit() -> None:
    many = gymnasium.make_vec("statewise/Point-Pillar-4-v0", num_envs=8)
    env = statewise.make_env("Point-Pillar-4", num_envs=8)
    obs, _ = many.reset(seed=5)
    step = env.reset(seed=5)
    for action in random_actions(many, 100):
        assert np.array_equal(obs, step.obs.numpy()) and obs.dtype == np.float32
        obs, reward, terminated, truncated, info = many.step(action)
        step = env.step(torch.from_numpy(action))
        assert np.array_equal(reward, step.reward.numpy())
        assert np.array_equal(terminated, step.terminated.numpy())
        assert np.array_equal(truncated, step.truncated.numpy())
        assert np.array_equal(info["costs"], step.cost.numpy()) and info["_costs"].all()
        assert np.array_equal(info["cost_max"], step.cost_max.numpy())


def test_endings_are_reported_as_gymnasium_reports_them() -> None:
    ours = gymnasium.make_vec(POINT, num_envs=2, max_episode_steps=3)
    theirs = gymnasium.make_vec(
        POINT, 2, "sync", {"autoreset_mode": AutoresetMode.SAME_STEP}, max_episode_steps=3
    )
    assert ours.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    ours.reset(seed=0), theirs.reset(seed=0)
    for t, action in enumerate(random_actions(ours, 6)):
        mine, other = ours.step(action), theirs.step(action)
        for a, b in zip(mine[:4], other[:4], strict=True):
            assert a.shape == b.shape and a.dtype == b.dtype
        if t % 3 < 2:
            assert _form(mine[-1]) == _form(other[-1])
        else:  # theirs keeps the last step's cost in `final_info` alone
            ends = ("final_obs", "final_info", "_final_obs", "_final_info")
            assert [_form(mine[-1][k]) for k in ends] == [_form(other[-1][k]) for k in ends]
            assert set(other[-1]) == set(ends)


def _form(value: Any) -> Any:
    """Names, shapes and types of what stands in an info."""
    if isinstance(value, dict):
        return {name: _form(inner) for name, inner in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return [_form(inner) for inner in value]
    return (value.shape, value.dtype)


def test_where_an_episode_ends_the_new_one_is_observed_and_the_old_one_told(put: Put) -> None:
    env = gymnasium.make_vec("statewise/Point-Hazard-1-v0", num_envs=2)
    env.reset(seed=0)
    put(worlds(env), goal=(0.5, 0.0), hazards=[(-0.5, 0.0)])
    action = np.stack([FORWARD, 0 * FORWARD])  # only the first drives
    terminated = np.zeros(2, dtype=bool)
    while not terminated.any():
        obs, reward, terminated, _, info = env.step(action)
    assert terminated.tolist() == [True, False] and reward[0] > 1.0
    assert info["_final_obs"].tolist() == info["_final_info"].tolist() == [True, False]
    assert info["final_obs"][0] in env.single_observation_space and info["final_obs"][1] is None
    assert not np.array_equal(obs[0], info["final_obs"][0])
    final = info["final_info"]
    assert final["success"].tolist() == final["_success"].tolist() == [True, False]
    # The cost and the maximum of the episode that ended; the other world stands in its hazard.
    assert final["cost_max"][0] == info["cost_max"][0] == pytest.approx(0.1, abs=0.01)
    assert info["cost"][1] == pytest.approx(0.1, abs=0.001) and final["cost"][1] == 0.0
    assert env.step(action)[-1]["cost_max"][0] == 0.0


def test_wrappers_of_gymnasium_understand_the_infos() -> None:
    env = gymnasium.make_vec(POINT, num_envs=2, max_episode_steps=4)
    listed = DictInfoToList(RecordEpisodeStatistics(env))
    assert listed.reset(seed=0)[1] == [{}, {}]
    total = np.zeros(2)
    for action in random_actions(env, 4):
        _, reward, _, truncated, infos = listed.step(action)
        total += reward
    assert truncated.all()
    for world, info in enumerate(infos):
        assert info["episode"]["l"] == 4
        assert info["episode"]["r"] == pytest.approx(total[world])
        assert info["final_info"]["costs"].shape == (1,)
        assert info["final_obs"] in env.single_observation_space


def test_the_sync_vectorizer_works_too() -> None:
    env = gymnasium.make_vec(POINT, num_envs=3, vectorization_mode="sync")
    obs, _ = env.reset(seed=0)
    assert np.array_equal(obs[1], gymnasium.make(POINT).reset(seed=1)[0])
    for action in random_actions(env, 5):
        obs, *_, info = env.step(action)
    assert obs in env.observation_space and info["costs"].shape == (3, 1)
    env.close()


# Looking ---------------------------------------------------------------------------------------


def test_pictures_are_given_of_every_world() -> None:
    one = gymnasium.make(POINT, render_mode="rgb_array", **SIZE)
    try:
        one.reset(seed=0)
    except render.DrawError as error:
        pytest.skip(f"nothing can be drawn here: {error}")
    frame = env_render_passive_checker(one.unwrapped)
    assert frame.shape == (120, 160, 3) and frame.dtype == np.uint8 and frame.std() > 0
    many = gymnasium.make_vec(POINT, num_envs=2, render_mode="rgb_array", **SIZE)
    many.reset(seed=0)
    frames = many.render()
    assert len(frames) == 2 and frames[0].shape == frame.shape
    assert not np.array_equal(*frames)
    for env in (one, many):
        env.close()
        env.close()


class Window:
    """Stands in for a viewer: what it was asked for."""

    def __init__(self, env: statewise.VecEnv) -> None:
        self.calls = ["open"]
        self.tally: Any = None
        WINDOWS.append(self)

    def follow(self, step: Step) -> None:
        self.calls.append("follow")

    def sync(self) -> None:
        self.calls.append("sync")

    def close(self) -> None:
        self.calls.append("close")


WINDOWS: list[Window] = []


@pytest.mark.parametrize("many", [False, True])
def test_a_window_is_kept_up_to_date_by_reset_and_step(
    many: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(render, "Viewer", Window)
    WINDOWS.clear()
    make: Any = gymnasium.make_vec if many else gymnasium.make
    env = make(POINT, render_mode="human")
    assert not WINDOWS
    env.reset(seed=0)
    env.step(np.zeros(env.action_space.shape, "f4"))
    assert env.render() is None
    env.close()
    assert [window.calls for window in WINDOWS] == [["open", "sync", "follow", "sync", "close"]]


def test_rendering_too_early_or_without_a_mode_says_what_to_do() -> None:
    env = GoalEnv("Point-Hazard-8", render_mode="rgb_array")
    with pytest.raises(RuntimeError, match=r"call reset\(\) before render\(\)"):
        env.render()
    env = gymnasium.make(POINT).unwrapped
    env.reset(seed=0)
    with pytest.warns(UserWarning, match="render_mode="):
        assert env.render() is None


# Learning --------------------------------------------------------------------------------------


def test_a_ppo_of_stable_baselines3_learns_on_it() -> None:
    sb3 = pytest.importorskip("stable_baselines3")
    model = sb3.PPO("MlpPolicy", gymnasium.make(POINT), n_epochs=4, seed=0, device="cpu")
    before = torch.nn.utils.parameters_to_vector(model.policy.parameters()).clone()
    model.learn(2 * 2048)
    after = torch.nn.utils.parameters_to_vector(model.policy.parameters())
    assert model.num_timesteps == 2 * 2048
    assert torch.isfinite(after).all() and not torch.equal(before, after)
