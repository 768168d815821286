"""The plan of the house: imports point one way, and simulators stay in one place."""

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "statewise"
LAYERS = [
    {"types", "version", "settings", "extras", "console"},
    {"core", "plugins", "metrics", "text"},
    {"cuda_graphs", "nets", "sim", "theory", "runs"},
    {"algos", "envs", "zoo"},
    {"training"},
    {"bench", "report", "deploy"},
    {"paper"},
    {"cli", "cli_tables"},
    {"commands"},
]
RANK = {name: rank for rank, layer in enumerate(LAYERS) for name in layer}


def imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def layer(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def test_imports_point_one_way() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        here = layer(path)
        if here in ("__init__", "__main__"):
            continue
        for name in imports(path):
            there = [*name.split("."), ""][1] if name.startswith("statewise.") else ""
            sideways = {here, there} == {"algos", "envs"}
            if there in RANK and (RANK[there] > RANK[here] or sideways):
                wrong.append(f"{path.relative_to(PACKAGE)} imports {name}")
    assert not wrong, wrong


def test_every_part_of_the_package_has_its_place_in_the_order() -> None:
    parts = {layer(path) for path in PACKAGE.rglob("*.py")} - {"__init__", "__main__"}
    assert parts <= set(RANK), parts - set(RANK)


def test_only_sim_imports_a_simulator() -> None:
    wrong = [
        f"{path.relative_to(PACKAGE)} imports {name}"
        for path in PACKAGE.rglob("*.py")
        if layer(path) != "sim"
        for name in imports(path)
        if name.split(".")[0] in ("mujoco", "mujoco_warp", "warp")
    ]
    assert not wrong, wrong


def test_the_report_knows_nothing_of_the_paper() -> None:
    """It compares any runs with any baseline; names of methods and suites come from outside."""
    named = re.compile(r"\bpaper|scpo|trpo|hazard|pillar", re.IGNORECASE)
    files = [path for path in (PACKAGE / "report").rglob("*") if path.suffix not in ("", ".pyc")]
    assert len(files) > 10
    wrong = [
        f"{path.name}: {found[0]}" for path in files if (found := named.search(path.read_text()))
    ]
    wrong += [f"{path.name} imports {name}" for path in files if path.suffix == ".py"
              for name in imports(path) if name.startswith("statewise.paper")]  # fmt: skip
    assert not wrong, wrong


MAY_CATCH_ALL = {"deploy/runtime.py"}
"""A monitor has to stop the robot whatever a policy raises."""


def test_nothing_catches_every_exception() -> None:
    wrong = []
    for path in PACKAGE.rglob("*.py"):
        if path.relative_to(PACKAGE).as_posix() in MAY_CATCH_ALL:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ExceptHandler):
                names = ast.unparse(node.type) if node.type else "everything"
                if names in ("everything", "Exception", "BaseException"):
                    wrong.append(f"{path.relative_to(PACKAGE)}:{node.lineno}")
    assert not wrong, wrong


@pytest.mark.parametrize(("given", "wanted"), [(None, "passive"), ("active", "active")])
def test_torch_is_loaded_with_threads_that_sleep_unless_told_otherwise(
    given: str | None, wanted: str
) -> None:
    watch = """
import os, sys
class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == "torch":
            print("torch finds", os.environ.get("OMP_WAIT_POLICY"))
sys.meta_path.insert(0, Watch())
import statewise
statewise.train
"""
    env = {k: v for k, v in os.environ.items() if k != "OMP_WAIT_POLICY"}
    env |= {"OMP_WAIT_POLICY": given} if given else {}
    done = subprocess.run(
        [sys.executable, "-c", watch], env=env, capture_output=True, text=True, check=True
    )
    assert done.stdout.split("\n")[0] == f"torch finds {wanted}"
