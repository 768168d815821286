"""Mistakes on the command line: each is one line that names what was given, before any work."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from synthetic_runs import write_run

import statewise
from statewise.cli import main
from statewise.envs.vec_env import VecEnv
from statewise.training import api


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = str(tmp_path_factory.mktemp("runs"))
    return statewise.train(
        "Point-Hazard-8", out=out, steps=640, steps_per_epoch=320, num_envs=16, tensorboard=False,
        quiet=True, hidden=(8,), critic_iterations=3, threads=1,
    )  # fmt: skip


@pytest.fixture
def no_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """No environment may be stepped: a mistake is told before."""

    def step(*args: object) -> None:
        raise AssertionError("an environment was stepped")

    monkeypatch.setattr(VecEnv, "step", step)


def mistake(args: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line that a wrong command says."""
    assert main(args) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("error: ") and captured.err.count("\n") == 1
    return captured.err.removeprefix("error: ")


def newest(run: Path) -> Path:
    return max((run / "checkpoints").glob("epoch-*.ckpt"))


@pytest.mark.usefixtures("no_steps")
@pytest.mark.parametrize("threshold", ["nan", "inf", "-1"])
def test_a_threshold_that_finds_nothing_or_everything_is_refused(
    threshold: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(["evaluate", str(run), "--threshold", threshold], capsys)
    assert told == f"--threshold is {float(threshold)}: give a finite number, 0 or more\n"
    with pytest.raises(ValueError, match="give a finite number, 0 or more"):
        statewise.evaluate(run, threshold=float(threshold))


def test_the_table_of_an_evaluation_says_its_threshold_unless_it_is_0(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate = ["evaluate", str(run), "--episodes", "1"]
    assert main([*evaluate, "--threshold", "0.1"]) == 0
    assert "episodes that violate hazard (cost above 0.1)" in capsys.readouterr().out
    assert main(evaluate) == 0
    out = capsys.readouterr().out
    assert "episodes that violate hazard " in out and "above" not in out


def test_play_takes_a_checkpoint_file_as_evaluate_does(
    run: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    play = ["--seconds", "0.1", "--no-speed"]
    assert main(["play", str(newest(run)), *play]) == 0
    assert "Point-Hazard-8" in capsys.readouterr().out
    monkeypatch.chdir(run / "checkpoints")  # where its bare name is enough
    assert main(["play", newest(run).name, *play]) == 0
    assert main(["evaluate", newest(run).name, "--episodes", "1"]) == 0


@pytest.mark.parametrize("command", ["play", "evaluate"])
def test_a_path_that_is_not_there_is_said_to_be_missing(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake([command, "runs/typo/seed-0"], capsys)
    assert told.startswith("there is no runs/typo/seed-0: give a run folder")


def test_play_takes_a_folder_for_a_path_unless_it_is_called_as_a_suite(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("elsewhere", "Point-Hazard-1"):
        Path(name).mkdir()
    assert mistake(["play", "elsewhere"], capsys).startswith("elsewhere is not a run")
    # Training with `--out .` makes such a folder, and the suite can still be played.
    assert main(["play", "Point-Hazard-1", "--seconds", "0.1", "--no-speed"]) == 0


def test_play_takes_an_id_with_a_slash_for_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    assert "Gymnasium knows no environment" in mistake(["play", "gym:mine/Walk-v0"], capsys)


@pytest.mark.usefixtures("no_steps")
def test_options_that_would_do_nothing_are_refused(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = str(newest(run))
    for policy in ("zero", "random"):
        told = mistake(["play", str(run), "--policy", policy], capsys)
        assert told.startswith("--policy is for suites") and str(run) in told
    told = mistake(["play", "Point-Hazard-8", "--best-safe"], capsys)
    assert told.startswith("--best-safe is for runs, and Point-Hazard-8 is none")
    for command in ("play", "evaluate"):
        told = mistake([command, file, "--best-safe"], capsys)
        assert told.startswith(f"{file} is one policy already")
    with pytest.raises(ValueError, match="is one policy already"):
        statewise.load_policy(file, best_safe=True)


@pytest.mark.parametrize("command", ["play", "evaluate"])
def test_a_file_that_is_no_checkpoint_is_named_as_it_was_given(
    command: str,
    run: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("afile").touch()
    for given in ("afile", str(run / "config.json")):
        told = mistake([command, given], capsys)
        assert told.startswith(f"{given} is not in the checkpoints of a run: give a run folder")


@pytest.mark.usefixtures("no_steps")
def test_a_place_where_no_numbers_can_be_written_is_told_before_the_episodes(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(["evaluate", str(run), "--json", str(tmp_path)], capsys)
    assert told == f"--json {tmp_path} is a folder: name a file\n"
    (tmp_path / "file").touch()
    told = mistake(["evaluate", str(run), "--json", str(tmp_path / "file" / "x.json")], capsys)
    assert f"{tmp_path / 'file'} is not a folder" in told


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--cost-limit", "-1"], "cost_limit is -1.0: give 0 or more"),
        (["--algo", "trpo", "--gamma", "2"], "--gamma is 2.0: give a number from 0 to 1"),
        (["--hidden", "0", "--seeds", "0,1"], "--hidden is 0: give a number, 1 or more"),
    ],
)
def test_a_wrong_setting_of_an_algorithm_is_one_line_without_names_of_the_parser(
    args: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(["train", "Point-Hazard-8", "--out", str(tmp_path / "runs"), *args], capsys)
    assert told.startswith(message)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algo", "trpo", "--cost-limit", "0.1"], "trpo has no setting --cost-limit: "),
        (["--algo=trpo", "--cost_limit=0.1"], "trpo has no setting --cost_limit: "),
        (["--algo", "trpo", "--no-policy-sees-maximum"],
         "trpo has no setting --no-policy-sees-maximum: "),
    ],
)  # fmt: skip
def test_a_setting_of_other_algorithms_is_told_with_those_that_have_it(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(["train", "Point-Hazard-8", *args], capsys)
    assert told.startswith(message) and "choose an --algo that has it (scpo" in told


def test_settings_of_the_command_line_reach_the_run(tmp_path: Path) -> None:
    """They are parsed without checks and made anew: none may be lost."""
    args = ["--algo", "cpo", "--steps", "320", "--steps-per-epoch", "320", "--num-envs", "16",
            "--no-tensorboard", "--hidden", "8", "--critic-iterations", "3", "--threads", "1",
            "--cost-limit", "0.25", "--gamma", "0.9", "--out", str(tmp_path)]  # fmt: skip
    assert main(["train", "Point-Hazard-1", *args]) == 0
    algo = statewise.load_policy(tmp_path / "Point-Hazard-1" / "cpo" / "seed-0").algo
    expected = type(algo).settings_class(
        hidden=(8,), critic_iterations=3, cost_limit=(0.25,), gamma=0.9
    )
    assert algo.settings == expected and type(algo.settings) is type(expected)


def test_a_demo_that_is_stopped_in_its_training_goes_no_further(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def stopped(suite: str, steps: int, out: str) -> Path:
        return write_run(Path(out), epochs=4, done=3, train={"final_batch": 1})

    monkeypatch.setattr(api, "train", stopped)
    with pytest.raises(SystemExit) as left:
        main(["demo", "--out", str(tmp_path)])
    assert left.value.code == 130
    assert not list(tmp_path.rglob("evaluation.json"))


@pytest.mark.parametrize(
    ("args", "words", "message"),
    [
        (["--num-envs", "-1"], {"num_envs": -1}, "{} is -1: give a number from 0"),
        (["--num-envs", "40", "--steps-per-epoch", "20"], {"num_envs": 40, "steps_per_epoch": 20},
         "lower {} or raise"),
        (["--import", "no_such"], {"imports": ("no_such",)}, "no module 'no_such'"),
    ],
)  # fmt: skip
def test_a_command_line_is_advised_options_and_python_keyword_arguments(
    args: list[str],
    words: dict[str, object],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = mistake(["train", "Point-Hazard-8", "--out", str(tmp_path), *args], capsys)
    assert message.format("--num-envs") in told and "num_envs" not in told
    with pytest.raises(ValueError) as error:
        statewise.train("Point-Hazard-8", out=str(tmp_path), **words)  # type: ignore[arg-type]
    assert message.format("num_envs") in str(error.value) and "--" not in str(error.value)


def test_a_run_that_exists_is_advised_in_the_language_of_the_caller(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(run.parents[2])
    assert "another --seed or --out" in mistake(["train", "Point-Hazard-8", "--out", out], capsys)
    with pytest.raises(ValueError, match=r"another seed or out$"):
        statewise.train("Point-Hazard-8", out=out)


def test_a_wrong_option_names_the_closest_ones_in_one_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    told = mistake(["train", "Point-Hazard-8", "--cost-limt", "1"], capsys)
    assert told.startswith("unknown option --cost-limt. Did you mean --cost-limit")
    assert "`statewise train --help` lists all options" in told
    assert "Did you mean" not in mistake(["train", "Point-Hazard-8", "--zzzzzz"], capsys)
    assert "unknown option --qq" in mistake(["--qq"], capsys)


def test_help_is_wrapped_to_the_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for columns in (70, 100):
        monkeypatch.setenv("COLUMNS", str(columns))
        for args in (["--help"], ["bench", "--help"], ["resume", "--help"]):
            with contextlib.suppress(SystemExit):
                main(args)
            lines = capsys.readouterr().out.splitlines()
            assert max(map(len, lines)) <= columns, args


def test_a_suite_in_another_case_works_and_its_name_is_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("statewise.envs.suites._CORRECTED", set())
    args = ["--steps", "160", "--steps-per-epoch", "160", "--num-envs", "8", "--hidden", "8"]
    out = ["--out", str(tmp_path), "--no-tensorboard", "--quiet"]
    assert main(["train", "point-hazard-8", *args, *out]) == 0
    assert (tmp_path / "Point-Hazard-8" / "scpo" / "seed-0" / "config.json").exists()
    assert [r.getMessage() for r in caplog.records] == ["point-hazard-8 is written Point-Hazard-8"]
    assert statewise.parse_suite("DRONE-3dhazard-4").name == "Drone-3DHazard-4"


def test_a_plan_alone_is_that_of_the_papers_grid(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["bench", "--dry-run", "--seeds", "0", "--algos", "scpo"]) == 0
    out = capsys.readouterr().out
    assert "16 runs: 16 to start" in out and "Humanoid-Hazard-8" in out
    assert not list(tmp_path.iterdir())


def test_a_benchmark_is_named_before_its_options(capsys: pytest.CaptureFixture[str]) -> None:
    told = mistake(["bench", "--jobs", "2"], capsys)
    assert told.startswith("say which benchmark before the options, as in `statewise bench paper")
    assert "Did you mean grid" in mistake(["bench", "gird"], capsys)


def test_a_misspelt_suite_is_not_said_to_be_written_so(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert "Did you mean Point-Hazard-8" in mistake(["train", "point-hazrd-8"], capsys)
    assert not caplog.records


@pytest.mark.parametrize("command", [["evaluate"], ["train"], ["bench", "grid"], ["list"]])
def test_the_help_begins_with_a_usage_of_one_line_and_shows_a_switch_once(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    text = capsys.readouterr().out
    first, second = text.splitlines()[:2]
    assert first.startswith(f"usage: statewise {' '.join(command)}") and second == ""
    assert "--no-sampled" not in text and "(default: False)" not in text


def test_a_switch_that_is_off_can_be_given_as_off(run: Path) -> None:
    assert main(["evaluate", str(run), "--episodes", "2", "--no-sampled", "--quiet"]) == 0


def test_a_quiet_evaluation_prints_nothing_and_writes_its_numbers(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "found.json"
    assert main(["evaluate", str(run), "--episodes", "4", "--quiet", "--json", str(out)]) == 0
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err == ""
    assert json.loads(out.read_text())["episodes"] == 4


def test_one_episode_is_singular(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", str(run), "--episodes", "1"]) == 0
    assert "1 fresh episode, mean actions" in " ".join(capsys.readouterr().out.split())


def test_one_epoch_in_one_world_is_singular(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    size = ["--steps", "20", "--steps-per-epoch", "20", "--num-envs", "1", "--critic-iterations"]
    where = ["--out", str(tmp_path), "--no-tensorboard"]
    assert main(["train", "Point-Hazard-1", *size, "1", *where]) == 0
    assert "seed 0: 1 epoch of 20 steps in 1 world on cpu" in capsys.readouterr().out
    assert main(["resume", str(tmp_path / "Point-Hazard-1" / "scpo" / "seed-0")]) == 0
    assert "is finished: 1 epoch\n" in capsys.readouterr().out


TINY = ["--steps", "20", "--steps-per-epoch", "20", "--num-envs", "1", "--no-tensorboard"]
"""Should a mistake not be told, little is trained."""


@pytest.mark.parametrize(
    ("args", "option"),
    [
        (["train", "Point-Goal", *TINY, "--hidden", "8", "--hidden", "4"], "--hidden"),
        (["bench", "grid", "--set", "gamma=0.9", "--set", "lam=0.9"], "--set"),
    ],
)
def test_values_behind_an_option_that_is_given_twice_are_not_dropped(
    args: list[str], option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(args, capsys)
    assert told == f"{option} is given twice: write all of its values behind one {option}\n"


def test_a_seed_beside_several_seeds_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    told = mistake(["train", "Point-Goal", *TINY, "--seeds", "0..1", "--seed", "5"], capsys)
    assert told == "--seed 5 and --seeds 0..1 are both given: leave out one\n"


@pytest.mark.parametrize("file", ["my_rules.py", "./my_rules.py", "sub/my_rules"])
def test_a_file_in_place_of_a_module_is_answered_with_the_module(
    file: str, capsys: pytest.CaptureFixture[str]
) -> None:
    told = mistake(["train", "Point-Goal", *TINY, "--import", file], capsys)
    assert told.startswith(
        f"--import {file} is a file: give the name of the module, --import my_rules"
    )


def test_help_and_version_may_be_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["help"]) == main(["version"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith("usage: statewise COMMAND") and "\nstatewise 0" in printed
    with pytest.raises(SystemExit):
        main(["help", "resume"])
    assert capsys.readouterr().out.startswith("usage: statewise resume RUN")


def test_a_suite_in_place_of_a_run_is_answered_with_its_policies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    told = mistake(["evaluate", "Point-Hazard-8"], capsys)
    assert "comes with statewise, give --policy scpo or --policy trpo" in told
    with pytest.raises(ValueError, match=r"give statewise.pretrained\('Point-Hazard-8', 'scpo'\)"):
        statewise.evaluate("Point-Hazard-8")
    assert "--policy" not in mistake(["evaluate", "Ant-Hazard-8"], capsys)


def test_a_report_of_nothing_asks_for_a_folder(capsys: pytest.CaptureFixture[str]) -> None:
    assert "name at least one folder that holds runs" in mistake(["report"], capsys)


def test_policies_that_come_along_say_how_their_worst_episodes_are_kept(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["evaluate", "Point-Hazard-8", "--policy", "scpo", "--episodes", "2"]) == 0
    assert "not kept: --json FILE keeps them" in capsys.readouterr().out


RULES = """
import statewise, torch

@statewise.constraint("BrokenRule")
def broken(world):
    return {}["clearance"]

@statewise.constraint("NumberRule")
def number(world):
    return 1.0
"""


def test_a_rule_that_raises_is_one_line_with_its_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "broken_rules.py").write_text(RULES)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    told = mistake(["train", "Point-BrokenRule", *TINY, "--import", "broken_rules"], capsys)
    assert "the constraint BrokenRule of Point-BrokenRule: `clearance` raised KeyError" in told
    assert told.endswith(f"({tmp_path / 'broken_rules.py'}, line 6)\n")
    told = mistake(["train", "Point-NumberRule", *TINY, "--import", "broken_rules"], capsys)
    assert "NumberRule returned a float for 3 worlds: return floats of shape (3,)" in told
    assert not (tmp_path / "runs").exists()
