"""Pictures show what there is: goal, hazards, pillars, lidar, cost; and they change nothing."""

from __future__ import annotations

import contextlib
import os
import sys
import types
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from statewise import Step, VecEnv, make_env, robot_names
from statewise.envs import render
from statewise.envs.render import DrawError, Renderer, Tally, VideoFile, Viewer
from statewise.envs.robots import get_robot
from statewise.sim import draw

SIZE = (160, 120)
ORIGIN = torch.zeros(1, 2)
AHEAD = torch.zeros(1)


def make_renderer(env: VecEnv, **settings: object) -> Renderer:
    try:
        return Renderer(env, *SIZE, **settings)  # type: ignore[arg-type]
    except DrawError as error:
        pytest.skip(f"nothing can be drawn here: {error}")


def point_world(goal: list[float], hazard: list[float] | None = None) -> VecEnv:
    """A Point at the origin with a goal and one hazard (radius 0.6)."""
    env = make_env("Point-Hazard-1")
    put(env, goal, hazard)
    return env


def put(env: VecEnv, goal: list[float], hazard: list[float] | None = None) -> None:
    centre = torch.tensor([[[*(hazard or [1.5, 1.5]), 0.02]]])
    env.reset_to(ORIGIN, AHEAD, torch.tensor([[*goal, 0.16]]), centre)


def centroid(mask: np.ndarray) -> tuple[float, float]:
    """Mean column and row of the pixels set, from the centre: right and up are positive."""
    rows, columns = np.nonzero(mask)
    assert len(rows) > 0, "nothing of that colour"
    return columns.mean() - mask.shape[1] / 2, mask.shape[0] / 2 - rows.mean()


def green(pixels: np.ndarray) -> np.ndarray:
    red, value, blue = pixels.astype(int).transpose(2, 0, 1)
    return (value > red + 40) & (value > blue + 40)


def blue(pixels: np.ndarray) -> np.ndarray:
    red, value, shade = pixels.astype(int).transpose(2, 0, 1)
    return (shade > red + 60) & (shade > value + 40)


def orange(pixels: np.ndarray) -> np.ndarray:
    red, value, shade = pixels.astype(int).transpose(2, 0, 1)
    return (red > value + 60) & (red > shade + 60)


# Pictures --------------------------------------------------------------------------------------


def test_frame_is_a_picture_of_the_size_asked_for() -> None:
    with make_renderer(point_world([1.0, 0.0])) as renderer:
        pixels = renderer.frame()
    assert pixels.shape == (120, 160, 3) and pixels.dtype == np.uint8
    assert pixels.std() > 10


@pytest.mark.parametrize(
    ("x", "y"), [(1.2, 0.0), (-1.2, 0.0), (0.0, 1.2), (0.0, -1.2)], ids=["E", "W", "N", "S"]
)
def test_goal_is_drawn_where_it_is(x: float, y: float) -> None:
    env = point_world([x, y], hazard=[1.8, 1.8])
    with make_renderer(env, camera="top", lidar=False) as renderer:
        right, up = centroid(green(renderer.frame(overlay=False)))
    # From 6 m above with an opening of 45 degrees, 120 rows show 2 * 6 * tan(22.5) = 4.97 m.
    pixels_per_metre = 120 / 4.97
    assert right == pytest.approx(x * pixels_per_metre, abs=4)
    assert up == pytest.approx(y * pixels_per_metre, abs=4)


def test_picture_changes_when_the_goal_moves() -> None:
    env = point_world([1.2, 0.0])
    with make_renderer(env) as renderer:
        before = renderer.frame()
        again = renderer.frame()
        put(env, [-1.2, 0.0])
        after = renderer.frame()
    assert np.array_equal(before, again)
    assert not np.array_equal(before, after)


def test_hazard_of_twice_the_radius_covers_four_times_the_area() -> None:
    area = {}
    for suite, count in (("Point-Hazard-1", 1), ("Point-Hazard-4", 4)):
        env = make_env(suite)
        away = torch.full((1, count, 3), 50.0)
        away[0, 0] = torch.tensor([1.0, 1.0, 0.02])
        env.reset_to(ORIGIN, AHEAD, torch.tensor([[-1.0, 0.0, 0.16]]), away)
        with make_renderer(env, camera="top", lidar=False) as renderer:
            area[suite] = blue(renderer.frame(overlay=False)).sum()
    assert area["Point-Hazard-1"] / area["Point-Hazard-4"] == pytest.approx(4.0, rel=0.2)


def test_hazards_in_the_air_are_drawn_as_balls() -> None:
    env = make_env("Drone-3DHazard-1")
    env.reset_to(ORIGIN, AHEAD, torch.tensor([[-1.3, 0.0, 1.0]]), torch.tensor([[[1.3, 0.0, 1.0]]]))
    side = render.View((0.0, 0.0, 1.0), 5.0, azimuth=90.0, elevation=0.0)
    with make_renderer(env, camera=side, lidar=False) as renderer:
        mask = blue(renderer.frame(overlay=False))
    rows, columns = np.nonzero(mask)
    # A ball of radius 0.5 is as high as it is wide; a flat disc would be a line.
    assert np.ptp(rows) == pytest.approx(np.ptp(columns), abs=4)


def test_lidar_shows_as_dots_around_the_robot() -> None:
    env = point_world([1.2, 0.0])
    with make_renderer(env) as renderer:
        with_dots = renderer.frame(overlay=False)
        renderer.lidar = False
        without = renderer.frame(overlay=False)
    assert 0 < (with_dots != without).any(axis=2).mean() < 0.05


@pytest.mark.parametrize("camera", render.CAMERAS)
def test_every_camera_sees_the_robot_even_outside_the_arena(camera: str) -> None:
    env = make_env("Point-Hazard-1")
    far = torch.tensor([[4.0, 3.0]])
    env.reset_to(far, AHEAD, torch.tensor([[1.0, 0.0, 0.16]]), torch.tensor([[[1.5, 1.5, 0.02]]]))
    with make_renderer(env, camera=camera, lidar=False) as renderer:
        assert orange(renderer.frame(overlay=False)).sum() >= 4


@pytest.mark.parametrize("name", robot_names())
def test_every_robot_is_visible_in_its_suite(name: str) -> None:
    env = make_env(f"{name}-{get_robot(name).constraints[0]}-1")
    env.reset(0)
    with make_renderer(env) as renderer:
        pixels = renderer.frame(overlay=False)
    assert orange(pixels).sum() >= 5
    assert green(pixels).sum() >= 30


# The readout -----------------------------------------------------------------------------------


def border(pixels: np.ndarray) -> np.ndarray:
    return np.concatenate([pixels[0], pixels[-1], pixels[:, 0], pixels[:, -1]])


def test_border_is_red_exactly_while_there_is_cost() -> None:
    env = point_world([1.2, 0.0], hazard=[0.3, 0.0])  # 0.3 m from the centre of a 0.6 m hazard
    with make_renderer(env) as renderer:
        inside = renderer.frame()
        put(env, [1.2, 0.0], hazard=[-0.7, 0.0])  # 0.1 m outside
        outside = renderer.frame()
        put(env, [1.2, 0.0], hazard=[0.3, 0.0])
        plain = renderer.frame(overlay=False)
    assert (border(inside) == render.RED).all()
    assert not (border(outside) == render.RED).all(axis=1).any()
    assert not (border(plain) == render.RED).all(axis=1).any()


def test_readout_tells_time_return_clearance_and_cost() -> None:
    env = point_world([1.2, 0.0], hazard=[0.3, 0.0])
    with make_renderer(env) as renderer:
        step = env.step(torch.tensor([[0.5, 0.0]]))
        renderer.follow(step)
        now = renderer._stage.look(0)
        text = dict(render._readout_text(env, now, renderer.tally))
    assert text["suite"] == "Point-Hazard-1"
    assert text["time"] == "0.02 s"
    assert text["return"] == f"{float(step.reward[0]):.2f}"
    assert text["hazard clearance"] == f"{float(step.clearance[0, 0]):.2f} m"
    assert text["hazard cost"] == f"{float(step.cost[0, 0]):.3f}"
    assert text["hazard cost, maximum"] == f"{float(step.cost_max[0, 0]):.3f}"
    assert float(text["hazard cost"]) == pytest.approx(0.3, abs=0.01)


def hand_step(reward: float, cost: float, cost_max: float, *, terminated: bool = False,
              truncated: bool = False, fault: bool = False) -> Step:  # fmt: skip
    one = torch.ones(1)
    return Step.from_costs(
        obs=torch.zeros(1, 79), reward=reward * one, cost=cost * one.unsqueeze(1),
        cost_max_before=torch.zeros(1, 1), cost_max=cost_max * one.unsqueeze(1),
        terminated=torch.tensor([terminated]), truncated=torch.tensor([truncated]),
        final_obs=torch.zeros(1, 79), sim_fault=torch.tensor([fault]),
    )  # fmt: skip


def test_tally_adds_up_an_episode_and_starts_anew() -> None:
    tally = Tally(make_env("Point-Hazard-1"))
    assert tally.add(hand_step(0.5, 0.1, 0.1)) == []
    assert tally.add(hand_step(-0.2, 0.3, 0.3)) == []
    (episode,) = tally.add(hand_step(1.0, 0.0, 0.3, terminated=True))
    assert (episode.steps, episode.ending) == (3, "goal reached")
    assert episode.ret == pytest.approx(0.5 - 0.2 + 1.0)
    assert episode.cost == pytest.approx((0.4,))
    assert episode.cost_max == pytest.approx((0.3,))
    assert (float(tally.ret), float(tally.cost), float(tally.cost_max)) == (0.0, 0.0, 0.0)


def test_tally_names_every_ending() -> None:
    tally = Tally(make_env("Point-Hazard-1"))
    (fault,) = tally.add(hand_step(0.0, 0.6, 0.6, terminated=True, fault=True))
    (stuck,) = tally.add(hand_step(0.0, 0.0, 0.0, truncated=True))
    for _ in range(999):
        tally.add(hand_step(0.0, 0.0, 0.0))
    (late,) = tally.add(hand_step(0.0, 0.0, 0.0, truncated=True))
    assert fault.ending == "simulator fault"
    assert stuck.ending == "no room for a goal"
    assert late.ending == "time limit"


# Looking is free of consequences ---------------------------------------------------------------


def test_drawing_changes_nothing() -> None:
    def trajectory(draw: bool) -> torch.Tensor:
        env = make_env("Ant-Hazard-1", seed=3)
        env.reset()
        renderer = make_renderer(env) if draw else None
        observations = []
        for i in range(6):
            action = torch.full((1, 8), 0.3 * (-1) ** i)
            observations.append(env.step(action).obs)
            if renderer is not None:
                renderer.frame()
        if renderer is not None:
            renderer.close()
        return torch.cat(observations)

    assert torch.equal(trajectory(draw=True), trajectory(draw=False))


def test_pictures_have_soft_shadows_and_fine_ones_the_same_content() -> None:
    """A shadow with a hard edge has two shades; a soft one has many between them."""
    env = point_world([1.2, 1.2])
    shades, pictures = [], []
    view = render.View((0.0, 0.1, 0.0), 0.9, 90.0, -50.0)
    for fine in (False, True):
        with make_renderer(env, lidar=False, fine=fine, camera=view) as renderer:
            picture = renderer.frame(overlay=False)
        assert picture.shape == (SIZE[1], SIZE[0], 3)
        pictures.append(picture.astype(int))
        grey = pictures[-1][np.ptp(pictures[-1], axis=2) < 12]
        shades.append(len(np.unique(grey.mean(axis=1).round())))
    assert min(shades) > 40
    assert np.abs(pictures[0] - pictures[1]).mean() < 10


def test_two_renderers_live_side_by_side() -> None:
    env = point_world([1.2, 0.0])
    with make_renderer(env) as one, make_renderer(env, camera="top") as other:
        first = one.frame()
        other.frame()
        assert np.array_equal(one.frame(), first)


# Errors ----------------------------------------------------------------------------------------


def test_wrong_input_says_what_to_do() -> None:
    env = make_env("Point-Hazard-1")
    with pytest.raises(ValueError, match=r"unknown camera 'side'.*arena, chase, top"):
        Renderer(env, camera="side")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="5 x 120"):
        Renderer(env, width=5, height=120)
    with make_renderer(env) as renderer:
        with pytest.raises(RuntimeError, match="reset"):
            renderer.frame()
        env.reset()
        with pytest.raises(ValueError, match="no world 1"):
            renderer.frame(world=1)
    with pytest.raises(RuntimeError, match="closed"):
        renderer.frame()


def test_without_egl_and_osmesa_the_error_names_the_packages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("MUJOCO_GL", raising=False)
    monkeypatch.setattr(draw.platform, "system", lambda: "Linux")
    nothing = (("egl", "mujoco.no_egl"), ("osmesa", "mujoco.no_osmesa"))
    monkeypatch.setattr(draw, "_HEADLESS", nothing)
    monkeypatch.setattr(draw, "_forget_opengl", lambda module: None)
    with pytest.raises(DrawError, match=r"EGL: .*OSMESA: .*libegl1.*libosmesa6"):
        Renderer(make_env("Point-Hazard-1"))
    assert "MUJOCO_GL" not in os.environ


def test_window_without_a_display_is_a_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("WAYLAND_DISPLAY", raising=False)
    monkeypatch.setattr(draw.platform, "system", lambda: "Linux")
    with pytest.raises(DrawError, match=r"no display.*--video"):
        Viewer(point_world([1.0, 0.0]))


class FakeHandle:
    """What MuJoCo's passive viewer returns, without a window."""

    def __init__(self, model: Any) -> None:
        self.cam, self.user_scn = draw.mujoco.MjvCamera(), draw.mujoco.MjvScene(model, 200)
        self.open, self.synced, self.text = True, 0, ("", "")

    def lock(self) -> Any:
        return contextlib.nullcontext()

    def is_running(self) -> bool:
        return self.open

    def set_texts(self, text: tuple[None, None, str, str]) -> None:
        self.text = text[2:]

    def sync(self) -> None:
        self.synced += 1

    def close(self) -> None:
        self.open = False


def test_window_shows_marks_and_readout(monkeypatch: pytest.MonkeyPatch) -> None:
    handles = []

    def launch_passive(model: Any, data: Any, **options: bool) -> FakeHandle:
        handles.append(FakeHandle(model))
        return handles[-1]

    fake = types.SimpleNamespace(launch_passive=launch_passive)
    monkeypatch.setitem(sys.modules, "mujoco.viewer", fake)  # type: ignore[arg-type]
    monkeypatch.setattr(draw, "_check_display", lambda: None)
    env = point_world([1.2, 0.0], hazard=[0.3, 0.0])
    viewer = Viewer(env)
    for _ in range(2):
        viewer.follow(env.step(torch.zeros(1, 2)))
        viewer.sync()
    (handle,) = handles
    assert handle.synced == 2
    assert handle.user_scn.ngeom == 1 + 1 + 2 * 16  # goal, hazard, dots of two lidars
    assert "hazard cost, maximum" in handle.text[0] and "Point-Hazard-1" in handle.text[1]
    viewer.close()
    assert not viewer.is_open
    viewer.sync()  # a closed window is left alone
    assert handle.synced == 2


# Videos ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["a.mp4", "new/folder/b.gif"])
def test_video_has_every_frame(tmp_path: Path, name: str) -> None:
    import imageio.v2 as imageio

    frames = [np.full((48, 64, 3), 40 * i, dtype=np.uint8) for i in range(5)]
    with VideoFile(tmp_path / name, fps=10) as video:
        for frame in frames:
            video.add(frame)
    read = [np.asarray(frame)[..., :3] for frame in imageio.get_reader(tmp_path / name)]
    assert len(read) == 5
    for frame, expected in zip(read, frames, strict=True):
        assert frame.shape == (48, 64, 3)
        assert abs(float(frame.mean()) - float(expected.mean())) < 4


def test_video_that_cannot_be_written_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"'a\.avi'.*\.mp4 or \.gif"):
        VideoFile(tmp_path / "a.avi", fps=10)
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(ValueError, match=r"cannot write a video to .*a\.mp4"):
        VideoFile(tmp_path / "file" / "a.mp4", fps=10)
    (tmp_path / "folder.mp4").mkdir()
    with pytest.raises(ValueError, match="directory"):
        VideoFile(tmp_path / "folder.mp4", fps=10)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder.mp4"]
