"""What the report and the questions must not claim, and what one bad file must not cost."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path
from typing import Any

import pytest
from synthetic_runs import write_run

import statewise
from statewise.bench import ray_launcher
from statewise.cli import main
from statewise.paper import questions as q
from statewise.paper.ablations import draw_figures
from statewise.paper.answers import maximum
from statewise.paper.claims import Check, Judged, claims_table, judge, tally
from statewise.paper.reference import reference
from statewise.report.assemble import assemble
from statewise.report.curves import UNSETTLED
from statewise.report.groups import Group, group_runs
from statewise.report.limits import limits_of
from statewise.report.markdown import markdown
from statewise.report.ranking import rank
from statewise.report.write import page
from statewise.runs import checkpoint
from statewise.runs.reader import find_runs
from statewise.text import millions

GOOD = {"episode/return": 2.58, "cost/episode": 0.54, "cost/rate": 0.0071}
NO_EPISODE = {"episode/return": None, "episode/return_std": None, "cost/episode": None,
              "cost/max": None, "cost/hazard/max": None, "cost/hazard/violation_rate": None,
              "episode/count": 0}  # fmt: skip
SCPO_RUN = "Point-Hazard-8/scpo/seed-0"


def groups_of(root: Path) -> list[Group]:
    return group_runs(find_runs([root]).runs, reference())


def findings(root: Path) -> Judged:
    return judge(groups_of(root))


def limits(root: Path) -> list[str]:
    return limits_of(groups_of(root), reference())


def check(root: Path, key: str) -> Check:
    return findings(root).checks[key]


def write(root: Path, algo: str, ends: bool = True, **more: Any) -> None:
    """A run; `ends`: whether an episode ends in its last epoch (20 epochs: the late ones too)."""

    def epoch(number: int) -> dict[str, Any]:
        return GOOD | (NO_EPISODE if number == 20 and not ends else {})

    write_run(root, algo=algo, epoch=epoch, **more)


def ablations(*args: str | Path) -> int:
    return main(["bench", "ablations", *map(str, args)])


# Claims ------------------------------------------------------------------------------------------


def test_claims_about_episodes_stay_open_until_one_can_have_run_out_of_time(tmp_path: Path) -> None:
    for algo in ("scpo", "trpo"):
        write_run(tmp_path, algo=algo, epoch=lambda _: GOOD, longest=1_000_000)
    found = findings(tmp_path)
    judged = {key for key, c in found.checks.items() if c.verdict is not None}
    assert judged == {"cost_rate_lowest", "cost_rate_paper"}
    assert any("none can have run out of time before" in limit for limit in limits(tmp_path))
    report = assemble(find_runs([tmp_path]))
    assert UNSETTLED in page(report)


def test_lowest_says_of_how_many_and_fewer_than_nine_are_counted_apart(tmp_path: Path) -> None:
    for algo, cost in (("scpo", 0.001), ("trpo", 0.002)):
        write_run(tmp_path, algo=algo, epoch=lambda _, cost=cost: GOOD | {"cost/rate": cost})
    found = findings(tmp_path)
    assert found.checks["cost_rate_lowest"].among == 2
    assert tally([found])["cost_rate_lowest"] == ["1 of 1 with fewer methods"]
    table = claims_table([found])
    assert "yes, of 2" in [cell.text for cell in table.rows[0].cells]


def test_a_method_that_is_safer_because_it_did_not_learn_is_told_from_one_that_did(
    tmp_path: Path,
) -> None:
    costs = {"scpo": 0.001, "trpo": 0.002, "trpo_ipo": 0.0001}
    for algo, cost in costs.items():
        given = GOOD | {"cost/rate": cost} | ({"episode/return": 0.3} if algo == "trpo_ipo" else {})
        write_run(tmp_path / "idle", algo=algo, epoch=lambda _, given=given: given)
        write_run(
            tmp_path / "able", algo=algo, epoch=lambda _, cost=cost: GOOD | {"cost/rate": cost}
        )
    idle = check(tmp_path / "idle", "cost_rate_lowest")
    assert (idle.verdict, idle.among, idle.among_learned) == (False, 3, 2)
    assert "Of the 2 methods that learned the suite it is." in idle.text
    table = claims_table([findings(tmp_path / "idle")])
    assert "no, of 3 (yes, of 2)" in [cell.text for cell in table.rows[0].cells]
    able = check(tmp_path / "able", "cost_rate_lowest")
    assert (able.verdict, able.among_learned) == (False, 0)


def test_scpo_is_not_said_to_be_the_safest_that_learned_while_a_cost_is_not_known(
    tmp_path: Path,
) -> None:
    write(tmp_path, "scpo")
    write(tmp_path, "trpo")
    write_run(
        tmp_path,
        algo="trpo_ipo",
        epoch=lambda _: GOOD | {"episode/return": 0.3, "cost/episode": 0.0},
    )
    assert check(tmp_path, "episode_cost_lowest").among_learned == 2
    write(tmp_path, "cpo", ends=False)
    assert check(tmp_path, "episode_cost_lowest").among_learned == 0


def test_a_safe_scpo_that_did_not_learn_is_not_the_safest_of_those_that_did(tmp_path: Path) -> None:
    for algo, cost in (("scpo", 0.001), ("trpo", 0.002), ("trpo_ipo", 0.0001)):
        idle = {} if algo == "trpo" else {"episode/return": 0.3}
        write_run(tmp_path, algo=algo, epoch=lambda _, g=GOOD | {"cost/rate": cost} | idle: g)
    assert check(tmp_path, "cost_rate_lowest").among_learned == 0


def test_a_method_that_hardly_earns_anything_is_ranked_last(tmp_path: Path) -> None:
    idle = {"episode/return": 0.3, "cost/rate": 0.0}
    for algo, given in (("scpo", {"cost/rate": 0.001}), ("trpo", {}), ("trpo_ipo", idle)):
        write_run(tmp_path, algo=algo, epoch=lambda _, given=given: GOOD | given)
    ranks = rank(groups_of(tmp_path), "trpo")
    assert [r.own for r in ranks] == ["scpo", "trpo", "trpo_ipo"]


def test_trpo_is_not_the_papers_where_its_return_is_not_known(tmp_path: Path) -> None:
    write(tmp_path / "ends", "trpo")
    assert check(tmp_path / "ends", "trpo").verdict is True
    write(tmp_path / "open", "trpo", ends=False)
    found = check(tmp_path / "open", "trpo")
    assert found.verdict is None
    assert "return and episode cost of the last epoch is not known" in found.text


def test_a_number_that_is_apart_tells_though_others_are_not_known(tmp_path: Path) -> None:
    write_run(tmp_path, algo="trpo", epoch=lambda n: NO_EPISODE | {"cost/rate": 0.5})
    assert check(tmp_path, "trpo").verdict is False


def test_whether_a_suite_was_learned_is_open_where_no_episode_ended(tmp_path: Path) -> None:
    write(tmp_path, "trpo", ends=False)
    found = check(tmp_path, "learned")
    assert found.verdict is None
    assert "No method learned" not in found.text and "TRPO" in found.text


def test_a_method_without_late_episodes_is_not_said_to_have_failed(tmp_path: Path) -> None:
    write(tmp_path, "trpo")
    write(tmp_path, "scpo", ends=False)
    found = check(tmp_path, "learned")
    assert found.verdict is True
    assert "Not: " not in found.text
    assert "Not known, since too few episodes ended: SCPO." in found.text


def test_learning_without_a_start_to_compare_with_is_open(tmp_path: Path) -> None:
    write_run(tmp_path, "Arm3-Hazard-8", epoch=lambda n: NO_EPISODE if n == 1 else {})
    assert check(tmp_path, "learned").verdict is None


def test_scpo_is_not_the_lowest_while_a_rivals_cost_is_not_known(tmp_path: Path) -> None:
    write(tmp_path, "scpo")
    write(tmp_path, "trpo")
    assert check(tmp_path, "episode_cost_lowest").verdict is True
    write(tmp_path, "cpo", ends=False)
    found = check(tmp_path, "episode_cost_lowest")
    assert found.verdict is None and "CPO" in found.text
    assert check(tmp_path, "cost_rate_lowest").verdict is True  # every run has that one


@pytest.mark.parametrize(
    ("train", "own", "named"),
    [
        ({"continuing": True}, {}, "continuing=True"),
        ({}, {"cost_limit": (0.5,)}, "cost_limit=0.5"),
    ],
)
def test_another_task_is_named_and_not_held_against_the_paper(
    train: dict[str, Any], own: dict[str, Any], named: str, tmp_path: Path
) -> None:
    write(tmp_path, "scpo", train=train, **own)
    for key in ("cost_rate_paper", "episode_cost_paper"):
        assert check(tmp_path, key).verdict is None
    assert (
        f"Another task than the paper's, so not held against its numbers: SCPO ({named})."
        in limits(tmp_path)
    )


def test_trpo_of_another_task_is_not_the_papers(tmp_path: Path) -> None:
    write(tmp_path, "trpo", train={"continuing": True})
    assert check(tmp_path, "trpo").verdict is None
    assert (
        check(tmp_path, "learned").verdict is False
    )  # by its own start, not by the paper's return


def test_compact_observations_are_the_papers_task(tmp_path: Path) -> None:
    write(tmp_path, "trpo", train={"compact": True})
    assert check(tmp_path, "trpo").verdict is True
    assert not any("Another task" in limit for limit in limits(tmp_path))


@pytest.mark.parametrize("suite", ["gym:Cart-v0", "Point-Hazard-8-Pillar-4"])
def test_the_paper_has_no_steps_for_a_suite_that_is_not_in_it(suite: str, tmp_path: Path) -> None:
    write_run(tmp_path, suite)
    said = limits(tmp_path)
    assert not any("Fewer steps than the paper" in limit for limit in said)
    assert "The paper's tables do not have this suite." in said


# One bad file --------------------------------------------------------------------------------------


def test_an_unreadable_policy_costs_only_its_own_figure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = statewise.train(
        "Point-Hazard-8", "trpo", quiet=True, out=str(tmp_path), steps=160, steps_per_epoch=160,
        num_envs=4, hidden=(8,), tensorboard=False,
    )  # fmt: skip
    for path in (run / "checkpoints").iterdir():
        path.write_bytes(path.read_bytes()[:-100])
    write_run(tmp_path)
    questions = ("--questions", "fig1", "q2", "q4")
    assert ablations("--figures-only", *questions, "--out", tmp_path) == 0
    said = capsys.readouterr().out
    assert f"figure1: not drawn, the policy of {run} cannot be used" in said
    assert "no checkpoint that can be read" in said
    assert (tmp_path / "questions/q2.png").exists()


def test_a_policy_of_a_newer_version_costs_only_its_own_figure(tmp_path: Path) -> None:
    run = write_run(tmp_path, algo="trpo")
    checkpoint.save(run / "checkpoints/epoch-00020.ckpt", {"algo": {}})
    config = json.loads((run / "config.json").read_text())
    config["train"]["from_the_future"] = 1
    (run / "config.json").write_text(json.dumps(config))
    write_run(tmp_path)
    figure1, q2 = draw_figures(tmp_path, tmp_path / "questions", ["fig1", "q2"])
    assert figure1.startswith(f"figure1: not drawn, the policy of {run} cannot be used")
    assert "config.json" in figure1
    assert "q2.png" in q2


def test_runs_without_an_epoch_are_named_and_figures_that_need_none_are_drawn(
    tmp_path: Path,
) -> None:
    (write_run(tmp_path / "runs") / "metrics.jsonl").write_text("")
    note, q4 = draw_figures(tmp_path / "runs", tmp_path / "figures", ["q4"])
    assert note.startswith("left out: ") and f"{SCPO_RUN}: no whole epoch yet" in note
    assert q4.startswith("q4: not drawn, it needs a run of SCPO")


@pytest.mark.parametrize("content", [b"{}", b"[]", b"null", b'{"suite": ', b"\xff\x00\xfe\x80"])
@pytest.mark.parametrize("key", [question.key for question in q.QUESTIONS])
def test_numbers_that_no_figure_can_be_drawn_from_are_left_out_and_named(
    key: str, content: bytes, tmp_path: Path
) -> None:
    (tmp_path / f"{key}.json").write_bytes(content)
    kept, (line,) = q.read_kept([tmp_path])
    assert kept == {}
    assert line.startswith(f"{tmp_path / key}.json is damaged (")


def test_a_question_whose_numbers_are_damaged_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    runs, out = tmp_path / "runs", tmp_path / "report"
    write_run(runs)
    (runs / "questions").mkdir()
    (runs / "questions/q4.json").write_text("{}")
    lines = draw_figures(runs, tmp_path / "figures", ["q2", "q4"])
    assert "questions/q4.json is damaged" in lines[0]
    assert "q2.png" in lines[1] and "q4: not drawn" in lines[2]
    assert main(["report", str(runs), "--out", str(out)]) == 0
    for text in (caplog.text, *((out / n).read_text() for n in ("index.html", "report.md"))):
        assert "questions/q4.json is damaged" in text
    assert "### Q2" in (out / "report.md").read_text()


# Nothing to do --------------------------------------------------------------------------------------


def test_no_question_at_all_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert ablations("--out", tmp_path, "--questions", ",") == 2
    assert "--questions names none: give some of fig1, q2" in capsys.readouterr().err


@pytest.mark.parametrize("args", [("fig1",), ("q4", "--figures-only")])
def test_a_dry_run_that_would_train_nothing_says_so(
    args: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ablations("--dry-run", "--out", tmp_path / "new", "--questions", *args) == 0
    assert "nothing would be trained" in capsys.readouterr().out
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("is_file", [False, True])
def test_figures_of_a_folder_that_is_not_there_are_an_error(
    is_file: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "nowhere"
    if is_file:
        out.write_text("")
    assert ablations("--figures-only", "--questions", "q4", "--out", out) == 2
    assert "is not a folder: give one that holds runs" in " ".join(capsys.readouterr().err.split())


@pytest.mark.parametrize("question", ["fig1", "q4"])
def test_a_misspelt_suite_is_an_error_also_where_nothing_is_trained(
    question: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ("--figures-only", "--questions", question, "--out", tmp_path)
    assert ablations(*args, "--suites", "Bad-Suite-1") == 2
    assert "Bad-Suite-1" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("steps", "text"),
    [(4_000, "0.004"), (40, "0.00004"), (89_856, "0.09"), (599_040, "0.6"), (5_990_400, "5.99"),
     (30_000_000, "30")],
)  # fmt: skip
def test_a_caption_never_says_0_million_of_some_steps(steps: int, text: str) -> None:
    assert millions(steps) == text


def test_a_caption_says_seeds_and_steps(tmp_path: Path) -> None:
    write_run(tmp_path, "Mine-1", epochs=3)
    plot = maximum(groups_of(tmp_path))
    assert plot is not None and "1 seed, 0.09 million steps." in plot.caption


# Ray, Ctrl-C -----------------------------------------------------------------------------------------


def test_a_dead_cluster_in_the_environment_fails_within_seconds_with_the_fix(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setattr(ray_launcher, "CONNECT_SECONDS", 1.0)
    # Without the check this would wait for minutes: then fail at once, for another reason.
    monkeypatch.setattr("ray.init", lambda **given: pytest.fail("asked Ray, which hangs"))
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{nobody.getsockname()[1]}"
        monkeypatch.setenv("RAY_ADDRESS", address)
        started = time.monotonic()
        status = main(["bench", "paper", "--suites", "Point-Hazard-1", "--launcher", "ray",
                       "--out", str(tmp_path / "runs")])  # fmt: skip
    assert status == 2 and time.monotonic() - started < 5
    error = capsys.readouterr().err
    assert f"{address}, which RAY_ADDRESS names" in error and "ray start --head" in error
    assert not (tmp_path / "runs").exists()


def test_an_address_of_the_environment_is_named_by_where_it_is_from(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("ray")
    monkeypatch.setenv("RAY_ADDRESS", "http://127.0.0.1:8265")
    assert main(["bench", "paper", "--launcher", "ray", "--out", str(tmp_path)]) == 2
    assert "RAY_ADDRESS is 'http://127.0.0.1:8265': give HOST:PORT" in capsys.readouterr().err


def test_ctrl_c_is_one_line_and_status_130(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: Any) -> None:
        raise KeyboardInterrupt

    write_run(tmp_path)
    monkeypatch.setattr("statewise.report.write.write_report", interrupted)
    monkeypatch.setattr("statewise.paper.ablations.draw_figures", interrupted)
    assert main(["report", str(tmp_path), "--out", str(tmp_path / "report")]) == 130
    assert ablations("--figures-only", "--out", tmp_path) == 130
    assert capsys.readouterr().err == "stopped\nstopped\n"


# Notes and Markdown ----------------------------------------------------------------------------------


def pages(root: Path, notes: bytes) -> tuple[str, str]:
    """The page and its twin of a run with notes."""
    write_run(root / "runs")
    (root / "notes.md").write_bytes(notes)
    report = assemble(find_runs([root / "runs"]), root / "notes.md")
    return page(report), markdown(report)


def test_notes_in_another_encoding_are_named(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"notes\.md is not UTF-8 .*: save it as UTF-8"):
        pages(tmp_path, "# Point-Hazard-8\nfür".encode("latin-1"))


def test_a_byte_order_mark_does_not_hide_the_first_heading(tmp_path: Path) -> None:
    write_run(tmp_path / "runs")
    (tmp_path / "notes.md").write_bytes("\ufeff# Point-Hazard-8\nIt stalls.\n".encode())
    notes = assemble(find_runs([tmp_path / "runs"]), tmp_path / "notes.md").notes
    assert (notes.overview, notes.suites) == ("", {"Point-Hazard-8": "It stalls."})


def test_a_comment_in_code_is_no_heading(tmp_path: Path) -> None:
    text = "## Point-Hazard-8\n\n```sh\n# Ant-Hazard-8\nstatewise list\n```\n\nEnd.\n"
    html, _ = pages(tmp_path, text.encode())
    assert "# Ant-Hazard-8\nstatewise list\n</code></pre>\n<p>End.</p>" in html
    assert "The notes speak of suites that are not here" not in html


def test_an_image_of_the_notes_is_its_name_and_address_on_the_page(tmp_path: Path) -> None:
    remote, inline = "http://example.org/a.png?x&y", "data:image/png;base64,iVBORw0KGgo="
    html, _ = pages(tmp_path, f"![]({remote})\n\n![a *b*]({remote})\n\n![c]({inline})".encode())
    assert html.count("<img") == 1 and f'<img src="{inline}" alt="c"' in html
    assert "<p>http://example.org/a.png?x&amp;y</p>" in html
    assert "<p>a b (http://example.org/a.png?x&amp;y)</p>" in html
