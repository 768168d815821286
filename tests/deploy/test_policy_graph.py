"""An exported graph does what the policy does in torch."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.deploy.cost_values import act_and_predict
from statewise.deploy.facts import charges_of
from statewise.envs.vec_env import VecEnv
from statewise.types import EnvSpec, Step

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")

from statewise.deploy.policy_graph import build_model  # noqa: E402

SUITES = ("Point-Hazard-8", "Point-Hazard-8-Pillar-4", "Swimmer-Hazard-4")
ROWS = 1000


@functools.cache
def recorded(suite: str, margin: float = 0.0) -> tuple[VecEnv, Tensor]:
    """An environment, and observations from it."""
    env = VecEnv(suite, 100, threads=1, margin=margin)
    step, generator = env.reset(seed=3), torch.Generator().manual_seed(0)
    found = [step.obs]
    for _ in range(9):
        step = env.step(2 * torch.rand(100, env.spec.action_size, generator=generator) - 1)
        found.append(step.obs)
    return env, torch.cat(found)


def randomised(name: str, spec: EnvSpec, obs: Tensor, **settings: Any) -> Algorithm:
    """An algorithm with weights far from their start and a scaler with real statistics."""
    kind = get_algorithm(name)
    algo = kind(spec, kind.settings_class(**settings), epochs=10, seed=0)
    algo.epoch = 9  # past the warm-up of the safety layers
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for net in algo.modules().values():
            for p in net.parameters():
                p.add_(0.3 * p.shape[-1] ** -0.5 * torch.randn(p.shape, generator=generator))
    largest = 0.1 * torch.rand(len(obs), spec.num_costs, generator=generator)
    algo.scaler.update(algo._unscaled(obs, largest))
    return algo


def inputs(obs: Tensor, num_costs: int) -> tuple[Tensor, Tensor, Tensor]:
    """Half recorded and half random observations, costs, and maxima before them."""
    generator = torch.Generator().manual_seed(2)
    noise = torch.randn(obs.shape, generator=generator) * obs.std(dim=0)
    rows = torch.cat([obs[: ROWS // 2], obs.mean(dim=0) + noise[ROWS // 2 :]])
    cost, before = (
        0.3 * (torch.rand(ROWS, num_costs, generator=generator) - 0.5).clamp(min=0)
        for _ in range(2)
    )
    return rows, cost, before


def by_torch(algo: Algorithm, obs: Tensor, cost: Tensor, before: Tensor) -> list[np.ndarray]:
    no, largest = torch.zeros(len(obs), dtype=torch.bool), torch.maximum(cost, before)
    step = Step.from_costs(obs, torch.zeros(len(obs)), cost, before, largest, no, no, obs, no)
    action, value = act_and_predict(algo, step)
    return [x.detach().numpy() for x in (action, largest, value) if x is not None]


def by_onnx(model: Any, **feeds: Tensor) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    found: list[np.ndarray] = session.run(None, {n: x.numpy() for n, x in feeds.items()})
    return found


@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("name", ALGORITHMS)
def test_the_graph_of_every_algorithm_agrees_with_torch(name: str, suite: str) -> None:
    env, obs = recorded(suite)
    algo = randomised(name, env.spec, obs)
    rows, cost, before = inputs(obs, env.spec.num_costs)
    expected = by_torch(algo, rows, cost, before)
    found = by_onnx(build_model(algo, "cost"), observation=rows, cost=cost, maximum=before)
    assert len(found) == len(expected)
    for ours, theirs in zip(found, expected, strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)
    if name in ("trpo_sl", "trpo_usl"):  # the corrections are a part of it, and at work here
        with torch.no_grad():
            proposed = algo.policy(algo.observe(rows, torch.maximum(cost, before))).clamp(-1, 1)
        assert (np.abs(found[0] - proposed.numpy()).max(axis=1) > 1e-3).mean() > 0.3


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("scpo", {"policy_sees_maximum": False}),
        ("scpo", {"scale_inputs": False}),
        ("scpo", {"hidden": (16,)}),
        ("trpo_sl", {"warmup": 1.0}),
        ("trpo_usl", {"warmup": 1.0}),
        ("trpo_usl", {"hidden": (8, 8, 8), "correction_steps": 3}),
    ],
)
def test_settings_that_change_acting_are_exported(name: str, settings: dict[str, Any]) -> None:
    env, obs = recorded("Point-Hazard-8")
    algo = randomised(name, env.spec, obs, **settings)
    rows, cost, before = inputs(obs, 1)
    expected = by_torch(algo, rows, cost, before)
    found = by_onnx(build_model(algo, "cost"), observation=rows, cost=cost, maximum=before)
    np.testing.assert_allclose(found[0], expected[0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("suite", ["Point-Hazard-1", *SUITES, "Drone-3DHazard-4", "Arm3-Hazard-8"])
def test_the_costs_of_every_kind_of_suite_come_from_clearances(suite: str) -> None:
    charges = charges_of(VecEnv(suite, 1, threads=1, margin=0.05))
    assert charges is not None and charges[0] == "depth"


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_clearances_become_the_cost_that_was_trained_on(margin: float) -> None:
    env, obs = recorded("Point-Hazard-8-Pillar-4", margin)
    charges = charges_of(env)
    assert charges == ["depth", "contact"] and env.spec.margin == (margin, margin)
    algo = randomised("scpo", env.spec, obs)
    generator = torch.Generator().manual_seed(5)
    clearance = torch.rand(ROWS, 2, generator=generator) - 0.5  # some deeper than the ceiling
    depth = (margin - clearance).clamp(min=0, max=0.3 + margin)
    cost = torch.stack([depth[:, 0], (depth[:, 1] > 0).float()], dim=1)
    rows, _, before = inputs(obs, 2)
    model = build_model(algo, "clearance", charges)
    found = by_onnx(model, observation=rows, clearance=clearance, maximum=before)
    for ours, theirs in zip(found, by_torch(algo, rows, cost, before), strict=True):
        np.testing.assert_allclose(ours, theirs, atol=1e-5, rtol=0)


def test_a_policy_without_constraints_has_one_input_and_one_output() -> None:
    env, obs = recorded("Point-Hazard-8")
    spec = EnvSpec("Free-v0", env.spec.obs_size, 2, (), (), 100, 0.02, env.spec.blocks)
    algo = randomised("trpo", spec, obs)
    model = build_model(algo, "cost")
    assert [i.name for i in model.graph.input] == ["observation"]
    (action,) = by_onnx(model, observation=obs)
    np.testing.assert_allclose(
        action, by_torch(algo, obs, *[torch.zeros(len(obs), 0)] * 2)[0], atol=1e-5
    )


def test_an_algorithm_that_acts_in_its_own_way_is_refused() -> None:
    env, _ = recorded("Point-Hazard-8")

    class Careful(get_algorithm("trpo")):  # type: ignore[misc]
        def correct(self, step: Step, inputs: Tensor, action: Tensor) -> Tensor:
            return 0.5 * action

    algo = Careful(env.spec, Careful.settings_class(), 10, 0)
    with pytest.raises(ValueError, match=r"its own correct\(\), which cannot be exported"):
        build_model(algo, "cost")


@pytest.mark.parametrize(("opset", "word"), [(9, "old"), (999, "new")])
def test_an_opset_that_does_not_fit_is_named(opset: int, word: str) -> None:
    env, obs = recorded("Point-Hazard-8")
    with pytest.raises(ValueError, match=rf"opset {opset} is too {word}: .* opset 13 to 17"):
        build_model(randomised("trpo", env.spec, obs), "cost", opset=opset)


@pytest.mark.parametrize("name", ["scpo", "trpo_sl", "trpo_usl"])
def test_the_newest_opset_gives_the_same_actions(name: str) -> None:
    env, obs = recorded("Point-Hazard-8-Pillar-4")
    algo = randomised(name, env.spec, obs)
    rows, cost, before = inputs(obs, 2)
    old, new = (
        by_onnx(build_model(algo, "cost", opset=n), observation=rows, cost=cost, maximum=before)[0]
        for n in (13, 17)
    )
    np.testing.assert_array_equal(old, new)
