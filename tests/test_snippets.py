"""The code in the documentation runs, and its commands are understood.

Python blocks of a page, or cells of a notebook, run one after the other in one namespace, in a
folder with trained runs.
Training and evaluation are shortened. A block after `<!-- placeholder -->` is not run: it needs a
GPU, or names of your own. Shell blocks are not run. Their `statewise` commands are parsed, with all
options checked, except those that name a file of the reader's, such as `my_module`.
"""

import json
import re
import shlex
from pathlib import Path

import pytest

import statewise
from statewise import cli

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES += sorted((ROOT / "docs").rglob("*.ipynb"))
PAGES = [p for p in PAGES if not {"_build", "reference"} & set(p.relative_to(ROOT).parts)]
_BLOCK = re.compile(r"(<!-- placeholder -->\s*)?^```(\w+)\n(.*?)^```", re.S | re.M)
_SHORT = "steps=2_000, steps_per_epoch=1_000, num_envs=10, threads=1, out='again/{}'"


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages, without placeholders, or a notebook's cells."""
    if page.suffix == ".ipynb":
        cells = json.loads(page.read_text())["cells"] if "python" in languages else []
        return ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    found = _BLOCK.findall(page.read_text())
    return [code for skip, language, code in found if language in languages and not skip]


def with_blocks(*languages: str) -> list[object]:
    return [
        pytest.param(page, id=str(page.relative_to(ROOT)))
        for page in PAGES
        if blocks(page, *languages)
    ]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two short runs, where readers of the documentation would be."""
    path = tmp_path_factory.mktemp("reader")
    settings = {"steps": 2000, "steps_per_epoch": 1000, "num_envs": 10, "threads": 1, "quiet": True}
    for algo in ("trpo", "scpo"):
        run = statewise.train("Point-Hazard-8", algo, out=str(path / "runs"), **settings)
    worst = run / "worst.npz"
    statewise.evaluate(run, episodes=10, worst=1, worst_out=worst)
    return path


@pytest.mark.parametrize("page", with_blocks("python"))
def test_python_in_the_documentation_runs(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setenv("MPLBACKEND", "agg")  # needs no display
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    namespace: dict[str, object] = {"__name__": "snippet"}
    for number, code in enumerate(blocks(page, "python")):
        place = f"{page.stem}-{number}"
        short = re.sub(r"(?<!\w)steps=[\d_]+", _SHORT.format(place), code)
        short = re.sub(r"episodes=[\d_]+", "episodes=10", short)
        short = re.sub(r"max_violation=[\d.]+", r"\g<0>, budget=16", short)
        exec(compile(short, f"{page.name}, block {number}", "exec"), namespace)


def commands(page: Path) -> list[str]:
    lines = "\n".join(blocks(page, "sh", "console")).replace("\\\n", " ").splitlines()
    found = [line.strip() for line in lines if line.strip().startswith("statewise ")]
    return [line for line in found if "my_" not in line]


@pytest.mark.parametrize("page", with_blocks("sh", "console"))
def test_commands_in_the_documentation_are_understood(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    for line in commands(page):
        args = shlex.split(line, comments=True)[1:]
        try:
            cli.read_command(args)
        except ValueError as error:
            pytest.fail(f"{line}\n{error}")
