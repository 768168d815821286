"""Promises about plug-ins: they are imported first, on request only, and their faults are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import statewise
from statewise.cli import main
from statewise.plugins import PluginError, import_for_run, import_modules

PLUGIN = """
import statewise
from statewise.algos.trpo import Trpo

@statewise.register_algorithm
class Mine(Trpo):
    "TRPO under another name."
    name = "mine"
"""
SMALL = ["--steps", "640", "--steps-per-epoch", "320", "--num-envs", "16", "--hidden", "8",
         "--critic-iterations", "3", "--threads", "1", "--no-tensorboard"]  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder to work in, with a plug-in."""
    (tmp_path / "my_algo.py").write_text(PLUGIN)
    return tmp_path


def command(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    """Run `statewise` in a process of its own, which has imported nothing yet."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "statewise.cli", *args],  # -P: as the installed command is run
        cwd=folder, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip


def test_an_algorithm_in_a_file_of_ones_own_is_a_citizen_of_every_command(folder: Path) -> None:
    mine = ("--import", "my_algo")
    done = command(folder, "train", "Point-Hazard-1", "--algo", "mine", *mine, *SMALL)
    assert done.returncode == 0, done.stderr
    run = "runs/Point-Hazard-1/mine/seed-0"
    config = json.loads((folder / run / "config.json").read_text())
    assert config["train"]["imports"] == ["my_algo"]
    for args in (
        ("list", "algos", *mine),
        ("evaluate", run, "--episodes", "2", *mine),
        ("play", run, "--seconds", "0.1", "--no-speed", *mine),
        ("certify", run, "--max-violation", "0.9", "--episodes", "8", *mine),
        ("verify", f"{run}/certificate.json", run, *mine),
        ("verify", f"{run}/certificate.json", run, "--trust"),
        ("plot", run, *mine),
        ("report", "runs", *mine),
        ("resume", run, *mine),
        ("bench", "grid", "--suites", "Point-Hazard-1", "--algos", "mine", "--seeds", "1", *mine,
         "--steps", "640", "--num-envs", "16", "--set", "steps_per_epoch=320", "hidden=8"),
    ):  # fmt: skip
        done = command(folder, *args)
        assert done.returncode == 0, (args, done.stdout, done.stderr)
    assert (folder / "runs/Point-Hazard-1/mine/seed-1/metrics.jsonl").exists()
    refused = command(folder, "verify", f"{run}/certificate.json", run)
    assert refused.returncode == 2 and "--import my_algo" in refused.stderr


def test_a_run_folder_has_no_code_run_unless_the_user_names_it_or_says_trust(folder: Path) -> None:
    done = command(folder, "train", "Point-Hazard-1", "--algo", "trpo", *SMALL)
    assert done.returncode == 0, done.stderr
    run = folder / "runs/Point-Hazard-1/trpo/seed-0"
    config = json.loads((run / "config.json").read_text())
    config["train"]["imports"] = ["evil"]
    (run / "config.json").write_text(json.dumps(config))
    (folder / "evil.py").write_text("open('executed', 'w').close()")
    for args in (("evaluate", str(run)), ("play", str(run)), ("resume", str(run))):
        done = command(folder, *args)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "--import evil" in done.stderr and "--trust" in done.stderr
        assert not (folder / "executed").exists()
    done = command(folder, "evaluate", str(run), "--episodes", "1", "--trust")
    assert done.returncode == 0, done.stderr
    assert (folder / "executed").exists()


def test_an_environment_that_a_run_folder_names_is_not_imported_either(tmp_path: Path) -> None:
    config = {"train": {"suite": "gym:evil_module:X-v0", "imports": []}}
    with pytest.raises(PluginError, match="add imports='evil_module'"):
        import_for_run(tmp_path, config)


def test_an_import_that_fails_names_the_module_and_shows_its_error(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (folder / "broken_plugin.py").write_text("x = 1\ny = 1 / 0\n")
    (folder / "lacking_plugin.py").write_text("import no_such_dependency\n")
    for name, error in (("broken_plugin", "ZeroDivisionError: division by zero"),
                        ("lacking_plugin", "No module named 'no_such_dependency'")):  # fmt: skip
        assert main(["train", "Point-Hazard-1", "--import", name]) == 2
        told = capsys.readouterr().err
        assert name in told and error in told and "line" in told and told.count("\n") == 1
    assert main(["train", "Point-Hazard-1", "--import", "not_there"]) == 2
    assert "no module 'not_there' to import" in capsys.readouterr().err


def test_a_run_whose_plug_in_is_missing_says_which_import_it_wants(folder: Path) -> None:
    done = command(
        folder, "train", "Point-Hazard-1", "--algo", "mine", "--import", "my_algo", *SMALL
    )
    assert done.returncode == 0, done.stderr
    (folder / "my_algo.py").unlink()
    done = command(folder, "evaluate", "runs/Point-Hazard-1/mine/seed-0")
    assert done.returncode == 2 and "--import my_algo" in done.stderr
    done = command(folder, "report", "runs")  # the numbers can be read without the plug-in
    assert done.returncode == 0, done.stderr


def test_the_search_path_is_left_alone_where_no_module_is_asked_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [p for p in sys.path if p])
    before = list(sys.path)
    import_modules(())
    assert sys.path == before
    import_modules("json")
    assert sys.path == [*before, str(tmp_path)]


def test_a_folder_named_as_a_library_does_not_stand_in_for_it(folder: Path) -> None:
    (folder / "triton.py").write_text("raise SystemExit('the wrong triton')")
    done = command(folder, "train", "Point-Hazard-1", "--algo", "trpo", *SMALL)
    assert done.returncode == 0, done.stderr


def test_imports_from_python_come_first_too(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = (
        "import statewise; print(statewise.train('Point-Hazard-1', 'mine', imports='my_algo', "
        "steps=320, steps_per_epoch=320, num_envs=16, hidden=8, quiet=True, tensorboard=False))"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=folder, capture_output=True, text=True,
                          check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert statewise.__version__ and done.stdout.strip().endswith("mine/seed-0")
