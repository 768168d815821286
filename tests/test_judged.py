"""Runs are judged by fresh episodes of their final policy, with the actions that are deployed."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_judged, write_run

import statewise
from statewise.bench.grid import product_grid
from statewise.report.assemble import assemble
from statewise.report.markdown import markdown
from statewise.runs.export import export_runs
from statewise.runs.judged import JUDGED
from statewise.runs.reader import find_runs
from statewise.runs.verify import verify_export
from statewise.training.api import train_seeds
from statewise.training.config import parse_run
from statewise.training.evaluate import evaluate
from statewise.training.policy import worlds_for

SMALL: dict[str, Any] = {
    "num_envs": 8, "steps": 1600, "steps_per_epoch": 800, "judge": 12, "threads": 1,
    "critic_iterations": 2, "quiet": True, "tensorboard": False, "device": "cpu",
}  # fmt: skip


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return statewise.train("Point-Hazard-8", out=str(tmp_path_factory.mktemp("runs")), **SMALL)


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return Path(shutil.copytree(trained, tmp_path / "Point-Hazard-8" / "scpo" / "seed-0"))


def judged(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / JUDGED).read_text())
    return found


def test_the_final_policy_is_judged_as_evaluate_does(run: Path) -> None:
    found, policy = judged(run), statewise.load_policy(run)
    with worlds_for(
        policy, SMALL["num_envs"], 7
    ) as env:  # as many as in training: the same layouts
        asked = evaluate(policy.algo, env, 12, 7)
    assert (found["epoch"], found["episodes"], found["seed"]) == (2, 12, 7)
    assert (found["mean_return"], found["success"]) == (asked.mean_return, asked.success)
    (ours,), (theirs,) = found["constraints"], asked.constraints
    assert (ours["name"], ours["violations"]) == (theirs.name, theirs.violations)
    assert (ours["episode_cost"], ours["max_cost"]) == (theirs.episode_cost, theirs.max_cost)


def test_a_finished_run_that_was_not_judged_is_judged_when_it_is_resumed(run: Path) -> None:
    before = judged(run)
    (run / JUDGED).unlink()
    statewise.resume(run, quiet=True)
    assert judged(run) == before


def test_a_grid_goes_on_with_a_run_that_was_stopped_before_it_was_judged(run: Path) -> None:
    given = {name: value for name, value in SMALL.items() if name not in ("quiet", "tensorboard")}
    grid = product_grid(["Point-Hazard-8"], ["scpo"], [0], str(run.parents[2]), given)
    assert [found.state for found in grid.open()] == ["finished"]
    (run / JUDGED).write_text("{}")  # or half a file
    assert [found.state for found in grid.open()] == ["interrupted"]


def test_an_extended_run_is_judged_anew(run: Path) -> None:
    statewise.resume(run, steps=2400, quiet=True)
    assert judged(run)["epoch"] == 3


def test_a_user_sees_how_the_policy_was_judged(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (run / JUDGED).unlink()
    statewise.resume(run)
    said = capsys.readouterr().out
    assert "judging the final policy by 12 fresh episodes" in said
    assert f"return {judged(run)['mean_return']:.3f}" in said and "violate hazard" in said


def test_a_run_without_checkpoints_is_not_judged(
    run: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Only its weights at the start could be judged, which are not its policy."""
    shutil.rmtree(run / "checkpoints")
    (run / JUDGED).unlink()
    given = {"suite": "Point-Hazard-8", "algo": "scpo", "out": str(run.parents[2])} | SMALL
    del given["quiet"]
    train_seeds(*parse_run(given, text=False), seeds=[0], quiet=True)
    assert not (run / JUDGED).exists() and "no checkpoint left to judge" in caplog.text


def test_an_export_carries_the_verdict_and_notices_a_changed_one(run: Path, tmp_path: Path) -> None:
    (kept,) = export_runs(find_runs([run]).runs, tmp_path / "export")
    assert judged(kept) == judged(run)
    assert all(check.good for check in verify_export(kept))
    (kept / JUDGED).write_text(json.dumps(judged(run) | {"mean_return": 9.0}))
    assert [check.what for check in verify_export(kept) if not check.good] == [JUDGED]
    (kept / JUDGED).unlink()
    assert [check.what for check in verify_export(kept) if not check.good] == [JUDGED]


def test_the_report_shows_final_policies_with_an_interval_over_seeds(tmp_path: Path) -> None:
    for seed, violations in enumerate((2, 10, 30)):
        write_judged(write_run(tmp_path, seed=seed), violations, earned=2.0 + seed)
    report = assemble(find_runs([tmp_path]))
    table = next(t for t in report.suites[0].tables if t.caption == "Final policies")
    row = dict(zip((c.name for c in table.columns), table.rows[0].cells, strict=True))
    assert row["violation rate"].text == "1.4 %" and row["episodes"].text == "3,000"
    assert row["return"].text == "3.00 ± 1.00" and row["task done"].text == "98.0 %"
    low, high = (float(x) for x in row["95 % interval"].text.replace(" %", "").split(" to "))
    assert low < 0.3 and high > 4  # of three seeds that differ, not of 3000 like episodes
    assert "final violation rate, SCPO" in markdown(report)


def test_a_method_with_a_seed_that_was_not_judged_is_not_shown_as_judged(tmp_path: Path) -> None:
    write_judged(write_run(tmp_path, seed=0))
    write_run(tmp_path, seed=1)
    assert "Final policies" not in markdown(assemble(find_runs([tmp_path])))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"epoch": 7}, "is of epoch 7, not of the last one"),
        ({"episodes": 5}, "more episodes than there are violate hazard"),
        ({"mean_return": "good"}, "cannot be used"),
        ({"constraints": [{"name": "hazard"}]}, "cannot be used"),
    ],
)
def test_a_verdict_that_cannot_be_right_is_left_out_and_said(
    values: dict[str, Any], said: str, tmp_path: Path
) -> None:
    run = write_run(tmp_path)
    write_judged(run, **values)
    (found,) = find_runs([tmp_path]).runs
    assert found.judged is None and any(said in note for note in found.notes)
