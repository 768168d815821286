"""Each algorithm enforces what it claims, on a task whose best answer is known (`line_env`)."""

import statistics
from typing import Any

import pytest
import torch
from line_env import LineEnv

from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.training.collect import Collector
from statewise.types import Episodes

LIMIT = 0.1
QUICK = {
    "hidden": (16, 16),
    "critic_iterations": 20,
    "critic_batch": 512,
    "critic_lr": 5e-3,
    "log_std": -1.0,
    "least_noise": 0.0,  # the best policy has no noise
}
# On a task this small the noise of a policy dies out quickly, and with it the scale of the reward
# advantage that prices compete with: they have to rise faster than on a robot.
PRICES: dict[str, dict[str, Any]] = {
    "trpo_lag": {"multiplier_lr": 20.0, "multiplier_start": 40.0},
    "trpo_fac": {"multiplier_lr": 1e-2, "multiplier_iterations": 50, "target_kl": 0.002},
}
BOUNDING = ["scpo", "ascpo", "cpo", "pcpo", "trpo_lag", "trpo_fac", "trpo_ipo"]


def learn(
    name: str, epochs: int, num_costs: int = 1, seed: int = 0, **settings: Any
) -> tuple[Algorithm, Episodes]:
    """The trained algorithm and 8 episodes of its mean policy."""
    env = LineEnv(64, num_costs)
    kind = get_algorithm(name)
    algo = kind(env.spec, kind.settings_class(**(QUICK | settings)), epochs, seed)
    collector = Collector(env, algo, seed + 1)
    for epoch in range(epochs):
        rollout, _ = collector.collect(16)
        algo.progress = (epoch + 1) / epochs
        algo.update(rollout)
    return algo, mean_episodes(algo, num_costs)


def mean_episodes(algo: Algorithm, num_costs: int) -> Episodes:
    env = LineEnv(8, num_costs)
    step, total, cost = env.reset(seed=0), torch.zeros(8), torch.zeros(8, num_costs)
    for _ in range(8):
        step = env.step(algo.act(step, None).executed)
        total, cost = total + step.reward, cost + step.cost
    no = torch.zeros(8, dtype=torch.bool)
    cleared = -step.cost_max
    length = torch.full((8,), 8)
    return Episodes(total, cost, step.cost_max, cleared, length, ~no, no, no)


def outcome(name: str, epochs: int, num_costs: int = 1, **settings: Any) -> tuple[float, float]:
    """What the trained policy keeps of its first cost, and its return.

    Some swing about their answer, and one of ten seeds ends far off: of these it is the median of three.
    """
    kept, earned = [], []
    for seed in range(3 if name in ("scpo", "ascpo", "trpo_fac") else 1):
        _, episodes = learn(name, epochs, num_costs, seed, **settings, **PRICES.get(name, {}))
        cost = episodes.cost_max if name in ("scpo", "ascpo") else episodes.cost
        kept.append(float(cost[:, 0].mean()))
        earned.append(float(episodes.returns.mean()))
    return statistics.median(kept), statistics.median(earned)


def test_trpo_runs_for_the_reward() -> None:
    _, episodes = learn("trpo", 40)
    assert episodes.returns.mean() > 1.8  # the best is 2


# What each may exceed its limit by (TRPO does by 5), and fall short of the best return of 0.6 by.
@pytest.mark.parametrize(
    ("name", "excess", "shortfall"),
    [
        ("scpo", 0.03, 0.12),
        ("ascpo", 0.03, 0.12),
        ("cpo", 0.03, 0.12),
        ("pcpo", 0.08, 0.15),
        ("trpo_lag", 0.25, 0.2),
        ("trpo_fac", 0.9, 0.3),
        ("trpo_ipo", 0.05, 0.2),
    ],
)
def test_method_earns_what_its_limit_allows(name: str, excess: float, shortfall: float) -> None:
    kept, earned = outcome(name, 100, cost_limit=(LIMIT,))
    assert kept <= LIMIT + excess
    assert earned >= 0.5 + LIMIT - shortfall


@pytest.mark.parametrize("name", BOUNDING)
def test_limit_zero_is_the_common_case_and_never_breaks(name: str) -> None:
    algo, episodes = learn(name, 40, cost_limit=(0.0,), **PRICES.get(name, {}))
    assert algo.skipped == 0
    assert torch.isfinite(algo.policy.flat()).all() and torch.isfinite(episodes.returns).all()
    _, free = learn("trpo", 40)
    assert float(episodes.cost_max.mean()) < float(free.cost_max.mean())


@pytest.mark.parametrize("name", BOUNDING)
def test_several_constraints_are_taken_and_the_tighter_one_rules(name: str) -> None:
    kept, _ = outcome(name, 80, num_costs=2, cost_limit=(LIMIT, 1.0))
    assert kept <= LIMIT + 0.4  # a limit of 1.0 would allow ten times as much


@pytest.mark.parametrize("name", ["trpo_sl", "trpo_usl"])
def test_a_safety_layer_makes_the_running_policy_safer_after_the_warm_up(name: str) -> None:
    algo, episodes = learn(name, 90, cost_limit=(0.0,))
    _, free = learn("trpo", 90)
    assert float(episodes.cost_max.mean()) < 0.6 * float(free.cost_max.mean())
    assert algo.correcting  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", ["trpo_sl", "trpo_usl"])
def test_nothing_is_corrected_during_the_warm_up(name: str) -> None:
    env = LineEnv(16)
    kind = get_algorithm(name)
    algo = kind(env.spec, kind.settings_class(**QUICK), epochs=9, seed=0)
    collector = Collector(env, algo, seed=1)
    for epoch in range(9):
        rollout, _ = collector.collect(16)
        same = torch.equal(rollout.action, rollout.executed)
        assert same if epoch < 3 else not same
        algo.update(rollout)


def test_every_algorithm_is_listed() -> None:
    assert set(ALGORITHMS) == {*BOUNDING, "trpo", "trpo_sl", "trpo_usl"}
