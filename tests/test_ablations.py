"""The paper's questions: which runs they need, and that their figures show the right numbers."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from line_env import LineEnv
from synthetic_runs import learning, write_run

import statewise
from statewise.algos import ALGORITHMS, get_algorithm
from statewise.bench.command import GridCommand
from statewise.bench.grid import product_grid
from statewise.cli import main
from statewise.paper import answers
from statewise.paper import questions as q
from statewise.paper.ablations import ablation_grid, check_questions, draw_figures
from statewise.paper.episodes import Recorded, _record, episode, record, targets
from statewise.paper.questions import paper_parts
from statewise.paper.reference import (
    ALGOS,
    DRONE,
    EXPERIMENTS,
    MAXIMUM_SUITES,
    POINT,
    SUITES,
    reference,
)
from statewise.report.assemble import assemble
from statewise.report.curves import styles
from statewise.report.groups import Group, group_runs
from statewise.report.plots import Plot, Series, save, write_plot
from statewise.runs.export import export_runs
from statewise.runs.reader import find_runs
from statewise.runs.summary import Columns

ALL = list(EXPERIMENTS)
BOTH = {"constraint/hazard/estimate": 0.05, "policy/kl": 0.01}
"""What question 4 needs beside the predictions"""


def groups_of(root: Path) -> list[Group]:
    return group_runs(find_runs([root]).runs, reference())


def recorded(*episodes: list[float]) -> Recorded:
    """Episodes with these costs, side by side."""
    longest = max(map(len, episodes))
    cost = torch.zeros(longest, len(episodes), 1, dtype=torch.float64)
    ended = torch.zeros(longest, len(episodes), dtype=torch.bool)
    for i, costs in enumerate(episodes):
        cost[: len(costs), i, 0] = torch.tensor(costs, dtype=torch.float64)
        ended[len(costs) - 1, i] = True
    return Recorded("Point-Hazard-8", "a test", "hazard", cost, ended)


def drawn(plot: Plot | None, panel: int = 0) -> dict[str, Series]:
    """The series of a panel by name; those without one by number."""
    assert plot is not None
    return {s.name or str(i): s for i, s in enumerate(plot.panels[panel].series)}


def bounds(first: float, corrected: float, printed: float, **more: float) -> dict[str, float]:
    names = (
        "constraint/hazard/predicted",
        "constraint/hazard/predicted_corrected",
        "constraint/hazard/predicted_printed",
    )
    return dict(zip(names, (first, corrected, printed), strict=True)) | more


# Which runs --------------------------------------------------------------------------------------


@pytest.mark.parametrize("question", ALL)
def test_the_runs_of_a_question_resolve_into_folders_of_their_own(question: str) -> None:
    specs = ablation_grid([question], seeds=(0, 3)).specs
    folders = [spec.resolve("runs")[0].folder for spec in specs]
    assert len(set(folders)) == len(folders)
    suites, variants = EXPERIMENTS[question]
    assert len(folders) == 2 * len(suites) * len(variants)


def test_runs_that_questions_share_are_trained_once() -> None:
    specs = ablation_grid(ALL, seeds=(0,)).specs
    names = [(spec.suite, spec.name) for spec in specs]
    assert len(set(names)) == len(names)
    assert names.count(("Point-Hazard-8", "scpo")) == 1  # of q4, q5, app and departures
    apart = sum(len(ablation_grid([question], seeds=(0,)).specs) for question in ALL)
    assert len(names) == apart - 3


def test_runs_with_default_settings_are_those_of_the_papers_grid() -> None:
    grid = product_grid(SUITES, list(ALGOS), (0, 1))
    paper = {spec.resolve("runs")[0].folder: spec.resolve("runs") for spec in grid.specs}
    plain = [spec for spec in ablation_grid(ALL).specs if not spec.label]
    assert {spec.algo for spec in plain} == {"scpo", "trpo", "cpo", "trpo_lag"}
    for spec in plain:
        train, own = spec.resolve("runs")
        assert paper[train.folder] == (train, own)


def test_each_variant_differs_from_the_defaults_in_what_its_label_says() -> None:
    changed: dict[str, dict[str, Any]] = {}
    for spec in ablation_grid(ALL, seeds=(0,)).specs:
        default = dataclasses.asdict(get_algorithm(spec.algo).settings_class())
        own = dataclasses.asdict(spec.resolve("runs")[1])
        if spec.label:
            changed[spec.label] = {k: v for k, v in own.items() if v != default[k]}
    assert changed["scpo-subsample-resample"] == {"subsample": "resample"}
    assert changed["trpo_lag-k10"] == {"penalty_scale": 10.0}
    assert changed["trpo_lag-k100"] == {"penalty_scale": 100.0}
    assert changed["scpo-blind"] == {"policy_sees_maximum": False}
    assert changed["scpo-raw-inputs"] == {"scale_inputs": False}
    assert changed["scpo-eta-1"] == {"recovery_fraction": 1.0}
    assert changed["scpo-no-feedback"] == {"cost_feedback": 0.0}
    assert changed["scpo-lam-0.95"] == {"cost_lam": 0.95}
    assert changed["scpo-paper"] == {
        "recovery_fraction": 1.0, "tolerance": 0.0, "cost_feedback": 0.0, "tightening": 0.0,
        "cost_lam": 0.97, "subsample": "resample", "reward_test": "paper", "critic_batch": 0,
        "rescue": False,
        "scale_inputs": False, "cost_critic_lr": 1e-3, "first_cost": 0.0, "cg_iterations": 100,
        "cg_damping": 0.0, "fisher_states": 0, "least_noise": 0.0,
    }  # fmt: skip


def test_options_that_are_not_given_do_not_win_over_a_preset() -> None:
    command = GridCommand(suites=("Point-Hazard-8",), set=("preset=paper",))
    (paper,) = command.grid(command.suites, ("scpo",)).specs
    (few,) = dataclasses.replace(command, num_envs=10).grid(command.suites, ("scpo",)).specs
    assert [spec.resolve("runs")[0].num_envs for spec in (paper, few)] == [30, 10]


def test_settings_reach_the_runs_and_a_variants_own_come_first() -> None:
    grid = ablation_grid(
        ["departures"], (0,), "o", ["Swimmer-Hazard-1"],
        {"steps": 600_000, "cost_lam": 0.5, "hidden": (8,)},
    )  # fmt: skip
    settings = {spec.name: spec.resolve("o") for spec in grid.specs}
    assert {train.suite for train, _ in settings.values()} == {"Swimmer-Hazard-1"}
    assert {train.steps for train, _ in settings.values()} == {600_000}
    assert settings["scpo"][1] == get_algorithm("scpo").settings_class(cost_lam=0.5, hidden=(8,))
    own = {"cost_lam": 0.95, "hidden": (8,)}
    assert settings["scpo-lam-0.95"][1] == get_algorithm("scpo").settings_class(**own)


def test_an_unknown_question_is_named_with_the_nearest() -> None:
    with pytest.raises(ValueError, match=r"unknown question 'departure'.* mean departures"):
        check_questions(["q2", "departure"])


def test_questions_and_figures_belong_together() -> None:
    assert {question.name for question in q.QUESTIONS} == set(EXPERIMENTS)
    assert EXPERIMENTS["q2"][0] == MAXIMUM_SUITES
    suites = {suite for suites, _ in EXPERIMENTS.values() for suite in suites}
    assert suites == {POINT, DRONE, *MAXIMUM_SUITES}


# Episodes of a policy ----------------------------------------------------------------------------


def test_targets_are_the_sums_to_go() -> None:
    costs = [0.0, 0.2, 0.1, 0.0, 0.5, 0.3, 0.0]
    found = targets(recorded(costs, [0.0, 0.0], [0.4]), count=5)
    records = [max(c - max([0.0, *costs[:t]]), 0.0) for t, c in enumerate(costs)]
    assert records == pytest.approx([0, 0.2, 0, 0, 0.3, 0, 0])
    v_c = [sum(0.99 ** (u - t) * costs[u] for u in range(t, 7)) for t in range(7)]
    v_d = [sum(records[t:]) for t in range(7)]
    for panel, values in zip(found.panels, (v_c, v_d), strict=True):
        first, last = panel.series  # the episode without a cost is not drawn
        assert first.y == pytest.approx(values, rel=1e-5) and last.y == [0.4]
    assert "from the 2 with a cost, of 3 in all" in found.caption
    # V_C is 0 after the last cost and in the episode without any; V_D after the last record too.
    assert "Of all 10 steps, 30.0 % have" in found.caption
    assert [panel.note for panel in found.panels] == [
        "30.0 % of all targets are 0", "40.0 % of all targets are 0",
    ]  # fmt: skip


def test_the_increments_of_figure_1_sum_to_the_largest_cost() -> None:
    often = [0.1, 0.0, 0.3, 0.35, 0.0, 0.2, 0.6, 0.0]
    found = episode(recorded([0.9, 0.0], often))
    lines, increments = drawn(found), drawn(found, 1)["D, increment of M"].y
    assert lines["C, cost of the step"].y == often
    assert lines["M, largest so far"].y == [0.1, 0.1, 0.3, 0.35, 0.35, 0.35, 0.6, 0.6]
    assert increments == pytest.approx([0.1, 0, 0.2, 0.05, 0, 0, 0.25, 0])
    assert "largest cost of the episode (0.600)" in found.caption
    # 0.3 and 0.35 follow each other, and are one rise; a gap after each.
    assert lines["rise of M"].x == [0, 0, 0, 3, 3, 3, 6, 6, 6]
    heights = [y for y in lines["rise of M"].y if y is not None]
    assert heights == pytest.approx([0, 0.1, 0.1, 0.35, 0.35, 0.6])
    assert "that matter (3)" in found.caption


def test_a_random_policy_and_a_run_are_recorded_the_same_way_each_time(tmp_path: Path) -> None:
    run = statewise.train(
        "Point-Hazard-8", "trpo", quiet=True, out=str(tmp_path), steps=320, steps_per_epoch=160,
        num_envs=4, hidden=(8,), tensorboard=False,
    )  # fmt: skip
    for path in (None, run):
        one, two = (record(path, "Point-Hazard-8", episodes=4) for _ in range(2))
        assert torch.equal(one.cost, two.cost)
        assert bool((one.ended.sum(0) == 1).all())  # one episode of each world
        assert episode(one).panels[1].note.startswith("Σ D = ")
    assert one.policy == "trpo, seed 0, after 320 steps"


def test_a_run_without_costs_has_nothing_to_show_and_says_so() -> None:
    with pytest.raises(ValueError, match="Line reports no costs"):
        _record(LineEnv(4, 0), lambda step: torch.zeros(4, 1), "trpo", seed=0)


# What the answers hold ---------------------------------------------------------------------------


def test_predictions_are_held_against_the_epoch_after_them() -> None:
    epochs = [
        {"epoch": 1, "steps": 10, "constraint/hazard/estimate": 9.0, "policy/kl": 0.01}
        | bounds(0.30, 5.0, 9.0),
        {
            "epoch": 2,
            "steps": 20,
            "constraint/hazard/estimate": 0.40,
            "cost/hazard/max": 0.2,
            "policy/kl": 0.01,
        }
        | bounds(0.50, 0.6, 9.0),
        {
            "epoch": 3,
            "steps": 30,
            "constraint/hazard/estimate": 0.45,
            "cost/hazard/max": None,
            "policy/kl": 0.0,
        }
        | bounds(0.45, 0.45, 0.45),  # took no step
        {
            "epoch": 4,
            "steps": 40,
            "constraint/hazard/estimate": 0.10,
            "cost/hazard/max": 0.3,
            "policy/kl": 0.01,
        }
        | bounds(0.20, 0.2, 9.0),
        {
            "epoch": 5,
            "steps": 50,
            "constraint/hazard/estimate": 0.25,
            "cost/hazard/max": 0.1,
            "policy/kl": 0.01,
        },  # skipped
        {"epoch": 6, "steps": 60, "constraint/hazard/estimate": 0.25, "cost/hazard/max": 0.1},
    ]
    keys = dict.fromkeys(key for epoch in epochs for key in epoch)
    columns = Columns({k: np.array([e.get(k) for e in epochs], dtype=float) for k in keys})
    pairs, idle = answers.bound_pairs(columns, "hazard")
    assert pairs["steps"].tolist() == [20, 30, 50]
    assert pairs["truth"].tolist() == [0.40, 0.45, 0.25]
    assert pairs["episodes"].tolist() == pytest.approx([0.2, np.nan, 0.1], nan_ok=True)
    assert pairs["predicted"].tolist() == [0.30, 0.50, 0.20]
    assert idle == 1


def test_the_caption_of_the_bound_says_how_often_it_holds(tmp_path: Path) -> None:
    truths = [9.0, 0.40, 0.45, 0.25]
    first = [0.30, 0.50, 0.20, 0.0]  # two of three are below the truth of the next epoch

    def epoch(number: int) -> dict[str, Any]:
        more = {"constraint/hazard/estimate": truths[number - 1], "policy/kl": 0.01}
        return bounds(first[number - 1], 5.0, 9.0, **more)

    write_run(tmp_path, epochs=4, epoch=epoch)
    plot = answers.bound(groups_of(tmp_path))
    assert plot is not None
    assert "not exceeded in 33.3 % of epochs, median distance 0.0500" in plot.caption
    assert "With the corrected penalty: 100.0 %, a median of 4.60 above the truth" in plot.caption
    assert plot.panels[1].log and len(plot.panels[1].series) == 3


def test_resources_are_those_of_the_median_epoch_relative_to_trpo(tmp_path: Path) -> None:
    update = {"trpo": 2.0, "cpo": 3.0, "scpo": 4.0}
    for algo, seconds in update.items():
        write_run(
            tmp_path, algo=algo,
            epoch=lambda i, s=seconds: {"time/update": 100.0 if i == 1 else s,
                                        "memory/process_mib": 100.0 * s},
        )  # fmt: skip
    plot = answers.resources(groups_of(tmp_path))
    found = drawn(plot)
    assert [text.split("\n")[1] for text in found["SCPO"].labels] == [
        "(1.00)", "(4.00)", "(5.00)", "(400)",
    ]  # fmt: skip
    assert found["TRPO"].y == [1.0, 1.0, 1.0, 1.0]
    assert found["CPO"].y[2] == pytest.approx(4 / 3)
    assert plot is not None and "NOT comparable" not in plot.caption


def test_resources_of_unlike_runs_are_called_so(tmp_path: Path) -> None:
    for algo in ("trpo", "cpo", "scpo"):
        train = {"num_envs": 64 if algo == "scpo" else 128}
        write_run(tmp_path, algo=algo, train=train)
    plot = answers.resources(groups_of(tmp_path))
    assert plot is not None and "NOT comparable" in plot.caption


def test_curves_are_means_over_seeds_of_the_right_runs(tmp_path: Path) -> None:
    values = {("scpo", 0): 1.0, ("scpo", 1): 3.0, ("scpo-subsample-resample", 0): 5.0}
    for (label, seed), value in values.items():
        write_run(tmp_path, "Drone-3DHazard-8", "scpo", seed, label=label, epochs=3,
                  epoch=lambda i, v=value: {"episode/return": v * i, "cost/max": v})  # fmt: skip
    groups = groups_of(tmp_path)
    plot = answers.compared("q3", groups)
    found = drawn(plot)
    assert list(found) == ["SCPO (2 seeds)", "sub-sampled (1 seed)"]
    assert found["SCPO (2 seeds)"].y == [2.0, 4.0, 6.0]
    assert found["sub-sampled (1 seed)"].y == [5.0, 10.0, 15.0]
    assert plot is not None
    assert "SCPO: 2 seeds, 0.09 million steps; sub-sampled: 1 seed" in plot.caption
    most = answers.maximum(groups)
    (only,) = drawn(most).values()  # of SCPO as it is, not of a variant
    assert only.y == [2.0, 2.0, 2.0]
    assert most is not None and "not here: Ant-Hazard-8, Walker-Hazard-8" in most.caption


def test_the_appendix_and_the_departures_take_their_own_variants(tmp_path: Path) -> None:
    for algo, label in (("scpo", ""), ("scpo", "scpo-paper"), ("scpo", "scpo-eta-1"),
                        ("trpo_lag", ""), ("trpo_lag", "trpo_lag-k10"), ("trpo", "")):  # fmt: skip
        write_run(tmp_path, algo=algo, label=label or None, epochs=3)
    groups = groups_of(tmp_path)
    lagrangian, departures = (answers.compared(key, groups) for key in ("app", "departures"))
    names = [name.removesuffix(" (1 seed)") for name in drawn(lagrangian)]
    assert names == ["SCPO", "TRPO-LAG-1", "TRPO-LAG-10"]
    names = [name.removesuffix(" (1 seed)") for name in drawn(departures)]
    assert names == ["SCPO", "recovery fraction 1", "all of the paper's settings"]
    assert departures is not None and "but for the ages of the worlds" in departures.caption


# Figures, commands, reports ----------------------------------------------------------------------


def write_everything(root: Path) -> None:
    """Runs of two epochs that answer all questions which need no policy."""
    for spec in ablation_grid(ALL, seeds=(0, 1)).specs:
        curves = learning(spec.algo, spec.seed, 4)

        def epoch(i: int, curves: Any = curves) -> dict[str, Any]:
            return curves(i) | bounds(
                0.1, 2.0, 3.0, **BOTH | {"constraint/hazard/estimate": 0.05 * i}
            )

        write_run(root, spec.suite, spec.algo, spec.seed, label=spec.label or None, epochs=4,
                  epoch=epoch, **spec.algorithm)  # fmt: skip


def test_every_figure_is_drawn_and_again_from_its_numbers_alone(tmp_path: Path) -> None:
    runs, figures, again = tmp_path / "runs", tmp_path / "runs/questions", tmp_path / "again"
    write_everything(runs)
    figures.mkdir()
    costs = ([0.0, 0.2, 0.0, 0.3, 0.0], [0.1, 0.0])
    write_plot(targets(recorded(*costs)), figures / "q3_targets.json")
    write_plot(episode(recorded(*costs)), figures / "figure1.json")
    lines = draw_figures(runs, figures, ALL)
    keys = [question.key for question in q.QUESTIONS]
    assert [line.split(":")[0] for line in lines] == keys
    assert not [line for line in lines if "not drawn" in line]
    for key in keys:
        assert (figures / f"{key}.png").read_bytes().startswith(b"\x89PNG")
        assert "<svg" in (figures / f"{key}.svg").read_text()
    # What lies there is enough, and no policy was needed: two files were written by hand.
    found = q.find_answers([], q.read_kept([figures])[0])
    assert list(found) == keys
    for key in ("q3", "figure1"):
        save(found[key], again / f"{key}.svg")
        assert (again / f"{key}.svg").read_text() == (figures / f"{key}.svg").read_text()


def test_what_cannot_be_drawn_is_said(tmp_path: Path) -> None:
    write_run(tmp_path, algo="trpo", epochs=3)
    lines = draw_figures(tmp_path, tmp_path / "questions", ["q2", "q3", "q4", "q5", "app"])
    assert len(lines) == 6
    for line in lines:
        assert "not drawn, it needs" in line
    assert any("runs of trpo, cpo and scpo" in line for line in lines)


def test_the_command_draws_from_what_is_there_and_plans_without_training(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_run(tmp_path, epochs=3)
    out = ["--out", str(tmp_path)]
    assert main(["bench", "ablations", "--questions", "q2,q4", "--figures-only", *out]) == 0
    said = capsys.readouterr().out
    assert "q2.png" in said and "q4: not drawn" in said
    assert (tmp_path / "questions/q2.svg").exists()
    empty = ["--out", str(tmp_path / "new"), "--steps", "60000", "--device", "cpu"]
    assert main(["bench", "ablations", "--questions", "app", "--dry-run", *empty]) == 0
    assert "8 runs: 8 to start" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


def test_a_report_shows_the_questions_its_runs_answer(tmp_path: Path) -> None:
    runs, out, small = (tmp_path / name for name in ("runs", "report", "small"))
    for algo in ("scpo", "trpo", "cpo"):
        values = bounds(0.1, 2.0, 3.0, **BOTH)
        write_run(runs, algo=algo, epochs=4, epoch=lambda i, v=values: v)
    assert main(["report", str(runs), "--out", str(out), "--export", str(small)]) == 0
    text = (out / "report.md").read_text()
    titles = [line for line in text.splitlines() if line.startswith("### Q")]
    assert [title[4:6] for title in titles] == ["Q2", "Q4", "Q5"]
    assert (out / "pictures/q4.png").exists()
    assert "questions</h2>" in (out / "index.html").read_text()
    # The small form of the runs has too few metrics for Q4 and Q5: their numbers lie beside it.
    assert list(q.find_answers(groups_of(small), {})) == ["q2"]
    assert list(q.find_answers(groups_of(small), q.read_kept([small])[0])) == ["q2", "q4", "q5"]


def test_a_report_without_answers_has_no_such_section(tmp_path: Path) -> None:
    write_run(tmp_path / "runs", algo="trpo", epochs=3)
    assert main(["report", str(tmp_path / "runs"), "--out", str(tmp_path / "report")]) == 0
    assert "paper's questions" not in (tmp_path / "report/report.md").read_text()


def test_damaged_numbers_are_named(tmp_path: Path) -> None:
    write_run(tmp_path, epochs=3)
    export_runs(find_runs([tmp_path]).runs, tmp_path / "small")
    (tmp_path / "small/questions").mkdir()
    (tmp_path / "small/questions/q4.json").write_text('{"suite": ')
    kept, (line,) = q.read_kept([tmp_path / "small"])
    assert not kept and "q4.json is damaged" in line


def test_no_two_curves_of_a_figure_look_the_same() -> None:
    for _, variants in EXPERIMENTS.values():
        names = {label: label if label in ALGORITHMS else "" for label in variants}
        looks = {(style.light, style.dash) for style in styles(names).values()}
        assert len(looks) == len(variants)


def test_runs_of_a_question_are_left_out_of_the_curves_of_a_suite() -> None:
    labels = {v for _, variants in EXPERIMENTS.values() for v in variants} - set(ALGORITHMS)
    assert labels and all(map(answers.of_a_question, labels))
    assert not any(map(answers.of_a_question, (*ALGORITHMS, "scpo-mine")))


def test_a_suite_with_nothing_else_shows_the_runs_of_a_question(tmp_path: Path) -> None:
    write_run(tmp_path, "Point-Hazard-8", "scpo")
    write_run(tmp_path, "Point-Hazard-8", "scpo", label="scpo-paper")
    write_run(tmp_path, "Swimmer-Hazard-8", "scpo", label="scpo-paper")
    reading = find_runs([tmp_path])
    paper, sections = paper_parts(reading, [tmp_path])
    report = assemble(reading, reference=paper, sections=sections, pictures=tmp_path / "drawn")
    assert sorted((g.suite, g.label) for g in report.charted) == [
        ("Point-Hazard-8", "scpo"), ("Swimmer-Hazard-8", "scpo-paper"),
    ]  # fmt: skip
