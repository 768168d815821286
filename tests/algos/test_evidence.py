"""Where a batch holds few costs SCPO trusts it less, and fits V_D to more than one."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from line_env import LineEnv

from statewise.algos.estimates import estimate
from statewise.algos.evidence import Evidence
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
    fields = {name: x[:, :1] for name, x in vars(given).items()}
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


def test_the_last_epochs_that_hold_enough_rises_of_every_maximum_are_kept() -> None:
    evidence = Evidence(2, 10)
    kept = []
    for rises in ([4.0, 20.0], [4.0, 20.0], [4.0, 20.0], [10.0, 20.0], [30.0, 0.0]):
        evidence.latest = torch.tensor(rises)
        kept.append(len(evidence.remember(torch.zeros(3, 2), torch.zeros(3, 2))))
    assert kept == [1, 2, 3, 1, 2]


def test_no_more_than_eight_epochs_are_kept_and_the_newest_is() -> None:
    evidence = Evidence(1, 10)
    for i in range(12):
        epochs = evidence.remember(torch.full((3, 2), float(i)), torch.zeros(3, 1))
    assert [float(epoch.inputs[0, 0]) for epoch in epochs] == list(range(4, 12))


def test_the_critic_of_the_cost_is_fitted_to_all_that_is_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    algo, collector = make(enough_costs=10**6)
    fitted: list[tuple[str, int]] = []
    fit = algo.fit

    def watch(inputs: torch.Tensor, targets: Any, pools: Any = (), weights: Any = None) -> Any:
        rows = pools[0] if pools else torch.arange(len(inputs))
        fitted.extend((name, len(torch.unique(inputs[rows], dim=0))) for name in targets)
        return fit(inputs, targets, pools, weights)

    monkeypatch.setattr(algo, "fit", watch)
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
    assert not algo.state_dict()["extra"]["evidence"]["epochs"]  # nothing is kept for nobody
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
