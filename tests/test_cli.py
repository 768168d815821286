"""The `statewise` command: what it prints, what it writes, how it fails."""

from __future__ import annotations

import io
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from rich.console import Console

from statewise import PAPER_SUITES, __version__, make_env, robot_names
from statewise.cli import COMMANDS, main
from statewise.cli_tables import evaluation_table
from statewise.envs.constraints import CONSTRAINTS
from statewise.envs.render import DrawError, Renderer
from statewise.envs.tasks import TASKS
from statewise.training.evaluate import Evaluation, Violation


def test_list_suites_has_every_suite_with_its_sizes(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "suites"]) == 0
    rows = table_rows(capsys.readouterr().out)
    assert sorted(rows) == sorted(PAPER_SUITES)
    #                                 obs   act  radius keepout goal rate
    assert rows["Point-Hazard-1"] == ["79", "2", "0.6", "0.4", "0.3", "50"]
    assert rows["Drone-3DHazard-4"] == ["135", "4", "0.5", "0.5", "0.5", "12.5"]


def test_list_robots_has_every_robot(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "robots"]) == 0
    rows = table_rows(capsys.readouterr().out)
    assert sorted(rows) == sorted(robot_names())
    assert rows["Humanoid"] == ["48", "115", "17", "Hazard, Pillar", "0.5", "33.3"]


@pytest.mark.parametrize("what", ["algos", "suites", "robots", "constraints", "tasks"])
def test_every_list_is_whole_in_a_terminal_of_80_columns(
    what: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.console.PlainConsole.is_terminal", True)
    monkeypatch.setenv("COLUMNS", "80")
    assert main(["list", what]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert max(len(re.sub(r"\x1b\[[\d;]*m", "", line)) for line in lines) <= 80
    assert not any("…" in line for line in lines)


def test_list_constraints_and_tasks_have_every_one_with_its_numbers(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["list", "constraints"]) == 0
    rows = table_rows(capsys.readouterr().out)
    names = {usage.split("-")[0] for usage in rows} - {"", "constraint"}
    assert names == set(CONSTRAINTS.entries)
    assert rows["Speed-LIMIT"][0] == "m/s"
    assert main(["list", "tasks"]) == 0
    rows = table_rows(capsys.readouterr().out)
    assert {usage.split("-")[0] for usage in rows} - {"", "task"} == set(TASKS.entries)
    assert "Run-[TOP]" in rows


def table_rows(text: str) -> dict[str, list[str]]:
    """The body of a table: first cell to the others."""
    lines = [line.strip("│\n").split("│") for line in text.splitlines() if line.startswith("│")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_every_command_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    for name in COMMANDS:
        try:
            status = main([*name.split(), "--help"])
        except SystemExit as stopped:
            status = int(stopped.code or 0)
        assert status == 0
        assert f"statewise {name}" in capsys.readouterr().out


def test_the_help_names_every_command_without_loading_torch() -> None:
    script = "import sys; from statewise.cli import main; main(['--help']); print('torch' in sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    *lines, loaded = done.stdout.splitlines()
    assert loaded == "False"
    named = {line.split()[0] for line in lines if line.startswith("  ")}
    assert named == {name for name in COMMANDS if " " not in name} | {"--help", "--version"}


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"statewise {__version__}\n"


def test_play_writes_a_video_of_the_time_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import imageio.v2 as imageio

    need_drawing()
    path = tmp_path / "out" / "point.mp4"
    status = main(["play", "Point-Hazard-1", "--video", str(path), "--seconds", "0.4",
                   "--width", "160", "--height", "120", "--no-speed"])  # fmt: skip
    assert status == 0
    reader = imageio.get_reader(path)
    # 0.4 s at 50 Hz are 20 steps. Every fourth one is a frame: 12.5 a second.
    assert reader.count_frames() == 5
    assert reader.get_meta_data()["fps"] == pytest.approx(12.5, abs=0.1)
    assert reader.get_data(0).shape == (120, 160, 3)
    out = capsys.readouterr().out
    assert "simulator faults" in out and str(path) in out


def test_play_prints_a_summary_and_its_speed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.commands.play._SPEED_SECONDS", 0.1)
    args = ["play", "Point-Hazard-1-Pillar-1", "--policy", "zero", "--seconds", "0.2"]
    assert main(args) == 0
    out = capsys.readouterr().out
    for line in ("0 finished episodes", "hazard cost, largest", "pillar cost, largest",
                 "simulator faults", "environment steps/s (256 worlds"):  # fmt: skip
        assert line in out


def test_play_is_the_same_for_the_same_seed(capsys: pytest.CaptureFixture[str]) -> None:
    def play(seed: int) -> str:
        assert main(["play", "Point-Hazard-1", "--seconds", "2", "--no-speed",
                     "--seed", str(seed)]) == 0  # fmt: skip
        return capsys.readouterr().out

    assert play(1) == play(1)
    assert play(1) != play(2)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["play", "Pont-Hazard-8"], "Did you mean Point-Hazard-8"),
        (["play", "Point-Hazard-0"], "whole number from 1"),
        (
            ["play", "Point-Hazard-8", "--seconds", "-1"],
            "seconds is -1.0: give a finite number, above 0",
        ),
        (["play", "Point-Hazard-8", "--video", "out.avi"], "end it in .mp4 or .gif"),
        (["play", "Point-Hazard-8", "--video", "/proc/none/out.mp4"], "cannot write a video"),
    ],
)
def test_wrong_input_is_one_line_and_status_2(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and message in captured.err
    assert captured.err.count("\n") == 1


def test_unknown_suite_leaves_the_process_with_status_2_and_no_traceback() -> None:
    command = [sys.executable, "-m", "statewise.cli", "play", "Point-Hazzard-8"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    assert "Point-Hazard-8" in done.stderr and "Traceback" not in done.stderr


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
def test_a_gpu_that_is_not_there_is_said_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "Point-Hazard-8", "--device", "cuda"]) == 2
    assert "needs a CUDA GPU, and none is to be found here" in capsys.readouterr().err


def test_missing_packages_of_a_gpu_are_said_with_the_install_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "statewise.sim.gpu", raising=False)
    monkeypatch.setitem(sys.modules, "mujoco_warp", None)
    assert main(["train", "Point-Hazard-8", "--device", "cuda"]) == 2
    assert "pip install 'statewise[gpu]'" in capsys.readouterr().err


def test_a_mistake_of_ours_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object) -> None:
        raise KeyError("a bug")

    monkeypatch.setattr("statewise.commands.play.play_table", broken)
    with pytest.raises(KeyError):
        main(["play", "Point-Hazard-1", "--seconds", "0.1", "--no-speed"])


def need_drawing() -> None:
    try:
        Renderer(make_env("Point-Hazard-1"), 32, 32).close()
    except DrawError as error:
        pytest.skip(f"nothing can be drawn here: {error}")


def test_suites_page_has_the_numbers_that_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    page = Path(__file__).parents[1] / "docs" / "suites.md"
    lines = [line.strip("| ").split(" | ") for line in page.read_text().splitlines()]
    written = {cells[0]: cells[1:] for cells in lines if cells[0] in PAPER_SUITES and cells[1:]}
    written = {name: cells for name, cells in written.items() if len(cells) == 8}
    # The page also has what the name of a suite says, and the steps of an episode.
    written = {name: [*c[:2], *c[3:6], c[7]] for name, c in written.items()}
    main(["list", "suites"])
    assert written == table_rows(capsys.readouterr().out)


def test_an_evaluation_shows_one_violation_among_many_episodes() -> None:
    one = Violation("hazard", 0.001, 0.001, 0.1, 0.001, 1, 1 / 5000, 5e-6, 1.1e-3, 0.2, -0.1)
    found = Evaluation(
        suite="Point-Hazard-8", algo="scpo", episodes=5000, seed=0, sampled=False, threshold=0.0,
        mean_return=2.0, return_std=0.1, length=80.0, success=1.0, sim_faults=0, constraints=(one,),
    )  # fmt: skip
    console = Console(width=200, file=io.StringIO())
    console.print(evaluation_table(found))
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "0.020 % (95 % interval 0.00050 % to 0.11 %)" in text
    assert "successful episodes" in text and "100.0 %" in text
