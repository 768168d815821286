"""Promises of the step itself: metrics along an episode, CUDA graphs, what networks read."""

import dataclasses
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from line_env import LineEnv
from test_algorithms import make

from statewise.algos import TrustRegionAlgorithm, get_algorithm, surrogate
from statewise.algos.batch import AGES
from statewise.cuda_graphs import Graphed
from statewise.envs.make import make_env
from statewise.training.collect import Collector


def test_what_changes_along_an_episode_is_gathered_by_age() -> None:
    algo, collector = make("scpo")
    batch = algo.estimate(collector.collect(8)[0])
    age = batch.rollout.age.flatten()
    rows = torch.rand(len(age))
    old = batch.by_age("x", rows, "sum")
    assert set(old) == {f"x/age_{a}" for a in AGES}
    assert old["x/age_0"] == pytest.approx(float(rows[age < 10].sum()), rel=1e-5)
    assert sum(old.values()) == pytest.approx(float(rows.sum()), rel=1e-5)


def test_divergence_gathered_by_age_sums_to_that_of_an_episode() -> None:
    algo, collector = make("trpo")
    metrics = algo.update(collector.collect(16)[0])
    total = sum(metrics[f"policy/kl_sum/age_{a}"] for a in AGES)
    assert total == pytest.approx(metrics["policy/kl"] * metrics["estimate/length"], rel=1e-4)


def test_on_a_cpu_a_graphed_function_is_called_as_it_is() -> None:
    twice = Graphed(lambda x: (2 * x,))
    for value in (1.0, 5.0):
        assert torch.equal(twice(torch.tensor([value]))[0], torch.tensor([2 * value]))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_on_a_gpu_a_graphed_function_gives_the_same_as_called() -> None:
    weight = torch.ones(4, device="cuda")

    def step(x: torch.Tensor) -> tuple[torch.Tensor]:
        weight.add_(x)
        return (weight * x,)

    graphed = Graphed(step)
    for i in range(1, 6):  # as it is, recorded, replayed three times
        (out,) = graphed(torch.full((4,), float(i), device="cuda"))
        assert float(weight[0]) == 1 + i * (i + 1) / 2
        assert float(out[0]) == float(weight[0]) * i


def test_networks_do_not_read_what_is_always_zero() -> None:
    env = make_env("Point-Hazard-1", 2)
    zeros = env.spec.num_zeros
    assert zeros == 32 and env.spec.num_live == env.spec.obs_size - 32
    step = env.reset(0)
    assert torch.equal(step.obs[:, -zeros:], torch.zeros(2, zeros))
    algo = get_algorithm("scpo")(env.spec, get_algorithm("scpo").settings_class(), 1, 0)
    assert algo.observe(step.obs, step.cost_max).shape == (2, env.spec.num_live + 1)
    assert algo.act(step, None).action.shape == (2, env.spec.action_size)


def test_weights_start_at_the_scale_of_the_whole_observation() -> None:
    env = make_env("Point-Hazard-1", 1)
    algo = get_algorithm("trpo")(env.spec, get_algorithm("trpo").settings_class(), 1, 0)
    largest = algo.policy.layers[0].weight.detach().abs().max()
    assert float(largest) == pytest.approx(env.spec.obs_size**-0.5, rel=0.01)


@pytest.mark.parametrize("worlds", [30, 128, 1000, 2048])
def test_a_full_step_moves_the_policy_as_far_as_the_quadratic_model_says(worlds: int) -> None:
    """For any number of worlds, though the Fisher matrix averages over a quarter of the rows only.

    Worlds differ (each has its own layout), so a matrix that saw some worlds and not others is wrong.
    """
    env = LineEnv(worlds)
    kind = get_algorithm("trpo")
    settings = kind.settings_class(hidden=(16, 16), scale_inputs=False)
    algo = kind(dataclasses.replace(env.spec, obs_size=10), settings, epochs=6, seed=0)
    assert isinstance(algo, TrustRegionAlgorithm)
    draw = torch.Generator().manual_seed(worlds)
    rows = 30_000 // worlds
    layouts = 2.0 * torch.randn(1, worlds, 8, generator=draw)
    moving = torch.randn(rows, worlds, 2, generator=draw)
    inputs = torch.cat([layouts.expand(rows, -1, -1), moving], dim=-1).flatten(0, 1)
    action = algo.policy.sample(inputs, draw).detach()
    good = torch.tanh(inputs @ torch.randn(10, 1, generator=draw))  # better actions depend on all
    advantage = -((action - good) ** 2).squeeze(1)
    batch: Any = SimpleNamespace(inputs=inputs, action=action, episodes=float(worlds))
    step = algo.policy_step(batch, [surrogate(advantage - advantage.mean())])
    direction = math.sqrt(2 * algo.target_kl / step.q) * step.natural[0]
    promised = algo.target_kl - 0.5 * settings.cg_damping * float(direction.square().sum())
    search = step.search(direction, lambda measurement: None)
    assert search.measurement is not None
    assert search.measurement.kl == pytest.approx(promised, rel=0.25)


def test_the_first_rollout_only_measures_the_inputs() -> None:
    """Scaling the inputs changes the policy, so its first actions are not data for the scaled one."""
    env, kind = LineEnv(16), get_algorithm("trpo")
    algo = kind(env.spec, kind.settings_class(hidden=(8,), critic_iterations=2), 3, 0)
    collector, before = Collector(env, algo, 1), algo.policy.flat()
    first = algo.update(collector.collect(16)[0])
    assert torch.equal(algo.policy.flat(), before) and "policy/kl" not in first
    rollout, _ = collector.collect(16)
    mean = algo.policy(algo.observe(rollout.obs, rollout.cost_max_before)).detach()
    noise = (rollout.action - mean) / algo.policy.log_std.detach().exp()
    assert 0.85 < float(noise.std()) < 1.15 and abs(float(noise.mean())) < 0.2
    assert algo.update(rollout)["policy/kl"] > 0
