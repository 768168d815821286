"""The replay page in a real browser: what a reader sees and does."""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

from statewise.deploy.replay import Shown, page
from statewise.deploy.replay_data import Drawing
from statewise.envs.vec_env import VecEnv
from statewise.training.recording import Facts, Recording

CHROMIUM = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
STEPS = 50
BROKEN = [(10, 14), (30, 30)]
"""The first and last steps of the violations"""


def episode(broken: list[tuple[int, int]], steps: int, y: float) -> Recording:
    """A Point that drives straight from x = -1 to 1."""
    qpos = np.zeros((steps + 1, 3), np.float32)
    qpos[:, 0], qpos[:, 1] = np.linspace(-1, 1, steps + 1), y
    mocap_quat = np.tile(np.float32([1, 0, 0, 0]), (steps + 1, 1, 1))
    cost = np.zeros((steps, 1), np.float32)
    for first, last in broken:
        cost[first - 1 : last] = 0.2  # step i is row i - 1
    still = np.ones((steps + 1, 1, 1), np.float32)
    return Recording(
        qpos=qpos, mocap_pos=np.zeros((steps + 1, 1, 3), np.float32), mocap_quat=mocap_quat,
        draws=np.zeros((steps + 1, 0), np.float32),
        objects={"goal": still * np.float32([1.2, 1.2, 0.15]),
                 "hazard": still * np.float32([0, 0.1, 0.02]), "pillar": still[:, :0, [0] * 3]},
        reward=np.full(steps, 0.04, np.float32), cost=cost, clearance=0.1 - 1.5 * cost,
        value=np.linspace(0.1, 0, steps, dtype=np.float32)[:, None], ending="task succeeded",
        worst_of=("hazard",),
    )  # fmt: skip


FACTS = Facts("Point-Hazard-1", "x", "", 300, 7, False, ("hazard",), ("m",), 0.02, "D")


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One policy, two side by side, and one whose environment cannot be drawn."""
    folder = tmp_path_factory.mktemp("replay")
    unsafe = [episode(BROKEN, STEPS, 0.0), episode([], 20, 0.5)]
    safe = [episode([], 60, 0.6), episode([], 30, 0.5)]
    drawing = Drawing(VecEnv("Point-Hazard-1", 1, threads=1))
    one, two = Shown("<b>TRPO</b>", unsafe, FACTS), Shown("SCPO", safe, FACTS)
    contents = {
        "one": page([one], drawing),
        "two": page([one, two], drawing),
        "flat": page([one], None),
    }
    for name, content in contents.items():
        (folder / f"{name}.html").write_text(content)
    return {name: folder / f"{name}.html" for name in contents}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = next((path for name in CHROMIUM if (path := shutil.which(name))), None)
    if found is None:
        why = "Chromium is not installed (Debian: apt-get install chromium)"
        if os.environ.get("STATEWISE_REQUIRE_BROWSER"):
            pytest.fail(why)
        pytest.skip(why)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=found, args=["--no-sandbox", "--enable-unsafe-swiftshader"]
        )
        yield chromium
        chromium.close()


@pytest.fixture
def view(
    browser: Browser, pages: dict[str, Path], request: pytest.FixtureRequest
) -> Iterator[Page]:
    """A page, freshly opened; nothing may complain or reach outside while a test uses it."""
    name = getattr(request, "param", "one")
    context = browser.new_context(viewport={"width": 1280, "height": 800}, color_scheme="light")
    view, problems = context.new_page(), list[str]()
    view.on("pageerror", lambda error: problems.append(str(error)))
    view.on("console", lambda said: problems.append(said.text)
            if said.type == "error" or (said.type == "warning" and "GPU stall" not in said.text)
            else None)  # fmt: skip
    view.on("request", lambda asked: problems.append(f"asked for {asked.url}")
            if not asked.url.startswith(("file:", "data:", "blob:")) else None)  # fmt: skip
    view.goto(pages[name].as_uri())
    settle(view)
    yield view
    context.close()
    assert problems == []


def settle(view: Page) -> None:
    view.evaluate("new Promise((r) => requestAnimationFrame(() => requestAnimationFrame(r)))")


def wait_for(view: Page, condition: str) -> None:
    """Wait until an expression is true. The page's own policy forbids playwright's way to do so."""
    for _ in range(200):
        if view.evaluate(condition):
            return
        view.wait_for_timeout(50)
    pytest.fail(f"never: {condition}")


def step(view: Page) -> int:
    settle(view)
    return int(view.locator("#scrubber").input_value())


def picture(view: Page) -> np.ndarray:
    settle(view)
    view.add_style_tag(content="#views { visibility: hidden }")
    image = Image.open(io.BytesIO(view.locator("#picture").screenshot()))
    return np.asarray(image.convert("RGB")).astype(int)


def robot_column(pixels: np.ndarray) -> float:
    """Where the robot, which is orange, is in a picture."""
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    orange = (red > 120) & (red - blue > 90) & (red - green > 50) & (green > 30)
    assert orange.sum() > 30
    return float(np.nonzero(orange)[1].mean())


def test_the_canvas_shows_floor_goal_hazard_and_robot(view: Page) -> None:
    pixels = picture(view)
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    assert pixels.std() > 10
    view.select_option("#camera", "arena")
    pixels = picture(view)
    red, green, blue = pixels[..., 0], pixels[..., 1], pixels[..., 2]
    assert ((green - red > 20) & (green - blue > 5)).sum() > 200  # the goal
    assert ((blue - red > 40) & (blue - green > 20)).sum() > 200  # the hazard
    robot_column(pixels)


def test_the_scrubber_moves_the_robot(view: Page) -> None:
    view.select_option("#camera", "top")
    columns = []
    for value in (0, 25, 50):
        view.locator("#scrubber").fill(str(value))
        columns.append(robot_column(picture(view)))
    assert columns[0] + 50 < columns[1] < columns[2] - 50
    x = view.evaluate("stage.worlds[0].target.x")
    assert x == pytest.approx(1.0, abs=1e-3)


def test_violations_are_marked_at_the_right_steps(view: Page) -> None:
    marks = view.locator("#marks i").evaluate_all(
        "(all) => all.map((m) => [m.dataset.from, m.dataset.to, parseFloat(m.style.left)])"
    )
    assert [(int(a), int(b)) for a, b, _ in marks] == BROKEN
    assert [left for _, _, left in marks] == pytest.approx([20.0, 60.0])
    assert view.locator(".chart").first.locator("rect.band").count() == 2
    for value, broken in ((9, False), (10, True), (14, True), (15, False), (30, True)):
        view.locator("#scrubber").fill(str(value))
        settle(view)
        assert view.locator(".view.broken").count() == int(broken), value


def test_jumping_goes_from_violation_to_violation(view: Page) -> None:
    found = []
    for _ in range(3):
        view.click("#next")
        found.append(step(view))
    assert found == [10, 30, 10]
    view.click("#previous")
    assert step(view) == 30


def test_everything_works_from_the_keyboard(view: Page) -> None:
    view.keyboard.press("n")
    assert step(view) == 10
    view.keyboard.press("ArrowRight")
    view.keyboard.press("Shift+ArrowRight")
    assert step(view) == 21
    view.keyboard.press("p")
    assert step(view) == 10
    view.keyboard.press("End")
    assert step(view) == STEPS
    view.keyboard.press("]")
    assert step(view) == 0 and view.get_attribute("#scrubber", "max") == "20"
    assert view.locator("#next").is_disabled()
    view.keyboard.press("c")
    assert view.input_value("#camera") == "arena"
    view.keyboard.press("Space")
    wait_for(view, "state.time > 2")
    view.keyboard.press("Space")
    assert view.inner_text("#play") == "Play"


def test_playing_takes_as_long_as_the_episode_and_stops_at_its_end(view: Page) -> None:
    view.select_option("#speed", "4")
    view.click("#play")
    assert view.inner_text("#play") == "Pause"
    wait_for(view, f"state.time === {STEPS} && !state.playing")
    assert view.locator(".ending").inner_text() == "task succeeded"
    before = view.evaluate("stage.renderer.info.render.frame")
    view.wait_for_timeout(200)
    assert view.evaluate("stage.renderer.info.render.frame") == before  # nothing changed


def test_charts_show_the_numbers_of_the_time_and_a_click_goes_there(view: Page) -> None:
    area = view.locator(".chart .area").first
    box = area.bounding_box()
    assert box is not None
    view.mouse.click(box["x"] + 0.24 * box["width"], box["y"] + 20)
    assert step(view) == 12
    texts = view.locator(".chart .now").all_inner_texts()
    assert [float(text.split()[0].replace("−", "-")) for text in texts] == pytest.approx(
        [0.2, -0.2, 0.1 * (1 - 12 / 49), 0.04], abs=0.006
    )
    assert view.locator(".chart b").all_inner_texts() == ["Cost", "Clearance", "V_D", "Reward"]


def test_names_of_runs_are_text_and_never_markup(view: Page) -> None:
    assert view.locator(".view > b").inner_text() == "<b>TRPO</b>"
    assert view.locator("h1 b").count() == 0


@pytest.mark.parametrize("view", ["two"], indirect=True)
def test_two_policies_are_shown_side_by_side_on_one_clock(view: Page) -> None:
    assert view.locator(".view > b").all_inner_texts() == ["<b>TRPO</b>", "SCPO"]
    assert view.get_attribute("#scrubber", "max") == "60"
    view.select_option("#camera", "top")
    view.locator("#scrubber").fill("45")
    pixels = picture(view)
    half = pixels.shape[1] // 2
    left, right = robot_column(pixels[:, :half]), robot_column(pixels[:, half:])
    assert left > right + 10  # the first is faster
    assert (
        view.locator("#marks i.side-0").count() == 2
        and view.locator("#marks i.side-1").count() == 0
    )
    view.locator("#scrubber").fill("55")
    settle(view)
    assert view.locator(".ending").all_text_contents() == ["task succeeded", ""]
    view.set_viewport_size({"width": 390, "height": 844})
    settle(view)
    assert view.evaluate("document.documentElement.scrollWidth") <= 390


@pytest.mark.parametrize("view", ["flat"], indirect=True)
def test_what_cannot_be_drawn_still_shows_its_numbers(view: Page) -> None:
    assert "cannot be drawn" in view.inner_text("#note")
    assert not view.locator("canvas").is_visible()
    view.keyboard.press("n")
    assert step(view) == 10
    assert view.locator(".chart path.line").count() == 5
    assert "0.200" in view.locator(".numbers").inner_text()


def test_the_picture_follows_dark_mode(view: Page) -> None:
    light = picture(view).mean()
    view.emulate_media(color_scheme="dark")
    assert picture(view).mean() < light - 80
