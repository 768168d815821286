"""Where a batch holds few costs SCPO trusts it less, and fits V_D to more than one."""

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from line_env import LineEnv

from statewise.algos.estimates import estimate
from statewise.algos.evidence import Epoch, Evidence
from statewise.algos.scpo import Scpo, ScpoSettings
from statewise.training.collect import Collector
from statewise.types import Rollout

QUICK: dict[str, Any] = {"hidden": (16, 16), "critic_iterations": 5, "critic_batch": 128}


def make(num_costs: int = 1, **settings: Any) -> tuple[Scpo, Collector]:
    env = LineEnv(16, num_costs)
    algo = Scpo(env.spec, ScpoSettings(**(QUICK | settings)), epochs=20, seed=0)
    return algo, Collector(env, algo, seed=1)


def rollout(maxima: list[list[float]], ended: Sequence[int] = ()) -> Rollout:
    """Of a world, or two constraints of it, whose maxima go like this; episodes end after `ended`."""
    _, collector = make(len(maxima))
    steps = len(maxima[0]) - 1
    given = collector.collect(steps)[0]
    after = torch.tensor(maxima).T
    ends = torch.zeros(steps, 1, dtype=torch.bool)
    ends[list(ended)] = True
    fields = {name: x[:, :1].contiguous() for name, x in vars(given).items()}
    starts = torch.cat([ends[:1] & False, ends[:-1]])
    return Rollout(**fields | {
        "cost_max_before": torch.where(starts, 0.0, after[:-1])[:, None],
        "cost_max": after[1:, None],
        "terminated": ends,
        "truncated": ends & False,
    })  # fmt: skip


def test_steps_that_raise_the_maximum_one_after_another_are_one_rise() -> None:
    evidence = Evidence(2, 10)
    evidence.count(rollout([[0, 1, 2, 3, 3, 3, 4, 4], [0, 0, 0, 0, 0, 0, 0, 1]]))
    assert evidence.latest.tolist() == [2, 1]


def test_a_rise_at_the_end_of_an_episode_and_one_at_the_start_of_the_next_are_two() -> None:
    evidence = Evidence(1, 10)
    evidence.count(rollout([[0, 0, 1, 1, 1]], ended=[1]))
    assert evidence.latest.tolist() == [2]


def test_with_half_of_what_is_enough_a_batch_gets_half_the_trust() -> None:
    evidence = Evidence(2, 10)
    evidence.rises = torch.tensor([5.0, 30.0])
    assert evidence.trust.tolist() == [0.5, 1.0]


def test_the_decay_of_each_advantage_follows_the_trust_in_its_costs() -> None:
    few, collector = make(2, enough_costs=10)
    data = collector.collect(16)[0]
    few.look = lambda rollout: None  # type: ignore[method-assign]
    few.lam.copy_(0.8 * torch.tensor([0.25, 1.0]))
    short = estimate(make(2, enough_costs=0, cost_lam=0.2)[0], data).cost_advantage
    long = estimate(make(2, enough_costs=0, cost_lam=0.8)[0], data).cost_advantage
    mine = estimate(few, data).cost_advantage
    torch.testing.assert_close(mine[:, 0], short[:, 0])
    torch.testing.assert_close(mine[:, 1], long[:, 1])
    assert not torch.allclose(short, long)


def test_when_costs_cease_the_critic_is_relied_on_first_and_the_batch_in_the_end() -> None:
    algo, _ = make(cost_lam=0.8)
    nothing = rollout([[0.0] * 9])
    lam = []
    for _ in range(40):
        algo.look(nothing)
        lam.append(float(algo.lam[0]))
    assert lam[0] == pytest.approx(0.8)
    assert min(lam) < 0.02
    assert lam[-1] > 0.79


def lately(evidence: Evidence, rises: list[float], seen: list[float]) -> list[float]:
    """After a batch of ten episodes in which the maxima rose so often, by so much in all."""
    evidence.latest, evidence.seen = (torch.tensor(x, dtype=torch.float64) for x in (rises, seen))
    evidence.tally(10.0)
    return evidence.lately.tolist()


def test_a_cost_counts_as_seen_lately_for_some_epochs() -> None:
    evidence = Evidence(1, 10)
    assert lately(evidence, [3], [3.0]) == [pytest.approx(0.3)]
    assert lately(evidence, [0], [0.0]) == [pytest.approx(3 / 20)]
    for _ in range(Evidence.RECENT - 2):
        assert lately(evidence, [0], [0.0])[0] > 0.0
    assert lately(evidence, [0], [0.0]) == [0.0]


def test_lately_goes_back_no_further_than_it_takes_to_see_enough_of_each_maximum() -> None:
    evidence = Evidence(2, 10)
    lately(evidence, [90, 90], [90.0, 90.0])
    lately(evidence, [6, 0], [6.0, 0.0])
    assert lately(evidence, [5, 12], [5.0, 12.0]) == pytest.approx([11 / 20, 1.2])


def test_a_batch_without_costs_does_not_make_a_policy_safe_that_cost_something_lately() -> None:
    algo, _ = make(tolerance=0.1)
    algo.update(rollout([[0.0, 0, 0, 0, 6, 6, 6, 6, 6]]))
    metrics = algo.update(rollout([[0.0] * 9]))
    (ceiling,) = algo.spec.cost_ceiling
    assert metrics["J_edge0"] < metrics["c_edge0"]
    tolerance = algo.settings.tolerance * (ceiling or 1.0)
    assert metrics["c_edge0"] == pytest.approx(0.8 * tolerance)
    # Of what is possible, no more than 0.97 of (0.8 - 3 (1 - 0.8)) = 0.2 of the tolerance's worth.
    possible = math.sqrt(2 * algo.target_kl * metrics["s_edge0"])
    assert 0.0 < metrics["c_asked_edge0"] <= 0.97 * 0.2 * possible * (1 + 1e-9)
    assert metrics["cost_change_edge0"] <= 0.0


def test_what_was_seen_lately_adds_nothing_to_a_batch_that_costs_more_or_to_a_limit_that_is_kept() -> (
    None
):
    algo, _ = make()
    algo.update(rollout([[0.0, 0, 0, 0, 6, 6, 6, 6, 6]]))
    metrics = algo.update(rollout([[0.0, 0, 0, 0, 2, 2, 2, 2, 2]]))
    assert metrics["c_edge0"] == pytest.approx(metrics["J_edge0"])
    algo, _ = make(cost_limit=(50.0,))
    before = algo.update(rollout([[0.0, 0, 0, 0, 6, 6, 6, 6, 6]]))["estimated_episodes"]
    metrics = algo.update(rollout([[0.0] * 9]))
    seen = 6.0 / (before + metrics["estimated_episodes"])
    assert metrics["c_edge0"] == pytest.approx(seen - 50.0)


def keep(evidence: Evidence, rises: list[float], value: float = 0.0, rows: int = 16) -> list[Epoch]:
    """What is gathered with a batch of so many rises; it is remembered then."""
    evidence.latest = torch.tensor(rises)
    epochs = evidence.gather(torch.full((rows, 2), value), torch.zeros(rows, len(rises)))
    evidence.remember(epochs, torch.zeros(rows, dtype=torch.bool), torch.Generator())
    return epochs


def test_the_last_epochs_that_hold_four_times_enough_rises_of_every_maximum_are_gathered() -> None:
    evidence = Evidence(2, 10)
    batches = ([16.0, 80.0], [16.0, 80.0], [16.0, 80.0], [40.0, 80.0], [120.0, 0.0])
    assert [len(keep(evidence, rises)) for rises in batches] == [1, 2, 3, 1, 2]


def test_no_more_than_32_epochs_are_gathered_and_the_newest_is_one() -> None:
    evidence = Evidence(1, 10)
    for i in range(40):
        epochs = keep(evidence, [1.0], float(i))
    assert [float(epoch.inputs[0, 0]) for epoch in epochs] == list(range(8, 40))


def test_where_a_maximum_has_not_risen_for_long_nothing_is_looked_for_further_back() -> None:
    evidence = Evidence(2, 10)
    batches = [[3.0, 80.0]] + [[0.0, 80.0]] * Evidence.LONG
    gathered = [len(keep(evidence, rises)) for rises in batches]
    assert gathered == [*range(1, Evidence.LONG + 1), 1]


def test_an_epoch_is_remembered_by_its_rows_with_a_cost_ahead_and_some_that_stand_for_the_rest() -> (
    None
):
    rows, positive = 800, 30
    evidence, generator = Evidence(1, 10), torch.Generator().manual_seed(0)
    target = (torch.arange(rows) < positive).float()[:, None]
    epochs = evidence.gather(torch.arange(rows).float()[:, None], target)
    assert len(epochs[0].inputs) == rows
    assert epochs[0].weight.unique().tolist() == [1.0]
    evidence.remember(epochs, target[:, 0] > 0, generator)
    (thin,) = evidence.epochs
    assert len(thin.inputs) == len(thin.inputs.unique()) == rows / evidence.SHARE
    assert int(thin.target.sum()) == positive
    assert float(thin.weight.sum()) == pytest.approx(rows)
    assert float((thin.weight * thin.target[:, 0]).sum()) == pytest.approx(positive)


@pytest.mark.parametrize("positive", [0, 1, 60, 799, 800])
def test_however_many_rows_have_a_cost_ahead_as_many_are_remembered(positive: int) -> None:
    evidence, generator = Evidence(1, 10), torch.Generator().manual_seed(0)
    epochs = evidence.gather(torch.zeros(800, 2), torch.zeros(800, 1))
    evidence.remember(epochs, torch.arange(800) < positive, generator)
    assert len(evidence.epochs[0].inputs) == 100
    assert float(evidence.epochs[0].weight.sum()) == pytest.approx(800)


def test_the_critic_of_the_cost_is_fitted_to_all_that_is_gathered_as_if_nothing_were_left_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algo, collector = make(enough_costs=10**6)
    fitted: list[tuple[str, int, float]] = []
    fit = algo.fit

    def watch(inputs: torch.Tensor, targets: Any, pools: Any = (), weights: Any = None) -> Any:
        rows = pools[0] if pools else torch.arange(len(inputs))
        weight = float(weights[rows].mean()) if weights is not None else 1.0
        fitted.extend((name, len(rows), weight) for name in targets)
        return fit(inputs, targets, pools, weights)

    monkeypatch.setattr(algo, "fit", watch)
    batches = [collector.collect(16)[0] for _ in range(3)]
    metrics = [algo.update(batch) for batch in batches]
    assert [m["cost_epochs"] for m in metrics] == [1.0, 2.0, 3.0]
    rows = batches[0].reward.numel()
    assert [n for name, n, _ in fitted if name == "value"] == [rows] * 3
    assert [n for name, n, _ in fitted if name == "cost_value"] == [
        rows + k * (rows // Evidence.SHARE) for k in range(3)
    ]
    assert all(weight == pytest.approx(1.0) for _, _, weight in fitted)


def test_enough_zero_trusts_every_batch() -> None:
    algo, collector = make(enough_costs=0)
    for _ in range(3):
        metrics = algo.update(collector.collect(16)[0])
    assert metrics["cost_epochs"] == 1.0
    assert metrics["c_edge0"] == pytest.approx(metrics["J_edge0"])
    assert not algo.state_dict()["extra"]["evidence"]["tallies"]
    assert not algo.state_dict()["extra"]["evidence"]["epochs"]  # nothing is kept for nobody
    assert metrics["cost_lam_edge0"] == pytest.approx(algo.settings.cost_lam)


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
    assert a["cost_epochs"] == 4.0


def test_a_run_older_than_the_setting_goes_on_without_it() -> None:
    algo, collector = make(enough_costs=0)
    algo.update(collector.collect(16)[0])
    state = algo.state_dict()
    del state["extra"]["evidence"]
    other, other_collector = make(enough_costs=0)
    other.load_state_dict(state)
    other_collector.load_state_dict(collector.state_dict())
    a, b = algo.update(collector.collect(16)[0]), other.update(other_collector.collect(16)[0])
    assert a == b
