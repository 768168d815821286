"""The paper's questions, answered from runs: numbers first, then a figure and what it says.

An answer is plain data. `write_answers` keeps it as JSON beside its figure, so that a figure can be
drawn again where the runs themselves are not.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from matplotlib.figure import Figure

from statewise.report import question_captions as captions
from statewise.report import question_pictures as pictures
from statewise.report.build import picture
from statewise.report.content import Section
from statewise.report.data import RunData, read_runs
from statewise.report.groups import Group, group_runs
from statewise.report.markdown import plain
from statewise.report.paper import DRONE, MAXIMUM_SUITES, POINT
from statewise.report.question_captions import BOUNDS, RESOURCES
from statewise.report.question_pictures import Data
from statewise.report.table import short
from statewise.report.variants import DEPARTURES, LAGRANGIAN, SUBSAMPLED, VARIANT
from statewise.runs.checkpoint import write_atomically

FOLDER = "questions"
"""Where `write_answers` is looked for among runs."""


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
    answer: Callable[[Sequence[Group]], Data | None]
    """From runs, or None if those it needs are not there"""
    draw: Callable[[Data], Figure]
    caption: Callable[[Data], str]


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


def find_answers(roots: Sequence[Path], left_out: list[str] | None = None) -> list[Answer]:
    """What the runs in some folders answer; else what was written down there before.

    left_out: as in `read_dumps`.
    """
    groups = group_runs(read_runs(roots).runs)
    return answers(groups, read_dumps(roots, left_out))


def answers(groups: Sequence[Group], dumps: Mapping[str, Data]) -> list[Answer]:
    """One for each question that can be answered, in the paper's order."""
    found = []
    for question in QUESTIONS:
        data = question.answer(groups)
        if data is None:
            data = dumps.get(question.key)
        if data is not None:
            found.append(Answer(question, data))
    return found


def read_dumps(roots: Sequence[Path], left_out: list[str] | None = None) -> dict[str, Data]:
    """What `write_answers` left in some folders, or in ones named `questions` within them.

    left_out: is given a sentence for each file that cannot be used; without it, one is a ValueError.
    """
    by_key = {question.key: question for question in QUESTIONS}
    dumps = {}
    found = [p for r in roots for p in (*r.glob("*.json"), *sorted(r.rglob(f"{FOLDER}/*.json")))]
    for path in dict.fromkeys(found):
        if path.stem not in by_key:
            continue
        try:
            dumps[path.stem] = _read_dump(path, by_key[path.stem])
        except ValueError as error:
            if left_out is None:
                raise
            left_out.append(str(error))
    return dumps


def _read_dump(path: Path, question: Question) -> Data:
    """Numbers that the question's figure can be drawn from; others raise ValueError."""
    try:
        data: Data = json.loads(path.read_text())
        question.caption(data)
        question.draw(data)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = str(error) if isinstance(error, ValueError) else "it lacks numbers of its figure"
        raise ValueError(f"{path} is damaged ({why}): remove it, or draw its figure anew") from None
    return data


def write_answers(found: Sequence[Answer], folder: Path) -> None:
    """The numbers of each as JSON."""
    for answer in found:
        text = json.dumps(answer.data, separators=(",", ":"), allow_nan=False) + "\n"
        write_atomically(folder / f"{answer.question.key}.json", text.encode())


def questions_section(
    found: Sequence[Answer], folder: Path, left_out: Sequence[str] = ()
) -> list[Section]:
    """The part of a report, its figures drawn into `folder`; nothing if there is nothing to say.

    left_out: sentences about what cannot be shown.
    """
    if not found and not left_out:
        return []
    html = [f"<p>Left out: {escape(line)}</p>" for line in left_out]
    text, files = [plain(f"Left out: {line}") for line in left_out], []
    for answer in found:
        file, title = answer.save(folder, svg=False), answer.question.title
        html.append(f"<h3>{escape(title)}</h3>{picture(file, answer.caption)[0]}")
        text.append(f"### {title}\n\n![{title}](pictures/{file.name})\n\n{plain(answer.caption)}")
        files.append(file)
    return [Section("The paper's questions", "\n".join(html), "\n\n".join(text), tuple(files))]


# Curves: questions 2 and 3, the appendix, our departures -----------------------------------------


def maximum_answer(groups: Sequence[Group]) -> Data | None:
    """Q2: the largest cost of an episode over training, of SCPO in every suite; the paper's two first."""
    scpo = [g for g in groups if g.own == "scpo"]
    scpo.sort(key=lambda g: g.suite not in MAXIMUM_SUITES)
    return {"curves": [curve(g, ("cost/max",)) for g in scpo]} if scpo else None


def subsampling_answer(groups: Sequence[Group]) -> Data | None:
    """Q3: SCPO with and without sub-sampling the zero targets."""
    return _compared(groups, ("episode/return", "cost/episode"), DRONE, _sub_sampled)


def lagrangian_answer(groups: Sequence[Group]) -> Data | None:
    """Appendix: SCPO beside TRPO-Lagrangian whose penalty weighs k times as much."""

    def scaled(group: Group) -> str:
        k = group.label.removeprefix(LAGRANGIAN)
        return f"TRPO-LAG-{k}" if k != group.label else ""

    metrics = ("episode/return", "cost/episode", "cost/rate")
    return _compared(groups, metrics, POINT, scaled, {"trpo_lag": "TRPO-LAG-1"})


def departures_answer(groups: Sequence[Group]) -> Data | None:
    """SCPO as it is here beside SCPO with a choice of the paper's restored."""

    def departs(group: Group) -> str:
        named = group.algo == "scpo" and group.label.startswith(VARIANT)
        return DEPARTURES.get(group.label, group.label) if named else ""

    metrics = ("episode/return", "cost/episode", "cost/max", "cost/rate")
    # Sub-sampling alone is question 3, not this one.
    others = [g for g in groups if g.suite == POINT or not _sub_sampled(g)]
    return _compared(others, metrics, POINT, departs)


def _sub_sampled(group: Group) -> str:
    """The name of an SCPO that sub-samples; empty for any other group."""
    how = group.label.removeprefix(SUBSAMPLED)
    if how == group.label:
        return ""
    return "sub-sampled" if how == "resample" else f"sub-sampled ({how})"


def _compared(
    groups: Sequence[Group],
    metrics: Sequence[str],
    suite: str,
    variant: Callable[[Group], str],
    others: Mapping[str, str] = MappingProxyType({}),
) -> Data | None:
    """SCPO and its rivals, in the paper's suite or in the first one that has them.

    variant: what a group is called here, empty if it does not belong; others: algorithms that are
    shown too, but are not what is asked.
    """
    own = {"scpo": "SCPO", **others}
    has = {g.suite for g in groups if g.own == "scpo"} & {g.suite for g in groups if variant(g)}
    if not has:
        return None
    chosen = suite if suite in has else min(has)
    curves = []
    for group in groups:
        name = own.get(group.own) or variant(group)
        if group.suite == chosen and name:
            # Several settings under one label are told apart by what differs.
            differs = "".join(group.name.partition(" · ")[1:])
            curves.append(curve(group, metrics) | {"name": name + differs})
    return {"suite": chosen, "metrics": list(metrics), "curves": curves}


def curve(group: Group, metrics: Sequence[str]) -> Data:
    """Mean and deviation over the counted seeds."""
    whole = group.curve()
    return {
        "suite": group.suite,
        "name": group.name,
        "algo": group.own,
        "seeds": len(group.counted),
        "steps": group.steps,
        "finished": group.finished,
        "on": "GPU" if group.device.startswith("cuda") else "CPU",
        "x": [int(step) for step in whole.steps],
        "mean": {key: short(whole.mean[key]) for key in metrics},
        "std": {key: short(whole.std[key]) for key in metrics},
    }


# Question 4: the bound against the truth ---------------------------------------------------------


def bound_answer(groups: Sequence[Group]) -> Data | None:
    """What each epoch of SCPO predicted for the next one, and what that one showed."""
    for group in sorted(groups, key=lambda g: g.suite != POINT):
        if group.own != "scpo":
            continue
        name = (group.runs[0].config.get("spec", {}).get("cost_names") or [""])[0]
        seeds = [(run, bound_pairs(_epochs(run), name)) for run in group.counted]
        seeds = [(run, pairs) for run, pairs in seeds if pairs["steps"]]
        if seeds:
            return {
                "suite": group.suite,
                "constraint": name,
                "seeds": len(seeds),
                "steps": group.steps,
                "drawn_seed": seeds[0][0].seed,
                "pairs": seeds[0][1],
                "epochs": sum(len(pairs["steps"]) for _, pairs in seeds),
                "idle": sum(pairs["idle"] for _, pairs in seeds),
                "tests": bound_tests([pairs for _, pairs in seeds]),
            }
    return None


def bound_pairs(epochs: Sequence[Data], name: str) -> Data:
    """Columns, a row for each epoch k that took a step: its predictions, and what k + 1 showed.

    `J` is the estimate from all steps of epoch k + 1, `cost/max` the plain mean over the episodes
    that ended in it, some of which began under older policies. `idle`: epochs that took no step,
    and so predicted nothing.
    """
    keys = ("steps", "J", "max_cost", *BOUNDS)
    columns: Data = {key: [] for key in keys} | {"idle": 0}
    for now, then in pairwise(epochs):
        row = [then["steps"], then.get(f"constraint/{name}/estimate"), then.get(f"cost/{name}/max")]
        row += [now.get(f"constraint/{name}/{bound.removeprefix('J_')}") for bound in BOUNDS]
        if then["epoch"] != now["epoch"] + 1 or row[1] is None or None in row[3:]:
            continue
        if now.get("policy/kl") == 0.0:
            columns["idle"] += 1
            continue
        for key, value in zip(keys, row, strict=True):
            columns[key].append(value)
    return columns


def bound_tests(seeds: Sequence[Data]) -> Data:
    """For each version of the prediction: how often it was not exceeded, and by how much it missed.

    `share`: of the epochs with J at most the prediction; `share_max_cost`: with the mean over
    finished episodes at most it; `excess`: median of prediction minus J; `distance`: of its size.
    """
    tests = {}
    for bound in BOUNDS:
        rows = [row for s in seeds for row in zip(s[bound], s["J"], s["max_cost"], strict=True)]
        largest = [(b, m) for b, _, m in rows if m is not None]
        excess = [b - j for b, j, _ in rows]
        tests[bound] = {
            "share": sum(e >= 0 for e in excess) / len(rows),
            "share_max_cost": sum(b >= m for b, m in largest) / len(largest) if largest else None,
            "excess": statistics.median(excess),
            "distance": statistics.median(abs(e) for e in excess),
        }
    return tests


# Question 5: resources ---------------------------------------------------------------------------


def resources_answer(groups: Sequence[Group]) -> Data | None:
    """Median time of an epoch and peak memory of TRPO, CPO and SCPO, and these relative to TRPO."""
    for suite in sorted({g.suite for g in groups}, key=lambda s: (s != POINT, s)):
        found = {g.own: g for g in groups if g.suite == suite and g.own in RESOURCES}
        used = {algo: _resources(found[algo]) for algo in RESOURCES if algo in found}
        if len(used) < len(RESOURCES) or not all(used.values()):
            continue
        base = used["trpo"]
        shown = [key for key in base if all(key in u for u in used.values()) and base[key] > 0]
        machines = {_machine(run) for g in found.values() for run in g.counted}
        return {
            "suite": suite,
            "seeds": {algo: len(found[algo].counted) for algo in RESOURCES},
            "steps": {algo: found[algo].steps for algo in RESOURCES},
            "machines": sorted(machines),
            "same_settings": len({(g.task, g.device) for g in found.values()}) == 1,
            "used": {algo: {k: used[algo][k] for k in shown} for algo in RESOURCES},
            "relative": {a: {k: used[a][k] / base[k] for k in shown} for a in RESOURCES},
        }
    return None


def _resources(group: Group) -> dict[str, float]:
    """Mean over seeds; empty if their epochs are not on disk.

    The median epoch, not the mean: the first one also compiles and captures.
    """
    seeds = []
    for run in group.counted:
        epochs = [e for e in _epochs(run) if e.get("time/update") is not None]
        if not epochs:
            return {}
        collect = [e["time/collect"] for e in epochs]
        update = [e["time/update"] for e in epochs]
        used = {
            "collect": statistics.median(collect),
            "update": statistics.median(update),
            "epoch": statistics.median(c + u for c, u in zip(collect, update, strict=True)),
        }
        for key, memory in (("memory", "memory/process_mib"), ("gpu_memory", "memory/gpu_mib")):
            values = [e[memory] for e in epochs if e.get(memory) is not None]
            used |= {key: max(values)} if values else {}
        seeds.append(used)
    return {k: statistics.mean(s[k] for s in seeds) for k in seeds[0] if all(k in s for s in seeds)}


def _machine(run: RunData) -> str:
    where = run.environment
    return str(where.get("gpu") if run.config["train"].get("device", "cpu") != "cpu"
               else f"{where.get('processor')}, {where.get('cores')} cores")  # fmt: skip


def _epochs(run: RunData) -> list[Data]:
    """Every whole epoch on disk with all its metrics; the small form of a run has few of them."""
    epochs: list[Data] = []
    for line in (run.path / "metrics.jsonl").read_text(errors="replace").splitlines():
        try:
            epochs.append(json.loads(line))
        except json.JSONDecodeError:  # cut short or damaged, as the report says elsewhere
            break
    return epochs


# All of them -------------------------------------------------------------------------------------


def _dumped(groups: Sequence[Group]) -> Data | None:
    """Needs a policy at work, which `statewise bench ablations` records; a report only reads."""
    return None


QUESTIONS = (
    Question("figure1", "fig1", "Figure 1: cost, maximum and increments of one episode",
             "nothing but a suite", _dumped, pictures.draw_episode, captions.episode_caption),
    Question("q2", "q2", "Q2: the maximum state-wise cost over training",
             "a run of SCPO", maximum_answer, pictures.draw_maximum, captions.maximum_caption),
    Question("q3_targets", "q3", "Q3: targets of the cost critics",
             f"a checkpoint of SCPO on {DRONE}", _dumped, pictures.draw_targets,
             captions.targets_caption),
    Question("q3", "q3", "Q3: SCPO with and without sub-sampling",
             "runs of scpo and scpo-subsample-resample in one suite", subsampling_answer,
             pictures.draw_compared, captions.subsampling_caption),
    Question("q4", "q4", "Q4: the bound against the truth",
             "a run of SCPO with the metrics of two epochs", bound_answer, pictures.draw_bound,
             captions.bound_caption),
    Question("q5", "q5", "Q5: resources of TRPO, CPO and SCPO",
             "runs of trpo, cpo and scpo in one suite", resources_answer, pictures.draw_resources,
             captions.resources_caption),
    Question("app", "app", "Appendix: larger penalties for TRPO-Lagrangian",
             "runs of scpo and trpo_lag-k10 in one suite", lagrangian_answer,
             pictures.draw_compared, captions.lagrangian_caption),
    Question("departures", "departures", "What our departures from the paper do",
             "runs of scpo and one of its variants, such as scpo-paper, in one suite",
             departures_answer, pictures.draw_compared, captions.departures_caption),
)  # fmt: skip
