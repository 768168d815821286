"""Promises of the memory of costs: what it keeps stands for all, and counts as the policy is now."""

from typing import Any

import torch
from test_algorithms import make
from torch import Tensor
from torch.distributions import Normal

from statewise.algos.estimates import Batch, estimate
from statewise.algos.memory import MOST_LIKELY, CostMemory
from statewise.algos.scpo import Scpo
from statewise.algos.steps import PolicyStep, cost_surrogates, reward_surrogate
from statewise.training.collect import Collector


def untrained(num_costs: int = 2, **settings: Any) -> tuple[Scpo, Collector]:
    algo, collector = make("scpo", num_costs, **settings)
    assert isinstance(algo, Scpo)
    rollout = collector.collect(32)[0]
    algo.scaler.update(algo.unscaled(rollout.obs, rollout.cost_max_before).flatten(0, 1))
    return algo, collector


def density(algo: Scpo, unscaled: Tensor, action: Tensor) -> Tensor:
    """[n] log π(a|s) of the policy as it is now."""
    with torch.no_grad():
        normal = Normal(algo.policy(algo.scale(unscaled)), algo.policy.log_std.exp())
        return normal.log_prob(action).sum(-1)


def gradients(algo: Scpo, batch: Batch, memory: CostMemory) -> Tensor:
    """[m, P] of the costs."""
    past = memory.recall(algo)
    objectives = [reward_surrogate(batch), *cost_surrogates(batch, past)]
    return PolicyStep(algo, batch, objectives, past=past).gradients[1:]


def test_what_is_kept_of_an_epoch_sums_on_average_to_what_all_of_it_does() -> None:
    algo, collector = untrained()
    batch = estimate(algo, collector.collect(32)[0])
    batch.cost_advantage[:, 1] *= 1e3  # constraints may have other units
    memory = CostMemory(401)
    for _ in range(400):
        memory.add(algo, batch)
    kept = torch.stack([(p.cost_advantage * p.action**2).sum(0) for p in memory.past])
    whole, error = (batch.cost_advantage * batch.action**2).sum(0), kept.std(0) / 400**0.5
    assert {len(p.action) for p in memory.past} == {len(batch.action) // 4}
    assert ((kept.mean(0) - whole).abs() < 4 * error).all()
    assert (error < 0.1 * whole.abs()).all()


def test_a_remembered_row_counts_by_how_likely_its_action_is_now() -> None:
    algo, collector = untrained()
    memory, before = CostMemory(2), estimate(algo, collector.collect(32)[0])
    memory.add(algo, before)
    kept = memory.past[0]
    then = density(algo, kept.inputs, kept.action)
    with torch.no_grad():  # the policy moves, and so does what its inputs are scaled by
        algo.policy.mean[0].bias += 0.4
        algo.policy.log_std -= 0.2
        algo.scaler.shift += 0.2
    batch = estimate(algo, collector.collect(32)[0])
    ratio = (density(algo, kept.inputs, kept.action) - then).exp()
    assert ratio.min() < 0.8 and ratio.max() > 1.2
    counted = ratio.clamp(max=MOST_LIKELY)[:, None] * kept.cost_advantage
    total = batch.cost_advantage.sum(0) + counted.sum(0)

    past = memory.recall(algo)
    objectives = [reward_surrogate(batch), *cost_surrogates(batch, past)]
    step = PolicyStep(algo, batch, objectives, past=past)
    expected = total / (batch.episodes + before.episodes)
    torch.testing.assert_close(step.scores[1:], expected, rtol=1e-4, atol=1e-6)


def test_remembered_rows_say_nothing_about_the_spread_of_the_policy() -> None:
    algo, collector = untrained(num_costs=1)
    memory, before = CostMemory(2), estimate(algo, collector.collect(32)[0])
    memory.add(algo, before)
    batch = estimate(algo, collector.collect(32)[0])
    share = batch.episodes / (batch.episodes + before.episodes)
    alone, both = (gradients(algo, batch, m) for m in (CostMemory(1), memory))
    torch.testing.assert_close(both[:, 0], share * alone[:, 0])  # log_std comes first
    assert not torch.allclose(both[:, 1:], share * alone[:, 1:], rtol=0.1)


def test_memory_steadies_the_cost_gradient() -> None:
    algo, collector = untrained(num_costs=1)
    rollouts = [collector.collect(32)[0] for _ in range(96)]
    batches = [estimate(algo, rollout) for rollout in rollouts]
    alone = torch.cat([gradients(algo, batch, CostMemory(1)) for batch in batches])
    memory, together = CostMemory(8), []
    for batch in batches:
        together.append(gradients(algo, batch, memory))
        memory.add(algo, batch)
    truth = alone.mean(0)
    noise, less = ((g - truth).norm(dim=1).mean() for g in (alone, torch.cat(together[8:])))
    assert less < 0.6 * noise  # of eight epochs as large as this one: 0.35


def test_saved_and_loaded_it_remembers_the_same() -> None:
    algo, collector = untrained(cost_memory=3)
    for _ in range(3):
        algo.update(collector.collect(32)[0])
    other, other_collector = untrained(cost_memory=3)
    other.load_state_dict(algo.state_dict())
    other_collector.load_state_dict(collector.state_dict())
    for _ in range(2):
        a, b = algo.update(collector.collect(32)[0]), other.update(other_collector.collect(32)[0])
        assert a == b and len(other.memory.past) == 2


def test_a_memory_of_one_epoch_is_the_paper_s_and_remembers_nothing() -> None:
    algo, collector = untrained(cost_memory=1)
    for _ in range(2):
        algo.update(collector.collect(32)[0])
    assert algo.memory.recall(algo) is None


def test_a_memory_holds_the_last_epochs_only() -> None:
    algo, collector = untrained(cost_memory=3)
    for _ in range(4):
        batch = estimate(algo, collector.collect(32)[0])
        algo.memory.add(algo, batch)
    assert len(algo.memory.past) == 2  # and the present one
    assert torch.isin(algo.memory.past[-1].action, batch.action).all()


def test_epochs_without_any_advantage_are_remembered_as_such() -> None:
    algo, collector = untrained(num_costs=1)
    batch = estimate(algo, collector.collect(32)[0])
    before = gradients(algo, batch, CostMemory(1))
    memory, empty = CostMemory(2), estimate(algo, collector.collect(32)[0])
    empty.cost_advantage.zero_()
    memory.add(algo, empty)
    share = batch.episodes / (batch.episodes + empty.episodes)
    torch.testing.assert_close(gradients(algo, batch, memory), share * before)
