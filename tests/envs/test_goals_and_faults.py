"""Goals that move, layouts that come again, and physics that warns."""

import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch

import statewise
from statewise import Step, VecEnv
from statewise.envs.suites import parse_suite

Put = Callable[..., Step]


def reach_goals(env: VecEnv) -> Step:
    """Put every goal where the robot is, and take a step."""
    env._now.objects = env._now.objects.clone()
    env.goal[:] = env.robot_pos
    return env.step(torch.zeros(env.num_envs, env.spec.action_size))


def test_a_new_goal_lies_away_from_the_robot_and_clear_of_the_hazards() -> None:
    env = statewise.make_env("Point-Hazard-8", 256, continuing=True)
    env.reset(0)
    step = reach_goals(env)
    assert (step.reward > 0.9).all() and not step.ended.any()
    robot, goal = env.robot_pos[:, None, :2], env.goal[:, None, :2]
    assert (
        float((goal - robot).norm(dim=-1).min())
        >= env.suite.robot.keepout + env.suite.robot.goal_keepout - 1e-5
    )
    apart = (goal - env.hazards[..., :2]).norm(dim=-1)
    assert (
        float(apart.min()) >= env.suite.robot.hazard_keepout + env.suite.robot.goal_keepout - 1e-5
    )
    assert float(goal.abs().max()) <= env.suite.arena.extent - env.suite.robot.goal_keepout
    after = env.step(torch.zeros(256, 2))
    assert float(after.reward.abs().max()) < 0.1  # none of them is reached at once


def test_where_no_new_goal_fits_time_runs_out_and_only_there(put: Put) -> None:
    """With a hazard that wants all of the arena to itself there is no room for another goal."""
    suite = parse_suite("Point-Hazard-1")
    hazard: Any = suite.constraints[0]
    hazard.keepout = 5.0
    env = VecEnv(suite, 3, continuing=True, autoreset=False)
    put(env, goal=(1.0, 1.0), hazards=[(-1.5, 0.0)])
    env._now.objects = env._now.objects.clone()
    env.goal[1] = env.robot_pos[1]
    step = env.step(torch.zeros(3, 2))
    assert (step.reward > 0.9).tolist() == [False, True, False]
    assert step.truncated.tolist() == [False, True, False]
    assert not step.terminated.any() and not step.sim_fault.any()


def test_a_new_goal_out_of_the_arms_reach_is_no_goal() -> None:
    env = VecEnv("Arm3-Hazard-8", 64, continuing=True, autoreset=False)
    env.reset(0)
    step = reach_goals(env)
    reach = env.suite.robot.reach
    assert reach is not None and not step.terminated.any()
    assert 0 < int(step.truncated.sum()) < 64
    assert bool((env.goal[~step.truncated].norm(dim=-1) <= reach).all())


def test_an_episode_that_is_stuck_is_followed_by_a_new_one() -> None:
    env = statewise.make_env("Arm3-Hazard-8", 64, continuing=True)
    env.reset(0)
    step = reach_goals(env)
    stuck, reach = step.truncated, env.suite.robot.reach
    assert stuck.any() and reach is not None
    assert bool((env.goal.norm(dim=-1) <= reach).all())
    assert not torch.equal(step.obs[stuck], step.final_obs[stuck])
    assert torch.equal(step.obs[~stuck], step.final_obs[~stuck])


@pytest.mark.parametrize("continuing", [False, True])
def test_a_seed_gives_the_same_layouts_again_and_so_do_the_episodes_after_it(
    continuing: bool,
) -> None:
    env = statewise.make_env("Point-Hazard-8", 40, continuing=continuing)
    seen = []
    for seed in (5, 5, 6):
        step = env.reset(seed)
        layouts = [step.obs, env._now.objects]
        for _ in range(3):  # more than are drawn at once
            step = reach_goals(env)
            assert step.terminated.all() or continuing
            layouts += [step.obs, env._now.objects]
        layouts.append(env.reset().obs)
        seen.append(torch.cat([x.flatten() for x in layouts]))
    assert torch.equal(seen[0], seen[1]) and not torch.equal(seen[0], seen[2])


@pytest.mark.parametrize("autoreset", [True, False])
def test_what_physics_warns_of_is_a_fault_though_all_numbers_are_finite(
    autoreset: bool, caplog: pytest.LogCaptureFixture
) -> None:
    env = VecEnv("Point-Hazard-8", 3, autoreset=autoreset)
    env.reset(0)
    env.step(torch.zeros(3, 2))
    healthy, broken = env.state_dict(), env.state_dict()
    broken["sim"]["rows"][1, 1] = 1e11  # a coordinate of world 1: MuJoCo warns, and goes on
    env.load_state_dict(broken)
    with caplog.at_level(logging.WARNING, logger="statewise"):
        step = env.step(torch.zeros(3, 2))
    assert step.sim_fault.tolist() == step.terminated.tolist() == [False, True, False]
    assert step.cost[1].tolist() == pytest.approx(list(env.spec.cost_ceiling))
    assert env.faults == 1 and "mjWARN_BADQPOS" in caplog.text
    if not autoreset:
        env.load_state_dict(healthy)
    for _ in range(3):  # a warning is of the step that raised it
        assert not env.step(torch.zeros(3, 2)).sim_fault.any()
