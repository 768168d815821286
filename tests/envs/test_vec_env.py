"""What a batch of worlds promises: rewards, costs, endings, faults, saving, determinism."""

import gc
import itertools
import logging
import weakref
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import statewise
from statewise import Step, VecEnv
from statewise.envs.layouts import DeviceStock
from statewise.training.evaluate import _FRESH

Put = Callable[..., Step]
FORWARD = torch.tensor([1.0, 0.0])


def random_actions(env: VecEnv, steps: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.rand(steps, env.num_envs, env.spec.action_size, generator=generator) * 2 - 1


# Reward and cost -------------------------------------------------------------------------------


def test_rewards_telescope_to_the_distance_travelled_towards_the_goal(point: VecEnv) -> None:
    step = point.reset(seed=3)
    start = (point.goal - point.robot_pos)[:, :2].norm(dim=-1)
    total = torch.zeros(2)
    for action in random_actions(point, 100):
        step = point.step(action)
        total += step.reward
    assert not step.ended.any()
    end = (point.goal - point.robot_pos)[:, :2].norm(dim=-1)
    torch.testing.assert_close(total, start - end, atol=1e-5, rtol=0)


def test_reaching_the_goal_adds_one_and_terminates(point: VecEnv, put: Put) -> None:
    put(point, goal=(0.5, 0.0))
    total, step = torch.zeros(2), None
    for _ in range(100):
        step = point.step(FORWARD.expand(2, 2))
        total += step.reward
        if step.ended.any():
            break
    assert step is not None and step.terminated.all() and not step.truncated.any()
    # From 0.5 m to at most 0.3 m away, and the bonus of 1.
    assert ((total >= 1.2) & (total < 1.25)).all()


@pytest.mark.parametrize(
    ("hazards", "expected"),
    [
        ([(0.0, 0.0)], 0.3),  # on the centre: the whole radius
        ([(0.2, 0.0)], 0.1),  # 0.1 m inside the rim
        ([(0.3, 0.0)], 0.0),  # on the rim
        ([(0.2, 0.0), (0.0, -0.1)], 0.2),  # two overlapping: the deeper one counts, not the sum
        ([], 0.0),
    ],
)
def test_hazard_cost_is_the_depth_in_the_deepest_hazard(
    point: VecEnv, put: Put, hazards: list[tuple[float, float]], expected: float
) -> None:
    put(point, hazards=hazards)
    step = point.step(torch.zeros(2, 2))
    torch.testing.assert_close(step.cost, torch.full((2, 1), expected), atol=1e-5, rtol=0)


def test_a_lone_hazard_is_larger(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-1", 1)
    put(env, hazards=[(0.5, 0.0)])
    assert float(env.step(torch.zeros(1, 2)).cost) == pytest.approx(0.1, abs=1e-5)


def test_the_drone_is_charged_in_three_dimensions(put: Put) -> None:
    env = statewise.make_env("Drone-3DHazard-8", 1)
    put(env, goal=(1.5, 1.5, 1.0), hazards=[(0.0, 0.3, 1.4)])  # the drone hovers at z = 1
    cost = float(env.step(torch.zeros(1, 4)).cost)
    assert cost == pytest.approx(0.5 - 0.5, abs=1e-4)
    put(env, goal=(1.5, 1.5, 1.0), hazards=[(0.0, 0.0, 1.2)])
    assert float(env.step(torch.zeros(1, 4)).cost) == pytest.approx(0.3, abs=1e-4)


def test_the_arm_is_charged_along_its_links(put: Put) -> None:
    """Upper arm: from (0, 0, 0.3) up to 1.8 with radius 0.15. Hazards have a radius of 0.3."""
    env = statewise.make_env("Arm3-Hazard-8", 1)
    put(env, goal=(1.5, 1.0, 1.0), hazards=[(0.4, 0.0, 1.0)])
    assert float(env.step(torch.zeros(1, 3)).cost) == pytest.approx(0.3 - 0.25, abs=1e-4)
    # Forearm: from (0, 0, 1.8) to (0, 1, 1.8) with radius 0.1; turned by the start heading.
    put(env, yaw=-torch.pi / 2, goal=(1.5, 1.0, 1.0), hazards=[(0.5, 0.2, 1.8)])
    assert float(env.step(torch.zeros(1, 3)).cost) == pytest.approx(0.3 - 0.1, abs=1e-4)


@pytest.mark.parametrize(("gap", "hit"), [(0.30, 0.0), (0.19, 1.0)])
def test_pillar_cost_is_1_on_contact_and_0_without(put: Put, gap: float, hit: float) -> None:
    """Behind the Point is its ball of radius 0.1; pillars have a radius of 0.1 + 0.1."""
    env = statewise.make_env("Point-Pillar-4", 2)
    put(env, pillars=[(-gap - 0.1, 0.0)])
    step = env.step(torch.zeros(2, 2))
    assert step.cost.flatten().tolist() == [hit, hit]


def test_a_pillar_stops_the_robot_and_charges_each_step(put: Put) -> None:
    env = statewise.make_env("Point-Pillar-1", 1)
    put(env, goal=(1.8, 0.0), pillars=[(0.8, 0.0)])
    costs = [float(env.step(FORWARD.expand(1, 2)).cost) for _ in range(100)]
    assert float(env.robot_pos[0, 0]) < 0.8 - 0.4  # its nose is at the pillar's surface
    assert set(costs) == {0.0, 1.0} and sum(costs[-20:]) > 5


def test_the_swimmers_links_hit_pillars(put: Put) -> None:
    env = statewise.make_env("Swimmer-Pillar-1", 1)
    put(env, pillars=[(0.225, 0.415)])  # beside the middle of the head link, 0.005 m into it
    assert float(env.step(torch.zeros(1, 2)).cost) == 1.0


def test_the_running_maximum_is_the_largest_cost_so_far(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 8, seed=2)
    env.reset()
    for i in range(8):
        env.hazards[i, 0, :2] = env.robot_pos[i, :2] + 0.05 * i
    largest = torch.zeros(8, 1)
    seen = []
    for action in random_actions(env, 150):
        step = env.step(action * 0.05)
        torch.testing.assert_close(step.cost_max_before, largest)
        largest = torch.maximum(largest, step.cost)
        torch.testing.assert_close(step.cost_max, largest)
        torch.testing.assert_close(step.increment, step.cost_max - step.cost_max_before)
        largest = largest.masked_fill(step.ended.unsqueeze(1), 0.0)
        torch.testing.assert_close(step.obs_cost_max, largest)
        seen.append(step.cost)
    assert torch.stack(seen).max() > 0.1


# Endings ---------------------------------------------------------------------------------------


def test_the_time_limit_truncates_and_does_not_terminate(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 2)
    put(env, goal=(30.0, 30.0))
    for t in range(1000):
        step = env.step(torch.zeros(2, 2))
        assert step.truncated.all() == (t == 999)
    assert not step.terminated.any()


def test_final_obs_is_the_true_last_observation_and_obs_the_first_of_the_next(put: Put) -> None:
    env, twin = (statewise.make_env("Point-Hazard-8", 2, continuing=c) for c in (False, True))
    put(env, goal=(0.5, 0.0), hazards=[(0.3, 0.1)])
    put(twin, goal=(0.5, 0.0), hazards=[(0.3, 0.1)])
    for _ in range(100):
        # The twin goes on where this one ends, so its sensors show the true last state.
        step, other = env.step(FORWARD.expand(2, 2)), twin.step(FORWARD.expand(2, 2))
        if step.ended.any():
            break
        assert torch.equal(step.obs, step.final_obs) and torch.equal(step.obs, other.obs)
    assert step.terminated.all()
    sensed = torch.cat([torch.arange(12), torch.arange(31, 47)])  # internal state, hazard lidar
    torch.testing.assert_close(step.final_obs[:, sensed], other.obs[:, sensed])
    assert step.final_obs[0, 15:31].max() > np.exp(-0.31)  # the goal is right there
    assert not torch.equal(step.obs, step.final_obs)
    at_rest = env.spec.blocks["velocimeter"]
    assert step.obs[:, at_rest].abs().max() < 1e-6
    assert step.final_obs[:, at_rest].abs().max() > 0.1
    torch.testing.assert_close(step.cost_max, step.cost_max_before.maximum(step.cost))
    assert not step.obs_cost_max.any()


def test_worlds_end_on_their_own(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 2)
    put(env, goal=(0.5, 0.0))
    env.goal[1] = torch.tensor([30.0, 30.0, 0.16])
    for _ in range(60):
        step = env.step(FORWARD.expand(2, 2))
        assert not step.ended[1]
        if step.ended[0]:
            break
    assert step.terminated[0]


def test_continuing_moves_the_goal_and_goes_on(put: Put) -> None:
    env = statewise.make_env("Point-Hazard-8", 2, continuing=True)
    put(env, goal=(0.5, 0.0))
    goal = env.goal.clone()
    rewards = [env.step(FORWARD.expand(2, 2)) for _ in range(60)]
    reached = [s for s in rewards if (s.reward > 0.9).any()]
    assert len(reached) >= 1 and not any(s.ended.any() for s in rewards)
    assert (env.goal != goal).any(dim=1).all()
    # A new goal is a new reference: the step after pays progress only, no jump.
    after = rewards[rewards.index(reached[0]) + 1]
    assert after.reward.abs().max() < 0.1


# Faults ----------------------------------------------------------------------------------------


def test_a_forced_nan_in_one_world_is_contained_charged_and_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    env, twin = (statewise.make_env("Ant-Hazard-8", 3, seed=4) for _ in range(2))
    last = env.reset()
    twin.reset()
    actions = random_actions(env, 30)
    for action in actions[:10]:
        last = env.step(action)
        twin.step(action)
    state = env.state_dict()
    state["sim"]["rows"][1, 1] = torch.nan  # a coordinate of world 1
    env.load_state_dict(state)
    with caplog.at_level(logging.WARNING, logger="statewise"):
        step, other = env.step(actions[10]), twin.step(actions[10])
    assert step.sim_fault.tolist() == [False, True, False]
    assert step.terminated.tolist() == [False, True, False] and not step.truncated.any()
    assert float(step.cost[1]) == pytest.approx(0.3) and float(step.reward[1]) == 0.0
    assert torch.equal(step.final_obs[1], last.obs[1])  # the last finite observation
    assert env.faults == 1 and "world 1" in caplog.text
    rest = torch.tensor([0, 2])
    assert torch.equal(step.obs[rest], other.obs[rest])
    assert torch.equal(step.reward[rest], other.reward[rest])
    for action in actions[11:]:  # the world that failed starts anew, the others go on as ever
        step, other = env.step(action), twin.step(action)
        assert torch.isfinite(step.obs).all()
        assert torch.equal(step.obs[rest], other.obs[rest])
    assert env.faults == 1


# Saving and determinism ------------------------------------------------------------------------


@pytest.mark.parametrize("suite", ["Point-Hazard-8", "Ant-Hazard-8", "Point-Pillar-4"])
def test_save_restore_continue_gives_the_same_bytes(suite: str) -> None:
    env = statewise.make_env(suite, 16, seed=1)
    env.reset()
    actions = random_actions(env, 60)
    for action in actions[:20]:
        env.step(action)
    saved = env.state_dict()
    first = [env.step(action) for action in actions[20:]]
    other = statewise.make_env(suite, 16, seed=9)
    other.load_state_dict(saved)
    for a, action in zip(first, actions[20:], strict=True):
        b = other.step(action)
        for name in ("obs", "reward", "cost", "cost_max", "terminated", "truncated", "final_obs"):
            assert torch.equal(getattr(a, name), getattr(b, name)), name


def test_layouts_of_a_seed_are_the_same_whenever_and_by_whomever_they_are_drawn() -> None:
    stock = statewise.make_env("Point-Hazard-8", 2000)._layouts
    stock.seed(3)
    with ThreadPoolExecutor(2) as threads:
        early = list(threads.map(stock.chunk, (4, 2, 0)))
    in_order = [stock.chunk(number) for number in range(5)]
    for mine, number in zip(early, (4, 2, 0), strict=True):
        assert torch.equal(mine, in_order[number])
    assert sum(len(rows) for rows in in_order[:2]) == 2000  # the first episodes of all worlds
    assert len({tuple(rows[0].tolist()) for rows in in_order}) == 5
    taken = stock.unpack(torch.cat(in_order[:3])[:2050])
    assert all(map(torch.equal, stock.take(torch.arange(2050)), taken))


def test_no_layout_of_an_evaluation_is_one_of_the_training() -> None:
    stock = statewise.make_env("Point-Hazard-8", 256)._layouts
    stock.seed(_FRESH + 7)
    fresh = stock.unpack(stock.chunk(0))[1].tolist()
    stock.seed(7)
    for number in (0, 1, 256, 257, 512):
        assert not set(fresh) & set(stock.unpack(stock.chunk(number))[1].tolist())


def test_a_negative_seed_is_refused() -> None:
    with pytest.raises(ValueError, match="seed is -1: give a whole number from 0"):
        statewise.make_env("Point-Hazard-8", seed=-1)
    with pytest.raises(ValueError, match="seed is -2: give a whole number from 0"):
        statewise.make_env("Point-Hazard-8").reset(seed=-2)


def test_a_single_world_finds_a_layout_for_every_seed() -> None:
    env = statewise.make_env("Arm3-Hazard-8")  # of whose layouts a third may not start an episode
    robot = env.suite.robot
    for seed in range(20):
        env.reset(seed=seed)
        assert robot.goal_radius < float((env.goal - env.robot_pos).norm())
        assert robot.reach is not None and float(env.goal.norm()) <= robot.reach


def test_an_interrupted_drawing_leaves_the_sequence_of_layouts_as_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, twin = (statewise.make_env("Point-Hazard-1", 64)._layouts for _ in range(2))
    stock = DeviceStock(source, torch.device("cpu"), threads=2)
    everyone = torch.ones(64, dtype=torch.bool)
    expected = [twin.take(torch.arange(64)) for _ in range(20)]
    result, calls = Future.result, itertools.count()

    def interrupted(self: Future[Any], timeout: float | None = None) -> Any:
        if next(calls) in (1, 2, 5):
            raise KeyboardInterrupt
        return result(self, timeout)

    monkeypatch.setattr(Future, "result", interrupted)
    interrupts, taken = 0, 0
    while taken < len(expected):
        try:
            rows = stock.take(everyone)
        except KeyboardInterrupt:
            interrupts += 1
            continue
        assert all(map(torch.equal, rows, expected[taken]))
        taken += 1
    assert interrupts == 3


def test_layouts_under_way_do_not_keep_an_environment_alive() -> None:
    env = statewise.make_env("Point-Hazard-8", 2)
    stock, gone = DeviceStock(env._layouts, torch.device("cpu")), weakref.ref(env)
    stock.take(torch.tensor([True, True]))
    del env
    gc.collect()
    assert gone() is None


def test_saving_covers_the_layouts_of_episodes_to_come(put: Put) -> None:
    env, other = (statewise.make_env("Point-Hazard-8", 2, seed=s) for s in (0, 7))
    put(env, goal=(0.5, 0.0))
    other.load_state_dict(env.state_dict())
    for _ in range(60):
        a, b = (e.step(FORWARD.expand(2, 2)) for e in (env, other))
        assert torch.equal(a.obs, b.obs)
    assert torch.equal(env.goal, other.goal) and env.goal[0, 0] != 0.5


@pytest.mark.parametrize(
    ("suite", "device"),
    [
        ("Point-Hazard-8-Pillar-4", "cpu"),
        ("Drone-3DHazard-8", "cpu"),
        ("Arm3-Hazard-8", "cpu"),
        ("Arm3-Hazard-8", "warp-cpu"),
    ],
)
def test_trajectories_are_the_same_whatever_type_torch_takes_by_default(
    suite: str, device: str
) -> None:
    def steps() -> list[Step]:
        env = statewise.make_env(suite, 3, seed=5, device=device, continuing=device == "cpu")
        actions = torch.linspace(-1, 1, 20, dtype=torch.float32)
        size = (3, env.spec.action_size)
        found = [env.reset(), *(env.step(a.expand(size)) for a in actions)]
        parts = (env.goal, env.hazards, env.pillars)
        return [*found, env.reset_to(torch.zeros(3, 2), torch.ones(3), *parts)]

    usual = steps()
    torch.set_default_dtype(torch.float64)
    try:
        other = steps()
    finally:
        torch.set_default_dtype(torch.float32)
    for mine, theirs in zip(usual, other, strict=True):
        for name, value in vars(mine).items():
            given = getattr(theirs, name)
            assert given.dtype == value.dtype and torch.equal(given, value), name


@pytest.mark.parametrize("suite", ["Point-Hazard-8", "Humanoid-Hazard-8"])
def test_trajectories_are_bitwise_the_same_with_1_and_2_threads(suite: str) -> None:
    one, two = (statewise.make_env(suite, 32, seed=5, threads=n) for n in (1, 2))
    assert torch.equal(one.reset().obs, two.reset().obs)
    for action in random_actions(one, 40):
        a, b = one.step(action), two.step(action)
        assert torch.equal(a.obs, b.obs) and torch.equal(a.reward, b.reward)


def test_a_seed_decides_the_episodes(point: VecEnv) -> None:
    a, b, c = (point.reset(seed=s).obs for s in (1, 1, 2))
    assert torch.equal(a, b) and not torch.equal(a, c)
    d = point.reset().obs  # without a seed the sequence goes on
    assert not torch.equal(d, c)


def test_steps_handed_out_are_never_written_again(point: VecEnv) -> None:
    point.reset(seed=0)
    actions = random_actions(point, 30)
    step = point.step(actions[0])
    copies = [getattr(step, name).clone() for name in step.__dataclass_fields__]
    for action in actions[1:]:
        point.step(action)
    for name, copy in zip(step.__dataclass_fields__, copies, strict=True):
        assert torch.equal(getattr(step, name), copy), name


# Bad input -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("action", "error", "message"),
    [
        (torch.zeros(2, 3), ValueError, r"shape \(2, 3\).*takes \(2, 2\)"),
        (torch.zeros(2), ValueError, r"shape \(2,\)"),
        (torch.zeros(2, 2, dtype=torch.long), TypeError, "dtype torch.int64"),
        (torch.tensor([[0.0, 0.0], [0.0, torch.nan]]), ValueError, "world 1 is not finite"),
        (torch.tensor([[torch.inf, 0.0], [0.0, 0.0]]), ValueError, "world 0 is not finite"),
        (np.zeros((2, 2)), TypeError, "pass a torch tensor"),
    ],
)
def test_a_bad_action_says_what_is_wrong_and_steps_nothing(
    point: VecEnv, action: Tensor, error: type[Exception], message: str
) -> None:
    point.reset()
    before = point.state_dict()["sim"]["rows"]
    with pytest.raises(error, match=message):
        point.step(action)
    assert torch.equal(point.state_dict()["sim"]["rows"], before)


def test_step_before_reset_is_an_error(point: VecEnv) -> None:
    with pytest.raises(RuntimeError, match=r"call reset\(\) before step\(\)"):
        point.step(torch.zeros(2, 2))


def test_an_unknown_device_is_an_error() -> None:
    with pytest.raises(ValueError, match="unknown device 'tpu'"):
        statewise.make_env("Point-Hazard-8", 2, device="tpu")


def test_no_worlds_is_an_error() -> None:
    with pytest.raises(ValueError, match="num_envs is 0: give a number of worlds from 1"):
        statewise.make_env("Point-Hazard-8", 0)


def test_state_of_another_environment_is_refused(point: VecEnv) -> None:
    point.reset()
    other = statewise.make_env("Point-Hazard-4", 2)
    with pytest.raises(ValueError, match="make it alike"):
        other.load_state_dict(point.state_dict())


def test_actions_are_clipped_to_the_unit_box(point: VecEnv) -> None:
    results = []
    for size in (1.0, 5.0):
        point.reset(seed=0)
        results.append(point.step(torch.full((2, 2), size)).obs)
    assert torch.equal(results[0], results[1])
