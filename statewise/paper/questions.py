"""The paper's questions, answered from runs: numbers first, then a figure and what it says.

An answer is plain data. `write_answers` keeps it as JSON beside its figure, so that a figure can be
drawn again where the runs themselves are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from html import escape
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from statewise.metrics import MAX_COST
from statewise.paper import answers, captions, pictures
from statewise.paper.answers import BOUNDS, RESOURCES, Data
from statewise.paper.reference import DRONE
from statewise.report.assemble import Section
from statewise.report.groups import Group
from statewise.report.markdown import plain
from statewise.report.write import picture
from statewise.runs.files import write_atomically
from statewise.runs.shapes import check, parse_json

FOLDER = "questions"
"""Where `write_answers` is looked for among runs."""

_LINES = dict[str, list[float | None]]
_CURVE = {"suite": str, "name": str, "algo": str, "seeds": int, "steps": int, "finished": bool,
          "on": str, "x": list[float], "mean": _LINES, "std": _LINES}  # fmt: skip
_CURVES = {"curves": [_CURVE]}
_COMPARED = {"suite": str, "metrics": list[str]} | _CURVES
_PAIRS = {"steps": list[float], "J": list[float], "max_cost": list[float | None],
          **dict.fromkeys(BOUNDS, list[float])}  # fmt: skip
_BOUND = {"suite": str, "constraint": str, "seeds": int, "steps": int, "drawn_seed": int,
          "pairs": _PAIRS, "epochs": int, "idle": int,
          "tests": {b: {"share": float, "excess": float, "distance": float} for b in BOUNDS}}  # fmt: skip
_COUNTS, _USED = (dict.fromkeys(RESOURCES, kind) for kind in (int, dict[str, float]))
_RESOURCES = {"suite": str, "seeds": _COUNTS, "steps": _COUNTS, "machines": list[str],
              "same_settings": bool, "used": _USED, "relative": _USED}  # fmt: skip
_TARGETS = {"suite": str, "policy": str, "gamma": float, "episodes": int, "costly": int, "steps": int,
            "zeros": {"V_C": float, "V_D": float},
            "targets": [{"V_C": list[float], "V_D": list[float]}]}  # fmt: skip
_EPISODE = {"suite": str, "policy": str, "episodes": int, "rises": int,
            **dict.fromkeys("CMD", list[float])}  # fmt: skip


@dataclass(frozen=True)
class Question:
    """What it needs, what it shows."""

    key: str
    """Name of its files"""
    name: str
    """What `--questions` calls it: some have two figures"""
    title: str
    needs: str
    """Without which there is no answer"""
    shape: Any
    """Of its data"""
    draw: Callable[[Data], Figure]
    caption: Callable[[Data], str]
    answer: Callable[[Sequence[Group]], Data | None] = lambda groups: None
    """From runs, or None if those it needs are not there, or if it needs a policy at work, which
    `statewise bench ablations` records"""


def _comparison(key: str, title: str, needs: str) -> Question:
    answer = partial(answers.compared_answer, key)
    caption = partial(captions.compared_caption, key)
    return Question(key, key, title, needs, _COMPARED, pictures.draw_compared, caption, answer)


QUESTIONS = (
    Question("figure1", "fig1", "Figure 1: cost, maximum and increments of one episode",
             "nothing but a suite", _EPISODE, pictures.draw_episode, captions.episode_caption),
    Question("q2", "q2", "Q2: the maximum state-wise cost over training", "a run of SCPO", _CURVES,
             pictures.draw_maximum, captions.maximum_caption, answers.maximum_answer),
    Question("q3_targets", "q3", "Q3: targets of the cost critics", f"a checkpoint of SCPO on {DRONE}",
             _TARGETS, pictures.draw_targets, captions.targets_caption),
    _comparison("q3", "Q3: SCPO with and without sub-sampling",
                "runs of scpo and scpo-subsample-resample in one suite"),
    Question("q4", "q4", "Q4: the bound against the truth",
             "a run of SCPO with the metrics of two epochs", _BOUND, pictures.draw_bound,
             captions.bound_caption, answers.bound_answer),
    Question("q5", "q5", "Q5: resources of TRPO, CPO and SCPO",
             "runs of trpo, cpo and scpo in one suite", _RESOURCES, pictures.draw_resources,
             captions.resources_caption, answers.resources_answer),
    _comparison("app", "Appendix: larger penalties for TRPO-Lagrangian",
                "runs of scpo and trpo_lag-k10 in one suite"),
    _comparison("departures", "What our departures from the paper do",
                "runs of scpo and one of its variants, such as scpo-paper, in one suite"),
)  # fmt: skip


@dataclass(frozen=True)
class Answer:
    question: Question
    data: Data

    @property
    def caption(self) -> str:
        return self.question.caption(self.data)

    def save(self, folder: Path, svg: bool = True) -> Path:
        """Write the figure as .png, which is returned, and as .svg if asked to."""
        return pictures.save(self.question.draw(self.data), folder / self.question.key, svg)


def find_answers(groups: Sequence[Group], dumps: Mapping[str, Data]) -> list[Answer]:
    """One for each question that the runs, or else numbers written down before, answer."""
    found = [
        (question, question.answer(groups) or dumps.get(question.key)) for question in QUESTIONS
    ]
    return [Answer(question, data) for question, data in found if data]


def read_dumps(roots: Sequence[Path]) -> tuple[dict[str, Data], list[str]]:
    """What `write_answers` left in some folders, or in ones named `questions` within them; and a
    sentence for each file that cannot be used."""
    by_key = {question.key: question for question in QUESTIONS}
    dumps, left_out = {}, []
    found = [p for r in roots for p in (*r.glob("*.json"), *sorted(r.rglob(f"{FOLDER}/*.json")))]
    for path in (p for p in dict.fromkeys(found) if p.stem in by_key):
        try:
            data = parse_json(path.read_bytes())
            check(data, by_key[path.stem].shape, "it")
            _check_columns(data)
            dumps[path.stem] = data
        except ValueError as error:
            left_out.append(f"{path} is damaged ({error}): remove it, or draw its figure anew")
    return dumps, left_out


def _check_columns(data: Data) -> None:
    """Raise ValueError unless columns that are drawn together are equally long, and not empty."""
    sets = [[data[key] for key in "CMD" if key in data]]
    sets.append([column for key, column in data.get("pairs", {}).items() if key in _PAIRS])
    for line in data.get("curves", ()):
        wanted = [
            (part, key) for part in ("mean", "std") for key in data.get("metrics", (MAX_COST,))
        ]
        sets.append([line["x"], *(line[part].get(key, ()) for part, key in wanted)])
    if any(columns and (len(set(map(len, columns))) > 1 or not columns[0]) for columns in sets):
        raise ValueError("its columns are empty, or not equally long")


def write_answers(found: Sequence[Answer], folder: Path) -> None:
    """The numbers of each as JSON."""
    for answer in found:
        text = json.dumps(answer.data, separators=(",", ":"), allow_nan=False) + "\n"
        write_atomically(folder / f"{answer.question.key}.json", text.encode())


def questions_section(
    groups: Sequence[Group], found: Sequence[Answer], folder: Path, left_out: Sequence[str] = ()
) -> list[Section]:
    """The part of a report, its figures drawn into `folder`; nothing if there is nothing to say.

    left_out: sentences about what cannot be shown.
    """
    if not found and not left_out:
        return []
    html = [f"<p>Left out: {escape(line)}</p>" for line in left_out]
    text = [plain(f"Left out: {line}") for line in left_out]
    for answer in found:
        file, title = answer.save(folder, svg=False), answer.question.title
        html.append(f"<h3>{escape(title)}</h3>{picture(file, answer.caption)[0]}")
        text.append(f"### {title}\n\n![{title}](pictures/{file.name})\n\n{plain(answer.caption)}")
    labels = tuple({g.label for g in groups if answers.of_a_question(g.label)})
    return [Section("The paper's questions", "\n".join(html), "\n\n".join(text), labels=labels)]
