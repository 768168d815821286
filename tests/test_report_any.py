"""A report of any runs: plug-in algorithms, any baseline, any reference, and what comes first."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

from statewise.algos import ALGORITHMS
from statewise.algos.trpo import Trpo
from statewise.cli import main
from statewise.paper.claims import claims_section, claims_table, judge
from statewise.paper.reference import ALGOS, reference
from statewise.report.assemble import Report, assemble
from statewise.report.curves import suite_curves
from statewise.report.groups import group_runs
from statewise.report.limits import limits_of
from statewise.report.markdown import markdown
from statewise.report.reference import Reference
from statewise.report.sections import Section, Statement
from statewise.report.write import page
from statewise.runs.reader import find_runs

GOOD = {"episode/return": 2.58, "cost/episode": 0.54, "cost/rate": 0.0071}
MINE = Reference(
    name="thesis",
    cite="Beside a thesis.",
    values={("My-Suite", "trpo", "episode/return"): "9.50"},
    steps={"My-Suite": 6_000_000},
    seeds=3,
    algos=("trpo",),
    task={"continuing": False},
)


@pytest.fixture
def tenth() -> Iterator[type[Trpo]]:
    """An algorithm of a plug-in."""

    class Tenth(Trpo):
        name = "tenth"
        title = "The Tenth"

    ALGORITHMS["tenth"] = Tenth
    yield Tenth
    del ALGORITHMS["tenth"]


def reported(root: Path, baseline: str | None = "trpo", **more: Any) -> Report:
    return assemble(find_runs([root]), baseline=baseline, **more)


def cells(report: Report, row: int = 0) -> dict[str, str]:
    table = report.headline
    texts = [cell.text for cell in table.rows[row].cells]
    return dict(zip([column.name for column in table.columns], texts, strict=True))


# A tenth algorithm -------------------------------------------------------------------------------


def write_ten(root: Path, imports: list[str] | None = None) -> None:
    for algo in (*ALGOS, "tenth"):
        rate = {"scpo": 0.001, "tenth": 0.002}.get(algo, 0.005)
        train = {"imports": imports or []} if algo == "tenth" else {}
        write_run(
            root, algo=algo, train=train, epoch=lambda n, rate=rate: GOOD | {"cost/rate": rate}
        )


def test_a_tenth_algorithm_is_a_citizen_of_every_table(tenth: type[Trpo], tmp_path: Path) -> None:
    write_ten(tmp_path, imports=["my_module"])  # named by its run alone
    report = reported(tmp_path, reference=reference(), sections=lambda g, _: [claims_section(g)])
    (ranking,) = report.rankings
    names = [row.cells[0].text for row in ranking.rows]
    assert len(names) == 10 and names[:2] == ["SCPO", "The Tenth"]
    lowest = claims_table([judge(report.groups)])
    assert "yes, of 10" in [cell.text for cell in lowest.rows[0].cells]
    assert lowest.footer is not None
    assert not any("with fewer methods" in cell.text for cell in lowest.footer.cells)
    assert "The Tenth" in markdown(report) and "The Tenth" in page(report)


def test_a_tenth_algorithm_has_a_colour_of_its_own(tenth: type[Trpo], tmp_path: Path) -> None:
    write_ten(tmp_path)
    (suite,) = suite_curves(group_runs(find_runs([tmp_path]).runs))
    looks = {(line.style.light, line.style.dash) for line in suite.lines}
    assert len(looks) == len(suite.lines) == 10


def test_nine_methods_without_one_of_the_papers_are_fewer(
    tenth: type[Trpo], tmp_path: Path
) -> None:
    for algo in (*list(ALGOS)[:-1], "tenth"):
        write_run(tmp_path, algo=algo, epoch=lambda n: GOOD)
    footer = claims_table([judge(group_runs(find_runs([tmp_path]).runs))]).footer
    assert footer is not None
    assert "1 of 1 with fewer methods" in [cell.text for cell in footer.cells][4]


def test_an_algorithm_that_is_not_registered_here_is_reported_with_a_note(tmp_path: Path) -> None:
    path = write_run(tmp_path) / "config.json"
    config = json.loads(path.read_text())
    config["train"]["algo"], config["algorithm"] = "theirs", {"temperature": 0.5}
    path.write_text(json.dumps(config))
    path.parent.parent.rename(tmp_path / "Point-Hazard-8/theirs")
    write_run(tmp_path, algo="trpo")
    report = reported(tmp_path)
    assert sorted(row.cells[0].text for row in report.rankings[0].rows) == ["TRPO", "theirs"]
    assert "Default settings are not known of theirs" in " ".join(report.suites[0].limits)
    (group,) = [g for g in report.groups if g.algo == "theirs"]
    assert group.changed["temperature"] == 0.5


# The task of the reference ----------------------------------------------------------------------


@pytest.mark.parametrize("limit", [(0.0,), (0.0, 0.0)])
def test_a_cost_limit_given_as_the_default_is_the_papers_task(
    limit: tuple[float, ...], tmp_path: Path
) -> None:
    write_run(tmp_path, epoch=lambda n: GOOD, cost_limit=limit)
    groups = group_runs(find_runs([tmp_path]).runs)
    assert reference().other_task(groups[0].settings) == {}
    assert not any("Another task" in line for line in limits_of(groups, reference()))
    checks = {key: check.verdict for key, check in judge(groups).checks.items()}
    assert checks["cost_rate_paper"] is not None


def test_one_limit_of_several_that_is_another_is_another_task(tmp_path: Path) -> None:
    write_run(tmp_path, cost_limit=(0.0, 0.5))
    (group,) = group_runs(find_runs([tmp_path]).runs)
    assert reference().other_task(group.settings) == {"cost_limit": [0.0, 0.5]}


# What comes first --------------------------------------------------------------------------------


def test_the_headline_has_the_baseline_and_the_first_and_folds_the_others(tmp_path: Path) -> None:
    for algo, rate in (("trpo", 0.01), ("cpo", 0.002), ("scpo", 0.001)):
        write_run(tmp_path, algo=algo, epochs=200, epoch=lambda n, r=rate: GOOD | {"cost/rate": r})
    report = reported(tmp_path, reference=reference())
    shown = [column.name for column in report.headline.columns if not column.folded]
    assert shown == [
        "suite", "return, TRPO", "return, SCPO", "violation rate, TRPO", "violation rate, SCPO",
        "episode cost, TRPO", "episode cost, SCPO",
    ]  # fmt: skip
    assert report.first == "scpo"
    row = cells(report)
    assert row["return, SCPO"] == "2.58 (paper 2.5793)"
    assert row["violation rate, CPO"] == "25.0 % (22.3 % to 27.8 %, one seed)"  # 250 of 1000
    assert "return, CPO" not in markdown(report) and "return, CPO" in page(report)


def test_a_method_with_other_settings_is_shown_but_not_ranked(tmp_path: Path) -> None:
    write_run(tmp_path, algo="trpo", epoch=lambda n: GOOD, train={"num_envs": 20})
    write_run(tmp_path, algo="scpo", epoch=lambda n: GOOD)
    report = reported(tmp_path, reference=reference())
    (ranking,) = report.rankings
    assert [row.cells[0].text for row in ranking.rows] == ["TRPO"]
    assert (
        "Suites in which SCPO has another num_envs than TRPO are not in its row." in ranking.notes
    )
    shown = [column.name for column in report.headline.columns if not column.folded]
    assert "return, TRPO" in shown and "return, SCPO" in shown


def test_the_answer_comes_before_its_caveats(tmp_path: Path) -> None:
    for algo in ("scpo", "trpo"):
        write_run(tmp_path, algo=algo, epoch=lambda n: GOOD, done=None if algo == "trpo" else 7)
    (tmp_path / "notes.md").write_text("Mind the gap.\n")
    report = reported(
        tmp_path, notes_file=tmp_path / "notes.md", reference=reference(),
        sections=lambda groups, _: [claims_section(groups)],
    )  # fmt: skip
    text = markdown(report)
    order = ["**Results**", "**Ranking over", "Which claims hold where", "**Metrics**",
             "**Limits**", "runs are unfinished", "Mind the gap."]  # fmt: skip
    assert [text.index(part) for part in order] == sorted(text.index(part) for part in order)


def test_shorter_runs_are_called_shorter_before_they_are_judged(tmp_path: Path) -> None:
    for algo in ("scpo", "trpo"):
        write_run(tmp_path, algo=algo, epochs=20, epoch=lambda n: GOOD | {"cost/rate": 0.5})
    report = reported(
        tmp_path, reference=reference(), sections=lambda groups, _: [claims_section(groups)]
    )
    less = "0.6 of 6 million steps"
    assert cells(report)["suite"] == f"Point-Hazard-8 (shorter: {less})"
    (claims,) = report.sections[0].tables
    assert [column.name for column in claims.columns][:2] == ["suite", "steps"]
    assert claims.rows[0].cells[1].text == f"shorter: {less}"
    assert report.suites[0].limits[0] == f"Fewer steps than the paper: {less}."
    failures = report.suites[0].failures
    assert failures and all(f.startswith(f"Shorter than in the paper ({less}). ") for f in failures)


def test_runs_of_the_papers_length_are_not_called_shorter(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=200, epoch=lambda n: GOOD)
    assert cells(reported(tmp_path, None, reference=reference()))["suite"] == "Point-Hazard-8"


# Any baseline, any reference ----------------------------------------------------------------------


def test_any_algorithm_can_be_the_baseline(tmp_path: Path) -> None:
    for algo, cost in (("cpo", 0.5), ("scpo", 0.1)):
        write_run(tmp_path, algo=algo, epoch=lambda n, c=cost: {"cost/episode": c})
    report = reported(tmp_path, "cpo")
    (ranking,) = report.rankings
    assert ranking.columns[3].name == "episode cost ÷ CPO's (less is better)"
    assert {row.cells[0].text: row.cells[3].text for row in ranking.rows}["SCPO"] == "0.20"
    resources = next(t for t in report.suites[0].tables if t.caption.startswith("Training time"))
    assert resources.columns[2].name == "÷ CPO"


def test_without_a_baseline_nothing_is_ranked_and_all_is_shown(tmp_path: Path) -> None:
    write_run(tmp_path, algo="scpo")
    write_run(tmp_path, algo="cpo")
    report = reported(tmp_path, None)
    assert report.rankings == () and report.first == ""
    assert [c.folded for c in report.headline.columns] == [False] * 7
    assert "No ranking" in markdown(report)


def test_a_baseline_without_runs_is_an_error_that_names_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path)
    args = ["report", str(tmp_path), "--out", str(tmp_path / "out"), "--baseline", "cpo"]
    assert main(args) == 2
    assert "no run of the baseline 'cpo' is here: choose one of scpo" in capsys.readouterr().err


def test_runs_of_other_suites_are_reported_without_the_paper(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", "gym:Mine-v0", "trpo")
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "out")]) == 0
    assert "paper" not in (tmp_path / "out/report.md").read_text().lower()


def test_any_published_numbers_can_be_the_reference(tmp_path: Path) -> None:
    write_run(tmp_path, "My-Suite", "trpo", train={"continuing": True})
    report = reported(tmp_path, reference=MINE)
    assert report.lead.endswith("Beside a thesis.")
    assert cells(report)["return, TRPO"] == "2.50 (thesis 9.50)"
    limits = report.suites[0].limits
    assert "Fewer steps than the thesis: 0.6 of 6 million steps." in limits
    assert "Fewer seeds than the thesis's 3: TRPO." in limits
    assert any(line.startswith("Another task than the thesis's") for line in limits)


def test_statements_of_a_section_are_shown_with_their_suite(tmp_path: Path) -> None:
    write_run(tmp_path)
    said = (Statement("Point-Hazard-8", "It works.", True),
            Statement("Point-Hazard-8", "It is not fast.", False))  # fmt: skip
    section = Section("My claims", ("Mine",), statements=said, labels=("scpo",))
    report = reported(tmp_path, None, sections=[section])
    assert (report.suites[0].holds, report.suites[0].failures) == (
        ("It works.",),
        ("It is not fast.",),
    )
    assert report.charted == list(report.groups)  # its runs are all there are
