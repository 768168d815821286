"""The paper's part of a report: its numbers, its claims, and its questions, each answered by a plot."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from statewise.paper import answers
from statewise.paper.claims import claims_section
from statewise.paper.reference import DRONE, reference
from statewise.report.assemble import Sections
from statewise.report.groups import Group
from statewise.report.plots import Plot, read_plot, save, write_plot
from statewise.report.reference import Reference
from statewise.report.sections import Picture, Section
from statewise.runs.reader import Reading

log = logging.getLogger("statewise")

FOLDER = "questions"
"""Where plots are looked for among runs."""


class Question(NamedTuple):
    key: str
    """Name of its files"""
    name: str
    """What `--questions` calls it: some have two figures"""
    title: str
    needs: str
    """Without which there is no answer"""
    answer: Callable[[Sequence[Group]], Plot | None] = lambda groups: None
    """From runs, or None if those it needs are not there, or if it needs a policy at work, which
    `statewise bench ablations` records"""


QUESTIONS = (
    Question("figure1", "fig1", "Figure 1: cost, maximum and increments of one episode",
             "nothing but a suite"),
    Question("q2", "q2", "Q2: the maximum state-wise cost over training", "a run of SCPO",
             answers.maximum),
    Question("q3_targets", "q3", "Q3: targets of the cost critics",
             f"a checkpoint of SCPO on {DRONE}"),
    Question("q3", "q3", "Q3: SCPO with and without sub-sampling",
             "runs of scpo and scpo-subsample-resample in one suite",
             partial(answers.compared, "q3")),
    Question("q4", "q4", "Q4: the bound against the truth",
             "a run of SCPO with the metrics of two epochs", answers.bound),
    Question("q5", "q5", "Q5: resources of TRPO, CPO and SCPO",
             "runs of trpo, cpo and scpo in one suite", answers.resources),
    Question("app", "app", "Appendix: larger penalties for TRPO-Lagrangian",
             "runs of scpo and trpo_lag-k10 in one suite", partial(answers.compared, "app")),
    Question("departures", "departures", "What our departures from the paper do",
             "runs of scpo and one of its variants, such as scpo-paper, in one suite",
             partial(answers.compared, "departures")),
)  # fmt: skip


def find_answers(groups: Sequence[Group], kept: Mapping[str, Plot]) -> dict[str, Plot]:
    """By key one for each question that the runs, or else a plot kept from before, answer."""
    found = {q.key: q.answer(groups) or kept.get(q.key) for q in QUESTIONS}
    return {key: plot for key, plot in found.items() if plot is not None}


def read_kept(roots: Sequence[Path]) -> tuple[dict[str, Plot], list[str]]:
    """The plots in some folders, or in ones named `questions` within them; and a sentence for each file
    that cannot be used."""
    keys = [question.key for question in QUESTIONS]
    kept, left_out = {}, []
    found = [p for r in roots for p in (*r.glob("*.json"), *sorted(r.rglob(f"{FOLDER}/*.json")))]
    for path in (p for p in dict.fromkeys(found) if p.stem in keys):
        try:
            kept[path.stem] = read_plot(path)
        except ValueError as error:
            left_out.append(f"{path} is damaged ({error}): remove it, or draw its figure anew")
    return kept, left_out


def keep(found: Mapping[str, Plot], folder: Path) -> None:
    """Write each as JSON."""
    for key, plot in found.items():
        write_plot(plot, folder / f"{key}.json")


def _questions_section(
    groups: Sequence[Group], found: Mapping[str, Plot], folder: Path, left_out: Sequence[str] = ()
) -> list[Section]:
    """The part of a report, its figures drawn into `folder`; nothing if there is nothing to say.

    left_out: sentences about what cannot be shown.
    """
    titles = {question.key: question.title for question in QUESTIONS}
    pictures = [Picture(save(plot, folder / f"{key}.png"), titles[key], plot.caption)
                for key, plot in found.items()]  # fmt: skip
    labels = tuple({g.label for g in groups if answers.of_a_question(g.label)})
    lines = tuple(f"Left out: {line}" for line in left_out)
    section = Section("The paper's questions", lines, tuple(pictures), labels=labels)
    return [section] if found or left_out else []


def paper_parts(
    reading: Reading, roots: Sequence[Path], export: Path | None = None
) -> tuple[Reference | None, Sections]:
    """What `write_report` is given for runs of the paper's suites; nothing for others.

    roots: where the runs lie, and perhaps numbers of questions. export: where to write these too.
    """
    if not any(run.suite in reference().steps for run in reading.runs):
        return None, ()

    def sections(groups: Sequence[Group], pictures: Path) -> list[Section]:
        kept, left_out = read_kept(roots)
        for line in left_out:
            log.warning("left out: %s", line)
        answers = find_answers(groups, kept)
        if export is not None:
            keep(answers, export / FOLDER)
        questions = _questions_section(groups, answers, pictures, left_out)
        return [claims_section(groups), *questions]

    return reference(), sections
