"""The ids under which `gymnasium.make` and `make_vec` find the suites."""

from __future__ import annotations

import sys
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

_ANY_SUITE = "statewise/Goal-v0"
"""The id that takes any suite by name: `gymnasium.make(ANY_SUITE, suite="Ant-Pillar-4")`."""


def register_suites() -> None:
    """Make the suites of the paper, and `_ANY_SUITE`, known to Gymnasium.

    This does not import Gymnasium: if nobody has yet, the ids are registered as soon as it is.
    """
    if "gymnasium" in sys.modules:
        _register()
    elif not any(isinstance(finder, _AfterGymnasium) for finder in sys.meta_path):
        sys.meta_path.insert(0, _AfterGymnasium())


def _register() -> None:
    import gymnasium

    from statewise.envs.suites import PAPER_SUITES

    ids = {f"statewise/{name}-v0": {"suite": name} for name in PAPER_SUITES}
    for id, kwargs in (ids | {_ANY_SUITE: {}}).items():
        if id not in gymnasium.registry:
            # The environment counts its own steps and truncates, so no `TimeLimit` is asked for.
            gymnasium.register(
                id,
                entry_point="statewise.envs.to_gym:GoalEnv",
                vector_entry_point="statewise.envs.to_gym:GoalVectorEnv",
                kwargs=kwargs,
            )


class _AfterGymnasium:
    """An import hook: runs `_register` when Gymnasium has been imported."""

    def find_spec(self, name: str, *where: Any) -> ModuleSpec | None:
        if name != "gymnasium":
            return None
        others = [finder for finder in sys.meta_path if finder is not self]
        spec = next((s for f in others if (s := f.find_spec(name, *where)) is not None), None)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_register(module: ModuleType) -> None:
                load(module)
                sys.meta_path[:] = [finder for finder in sys.meta_path if finder is not self]
                _register()

            spec.loader.exec_module = load_and_register  # type: ignore[method-assign]
        return spec
