"""Plug-ins: modules of the user's that register robots, algorithms or environments when imported."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence


class PluginError(ValueError):
    """A plug-in cannot be imported, or a run asks for one that the user did not name."""


def import_modules(modules: str | Sequence[str]) -> None:
    """Import modules by name, from the current folder too, as `python -m` finds them.

    `sys.path` is left alone where no module is asked for.
    """
    names = (modules,) if isinstance(modules, str) else tuple(modules)
    if names and os.getcwd() not in sys.path and "" not in sys.path:
        sys.path.append(os.getcwd())
    for name in names:
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise PluginError(f"--import {name}: {_where(error)}") from error
            raise PluginError(
                f"no module {name!r} to import: start in the folder of {name}.py, install it, or add "
                f"its folder to PYTHONPATH"
            ) from error
        except (ImportError, SyntaxError, ValueError, TypeError, AttributeError, NameError,
                LookupError, OSError, RuntimeError, ArithmeticError) as error:  # fmt: skip
            raise PluginError(f"--import {name}: {_where(error)}") from error


def _where(error: Exception) -> str:
    """What went wrong in a module, and in which line of which file."""
    trace, place = error.__traceback__, ""
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not file.startswith("<frozen"):
            place = f" ({file}, line {trace.tb_lineno})"
        trace = trace.tb_next
    return f"{type(error).__name__}: {error}{place}"
