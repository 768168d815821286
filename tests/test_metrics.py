"""Promises about the names of metrics: one place names them, and everything that is logged is named."""

import pytest
from line_env import LineEnv

from statewise import metrics
from statewise.algos import ALGORITHMS, get_algorithm
from statewise.training.collect import Collector


def test_a_key_of_a_constraint_has_its_name_in_the_title() -> None:
    assert metrics.title("cost/hazard/episode") == "hazard episode cost"
    assert metrics.title("cost/episode") == "episode cost"
    assert metrics.find("cost/hazard/max").less_is_better


def test_no_name_of_a_constraint_can_clash_with_another_metric() -> None:
    for awkward in ("episode", "max", "rate", "*"):
        key = f"cost/{awkward}/episode"
        assert metrics.find(key).key == "cost/*/episode"
        assert key not in {m.key for m in metrics.METRICS} or awkward == "*"


def test_a_metric_of_a_plug_in_is_called_as_its_key() -> None:
    assert metrics.title("price/integral") == "price/integral"
    assert metrics.text("price/integral", 0.5) == "0.500"


def test_a_number_that_is_not_there_is_a_dash() -> None:
    assert metrics.text("episode/return", None) == "-"
    assert metrics.text("cost/rate", 0.00081) == "0.00081"


@pytest.mark.parametrize("name", ALGORITHMS)
def test_every_metric_that_an_algorithm_reports_has_a_title(name: str) -> None:
    env = LineEnv(16, num_costs=2)
    kind = get_algorithm(name)
    algo = kind(env.spec, kind.settings_class(critic_iterations=2), epochs=4, seed=0)
    collector = Collector(env, algo, seed=1)
    for _ in range(3):
        rollout, episodes = collector.collect(16)
        found = metrics.describe(rollout, episodes, env.spec.cost_names, [0.0, 0.0], 1)
        found |= algo.update(rollout)
    unnamed = [key for key in found if metrics.find(key).title == key]
    assert unnamed == []


def test_the_keys_are_unique_and_each_is_explained() -> None:
    keys = [m.key for m in metrics.METRICS]
    assert len(set(keys)) == len(keys)
    assert all(m.about.endswith(".") for m in metrics.METRICS)
