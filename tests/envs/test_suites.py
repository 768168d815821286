"""Every suite builds, runs and is of the size it declares."""

import pytest
import torch

import statewise
from statewise import PAPER_SUITES

OBSERVATION_SIZES = {
    # internal state + compass + lidars, as in the paper's tables of the state space
    "Point-Hazard": 12 + 3 + 4 * 16,
    "Point-Pillar": 12 + 3 + 4 * 16,
    "Swimmer-Hazard": 12 + 2 + 2 + 4 + 3 + 4 * 16,
    "Ant-Hazard": 12 + 8 + 8 + 8 + 3 + 4 * 16,
    "Walker-Hazard": 12 + 10 + 10 + 2 + 3 + 4 * 16,
    "Humanoid-Hazard": 12 + 17 + 17 + 2 + 3 + 4 * 16,
    "Drone-3DHazard": 12 + 3 + 2 * 60,
    "Arm3-Hazard": 5 * 12 + 3 + 3 + 1 + 3 + 2 * 60,
}
ACTION_SIZES = {
    "Point": 2, "Swimmer": 2, "Ant": 8, "Walker": 10, "Humanoid": 17, "Drone": 4, "Arm3": 3,
}  # fmt: skip


@pytest.mark.parametrize("suite", PAPER_SUITES)
def test_suite_runs_200_random_steps_finite_and_of_its_declared_sizes(suite: str) -> None:
    env = statewise.make_env(suite, num_envs=4, seed=1)
    spec = env.spec
    assert spec.obs_size == OBSERVATION_SIZES[suite.rsplit("-", 1)[0]]
    assert spec.action_size == ACTION_SIZES[suite.split("-")[0]]
    assert [s.stop for s in spec.blocks.values()][-1] == spec.obs_size
    generator = torch.Generator().manual_seed(0)
    step = env.reset()
    for _ in range(200):
        step = env.step(torch.rand(4, spec.action_size, generator=generator) * 2 - 1)
        assert step.obs.shape == (4, spec.obs_size) and step.cost.shape == (4, 1)
        for part in (step.obs, step.final_obs, step.reward, step.cost, step.cost_max):
            assert torch.isfinite(part).all()
        assert (step.cost >= 0).all()
        assert (step.cost <= torch.tensor(spec.cost_ceiling) + 1e-6).all()
    assert env.faults == 0


def test_there_are_sixteen_suites_of_the_paper() -> None:
    assert len(set(PAPER_SUITES)) == 16


def test_a_chain_of_constraints_has_one_cost_channel_and_one_lidar_each() -> None:
    env = statewise.make_env("Point-Hazard-8-Pillar-4", num_envs=3)
    step = env.reset()
    assert env.spec.cost_names == ("hazard", "pillar")
    assert step.cost.shape == (3, 2)
    assert env.hazards.shape == (3, 8, 3) and env.pillars.shape == (3, 4, 3)
    assert {"hazard_lidar", "pillar_lidar"} <= set(env.spec.blocks)
    assert env.spec.obs_size == 79 + 16


def test_cost_channels_follow_the_order_of_the_name() -> None:
    assert statewise.make_env("Point-Pillar-4-Hazard-2").spec.cost_names == ("pillar", "hazard")


def test_compact_drops_only_the_blocks_that_are_always_zero() -> None:
    full, compact = (statewise.make_env("Point-Hazard-8", 2, compact=c) for c in (False, True))
    a, b = full.reset(seed=5).obs, compact.reset(seed=5).obs
    assert full.spec.obs_size - compact.spec.obs_size == 32
    for name, where in compact.spec.blocks.items():
        assert torch.equal(b[:, where], a[:, full.spec.blocks[name]])
    for name in full.spec.blocks.keys() - compact.spec.blocks.keys():
        assert not a[:, full.spec.blocks[name]].any()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Pont-Hazard-8", "Did you mean Point-Hazard-8"),
        ("Point-Hazrd-8", "Did you mean Point-Hazard-8"),
        ("nonsense", "A suite is"),
        ("Point-Hazard-0", "from 1 to 13"),
        ("Point-Hazard--4", "asks for -4 Hazards.*from 1 to 13"),
        ("Point-Hazard-eight", "from 1 to 13"),
        ("Point-Hazard-400", "asks for 400 Hazards.*from 1 to 13"),
        ("Point-3DHazard-8", "it takes Hazard and Pillar"),
        ("Point-Hazard-4-Hazard-4", "twice"),
        ("Point-Hazard-12-Pillar-12", "do not fit the arena together"),
    ],
)
def test_a_bad_suite_name_is_answered_with_what_to_do(name: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        statewise.make_env(name)
