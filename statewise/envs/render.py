"""Pictures, windows and videos: the objects of the task, the lidar readings and the costs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from statewise.core import lidar
from statewise.envs.env import Closeable, Env
from statewise.envs.observation import UNUSED_LIDARS
from statewise.envs.terms import RGB
from statewise.envs.vec_env import VecEnv
from statewise.envs.world import World
from statewise.extras import need
from statewise.sim.draw import Canvas, DrawError, Mark, View, Window, body_box
from statewise.sim.scene import ROBOT
from statewise.types import Step

__all__ = ["Camera", "DrawError", "Episode", "Renderer", "Tally", "VideoFile", "View", "Viewer"]

Camera = Literal["arena", "chase", "top"]
CAMERAS: tuple[str, ...] = ("arena", "chase", "top")
VIDEO_FORMATS = (".mp4", ".gif")

RED = (214, 40, 40)
_INK = (34, 38, 46)
_GREY = (120, 126, 138)
_GREEN = (18, 130, 58)

_PLAIN: RGB = (0.35, 0.38, 0.42)
"""Colour of lidars that have none of their own."""
_DOT = 0.028
_FAINT = 0.04
"""3D lidar bins below this reading are not drawn."""
_BANNER = 0.8
"""Seconds for which the end of an episode stays on the picture."""


# What happened so far --------------------------------------------------------------------------


@dataclass(frozen=True)
class Episode:
    """A finished episode of one world."""

    world: int
    steps: int
    ret: float
    """Sum of its rewards."""
    cost: tuple[float, ...]
    """Sum of its costs, for each constraint."""
    cost_max: tuple[float, ...]
    """Its largest cost, for each constraint."""
    ending: str
    """What ended it: the task's word for success, "time limit", "simulator fault" and so on."""
    success: bool


class Tally:
    """Return and cost of the running episode of every world."""

    def __init__(self, env: Env) -> None:
        self._limit = env.spec.max_episode_steps
        ours = isinstance(env, VecEnv)
        self._done = env.suite.task.success if isinstance(env, VecEnv) else "ended"
        self._cut = "no room for a goal" if ours else "truncated"
        self.steps = torch.zeros(env.num_envs, dtype=torch.long)
        self.ret = torch.zeros(env.num_envs)
        self.cost = torch.zeros(env.num_envs, env.spec.num_costs)
        self.cost_max = torch.zeros(env.num_envs, env.spec.num_costs)
        self.latest: dict[int, Episode] = {}
        """The last finished episode of each world."""

    def add(self, step: Step) -> list[Episode]:
        """Count one step of every world; the episodes it ended."""
        self.steps += 1
        self.ret += step.reward.cpu()
        self.cost += step.true_cost.cpu()
        self.cost_max = step.true_cost_max.cpu().clone()
        ended = step.ended.cpu()
        episodes = [self._finish(int(world), step) for world in ended.nonzero()[:, 0]]
        for total in (self.steps, self.ret, self.cost, self.cost_max):
            total[ended] = 0
        return episodes

    def _finish(self, world: int, step: Step) -> Episode:
        steps = int(self.steps[world])
        success = bool(step.success[world])
        if step.sim_fault[world]:
            ending = "simulator fault"
        elif success:
            ending = self._done
        elif step.truncated[world]:
            ending = "time limit" if steps >= self._limit else self._cut
        else:
            ending = "task over"
        episode = Episode(world, steps, float(self.ret[world]), tuple(self.cost[world].tolist()),
                          tuple(self.cost_max[world].tolist()), ending, success)  # fmt: skip
        self.latest[world] = episode
        return episode


# Pictures and windows --------------------------------------------------------------------------


class _Shown(Closeable):
    """Worlds to look at.

    Give it every step through `follow`, and the readout shows return and cost of the episode too.
    """

    def __init__(self, env: VecEnv) -> None:
        self.env = env
        self.tally: Tally | None = None
        self._stage = _Stage(env)

    def follow(self, step: Step) -> list[Episode]:
        """Count a step for the readout; the episodes it ended."""
        self.tally = self.tally or Tally(self.env)
        return self.tally.add(step)


class Renderer(_Shown):
    """Draws the worlds of an environment without a display."""

    def __init__(
        self,
        env: VecEnv,
        width: int = 960,
        height: int = 720,
        camera: Camera | View = "arena",
        lidar: bool = True,
        fine: bool = False,
    ) -> None:
        if isinstance(camera, str) and camera not in CAMERAS:
            raise ValueError(f"unknown camera {camera!r}: use one of {', '.join(CAMERAS)}")
        super().__init__(env)
        self.camera, self.lidar = camera, lidar
        self._canvas = Canvas(env.sim.model, width, height, fine)

    def frame(self, world: int = 0, overlay: bool = True) -> np.ndarray:
        """A picture of one world as it is now: uint8 `[height, width, 3]`."""
        now = self._stage.look(world)
        marks = self.env.rules.marks(now.seen) + (_lidars(self.env, now) if self.lidar else [])
        view = self.camera if isinstance(self.camera, View) else self._stage.view(self.camera, now)
        pixels = self._canvas.draw(now.data, view, marks)
        return _write_readout(pixels, self.env, now, self.tally) if overlay else pixels

    def close(self) -> None:
        self._canvas.close()


class Viewer(_Shown):
    """A window on one world. Call `sync` after every step."""

    def __init__(self, env: VecEnv, world: int = 0) -> None:
        super().__init__(env)
        self.world = world
        now = self._stage.look(world)
        self._window = Window(env.sim.model, now.data, self._stage.view("arena", now))

    @property
    def is_open(self) -> bool:
        """Until somebody closes the window."""
        return self._window.is_open

    def sync(self) -> None:
        """Show the world as it is now."""
        now = self._stage.look(self.world)
        marks = self.env.rules.marks(now.seen) + _lidars(self.env, now)
        self._window.sync(now.data, marks, _readout_text(self.env, now, self.tally))

    def close(self) -> None:
        self._window.close()


class VideoFile(Closeable):
    """A video that is written frame by frame: .mp4 or .gif, by the name of the file."""

    def __init__(self, path: str | Path, fps: float) -> None:
        self.path = check_video_path(path)
        need("writing a video", "video")
        import imageio.v2 as imageio  # takes a while, and only videos need it

        if self.path.suffix.lower() == ".gif":
            self._writer = imageio.get_writer(self.path, duration=1000 / fps, loop=0)
        else:
            self._writer = imageio.get_writer(
                self.path, fps=fps, codec="libx264", quality=8, macro_block_size=2
            )

    def add(self, pixels: np.ndarray) -> None:
        """Append a picture: uint8 `[height, width, 3]`, all of one size."""
        self._writer.append_data(pixels)

    def close(self) -> None:
        self._writer.close()


def check_video_path(path: str | Path) -> Path:
    """The path, its folder made, once it is sure that a video can be written there."""
    path = Path(path)
    if path.suffix.lower() not in VIDEO_FORMATS:
        raise ValueError(
            f"cannot write a video named {path.name!r}: end it in {' or '.join(VIDEO_FORMATS)}"
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        new = not path.exists()
        path.open("ab").close()
        if new:
            path.unlink()
    except OSError as error:
        raise ValueError(f"cannot write a video to {path}: {error.strerror or error}") from error
    return path


# What there is to see --------------------------------------------------------------------------


@dataclass(frozen=True)
class _Now:
    """One world at one moment."""

    data: Any
    world: int
    seen: World
    """The one world, as tasks and constraints see it"""
    point: np.ndarray
    """[3] of the robot: what has to reach the goal"""
    axes: np.ndarray
    """[3, 3] the point's frame: the columns are its axes"""
    cost: tuple[float, ...]
    clearance: tuple[float, ...]


class _Stage:
    """Looks at worlds and places the camera."""

    def __init__(self, env: VecEnv) -> None:
        self._env = env
        self._heading: float | None = None

    def look(self, world: int) -> _Now:
        env = self._env
        if not 0 <= world < env.num_envs:
            raise ValueError(f"there is no world {world}: the environment has {env.num_envs}")
        env.check_ready("frame")
        data = env.sim.data(world)
        sensors = torch.tensor(data.sensordata, dtype=torch.float32)
        rows = sensors.unsqueeze(0).to(env.device)
        seen = env.look(world, rows)
        clearance = env.rules.clearance(seen)
        cost = tuple(env.true_cost(clearance)[0].tolist())
        named, point = env.sim.scene.sensors, env.suite.robot.point
        values = sensors.numpy().astype(np.float64)
        axes = np.stack([values[named[f"{point}_{axis}"]] for axis in "xyz"], axis=1)
        return _Now(data, world, seen, values[named[f"{point}_pos"]], axes, cost,
                    tuple(clearance[0].tolist()))  # fmt: skip

    def view(self, camera: str, now: _Now) -> View:
        """Where the camera stands, given what there is to see."""
        low, high = body_box(self._env.sim.model, now.data, ROBOT)
        away = now.point[:2] - np.clip(now.point[:2], -1.4, 1.4)
        away *= not self._env.suite.robot.pinned
        x, y = (float(v) for v in 0.7 * away)  # keep a robot in view that leaves the arena
        back = float(np.linalg.norm(away))
        if camera == "top":
            return View((x, y, 0.0), 6.0 + 1.2 * back, 90.0, -89.9)
        if camera == "chase":
            size = float(np.linalg.norm(high - low))
            middle = (low + high) / 2
            return View((middle[0], middle[1], middle[2]), 1.6 + 1.6 * size,
                        self._smooth_heading(now), -28.0)  # fmt: skip
        if not self._env.suite.things:  # nothing but the robot to look at
            middle_x, middle_y, middle_z = ((low + high) / 2).tolist()
            return View((middle_x, middle_y, middle_z), 3.2, 90.0, -35.0)
        tall = float(self._env.suite.robot.goal_height[1]) or min(float(high[2]), 1.5)
        return View((x, y, 0.3 * tall), 5.1 + 0.5 * tall + 0.8 * back, 90.0, -45.0)

    def _smooth_heading(self, now: _Now) -> float:
        """The robot's heading in degrees, followed slowly: some robots shake theirs."""
        x, y = now.axes[0, 0], now.axes[1, 0]
        heading = math.degrees(math.atan2(y, x))
        if self._heading is None:
            self._heading = heading
        turn = (heading - self._heading + 180.0) % 360.0 - 180.0
        self._heading += 0.08 * turn
        return self._heading


def _lidars(env: VecEnv, now: _Now) -> list[Mark]:
    """Every lidar as dots around the robot, the larger and brighter the stronger it reads."""
    obs = env.rules.observe(now.seen)[0].cpu()
    blocks = env.spec.blocks
    names = [n for n in blocks if n.endswith("_lidar") and n not in UNUSED_LIDARS]
    low, high = body_box(env.sim.model, now.data, ROBOT)
    radius = 0.20 if high[2] - low[2] < 0.6 else 0.28
    marks: list[Mark] = []
    colours = {k: rgb for term in env.suite.terms for k, rgb in term.colours.items()}
    for ring, name in enumerate(names):
        readings = obs[blocks[name]].tolist()
        reach = radius + 0.07 * ring
        if len(readings) == lidar.PLANAR_BINS:
            marks += _ring(now, readings, float(high[2]) + 0.12, reach, colours.get(name, _PLAIN))
        else:
            marks += _shell(now, readings, 0.30 + 0.06 * ring, colours.get(name, _PLAIN))
    return marks


def _ring(now: _Now, readings: Sequence[float], z: float, radius: float, rgb: RGB) -> list[Mark]:
    heading = math.atan2(now.axes[1, 0], now.axes[0, 0])
    marks = []
    for k, reading in enumerate(readings):
        angle = heading + (k + 0.5) * 2 * math.pi / len(readings)
        x, y = now.point[0] + radius * math.cos(angle), now.point[1] + radius * math.sin(angle)
        marks.append(_dot((x, y, z), reading, rgb))
    return marks


def _shell(now: _Now, readings: Sequence[float], radius: float, rgb: RGB) -> list[Mark]:
    marks = []
    for k, reading in enumerate(readings):
        if reading < _FAINT:
            continue
        azimuth = (k // lidar.ELEVATION_BINS + 0.5) * 2 * math.pi / lidar.AZIMUTH_BINS
        elevation = (k % lidar.ELEVATION_BINS + 0.5) * math.pi / lidar.ELEVATION_BINS - math.pi / 2
        flat = math.cos(elevation)
        local = (flat * math.cos(azimuth), flat * math.sin(azimuth), math.sin(elevation))
        x, y, z = now.point + radius * (now.axes @ np.array(local))
        marks.append(_dot((float(x), float(y), float(z)), reading, rgb))
    return marks


def _dot(pos: tuple[float, float, float], reading: float, rgb: RGB) -> Mark:
    size = _DOT * (0.4 + 1.1 * reading)
    return Mark("sphere", pos, (size, 0.0), (*rgb, min(1.0, 0.3 + 1.4 * reading)), 0.4)


# The readout -----------------------------------------------------------------------------------


def _readout_text(env: VecEnv, now: _Now, tally: Tally | None) -> list[tuple[str, str]]:
    """The readout as lines of a name and a value."""
    lines = [("suite", env.suite.name), ("time", f"{now.data.time:.2f} s")]
    if tally is not None:
        lines.append(("return", f"{float(tally.ret[now.world]):.2f}"))
    for i, name in enumerate(env.spec.cost_names):
        lines.append((f"{name} clearance", _clearance(env, now, i)))
        lines.append((f"{name} cost", f"{now.cost[i]:.3f}"))
        if tally is not None:
            total, most = tally.cost[now.world, i], tally.cost_max[now.world, i]
            lines.append((f"{name} cost, episode", f"{float(total):.2f}"))
            lines.append((f"{name} cost, maximum", f"{float(most):.3f}"))
    if env.faults:
        lines.append(("simulator faults", str(env.faults)))
    return lines


def _clearance(env: VecEnv, now: _Now, channel: int) -> str:
    """The clearance of a constraint with its unit."""
    return f"{now.clearance[channel]:.2f} {env.spec.clearance_units[channel]}".rstrip()


def _write_readout(pixels: np.ndarray, env: VecEnv, now: _Now, tally: Tally | None) -> np.ndarray:
    """The picture with time, return, clearances and costs, framed in red while there is cost."""
    need("writing numbers into a picture", "video", "PIL")
    from PIL import Image, ImageDraw  # only readouts need it

    image = Image.fromarray(pixels)
    draw = ImageDraw.Draw(image, "RGBA")
    _write_panel(draw, pixels.shape[0] / 800, env, now, tally)
    _write_banners(draw, pixels.shape[1], pixels.shape[0], env, now, tally)
    return np.asarray(image)


def _write_panel(draw: Any, scale: float, env: VecEnv, now: _Now, tally: Tally | None) -> None:
    """Numbers in a corner. Lengths are pixels of a picture 800 pixels high, times `scale`."""
    from PIL import ImageFont

    def px(size: float) -> int:
        return round(size * scale)

    bold, plain, small = (ImageFont.load_default(px(size)) for size in (24, 19, 16))
    left, top, line = px(18), px(16), px(26)
    rows = len(env.spec.cost_names) + 3 + (1 if env.faults else 0)
    panel = (left, top, left + px(430), top + px(22) + line * rows)
    draw.rounded_rectangle(panel, px(10), fill=(255, 255, 255, 205))
    x, y = left + px(14), top + px(8)
    columns = [x + px(column) for column in (195, 265, 335, 402)]

    draw.text((x, y), env.suite.name, _INK, bold)
    y += px(32)
    draw.text((x, y), f"time {now.data.time:6.2f} s", _INK, plain)
    heads, table = ["clearance", "cost"], [[cost] for cost in now.cost]
    if tally is not None:
        ret = f"return {float(tally.ret[now.world]):.2f}"
        draw.text((columns[3], y), ret, _INK, plain, anchor="ra")
        heads += ["episode", "max"]
        sums = zip(tally.cost[now.world].tolist(), tally.cost_max[now.world].tolist(), strict=True)
        table = [[*row, *more] for row, more in zip(table, sums, strict=True)]
    y += line
    for column, head in zip(columns, heads, strict=False):
        draw.text((column, y), head, _GREY, small, anchor="ra")
    for i, (name, values) in enumerate(zip(env.spec.cost_names, table, strict=True)):
        y += px(24)
        draw.text((x, y), name, _INK, plain)
        colour = RED if now.clearance[i] < 0 else _INK
        draw.text((columns[0], y), _clearance(env, now, i), colour, plain, anchor="ra")
        for column, value in zip(columns[1:], values, strict=False):
            colour = RED if value > 0 else _INK
            draw.text((column, y), f"{value:.3f}", colour, plain, anchor="ra")
    if env.faults:
        draw.text((x, y + line), f"simulator faults {env.faults}", RED, plain)


def _write_banners(
    draw: Any, width: int, height: int, env: VecEnv, now: _Now, tally: Tally | None
) -> None:
    """How the last episode ended, and a red frame that names the constraints that are broken."""
    from PIL import ImageFont

    def px(size: float) -> int:
        return round(size * height / 800)

    bold = ImageFont.load_default(px(24))
    ended = tally.latest.get(now.world) if tally is not None else None
    if ended is not None and now.data.time <= _BANNER:
        text = f"{ended.ending}  ·  return {ended.ret:.2f}, cost {sum(ended.cost):.2f}"
        colour = _GREEN if ended.success else RED if ended.ending == "simulator fault" else _INK
        where, pad = (width / 2, height - px(36)), px(12)
        x0, y0, x1, y1 = draw.textbbox(where, text, bold, anchor="mm")
        box = (x0 - pad, y0 - pad, x1 + pad, y1 + pad)
        draw.rounded_rectangle(box, pad, fill=(255, 255, 255, 220))
        draw.text(where, text, colour, bold, anchor="mm")
    broken = [name for name, cost in zip(env.spec.cost_names, now.cost, strict=True) if cost > 0]
    if broken:
        draw.rectangle((0, 0, width - 1, height - 1), outline=RED, width=max(3, px(9)))
        where, pad = (width - px(34), px(42)), px(10)
        text = f"violation: {', '.join(broken)}"
        x0, y0, x1, y1 = draw.textbbox(where, text, bold, anchor="rm")
        draw.rounded_rectangle((x0 - pad, y0 - pad, x1 + pad, y1 + pad), pad, fill=RED)
        draw.text(where, text, (255, 255, 255), bold, anchor="rm")
