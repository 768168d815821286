"""Text is escaped where it leaves: no name can style, break or steer what a terminal shows."""

import logging
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from attacks import walk
from rich.table import Table

import statewise
from statewise.bench.grid import Grid, RunSpec
from statewise.bench.table import GridView
from statewise.cli import main
from statewise.console import console, printable, say, styled

SUITE = "gym:HostileWalk-v0"
COST = "[red]x"
FEW = {name: value for name, value in walk.SETTINGS.items() if name not in ("algo", "quiet")}
MORE = {name: value for name, value in FEW.items() if name != "tensorboard"}


class HostileWalk(walk.Walk):
    """Its cost is named as a style."""

    def step(self, action: Any) -> Any:
        obs, reward, terminated, truncated, info = super().step(action)
        return obs, reward, terminated, truncated, {"costs": {COST: info["cost"]}}


@pytest.fixture(autouse=True, scope="module")
def registered() -> Any:
    gymnasium.register("HostileWalk-v0", entry_point=HostileWalk, max_episode_steps=8)
    yield
    del gymnasium.registry["HostileWalk-v0"]


@pytest.fixture(params=["a pipe", "a terminal"])
def terminal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether the output is one; it is wide enough for every line."""
    monkeypatch.setenv("COLUMNS", "400")
    if request.param == "a terminal":
        monkeypatch.setenv("FORCE_COLOR", "1")
    return bool(request.param == "a terminal")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run whose folder, label and cost are named as styles."""
    out = tmp_path_factory.mktemp("runs") / "a[" / "b]"
    return statewise.train(SUITE, "cpo", True, out=str(out), label="[red]", **FEW)


def test_training_shows_hostile_names_as_they_are(
    tmp_path: Path, terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    found = statewise.train(
        SUITE, "cpo", out=str(tmp_path / "a[/b]"), label="[red]", tensorboard=True, **MORE
    )
    shown = capsys.readouterr().out
    assert f"finished: {found}" in shown and "a[/b]" in shown and "[red]" in shown
    assert f"{COST} cost" in shown
    assert not terminal or "\x1b[" in shown  # it was drawn as a terminal has it


@pytest.mark.parametrize(
    "command",
    [
        ("evaluate", "--episodes", "2"),
        ("evaluate", "--episodes", "2", "--json", "[bold]/n.json"),
        ("play", "--seconds", "0.2", "--no-speed"),
        ("verify",),
        ("certify", "--episodes", "20", "--out", "[bold]", "--worst", "0"),
        ("plot", "--out", "[bold].png"),
        ("resume",),
    ],
)
def test_commands_show_hostile_names_as_they_are(
    run: Path,
    terminal: bool,
    command: tuple[str, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    name, *options = command
    given = [name, str(run), *options]
    assert main(given) == 0
    shown = capsys.readouterr().out
    wanted = {
        "evaluate": COST,
        "play": COST,
        "certify": COST,
        "verify": str(run),
        "resume": str(run),
    }
    assert wanted.get(name, "[bold]") in shown
    assert "[bold]" not in given or "[bold]" in shown


def test_errors_and_warnings_show_control_characters_as_escapes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", str(tmp_path / "\x1b[2J[/b]\udcff")]) == 2
    assert "\\x1b[2J[/b]\\udcff" in capsys.readouterr().err
    logging.getLogger("statewise").warning("%s is damaged", "\x1b]0;title\x07[/b]")
    assert "\x1b" not in capsys.readouterr().err


def test_a_run_folder_cannot_steer_the_terminal(
    run: Path, tmp_path: Path, terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not with a suite, a label or a cost that somebody else wrote into its files."""
    hostile = "[/x]\x1b]0;owned\x07\u202e:bomb:"
    table = Table(title=hostile)
    table.add_column(hostile)
    table.add_row(hostile)
    table.add_row(styled(hostile, "red"))
    console().print(table)
    console().print(hostile)
    say(hostile)
    shown = capsys.readouterr().out
    assert shown.count(printable(hostile)) == 6
    assert "\x1b]" not in shown and "\u202e" not in shown


def test_the_table_of_a_grid_shows_hostile_names_as_they_are(
    tmp_path: Path, terminal: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    (found,) = Grid([RunSpec("Point-Hazard-8", "cpo")], str(tmp_path / "a[/b]")).open()
    with GridView(console()) as view:
        view([found], "")
        found.state, found.note = "failed", "ValueError: [/x]"
        view([found], "wait for [/node]")
    shown = capsys.readouterr().out
    assert ("wait for [/node]" if terminal else "ValueError: [/x]") in shown
    (found.folder / "config.json").mkdir(parents=True)
    grid = ["bench", "grid", "--suites", "Point-Hazard-8", "--algos", "cpo", "--seeds", "0"]
    assert main([*grid, "--dry-run", "--out", str(tmp_path / "a[/b]")]) == 0
    assert "a[/b]" in capsys.readouterr().out


def test_lists_show_hostile_names_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    class Mine(statewise.get_algorithm("trpo")):  # type: ignore[misc]
        """Ends a style: [/red]."""

        name = "mine"

    statewise.register_algorithm(Mine)
    assert main(["list", "algos"]) == 0
    assert "[/red]" in capsys.readouterr().out
