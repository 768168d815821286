"""What SCPO does about rare costs: a memory of them, a tolerance, and the noise of their gradient."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from line_env import LineEnv
from test_algorithms import safe
from test_ends_and_scales import learn, take_step

from statewise.algos.policy_step import Candidate, surrogates
from statewise.algos.rare_costs import CostHistory, GradientNoise, contrasts, within_tolerance
from statewise.algos.scpo import Scpo, ScpoSettings
from statewise.training.collect import Collector
from statewise.types import Rollout

QUICK: dict[str, Any] = {"hidden": (16, 16), "critic_iterations": 5, "critic_batch": 128}


def make(num_costs: int = 1, **settings: Any) -> tuple[Scpo, Collector]:
    env = LineEnv(16, num_costs)
    algo = Scpo(env.spec, ScpoSettings(**(QUICK | settings)), epochs=20, seed=0)
    collector = Collector(env, algo, seed=1)
    algo.measure_inputs(collector.collect(8)[0])
    return algo, collector


def rollout(maxima: list[list[float]], ended: Sequence[int] = ()) -> Rollout:
    """Of a world, or two constraints of it, whose maxima go like this; episodes end after `ended`."""
    _, collector = make(len(maxima))
    steps = len(maxima[0]) - 1
    given = collector.collect(steps)[0]
    after = torch.tensor(maxima).T
    ends = torch.zeros(steps, 1, dtype=torch.bool)
    ends[list(ended)] = True
    fields = {name: x[:, :1] for name, x in vars(given).items()}
    starts = torch.cat([ends[:1] & False, ends[:-1]])
    return Rollout(**fields | {
        "cost_max_before": torch.where(starts, 0.0, after[:-1])[:, None],
        "cost_max": after[1:, None],
        "terminated": ends,
        "truncated": ends & False,
    })  # fmt: skip


def test_steps_that_raise_the_maximum_one_after_another_are_one_rise() -> None:
    history = CostHistory(2, 10)
    history.count(rollout([[0, 1, 2, 3, 3, 3, 4, 4], [0, 0, 0, 0, 0, 0, 0, 1]]))
    assert history.latest.tolist() == [2, 1]


def test_a_rise_at_the_end_of_an_episode_and_one_at_the_start_of_the_next_are_two() -> None:
    history = CostHistory(1, 10)
    history.count(rollout([[0, 0, 1, 1, 1]], ended=[1]))
    assert history.latest.tolist() == [2]


def test_with_half_of_what_is_enough_a_batch_gets_half_the_trust() -> None:
    history = CostHistory(2, 10)
    history.rises = torch.tensor([5.0, 30.0])
    assert history.trust.tolist() == [0.5, 1.0]


def test_the_decay_of_each_advantage_follows_the_trust_in_its_costs() -> None:
    few, collector = make(2, enough_costs=10)
    data = collector.collect(16)[0]
    few.observe_rollout = lambda rollout: None  # type: ignore[method-assign]
    few.lam.copy_(0.8 * torch.tensor([0.25, 1.0]))
    short = make(2, enough_costs=0, cost_lam=0.2)[0].estimate(data).cost_advantage
    long = make(2, enough_costs=0, cost_lam=0.8)[0].estimate(data).cost_advantage
    mine = few.estimate(data).cost_advantage
    torch.testing.assert_close(mine[:, 0], short[:, 0])
    torch.testing.assert_close(mine[:, 1], long[:, 1])
    assert not torch.allclose(short, long)


def test_when_costs_cease_the_critic_is_relied_on_first_and_the_batch_in_the_end() -> None:
    algo, _ = make(cost_lam=0.8)
    nothing = rollout([[0.0] * 9])
    lam = []
    for _ in range(40):
        algo.observe_rollout(nothing)
        lam.append(float(algo.lam[0]))
    assert lam[0] == pytest.approx(0.8)
    assert min(lam) < 0.02
    assert lam[-1] > 0.79


def test_the_last_epochs_that_hold_enough_rises_of_every_maximum_are_kept() -> None:
    history = CostHistory(2, 10)
    kept = []
    for rises in ([4.0, 20.0], [4.0, 20.0], [4.0, 20.0], [10.0, 20.0], [30.0, 0.0]):
        history.latest = torch.tensor(rises)
        kept.append(len(history.remember(torch.zeros(3, 2), torch.zeros(3, 2))))
    assert kept == [1, 2, 3, 1, 2]


def test_no_more_than_eight_epochs_are_kept_and_the_newest_is() -> None:
    history = CostHistory(1, 10)
    for i in range(12):
        epochs = history.remember(torch.full((3, 2), float(i)), torch.zeros(3, 1))
    assert [float(inputs[0, 0]) for inputs, _, _ in epochs] == list(range(4, 12))


def test_the_critic_of_the_cost_is_fitted_to_all_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algo, collector = make(enough_costs=10**6)
    fitted: list[tuple[str, int]] = []
    fit = algo.critics.fit

    def watch(inputs: torch.Tensor, targets: Any, pools: Any = (), weights: Any = None) -> Any:
        rows = pools[0] if pools else torch.arange(len(inputs))
        fitted.extend((name, len(torch.unique(inputs[rows], dim=0))) for name in targets)
        return fit(inputs, targets, pools, weights)

    monkeypatch.setattr(algo.critics, "fit", watch)
    metrics = [algo.update(collector.collect(16)[0]) for _ in range(3)]
    assert [m["critic/cost_epochs"] for m in metrics] == [1.0, 2.0, 3.0]
    one, two, three = (n for name, n in fitted if name == "cost_value")
    assert one < two < three
    assert max(n for name, n in fitted if name == "value") < two


def test_enough_zero_trusts_every_batch() -> None:
    algo, collector = make(enough_costs=0)
    for _ in range(3):
        metrics = algo.update(collector.collect(16)[0])
    assert metrics["critic/cost_epochs"] == 1.0
    assert not algo.state_dict()["extra"]["cost_history"]["epochs"]  # nothing is kept for nobody
    assert metrics["constraint/edge0/lam"] == pytest.approx(algo.settings.cost_lam)


@pytest.mark.parametrize("critic_batch", [0, 128])
def test_saved_with_epochs_in_memory_and_loaded_it_goes_on_the_same(critic_batch: int) -> None:
    algo, collector = make(enough_costs=10**6, critic_batch=critic_batch)
    for _ in range(3):
        algo.update(collector.collect(16)[0])
    other, other_collector = make(enough_costs=10**6, critic_batch=critic_batch)
    other.load_state_dict(algo.state_dict())
    other_collector.load_state_dict(collector.state_dict())
    a, b = algo.update(collector.collect(16)[0]), other.update(other_collector.collect(16)[0])
    assert a == b
    assert a["critic/cost_epochs"] == 4.0


# A tolerance ------------------------------------------------------------------------------------


def test_a_tolerance_that_is_not_used_up_is_room_for_the_step() -> None:
    room = within_tolerance([0.0, 0.0075, 0.01, 0.3, -0.2], np.full(5, 0.01))
    # c - 3 (tolerance - c), the latter at most the tolerance: three quarters used up ask for nothing.
    assert room == pytest.approx([-0.03, 0.0, 0.01, 0.3, -0.23])


def test_without_a_tolerance_the_violation_stands() -> None:
    assert within_tolerance([0.0, 0.2, -0.1], np.zeros(3)) == pytest.approx([0.0, 0.2, -0.1])


def test_scpo_free_of_cost_at_limit_zero_goes_on_learning_as_if_unconstrained() -> None:
    # Without cost, all it sees in a batch are the errors of its cost critic.
    earned = []
    for limit in (0.0, 10.0):
        algo, collector = make(cost_limit=(limit,))
        for _ in range(8):
            rollout, _ = collector.collect(32)
            algo.update(safe(rollout))
        earned.append(float(rollout.reward.mean()))
    assert earned[0] > 0.5 * earned[1] > 0.0


# Noise -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("worlds", [4, 5])
def test_a_contrast_sets_half_of_the_worlds_against_the_other_half(worlds: int) -> None:
    _, batch = learn("scpo", LineEnv(worlds))
    policy = Candidate(batch.action, torch.ones(len(batch.action)))
    value = []
    for world in range(worlds):
        alone = torch.zeros(16, worlds, 1)
        alone[:, world] = 1.0
        one = dataclasses.replace(batch, cost_advantage=alone.flatten(0, 1))
        (contrast,), (_, surrogate) = contrasts(one), surrogates(one)
        value.append(float(contrast(policy) / surrogate(policy)))
    assert value == pytest.approx(
        [1.0, -1.0, 1.0, -1.0, 0.0][:worlds]
    )  # an odd one out is in neither half


def test_the_reliable_part_is_what_is_not_noise() -> None:
    found = GradientNoise(3)
    assert found.reliability.tolist() == [1.0, 1.0, 1.0]  # before anything is known
    found.update(torch.tensor([4.0, 4.0, 0.0]), torch.tensor([1.0, 3.9, 0.0]))
    assert found.reliability.tolist() == pytest.approx([0.75, GradientNoise.LEAST, 1.0])
    found.update(torch.tensor([8.0, 4.0, 0.0]), torch.tensor([1.0, 3.9, 0.0]))
    # What was known counts for 0.65 beside 1: noise of 1.65 in 0.65 * 4 + 8.
    assert float(found.reliability[0]) == pytest.approx(1 - 1.65 / 10.6)


def test_reliability_tells_a_cause_from_chance() -> None:
    shares = []
    for cause in (True, False):
        env = LineEnv(64)
        algo, batch = learn("scpo", env, tolerance=0.0)
        assert isinstance(algo, Scpo)
        chance = torch.randn(len(batch.action), 1, generator=torch.Generator().manual_seed(5))
        cost = batch.action - batch.action.mean() if cause else chance
        batch = dataclasses.replace(batch, cost_advantage=cost)
        algo.epoch = 1
        shares.append(algo.step(batch, [1.0])["constraint/edge0/reliability"])
    assert shares[0] > 0.8 and shares[1] < 0.4


def test_it_is_measured_in_every_fourth_epoch_and_never_in_a_single_world() -> None:
    for worlds, measured in ((16, [True, False, False, False, True]), (1, [False] * 5)):
        found, changed = GradientNoise(1), []
        for epoch in range(1, 6):
            before = found.total.clone()
            take_step([0.1], epoch=epoch, worlds=worlds, noise=found)
            changed.append(not torch.equal(found.total, before))
        assert changed == measured


def test_as_much_more_is_asked_for_as_noise_will_make_of_it() -> None:
    found = GradientNoise(2)
    found.update(torch.tensor([4.0, 4.0]), torch.tensor([3.0, 3.0]))  # a quarter will hold
    metrics, _ = take_step([0.1, -0.1], (1.0, 1.0), recovery_fraction=1.0, noise=found)
    assert metrics["constraint/edge0/requested"] == pytest.approx(0.4)
    assert metrics["constraint/edge1/requested"] == pytest.approx(
        -0.1
    )  # room is not made any larger


def test_scpo_counts_on_noise_unless_told_not_to() -> None:
    algo, batch = learn("scpo", LineEnv(16))
    plain, _ = learn("scpo", LineEnv(16), reliable=False)
    assert "constraint/edge0/reliability" in algo.update_networks(batch)
    assert "constraint/edge0/reliability" not in plain.update_networks(batch)


# The critic of a rare cost ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("mode", "mean"), [("none", 0.1), ("resample", 0.5), ("once", 0.5), ("weighted", 0.5)]
)
def test_sub_sampling_of_any_kind_lets_zeros_weigh_as_much_as_the_rest(
    mode: str, mean: float
) -> None:
    """A critic that sees no difference between rows, of which a tenth has a target of 1."""
    algo, batch = learn(
        "scpo", LineEnv(20), subsample=mode, critic_iterations=150, critic_batch=0,
        cost_critic_lr=0.05,
    )  # fmt: skip
    positive = torch.arange(len(batch.action)) % 10 == 3
    batch = dataclasses.replace(
        batch, inputs=torch.zeros_like(batch.inputs), positive=positive,
        cost_target=positive.float().unsqueeze(1),
    )  # fmt: skip
    assert algo.cost_value is not None
    metrics = algo.fit_critics(batch)
    assert float(algo.cost_value(batch.inputs[:1]).detach()) == pytest.approx(mean, abs=0.02)
    assert metrics["critic/zero_targets_kept"] == pytest.approx(1.0 if mode == "none" else 1 / 9)
    if mode == "weighted":  # the error of an answer of one half, whatever the weights
        assert metrics["critic/cost_value_loss"] == pytest.approx(0.25, abs=0.01)
