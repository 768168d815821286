"""Promises of the step itself: metrics along an episode, CUDA graphs, what networks read."""

import pytest
import torch
from test_algorithms import make

from statewise.algos import get_algorithm
from statewise.algos.estimates import AGES
from statewise.cuda_graphs import Graphed
from statewise.envs.make import make_env


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
