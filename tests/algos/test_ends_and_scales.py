"""What an update makes of time limits, of units of cost, of noise, and of the caps in its settings."""

import dataclasses
import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from line_env import LineEnv
from torch import Tensor

from statewise.algos import Algorithm, get_algorithm
from statewise.algos.batch import Batch
from statewise.algos.pcpo import Pcpo
from statewise.algos.policy_step import surrogates
from statewise.algos.scpo import Scpo
from statewise.algos.trpo_fac import TrpoFac
from statewise.algos.trpo_ipo import TrpoIpo
from statewise.algos.trpo_sl import TrpoSl
from statewise.algos.trpo_usl import TrpoUsl
from statewise.training.collect import Collector

QUICK: dict[str, Any] = {"hidden": (16, 16), "critic_iterations": 5, "critic_batch": 128}
WITH_CRITIC = ["cpo", "pcpo", "trpo_lag", "trpo_fac", "trpo_ipo"]


def make(name: str, env: LineEnv, **settings: Any) -> Algorithm:
    kind = get_algorithm(name)
    return kind(env.spec, kind.settings_class(**(QUICK | settings)), epochs=6, seed=0)


def learn(name: str, env: LineEnv, **settings: Any) -> tuple[Algorithm, Batch]:
    """An algorithm, and the estimates of 16 steps of its first policy."""
    algo = make(name, env, **settings)
    rollout, _ = Collector(env, algo, seed=1).collect(16)
    algo.measure_inputs(rollout)
    return algo, algo.estimate(rollout)


def say(net: torch.nn.Module, value: float) -> None:
    """Let a network answer `value` everywhere."""
    for p in net.parameters():
        p.data.zero_()
    softplus = isinstance(net[-1], torch.nn.Softplus)  # type: ignore[index]
    last = net[-2 if softplus else -1]  # type: ignore[index]
    last.bias.data.fill_(math.log(math.expm1(value)) if softplus else value)


# The time limit --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["scpo", *WITH_CRITIC])
@pytest.mark.parametrize("truncates", [False, True])
def test_only_a_sum_of_costs_goes_on_past_the_time_limit(name: str, truncates: bool) -> None:
    """The largest cost of an episode is that within its time; a sum is of a task without an end."""
    algo, batch = learn(name, LineEnv(16, truncates=truncates), log_std=0.0)
    assert algo.cost_value is not None and algo.cost_signal is not None
    rollout, last = batch.rollout, batch.rollout.ended.flatten()
    after = algo.observe(rollout.next_obs, rollout.cost_max).flatten(0, 1)[last]
    value, beyond = (algo.cost_value(x).detach() for x in (batch.inputs[last], after))
    goes_on = truncates and name != "scpo"
    signal = (rollout.increment if name == "scpo" else rollout.cost).flatten(0, 1)[last]
    target = signal + (1.0 if name == "scpo" else algo.cost_signal.gamma) * beyond * goes_on
    torch.testing.assert_close(batch.cost_target[last], target)
    # Advantages are less their mean over the whole batch.
    centred = [x - x.mean() for x in (batch.cost_advantage[last], target - value)]
    torch.testing.assert_close(*centred)


@pytest.mark.parametrize("truncates", [False, True])
def test_the_cost_to_go_of_an_action_goes_on_past_the_time_limit(truncates: bool) -> None:
    """From the state that time ran out in, and not from the one the next episode starts in."""
    algo, batch = learn("trpo_usl", LineEnv(16, truncates=truncates), log_std=0.0, cost_gamma=0.9)
    assert isinstance(algo, TrpoUsl)
    fitted: list[Tensor] = []
    fit = algo.critics.fit

    def record(inputs: Tensor, targets: Any, *more: Any) -> Any:
        fitted.append(targets["cost_to_go"])
        return fit(inputs, targets, *more)

    algo.critics.fit = record  # type: ignore[method-assign, assignment]
    with torch.no_grad():
        rollout = batch.rollout
        after = algo.observe(rollout.next_obs, rollout.cost_max).flatten(0, 1)
        mean = algo.cost_to_go(torch.cat([after, algo.policy(after).clamp(-1, 1)], 1))
        done = torch.cat([batch.inputs, rollout.executed.flatten(0, 1).clamp(-1, 1)], 1)
        here = algo.cost_to_go(done).view_as(rollout.cost)
    algo.fit_model(batch)
    ahead = ((fitted[0] - rollout.cost.flatten(0, 1)) / 0.9).view_as(rollout.cost)
    ended, mean = rollout.ended, mean.view_as(rollout.cost)
    expected = mean[ended] if truncates else torch.zeros_like(mean[ended])
    torch.testing.assert_close(ahead[ended], expected, atol=1e-5, rtol=1e-4)
    within = ~ended[:-1]
    torch.testing.assert_close(ahead[:-1][within], here[1:][within], atol=1e-5, rtol=1e-4)
    cut = ~ended[-1]
    torch.testing.assert_close(ahead[-1][cut], mean[-1][cut], atol=1e-5, rtol=1e-4)


def test_a_sum_of_costs_is_never_estimated_below_zero() -> None:
    env = LineEnv(16)
    algo = make("cpo", env)
    assert algo.cost_value is not None
    say(algo.cost_value, -1.0)
    rollout, _ = Collector(env, algo, seed=1).collect(2)
    assert algo.update(rollout)["constraint/edge0/estimate"] == 0.0


def test_a_maximum_is_never_estimated_below_what_was_seen_of_it() -> None:
    """A V_D that is wrong where many episodes end at once says that there is no cost at all."""
    env = LineEnv(16)
    algo = make("scpo", env, log_std=0.0)
    assert algo.cost_value is not None
    say(algo.cost_value, 1.0)
    rollout, _ = Collector(env, algo, seed=1).collect(4)
    # As if they were the second halves of 16 episodes, worth eight whole ones, that rise to 0.25 at once.
    before, ends = torch.full_like(rollout.cost, 0.25), torch.zeros_like(rollout.ended)
    before[0], ends[-1] = 0.0, True
    rollout = dataclasses.replace(
        rollout,
        age=torch.arange(4, 8)[:, None].expand_as(ends),
        terminated=ends,
        truncated=torch.zeros_like(ends),
        cost_max_before=before,
        cost_max=torch.full_like(before, 0.25),
    )
    assert algo.update(rollout)["constraint/edge0/estimate"] == pytest.approx(16 * 0.25 / 8)


def costing(batch: Batch, cost: float) -> Batch:
    """The batch, as if every episode cost so much, with and without a margin."""
    J = torch.tensor([cost]).double()
    return dataclasses.replace(batch, J=J, shown=J, violating=(J > 0).double())


# Units of cost ---------------------------------------------------------------------------------


def take_step(
    violation: Sequence[float],
    units: Sequence[float] = (1.0,),
    size: float = 1.0,
    worlds: int = 16,
    advantage: Tensor | None = None,
    **settings: Any,
) -> tuple[dict[str, float], Tensor]:
    """The metrics of SCPO's step, and the policy after it less the one before.

    Violations are in `units`, and so are the advantages of cost: `size` of what chance makes of them.
    """
    env = LineEnv(worlds, len(units), units)
    algo, batch = learn("scpo", env, **({"cost_feedback": 0.0} | settings))
    assert isinstance(algo, Scpo)
    algo.epoch = 2
    chance = torch.randn(batch.cost_advantage.shape, generator=torch.Generator().manual_seed(3))
    cost = size * chance if advantage is None else advantage
    excess = (torch.tensor(violation) * env.units).double()
    batch = dataclasses.replace(batch, cost_advantage=cost * env.units)
    before = algo.policy.flat().clone()
    step = algo.policy_step(batch, surrogates(batch))
    metrics = algo.constrained_step(step, excess)
    return metrics, algo.policy.flat() - before


@pytest.mark.parametrize(
    ("violation", "case", "settings"),
    [
        ((-0.003, -0.003), 2.0, {"size": 0.1}),
        ((0.0004, 0.0004), 1.0, {"size": 1e-3}),
        # More than a step can give: the larger one is lowered.
        ((0.5, 0.4), 0.0, {"size": 0.01, "recovery_fraction": 1.0}),
        # That is not enough either: both are lowered, whatever becomes of the reward.
        ((9.0, 9.0), 0.0, {"recovery_fraction": 1.0, "cost_reduction": 1e9}),
    ],
)
def test_the_unit_of_a_cost_does_not_matter(
    violation: tuple[float, ...], case: float, settings: dict[str, Any]
) -> None:
    """The same cost in thousandths, as its ceiling says."""
    (here, moved), (there, also_moved) = (
        take_step(violation, units, **settings) for units in ((1.0, 1.0), (1.0, 1000.0))
    )
    assert here["policy/case"] == there["policy/case"] == case
    assert here["policy/rescued"] == there["policy/rescued"] == float("cost_reduction" in settings)
    for name, unit in (("edge0", 1.0), ("edge1", 1000.0)):
        key = f"constraint/{name}/requested"
        assert there[key] == pytest.approx(unit * here[key], rel=1e-3)
    assert moved.norm() > 0
    assert float((also_moved - moved).norm() / moved.norm()) < 0.01


def test_without_feedback_a_constraint_asks_for_its_violation() -> None:
    for violation in (0.03, -0.005):
        metrics, _ = take_step([violation], size=1.0)
        assert metrics["constraint/edge0/requested"] == pytest.approx(violation, rel=1e-4)


@pytest.mark.parametrize(("cost", "share"), [(0.06, 0.6), (0.025, 0.15), (0.0, -0.6)])
def test_with_feedback_a_constraint_asks_for_a_share_of_what_the_region_can_do(
    cost: float, share: float
) -> None:
    """The limit is 0.02: three times that is an error of 1, a quarter too much is 0.25, none is -1.
    The first share is 0.1 * (5 + 1) times the error."""
    algo, batch = learn("scpo", LineEnv(16), cost_limit=(0.02,), cost_feedback=0.1, tightening=0.0)
    metrics = algo.update_networks(costing(batch, cost))
    most = math.sqrt(2 * 0.02 * metrics["constraint/edge0/s"])
    assert metrics["constraint/edge0/requested"] == pytest.approx(share * most, rel=1e-4)


def test_at_a_limit_of_zero_the_feedback_counts_violating_episodes() -> None:
    """Three of a hundred is twice the tolerance too many, however little each of them costs."""
    algo, batch = learn("scpo", LineEnv(16), tolerance=0.02, tightening=0.0)
    few = torch.tensor([0.03]).double()
    batch = dataclasses.replace(costing(batch, 1e-6), violating=few)
    metrics = algo.update_networks(batch)
    assert metrics["constraint/edge0/measured"] == pytest.approx(0.03)
    assert metrics["constraint/edge0/limit"] == pytest.approx(0.02)
    assert metrics["constraint/edge0/integral"] == pytest.approx(0.05 * 0.5)


def test_the_share_of_violating_episodes_is_counted_without_the_margin() -> None:
    """Each of 4 worlds is in its first episode. All are in the margin, and one breaks the rule twice."""
    algo, batch = learn("scpo", LineEnv(4))
    rollout = dataclasses.replace(
        batch.rollout,
        **{f.name: getattr(batch.rollout, f.name)[:3] for f in dataclasses.fields(batch.rollout)},
    )
    true = torch.zeros_like(rollout.cost)
    true[1:, 0] = 0.5
    margin = torch.full_like(true, 0.1)
    before = torch.cat([torch.zeros_like(true[:1]), true[:-1]])
    ends = torch.zeros_like(rollout.terminated)
    rollout = dataclasses.replace(
        rollout,
        cost=true + margin,
        true_cost=true,
        true_cost_max_before=before,
        true_cost_max=true,
        age=torch.arange(3)[:, None].expand_as(ends),
        terminated=ends,
        truncated=ends,
    )
    assert algo.estimate(rollout).violating.tolist() == [pytest.approx(1 / 4)]


def test_the_limit_tightens_with_the_share_of_steps_that_are_done() -> None:
    """The wanted limit is a tolerance of 0.005. A quarter of the way it is eight times as high."""
    algo, batch = learn("scpo", LineEnv(16), tightening=1.5)
    limits = []
    for algo.progress in (0.01, 0.25, 1.0):
        limits.append(algo.update_networks(batch)["constraint/edge0/limit"])
    assert limits == pytest.approx([0.5, 8 * 0.005, 0.005])
    assert "tightening" in algo.scheduled


@pytest.mark.parametrize("name", ["scpo", "cpo", "pcpo"])
def test_the_request_grows_while_a_cost_stays_above_its_limit_and_shrinks_while_it_is_below(
    name: str,
) -> None:
    algo, batch = learn(name, LineEnv(16), cost_feedback=0.1, tightening=0.0)

    def integrals(cost: float, epochs: int) -> list[float]:
        fixed = costing(batch, cost)
        return [algo.update_networks(fixed)["constraint/edge0/integral"] for _ in range(epochs)]

    assert integrals(9.0, 3) == pytest.approx([0.1, 0.2, 0.3])
    assert integrals(9.0, 10)[-1] == pytest.approx(0.97), "it cannot wind up beyond the cap"
    assert integrals(0.0, 2) == pytest.approx([0.87, 0.77])
    assert integrals(0.0, 30)[-1] == -1.0, "a constraint that costs nothing for long is free"


def test_the_feedback_follows_the_true_cost_and_not_the_one_with_a_margin() -> None:
    algo, batch = learn("scpo", LineEnv(16), cost_feedback=0.1, tightening=0.0)
    near = dataclasses.replace(costing(batch, 0.0), J=torch.tensor([9.0]).double())
    metrics = algo.update_networks(near)
    assert metrics["constraint/edge0/violation"] == 9.0
    assert metrics["constraint/edge0/share"] == pytest.approx(-0.6)


def test_the_feedback_is_part_of_the_saved_state() -> None:
    algo, batch = learn("scpo", LineEnv(16), tightening=0.0)
    algo.update_networks(costing(batch, 9.0))
    other, _ = learn("scpo", LineEnv(16))
    other.load_state_dict(algo.state_dict())
    assert other.extra_state() == algo.extra_state() == {"integral": [pytest.approx(0.05)]}


def test_violated_constraints_ask_together_for_a_part_of_the_region() -> None:
    """Each alone may ask for 0.9 of the radius; both, with independent gradients, ask for less."""
    metrics, _ = take_step([9.0, 9.0], (1.0, 1.0), recovery_fraction=0.9)
    assert metrics["policy/case"] == 1.0 and metrics["policy/alpha"] > 0.0
    alone = [0.9 * math.sqrt(2 * 0.02 * metrics[f"constraint/edge{i}/s"]) for i in (0, 1)]
    asked = [metrics[f"constraint/edge{i}/requested"] for i in (0, 1)]
    assert 0.0 < asked[0] < alone[0] and 0.0 < asked[1] < alone[1]


# A step that is not accepted -------------------------------------------------------------------


def against_reward() -> Tensor:
    """An advantage of cost that is the one of the reward: nothing lowers one and not the other."""
    _, batch = learn("scpo", LineEnv(16))
    return 0.01 * batch.advantage.unsqueeze(1)


def test_if_no_part_of_a_step_will_do_the_cost_is_lowered_whatever_it_does_to_the_reward() -> None:
    # Of a violation this large no step sees all of it gone, as this reduction asks.
    refused: dict[str, Any] = {"cost_reduction": 1e9, "advantage": against_reward()}
    metrics, moved = take_step([1e3], **refused)
    assert metrics["policy/rescued"] == 1.0 and metrics["policy/step_accepted"] == 1.0
    assert metrics["policy/rejected/cost_0"] == 100
    assert metrics["constraint/edge0/change"] < 0 and metrics["policy/reward_change"] < 0
    assert 0.0 < metrics["policy/kl"] <= 0.02 and moved.norm() > 0


def test_nothing_is_rescued_where_the_reward_must_not_fall_or_a_gradient_is_not_finite() -> None:
    broken = torch.full((256, 1), torch.inf)
    for test, advantage in (("always", against_reward()), ("reference", broken)):
        metrics, moved = take_step(
            [1e3],
            cost_reduction=1e9,
            reward_test=test,
            advantage=advantage,  # type: ignore[arg-type]
        )
        assert metrics["policy/rescued"] == 0.0 and metrics["policy/step_accepted"] == 0.0
        assert not moved.any()


@pytest.mark.parametrize("name", ["scpo", "cpo"])
def test_the_settings_of_a_method_reach_its_step(name: str) -> None:
    def update(**settings: Any) -> dict[str, float]:
        algo, batch = learn(name, LineEnv(16), log_std=0.5, **settings)
        return algo.update_networks(costing(batch, 9.0))

    half = update(recovery_fraction=0.5, cost_feedback=0.1, tightening=0.0)
    most = math.sqrt(2 * 0.02 * half["constraint/edge0/s"])
    assert half["constraint/edge0/requested"] == pytest.approx(0.5 * most, rel=1e-4)
    asked = update(recovery_fraction=1.0, cost_feedback=0.0)
    assert asked["constraint/edge0/requested"] == pytest.approx(9.0)
    assert update(cost_limit=(2.0,))["constraint/edge0/violation"] == pytest.approx(7.0)
    assert update()["policy/rescued"] == 0.0
    assert update(cost_reduction=1e9, cost_feedback=0.0)["policy/rescued"] == 1.0
    always = update(cost_reduction=1e9, cost_feedback=0.0, reward_test="always")
    assert always["policy/rescued"] == 0.0


@pytest.mark.parametrize("name", ["scpo", "cpo", "pcpo"])
def test_the_aids_of_the_constrained_step_are_open_to_all_who_take_it(name: str) -> None:
    aids = ("recovery_fraction", "cost_feedback", "tightening", "tolerance", "cost_lam", "rescue")
    mine, defaults = (get_algorithm(n).settings_class() for n in (name, "scpo"))
    assert all(getattr(mine, aid) == getattr(defaults, aid) for aid in aids)
    algo, batch = learn(name, LineEnv(16), tightening=0.0)
    metrics = algo.update_networks(costing(batch, 9.0))
    assert metrics["constraint/edge0/share"] == pytest.approx(0.05 * 6)


# Prices ----------------------------------------------------------------------------------------


def test_a_multiplier_rises_with_the_violation_and_stays_between_zero_and_its_cap() -> None:
    algo, batch = learn("trpo_lag", LineEnv(16), log_std=0.5, multiplier_lr=2.0, multiplier_cap=5.0)
    violation = float(batch.J[0])
    assert violation > 0.1
    rising = [algo.update_networks(batch)["constraint/edge0/nu"] for _ in range(2)]
    assert rising == pytest.approx([min(2 * violation, 5.0), min(4 * violation, 5.0)])
    assert [algo.update_networks(batch)["constraint/edge0/nu"] for _ in range(40)][-1] == 5.0
    algo, batch = learn("trpo_lag", LineEnv(16), cost_limit=(100.0,), multiplier_start=0.1)
    assert algo.update_networks(batch)["constraint/edge0/nu"] == 0.0


def test_the_scale_of_the_penalty_weighs_the_loss_and_not_the_rise() -> None:
    policies, rises = [], []
    for start, scale in ((6.0, 1.0), (2.0, 3.0), (2.0, 1.0)):
        algo, batch = learn(
            "trpo_lag", LineEnv(16), log_std=0.5, multiplier_start=start, penalty_scale=scale
        )
        rises.append(algo.update_networks(batch)["constraint/edge0/nu"] - start)
        policies.append(algo.policy.flat())
    torch.testing.assert_close(policies[0], policies[1])
    assert not torch.allclose(policies[0], policies[2])
    assert rises[0] > 0 and rises == pytest.approx([rises[0]] * 3, rel=1e-3)


def test_the_price_of_a_state_never_exceeds_its_cap() -> None:
    trpo, batch = learn("trpo", LineEnv(16), log_std=0.5)
    trpo.update_networks(batch)
    steps = []
    for cap in (0.0, 0.3, math.inf):
        algo, batch = learn("trpo_fac", LineEnv(16), log_std=0.5, multiplier_cap=cap)
        assert isinstance(algo, TrpoFac)
        say(algo.multiplier, 0.7)
        assert algo.update_networks(batch)["multiplier/max"] == pytest.approx(min(cap, 0.7))
        steps.append(algo.policy.flat())
    torch.testing.assert_close(steps[0], trpo.policy.flat())  # a price of 0: the reward alone
    assert not torch.allclose(steps[1], steps[2])


@pytest.mark.parametrize("source", ["sampled", "critic"])
def test_prices_rise_with_the_cost_to_go_of_the_rollout_or_of_the_critic(source: str) -> None:
    algo, batch = learn(
        "trpo_fac", LineEnv(16, truncates=True), cost_to_go=source, cost_limit=(0.25,), log_std=0.5
    )
    assert isinstance(algo, TrpoFac) and algo.cost_value is not None
    say(algo.multiplier, 2.0)
    say(algo.cost_value, 3.0)
    ahead = 3.0 if source == "critic" else float(batch.cost_target.mean())
    assert algo.raise_prices(batch)["critic/multiplier_loss"] == pytest.approx(
        -2.0 * (ahead - 0.25), rel=1e-4
    )


@pytest.mark.parametrize(
    ("form", "u", "expected"),
    [
        ("published", -0.5, math.log(2) / 20),
        ("published", 0.0, 0.0),
        ("published", 0.2, 1e-4),  # it falls where the limit is violated
        ("smooth", -0.5, math.log(2) / 20),
        ("smooth", -1 / 400, math.log(400) / 20),
        ("smooth", 0.2, math.log(400) / 20 + 20 * (0.2 + 1 / 400)),
    ],
)
def test_the_barrier_has_the_form_that_was_chosen(form: str, u: float, expected: float) -> None:
    algo = make("trpo_ipo", LineEnv(2), barrier=form, t=20.0)
    assert isinstance(algo, TrpoIpo)
    assert float(algo.barrier(torch.tensor(u))) == pytest.approx(expected, rel=1e-4, abs=1e-7)


def test_at_a_limit_of_zero_the_published_barrier_is_hardly_felt() -> None:
    steps = []
    for name, settings in (("trpo", {}), ("trpo_ipo", {"barrier": "published"}), ("trpo_ipo", {})):
        algo, batch = learn(name, LineEnv(16), log_std=0.5, **settings)
        before = algo.policy.flat().clone()
        algo.update_networks(batch)
        steps.append(algo.policy.flat() - before)
    size = float(steps[0].norm())
    assert float((steps[1] - steps[0]).norm()) < 0.05 * size
    assert float((steps[2] - steps[0]).norm()) > 0.5 * size


# Projections -----------------------------------------------------------------------------------


@pytest.mark.parametrize("projection", ["kl", "l2"])
def test_a_projected_step_ends_on_the_limit_and_got_there_the_nearest_way(projection: str) -> None:
    algo, batch = learn("pcpo", LineEnv(16), log_std=0.5, projection=projection, keep_region=False,
                        cost_feedback=0.0, recovery_fraction=1.0)  # fmt: skip
    batch = costing(batch, 0.05)
    assert isinstance(algo, Pcpo)
    step = algo.policy_step(batch, surrogates(batch))
    reward, (b,) = step.natural[0], step.gradients[1:]
    reward = math.sqrt(2 * 0.02 / step.q) * reward
    before = algo.policy.flat().clone()
    algo.update_networks(batch)
    moved = algo.policy.flat() - before
    assert float(b @ moved) == pytest.approx(-0.05, abs=1e-3)
    back, nearest = reward - moved, b if projection == "l2" else step.natural[1]
    assert float(torch.cosine_similarity(back, nearest, dim=0)) > 0.9999
    other = step.natural[1] if projection == "l2" else b
    assert float(torch.cosine_similarity(back, other, dim=0)) < 0.999


@pytest.mark.parametrize("keep", [True, False])
def test_a_projected_step_leaves_the_trust_region_only_where_it_may(keep: bool) -> None:
    algo, batch = learn("pcpo", LineEnv(16), log_std=0.5, keep_region=keep, cost_feedback=0.0)
    batch = costing(batch, 5.0)
    assert (algo.update_networks(batch)["policy/kl"] <= 0.02) == keep


# Safety layers ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("steps", "rate"), [(1, 0.05), (3, 0.05), (3, 0.1), (0, 0.1)])
def test_an_action_is_corrected_by_so_many_steps_of_such_a_length_at_most(
    steps: int, rate: float
) -> None:
    env = LineEnv(8)
    algo = make("trpo_usl", env, warmup=0.0, hidden=(1,), correction_steps=steps,
                correction_rate=rate)  # fmt: skip
    assert isinstance(algo, TrpoUsl)
    say(algo.cost_to_go, 5.0)  # never safe
    algo.cost_to_go[0].weight.data[0, 2] = 0.1
    algo.cost_to_go[2].weight.data.fill_(1.0)
    step = env.reset(0)
    proposed = torch.linspace(-1.0, 1.0, 8).unsqueeze(1)
    executed = algo.correct(step, step.obs, proposed)
    torch.testing.assert_close(executed, (proposed - steps * rate).clamp(min=-1.0))


def layered(**settings: Any) -> TrpoSl:
    """A safety layer whose model says c' = c + 0.25 a."""
    algo = make("trpo_sl", LineEnv(4), warmup=0.0, **settings)
    assert isinstance(algo, TrpoSl)
    for p in algo.cost_model.parameters():
        p.data.zero_()
    algo.cost_model.slope[-1].bias.data.fill_(0.25)
    return algo


def test_a_safety_layer_does_what_the_box_allows_leaves_slack_and_forgets_old_episodes() -> None:
    step = LineEnv(4).reset(0)
    proposed = torch.tensor([[0.0], [0.5], [1.0], [1.5]])

    def corrected(algo: TrpoSl, cost: float, ended: bool = False) -> list[float]:
        after = dataclasses.replace(
            step, cost=torch.full((4, 1), cost), truncated=torch.full((4,), ended)
        )
        return algo.correct(after, step.obs, proposed).flatten().tolist()

    strict, lenient = layered(cost_limit=(0.1,)), layered(cost_limit=(0.1,), slack=0.125)
    assert corrected(strict, 0.9) == pytest.approx([-1.0] * 4, abs=1e-5)  # never out of the box
    assert corrected(strict, 0.0) == pytest.approx([0.0, 0.4, 0.4, 0.4], abs=1e-5)
    assert corrected(lenient, 0.0) == pytest.approx([0.0, 0.5, 0.9, 0.9], abs=1e-5)
    assert corrected(strict, 0.9, ended=True) == corrected(strict, 0.0)
    # What the environment clips to a safe action is not touched.
    assert corrected(layered(cost_limit=(0.25,)), 0.0) == proposed.flatten().tolist()


def test_corrections_are_counted_and_forgotten_with_their_epoch() -> None:
    algo, (_, batch) = layered(cost_limit=(0.25,)), learn("trpo_sl", LineEnv(4))
    step = LineEnv(4).reset(0)
    # From a cost of 0.25 the model allows no more than 0: one of eight actions moves, by 0.5.
    for proposed, cost in (
        (torch.tensor([[0.5], [0.0], [-0.5], [-1.0]]), 0.25),
        (torch.zeros(4, 1), 0.0),
    ):
        algo.correct(dataclasses.replace(step, cost=torch.full((4, 1), cost)), step.obs, proposed)
    for rate, size in ((1 / 8, 0.5), (0.0, 0.0)):
        metrics = algo.update_networks(batch)
        assert metrics["safety_layer/rate"] == pytest.approx(rate)
        assert metrics["safety_layer/size"] == pytest.approx(size, abs=1e-5)


def test_clipping_an_action_to_the_box_is_no_correction() -> None:
    """A layer that finds nothing unsafe reports nothing, whatever the policy proposes."""
    env = LineEnv(4)
    algo = make("trpo_usl", env, warmup=0.0, cost_limit=(10.0,))
    assert isinstance(algo, TrpoUsl)
    step = env.reset(0)
    executed = algo.correct(step, step.obs, torch.tensor([[-3.0], [0.5], [1.5], [9.0]]))
    assert executed.flatten().tolist() == [-1.0, 0.5, 1.0, 1.0]
    assert [float(x) for x in algo.tally] == [4.0, 0.0, 0.0]
