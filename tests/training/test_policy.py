"""Using a policy: evaluating it, loading it, calling it from one's own code."""

import dataclasses
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import torch
from line_env import LineEnv
from torch import Tensor

import statewise
from statewise.algos import get_algorithm
from statewise.metrics import describe
from statewise.runs import checkpoint
from statewise.training.collect import Collector
from statewise.training.config import TrainSettings
from statewise.training.evaluate import evaluate, run_episodes
from statewise.training.loop import Training
from statewise.training.policy import load_policy
from statewise.types import Episodes, Step

SMALL: dict[str, Any] = {
    "steps": 640,
    "steps_per_epoch": 320,
    "num_envs": 16,
    "tensorboard": False,
    "quiet": True,
    "hidden": (8,),
    "critic_iterations": 3,
    "threads": 1,
}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = str(tmp_path_factory.mktemp("runs"))
    return statewise.train("Point-Hazard-8", out=out, **SMALL)


def test_a_loaded_policy_acts_as_in_the_environment_with_its_running_maximum(run: Path) -> None:
    policy = statewise.load_policy(run)
    env = statewise.make_env("Point-Hazard-8", 1, seed=3)
    step = env.reset()
    env.hazards[0, 0, :2] = env.robot_pos[0, :2] + 0.1  # so that there is a cost to remember
    policy.reset()
    action = policy(step.obs[0])
    seen = 0.0
    for _ in range(30):
        expected = policy.algo.act(step, None).executed[0].clamp(-1, 1)
        np.testing.assert_allclose(action, expected.numpy(), atol=1e-6)
        step = env.step(torch.as_tensor(action).unsqueeze(0))
        action = policy(step.obs[0].numpy(), step.cost[0].numpy())
        seen = max(seen, float(step.cost[0, 0]))
        assert float(policy.cost_max[0]) == pytest.approx(seen)
    assert seen > 0.1
    policy.reset()
    assert float(policy.cost_max[0]) == 0.0


def test_the_running_maximum_changes_what_scpo_does_and_is_asked_for(run: Path) -> None:
    policy = statewise.load_policy(run)
    obs = statewise.make_env("Point-Hazard-8", 1).reset(0).obs[0].numpy()
    safe = policy(obs)
    assert policy.needs_cost
    assert not np.array_equal(safe, policy(obs, 0.3))
    with pytest.raises(ValueError, match="give the cost of the step"):
        policy(obs)


def test_a_policy_that_does_not_see_the_maximum_needs_no_cost(tmp_path: Path) -> None:
    blind = statewise.train("Point-Hazard-8", out=str(tmp_path), policy_sees_maximum=False, **SMALL)
    policy = statewise.load_policy(blind)
    obs = statewise.make_env("Point-Hazard-8", 1).reset(0).obs[0].numpy()
    first = policy(obs)
    assert not policy.needs_cost
    assert np.array_equal(first, policy(obs)) and np.array_equal(first, policy(obs, 0.3))


@pytest.mark.parametrize(
    ("obs", "cost", "message"),
    [
        (np.zeros(60), None, r"shape \(60,\).*takes \(79,\)"),
        (np.full(79, np.nan), None, "not finite"),
        (np.zeros(79), [0.1, 0.2], "2 costs for 1 constraints"),
        (np.zeros(79), -0.1, "never negative"),
        (np.zeros(79), np.nan, "never negative"),
    ],
)
def test_a_policy_refuses_what_it_cannot_judge(
    run: Path, obs: np.ndarray, cost: Any, message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        statewise.load_policy(run)(obs, cost)


def test_a_policy_for_another_suite_is_refused(run: Path) -> None:
    with pytest.raises(ValueError, match="load a policy of that suite"):
        statewise.evaluate(run, episodes=4, suite="Ant-Hazard-8")
    found = statewise.evaluate(run, episodes=4, suite="Point-Hazard-4")  # same sizes: allowed
    assert found.suite == "Point-Hazard-4"


def test_something_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a run"):
        statewise.load_policy(tmp_path)


def test_evaluation_counts_exactly_the_episodes_asked_for_and_is_seeded(run: Path) -> None:
    a, b = (statewise.evaluate(run, episodes=10, seed=7) for _ in range(2))
    assert a == b and a.episodes == 10
    assert a != statewise.evaluate(run, episodes=10, seed=8)
    assert a != statewise.evaluate(run, episodes=10, seed=7, sampled=True)


def test_evaluation_on_a_task_with_a_known_answer() -> None:
    """A policy that always goes right earns 2 and reaches a cost of 1.5 in every episode."""
    env = LineEnv(8)
    kind = get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
    for p in algo.policy.parameters():
        p.data.zero_()
    algo.policy.layers[-1].bias.data.fill_(1.0)
    found = evaluate(algo, env, episodes=20, seed=0)
    assert found.mean_return == pytest.approx(2.0)
    (edge,) = found.constraints
    assert edge.max_cost == pytest.approx(1.5) and edge.worst_cost == pytest.approx(1.5)
    assert edge.episode_cost == pytest.approx(0.25 * (1 + 2 + 3 + 4 + 5 + 6))
    assert edge.violations == 20 and edge.rate == 1.0
    # All 20 of 20: the exact interval starts at 0.025 ** (1 / 20) = 0.8316.
    assert edge.low == pytest.approx(0.8316, abs=1e-4) and edge.high == 1.0


def test_evaluation_gives_every_world_its_quota_rather_than_whoever_is_first() -> None:
    env = LineEnv(3)
    kind = get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
    assert len(run_episodes(algo, env, 7, seed=0)) == 7


def test_episodes_that_run_across_rollouts_are_summed_whole() -> None:
    env = LineEnv(6)
    kind = get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(4,)), 1, 0)
    collector = Collector(env, algo, 0)
    rewards, ended, finished = [], [], []
    for _ in range(7):
        rollout, episodes = collector.collect(3)  # shorter than an episode of 8
        rewards.append(rollout.reward)
        ended.append(rollout.ended)
        finished += episodes.returns.tolist()
    total, expected = torch.zeros(6), []
    for reward, over in zip(torch.cat(rewards), torch.cat(ended), strict=True):
        total += reward
        expected += total[over].tolist()
        total[over] = 0.0
    assert finished == pytest.approx(expected)


def test_a_policy_trained_on_a_gpu_is_used_without_one(run: Path) -> None:
    trained = statewise.load_policy(run).algo
    state = trained.state_dict()
    state["generator"] = torch.zeros(16, dtype=torch.uint8)  # what a GPU's generator saves
    fresh = get_algorithm("scpo")(trained.spec, trained.settings, trained.epochs, seed=9)
    fresh.load_policy(state)
    assert torch.equal(fresh.policy.flat(), trained.policy.flat())


def test_the_best_safe_policy_is_of_the_safest_then_best_paid_settled_epoch(tmp_path: Path) -> None:
    settings = TrainSettings(
        "Point-Hazard-1", algo="trpo", num_envs=64, device="cpu", out=str(tmp_path)
    )
    own = get_algorithm("trpo").settings_class()
    training = Training.start(settings, own, LineEnv(64))
    training.save()
    settled = 64 * training.env.spec.max_episode_steps

    def kept(epoch: int, cost: float, pay: float, steps: int = settled, episodes: int = 50) -> int:
        training.epoch, training.steps = epoch, steps
        training._keep_best({"episode/count": episodes, "cost/max": cost, "episode/return": pay})
        path = training.folder.checkpoints / "best-safe.ckpt"
        return int(checkpoint.load(path)["epoch"]) if path.exists() else 0

    assert kept(1, 0.0, 9.0, steps=settled - 1) == 0  # only short episodes can have ended
    assert kept(2, 0.0, 9.0, episodes=49) == 0
    assert kept(3, 0.10, 1.0) == 3
    assert kept(4, 0.10, 2.0) == 4  # as safe, better paid
    assert kept(5, 0.05, 0.5) == 5  # safer, whatever it earns
    assert kept(6, 0.20, 3.0) == 5
    assert kept(7, 0.054, 0.6) == 7  # the same to a hundredth

    with torch.no_grad():  # the last checkpoint's policy becomes another one
        training.algo.policy.log_std.fill_(-3.0)
    training.epoch = 8
    training.save()
    for best_safe, spread in ((True, -0.5), (False, -3.0)):
        policy = load_policy(training.folder.path, best_safe).algo.policy
        assert policy.log_std.tolist() == [spread]


def test_metrics_tell_time_running_out_from_the_task_ending() -> None:
    """Two of three episodes ended by the task."""
    ended = torch.tensor([True, True, False])
    episodes = Episodes(
        returns=torch.ones(3), cost=torch.zeros(3, 1), cost_max=torch.zeros(3, 1),
        min_clearance=torch.zeros(3, 1), success=ended, length=torch.full((3,), 8),
        terminated=ended, fault=torch.zeros(3, dtype=torch.bool),
    )  # fmt: skip
    env = LineEnv(4)
    algo = get_algorithm("trpo")(env.spec, get_algorithm("trpo").settings_class(), 1, 0)
    rollout, _ = Collector(env, algo, 0).collect(2)
    assert describe(rollout, episodes, (), (), 1)["episode/timeouts"] == 1


def test_an_evaluation_has_layouts_of_its_own_and_faults_reach_no_goal() -> None:
    class Faulty(LineEnv):
        seeds: ClassVar[list[int | None]] = []

        def reset(self, seed: int | None = None) -> Step:
            self.seeds.append(seed)
            return super().reset(seed)

        def step(self, action: Tensor) -> Step:
            step = super().step(action)
            no = torch.zeros_like(step.terminated)
            return dataclasses.replace(step, sim_fault=step.terminated, success=no)

    env = Faulty(4)
    algo = get_algorithm("trpo")(env.spec, get_algorithm("trpo").settings_class(), 1, 0)
    assert evaluate(algo, env, 8, seed=7).success == 0.0
    (seed,) = env.seeds
    assert seed is not None and seed > 1_000_000  # no run is trained with such a seed


def test_a_goal_that_ends_no_episode_counts_as_success() -> None:
    class Continuing(LineEnv):
        def step(self, action: Tensor) -> Step:
            step = super().step(action)  # it succeeds in the middle, and time ends it later
            return dataclasses.replace(step, success=self.t == 2)

    env = Continuing(4)
    algo = get_algorithm("trpo")(env.spec, get_algorithm("trpo").settings_class(), 1, 0)
    assert evaluate(algo, env, 8, seed=7).success == 1.0
