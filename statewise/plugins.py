"""Plug-ins: your own modules, which register robots, algorithms or environments when imported."""

from __future__ import annotations

import importlib
import os
import re
import sys
import sysconfig
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statewise.settings import asked, option

GYM = "gym:"
"""Names of Gymnasium environments begin with this: `gym:ID`, or `gym:MODULE:ID`."""

_PATHS = sysconfig.get_paths()
_LIBRARIES = (str(Path(__file__).parent), _PATHS["stdlib"], _PATHS["purelib"], _PATHS["platlib"])
"""Folders of code that is not the user's."""


@dataclass(frozen=True, kw_only=True)
class ImportOptions:
    """The option of all commands that look names up."""

    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Modules to import first, such as one that registers your environment, robot or algorithm."""


@dataclass(frozen=True, kw_only=True)
class PluginOptions(ImportOptions):
    """Options of the commands that open run folders."""

    trust: bool = False
    """Import the plug-ins that run folders name, which runs their code."""


class PluginError(ValueError):
    """A plug-in cannot be imported, or a run asks for one that the user did not name."""


def import_modules(modules: str | Sequence[str], folder: str = "") -> None:
    """Import modules by name, from the current folder (or `folder`) too, as `python -m` finds them.

    `sys.path` does not change if there is nothing to import.
    """
    names = (modules,) if isinstance(modules, str) else tuple(modules)
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"imports is {modules!r}: give a string, or several")
    here = folder or os.getcwd()
    if names and here not in sys.path and ("" not in sys.path or folder):
        sys.path.append(here)
    for name in names:
        if name.endswith(".py") or os.sep in name:
            module = Path(name).stem
            raise PluginError(
                f"{asked('imports', name)} is a file: give the name of the module, "
                f"{asked('imports', module)}, and start in the folder of {module}.py or add that folder "
                f"to PYTHONPATH"
            )
        try:
            importlib.import_module(name)
        except ModuleNotFoundError as error:
            if error.name is None or not f"{name}.".startswith(f"{error.name}."):
                raise PluginError(f"{asked('imports', name)}: {where(error)}") from error
            raise PluginError(
                f"no module {name!r} to import: start in the folder of {name}.py, install it, or add "
                f"its folder to PYTHONPATH"
            ) from error
        except (ImportError, SyntaxError, ValueError, TypeError, AttributeError, NameError,
                LookupError, OSError, RuntimeError, ArithmeticError) as error:  # fmt: skip
            raise PluginError(f"{asked('imports', name)}: {where(error)}") from error


def is_gym(name: str) -> bool:
    """Whether a name is that of a Gymnasium environment, and not of a suite."""
    return re.fullmatch(rf"{GYM}\S+", name) is not None


def module_and_id(name: str) -> tuple[str, str]:
    """The module that registers a Gymnasium environment, or "", and its id."""
    module, _, id = name.removeprefix(GYM).rpartition(":")
    return module, id


def import_for_run(
    path: Path, config: Mapping[str, Any], named: str | Sequence[str] = (), trust: bool = False
) -> None:
    """Import the plug-ins of a run: those that the user names, and no others unless `trust` is set.

    A run folder is data and may come from somebody else. It must not run code by naming a module.
    """
    mine = (named,) if isinstance(named, str) else tuple(named)
    import_modules(mine)
    train = config["train"]
    recorded = train.get("imports", ())
    if not isinstance(recorded, list | tuple) or not all(isinstance(m, str) for m in recorded):
        raise PluginError(
            f"{path / 'config.json'}: imports is {recorded!r:.40}, not a list of names"
        )
    module = module_and_id(str(train.get("suite", "")))[0]
    wanted = [*recorded, *([module] if module else [])]
    missing = [name for name in wanted if name not in mine and name not in sys.modules]
    if missing and not trust:
        raise PluginError(
            f"the run {path} was trained with plug-ins, which are code: add "
            f"{asked('imports', ' '.join(missing))} to import them, or {asked('trust')} to import "
            f"whatever a run names"
        )
    import_modules(missing)


def where(error: BaseException) -> str:
    """What went wrong, and in which line of which file: the user's own rather than a library's."""
    trace, places = error.__traceback__, list[tuple[str, int]]()
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    places = [place for place in places if not place[0].startswith("<frozen")]
    own = [place for place in places if not place[0].startswith(_LIBRARIES)]
    line = "".join(f" ({file}, line {number})" for file, number in (own or places)[-1:])
    return f"{type(error).__name__}: {error}{line}"
