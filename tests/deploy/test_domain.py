"""The operating domain: each episode draws its own values, and only what has an effect is accepted."""

import json
from pathlib import Path

import pytest
import torch
from coin_env import CoinEnv, coin_algo

from statewise.deploy.domain import (
    VARIATIONS,
    Disturbance,
    Domain,
    enter,
    read_domain,
    variations_in,
)
from statewise.envs.vec_env import VecEnv
from statewise.sim.variation import VariedSim
from statewise.types import first_step


def places(suite: str, ranges: dict[str, tuple[float, float]], steps: int = 30) -> torch.Tensor:
    """Where robots are after the same actions in the same layouts."""
    env = VecEnv(suite, 8)
    enter(env, Domain(ranges), seed=0)
    env.reset(seed=1)
    generator = torch.Generator().manual_seed(2)
    for _ in range(steps):
        env.step(2 * torch.rand(8, env.spec.action_size, generator=generator) - 1)
    return env.robot_pos.clone()


def test_neutral_values_change_nothing() -> None:
    physics = {
        n: (v.neutral, v.neutral) for n, v in VARIATIONS.items() if n not in ("noise", "delay")
    }
    assert torch.equal(places("Ant-Hazard-1", {}), places("Ant-Hazard-1", physics))


@pytest.mark.parametrize(
    "ranges",
    [{"friction": (0.3, 0.3)}, {"mass": (2, 2)}, {"strength": (0.5, 0.5)}, {"damping": (3, 3)},
     {"push": (2, 2)}, {"start": (0.5, 0.5)}],
)  # fmt: skip
def test_every_variation_has_an_effect(ranges: dict[str, tuple[float, float]]) -> None:
    moved = (places("Ant-Hazard-1", ranges) - places("Ant-Hazard-1", {})).norm(dim=1)
    assert int((moved > 1e-4).sum()) >= (2 if "push" in ranges else 8)


def test_each_episode_draws_its_own_values_within_the_range() -> None:
    env = VecEnv("Point-Hazard-1", 64)
    enter(env, Domain({"mass": (0.5, 1.5)}), seed=0)
    env.reset(seed=0)
    assert isinstance(env.sim, VariedSim)
    first = env.sim.worlds()["values"]
    assert len(first.unique()) == 64 and 0.5 <= first.min() < 0.7 and 1.3 < first.max() <= 1.5
    env.reset()
    assert not torch.equal(env.sim.worlds()["values"], first)


def test_a_light_robot_is_faster() -> None:
    env = VecEnv("Point-Hazard-1", 2)
    enter(env, Domain({"mass": (0.5, 2.0)}), seed=3)
    env.reset(seed=0)
    start = env.robot_pos.clone()
    for _ in range(20):
        env.step(torch.tensor([[1.0, 0.0]] * 2))
    way = (env.robot_pos - start).norm(dim=1)
    assert isinstance(env.sim, VariedSim)
    mass = env.sim.worlds()["values"][:, 0]
    assert int(way.argmax()) == int(mass.argmin())


def test_worlds_that_vary_are_copied_exactly() -> None:
    env = VecEnv("Point-Hazard-1", 4)
    enter(env, Domain({"mass": (0.5, 2.0), "strength": (0.5, 1.5)}), seed=0)
    env.reset(seed=0)
    env.step(torch.ones(4, 2))
    rows = {name: part[:1].clone() for name, part in env.worlds().items()}
    env.set_worlds(torch.tensor([2]), rows)
    for _ in range(20):
        step = env.step(torch.full((4, 2), 0.7))
    assert torch.equal(step.obs[0], step.obs[2]) and not torch.equal(step.obs[0], step.obs[1])
    assert torch.equal(step.min_clearance[0], step.min_clearance[2])


def test_what_a_suite_does_not_have_is_refused_with_what_it_has() -> None:
    env = VecEnv("Point-Hazard-1", 1)  # its ball never touches the floor
    with pytest.raises(ValueError, match=r"no variation 'friction'.*mass.*delay"):
        enter(env, Domain({"friction": (0.5, 1.0)}), seed=0)
    assert list(variations_in(CoinEnv(0.1))) == ["noise", "delay"]
    with pytest.raises(ValueError, match="It has: noise, delay"):
        enter(CoinEnv(0.1), Domain({"mass": (0.5, 1.0)}), seed=0)


def test_actions_arrive_late_and_none_before_the_first() -> None:
    env = CoinEnv(0.1, num_envs=2)
    late = Disturbance(Domain({"delay": (2, 2)}), coin_algo(env), env, seed=0)
    late.begin(torch.ones(2, dtype=torch.bool))
    arrived = [late.act(torch.full((2, 1), float(i)))[0].item() for i in (1, 2, 3, 4)]
    assert arrived == [0, 0, 1, 2]
    late.begin(torch.tensor([True, False]))  # a new episode knows nothing of the last one
    assert late.act(torch.full((2, 1), 5.0))[:, 0].tolist() == [0, 3]


def test_noise_is_what_the_policy_sees_and_nothing_else() -> None:
    env = CoinEnv(0.1, num_envs=2000)
    noise = Disturbance(Domain({"noise": (0.5, 0.5)}), coin_algo(env), env, seed=0)
    noise.begin(torch.ones(2000, dtype=torch.bool))
    step = first_step(torch.zeros(2000, 1), 1)
    seen = noise.see(step)
    assert float(seen.obs.std()) == pytest.approx(0.5, rel=0.1)
    assert float(step.obs.abs().max()) == 0 and seen.final_obs is step.final_obs


def test_ranges_are_read_from_flags_and_files(tmp_path: Path) -> None:
    file = tmp_path / "domain.json"
    file.write_text(json.dumps({"friction": [0.8, 1.2], "delay": [0, 2]}))
    found = read_domain(["friction=0.5..2", "noise=0.1"], file)
    assert found.ranges == {"friction": (0.5, 2.0), "delay": (0.0, 2.0), "noise": (0.1, 0.1)}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("frction=1..2", "Did you mean friction"),
        ("friction", "NAME=LOW..HIGH"),
        ("friction=a..b", "NAME=LOW..HIGH"),
        ("friction=2..1", "LOW..HIGH"),
        ("friction=0..1", "from 0.01"),
        ("mass=nan..1", "LOW..HIGH"),
        ("delay=0.5..1", "whole numbers"),
    ],
)
def test_ranges_that_cannot_be_are_refused(text: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        read_domain([text])


@pytest.mark.parametrize(
    "content", ["[", "[1]", '{"mass": 1}', '{"mass": [1, true]}', '{"mass": [1]}']
)
def test_a_damaged_domain_file_is_named(content: str, tmp_path: Path) -> None:
    file = tmp_path / "domain.json"
    file.write_text(content)
    with pytest.raises(ValueError, match=r"domain\.json"):
        read_domain((), file)
