"""The ranking over suites: how sure it is, and what it is not over."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import write_run

from statewise.core.statistics import ratio_bootstrap
from statewise.paper.reference import reference
from statewise.report.assemble import assemble
from statewise.report.groups import group_runs
from statewise.report.markdown import markdown
from statewise.report.ranking import Rank, rank
from statewise.report.write import page
from statewise.runs.reader import find_runs

SUITES = ("Point-Hazard-1", "Point-Hazard-4", "Point-Hazard-8")


def ranks(root: Path) -> dict[str, Rank]:
    groups = group_runs(find_runs([root]).runs, reference())
    return {r.own: r for r in rank(groups, "trpo", reference())}


def both_say(root: Path) -> tuple[str, str]:
    report = assemble(find_runs([root]), baseline="trpo", reference=reference())
    return page(report), markdown(report).replace("\\", "")


def write(root: Path, suite: str, algo: str, *costs: float, **more: Any) -> None:
    for seed, cost in enumerate(costs):
        write_run(root, suite, algo, seed, epoch=lambda _, c=cost: {"cost/episode": c} | more)


# Intervals --------------------------------------------------------------------------------------


def test_a_base_that_is_not_sure_makes_the_interval_wider(tmp_path: Path) -> None:
    write(tmp_path, SUITES[0], "trpo", 0.5, 1.0, 1.5)
    write(tmp_path, SUITES[0], "scpo", 0.2, 0.2, 0.2)
    score = ranks(tmp_path)["scpo"].scores["cost/episode"].interval
    assert score is not None
    assert score.estimate == pytest.approx(0.2)
    assert score.low == pytest.approx(0.2 / 1.5) and score.high == pytest.approx(0.2 / 0.5)


def test_an_interval_covers_the_truth_with_a_base_that_is_an_estimate() -> None:
    generator = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        tasks = []
        for _ in range(4):
            values, base = generator.normal(1.0, 0.25, (2, 8))
            tasks.append((0.5 * values, base))
        interval = ratio_bootstrap(tasks)
        held += interval.low <= 0.5 <= interval.high
    assert held >= 0.9 * 200  # with a base taken for exact: 0.84 of them


def test_trpo_is_divided_by_itself_in_every_draw(tmp_path: Path) -> None:
    write(tmp_path, SUITES[0], "trpo", 0.5, 1.0, 1.5)
    score = ranks(tmp_path)["trpo"].scores["cost/episode"].interval
    assert score is not None
    assert (score.low, score.estimate, score.high) == pytest.approx((1.0, 1.0, 1.0))


def test_draws_without_a_positive_base_leave_the_interval_finite() -> None:
    found = ratio_bootstrap([(np.array([0.0, 1.0]), np.array([0.0, 0.0, 3.0]))])
    assert math.isfinite(found.low) and math.isfinite(found.high)
    assert found.estimate == 0.5


def test_the_same_runs_have_the_same_intervals(tmp_path: Path) -> None:
    for algo in ("trpo", "scpo"):
        write(tmp_path, SUITES[0], algo, 0.5, 1.0, 1.5)
    assert ranks(tmp_path)["scpo"].scores == ranks(tmp_path)["scpo"].scores


def test_suites_with_one_seed_are_counted_beside_the_intervals(tmp_path: Path) -> None:
    write(tmp_path, SUITES[0], "trpo", 0.5, 1.0)
    write(tmp_path, SUITES[0], "scpo", 0.2, 0.3)
    write(tmp_path, SUITES[0], "cpo", 0.2, 0.3)
    write(tmp_path, SUITES[1], "trpo", 0.5, 1.0)
    write(tmp_path, SUITES[1], "scpo", 0.2, 0.3)
    write(tmp_path, SUITES[1], "cpo", 0.2)  # one seed of the method
    write(tmp_path, SUITES[2], "trpo", 0.5)  # one seed of the base
    write(tmp_path, SUITES[2], "scpo", 0.2, 0.3)
    write(tmp_path, SUITES[2], "cpo", 0.2, 0.3)
    found = ranks(tmp_path)
    scpo, cpo = (found[algo].scores["cost/episode"] for algo in ("scpo", "cpo"))
    assert scpo.single == {SUITES[2]} and cpo.single == set(SUITES[1:])
    assert scpo.interval is not None
    for text in both_say(tmp_path):
        assert "Intervals are too narrow where a suite has one seed only" in text
        assert "1 of 3 suites for SCPO" in text and "2 of 3 suites for CPO" in text


def test_nothing_is_said_of_one_seed_where_there_is_no_interval(tmp_path: Path) -> None:
    for algo in ("trpo", "scpo"):
        write(tmp_path, SUITES[0], algo, 0.5)
    assert "too narrow" not in both_say(tmp_path)[1]


# Suites left out --------------------------------------------------------------------------------


def test_a_suite_that_a_score_is_not_over_is_named_with_the_reason(tmp_path: Path) -> None:
    for suite in SUITES:
        empty = {"episode/return": None, "cost/episode": None, "episode/count": 0}
        write(tmp_path, suite, "trpo", 0.0 if suite == SUITES[2] else 1.0)
        write(tmp_path, suite, "scpo", 0.5)
        write(tmp_path, suite, "cpo", 0.5, **(empty if suite == SUITES[1] else {}))
    html, text = (side.replace("&#39;", "'") for side in both_say(tmp_path))
    for side in (html, text):
        assert (
            f"Left out of the episode cost: {SUITES[2]} (TRPO's is not above 0); "
            f"{SUITES[1]} (CPO's is not known)." in side
        )
        assert f"Left out of the return: {SUITES[1]} (CPO's is not known)." in side
        assert "0.50, 2 suites" in side and "0.50, 1 suite" in side
    assert ranks(tmp_path)["scpo"].scores["cost/rate"].left_out == {}


def test_a_return_of_trpo_that_is_not_known_leaves_its_suite_out(tmp_path: Path) -> None:
    write(tmp_path, SUITES[0], "trpo", 1.0, **{"episode/return": None, "episode/count": 0})
    write(tmp_path, SUITES[0], "scpo", 1.0)
    found = ranks(tmp_path)["scpo"]
    assert found.scores["episode/return"].interval is None
    assert found.scores["episode/return"].left_out == {SUITES[0]: "TRPO's is not known"}


def test_suites_that_the_paper_lacks_are_named(tmp_path: Path) -> None:
    for suite in ("Point-Hazard-8", "Humanoid-Hazard-8"):
        for algo in ("trpo", "scpo"):
            write(tmp_path, suite, algo, 0.5)
    for text in both_say(tmp_path):
        text = text.replace("&#39;", "'")
        assert (
            "Left out of the paper's return, episode cost and cost rate: Humanoid-Hazard-8 "
            "(not in its tables)." in text
        )


def test_a_ranking_over_all_suites_says_nothing_of_others(tmp_path: Path) -> None:
    for algo in ("trpo", "scpo"):
        write(tmp_path, "Point-Hazard-8", algo, 0.5, 0.6)
    assert "Left out" not in both_say(tmp_path)[1]
