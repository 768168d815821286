"""Costs, margins and clearances, and the frames that a recording environment keeps."""

import pytest
import torch

import statewise
from statewise.envs.vec_env import VecEnv

ZERO = torch.zeros(1, 2)


def start(margin: float, gap: float) -> VecEnv:
    """A Point whose distance to the edge of a lone hazard (radius 0.6) is `gap`."""
    env = VecEnv("Point-Hazard-1", margin=margin)
    far = torch.tensor([[1.8, 1.8, 0.0]])
    env.reset_to(torch.zeros(1, 2), torch.zeros(1), far, torch.tensor([[[0.6 + gap, 0.0, 0.0]]]))
    return env


def test_with_a_margin_the_cost_begins_before_the_constraint_is_broken() -> None:
    step = start(margin=0.1, gap=0.04).step(ZERO)
    assert step.clearance.item() == pytest.approx(0.04, abs=1e-5)
    assert step.cost.item() == step.cost_max.item() == pytest.approx(0.06, abs=1e-5)
    assert step.true_cost.item() == step.true_cost_max.item() == 0.0


def test_reported_costs_never_contain_the_margin() -> None:
    step = start(margin=0.1, gap=-0.2).step(ZERO)
    assert step.true_cost.item() == step.true_cost_max.item() == pytest.approx(0.2, abs=1e-5)
    assert step.cost.item() == pytest.approx(0.3, abs=1e-5)
    assert step.min_clearance.item() == pytest.approx(-0.2, abs=1e-5)


def test_without_a_margin_both_costs_are_one_tensor() -> None:
    env = VecEnv("Point-Hazard-8", 4)
    env.reset()
    step = env.step(torch.zeros(4, 2))
    assert step.true_cost is step.cost and step.true_cost_max is step.cost_max


def test_the_ceiling_that_algorithms_see_contains_the_margin() -> None:
    env = VecEnv("Point-Hazard-8-Pillar-1", margin=(0.1, 0.2))
    assert env.spec.cost_ceiling == pytest.approx((0.4, 1.0))  # contact costs 1 in any case
    assert env.spec.margin == (0.1, 0.2)


def test_a_contact_costs_one_from_the_margin_on() -> None:
    costs = []
    for x in (0.9, 0.6):
        env = VecEnv("Point-Pillar-1", margin=0.3)
        far, pillar = torch.tensor([[0.0, 1.8, 0.0]]), torch.tensor([[[x, 0.0, 0.5]]])
        env.reset_to(torch.zeros(1, 2), torch.zeros(1), far, pillars=pillar)
        step = env.step(ZERO)
        assert step.true_cost.item() == 0.0 and step.clearance.item() > 0
        costs.append(step.cost.item())
    assert costs == [0.0, 1.0]


def test_the_smallest_clearance_is_that_of_the_episode() -> None:
    env = VecEnv("Point-Hazard-8", 16, seed=1)
    step = env.reset()
    smallest, generator = step.clearance, torch.Generator().manual_seed(0)
    env.set_age(torch.arange(16) + 950)
    fresh = torch.zeros(16, 1, dtype=torch.bool)
    for _ in range(80):
        began = env._now.min_clearance
        smallest = torch.where(fresh, began, smallest)
        step = env.step(2 * torch.rand(16, 2, generator=generator) - 1)
        smallest = torch.minimum(smallest, step.clearance)
        assert torch.equal(step.min_clearance, smallest)
        assert torch.equal(step.true_cost, (-step.clearance).clamp(min=0.0))
        fresh = step.ended.unsqueeze(1)


@pytest.mark.parametrize(
    ("margin", "message"),
    [
        (-0.1, "the margin is -0.1: give a finite number, 0 or more"),
        (float("nan"), "finite number"),
        ((0.1, 0.2), "2 margins for the constraints hazard of Point-Hazard-8"),
    ],
)
def test_margins_that_cannot_be_are_refused(margin: float, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        statewise.make_env("Point-Hazard-8", margin=margin)


def test_a_frame_is_the_state_before_episodes_restart() -> None:
    env = VecEnv("Ant-Pillar-2", 3, seed=2)
    with pytest.raises(RuntimeError, match="call record"):
        env.frame  # noqa: B018
    env.record()
    env.reset()
    pillars = env.pillars.clone()
    env.set_age(torch.full((3,), 999))
    step = env.step(torch.zeros(3, 8))
    assert step.truncated.all() and not torch.equal(env.pillars, pillars)
    frame = env.frame
    assert frame["qpos"].shape == (3, env.sim.model.nq)
    assert torch.equal(frame["mocap_pos"].float(), pillars)
    assert torch.equal(frame["objects"]["pillar"], pillars)
