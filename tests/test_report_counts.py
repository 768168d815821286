"""What a report counts, over which epochs, and how few it still shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from synthetic_runs import Epoch, write_run

from statewise.report.groups import Group, group_runs
from statewise.report.ranking import rank
from statewise.report.tables import safety_table
from statewise.runs.reader import find_runs


def groups_of(root: Path) -> list[Group]:
    return group_runs(find_runs([root]).runs)


def ending(metric: str, before: float, last: float) -> Epoch:
    """40 epochs, of which the last two are the late ones."""
    return lambda number: {metric: {39: before, 40: last}.get(number, 100.0)}


@pytest.mark.parametrize("metric", ["episode/return", "cost/episode"])
def test_a_ranking_is_of_the_late_epochs_and_not_of_the_last_one(
    tmp_path: Path, metric: str
) -> None:
    write_run(tmp_path, algo="trpo", epochs=40, epoch=ending(metric, 1.0, 3.0))
    write_run(tmp_path, algo="scpo", epochs=40, epoch=ending(metric, 4.0, 2.0))
    scpo = next(r for r in rank(groups_of(tmp_path), "trpo") if r.own == "scpo")
    score = scpo.scores[metric].interval
    assert score is not None and score.estimate == pytest.approx(3.0 / 2.0)


def test_a_ranking_is_of_the_cost_rate_of_the_whole_training(tmp_path: Path) -> None:
    for algo, rate in (("trpo", 0.02), ("scpo", 0.01)):
        write_run(
            tmp_path, algo=algo,
            epoch=lambda number, rate=rate: {"cost/rate": rate, "cost/epoch_rate": 0.5},  # type: ignore[misc]
        )  # fmt: skip
    scpo = next(r for r in rank(groups_of(tmp_path), "trpo") if r.own == "scpo")
    score = scpo.scores["cost/rate"].interval
    assert score is not None and score.estimate == pytest.approx(0.5)


def shown(root: Path, episodes: int, violations: int) -> dict[str, str]:
    """The row of a run in whose late epoch so many episodes had a cost."""
    hit = torch.zeros(episodes)
    hit[:violations] = 1.0
    numbers: dict[str, Any] = {
        "episode/count": episodes, "cost/hazard/violation_rate": float(hit.mean()),
    }  # fmt: skip
    write_run(root, epoch=lambda number: numbers, episodes=False)
    (group,) = groups_of(root)
    assert group.runs[0].summary.channels[0].violations == violations
    table = safety_table([group])
    names = [column.name for column in table.columns]
    return dict(zip(names, [cell.text for cell in table.rows[0].cells], strict=True))


@pytest.mark.parametrize("violations", [1, 7, 29, 57, 58, 99])
def test_violations_come_back_from_their_rate_to_the_last_one(
    tmp_path: Path, violations: int
) -> None:
    assert shown(tmp_path, 100, violations)["violation rate"] == f"{violations}.0 %"


def test_a_violation_among_many_episodes_is_not_rounded_away(tmp_path: Path) -> None:
    row = shown(tmp_path / "one", 50_000, 1)
    assert row["violation rate"] == "0.0020 %" and row["episodes"] == "50,000"
    low = row["95 % interval"].split(" to ")[0]
    assert float(low.removesuffix("%")) > 0.0
    assert shown(tmp_path / "none", 50_000, 0)["violation rate"] == "0 %"
