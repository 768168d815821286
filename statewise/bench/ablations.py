"""`statewise bench ablations`: the runs behind each of the paper's questions, and their figures."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import tyro

from statewise.algos import get_algorithm
from statewise.bench import rollouts
from statewise.bench.command import STOPPED_STATUS, GridOptions, run_grid, split
from statewise.bench.grid import Grid, RunSpec, parse_seeds
from statewise.bench.launch import LaunchOptions
from statewise.report.data import RunData, read_runs
from statewise.report.groups import group_runs
from statewise.report.paper import DRONE, MAXIMUM_SUITES, POINT
from statewise.runs import checkpoint

TARGET_EPISODES = 200
"""Episodes of which question 3 shows five."""
FIGURE_EPISODES = 256
"""Episodes of which Figure 1 shows one."""
Recording = Callable[[rollouts.Recorded], dict[str, Any]]
_UNREADABLE = (ValueError, KeyError, RuntimeError, OSError)
"""What a damaged policy raises, one whose networks are of another version, or one whose environment is
not here."""


@dataclass(frozen=True)
class Variant:
    """An algorithm with some settings of its own changed, under a label."""

    algo: str
    label: str = ""
    """Empty: the defaults, the same run that `bench paper` makes"""
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Experiment:
    """The runs of a question: every variant in every suite."""

    suites: tuple[str, ...] = ()
    variants: tuple[Variant, ...] = ()


TRPO, CPO, SCPO, LAGRANGIAN = (Variant(name) for name in ("trpo", "cpo", "scpo", "trpo_lag"))
PAPER_SCPO = {
    "scale_inputs": False,
    "cost_critic_lr": 1e-3,
    "recovery_fraction": 1.0,
    "tolerance": 0.0,
    "reliable": False,
    "cost_lam": 0.97,
    "enough_costs": 0,
    "subsample": "resample",
    "reward_test": "paper",
    "critic_batch": 0,
}
"""SCPO by the paper's tables. Its bound term stays out, as in its code: with it no step is feasible."""

EXPERIMENTS = {
    "fig1": Experiment(),
    "q2": Experiment(MAXIMUM_SUITES, (SCPO,)),
    "q3": Experiment((DRONE,), (
        SCPO,
        Variant("scpo", "scpo-subsample-resample", {"subsample": "resample"}),
    )),
    "q4": Experiment((POINT,), (SCPO,)),
    "q5": Experiment((POINT,), (TRPO, CPO, SCPO)),
    "app": Experiment((POINT,), (
        SCPO,
        LAGRANGIAN,
        Variant("trpo_lag", "trpo_lag-k10", {"penalty_scale": 10.0}),
        Variant("trpo_lag", "trpo_lag-k100", {"penalty_scale": 100.0}),
    )),
    "departures": Experiment((POINT,), (
        SCPO,
        Variant("scpo", "scpo-paper", PAPER_SCPO),
        Variant("scpo", "scpo-blind", {"policy_sees_maximum": False}),
        Variant("scpo", "scpo-raw-inputs", {"scale_inputs": False}),
        Variant("scpo", "scpo-eta-1", {"recovery_fraction": 1.0}),
        Variant("scpo", "scpo-unreliable", {"reliable": False}),
        Variant("scpo", "scpo-lam-0.95", {"cost_lam": 0.95}),
        Variant("scpo", "scpo-tolerance-0", {"tolerance": 0.0}),
    )),
}  # fmt: skip
"""What each question trains. Figure 1 needs no training: any policy will do."""

_NO_SUITES = dataclasses.replace(GridOptions(), suites=())
_HERE = LaunchOptions()


@dataclass(frozen=True)
class Ablations:
    """Train what the paper's questions need, and draw their figures.

    Runs that several questions share are trained once, and those that `bench paper` made in the
    same --out are taken as they are. Otherwise like `bench paper`: stop it and start it as you
    like. --suites replaces the suites of the paper's figures.
    """

    questions: Annotated[tuple[str, ...], tyro.conf.arg(metavar="QUESTION ...")] = tuple(
        EXPERIMENTS
    )
    """Which: q2 q3 q4 q5, app (larger penalties of TRPO-Lagrangian), departures (SCPO's from the
    paper), fig1."""
    figures: Path | None = None
    """Where the figures and their numbers go; by default OUT/questions, where `statewise report`
    finds them."""
    figures_only: bool = False
    """Train nothing: draw what the runs in --out allow."""
    grid: Annotated[GridOptions, tyro.conf.OmitArgPrefixes] = _NO_SUITES
    launch: Annotated[LaunchOptions, tyro.conf.OmitArgPrefixes] = _HERE

    def run(self) -> None:
        questions = check_questions(split(self.questions))
        grid, status = self._grid(questions), 0
        if grid.specs and not self.figures_only:
            status = run_grid(grid, self.launch, self.grid.dry_run)
        elif self.grid.dry_run:
            why = "--figures-only" if grid.specs else f"{', '.join(questions)} needs no runs"
            print(f"nothing would be trained ({why})")
        elif self.figures_only and not self.grid.out.is_dir():
            raise ValueError(f"--out {self.grid.out} is not a folder: give one that holds runs")
        if status != STOPPED_STATUS and not self.grid.dry_run:
            folder = self.figures or self.grid.out / "questions"
            for line in draw_figures(self.grid.out, folder, questions):
                print(line)
        if status:
            raise SystemExit(status)

    def _grid(self, questions: Sequence[str]) -> Grid:
        algos = {v.algo for q in questions for v in EXPERIMENTS[q].variants}
        train, own = self.grid.settings([get_algorithm(name).settings_class for name in algos])
        suites, seeds = split(self.grid.suites), parse_seeds(self.grid.seeds)
        for suite in suites:  # also where no run asks for it: a misspelt one must not pass
            RunSpec(suite, "trpo", 0, train).resolve(str(self.grid.out))
        return ablation_grid(questions, seeds, str(self.grid.out), suites, train, own)


def check_questions(names: Sequence[str]) -> list[str]:
    """The names, each once; an unknown one, or none at all, raises ValueError."""
    if not names:
        raise ValueError(f"--questions names none: give some of {', '.join(EXPERIMENTS)}")
    for name in names:
        if name not in EXPERIMENTS:
            close = difflib.get_close_matches(name, EXPERIMENTS, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            known = ", ".join(EXPERIMENTS)
            raise ValueError(f"there is no question {name!r}: give some of {known}.{hint}")
    return list(dict.fromkeys(names))


def ablation_grid(
    questions: Sequence[str],
    seeds: Sequence[int] = (0, 1),
    out: str = "runs",
    suites: Sequence[str] = (),
    train: Mapping[str, Any] | None = None,
    algorithm: Mapping[str, Any] | None = None,
) -> Grid:
    """The runs of some questions, each once; one seed of all of them before the next.

    suites: instead of those of the paper. train, algorithm: settings that differ from the defaults;
    a setting of some algorithms only is set for those, and a variant's own comes first.
    """
    specs: dict[tuple[int, str, str], RunSpec] = {}
    for seed in seeds:
        for question in questions:
            experiment = EXPERIMENTS[question]
            for suite in suites or experiment.suites:
                for variant in experiment.variants:
                    known = {f.name for f in dataclasses.fields(
                        get_algorithm(variant.algo).settings_class)}  # fmt: skip
                    own = {k: v for k, v in (algorithm or {}).items() if k in known}
                    spec = RunSpec(suite, variant.algo, seed, dict(train or {}),
                                   own | dict(variant.settings), variant.label)  # fmt: skip
                    specs.setdefault((seed, suite, spec.name), spec)
    return Grid(tuple(specs.values()), out)


# Figures -----------------------------------------------------------------------------------------


def draw_figures(out: Path, folder: Path, questions: Sequence[str]) -> list[str]:
    """Draw what the runs in `out` answer into `folder`; a line about each figure, drawn or not.

    Beside each picture lie its numbers, from which it is drawn again where the runs are not.
    """
    from statewise.report import questions as report  # draws: not needed before

    runs, lines = _read(out)
    damaged: list[str] = []
    dumps = report.read_dumps([out, folder], damaged)
    lines += [f"left out: {line}" for line in damaged]
    recorded, troubles = record_episodes(runs, questions, dumps)
    found = {a.question.key: a for a in report.answers(group_runs(runs), dumps | recorded)}
    for question in report.QUESTIONS:
        if question.name not in questions:
            continue
        answer, trouble = found.get(question.key), troubles.get(question.key)
        if answer is None:
            why = trouble or f"it needs {question.needs} in {out}"
            lines.append(f"{question.key}: not drawn, {why}")
            continue
        report.write_answers([answer], folder)
        again = f"\n    drawn again from its numbers: {trouble}" if trouble else ""
        lines.append(f"{question.key}: {answer.save(folder)}\n    {answer.caption}{again}")
    return lines


def _read(out: Path) -> tuple[list[RunData], list[str]]:
    """The runs in a folder, and a line about each that is left out."""
    if not any(out.rglob("metrics.jsonl")):
        return [], []
    try:
        reading = read_runs([out])
    except ValueError as error:  # of runs without an epoch, which leaves what needs none
        return [], [f"left out: {error}"]
    return list(reading.runs), [f"left out: {note}" for note in reading.notes]


def record_episodes(
    runs: Sequence[RunData], questions: Sequence[str], dumps: Mapping[str, dict[str, Any]]
) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """The answers that need a policy at work: the targets of q3, and Figure 1; and why one is missing.

    Where no policy is on disk, or none that can be read, a recording among `dumps` stays as it is.
    """
    recorded: dict[str, dict[str, Any]] = {}
    troubles: dict[str, str] = {}

    def record(key: str, run: RunData | None, episodes: int, show: Recording) -> None:
        suite = run.suite if run else POINT
        try:
            found = rollouts.record(run.path if run else None, suite, episodes)
        except _UNREADABLE as error:
            if run is None:
                raise
            why = f"{type(error).__name__}: {error}"
            troubles[key] = f"the policy of {run.path} cannot be used ({why})"
        else:
            recorded[key] = show(found)

    scpo = _with_policy(runs, "scpo", DRONE)
    if "q3" in questions and scpo is not None:
        record("q3_targets", scpo, TARGET_EPISODES, rollouts.targets)
    # The unconstrained policy meets hazards, which is what the figure is about.
    trpo = _with_policy(runs, "trpo", POINT)
    if "fig1" in questions and (trpo is not None or "figure1" not in dumps):
        record("figure1", trpo, FIGURE_EPISODES, rollouts.episode)
    return recorded, troubles


def _with_policy(runs: Sequence[RunData], label: str, suite: str) -> RunData | None:
    """A run with a checkpoint: in the suite if there is one, of the lowest seed."""
    able = [r for r in runs if r.label == label and checkpoint.latest(r.path / "checkpoints")]
    return min(able, key=lambda r: (r.suite != suite, r.suite, r.seed), default=None)
