"""The base stays small: what is missing is named with its extra, and what is packed is complete."""

import fnmatch
import re
import sys
import tomllib
from pathlib import Path

import pytest

from statewise import extras
from statewise.cli import main
from statewise.training.config import TrainSettings

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OPTIONAL = PROJECT["project"]["optional-dependencies"]
IMPORTED_AS = {"pillow": "PIL", "warp-lang": "warp", "grpcio": "grpc"}
NOT_IMPORTED = {"tornado", "protobuf"}
"""Listed for a lower bound only: bokeh, tensorboard and onnx need them."""


def names(requirements: list[str]) -> set[str]:
    return {re.split(r"[\[<>=]", line)[0] for line in requirements}


@pytest.fixture
def base_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """An installation without extras."""
    for module in (module for modules in extras.PACKAGES.values() for module in modules):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.parametrize("extra", extras.PACKAGES)
def test_the_modules_of_an_extra_are_those_that_it_installs(extra: str) -> None:
    wanted = names(OPTIONAL[extra]) - NOT_IMPORTED
    modules = {IMPORTED_AS.get(name, name.replace("-", "_")) for name in wanted}
    modules = {"markdown_it" if name == "markdown_it_py" else name for name in modules}
    assert set(extras.PACKAGES[extra]) - {"imageio_ffmpeg"} == modules


def test_the_extra_all_has_every_extra_but_dev() -> None:
    (everything,) = OPTIONAL["all"]
    assert set(re.findall(r"[\w]+", everything)) - {"statewise"} == set(OPTIONAL) - {"all", "dev"}


@pytest.mark.parametrize(
    ("command", "extra"),
    [
        ("plot runs", "report"),
        ("report runs", "report"),
        ("bench ablations", "report"),
        ("play Point-Hazard-8 --video a.mp4", "video"),
        ("demo", "report"),
        ("export runs", "export"),
        ("train Point-Hazard-8 --tensorboard", "tracking"),
        ("train Point-Hazard-8 --wandb", "tracking"),
        ("train Point-Hazard-8 --device warp-cpu", "gpu"),
    ],
)
def test_a_command_without_its_extra_names_it_in_one_line(
    base_only: None, command: str, extra: str, tmp_path: Path,
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert main(command.split()) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"pip install 'statewise[{extra}]'")
    assert not list(tmp_path.rglob("*.mp4"))


def test_tensorboard_is_on_by_default_only_if_it_is_installed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for there in (True, False):
        monkeypatch.setattr("statewise.training.config.installed", lambda name, there=there: there)
        settings = TrainSettings(suite="Point-Hazard-8", device="cpu")
        assert settings.resolved().tensorboard is there


def test_every_file_of_the_package_is_packed() -> None:
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["statewise"]
    package = ROOT / "statewise"
    files = [
        path.relative_to(package)
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in {".py", ".pyc"}
    ]
    assert len(files) > 10
    left_out = [str(file) for file in files if not any(matches(file, p) for p in patterns)]
    assert not left_out, f"add them to package-data in pyproject.toml: {left_out}"


def matches(file: Path, pattern: str) -> bool:
    """As setuptools: `*` stays in a folder, `**` goes through any number of them."""
    start, deep, end = pattern.partition("/**/")
    if deep:
        return file.as_posix().startswith(start + "/") and fnmatch.fnmatch(file.name, end)
    parts = pattern.split("/")
    return len(parts) == len(file.parts) and all(map(fnmatch.fnmatch, file.parts, parts))


def test_every_requirement_has_a_pinned_version() -> None:
    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pinned = {plain(line.split("==")[0]) for line in lines if "==" in line}
    wanted = [PROJECT["project"]["dependencies"], *OPTIONAL.values()]
    missing = {plain(name) for group in wanted for name in names(group)} - pinned - {"statewise"}
    assert not missing, missing
