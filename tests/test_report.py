"""The report: its numbers by hand, what it says about what is missing, and that it stands alone."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import ENVIRONMENT, learning, write_run

from statewise.cli import main
from statewise.core.statistics import Interval, mean_interval, pooled_error, rate_over_seeds
from statewise.paper.claims import claims_section, judge
from statewise.paper.reference import reference
from statewise.report.assemble import Report, assemble
from statewise.report.groups import Group, command, group_runs
from statewise.report.markdown import markdown
from statewise.report.ranking import rank, ranking_tables
from statewise.report.sections import Picture, Section
from statewise.report.table import Table
from statewise.report.tables import COMPARED, metrics_table, resources_table, safety_table
from statewise.report.write import page, write_report
from statewise.runs.export import export_runs
from statewise.runs.reader import POINTS, find_runs
from statewise.text import interval_text, number, percent, spread


def groups_of(root: Path) -> list[Group]:
    return group_runs(find_runs([root]).runs, reference())


def only(root: Path) -> Group:
    (group,) = groups_of(root)
    return group


def cells(table: Table, row: int = 0) -> dict[str, str]:
    """A row as it is shown, by column."""
    names = [column.name for column in table.columns]
    return dict(zip(names, [cell.text for cell in table.rows[row].cells], strict=True))


def verdicts(root: Path) -> dict[str, bool | None]:
    return {key: check.verdict for key, check in judge(groups_of(root)).checks.items()}


def reported(root: Path, baseline: str | None = None, **more: Any) -> Report:
    """The report of some runs beside the paper's, as the command makes it."""
    reading = find_runs([root])
    base = baseline or ("trpo" if any(run.algo == "trpo" for run in reading.runs) else None)
    claims = [claims_section(groups_of(root))]
    given = {"reference": reference(), "sections": claims} | more
    return assemble(reading, baseline=base, **given)


def said(root: Path, **more: Any) -> str:
    """Everything the Markdown twin says."""
    return markdown(reported(root, **more))


def fixed(**values: Any) -> Any:
    return lambda number: values


# Numbers ---------------------------------------------------------------------------------------


def test_the_last_epoch_is_the_mean_over_seeds_and_the_late_one_over_the_last_5_percent(
    tmp_path: Path,
) -> None:
    # 40 epochs: the last 5 % are two. Seed 0: 1 then 3 (100 and 300 episodes); seed 1: 5 then 5.
    def first(number: int) -> dict[str, Any]:
        return {40: {"episode/return": 3.0, "episode/count": 300}, 39: {"episode/return": 1.0}}.get(
            number, {"episode/return": 0}
        )

    write_run(tmp_path, seed=0, epochs=40, epoch=first)
    write_run(tmp_path, seed=1, epochs=40, epoch=fixed(**{"episode/return": 5.0}))
    group = only(tmp_path)
    assert group.values("last", "episode/return").tolist() == [3.0, 5.0]
    assert group.mean("last", "episode/return") == 4.0
    assert group.values("late", "episode/return").tolist() == [2.5, 5.0]  # (100·1 + 300·3) / 400
    shown = cells(metrics_table([group], reference()))
    assert shown["return"] == "4.00 ± 1.41"  # (3 - 4)² + (5 - 4)² = 2, over n - 1 = 1
    assert shown["return, paper"] == "2.5793"


def test_the_cost_rate_of_late_epochs_is_theirs_and_not_the_running_one(tmp_path: Path) -> None:
    def epoch(number: int) -> dict[str, Any]:
        return {"cost/epoch_rate": {39: 0.002, 40: 0.004}.get(number, 0.1), "cost/rate": 0.08}

    write_run(tmp_path, epochs=40, epoch=epoch)
    group = only(tmp_path)
    assert group.mean("late", "cost/epoch_rate") == pytest.approx(0.003)
    assert group.mean("last", "cost/rate") == 0.08


def test_violations_are_counted_over_the_late_episodes_of_all_seeds(tmp_path: Path) -> None:
    # One late epoch of 20: 100 episodes each, 7 and 13 of them with a cost.
    write_run(tmp_path, seed=0, epoch=fixed(**{"cost/hazard/violation_rate": 0.07}))
    write_run(tmp_path, seed=1, epoch=fixed(**{"cost/hazard/violation_rate": 0.13}))
    shown = cells(safety_table([only(tmp_path)]))
    interval = rate_over_seeds([(7, 100), (13, 100)])
    assert shown["episodes"] == "200"
    assert shown["violation rate"] == "10.0 %"
    assert shown["95 % interval"] == f"{percent(interval.low)} to {percent(interval.high)}"


def test_the_maximum_cost_has_an_interval_over_seeds_and_one_over_episodes(tmp_path: Path) -> None:
    for seed, value in enumerate((0.1, 0.2, 0.3)):
        write_run(tmp_path, seed=seed, epoch=fixed(**{"cost/hazard/max": value}))
    group = only(tmp_path)
    interval = mean_interval(np.array([0.1, 0.2, 0.3]))
    assert interval is not None
    # t(0.975, 2) = 4.3027 times 0.1 / √3; the lower end would be negative
    assert (interval.low, interval.high) == (
        0.0,
        pytest.approx(0.2 + 4.3027 * 0.1 / math.sqrt(3), 1e-4),
    )
    channels = [run.summary.channels[0] for run in group.counted]
    assert {c.worst_cost for c in channels} == {0.2}  # the episodes on disk: 0 and 0.2
    assert {c.max_cost_std for c in channels} == {0.1}
    found = pooled_error([(c.episodes, c.max_cost or 0.0, c.max_cost_std or 0.0) for c in channels])
    # each: 100 episodes of variance 0.01; between them 0.01, 0, 0.01
    variance = 100 * (0.02 + 0.01 + 0.02) / 299
    assert found == pytest.approx(math.sqrt(variance / 300))


def test_an_epoch_without_episodes_is_a_gap_and_not_a_zero(tmp_path: Path) -> None:
    empty = {
        "episode/return": None,
        "cost/episode": None,
        "episode/count": 0,
        "cost/hazard/violation_rate": None,
    }
    write_run(tmp_path, epochs=20, epoch=lambda n: empty if n in (3, 20) else {})
    group = only(tmp_path)
    assert np.isnan(group.curve.mean["episode/return"][2])
    assert group.mean("last", "episode/return") is None
    table = metrics_table([group], reference())
    assert cells(table)["return"] == "–"
    assert "no episode ended in the last epoch of seed 0" in table.notes[0]


def test_time_and_memory_are_also_multiples_of_trpo(tmp_path: Path) -> None:
    write_run(tmp_path, algo="trpo")
    write_run(
        tmp_path, algo="scpo", epoch=lambda n: {"time/total": 10.0 * n, "memory/process_mib": 750.0}
    )
    shown = cells(resources_table(groups_of(tmp_path), "trpo"))
    assert shown["time of a run"] == "3.3 min"  # 20 epochs of 10 s; TRPO's take 4 s
    assert shown["÷ TRPO"] == "2.50"
    assert shown["updating"] == "75.0 %"
    assert shown["memory ÷ TRPO"] == "1.50"


def test_curves_are_thinned_to_a_grid_that_keeps_both_ends(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=1000, epoch=lambda n: {"episode/return": float(n)})
    curve = only(tmp_path).curve
    assert len(curve.steps) <= POINTS + 1
    assert curve.mean["episode/return"][[0, 1, -1]].tolist() == [
        1.0,
        5.0,
        1000.0,
    ]  # picked, not averaged


def test_the_band_is_the_sample_deviation_over_seeds(tmp_path: Path) -> None:
    for seed, value in enumerate((1.0, 2.0, 6.0)):
        write_run(tmp_path, seed=seed, epoch=fixed(**{"episode/return": value}))
    curve = only(tmp_path).curve
    assert curve.mean["episode/return"][0] == 3.0
    assert curve.std["episode/return"][0] == pytest.approx(math.sqrt((4 + 1 + 9) / 2))


def test_the_ranking_divides_by_trpo_of_the_same_suite(tmp_path: Path) -> None:
    for suite, scale in (("Point-Hazard-8", 1.0), ("Ant-Hazard-8", 10.0)):
        for algo, cost in (("trpo", 1.0), ("scpo", 0.2)):
            for seed in (0, 1):
                write_run(
                    tmp_path, suite, algo, seed, epoch=fixed(**{"cost/episode": cost * scale})
                )
    scpo = next(r for r in rank(groups_of(tmp_path), "trpo", reference()) if r.own == "scpo")
    score = scpo.scores["cost/episode"].interval
    assert score is not None
    assert (score.low, score.estimate, score.high) == pytest.approx((0.2, 0.2, 0.2))
    # the paper's: 0.1427 / 0.5413 and 0.0327 / 0.1869
    theirs = scpo.theirs["cost/episode"].interval
    assert theirs is not None
    assert theirs.estimate == pytest.approx((0.1427 / 0.5413 + 0.0327 / 0.1869) / 2)


def test_rows_of_a_ranking_are_over_the_same_suites(tmp_path: Path) -> None:
    for suite, algos in (("Point-Hazard-8", ("trpo", "scpo", "cpo")),
                         ("Point-Pillar-4", ("trpo", "scpo"))):  # fmt: skip
        for algo in algos:
            write_run(tmp_path, suite, algo)
    _, (all_three, both_suites) = ranking_tables(groups_of(tmp_path), "trpo", reference())
    assert all_three.caption == "Ranking over 1 suite" and len(all_three.rows) == 3
    assert both_suites.caption == "Ranking over 2 suites" and len(both_suites.rows) == 2


def test_algorithms_with_the_same_suites_have_one_ranking(tmp_path: Path) -> None:
    for algo in ("trpo", "scpo"):
        write_run(tmp_path, algo=algo)
    assert len(ranking_tables(groups_of(tmp_path), "trpo")[1]) == 1


def test_the_paper_is_in_the_package() -> None:
    paper = reference()
    assert len(paper.values) == 14 * 9 * 3
    texts = [paper.text("Point-Hazard-8", "scpo", metric) for metric in COMPARED]
    assert texts == ["2.5793", "0.1427", "0.0020"]
    assert paper.value("Point-Hazard-8", "scpo", "cost/rate") == 0.002


def test_numbers_are_written_with_sensible_digits() -> None:
    assert [number(x) for x in (0, 0.0008123, 2.5612, 12345.6)] == [
        "0",
        "0.000812",
        "2.56",
        "12,300",
    ]
    assert spread(2.5612, 0.0123) == "2.56 ± 0.01"
    assert spread(0.0008, 0.00004) == "0.000800 ± 0.000040"
    assert spread(1.0, None) == "1.00"
    assert (percent(0.077), percent(0.0004), percent(0)) == ("7.7 %", "0.040 %", "0 %")
    assert interval_text(Interval(0.0123, 0.2, 0.4567, 0.95)) == "0.012 to 0.457"


# What it says ----------------------------------------------------------------------------------


def pair(root: Path, scpo: dict[str, Any], trpo: dict[str, Any]) -> None:
    for seed in (0, 1):
        write_run(root, algo="scpo", seed=seed, epochs=200, epoch=fixed(**scpo))
        write_run(root, algo="trpo", seed=seed, epochs=200, epoch=fixed(**trpo))


def test_a_suite_that_reproduces_has_no_failure(tmp_path: Path) -> None:
    trpo = {"episode/return": 2.58, "cost/episode": 0.54, "cost/rate": 0.0071, "cost/max": 0.04}
    pair(
        tmp_path,
        {"episode/return": 2.56, "cost/episode": 0.1, "cost/rate": 0.001, "cost/max": 0.01},
        trpo,
    )
    assert set(verdicts(tmp_path).values()) == {True}


def test_a_share_that_is_not_reached_is_not_rounded_up_to_it(tmp_path: Path) -> None:
    trpo = {"episode/return": 2.6, "cost/episode": 0.2, "cost/rate": 0.0021, "cost/max": 0.04}
    pair(tmp_path, trpo | {"episode/return": 2.46999}, trpo)
    assert "SCPO loses TRPO's return: 2.47 against 2.60 (94.9 %)." in said(tmp_path)


def test_what_does_not_reproduce_is_said(tmp_path: Path) -> None:
    trpo = {"episode/return": 2.58, "cost/episode": 0.2, "cost/rate": 0.0021, "cost/max": 0.04}
    pair(
        tmp_path,
        {"episode/return": 2.0, "cost/episode": 0.25, "cost/rate": 0.003, "cost/max": 0.05},
        trpo,
    )
    found = verdicts(tmp_path)
    assert found.pop("learned") is True
    assert set(found.values()) == {False}
    text = said(tmp_path)
    assert "SCPO is not the safest by cost rate: 0.00300, below it TRPO (0.00210)." in text
    assert "SCPO's cost rate is above the paper's: 0.00300 against 0.0020." in text
    assert "SCPO's episode cost is above the paper's: 0.250 against 0.1427." in text
    assert "SCPO loses TRPO's return: 2.00 against 2.58 (77.5 %)." in text
    assert "TRPO is not the paper's TRPO" in text


def test_a_safer_rival_that_earns_less_is_named_with_its_return(tmp_path: Path) -> None:
    pair(
        tmp_path,
        {"episode/return": 2.5, "cost/rate": 0.002},
        {"episode/return": 0.3, "cost/rate": 0.001},
    )
    assert "below it TRPO (0.00100, at return 0.300 against 2.50)." in said(tmp_path)


def test_a_suite_that_nobody_learns_is_said(tmp_path: Path) -> None:
    pair(tmp_path, {"episode/return": 0.1}, {"episode/return": 0.2})
    assert verdicts(tmp_path)["learned"] is False
    assert "No method learned this suite" in said(tmp_path)


def test_without_the_papers_number_learning_is_judged_by_the_runs_own_start(tmp_path: Path) -> None:
    def rises(number: int) -> dict[str, Any]:
        return {"episode/return": 0.0 if number < 10 else 2.0, "episode/return_std": 0.5}

    write_run(tmp_path / "a", "Arm3-Hazard-8", epoch=rises)
    write_run(
        tmp_path / "b",
        "Arm3-Hazard-8",
        epoch=fixed(**{"episode/return": 0.3, "episode/return_std": 0.5}),
    )
    assert verdicts(tmp_path / "a")["learned"] is True
    assert verdicts(tmp_path / "b")["learned"] is False


def test_fewer_steps_seeds_and_algorithms_than_the_paper_are_said(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=20)
    text = said(tmp_path)
    assert "Fewer steps than the paper: 0.6 of 6 million steps." in text
    assert "Fewer seeds than the paper's 2: SCPO." in text
    assert "No finished run of TRPO, CPO" in text


def test_only_runs_with_the_same_task_settings_are_compared(tmp_path: Path) -> None:
    write_run(tmp_path, algo="scpo")
    write_run(tmp_path, algo="trpo", train={"num_envs": 20})
    assert verdicts(tmp_path)["cost_rate_lowest"] is None
    assert "not all trained with the same steps, worlds and task" in said(tmp_path)


def test_a_run_with_a_margin_is_compared_with_one_without(tmp_path: Path) -> None:
    """Its learner sees more cost, but what is reported is the true cost."""
    write_run(tmp_path, algo="scpo", train={"margin": [0.1]})
    write_run(tmp_path, algo="trpo")
    assert verdicts(tmp_path)["cost_rate_lowest"] is not None
    assert "not all trained with the same steps" not in said(tmp_path)


def test_runs_of_a_cpu_and_a_gpu_are_compared_and_it_is_said_but_not_their_time(
    tmp_path: Path,
) -> None:
    write_run(tmp_path, algo="scpo")
    write_run(tmp_path, algo="trpo", train={"device": "cuda"})
    assert verdicts(tmp_path)["cost_rate_lowest"] is not None
    assert "Trained on a CPU: SCPO; on a GPU: TRPO." in said(tmp_path)
    assert cells(resources_table(groups_of(tmp_path), "trpo"))["÷ TRPO"] == "–"


def test_hand_written_notes_go_to_their_suite(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    notes = tmp_path / "notes.md"
    notes.write_text(
        "In general.\n\n## Point-Hazard-8\n\nIt *stalls* <b>here</b>.\n\n# Ant-Hazard-8\nx\n"
    )
    report = assemble(find_runs([tmp_path / "runs"]), notes)
    html = page(report)
    assert "<p>In general.</p>" in html
    assert "It <em>stalls</em> &lt;b&gt;here&lt;/b&gt;." in html  # HTML is shown, not obeyed
    assert "The notes speak of suites that are not here: Ant-Hazard-8." in html
    assert "It *stalls*" in markdown(report)


# Bad input -------------------------------------------------------------------------------------


def test_no_runs_are_one_clear_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: no run with a whole epoch") and error.count("\n") == 1
    assert main(["report", str(tmp_path / "nowhere")]) == 2
    assert "is not a folder" in capsys.readouterr().err


def test_a_run_without_an_epoch_is_named(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0)
    (write_run(tmp_path, seed=1) / "metrics.jsonl").write_text("")
    reading = find_runs([tmp_path])
    assert len(reading.runs) == 1
    assert "seed-1: no whole epoch yet; left out" in reading.notes[0]


def test_unfinished_seeds_are_shown_but_not_averaged_with_finished_ones(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, epoch=fixed(**{"episode/return": 2.0}))
    write_run(tmp_path, seed=1, done=7, epoch=fixed(**{"episode/return": 9.0}))
    group = only(tmp_path)
    assert group.mean("last", "episode/return") == 2.0
    assert [run.seed for run in group.uncounted] == [1]
    assert cells(metrics_table([group], reference()))["seeds"] == "1 (+1 unfinished)"
    text = said(tmp_path)
    assert "SCPO: unfinished seed 1 (7 of 20 epochs); in the curves (dotted)" in text
    assert "1 of 2 runs are unfinished" in text


def test_if_no_run_is_finished_the_report_says_so_first_and_judges_nothing(tmp_path: Path) -> None:
    write_run(tmp_path, algo="scpo", done=5)
    write_run(tmp_path, algo="trpo", done=7)
    report = reported(tmp_path)
    assert report.flags[0].startswith("No run is finished")
    assert not report.rankings
    assert set(verdicts(tmp_path).values()) == {None}
    assert "SCPO (unfinished: 5 of 20 epochs)" in markdown(report)


def test_other_settings_under_one_name_are_apart_and_flagged(tmp_path: Path) -> None:
    write_run(tmp_path / "a", seed=0, epoch=fixed(**{"episode/return": 1.0}))
    write_run(tmp_path / "b", seed=1, target_kl=0.5, epoch=fixed(**{"episode/return": 3.0}))
    groups = groups_of(tmp_path)
    assert [g.name for g in groups] == ["SCPO · target_kl=0.02", "SCPO · target_kl=0.5"]
    assert [g.mean("last", "episode/return") for g in groups] == [1.0, 3.0]
    assert [g.main for g in groups] == [True, False]  # the defaults stand for the algorithm
    assert "runs named scpo have 2 different settings" in said(tmp_path)


def test_settings_that_change_nothing_do_not_split_a_group(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, train={"threads": 1, "out": "here"})
    write_run(tmp_path, seed=1, train={"threads": 8, "out": "there"})
    assert len(only(tmp_path).runs) == 2


def test_a_run_that_does_not_name_a_setting_is_apart(tmp_path: Path) -> None:
    write_run(tmp_path / "now", seed=0)
    path = write_run(tmp_path / "then", seed=1) / "config.json"
    config = json.loads(path.read_text())
    del config["train"]["spread_ages"]
    path.write_text(json.dumps(config))
    names = [g.name for g in groups_of(tmp_path)]
    assert sorted(names) == ["SCPO · spread_ages=None", "SCPO · spread_ages=True"]


def test_a_truncated_metrics_file_is_read_to_its_last_whole_line_and_said(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=20) / "metrics.jsonl"
    text = path.read_text()
    path.write_text(text[: text.rindex('"episode/return"')])
    (run,) = find_runs([tmp_path]).runs
    assert run.summary.epochs_done == 19
    assert run.notes == ("metrics.jsonl is cut short: read to its last whole line (19)",)
    assert "read to its last whole line (19)" in said(tmp_path)


def test_a_damaged_line_ends_the_reading_and_is_said(tmp_path: Path) -> None:
    path = write_run(tmp_path, epochs=20) / "metrics.jsonl"
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join([*lines[:4], "\x00\x00\n", *lines[5:]]))
    (run,) = find_runs([tmp_path]).runs
    assert run.summary.epochs_done == 4
    assert run.notes[0].startswith("metrics.jsonl is damaged in line 5 (")
    assert "read up to there, the 15 after it are left out" in run.notes[0]


def test_the_same_run_twice_counts_once(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", done=3)
    reading = find_runs([tmp_path, tmp_path / "a"])
    assert [run.path for run in reading.runs] == [tmp_path / "a/Point-Hazard-8/scpo/seed-0"]
    assert "same settings and seed" in reading.notes[0]


def test_an_exported_run_whose_summary_is_damaged_is_left_out_and_named(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", seed=0)
    write_run(tmp_path / "runs", seed=1)
    first, _ = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "results")
    (first / "summary.json").write_text('{"epochs_done": 20}')
    reading = find_runs([tmp_path / "results"])
    assert [run.seed for run in reading.runs] == [1]
    assert "seed-0: summary.json cannot be used (the summary lacks channels" in reading.notes[0]


def test_an_unreadable_config_is_named_and_other_json_is_passed_over(tmp_path: Path) -> None:
    write_run(tmp_path)
    for name, text in (("broken", "{"), ("other", '{"a": 1}')):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
    (note,) = find_runs([tmp_path]).notes
    assert "broken: config.json cannot be read" in note


# Provenance, export, the files -----------------------------------------------------------------


def test_where_the_numbers_come_from_is_on_the_page(tmp_path: Path) -> None:
    write_run(tmp_path, seed=0, cost_limit=(0.1,))
    other = ENVIRONMENT | {"commit": "fedcba-dirty", "gpu": "a GPU"}
    write_run(tmp_path, seed=1, cost_limit=(0.1,), environment=other)
    text = said(tmp_path)
    for fact in ("0123456789ab", "fedcba-dirty", "torch 2.13.0", "a processor", "a GPU", "A, B"):
        assert fact in text
    assert "several commits: 0123456789ab, fedcba-dirty" in text
    assert "had uncommitted changes" in text


def test_the_command_of_a_group_makes_its_runs(tmp_path: Path) -> None:
    write_run(tmp_path, seed=3, label="wide", epochs=20, hidden=(32, 32), rescue=False)
    group = only(tmp_path)
    assert group.name == "wide" and not group.main
    assert command(group) == (
        "statewise train Point-Hazard-8 --algo scpo --seed 3 --label wide --steps 599040 "
        "--hidden 32 32 --no-rescue"
    )


def old(path: Path) -> Path:
    """The run as one from before `final_batch`."""
    config = json.loads((path / "config.json").read_text())
    del config["train"]["final_batch"]
    (path / "config.json").write_text(json.dumps(config))
    return path


def test_a_run_without_final_batch_has_epochs_of_one_length(tmp_path: Path) -> None:
    old(write_run(tmp_path, seed=0, epochs=200))
    write_run(tmp_path, seed=1, epochs=200)
    old(write_run(tmp_path, algo="trpo", epochs=200, done=125))
    safe, unsafe = groups_of(tmp_path)
    assert [run.epochs for run in (*safe.runs, *unsafe.runs)] == [200, 200, 200]
    assert [run.finished for run in (*safe.runs, *unsafe.runs)] == [True, True, False]
    assert safe.task == unsafe.task
    # This version would take 4, and 124 epochs.
    assert command(safe).endswith("--seeds 0,1 --steps 6041600 --final-batch 1")


@pytest.mark.parametrize(("done", "finished"), [(62, True), (61, False)])
def test_a_run_with_longer_epochs_has_fewer(tmp_path: Path, done: int, finished: bool) -> None:
    # 100 epochs' steps: 50 epochs of one length, then 12 that are 4 times as long.
    write_run(tmp_path, epochs=100, done=done, train={"final_batch": 4})
    group = only(tmp_path)
    (run,) = group.runs
    assert (run.epochs, run.finished) == (62, finished)
    assert "final_batch" not in group.changed


def test_a_report_of_the_export_says_the_same(tmp_path: Path) -> None:
    for algo in ("scpo", "trpo"):
        for seed in (0, 1):
            write_run(tmp_path / "runs", algo=algo, seed=seed, epochs=400,
                      epoch=learning(algo, seed, 400))  # fmt: skip
    write_run(tmp_path / "runs", algo="cpo", epochs=400, done=33)
    cut = write_run(tmp_path / "runs", algo="pcpo", epochs=400) / "metrics.jsonl"
    cut.write_text(cut.read_text() + '{"epoch":')
    folders = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "results")
    assert {f.name for folder in folders for f in folder.iterdir()} == {
        "config.json", "environment.json", "metrics.jsonl", "summary.json",
    }  # fmt: skip
    assert said(tmp_path / "results") == said(tmp_path / "runs")
    ours, theirs = groups_of(tmp_path / "runs"), groups_of(tmp_path / "results")
    for a, b in zip(ours, theirs, strict=True):
        assert a.curve.steps.tolist() == b.curve.steps.tolist()
        assert b.curve.mean["episode/return"] == pytest.approx(
            a.curve.mean["episode/return"], rel=1e-4
        )


def test_runs_of_one_name_from_two_folders_are_both_exported(tmp_path: Path) -> None:
    write_run(tmp_path / "a")
    write_run(tmp_path / "b", target_kl=0.5)
    export_runs(find_runs([tmp_path / "a", tmp_path / "b"]).runs, tmp_path / "results")
    assert len(groups_of(tmp_path / "results")) == 2


def test_a_second_export_never_replaces_other_runs(tmp_path: Path) -> None:
    for name, kl in (("one", 0.02), ("two", 0.01)):
        write_run(tmp_path / name, target_kl=kl)
        export_runs(find_runs([tmp_path / name]).runs, tmp_path / "out")
        export_runs(
            find_runs([tmp_path / name]).runs, tmp_path / "out"
        )  # the same again is the same folder
    kept = find_runs([tmp_path / "out"]).runs
    assert sorted(run.config["algorithm"]["target_kl"] for run in kept) == [0.01, 0.02]


def test_the_export_of_a_run_trained_again_replaces_the_old_one(tmp_path: Path) -> None:
    for name, threads, value in (("old", 2, 1.0), ("new", 1, 2.0)):
        run = write_run(
            tmp_path / name, train={"threads": threads}, epoch=fixed(**{"episode/return": value})
        )
        config = json.loads((run / "config.json").read_text())
        (run / "config.json").write_text(json.dumps(config | {"statewise": name}))
        export_runs(find_runs([tmp_path / name]).runs, tmp_path / "out")
    reading = find_runs([tmp_path / "out"])
    assert [(run.path.name, run.summary.last["episode/return"]) for run in reading.runs] == [
        ("seed-0", 2.0)
    ]
    assert reading.notes == ()


def test_an_export_never_replaces_one_whose_settings_cannot_be_read(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (first,) = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "out")
    (first / "config.json").write_text('{"train": {"suite"')
    (second,) = export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "out")
    assert (first.name, second.name) == ("seed-0", "seed-0-2")


def test_a_run_that_is_there_twice_with_other_results_is_said(tmp_path: Path) -> None:
    old = write_run(tmp_path / "a", epoch=fixed(**{"episode/return": 1.0}))
    new = write_run(tmp_path / "b", epoch=fixed(**{"episode/return": 2.0}))
    copy = export_runs(find_runs([tmp_path / "a"]).runs, tmp_path / "c")[0]
    assert find_runs([tmp_path]).notes == (
        f"{new}: same settings and seed as {old}, but other final results; only the latter counts",
        f"{copy}: same settings and seed as {old}; counted once",
    )


def test_an_export_tells_nothing_of_the_disk_it_was_on(tmp_path: Path) -> None:
    private = {"command": [str(tmp_path / "cli.py"), "train"]}
    write_run(tmp_path / "runs", train={"out": str(tmp_path)}, environment=ENVIRONMENT | private)
    export_runs(find_runs([tmp_path / "runs"]).runs, tmp_path / "out")
    for path in (tmp_path / "out").rglob("*.json*"):
        assert str(tmp_path) not in path.read_text(), path


def test_the_page_needs_nothing_else(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", label="<i>a&b", epochs=20)
    figure = tmp_path / "figure.png"
    figure.write_bytes(b"\x89PNG")
    section = Section("The paper's questions", pictures=(Picture(figure, "A figure"),))
    index = write_report([tmp_path / "runs"], tmp_path / "report", sections=[section])
    content = index.read_text()
    own = re.sub(r"/\* BEGIN bokeh.*?/\* END bokeh\.min\.js \*/", "", content, flags=re.DOTALL)
    assert len(own) < len(content) / 2
    assert not re.findall(r"(?:src|href)=\"(?!#|data:)[^\"]*\"|url\((?!#)|@import|https?://", own)
    assert "<i>a" not in own and "\\u003ci\\u003ea\\u0026b" in own  # a name stays a name
    assert '<section id="the-paper&#39;s-questions">' in own
    twin = (tmp_path / "report/report.md").read_text()
    links = re.findall(r"\]\(([^)]+)\)", twin)
    assert "pictures/figure.png" in links
    assert all((tmp_path / "report" / link).exists() for link in links)


def test_the_command_writes_report_and_export(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path / "runs")
    out, small = tmp_path / "report", tmp_path / "results"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out), "--export", str(small)]) == 0
    assert (out / "index.html").exists() and (out / "report.md").exists()
    assert (small / "Point-Hazard-8/scpo/seed-0/summary.json").exists()
    assert "exported: 1 runs" in capsys.readouterr().out
