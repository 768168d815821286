"""Return against violations: which variants are trained, and which of them are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_judged, write_run

from statewise.bench.command import Frontier
from statewise.bench.grid import product_grid
from statewise.cli import main
from statewise.core.statistics import Interval
from statewise.report.frontier import Variant, frontier_sections, undominated
from statewise.report.groups import group_runs
from statewise.runs.reader import find_runs

POINTS = {0.0: (2.6, 0.10), 0.1: (2.5, 0.02), 0.2: (2.0, 0.05), 0.3: (1.0, 0.01)}
"""Margin to return and violation rate. The third has less return than the second, and is less safe."""


def write_variants(root: Path, algo: str = "scpo", seeds: int = 1, **more: Any) -> None:
    for margin, (earned, rate) in POINTS.items():
        numbers = {"episode/return": earned, "cost/hazard/violation_rate": rate}
        for seed in range(seeds):
            write_run(root, algo=algo, seed=seed, label=f"{algo}-margin-{margin:g}",
                      train={"margin": [margin]}, epoch=lambda _, n=numbers: n, **more)  # fmt: skip


def variant(earned: float, rate: float) -> Variant:
    return Variant(None, earned, Interval(0.0, rate, 1.0, 0.95))  # type: ignore[arg-type]


# Which runs --------------------------------------------------------------------------------------


def test_values_that_are_one_number_are_one_variant() -> None:
    given = {"cost_limit": ["0", "0.0", "0.01", "1e-2"], "margin": ["0", "0.10"]}
    names = [
        spec.name for spec in product_grid(["Point-Hazard-8"], ["scpo"], [0], "o", given).specs
    ]
    assert names == [
        "scpo-cost_limit-0-margin-0", "scpo-cost_limit-0-margin-0.1",
        "scpo-cost_limit-0.01-margin-0", "scpo-cost_limit-0.01-margin-0.1",
    ]  # fmt: skip


def test_every_margin_is_trained_with_every_limit() -> None:
    grid = Frontier(seeds="0..1").grid(["Point-Hazard-8"], ["scpo"])
    settings = [spec.resolve("o") for spec in grid.specs]
    assert len(settings) == 2 * 4 * 2
    assert {(train.margin, own.cost_limit) for train, own in settings} == {  # type: ignore[attr-defined]
        ((margin,), (limit,)) for margin in (0.0, 0.05, 0.1, 0.2) for limit in (0.0, 0.01)
    }


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "name a suite: statewise bench frontier Point-Hazard-8"),
        (["Point-Hazard-8", "--algos", "trpo"], "trpo has no cost limit to vary"),
        (["Point-Hazard-8", "--set", "margin=0", "cost_limit=0,0.0"], "give several values"),
        (["Point-Hazard-8", "--set", "margin=0,-1"], "margin is -1.0: give a finite number, 0 or"),
        (["Point-Hazard-8", "--set", "margin=wide"], "margin is 'wide': give a number"),
        (["gym:Mine-v0"], "gym:Mine-v0 has no margins: use --set margin=0"),
        (["Point-Hazrd-8"], "Point-Hazrd-8"),
    ],
)
def test_mistakes_are_one_line_with_the_remedy(
    args: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["bench", "frontier", "--dry-run", *args]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.strip().splitlines()) == 1


def test_a_plan_trains_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["Point-Hazard-8", "--set", "margin=0,0.1,0.10", "--out", str(tmp_path / "new")]
    assert main(["bench", "frontier", "--dry-run", *args]) == 0
    assert "4 runs: 4 to start" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


# What the report names ---------------------------------------------------------------------------


def test_a_variant_is_dominated_by_one_that_is_as_good_in_both_and_better_in_one() -> None:
    safe, rich, twin = variant(1.0, 0.01), variant(2.0, 0.1), variant(2.0, 0.1)
    worse, poor = variant(1.9, 0.1), variant(1.0, 0.02)
    assert undominated([rich, worse, poor, twin, safe]) == [safe, rich, twin]


def test_the_report_draws_the_variants_and_names_those_that_no_other_beats(tmp_path: Path) -> None:
    write_variants(tmp_path / "runs")
    out = tmp_path / "report"
    assert main(["report", str(tmp_path / "runs"), "--out", str(out)]) == 0
    text = (out / "report.md").read_text().replace("\\", "")
    section = text[text.index("## Return against violations") : text.index("## Point-Hazard-8")]
    rows = [row.split(" | ") for row in section.splitlines() if row.startswith("| Point")]
    assert [row[2] for row in rows] == ["scpo-margin-0.3", "scpo-margin-0.1", "scpo-margin-0"]
    assert [row[1] for row in rows] == ["A", "B", "C"]
    assert "(pictures/frontier.png)" in section and (out / "pictures/frontier.png").exists()
    assert 'id="return-against-violations"' in (out / "index.html").read_text()


def test_judged_variants_are_compared_by_fresh_episodes_only_if_all_are(tmp_path: Path) -> None:
    """The last epochs and the fresh episodes must not be mixed in one picture."""
    write_variants(tmp_path)
    runs = sorted(tmp_path.glob("*/*/seed-0"))
    for run, violations in zip(runs[:3], (300, 200, 100), strict=True):
        write_judged(run, violations=violations, earned=1.5)

    def rows() -> list[tuple[str, str]]:
        (section,) = frontier_sections(group_runs(find_runs([tmp_path]).runs), tmp_path / "drawn")
        return [(row.cells[2].text, row.cells[5].text) for row in section.tables[0].rows]

    assert ("scpo-margin-0.3", "1.0 %") in rows()
    write_judged(runs[3], violations=50, earned=1.5)
    assert rows() == [("scpo-margin-0.3", "5.0 %")]  # all have the same return now


def test_two_variants_are_no_frontier(tmp_path: Path) -> None:
    write_run(tmp_path, label="scpo-a")
    write_run(tmp_path, label="scpo-b", done=3)  # unfinished
    write_run(tmp_path, label="scpo-c")
    write_run(tmp_path, algo="cpo")
    assert frontier_sections(group_runs(find_runs([tmp_path]).runs), tmp_path / "drawn") == []
    assert not (tmp_path / "drawn").exists()
