"""The report and files that are damaged, missing or at odds: said by name, and the rest goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

from statewise.cli import main
from statewise.paper.reference import reference
from statewise.report.assemble import assemble
from statewise.report.groups import group_runs
from statewise.report.markdown import markdown
from statewise.report.tables import safety_table
from statewise.report.write import page
from statewise.runs.export import export_runs
from statewise.runs.reader import RunData, find_runs

RUN = Path("Point-Hazard-8/scpo/seed-0")


def change(path: Path, edit: Callable[[dict[str, Any]], object]) -> None:
    content = json.loads(path.read_text())
    edit(content)
    path.write_text(json.dumps(content))


def lines_of(path: Path) -> list[str]:
    return path.read_text().splitlines(keepends=True)


def only(root: Path) -> RunData:
    (run,) = find_runs([root]).runs
    return run


def files_of(root: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def said(root: Path) -> str:
    """Everything the page and its twin can say; every table and chart is made for it."""
    report = assemble(find_runs([root]), reference=reference())
    page(report)
    return markdown(report).replace("\\", "")


# Exports never touch a run ----------------------------------------------------------------------


def test_an_export_over_the_runs_themselves_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    runs = tmp_path / "runs"
    write_run(runs, algo="cpo", epochs=400)
    write_run(runs, algo="scpo", epochs=400)
    before = files_of(runs)
    command = ["report", str(runs), "--out", str(tmp_path / "report"), "--export", str(runs)]
    assert main(command) == 2
    assert "would write over the run it is made from" in capsys.readouterr().err
    assert files_of(runs) == before


def test_an_export_through_a_link_to_the_runs_or_into_one_of_them_is_refused(
    tmp_path: Path,
) -> None:
    run = write_run(tmp_path / "runs")
    (tmp_path / "link").symlink_to(tmp_path / "runs")
    before = files_of(tmp_path / "runs")
    for out in (tmp_path / "link", run, run / "small"):
        with pytest.raises(ValueError, match="would write over the run"):
            export_runs(find_runs([tmp_path / "runs"]).runs, out)
    assert files_of(tmp_path / "runs") == before


@pytest.mark.parametrize("kept", ["checkpoints", "episodes.csv", "metrics.jsonl"])
def test_an_export_never_writes_into_a_run_that_no_export_wrote(tmp_path: Path, kept: str) -> None:
    write_run(tmp_path / "runs", algo="cpo")
    write_run(tmp_path / "runs", algo="scpo")
    other = write_run(tmp_path / "other", algo="scpo")  # the same settings, but not read
    if kept == "checkpoints":
        (other / "checkpoints").mkdir()
        (other / "summary.json").write_text("{}")
    if kept != "episodes.csv":
        (other / "episodes.csv").unlink()
    before = files_of(tmp_path / "other")
    with pytest.raises(ValueError, match="scpo/seed-0 is a run that no export wrote"):
        export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "other")
    assert files_of(tmp_path / "other") == before


def test_an_export_beside_the_runs_can_be_made_again(tmp_path: Path) -> None:
    write_run(tmp_path, done=5)
    (first,) = export_runs(find_runs([tmp_path]).runs, tmp_path / "small")
    (first / "metrics.jsonl").unlink()  # as if that export had been interrupted
    assert export_runs(find_runs([tmp_path]).runs, tmp_path / "small") == [first]
    assert export_runs(find_runs([tmp_path]).runs, tmp_path / "small") == [first]
    assert only(tmp_path / "small").summary.epochs_done == 5


# A summary and metrics that disagree ------------------------------------------------------------


def test_metrics_that_go_beyond_the_summary_count_and_it_is_said(tmp_path: Path) -> None:
    write_run(tmp_path / "part", done=7)
    (part,) = export_runs(find_runs([tmp_path / "part"]).runs, tmp_path / "small")
    run = write_run(tmp_path / "runs", epoch=lambda n: {"episode/return": float(n)})
    (run / "summary.json").write_bytes((part / "summary.json").read_bytes())
    found = only(tmp_path / "runs")
    assert found.finished and found.summary.last["episode/return"] == 20.0
    assert found.notes == (
        "summary.json is of 7 epochs, but metrics.jsonl of 20: the metrics count",
    )


def test_exported_metrics_cut_at_a_line_end_are_said(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (small,) = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    path = small / "metrics.jsonl"
    path.write_text("".join(lines_of(path)[:15]))
    note = "summary.json is of 20 epochs, but metrics.jsonl of 15: the curves end too early"
    assert only(tmp_path / "small").notes == (note,)
    assert note in said(tmp_path / "small")


def test_the_export_of_an_unfinished_long_run_is_whole(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", epochs=1000, done=33)  # 33 is not on the grid of its curves
    export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    assert only(tmp_path / "small").notes == ()


# The same seed twice ----------------------------------------------------------------------------


def test_a_shorter_copy_is_the_same_seed(tmp_path: Path) -> None:
    write_run(tmp_path / "new")
    write_run(tmp_path / "old", done=5)
    reading = find_runs([tmp_path])
    assert [run.path for run in reading.runs] == [tmp_path / "new" / RUN]
    assert reading.notes == (
        f"{tmp_path / 'old' / RUN}: same settings and seed as {tmp_path / 'new' / RUN}; counted once",
    )


# Nothing is dropped in silence ------------------------------------------------------------------


def test_metrics_without_settings_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    (write_run(tmp_path, seed=1) / "config.json").unlink()
    (write_run(tmp_path, seed=2) / "config.json").write_text("{}")
    reading = find_runs([tmp_path])
    assert [run.seed for run in reading.runs] == [0]
    without, empty = reading.notes
    assert without.endswith("seed-1: metrics.jsonl is there, but no config.json; left out")
    assert empty.endswith("seed-2: config.json lacks algorithm, train; left out")


def test_linked_suites_and_runs_are_found_once_and_loops_end(tmp_path: Path) -> None:
    write_run(tmp_path / "disk", algo="cpo")
    write_run(tmp_path / "disk", algo="scpo")
    root = tmp_path / "runs"
    (root / "Linked").mkdir(parents=True)
    (root / "Linked/cpo").symlink_to(tmp_path / "disk/Point-Hazard-8/cpo")
    (root / "suite").symlink_to(tmp_path / "disk/Point-Hazard-8")
    (root / "back").symlink_to(root)
    (root / "nowhere").symlink_to(tmp_path / "gone")
    reading = find_runs([root])
    assert sorted(run.algo for run in reading.runs) == ["cpo", "scpo"]
    assert reading.notes == ()


@pytest.mark.parametrize("junk", [b"\x00\xff\x80", b"\x00\xff\x80\n\xfe\n"])
def test_junk_for_metrics_is_damage_and_not_a_run_that_has_just_begun(
    tmp_path: Path, junk: bytes
) -> None:
    write_run(tmp_path, seed=0)
    (write_run(tmp_path, seed=1) / "metrics.jsonl").write_bytes(junk)
    (note,) = find_runs([tmp_path]).notes
    assert "seed-1: metrics.jsonl is " in note and "left out" in note
    assert "no whole epoch yet" not in note


def test_missing_and_repeated_epochs_are_said(tmp_path: Path) -> None:
    path = write_run(tmp_path, epoch=lambda n: {"episode/return": float(n)}) / "metrics.jsonl"
    lines = lines_of(path)
    again = lines[8].replace('"episode/return": 9.0', '"episode/return": 90.0')
    path.write_text("".join([lines[0], *lines[5:9], again, *lines[10:]]))
    run = only(tmp_path)
    assert run.notes == (
        "metrics.jsonl has epoch 9 more than once: the last of each counts",
        "metrics.jsonl lacks epochs 2, 3, 4, 5, 10",
    )
    assert run.curves["epoch"].tolist() == [1, *range(6, 10), *range(11, 21)]
    assert run.curves["episode/return"][4] == 90.0
    assert "metrics.jsonl lacks epochs 2, 3, 4, 5, 10" in said(tmp_path)


def test_the_last_5_percent_are_epochs_and_not_lines(tmp_path: Path) -> None:
    path = (
        write_run(tmp_path, epochs=40, epoch=lambda n: {"episode/return": float(n)})
        / "metrics.jsonl"
    )
    lines = lines_of(path)
    path.write_text("".join([*lines[:30], lines[39]]))  # of the last two epochs one is there
    assert only(tmp_path).summary.late["episode/return"] == 40.0


# Episodes ---------------------------------------------------------------------------------------


def cut_in_a_row(text: bytes) -> bytes:
    return text[:-5]


def cut_at_a_line(text: bytes) -> bytes:
    return b"".join(text.splitlines(keepends=True)[:-10])


def a_bad_row(text: bytes) -> bytes:
    return text + b"20,high,0\n"


def text_for_a_cost(text: bytes) -> bytes:
    return text + b"20,2.5,0.5,high,80,1,0\n"


def no_number_for_a_cost(text: bytes) -> bytes:
    return text.replace(b"20,2.5,0.5,0.2", b"20,2.5,0.5,nan")


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        (cut_in_a_row, "it has 99 of the 100 episodes"),
        (cut_at_a_line, "it has 90 of the 100 episodes"),
        (lambda text: b"", "it is missing or empty"),
        (lambda text: text[:20], "it has no column epoch"),
        (lambda text: b"epoch,\r" + text, "the columns of its first line"),
        (lambda text: text + b"\xff\xfe\n", "could not convert string"),
        (a_bad_row, "with 3 columns"),
        (text_for_a_cost, "could not convert string 'high'"),
        (no_number_for_a_cost, "it has costs that are no numbers"),
    ],
)
def test_damaged_episodes_are_said_and_only_their_numbers_are_missing(
    tmp_path: Path, damage: Callable[[bytes], bytes], reason: str
) -> None:
    path = write_run(tmp_path / "runs") / "episodes.csv"
    path.write_bytes(damage(path.read_bytes()))
    run = only(tmp_path / "runs")
    (note,) = run.notes
    assert note.startswith("episodes.csv cannot be used (") and reason in note
    (channel,) = run.summary.channels
    assert (channel.max_cost, channel.max_cost_std, channel.worst_cost) == (0.1, None, None)
    assert reason in said(tmp_path / "runs")


def test_episodes_that_are_not_there_are_said_unless_an_export_needs_none(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", episodes=False)
    (note,) = only(tmp_path / "runs").notes
    assert "episodes.csv cannot be used (it is missing or empty)" in note
    write_run(tmp_path / "whole")
    export_runs(find_runs([tmp_path / "whole"]).runs, tmp_path / "small")
    assert only(tmp_path / "small").notes == ()


def test_no_episodes_are_expected_where_none_ended(tmp_path: Path) -> None:
    none = {
        "episode/count": 0,
        "episode/return": None,
        "cost/hazard/max": None,
        "cost/hazard/violation_rate": None,
    }
    write_run(tmp_path, epoch=lambda n: none, episodes=False)
    assert only(tmp_path).notes == ()


# One bad run does not end the report ------------------------------------------------------------


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda c: c.update(train=None), "train in config.json is None, not an object"),
        (lambda c: c.update(algorithm=None), "algorithm in config.json is None, not an object"),
        (lambda c: c.update(spec=None), "spec in config.json is None, not an object"),
        (lambda c: c["spec"].update(cost_names=[1]), "cost_names in config.json is 1, not text"),
        (lambda c: c["train"].pop("seed"), "config.json lacks seed"),
        (
            lambda c: c["train"].update(steps_per_epoch=0),
            "config.json has no steps, or epochs without any",
        ),
        (lambda c: c["train"].update(steps="many"), "steps in config.json is 'many', not a count"),
        (
            lambda c: c["train"].update(final_batch="4"),
            "final_batch in config.json is '4', not a count",
        ),
        (lambda c: c["train"].update(seed="1"), "seed in config.json is '1', not a count"),
        (lambda c: c["train"].update(device=None), "device in config.json is None, not text"),
    ],
)
def test_a_run_with_bad_settings_is_left_out_by_name(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], reason: str
) -> None:
    write_run(tmp_path, seed=0)
    change(write_run(tmp_path, seed=1) / "config.json", edit)
    (note,) = find_runs([tmp_path]).notes
    assert "scpo/seed-1: " in note and reason in note
    assert note in said(tmp_path)


@pytest.mark.parametrize(
    ("edit", "reason"),
    [
        (lambda s: s.update(channels=None), "channels in the summary is None, not a list"),
        (lambda s: s.update(channels=[None]), "channels in the summary is None, not an object"),
        (lambda s: s["channels"][0].pop("name"), "channels in the summary lacks name"),
        (lambda s: s["channels"][0].update(violations=500), "500 of 100 episodes violate hazard"),
        (lambda s: s.update(notes=None), "notes in the summary is None, not a list"),
        (lambda s: s.update(seconds=float("nan")), "seconds in the summary is nan, not a number"),
        (
            lambda s: s["last"].update({"episode/return": float("nan")}),
            "last in the summary is nan, not a number",
        ),
        (lambda s: s.update(steps="many"), "steps in the summary is 'many', not a count"),
    ],
)
def test_a_run_with_a_bad_summary_is_left_out_by_name(
    tmp_path: Path, edit: Callable[[dict[str, Any]], object], reason: str
) -> None:
    for seed in (0, 1):
        write_run(tmp_path / "runs", seed=seed)
    _, second = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    change(second / "summary.json", edit)
    (note,) = find_runs([tmp_path / "small"]).notes
    assert f"scpo/seed-1: summary.json cannot be used ({reason}" in note
    assert note in said(tmp_path / "small")


def test_fields_of_a_newer_summary_are_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (small,) = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    change(small / "summary.json", lambda s: s["channels"][0].update(newer=1))
    assert only(tmp_path / "small").summary == only(tmp_path / "runs").summary


def test_updates_that_were_left_out_are_said(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", seed=0, epoch=lambda n: {"update/skipped": 0})
    write_run(tmp_path / "runs", seed=1, epoch=lambda n: {"update/skipped": n // 5})
    export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    for root in (tmp_path / "runs", tmp_path / "small"):
        text = said(root)
        assert "Updates of 1 of 2 runs were left out, since a number was not finite" in text
        assert "SCPO, seed 1: 4 updates were left out, since a number was not finite." in text
        assert "seed 0: " not in text


def test_updates_left_out_that_were_not_counted_are_not_known(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "small")
    assert only(tmp_path / "small").summary.skipped_updates is None
    assert "left out" not in said(tmp_path / "small")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (
            '{"epoch": 20, "steps": 9, "episode/return": "high"}\n',
            "episode/return is 'high', not a number",
        ),
        (
            '{"epoch": 20, "steps": 9, "episode/return": NaN}\n',
            "episode/return is nan, not a number",
        ),
        ('{"epoch": "20", "steps": 9}\n', "epoch in it is '20', not a count"),
        ('{"epoch": 20}\n', "it lacks steps"),
        ("null\n", "it is None, not an object"),
        ("5\n", "it is 5, not an object"),
    ],
)
def test_a_run_with_a_line_that_is_no_epoch_is_left_out_by_name(
    tmp_path: Path, line: str, reason: str
) -> None:
    write_run(tmp_path / "runs", seed=0)
    path = write_run(tmp_path / "runs", seed=1) / "metrics.jsonl"
    path.write_text("".join([*lines_of(path)[:19], line]))
    (note,) = find_runs([tmp_path / "runs"]).notes
    assert f"seed-1: metrics.jsonl is damaged in line 20 ({reason}); left out" in note
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0


def test_impossible_rates_leave_the_run_out_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    write_run(tmp_path, seed=1, epoch=lambda n: {"cost/hazard/violation_rate": 1.5})
    (note,) = find_runs([tmp_path]).notes
    assert note.endswith("seed-1: 150 of 100 episodes violate hazard; left out")


def test_a_file_that_cannot_be_opened_leaves_its_run_out_by_name(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    path = write_run(tmp_path, seed=1) / "metrics.jsonl"
    path.unlink()
    path.mkdir()
    (note,) = find_runs([tmp_path]).notes
    assert "seed-1: " in note and "metrics.jsonl is not a regular file" in note


def test_seeds_with_different_constraints_are_in_the_rows_they_have(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    other = write_run(tmp_path, seed=1)
    change(other / "config.json", lambda c: c["spec"].update(cost_names=[]))
    (group,) = group_runs(find_runs([tmp_path]).runs, reference())
    table = safety_table([group])
    assert [row.cells[-1].text for row in table.rows] == ["100"]
    assert table.notes[1:] == (f"SCPO: {other} has no constraint hazard and is not in its row.",)
    change(other / "config.json", lambda c: c["spec"].update(cost_names=["hazard", "pillar"]))
    assert "has no constraint pillar and is not in its row" in said(tmp_path)
