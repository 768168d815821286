"""Mistakes in the settings of a training: said before anything is made, with what to give."""

import dataclasses
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium import spaces
from test_runs import SMALL

import statewise
from statewise.algos import ALGORITHMS, get_algorithm
from statewise.cli import main
from statewise.envs.from_gym import NO_LIMIT
from statewise.runs.folder import RunFolder
from statewise.training.config import TrainSettings

SHORT = SMALL | {"steps": 160}


def config(run: Path) -> dict[str, Any]:
    """All settings of a run, as they were written down."""
    written = RunFolder.open(run).config()
    return written["train"] | written["algorithm"]


@pytest.mark.parametrize("label", ["../../../escaped", "..", ".", "a/b", "a\\b", "  "])
def test_a_label_that_leads_out_of_its_folder_is_refused(tmp_path: Path, label: str) -> None:
    out = tmp_path / "a" / "b" / "c"
    with pytest.raises(ValueError, match="cannot name a folder: give one without slashes"):
        statewise.train("Point-Hazard-1", "trpo", label=label, out=out, **SHORT)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("label", ["", "my variant", "scpo-0.1", "...", ".hidden"])
def test_a_label_that_names_a_folder_is_taken(label: str) -> None:
    settings = TrainSettings("Point-Hazard-1", label=label, out="runs").resolved()
    assert settings.folder == Path("runs/Point-Hazard-1", label or "scpo", "seed-0")


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("rescue", "no", "True or False"),
        ("spread_ages", "off", "True or False"),
        ("compact", 1, "True or False"),
        ("steps", "abc", "a whole number"),
        ("steps", 160.5, "a whole number"),
        ("steps", float("nan"), "a whole number"),
        ("seed", True, "a whole number"),
        ("seed", None, "a whole number"),
        ("target_kl", "0.01", "a number"),
        ("target_kl", (0.01,), "a number"),
        ("hidden", "64", "a whole number, or several"),
        ("hidden", (64, "x"), "a whole number, or several"),
        ("cost_limit", "0.1", "a number, or several"),
        ("imports", (5,), "a string, or several"),
        ("label", 5, "a string"),
        ("out", 5, "a string"),
        ("suite", 5, "a string"),
        ("algo", None, "a string"),
    ],
)
def test_a_value_of_a_wrong_type_is_refused_with_what_is_wanted(
    tmp_path: Path, name: str, value: Any, wanted: str
) -> None:
    given = SHORT | {"suite": "Point-Hazard-1", "out": tmp_path, name: value}
    with pytest.raises(ValueError) as caught:
        statewise.train(**given)
    assert str(caught.value) == f"{name} is {value!r}: give {wanted}"
    assert not list(tmp_path.iterdir())


def test_values_that_mean_the_same_are_taken_as_the_type_of_the_setting(tmp_path: Path) -> None:
    given = {"steps": 1.6e2, "seed": np.int64(3), "hidden": 8, "cost_limit": [0, 0.5][:1],
             "imports": "math", "target_kl": np.float32(0.5), "gamma": 1}  # fmt: skip
    wanted = {"steps": 160, "seed": 3, "hidden": [8], "cost_limit": [0.0], "imports": ["math"],
              "target_kl": 0.5, "gamma": 1.0}  # fmt: skip
    written = config(statewise.train("Point-Hazard-1", out=tmp_path, **SHORT | given))
    assert {name: repr(written[name]) for name in wanted} == {k: repr(v) for k, v in wanted.items()}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_spread_that_is_not_finite_is_refused_before_a_folder_is_made(
    tmp_path: Path, value: float
) -> None:
    with pytest.raises(ValueError, match=f"log_std is {value}: give a finite number"):
        statewise.train("Point-Hazard-1", out=tmp_path, log_std=value, **SHORT)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ALGORITHMS)
def test_no_setting_may_be_nan(name: str) -> None:
    kind = get_algorithm(name).settings_class
    for field in dataclasses.fields(kind):
        if isinstance(field.default, float):
            with pytest.raises(ValueError, match=f"^{field.name} is nan: give"):
                kind(**{field.name: float("nan")})


@pytest.mark.parametrize("more", [(), ("--seeds", "0..1")])
def test_a_file_where_runs_should_go_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    there = tmp_path / "afile"
    there.touch()
    assert main(["train", "Point-Hazard-1", "--out", str(there), *more]) == 2
    assert f"{there} is not a folder; choose another place" in capsys.readouterr().err


class Endless(gymnasium.Env):
    """Never ends by itself."""

    observation_space = spaces.Box(-1.0, 1.0, (1,))
    action_space = spaces.Box(-1.0, 1.0, (1,))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 0.0, False, False, {"cost": 0.0}


gymnasium.register("TestEndless-v0", entry_point=Endless)
gymnasium.register("TestLimited-v0", entry_point=Endless, max_episode_steps=10)


def test_an_environment_without_a_time_limit_is_warned_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statewise.train("gym:TestLimited-v0", "trpo", out=tmp_path, **SHORT)
    assert not caplog.records
    statewise.train("gym:TestEndless-v0", "trpo", out=tmp_path, **SHORT | {"steps": 320})
    (record,) = caplog.records
    said = record.getMessage()
    assert said.startswith("gym:TestEndless-v0 has no time limit") and str(NO_LIMIT) in said
    assert "register it with max_episode_steps" in said


def test_the_help_says_that_steps_are_rounded_to_whole_epochs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        main(["train", "--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "such as 600000 or 6M, rounded to whole epochs" in shown
    page = (Path(__file__).parents[2] / "docs" / "training.md").read_text()
    assert "total environment steps, rounded to whole epochs" in page


def test_a_margin_that_no_start_leaves_room_for_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    statewise.train("Point-Hazard-1-Speed-2", margin=(0.05, 5.0), out=tmp_path, **SHORT)
    told = [record.getMessage() for record in caplog.records if "margin" in record.getMessage()]
    assert told == [
        "the margin of speed is 5 m/s, and no episode starts further than 2 m/s from breaking it: "
        "every episode begins with a training cost. Lower margin"
    ]
