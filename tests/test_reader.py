"""Runs as data: one reader for reports, plots, grids and your own analysis."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import write_run

import statewise
from statewise.runs import reader
from statewise.runs.differences import INCIDENTAL, differences, differing, suffix
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.reader import find_runs, last_epoch, read_epochs
from statewise.runs.shapes import check


def test_runs_are_one_tidy_table(tmp_path: Path) -> None:
    write_run(tmp_path, algo="scpo", seed=0, epochs=3, epoch=lambda n: {"mine/number": 2.0 * n})
    write_run(tmp_path, algo="trpo", seed=4, epochs=2, label="trpo-mine")
    table = statewise.read_runs(tmp_path)
    first = ["suite", "algorithm", "label", "seed", "epoch", "steps"]
    assert list(table.columns[:6]) == first
    assert list(table["label"]) == ["scpo"] * 3 + ["trpo-mine"] * 2
    assert list(table["epoch"]) == [1, 2, 3, 1, 2] and table["steps"].dtype.kind == "i"
    assert table["mine/number"].dropna().tolist() == [2.0, 4.0, 6.0]  # only the first run has it
    means = table.groupby(["suite", "label"])["episode/return"].mean()
    assert means["Point-Hazard-8", "scpo"] == 2.5


def test_several_folders_make_one_table_and_damage_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_run(tmp_path / "a", seed=0, epochs=3)
    cut = write_run(tmp_path / "b", seed=1, epochs=3) / "metrics.jsonl"
    cut.write_text(cut.read_text()[:-9])
    with caplog.at_level(logging.WARNING):
        table = statewise.read_runs([tmp_path / "a", str(tmp_path / "b")])
    assert list(table["seed"]) == [0, 0, 0, 1, 1]
    assert f"{cut.parent}: metrics.jsonl is cut short" in caplog.text


def test_a_run_of_an_algorithm_that_is_not_registered_is_read(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config["train"]["algo"], config["algorithm"] = "theirs", {"temperature": 0.5}
    path.write_text(json.dumps(config))
    (run,) = find_runs([tmp_path]).runs
    assert (run.algo, run.settings["temperature"]) == ("theirs", 0.5)


def test_reading_needs_pandas_only_for_the_table(tmp_path: Path) -> None:
    write_run(tmp_path, episodes=False, epoch=lambda n: {"episode/count": 0})
    script = ("import sys; from pathlib import Path; from statewise.runs.reader import find_runs; "
              f"find_runs([Path({str(tmp_path)!r})]); assert 'pandas' not in sys.modules")  # fmt: skip
    subprocess.run([sys.executable, "-c", script], check=True)


def test_each_run_is_read_once_for_report_and_export(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from statewise.cli import main

    for algo in ("scpo", "trpo", "cpo"):
        write_run(tmp_path / "runs", algo=algo)
    read: list[Path] = []

    def counted(folder: Path) -> Any:
        read.append(folder)
        return read_epochs(folder)

    monkeypatch.setattr(reader, "read_epochs", counted)
    out, small = str(tmp_path / "report"), str(tmp_path / "small")
    assert main(["report", str(tmp_path / "runs"), "--out", out, "--export", small]) == 0
    assert len(read) == len(set(read)) == 3


def test_the_last_epoch_is_read_from_the_end_of_the_file(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=2000, episodes=False) / "metrics.jsonl"
    assert path.stat().st_size > 2 * reader._TAIL
    assert last_epoch(path.parent)["epoch"] == 2000
    path.write_text(path.read_text()[:-9])  # an epoch that is being written
    assert last_epoch(path.parent)["epoch"] == 1999
    path.write_text("null\n")
    with pytest.raises(ValueError, match="it is None, not an object"):
        last_epoch(path.parent)
    path.unlink()
    assert last_epoch(path.parent) == {}


def test_a_run_that_goes_on_is_read_strictly_and_a_report_tolerantly(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=20) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], "{\n", *lines[5:]]))
    epochs, (note,) = read_epochs(path.parent)
    assert len(epochs) == 4 and "damaged in line 5" in note
    with pytest.raises(RunFolderError, match=r"line 5 .*put it back from a copy"):
        RunFolder.open(path.parent).metrics()


def test_all_metrics_are_columns_with_gaps(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=3, epoch=lambda n: {"policy/kl": 0.1} if n == 2 else {})
    (run,) = find_runs([tmp_path]).runs
    assert np.isnan(run.metrics["policy/kl"]).tolist() == [True, False, True]
    assert np.isnan(run.metrics["never/written"]).all()


# Settings ---------------------------------------------------------------------------------------


def config(train: dict[str, Any], **own: Any) -> dict[str, Any]:
    return {"train": {"suite": "A", "algo": "scpo", "seed": 0} | train, "algorithm": own}


def test_incidental_settings_make_no_other_experiment() -> None:
    one = config({name: 1 for name in INCIDENTAL}, target_kl=0.02)
    two = config({name: 2 for name in INCIDENTAL}, target_kl=0.02)
    assert differences(one, two) == {}


def test_settings_of_training_and_algorithm_that_differ_are_named_with_both_values() -> None:
    one, two = (
        config({"steps": 5}, target_kl=0.02, hidden=[8]),
        config({"steps": 6}, target_kl=0.02),
    )
    assert differences(one, two) == {"steps": (5, 6), "hidden": ([8], None)}
    kinds = [{"a": 1, "b": [2, 3]}, {"a": 1, "b": [2]}, {"a": 2, "b": [2, 3]}]
    assert sorted(differing(kinds)) == ["a", "b"] and differing(kinds[:1]) == []
    assert suffix(kinds[0], ["b", "a"]) == " · b=2,3, a=1"
    assert suffix(kinds[0], []) == ""


# Shapes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "shape", "reason"),
    [
        ({"a": 1}, {"a": int, "b": str}, "it lacks b"),
        ({"a": -1}, {"a": int}, "a in it is -1, not a count"),
        ({"a": True}, {"a": int}, "a in it is True, not a count"),
        ({"a": float("inf")}, {"a": float}, "a in it is inf, not a number"),
        ({"a": 10**400}, {"a": float}, "not a number"),
        ({"a": [1.0, None]}, {"a": list[float]}, "a in it is None, not a number"),
        ({"a": {"b": ["x"]}}, {"a": dict[str, list[float]]}, "a in it is 'x', not a number"),
        ({"a": [{"b": 1}, {}]}, {"a": [{"b": int}]}, "a in it lacks b"),
        ([], {"a": int}, r"it is \[\], not an object"),
        ({"a": 3}, {"a": str}, "a in it is 3, not text"),
    ],
)
def test_json_of_another_shape_is_refused_with_the_place(
    value: Any, shape: Any, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        check(value, shape, "it")


def test_json_of_the_shape_passes_and_more_fields_may_be_there() -> None:
    check({"a": [{"b": 1}], "c": None, "d": [None, 2]}, {"a": [{"b": int}], "c": int | None}, "it")
    check([None, 0.5], list[float | None], "it")
    check({}, dict[str, float], "it")
