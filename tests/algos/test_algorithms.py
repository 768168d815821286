"""Promises that every algorithm keeps: acting, saving, skipping what is broken, refusing nonsense."""

import dataclasses
from typing import Any

import pytest
import torch
from line_env import LineEnv

from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.algos.scpo import Scpo, ScpoSettings
from statewise.training.collect import Collector
from statewise.types import Rollout

QUICK: dict[str, Any] = {"hidden": (16, 16), "critic_iterations": 5, "critic_batch": 128}


def make(name: str, num_costs: int = 1, **settings: Any) -> tuple[Algorithm, Collector]:
    env = LineEnv(16, num_costs)
    kind = get_algorithm(name)
    algo = kind(env.spec, kind.settings_class(**(QUICK | settings)), epochs=6, seed=0)
    collector = Collector(env, algo, seed=1)
    algo.measure_inputs(collector.collect(8)[0])
    return algo, collector


def weights(algo: Algorithm) -> torch.Tensor:
    return torch.cat(
        [p.detach().flatten() for m in algo.modules().values() for p in m.parameters()]
    )


@pytest.mark.parametrize("name", ALGORITHMS)
def test_saved_after_two_epochs_and_loaded_it_goes_on_the_same(name: str) -> None:
    algo, collector = make(name)
    for _ in range(2):
        algo.update(collector.collect(16)[0])
    other, other_collector = make(name)
    other.load_state_dict(algo.state_dict())
    other_collector.load_state_dict(collector.state_dict())
    for _ in range(2):
        a, b = algo.update(collector.collect(16)[0]), other.update(other_collector.collect(16)[0])
        assert a == b
    assert torch.equal(weights(algo), weights(other))


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_seed_decides_everything(name: str) -> None:
    results = []
    for _ in range(2):
        algo, collector = make(name)
        algo.update(collector.collect(16)[0])
        results.append(weights(algo))
    assert torch.equal(*results)


@pytest.mark.parametrize("name", ALGORITHMS)
def test_updates_move_the_policy_within_the_trust_region(name: str) -> None:
    algo, collector = make(name)
    before = algo.policy.flat()
    metrics = algo.update(collector.collect(32)[0])
    assert not torch.equal(algo.policy.flat(), before)
    assert 0.0 < metrics["policy/kl"] <= algo.settings.target_kl * 1.001


@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_radius_of_the_trust_region_shrinks_evenly_and_no_step_leaves_it(name: str) -> None:
    algo, collector = make(name, final_radius=0.5)
    kl, region = [], []
    for _ in range(algo.epochs):
        kl.append(algo.update(collector.collect(32)[0])["policy/kl"])
        region.append(algo.target_kl)
    left = [1.0, 0.9, 0.8, 0.7, 0.6, 0.5]
    assert region == pytest.approx([algo.settings.target_kl * x**2 for x in left])
    assert all(a <= b * 1.001 for a, b in zip(kl, region, strict=True))
    assert max(kl) > 2 * kl[-1]


@pytest.mark.parametrize("name", ALGORITHMS)
@pytest.mark.parametrize("field", ["reward", "obs"])
@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_data_that_is_not_finite_never_reaches_the_weights(
    name: str, field: str, value: float
) -> None:
    algo, collector = make(name)
    rollout, _ = collector.collect(16)
    broken = getattr(rollout, field).clone()
    broken.view(-1)[3] = value
    before = weights(algo)
    metrics = algo.update(dataclasses.replace(rollout, **{field: broken}))
    assert torch.equal(weights(algo), before)
    assert metrics["update/skipped_now"] == 1.0 and algo.skipped == 1
    algo.update(rollout)  # and the next one is taken again
    assert not torch.equal(weights(algo), before)
    assert float(algo.scaler.count) > 0


@pytest.mark.parametrize("ceiling", [1e-3, 1.0, 1e6])
def test_the_first_value_of_a_cost_is_small_and_finite_whatever_its_unit(ceiling: float) -> None:
    spec = dataclasses.replace(LineEnv(2).spec, cost_ceiling=(ceiling,))
    algo = Scpo(spec, ScpoSettings(**QUICK), epochs=1, seed=0)
    assert algo.cost_value is not None
    value = algo.cost_value(torch.zeros(1, algo.inputs)).item()
    assert 0.0 < value < min(0.1, 0.5 * ceiling)


def test_a_critic_that_blows_up_is_put_back() -> None:
    algo, collector = make("trpo", critic_lr=1e38)
    before = [p.detach().clone() for p in algo.value.parameters()]
    metrics = algo.update(collector.collect(16)[0])
    assert all(torch.equal(a, b) for a, b in zip(before, algo.value.parameters(), strict=True))
    assert metrics["update/skipped"] == 1


@pytest.mark.parametrize("name", [n for n in ALGORITHMS if n != "trpo"])
def test_a_constrained_method_refuses_an_environment_without_costs(name: str) -> None:
    spec = dataclasses.replace(
        LineEnv().spec, cost_names=(), cost_ceiling=(), margin=(), clearance_units=()
    )
    kind = get_algorithm(name)
    with pytest.raises(ValueError, match="use trpo, or an environment that reports a cost"):
        kind(spec, kind.settings_class(), 6, 0)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"cost_limit": (-0.03,)}, "allow_negative_limit"),
        ({"target_kl": 0.0}, "target_kl is 0.0"),
        ({"final_radius": 0.0}, "final_radius is 0.0"),
        ({"final_radius": 1.5}, "final_radius is 1.5"),
        ({"gamma": 1.5}, "gamma is 1.5"),
        ({"recovery_fraction": 0.0}, "recovery_fraction is 0.0"),
        ({"hidden": ()}, "hidden"),
        ({"critic_iterations": 0}, "critic_iterations is 0"),
    ],
)
def test_impossible_settings_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ScpoSettings(**settings)


def test_a_negative_limit_can_be_asked_for() -> None:
    settings = ScpoSettings(cost_limit=(-0.03,), allow_negative_limit=True, cost_feedback=0.0)
    assert settings.limits(2).tolist() == [-0.03, -0.03]


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("cpo", {"cost_limit": (-0.03,), "allow_negative_limit": True}),
        ("scpo", {"bound_coefficient": 1.0}),
        ("ascpo", {"variance_in_violation": True}),
    ],
)
def test_a_setting_that_feedback_would_ignore_is_refused(
    name: str, settings: dict[str, Any]
) -> None:
    kind = get_algorithm(name).settings_class
    with pytest.raises(ValueError, match=r"has no effect with feedback.* Add cost_feedback=0"):
        kind(**settings)
    assert kind(**settings, cost_feedback=0.0)


def test_limits_must_match_the_constraints() -> None:
    with pytest.raises(ValueError, match="2 values for 3 constraints"):
        ScpoSettings(cost_limit=(0.1, 0.2)).limits(3)


# SCPO's own ------------------------------------------------------------------------------------


def safe(rollout: Rollout) -> Rollout:
    zero = torch.zeros_like(rollout.cost)
    return dataclasses.replace(
        rollout, cost=zero, last_cost=zero, cost_max_before=zero, cost_max=zero
    )


@pytest.mark.parametrize("mode", ["resample", "once", "weighted", "none"])
def test_scpo_learns_from_an_epoch_without_any_cost(mode: str) -> None:
    """No positive target at all: V_D is pulled to zero, and nothing is NaN."""
    algo, collector = make("scpo", subsample=mode, critic_iterations=100, cost_critic_lr=1e-2)
    assert algo.cost_value is not None
    for _ in range(3):
        rollout = safe(collector.collect(16)[0])
        metrics = algo.update(rollout)
        assert all(v == v for v in metrics.values())  # no NaN
    assert algo.skipped == 0
    inputs = algo.observe(rollout.obs, rollout.cost_max_before)
    assert float(algo.cost_value(inputs).detach().max()) < 0.02  # from about 0.05 at the start


def test_scpo_reads_the_running_maximum_its_policy_unless_told_not_to() -> None:
    scpo, _ = make("scpo", num_costs=2)
    blind, _ = make("scpo", num_costs=2, policy_sees_maximum=False)
    cpo, _ = make("cpo", num_costs=2)
    assert [(a.inputs, a.policy.inputs) for a in (scpo, blind, cpo)] == [(4, 4), (4, 2), (2, 2)]


def test_start_states_are_those_of_the_reset_even_if_the_first_update_is_skipped() -> None:
    algo, collector = make("scpo")
    algo.start_inputs, collector = None, Collector(collector.env, algo, seed=1)
    starts = collector.begin().obs.clone()
    rollout, _ = collector.collect(4)
    algo.update(dataclasses.replace(rollout, reward=torch.full_like(rollout.reward, torch.nan)))
    algo.update(collector.collect(4)[0])
    assert algo.skipped == 1 and algo.start_inputs is not None
    assert torch.equal(algo.start_inputs[:, :-1], starts)
    assert not algo.start_inputs[:, -1].any()


def test_a_maximum_is_never_estimated_above_the_largest_cost_and_may_pass_a_wrong_ceiling() -> None:
    algo, collector = make("scpo")
    rollout, _ = collector.collect(16)
    unbroken = torch.zeros_like(
        rollout.terminated
    )  # one long episode: few episodes, many increments
    rising = torch.arange(16.0).view(16, 1, 1).expand_as(rollout.cost)
    batch = algo.estimate(
        dataclasses.replace(
            rollout, terminated=unbroken, truncated=unbroken, age=rollout.age + 900,
            cost=rising, cost_max_before=(rising - 1).clamp(min=0), cost_max=rising,
        ),
    )  # fmt: skip
    assert algo.spec.cost_ceiling[0] < 15.0  # what somebody else's environment claims
    assert float(batch.J[0]) == pytest.approx(15.0)  # the largest seen


def test_which_policies_act_on_costs() -> None:
    assert {name for name in ALGORITHMS if make(name)[0].acts_on_cost} == {
        "scpo",
        "ascpo",
        "trpo_sl",
    }
    assert not make("scpo", policy_sees_maximum=False)[0].acts_on_cost


def test_sub_sampling_balances_zero_and_positive_targets() -> None:
    algo, collector = make("scpo", subsample="resample", log_std=0.0)
    assert isinstance(algo, Scpo)
    drawn: list[torch.Tensor] = []
    original = algo.critics.draw

    def draw(rows: torch.Tensor, count: int, times: int = 1) -> torch.Tensor:
        drawn.append(original(rows, count, times))
        return drawn[-1]

    algo.critics.draw = draw  # type: ignore[method-assign]
    rollout, _ = collector.collect(32)
    algo.update(rollout)
    _, positive, zero = drawn  # the first are the reward critic's
    assert positive.shape == zero.shape and positive.shape[1] > 0
    assert len({tuple(z.tolist()) for z in zero}) > 1  # drawn anew in each step


def test_the_bound_is_logged_and_changes_nothing_unless_asked_for() -> None:
    plain, collector = make("scpo")
    rollout, _ = collector.collect(32)
    bounded, _ = make("scpo", bound_coefficient=1.0, cost_feedback=0.0)
    a, b = plain.update(rollout), bounded.update(rollout)
    assert a["constraint/edge0/predicted"] <= a["constraint/edge0/predicted_corrected"]
    assert b["constraint/edge0/violation"] > a["constraint/edge0/violation"]


# Safety layers ---------------------------------------------------------------------------------


def test_safety_layer_moves_actions_into_the_safe_set_of_its_model() -> None:
    """With the model set by hand to c' = c + 0.25 a: from c = 0.1 and limit 0.2, a may be 0.4."""
    algo, collector = make("trpo_sl", cost_limit=(0.2,), warmup=0.0)
    for p in algo.modules()["cost_model"].parameters():
        p.data.zero_()
    algo.cost_model.slope[-1].bias.data.fill_(0.25)  # type: ignore[attr-defined]
    step = collector.env.reset()
    step = dataclasses.replace(step, cost=torch.full((16, 1), 0.1))
    proposed = torch.linspace(-1, 1, 16).unsqueeze(1)
    executed = algo.correct(step, step.obs, proposed)
    assert torch.allclose(executed, proposed.clamp(max=0.4), atol=1e-5)


def test_unrolled_layer_descends_until_its_model_is_safe_and_stays_in_the_box() -> None:
    """With Q(s, a) = softplus(10 a): at most 0.1 means a <= -0.2252."""
    algo, collector = make("trpo_usl", cost_limit=(0.09,), slack=0.01, warmup=0.0, hidden=(1,))
    net = algo.modules()["cost_to_go"]
    for p in net.parameters():
        p.data.zero_()
    first, last = net[0], net[2]  # type: ignore[index]
    first.weight.data[0, 2] = 1e-3  # the action; small, so that tanh is linear
    last.weight.data.fill_(1e4)
    step = collector.env.reset()
    proposed = torch.linspace(-1.5, 0.7, 16).unsqueeze(1)
    executed = algo.correct(step, step.obs, proposed)
    assert float(executed.max()) <= -0.2252 + 1e-4
    safe_already = proposed <= -0.2252
    assert torch.equal(executed[safe_already], proposed[safe_already].clamp(min=-1.0))
