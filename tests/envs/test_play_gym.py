"""Gymnasium environments are played and recorded as suites are."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import imageio.v2 as imageio
import numpy as np
import pytest
import torch

from statewise import GymEnv
from statewise.cli import main


class Drawn(gymnasium.Env):
    """A number that the action moves. Its picture has that brightness."""

    metadata: ClassVar = {"render_modes": ["rgb_array"], "render_fps": 20}
    observation_space = gymnasium.spaces.Box(-10.0, 10.0, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def __init__(self, render_mode: str | None = None) -> None:
        self.render_mode, self.x = render_mode, 0.0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.x = float(self.np_random.uniform(0, 1))
        return np.array([self.x], np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.x += 0.1 * float(action[0])
        return np.array([self.x], np.float32), 0.0, False, False, {"cost": max(0.0, self.x - 1)}

    def render(self) -> Any:
        return np.full((32, 48, 3), int(100 * abs(self.x)) % 256, np.uint8)

    def get_state(self) -> float:
        return self.x

    def set_state(self, state: float) -> None:
        self.x = state


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = dict(gymnasium.registry)
    monkeypatch.setattr(gymnasium.envs.registration, "registry", registry)
    gymnasium.register("Drawn-v0", entry_point=Drawn, max_episode_steps=10)


def test_play_films_an_environment_that_can_render(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    video = tmp_path / "drawn.gif"
    args = ["play", "gym:Drawn-v0", "--video", str(video), "--seconds", "1", "--no-speed"]
    assert main(args) == 0
    frames = imageio.mimread(video)
    assert 9 <= len(frames) <= 11 and frames[0].shape[:2] == (32, 48)
    printed = capsys.readouterr().out
    assert "time limit" in printed and "cost, largest of any step" in printed


def test_play_prints_numbers_of_an_environment_that_cannot(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(Drawn, "metadata", {"render_modes": []})
    assert main(["play", "gym:Drawn-v0", "--seconds", "5", "--no-speed"]) == 0
    assert "return of the running episode" in capsys.readouterr().out
    assert main(["play", "gym:Drawn-v0", "--video", "x.gif", "--no-speed"]) == 2
    assert "no render mode 'rgb_array': it cannot be drawn" in capsys.readouterr().err


def test_a_picture_of_a_wrong_form_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    env = GymEnv("gym:Drawn-v0", render_mode="rgb_array")
    env.reset(seed=0)
    monkeypatch.setattr(Drawn, "render", lambda self: None)
    with pytest.raises(ValueError, match="not a picture"):
        env.picture()


def test_recorded_frames_hold_the_states_before_restarts() -> None:
    env = GymEnv("gym:Drawn-v0", num_envs=2)
    env.record()
    first = env.reset(seed=3)
    assert torch.equal(env.frame["obs"], first.obs)
    for _ in range(10):
        step = env.step(torch.ones(2, 1))
    assert step.truncated.all()
    states = [state[0] for state in env.frame["state"]]
    np.testing.assert_allclose(states, step.final_obs[:, 0], rtol=1e-6)
    again = GymEnv("gym:Drawn-v0", num_envs=2)
    assert torch.equal(again.reset(seed=3).obs, first.obs)
