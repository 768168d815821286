"""Promises of presets and of kinds: what they set, and which combinations are refused."""

import logging
from typing import Any

import pytest
import torch
from line_env import LineEnv

from statewise import settings
from statewise.algos import ALGORITHMS, get_algorithm
from statewise.algos.presets import PRESETS
from statewise.runs.epochs import planned_epochs
from statewise.training.collect import Collector
from statewise.training.config import TrainSettings, parse_run

PAPER = {
    "num_envs": 30, "steps_per_epoch": 30_000, "spread_ages": False, "final_batch": 1,
    "gamma": 0.99, "lam": 0.97, "target_kl": 0.02, "backtrack_steps": 100,
    "backtrack_coefficient": 0.8, "hidden": (64, 64), "critic_iterations": 80, "critic_lr": 0.001,
    "cost_limit": (0.0,), "cost_reduction": 0.0, "multiplier_start": 0.0, "warmup": 1 / 3,
    "correction_steps": 20, "correction_rate": 0.05, "t": 0.01,
}  # fmt: skip
"""The paper's table of hyper-parameters, as far as a method has each."""
OWN = {"trpo_lag": {"multiplier_lr": 0.005}, "trpo_fac": {"multiplier_lr": 1e-4}}


@pytest.mark.parametrize("name", [name for name in PRESETS if name != "ascpo"])
def test_the_preset_of_the_paper_is_its_table(name: str) -> None:
    train, own = parse_run({"suite": "Point-Hazard-8", "algo": name, "preset": "paper"}, text=False)
    for key, value in (PAPER | OWN.get(name, {})).items():
        for found in (train, own):
            if hasattr(found, key):
                assert getattr(found, key) == value, key


@pytest.mark.parametrize("name", PRESETS)
@pytest.mark.parametrize("preset", ["paper", "reference", "best"])
def test_every_preset_of_every_algorithm_resolves(name: str, preset: str) -> None:
    assert name in ALGORITHMS
    train, own = parse_run({"suite": "Point-Hazard-8", "algo": name, "preset": preset}, text=False)
    for key, value in PRESETS[name][preset].items():
        assert value in (getattr(train, key, None), getattr(own, key, None)), key


def test_what_is_given_wins_over_a_preset_and_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        given = {"suite": "Point-Hazard-8", "preset": "paper", "cost_feedback": 0.3}
        _, own = parse_run(given, text=False)
    assert own.cost_feedback == 0.3 and own.tolerance == 0.0  # type: ignore[attr-defined]
    assert (
        "cost_feedback is given as 0.3: it wins over the preset paper, which has 0.0" in caplog.text
    )


def test_only_what_differs_from_a_preset_is_said_in_the_order_and_words_of_the_user(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {"suite": "Point-Hazard-8", "preset": "paper", "target_kl": "0.03", "lam": "0.97",
             "hidden": ["64,64"], "cost_limit": ["0"], "constraint_kind": ["sum"],
             "margin": ["0.1"]}  # fmt: skip
    with caplog.at_level(logging.WARNING), settings.on_command_line():
        parse_run(given, text=True)
    assert [record.getMessage() for record in caplog.records] == [
        "--target-kl is given as 0.03: it wins over the preset paper, which has 0.02",
        "--constraint-kind is given as sum: it wins over the preset paper, which has maximum",
        "--margin is given as 0.1: it wins over the preset paper, which has none",
    ]


def test_an_unknown_preset_is_named_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"trpo has no preset 'papers'.* mean paper"):
        parse_run({"suite": "Point-Hazard-8", "algo": "trpo", "preset": "papers"}, text=False)


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"constraint_kind": "probability"}, "no number of episodes can show"),
        ({"constraint_kind": "probability", "cost_limit": "1.5"}, "below 1"),
        ({"constraint_kind": "maximal"}, "maximum, sum, probability, deviation"),
        ({"kappa": "-1"}, "kappa is -1"),
        ({"exceed_probability": "1"}, "exceed_probability is 1"),
        ({"threshold": "-0.1"}, "threshold is"),
        ({"constraint_kind": "maximum,sum", "cost_limit": "0,0,0"}, "one value for each"),
    ],
)
def test_kinds_that_cannot_be_are_refused(given: dict[str, str], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        settings.parse(get_algorithm("scpo").settings_class, given)


def test_more_kinds_than_constraints_are_refused() -> None:
    kind = get_algorithm("scpo")
    wrong = kind.settings_class(constraint_kind=("maximum", "sum"))  # type: ignore[call-arg]
    with pytest.raises(ValueError, match="constraint_kind has 2 values for 1 constraint:"):
        kind(LineEnv(4).spec, wrong, 3, 0)


def test_kappa_follows_from_the_wanted_probability() -> None:
    made: Any = settings.parse(get_algorithm("scpo").settings_class, {"exceed_probability": "0.1"})
    assert made.deviations == pytest.approx(3.0)  # 1 / (1 + 3²)


@pytest.mark.parametrize("name", ["scpo", "cpo", "pcpo"])
def test_kinds_can_be_mixed_in_one_step(name: str) -> None:
    env, kind = LineEnv(32, num_costs=4), get_algorithm(name)
    kinds = ("maximum", "sum", "probability", "deviation")
    made = kind.settings_class(  # type: ignore[call-arg]
        constraint_kind=kinds, cost_limit=(0.1, 0.1, 0.1, 0.1), hidden=(8,), critic_iterations=2
    )
    algo = kind(env.spec, made, 4, 0)
    collector = Collector(env, algo, 1)
    metrics: dict[str, float] = {}
    for _ in range(3):
        metrics = algo.update(collector.collect(16)[0])
    assert metrics["policy/step_accepted"] == 1.0
    assert 0.0 <= metrics["constraint/edge2/estimate"] <= 1.0
    assert metrics["constraint/edge3/estimate"] >= metrics["constraint/edge0/estimate"] - 0.5
    assert algo.inputs == 2 + 4  # the running maxima join the state


@pytest.mark.parametrize(("least", "ends"), [(0.3, 0.3), (0.0, 0.2)])
def test_noise_never_falls_below_its_least(least: float, ends: float) -> None:
    """On a line the noise of TRPO dies out: from 0.37 it falls below 0.2 in 40 updates."""
    env, kind = LineEnv(64), get_algorithm("trpo")
    made = kind.settings_class(
        hidden=(8,), critic_iterations=5, critic_lr=5e-3, log_std=-1.0, least_noise=least
    )
    algo = kind(env.spec, made, 40, 0)
    collector, noise = Collector(env, algo, 1), []
    for _ in range(40):
        metrics = algo.update(collector.collect(16)[0])
        noise.append(float(algo.policy.log_std.detach().exp().min()))
    if least:
        assert min(noise) == noise[-1] == pytest.approx(ends)
        assert metrics["policy/kl"] > 0.01, "the region is left to the mean of the actions"
    else:
        assert noise[-1] < ends


def test_noise_that_starts_below_its_least_is_refused() -> None:
    kind = get_algorithm("trpo").settings_class
    with pytest.raises(
        ValueError, match=r"log_std is -3.0, .* 0.0498 at the start: give least_noise"
    ):
        kind(log_std=-3.0)
    assert kind(log_std=-3.0, least_noise=0.01)


def test_noise_shrinks_to_the_wanted_level_at_the_end_of_training() -> None:
    env, kind = LineEnv(16), get_algorithm("trpo")
    algo = kind(
        env.spec, kind.settings_class(hidden=(8,), critic_iterations=2, final_noise=0.05), 9, 0
    )
    collector, noise = Collector(env, algo, 1), []
    for _ in range(9):
        algo.update(collector.collect(16)[0])
        noise.append(float(algo.policy.log_std.detach().exp().max()))
    assert min(noise[:6]) > 0.2 and noise[-1] == pytest.approx(0.05, rel=1e-3)
    assert noise[6] > noise[7] > noise[8]


def test_epochs_are_longer_in_the_second_half_of_a_long_training() -> None:
    train = TrainSettings("Point-Hazard-8", steps=3_000_000, num_envs=100, device="cpu").resolved()
    assert train.final_batch == 4 and train.epochs == 50 + 12
    assert [train.horizon(epoch) for epoch in (1, 50, 51, 62)] == [300, 300, 1200, 1200]
    short = TrainSettings("Point-Hazard-8", steps=300_000, num_envs=100, device="cpu").resolved()
    assert short.final_batch == 1 and short.epochs == 10
    assert planned_epochs(3_000_000, 30_000, 1) == (100, 100)


def test_the_two_faults_of_ascpo_can_be_mended() -> None:
    env, kind = LineEnv(32), get_algorithm("ascpo")
    policies, violations = [], []
    for mended in ({}, {"mean_has_gradient": True}, {"variance_in_violation": True}):
        made = kind.settings_class(
            hidden=(8,), critic_iterations=2, omega_1=0.5, log_std=0.5, cost_feedback=0.0, **mended
        )
        algo = kind(env.spec, made, 4, 0)
        env.reset()
        collector = Collector(env, algo, 1)
        metrics = [algo.update(collector.collect(16)[0]) for _ in range(2)][-1]
        policies.append(algo.policy.flat())
        violations.append(metrics["constraint/edge0/violation"])
        variance = metrics["constraint/edge0/variance"]
    assert variance > 0 and not torch.equal(policies[0], policies[1])
    assert violations[2] == pytest.approx(violations[0] + 7.0 * variance, rel=1e-4)
