"""`statewise.replay`: which episodes the page holds, and what it holds of them."""

import base64
import dataclasses
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest

import statewise
from statewise.deploy.replay_data import Drawing, pack
from statewise.envs import vec_env
from statewise.envs.robots import robot_names
from statewise.envs.suites import parse_suite
from statewise.envs.vec_env import VecEnv
from statewise.sim import geometry
from statewise.training import api
from statewise.training.recording import load_recordings

SMALL: dict[str, Any] = {
    "steps": 640,
    "steps_per_epoch": 320,
    "num_envs": 16,
    "tensorboard": False,
    "quiet": True,
    "hidden": (8,),
    "critic_iterations": 3,
    "threads": 1,
}


@pytest.fixture(autouse=True, scope="module")
def short_episodes() -> Iterator[None]:
    """Episodes of at most 60 steps."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            vec_env,
            "parse_suite",
            lambda name: dataclasses.replace(parse_suite(name), max_episode_steps=60),
        )
        yield


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Policies that have learned nothing: they go somewhere until the time is over."""
    out = str(tmp_path_factory.mktemp("runs"))
    trpo = statewise.train("Point-Hazard-8", "trpo", out=out, seed=3, **SMALL)
    return trpo, statewise.train("Point-Hazard-8", "scpo", out=out, seed=4, **SMALL)


def data_of(page: Path) -> dict[str, Any]:
    text = page.read_text()
    found = re.search(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    assert found is not None
    data: dict[str, Any] = json.loads(found[1])
    return data


def unpacked(packed: dict[str, Any]) -> np.ndarray:
    raw = np.frombuffer(base64.b64decode(packed["data"]), f"<{packed['type']}")
    return raw * packed["scale"] if packed["scale"] else raw


def test_evaluate_keeps_the_worst_episodes_and_replay_shows_exactly_them(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    api.evaluate(runs[1], 6, worst=2)
    kept, facts = load_recordings(runs[1] / "worst.npz")
    assert facts.episodes == 6 and facts.value_name == "D" and len(kept) == 2
    page = statewise.replay(runs[1], tmp_path / "page.html")
    data = data_of(page)
    assert len(data["episodes"]) == 2
    for one, shown in zip(kept, data["episodes"], strict=True):
        (side,) = shown["sides"]
        np.testing.assert_array_equal(unpacked(side["cost"][0])[1:], one.cost[:, 0])
        np.testing.assert_array_equal(unpacked(side["value"][0])[:-1], one.value[:, 0])
        assert np.isnan(unpacked(side["cost"][0])[0]) and np.isnan(unpacked(side["value"][0])[-1])
    assert page.stat().st_size < 6e6
    only = data_of(statewise.replay(runs[1], tmp_path / "page.html", worst=1))
    assert len(only["episodes"]) == 1


def test_the_other_policy_starts_from_the_same_layouts(
    runs: tuple[Path, Path], tmp_path: Path
) -> None:
    page = statewise.replay(runs[0], tmp_path / "page.html", 2, runs[1], episodes=4)
    data = data_of(page)
    assert [run["name"] for run in data["runs"]] == ["TRPO", "SCPO"]
    assert [run["value"] for run in data["runs"]] == ["", "D"]
    for episode in data["episodes"]:
        first, second = episode["sides"]
        places = [unpacked(side["track"]).reshape(-1, 3)[0] for side in (first, second)]
        np.testing.assert_allclose(*places, atol=1e-5)
        poses = [unpacked(side["poses"]["moving"])[:7] for side in (first, second)]
        np.testing.assert_allclose(*poses, atol=1e-3)  # the heading too
        marks = [[unpacked(m["pos"]) for m in side["marks"]] for side in (first, second)]
        np.testing.assert_allclose(*marks, atol=1e-6)
        assert len(first["marks"]) == 9


def test_things_that_move_do_so_alike_for_both_policies(tmp_path: Path) -> None:
    runs = [
        statewise.train("Point-Ghost-2", a, out=str(tmp_path), **SMALL) for a in ("trpo", "scpo")
    ]
    data = data_of(statewise.replay(runs[0], tmp_path / "page.html", 1, runs[1], episodes=3))
    first, second = data["episodes"][0]["sides"]
    paths = [
        [unpacked(mark["pos"]).reshape(-1, 3) for mark in side["marks"]] for side in (first, second)
    ]
    moving = [i for i, path in enumerate(paths[0]) if len(path) > 1]
    assert len(moving) >= 2
    for i in moving:
        np.testing.assert_allclose(paths[0][i][:9], paths[1][i][:9], atol=1e-3)


def test_episodes_of_another_policy_are_not_shown_as_this_ones(
    runs: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.deploy.replay._SEARCHED", 30)
    api.evaluate(runs[0], 2, worst=1, worst_out=runs[1] / "worst.npz")
    assert (
        len(data_of(statewise.replay(runs[1], tmp_path / "a.html", 3, episodes=5))["episodes"]) == 3
    )
    shown = statewise.replay(runs[1], tmp_path / "b.html", 1)
    assert "The worst of 30 fresh episodes" in shown.read_text()


class Drift(gymnasium.Env[np.ndarray, np.ndarray]):
    """A number that drifts; beyond 1 it costs."""

    observation_space = gymnasium.spaces.Box(-10, 10, (1,))
    action_space = gymnasium.spaces.Box(-1, 1, (1,))

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        super().reset(seed=_.get("seed"))
        self.x = self.np_random.uniform(0, 0.5, 1)
        return self.x.astype(np.float32), {}

    def step(self, action: np.ndarray) -> Any:
        self.x = self.x + 0.1
        cost = float(max(self.x[0] - 1, 0))
        return self.x.astype(np.float32), 0.1, False, False, {"cost": cost}


def test_an_environment_that_cannot_be_drawn_is_replayed_in_numbers(tmp_path: Path) -> None:
    gymnasium.register("ReplayDrift-v0", Drift, max_episode_steps=12)
    run = statewise.train("gym:ReplayDrift-v0", "scpo", out=str(tmp_path), **SMALL | {"threads": 0})
    data = data_of(statewise.replay(run, tmp_path / "page.html", 2, episodes=6))
    assert data["model"] is None and len(data["episodes"]) == 2
    costs = [unpacked(episode["sides"][0]["cost"][0])[1:] for episode in data["episodes"]]
    assert len(costs[0]) == 12 and costs[0].max() >= costs[1].max() > 0.2
    with pytest.raises(ValueError, match="cannot be repeated"):
        statewise.replay(run, tmp_path / "page.html", 2, run, episodes=6)


def test_mistakes_are_told_before_anything_is_run(runs: tuple[Path, Path], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is a folder"):
        statewise.replay(runs[0], tmp_path)
    with pytest.raises(ValueError, match="show at least 1"):
        statewise.replay(runs[0], tmp_path / "page.html", worst=0)
    other = statewise.train("Point-Hazard-1", "trpo", out=str(tmp_path), **SMALL)
    with pytest.raises(ValueError, match="same suite"):
        statewise.replay(runs[0], tmp_path / "page.html", 1, other, episodes=1)


# What is drawn ---------------------------------------------------------------------------------


@pytest.mark.parametrize("robot", robot_names())
def test_every_robot_can_be_drawn(robot: str) -> None:
    env = VecEnv(f"{robot}-{'3DHazard' if robot == 'Drone' else 'Hazard'}-4", 1, threads=1)
    model = Drawing(env).model_data()
    kinds = {geom["kind"] for geom in model["geoms"]}
    assert len(model["geoms"]) >= 3 and "plane" in kinds  # the floor, and a robot on it
    assert 0.1 < model["size"] < 10
    assert len(json.dumps(model)) < 100_000


def test_meshes_are_drawn_and_those_for_collisions_are_not() -> None:
    mujoco = pytest.importorskip("mujoco")
    model = mujoco.MjModel.from_xml_string("""
    <mujoco><asset><mesh name="wedge" vertex="0 0 0  1 0 0  0 1 0  0 0 1"/>
      <material name="red" rgba="1 0 0 1"/></asset>
    <worldbody><body><freejoint/>
      <geom type="mesh" mesh="wedge" material="red"/>
      <geom type="mesh" mesh="wedge" group="3"/><geom size="0.1" rgba="0 0 0 0"/>
      <geom type="ellipsoid" size="0.1 0.2 0.3"/></body></worldbody></mujoco>""")
    shapes = geometry.shapes(model)
    assert [geom.kind for geom in shapes.geoms] == ["mesh", "ellipsoid"]
    assert shapes.geoms[0].rgba == (1, 0, 0, 1)
    assert shapes.meshes[0].vertices.shape == (4, 3) and shapes.meshes[0].faces.shape == (4, 3)


def test_packed_poses_are_exact_to_a_fraction_of_a_millimetre() -> None:
    poses = np.random.default_rng(0).uniform(-3, 3, (50, 7))
    np.testing.assert_allclose(unpacked(pack(poses, "i2")), poses.ravel(), atol=1e-4)
    assert unpacked(pack(np.zeros((2, 3)), "i2")).tolist() == [0.0] * 6
