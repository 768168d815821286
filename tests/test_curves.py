"""Learning curves: which runs share a line, what the band is, and that every line can be told apart."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from synthetic_runs import write_run

from statewise import metrics
from statewise.algos import ALGORITHMS
from statewise.report.curves import (
    Line,
    SuiteCurves,
    chart_data,
    draw_curves,
    limits,
    metric_plot,
    run_lines,
    styles,
    suite_curves,
    to_json,
)
from statewise.report.groups import Curve, group_runs
from statewise.report.plots import draw, style
from statewise.report.write import page_scripts
from statewise.runs.reader import find_runs

RETURN = metrics.RETURN


def fixed(**values: Any) -> Callable[[int], dict[str, Any]]:
    return lambda number: values


def line(name: str, returns: float, cost: float, number: int = 0) -> Line:
    """A line of two points with a band of 0.5."""
    values = {key: np.array([0.0, cost]) for key in metrics.CHARTS} | {
        RETURN: np.array([0.0, returns])
    }
    spread = {key: np.full(2, 0.5) for key in metrics.CHARTS}
    return Line(name, style(number), Curve(np.array([1.0, 2.0]), values, spread))


# Which runs share a line -----------------------------------------------------------------------


def test_variants_of_an_algorithm_are_never_averaged(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, seed=seed, epoch=fixed(**{RETURN: seed})) for seed in (0, 1)]
    runs.append(write_run(tmp_path, seed=0, label="mine", epoch=fixed(**{RETURN: 5.0})))
    found = {line.name.lower(): line.curve.mean[RETURN][0] for line in run_lines(runs)}
    assert found == {"scpo": 0.5, "mine": 5.0}


def test_other_settings_are_never_averaged_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs = [write_run(tmp_path / "a", seed=0, epoch=fixed(**{RETURN: 1.0}))]
    runs.append(write_run(tmp_path / "b", seed=1, target_kl=0.5, epoch=fixed(**{RETURN: 3.0})))
    other = {"threads": 9}  # changes nothing but last digits
    runs.append(write_run(tmp_path / "a", seed=2, train=other, epoch=fixed(**{RETURN: 2.0})))
    assert {line.name.lower(): line.curve.mean[RETURN][0] for line in run_lines(runs)} == {
        "scpo · target_kl=0.02": 1.5,
        "scpo · target_kl=0.5": 3.0,
    }
    assert "runs named scpo have 2 different settings" in caplog.text


def test_suites_are_told_apart_by_name_and_style(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, suite) for suite in ("Point-Hazard-1", "Point-Hazard-8")]
    lines = run_lines(runs)
    names = [line.name.lower() for line in lines]
    assert names == ["scpo, point-hazard-1", "scpo, point-hazard-8"]
    assert lines[0].style.light != lines[1].style.light


def test_a_run_named_twice_counts_once(tmp_path: Path) -> None:
    run = write_run(tmp_path / "runs")
    (tmp_path / "link").symlink_to(run)
    (found,) = run_lines([run, run.parent / "." / run.name, tmp_path / "link"])
    assert found.curve.std == {}  # of one seed


def test_an_unfinished_seed_beside_finished_ones_is_a_line_of_its_own(tmp_path: Path) -> None:
    runs = [write_run(tmp_path, seed=0, epoch=fixed(**{RETURN: 1.0}))]
    runs.append(write_run(tmp_path, seed=1, done=7, epoch=fixed(**{RETURN: 9.0})))
    (found,) = run_lines(runs)
    assert set(found.curve.mean[RETURN]) == {1.0} and len(found.curve.steps) == 20
    (part,) = found.parts
    assert set(part.mean[RETURN]) == {9.0} and len(part.steps) == 7


def test_a_run_without_an_epoch_is_an_error_with_its_name(tmp_path: Path) -> None:
    run = write_run(tmp_path)
    (run / "metrics.jsonl").write_text("")
    with pytest.raises(ValueError, match=r"seed-0 has no finished epoch to draw yet"):
        draw_curves([run], tmp_path / "curves.png")


# What is drawn ---------------------------------------------------------------------------------


def test_the_band_is_one_sample_deviation_and_one_seed_has_none(tmp_path: Path) -> None:
    for seed, value in enumerate((1.0, 2.0, 6.0)):
        write_run(tmp_path, seed=seed, epoch=fixed(**{RETURN: value}))
    write_run(tmp_path, algo="trpo", epoch=fixed(**{RETURN: 4.0}))
    (suite,) = suite_curves(group_runs(find_runs([tmp_path]).runs))
    axis = draw(metric_plot(suite.lines)).axes[0]
    (band,) = axis.collections
    deviation = math.sqrt((4 + 1 + 9) / 2)  # around the mean, 3
    heights = band.get_paths()[0].vertices[:, 1]
    assert (heights.min(), heights.max()) == pytest.approx((3 - deviation, 3 + deviation), rel=1e-3)
    means = {drawn.get_label().lower(): drawn.get_ydata()[0] for drawn in axis.lines}
    assert means == {"scpo": 3.0, "trpo": 4.0}


def test_panels_are_called_as_metrics_are_everywhere() -> None:
    figure = draw(metric_plot([line("a", 1.0, 1.0)]))
    assert [axis.get_title() for axis in figure.axes] == [metrics.title(k) for k in metrics.CHARTS]


def test_methods_that_earn_little_do_not_set_the_scale() -> None:
    lines = [line("good", 2.0, 1.0), line("idle", 0.1, 50.0, 1)]
    assert limits(lines, metrics.EPISODE_COST) == (0.0, pytest.approx(1.15))
    low, high = limits(lines, RETURN)
    assert (low, high) == pytest.approx((-0.3, 2.3))


@pytest.mark.parametrize("rate", [0.01, None])  # None: its environment has no cost
def test_runs_in_which_no_episode_ended_are_drawn_and_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, recwarn: Any, rate: float | None
) -> None:
    none = {RETURN: None, "cost/episode": None, "cost/max": None, "cost/rate": rate}
    runs = [write_run(tmp_path), write_run(tmp_path, label="new", epoch=fixed(**none))]
    assert draw_curves(runs, tmp_path / "out/curves.png").exists()
    assert "new: no episode has ended yet" in caplog.text
    assert not [w for w in recwarn if "No artists" in str(w.message)]
    (legend,) = draw(metric_plot(run_lines(runs))).legends
    assert [text.get_text().lower() for text in legend.get_texts()] == ["scpo", "new"]


def test_a_legend_of_long_names_stays_within_the_picture() -> None:
    names = [f"SCPO · target_kl=0.0{i}, num_envs=128" for i in range(9)]
    figure = draw(metric_plot([line(name, 1.0, 1.0, i) for i, name in enumerate(names)]))
    figure.draw_without_rendering()
    (legend,) = figure.legends
    box, whole = legend.get_window_extent(), figure.bbox
    assert box.x0 >= 0 and box.x1 <= whole.x1 and box.y0 >= 0


# Styles ----------------------------------------------------------------------------------------


def test_an_algorithm_has_the_same_style_whatever_else_is_drawn() -> None:
    alone = styles({"SCPO": "scpo"})["SCPO"]
    among = styles({"mine": "", "TRPO": "trpo", "SCPO": "scpo"}, bold="scpo")["SCPO"]
    assert (alone.light, alone.dark, alone.dash) == (among.light, among.dark, among.dash)
    assert among.bold and not alone.bold


def test_any_number_of_algorithms_can_be_told_apart() -> None:
    names = {algo: algo for algo in ALGORITHMS}
    names |= {f"theirs-{i}": f"theirs-{i}" for i in range(20)} | {f"v{i}": "" for i in range(20)}
    found = styles(names)
    assert len({(look.light, look.dash) for look in found.values()}) == len(names)
    assert len({(look.dark, look.dash) for look in found.values()}) == len(names)


def test_an_algorithm_that_the_library_does_not_know_is_drawn_too(tmp_path: Path) -> None:
    folder = write_run(tmp_path, label="new_method")
    config = json.loads((folder / "config.json").read_text())
    config["train"]["algo"] = "new_method"
    (folder / "config.json").write_text(json.dumps(config))
    (found,) = run_lines([folder])
    assert found.name == "new_method"
    assert draw_curves([folder], tmp_path / "curves.png").exists()


# The page --------------------------------------------------------------------------------------


def test_charts_of_two_hundred_runs_leave_the_page_below_five_megabytes() -> None:
    # 16 suites of nine methods with bands, 200 points each, all five metrics.
    random = np.random.default_rng(0)
    values = {key: random.random(200) for key in metrics.CHARTS}
    curve = Curve(np.arange(200.0), values, values)
    lines = tuple(Line(f"method {i}", style(i), curve) for i in range(9))
    data = to_json(chart_data([SuiteCurves(f"suite {i}", lines, 0) for i in range(16)]))
    assert len(data) + len(page_scripts()) < 3_500_000  # the rest is for tables and pictures


def test_numbers_reach_the_page_as_32_bit_floats() -> None:
    data = to_json(chart_data([SuiteCurves("a", (line("SCPO", 2.5, 0.125),), 7)]))
    (suite,) = json.loads(data)["suites"]
    assert suite["lines"][0]["curve"]["mean"][RETURN] == {"f32": "AAAAAAAAIEA="}  # 0.0 and 2.5
    assert suite["settling"] == 7
