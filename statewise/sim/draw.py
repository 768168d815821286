"""Pictures of one world, by MuJoCo's offscreen renderer, and its viewer in a window.

Goals, hazards and lidar readings are not part of physics. They are drawn as `Mark`s.
"""

from __future__ import annotations

import copy
import importlib
import os
import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import mujoco
import numpy as np

_HEADLESS = (("egl", "mujoco.egl"), ("osmesa", "mujoco.osmesa"))
_PACKAGES = "apt install libegl1 libgl1-mesa-dri (EGL) or apt install libosmesa6 (OSMesa)"
_UPRIGHT = np.eye(3).ravel()
_MAX_MARKS = 1000
_SHADOW_REACH = 10.0  # metres
_HORIZON = 16.0  # metres
_SUN_SIZE = 0.07
"""How far the directions of the sun's light spread in a fine picture: the softness of shadows"""
_SUNS = 16
"""Pictures, each with the sun elsewhere, that a fine picture is the mean of"""
_SHADE_SCALE, _SHADE_BLUR = 3, 0.9
"""The shadows of a video are drawn at the size of the picture divided by this, and blurred by so many
of their pixels"""
_DARK = 24.0
"""Brightness that is added before a picture with shadows is divided by one without: dark pixels say
little about the light"""


class DrawError(RuntimeError):
    """Drawing does not work on this machine."""


@dataclass(frozen=True)
class View:
    """A camera that looks at a point. Angles in degrees."""

    lookat: tuple[float, float, float]
    distance: float
    azimuth: float = 90.0
    """Direction it looks in, seen from above: 0 is along x, 90 along y."""
    elevation: float = -40.0
    """Negative: it looks down."""


@dataclass(frozen=True)
class Mark:
    """A shape that is drawn and is not part of physics."""

    shape: Literal["sphere", "cylinder", "capsule", "box", "arrow"]
    pos: tuple[float, float, float]
    size: tuple[float, ...]
    """Radius; with half the height of a cylinder or a capsule, or the length of an arrow. Half of each
    side of a box."""
    rgba: tuple[float, float, float, float]
    emission: float = 0.0
    """How much it shines by itself, 0 to 1."""
    heading: tuple[float, float] = (1.0, 0.0)
    """Direction of an arrow on the ground, of length 1."""


class Canvas:
    """Draws one model into an array, without a display.

    Edges are smooth and shadows are soft. fine: take 20 times as long for shadows that are sharp where
    something touches the floor and soft further away, as for the pictures of a paper.
    """

    def __init__(self, model: mujoco.MjModel, width: int, height: int, fine: bool = False) -> None:
        if not (16 <= width <= 4096 and 16 <= height <= 4096):
            raise ValueError(f"a picture of {width} x {height}: give 16 to 4096 pixels each way")
        self._fine, self._model = fine, model
        self._size = (width, height)
        self._scene = mujoco.MjvScene(model, maxgeom=_MAX_MARKS + model.ngeom + 100)
        self._scene.flags[mujoco.mjtRndFlag.mjRND_REFLECTION.value] = False
        self._scene.flags[mujoco.mjtRndFlag.mjRND_HAZE.value] = True
        self._option = mujoco.MjvOption()
        self._camera = mujoco.MjvCamera()
        self._gl: Any = _make_context(width, height)
        self._gl.make_current()
        self._buffers: list[_Buffer] = []
        if fine:  # drawn at twice the size, then averaged
            self._add_buffer(_Quality(2 * width, 2 * height, 4, 4096, (48, 24)))
        else:
            small = max(16, width // _SHADE_SCALE), max(16, height // _SHADE_SCALE)
            self._add_buffer(_Quality(width, height, 4, 1024, (20, 8)))
            self._add_buffer(_Quality(*small, 0, 1024, (16, 8)))
        self._model = self._buffers[0].model

    def _add_buffer(self, quality: _Quality) -> None:
        try:
            self._buffers.append(_Buffer(self._model, quality))
        except mujoco.FatalError as error:
            raise DrawError(_advice(_chosen(), error)) from error

    def draw(self, data: mujoco.MjData, view: View, marks: Sequence[Mark] = ()) -> np.ndarray:
        """Draw a picture: uint8 `[height, width, 3]`."""
        if not self._buffers:
            raise RuntimeError("this renderer is closed: make a new one")
        _aim(self._camera, view)
        # The camera first: an endless floor is laid around where it stands.
        mujoco.mjv_updateCamera(self._model, data, self._camera, self._scene)
        mujoco.mjv_updateScene(self._model, data, self._option, None, self._camera,
                               mujoco.mjtCatBit.mjCAT_ALL.value, self._scene)  # fmt: skip
        self._gl.make_current()
        if self._fine:
            _add_marks(self._scene, marks)
            pixels = self._draw_fine()
        else:
            light = self._light()  # without the marks, which cast no shadow
            _add_marks(self._scene, marks)
            lit = self._buffers[0].render(self._scene, shadows=False)
            pixels = np.minimum(lit * light, 255.0).astype(np.uint8)
        return np.ascontiguousarray(pixels[::-1])

    def _light(self) -> np.ndarray:
        """How much of the light reaches each pixel: `[height, width, 1]`, about 0.5 in a shadow.

        A small picture with shadows is divided by one without, and blurred. That is quicker than sharp
        shadows in the picture itself.
        """
        from PIL import Image, ImageFilter

        small = self._buffers[1]
        lit, shaded = (small.render(self._scene, shadows) for shadows in (False, True))
        light = (shaded.sum(axis=2) + _DARK) / (lit.sum(axis=2) + _DARK)
        mask = Image.fromarray(np.rint(200 * light).clip(0, 255).astype(np.uint8))
        mask = mask.filter(ImageFilter.GaussianBlur(_SHADE_BLUR))
        mask = mask.resize(self._size, Image.Resampling.BICUBIC)
        return np.asarray(mask, dtype=np.float32)[..., None] / 200

    def _draw_fine(self) -> np.ndarray:
        """The mean of pictures with the sun in slightly different places, at half the size."""
        lights = [self._scene.lights[i] for i in range(self._scene.nlight)]
        suns = [(light, light.dir.copy()) for light in lights if light.castshadow]
        (width, height), picture = self._size, self._buffers[0]
        total = np.zeros((2 * height, 2 * width, 3), dtype=np.float32)
        for i in range(_SUNS):  # evenly spread over a disc
            far, angle = _SUN_SIZE * np.sqrt((i + 0.5) / _SUNS), 2.39996 * i
            shift = (far * np.cos(angle), far * np.sin(angle), 0.0)
            for light, direction in suns:
                light.dir[:] = (direction + shift) / np.linalg.norm(direction + shift)
            total += picture.render(self._scene, shadows=True)
        blocks = total.reshape(height, 2, width, 2, 3)
        return np.rint(blocks.mean(axis=(1, 3)) / _SUNS).astype(np.uint8)

    def close(self) -> None:
        if self._buffers:
            self._gl.make_current()
            for buffer in self._buffers:
                buffer.free()
            self._gl.free()
            self._buffers = []


@dataclass(frozen=True)
class _Quality:
    """How well a scene is drawn."""

    width: int
    height: int
    samples: int
    """For each pixel, which smooths edges"""
    shadow: int
    """Side of the shadow map, in pixels"""
    detail: tuple[int, int]
    """Around and along round shapes"""


class _Buffer:
    """What a scene is drawn into."""

    def __init__(self, model: mujoco.MjModel, quality: _Quality) -> None:
        self.model = _looks(model, quality)
        self._shape = (quality.height, quality.width, 3)
        self._rect = mujoco.MjrRect(0, 0, quality.width, quality.height)
        font = mujoco.mjtFontScale.mjFONTSCALE_150.value
        self._context = mujoco.MjrContext(self.model, font)

    def render(self, scene: Any, shadows: bool) -> np.ndarray:
        """Draw the scene. The lowest row comes first."""
        pixels = np.empty(self._shape, dtype=np.uint8)
        scene.flags[mujoco.mjtRndFlag.mjRND_SHADOW.value] = shadows
        mujoco.mjr_setBuffer(mujoco.mjtFramebuffer.mjFB_OFFSCREEN.value, self._context)
        mujoco.mjr_render(self._rect, scene, self._context)
        mujoco.mjr_readPixels(pixels, None, self._rect, self._context)
        return pixels

    def free(self) -> None:
        self._context.free()


class Window:
    """MuJoCo's viewer on one world. The caller steps the world."""

    def __init__(self, model: mujoco.MjModel, data: mujoco.MjData, view: View) -> None:
        _check_display()
        viewer = importlib.import_module("mujoco.viewer")
        self._model, self._data = model, data
        try:
            self._handle = viewer.launch_passive(
                model, data, show_left_ui=False, show_right_ui=False
            )
        except RuntimeError as error:  # macOS wants its own Python for windows
            raise DrawError(f"cannot open a window: {error}") from error
        with self._handle.lock():
            _aim(self._handle.cam, view)

    @property
    def is_open(self) -> bool:
        return bool(self._handle.is_running())

    def sync(
        self, data: mujoco.MjData, marks: Sequence[Mark], text: Sequence[tuple[str, str]]
    ) -> None:
        """Show a state, marks, and lines of text in two columns."""
        if not self.is_open:
            return
        with self._handle.lock():
            mujoco.mj_copyData(self._data, self._model, data)
            self._handle.user_scn.ngeom = 0
            _add_marks(self._handle.user_scn, marks)
        left, right = ("\n".join(column) for column in zip(*text, strict=True))
        self._handle.set_texts((None, None, left, right))
        self._handle.sync()

    def close(self) -> None:
        self._handle.close()


def body_box(
    model: mujoco.MjModel, data: mujoco.MjData, prefix: str
) -> tuple[np.ndarray, np.ndarray]:
    """Return the lowest and highest corner `[3]` of a box around the bodies with this prefix."""
    low, high = np.full(3, np.inf), np.full(3, -np.inf)
    for i in range(model.ngeom):
        if not model.body(model.geom_bodyid[i]).name.startswith(prefix):
            continue
        centre, half = model.geom_aabb[i, :3], model.geom_aabb[i, 3:]
        turn = data.geom_xmat[i].reshape(3, 3)
        middle, reach = data.geom_xpos[i] + turn @ centre, np.abs(turn) @ half
        low, high = np.minimum(low, middle - reach), np.maximum(high, middle + reach)
    return low, high


def _aim(camera: Any, view: View) -> None:
    camera.type = mujoco.mjtCamera.mjCAMERA_FREE.value
    camera.lookat[:] = view.lookat
    camera.distance, camera.azimuth, camera.elevation = view.distance, view.azimuth, view.elevation


def _add_marks(scene: Any, marks: Sequence[Mark]) -> None:
    kinds = {
        "sphere": mujoco.mjtGeom.mjGEOM_SPHERE.value,
        "cylinder": mujoco.mjtGeom.mjGEOM_CYLINDER.value,
        "capsule": mujoco.mjtGeom.mjGEOM_CAPSULE.value,
        "box": mujoco.mjtGeom.mjGEOM_BOX.value,
        "arrow": mujoco.mjtGeom.mjGEOM_ARROW.value,
    }
    for mark in marks[: scene.maxgeom - scene.ngeom]:
        geom = scene.geoms[scene.ngeom]
        size, turn = np.array([*mark.size, 0.0, 0.0][:3]), _UPRIGHT
        if mark.shape == "arrow":
            (x, y), (radius, length) = mark.heading, mark.size
            size = np.array([radius, radius, length])
            turn = np.array([0.0, y, x, 0.0, -x, y, 1.0, 0.0, 0.0])  # its z axis lies on the ground
        mujoco.mjv_initGeom(geom, kinds[mark.shape], size,
                            np.array(mark.pos, dtype=np.float64), turn,
                            np.array(mark.rgba, dtype=np.float32))  # fmt: skip
        geom.emission = mark.emission
        geom.category = mujoco.mjtCatBit.mjCAT_DECOR.value  # casts no shadow
        scene.ngeom += 1


def _looks(model: mujoco.MjModel, quality: _Quality) -> mujoco.MjModel:
    """Return a copy of the model with settings for pictures. The model itself is not changed.

    The floor is infinite, as in physics. The buffer has exactly the size of the picture, because clearing
    a larger one is slow. Shadows cover the whole arena for a robot of any size.
    """
    looks = copy.copy(model)
    looks.geom_size[looks.geom_type == mujoco.mjtGeom.mjGEOM_PLANE.value, :2] = 0.0
    vis = looks.vis
    vis.global_.offwidth, vis.global_.offheight = quality.width, quality.height
    vis.map.shadowclip = _SHADOW_REACH / model.stat.extent
    vis.map.zfar = _HORIZON / model.stat.extent
    vis.quality.offsamples = quality.samples
    vis.quality.shadowsize = quality.shadow
    vis.quality.numslices, vis.quality.numstacks = quality.detail
    vis.headlight.diffuse[:] = 0.32
    vis.rgba.haze[:] = (0.95, 0.96, 0.98, 1.0)
    return looks


# OpenGL ----------------------------------------------------------------------------------------


def _make_context(width: int, height: int) -> Any:
    """Create an OpenGL context: the one that MUJOCO_GL names, or else EGL, or else OSMesa."""
    if _chosen() or platform.system() != "Linux":
        return _default_context(_chosen(), width, height)
    problems = []
    for name, module in _HEADLESS:
        try:
            return _try_context(name, module, width, height)
        except _gl_errors() as error:
            problems.append(f"{name.upper()}: {_first_line(error)}")
            _forget_opengl(module)
    raise DrawError(
        f"no way to draw without a display ({'; '.join(problems)}). On Debian: {_PACKAGES}"
    )


def _chosen() -> str:
    return os.environ.get("MUJOCO_GL", "").strip().lower()


def _try_context(name: str, module: str, width: int, height: int) -> Any:
    context = importlib.import_module(module).GLContext(width, height)
    context.make_current()
    os.environ["MUJOCO_GL"] = name  # MuJoCo's C library loads its functions by it
    return context


def _default_context(chosen: str, width: int, height: int) -> Any:
    """Create the context that MuJoCo chose when it was imported."""
    try:
        if chosen in dict(_HEADLESS):
            return importlib.import_module(dict(_HEADLESS)[chosen]).GLContext(width, height)
        return importlib.import_module("mujoco.gl_context").GLContext(width, height)
    except _gl_errors() as error:
        raise DrawError(_advice(chosen, error)) from error


def _advice(chosen: str, error: Exception) -> str:
    hint = f"MUJOCO_GL={chosen} does not work here" if chosen else "OpenGL does not work here"
    return (
        f"{hint} ({_first_line(error)}). Unset MUJOCO_GL to let EGL or OSMesa be chosen; "
        f"on Debian: {_PACKAGES}"
    )


def _forget_opengl(module: str) -> None:
    """Unload PyOpenGL, which supports only one platform after its import, to try the next one."""
    os.environ.pop("PYOPENGL_PLATFORM", None)
    for name in [n for n in sys.modules if n.split(".")[0] == "OpenGL" or n.startswith(module)]:
        del sys.modules[name]


def _gl_errors() -> tuple[type[Exception], ...]:
    """Return the exceptions that a missing or broken OpenGL library raises."""
    known = (ImportError, OSError, AttributeError, TypeError, RuntimeError)
    try:
        return (*known, importlib.import_module("OpenGL.error").Error)
    except ImportError:
        return known


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0] or type(error).__name__


def _check_display() -> None:
    """Raise DrawError without a display. MuJoCo's viewer would wait for its window for ever."""
    headless = not (os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))
    if platform.system() == "Linux" and headless:
        raise DrawError("no display to open a window on: write a video instead (--video out.mp4)")
    if not importlib.import_module("glfw").init():
        raise DrawError("cannot open a window on this display: write a video instead")
