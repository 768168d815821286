"""The worst episodes of an evaluation: which are kept, what is kept of them, and their file."""

import io
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from line_env import EDGE, LENGTH, STRIDE, LineEnv

from statewise.algos import get_algorithm
from statewise.envs.vec_env import VecEnv
from statewise.sim.geometry import body_poses, sensor_body
from statewise.training.evaluate import run_episodes
from statewise.training.recording import (
    Facts,
    Recording,
    RecordingError,
    load_recordings,
    save_recordings,
)
from statewise.training.worst import WorstEpisodes


def algorithm(env: Any, name: str = "scpo") -> Any:
    kind = get_algorithm(name)
    return kind(env.spec, kind.settings_class(hidden=(8,)), 1, 0)


def walk(strides: list[float], keep: int) -> WorstEpisodes:
    """One episode on the line in each world, which moves by its own stride in every step."""
    env = LineEnv(len(strides))
    worst = WorstEpisodes(env, algorithm(env), keep)
    worst.begin(env.reset(seed=0))
    for _ in range(LENGTH):
        worst.add(env.step(torch.tensor(strides).unsqueeze(1) / STRIDE))
    return worst


def test_the_episodes_with_the_largest_cost_are_kept_and_the_worst_is_first() -> None:
    strides = [0.10, 0.25, 0.05, 0.20, 0.15]
    found = walk(strides, keep=3).recordings()
    assert [one.world for one in found] == [1, 3, 4]
    assert [one.rank for one in found] == [0, 1, 2]
    for one in found:
        most = LENGTH * strides[one.world] - EDGE
        assert one.cost.max() == pytest.approx(most, abs=1e-5)
        assert one.steps == LENGTH and one.worst_of == ("edge0",)
        assert one.reward.sum() == pytest.approx(LENGTH * strides[one.world], abs=1e-5)


def test_without_violations_the_smallest_clearance_decides() -> None:
    env = VecEnv("Point-Hazard-8", 8, seed=3, threads=1)
    algo = algorithm(env)
    worst = WorstEpisodes(env, algo, keep=8)
    lowest = torch.full((8,), torch.inf)
    worst.begin(env.reset())
    env._now.time.fill_(env.spec.max_episode_steps - 30)  # the time limit comes after 30 steps
    for _ in range(30):
        step = env.step(torch.zeros(8, 2))
        lowest = torch.minimum(lowest, step.clearance[:, 0])
        worst.add(step)
    found = worst.recordings()
    safe = [one for one in found if one.cost.max() == 0]
    assert len(found) == 8 and len(safe) > 4
    order = [float(one.clearance.min()) for one in safe]
    assert order == sorted(order)
    for one in found:
        assert one.clearance.min() == pytest.approx(float(lowest[one.world]), abs=1e-6)
        assert one.ending == "time limit"


def test_recorded_states_are_those_of_the_environment_from_first_to_last() -> None:
    env = VecEnv("Point-Hazard-8-Pillar-4", 3, seed=1, threads=1)
    worst = WorstEpisodes(env, algorithm(env), keep=3)
    worst.begin(env.reset())
    places, generator = [env.robot_pos.clone()], torch.Generator().manual_seed(0)
    env._now.time.fill_(env.spec.max_episode_steps - 20)
    goal = env.goal.clone()
    for _ in range(19):
        worst.add(env.step(torch.rand(3, 2, generator=generator) * 2 - 1))
        places.append(env.robot_pos.clone())
    worst.add(env.step(torch.ones(3, 2)))
    model = env.sim.model
    for one in worst.recordings():
        pos, _ = body_poses(model, one.qpos, one.mocap_pos, one.mocap_quat)
        track = pos[:-1, sensor_body(model, "root_pos")]
        np.testing.assert_allclose(track, torch.stack(places)[:, one.world], atol=1e-5)
        np.testing.assert_allclose(one.objects["goal"][0, 0], goal[one.world], atol=1e-6)
        assert {kind: x.shape[1] for kind, x in one.objects.items()} == {
            "goal": 1,
            "hazard": 8,
            "pillar": 4,
        }


@pytest.mark.parametrize("robot", ["Point", "Ant", "Humanoid", "Arm3"])
def test_the_start_can_be_told_from_the_first_state(robot: str) -> None:
    scene = VecEnv(f"{robot}-Hazard-1", 1, threads=1).sim.scene
    place, yaw = torch.rand(5, 2) - 0.5, 3 * torch.rand(5) - 1.5
    found = scene.start_place(*scene.start_state(place, yaw, torch.zeros(5, 0, 3)))
    torch.testing.assert_close(found, (place, yaw), atol=1e-5, rtol=0)


def test_only_counted_episodes_are_kept_and_old_rows_are_dropped() -> None:
    env = LineEnv(4)
    algo = algorithm(env)
    worst = WorstEpisodes(env, algo, keep=100)
    run_episodes(algo, env, 50, seed=0, sampled=True, worst=worst)
    assert len(worst.recordings()) == 50
    assert len(worst._rows) <= 64 + LENGTH


def test_the_value_is_what_the_cost_critic_says_before_each_step() -> None:
    env = LineEnv(2)
    algo = algorithm(env)
    worst = WorstEpisodes(env, algo, keep=2)
    step = env.reset(seed=0)
    worst.begin(step)
    expected = []
    for _ in range(LENGTH):
        with torch.no_grad():
            expected.append(algo.cost_value(algo.observe(step.obs, step.obs_cost_max)))
        step = env.step(torch.tensor([[1.0], [0.5]]))
        worst.add(step)
    for one in worst.recordings():
        np.testing.assert_allclose(one.value, torch.stack(expected)[:, one.world], atol=1e-6)
    assert WorstEpisodes(env, algorithm(env, "trpo"), 1)._value_of(step).shape == (2, 0)


# The file --------------------------------------------------------------------------------------


def recording(steps: int = 3) -> Recording:
    states = steps + 1
    return Recording(
        qpos=np.ones((states, 3), np.float32), mocap_pos=np.zeros((states, 1, 3), np.float32),
        mocap_quat=np.ones((states, 1, 4), np.float32), draws=np.zeros((states, 0), np.float32),
        objects={"goal": np.zeros((states, 1, 3), np.float32)},
        reward=np.arange(steps, dtype=np.float32), cost=np.zeros((steps, 1), np.float32),
        clearance=np.ones((steps, 1), np.float32), value=np.zeros((steps, 0), np.float32),
        ending="time limit", worst_of=("hazard",), rank=0, world=5,
    )  # fmt: skip


FACTS = Facts("Point-Hazard-8", "trpo", "abc", 10, 7, False, ("hazard",), ("m",), 0.02, "")


def test_recordings_come_back_as_they_were_saved(tmp_path: Path) -> None:
    save_recordings(tmp_path / "worst.npz", [recording(), recording(5)], FACTS)
    found, facts = load_recordings(tmp_path / "worst.npz")
    assert facts == FACTS
    assert [one.steps for one in found] == [3, 5]
    np.testing.assert_array_equal(found[1].reward, np.arange(5))
    assert found[0].ending == "time limit" and found[0].world == 5
    with np.load(tmp_path / "worst.npz") as plain:  # what a user of NumPy sees
        assert plain["1/objects/goal"].shape == (6, 1, 3)


def changed(path: Path, change: Any) -> Path:
    save_recordings(path, [recording()], FACTS)
    with np.load(path) as archive:
        arrays = {name: archive[name] for name in archive.files}
    header = json.loads(arrays["facts"].tobytes())
    change(arrays, header)
    arrays["facts"] = np.frombuffer(json.dumps(header).encode(), np.uint8)
    np.savez(path, **arrays)
    return path


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda a, h: a.update({"0/cost": np.zeros((3, 2), np.float32)}), "constraints"),
        (lambda a, h: a.update({"0/qpos": np.zeros((3, 3), np.float32)}), "0/qpos has shape"),
        (lambda a, h: a.update({"0/qpos": np.full((4, 3), np.nan, np.float32)}), "finite"),
        (lambda a, h: a.update({"0/reward": np.zeros(3)}), "float32"),
        (lambda a, h: a.update({"0/reward": np.array([{}] * 3, object)}), "pickle"),
        (lambda a, h: a.pop("0/value"), "0/value"),
        (lambda a, h: h.update(format=99), "format 1"),
        (lambda a, h: h["facts"].update(control_dt=-1.0), "time step"),
        (lambda a, h: h["facts"].update(cost_names="hazard"), "cost_names"),
        (lambda a, h: h["episodes"][0].update(worst_of=["lava"]), "no constraint"),
        (lambda a, h: h.update(episodes=[h["episodes"][0]] * 1001), "1001 episodes"),
    ],
)
def test_a_changed_file_is_refused_with_a_reason(tmp_path: Path, change: Any, why: str) -> None:
    with pytest.raises(RecordingError, match=why):
        load_recordings(changed(tmp_path / "worst.npz", change))


def test_a_file_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.training.recording._MOST_BYTES", 2**20)
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as parts:
        parts.writestr("facts.npy", bytes(2**20 + 1))
    (tmp_path / "worst.npz").write_bytes(buffer.getvalue())
    with pytest.raises(RecordingError, match="too many bytes"):
        load_recordings(tmp_path / "worst.npz")
