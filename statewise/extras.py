"""Optional packages: which extra installs them, and the error that names it."""

from __future__ import annotations

import importlib.util

PACKAGES = {
    "report": ("matplotlib", "bokeh", "markdown_it", "pandas"),
    "video": ("imageio", "imageio_ffmpeg", "PIL"),
    "tracking": ("tensorboard", "wandb"),
    "gpu": ("mujoco_warp", "warp"),
    "ray": ("ray", "grpc"),
    "export": ("onnx", "onnxruntime"),
}
"""The modules that each extra brings, by the names they are imported with."""


class MissingPackage(ImportError):
    """A package of an extra is needed and not installed. The message says what to install."""


def installed(module: str) -> bool:
    """Whether a module can be imported. It is not imported."""
    return importlib.util.find_spec(module) is not None


def need(what: str, extra: str, *modules: str) -> None:
    """Raise MissingPackage unless `what` can be done.

    what: the beginning of the message, such as "plotting".
    extra: a name in `PACKAGES`.
    modules: those of the extra that are needed. Default: all.
    """
    missing = [name for name in modules or PACKAGES[extra] if not installed(name)]
    if missing:
        names = " and ".join(filter(None, (", ".join(missing[:-1]), missing[-1])))
        raise MissingPackage(f"{what} needs {names}: pip install 'statewise[{extra}]'")
