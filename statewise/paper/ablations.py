"""`statewise bench ablations`: the runs behind each of the paper's questions, and their figures."""

from __future__ import annotations

import itertools
from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from statewise import settings
from statewise.algos import get_algorithm
from statewise.bench.command import STOPPED_STATUS, GridOptions, leave, run_grid, split
from statewise.bench.grid import Grid, RunSpec, parse_seeds
from statewise.console import say
from statewise.extras import need
from statewise.paper.reference import DRONE, EXPERIMENTS, POINT, VARIANTS, reference
from statewise.plugins import import_modules
from statewise.report.groups import group_runs
from statewise.runs import checkpoint
from statewise.runs.reader import METRICS, RunData, find_runs
from statewise.settings import option
from statewise.training.config import TrainSettings

if TYPE_CHECKING:
    from statewise.report.plots import Plot

_TARGET_EPISODES = 200
"""Episodes of which question 3 shows five."""
_FIGURE_EPISODES = 256
"""Episodes of which Figure 1 shows one."""
_UNREADABLE = (ValueError, KeyError, RuntimeError, OSError)
"""What a damaged policy raises, one whose networks are of another version, or one whose environment is
not here."""


@dataclass(frozen=True)
class Ablations(GridOptions):
    """Train what the paper's questions need, and draw their figures.

    Runs that several questions share are trained once, and those that `bench paper` made in the
    same --out are taken as they are. Otherwise like `bench paper`: stop it and start it as you
    like. --suites replaces the suites of the paper's figures.
    """

    seeds: str = "0..1"
    """Seeds, as for `bench grid`. The paper has two."""
    questions: tuple[str, ...] = option(tuple(EXPERIMENTS), metavar="QUESTION")
    """Which: q2 q3 q4 q5, app (larger penalties of TRPO-Lagrangian), departures (SCPO's from the
    paper), fig1."""
    figures: Path | None = None
    """Where the figures and their numbers go; by default OUT/questions, where `statewise report`
    finds them."""
    figures_only: bool = False
    """Train nothing: draw what the runs in --out allow."""

    def run(self) -> None:
        questions = check_questions(split(self.questions))
        if not self.dry_run:
            need("drawing the figures", "report", "matplotlib")
        import_modules(self.imports)
        lists = {name: v if isinstance(v, list) else [v] for name, v in self.given().items()}
        if several := [name for name, values in lists.items() if len(values) > 1]:
            raise ValueError(f"--set {several[0]} has several values: give one here")
        given = {name: values[0] for name, values in lists.items()}
        suites, seeds = split(self.suites), parse_seeds(self.seeds)
        for suite in suites:  # also where no run asks for it: a misspelt one must not pass
            RunSpec(suite, "trpo").resolve(str(self.out))
        grid, status = ablation_grid(questions, seeds, str(self.out), suites, given), 0
        if grid.specs and not self.figures_only:
            status = run_grid(grid, self, self.dry_run, self.quiet)
        elif self.dry_run:
            why = "--figures-only" if grid.specs else f"{', '.join(questions)} needs no runs"
            say(f"nothing would be trained ({why})")
        elif self.figures_only and not self.out.is_dir():
            raise ValueError(f"--out {self.out} is not a folder: give one that holds runs")
        if status != STOPPED_STATUS and not self.dry_run:
            for line in draw_figures(self.out, self.figures or self.out / "questions", questions):
                if not self.quiet:
                    say(line)
        leave(status)


def check_questions(names: Sequence[str]) -> list[str]:
    """The names, each once; an unknown one, or none at all, raises ValueError."""
    if not names:
        raise ValueError(f"--questions names none: give some of {', '.join(EXPERIMENTS)}")
    for name in names:
        if name not in EXPERIMENTS:
            raise ValueError(settings.unknown("question", name, EXPERIMENTS))
    return list(dict.fromkeys(names))


def ablation_grid(
    questions: Sequence[str],
    seeds: Sequence[int] = (0, 1),
    out: str = "runs",
    suites: Sequence[str] = (),
    given: Mapping[str, Any] | None = None,
) -> Grid:
    """The runs of some questions, each once; one seed of all of them before the next.

    suites: instead of those of the paper. given: settings that differ from the defaults; a setting of
    some algorithms only is set for those, and a variant's own comes first.
    """
    specs: dict[tuple[int, str, str], RunSpec] = {}
    wanted = [EXPERIMENTS[question] for question in questions]
    kinds = {label: get_algorithm(label.partition("-")[0])
             for _, variants in wanted for label in variants}  # fmt: skip
    owners: list[type] = [TrainSettings, *(kind.settings_class for kind in kinds.values())]
    train, *_ = settings.split_by_owner(given or {}, *owners)
    for seed, (theirs, variants) in itertools.product(seeds, wanted):
        for suite, label in itertools.product(suites or theirs, variants):
            kind, (_, changed) = kinds[label], VARIANTS.get(label, ("", {}))
            known = settings.hints_of(kind.settings_class)
            own = {k: v for k, v in (given or {}).items() if k in known}
            own |= {k: v for k, v in changed.items() if k in known}
            how = train | {k: v for k, v in changed.items() if k not in known}
            spec = RunSpec(suite, kind.name, seed, how, own, label if label != kind.name else "")
            specs.setdefault((seed, suite, label), spec)
    return Grid(tuple(specs.values()), out)


# Figures -----------------------------------------------------------------------------------------


def draw_figures(out: Path, folder: Path, names: Sequence[str]) -> list[str]:
    """Draw what the runs in `out` answer into `folder`; a line about each figure, drawn or not.

    Beside each picture lie its numbers, from which it is drawn again where the runs are not.
    """
    from statewise.paper import questions  # draws: not needed before
    from statewise.report.plots import save

    runs: Sequence[RunData] = ()
    kept, trouble = questions.read_kept([out, folder])
    if any(out.rglob(METRICS)):
        try:
            reading = find_runs([out])
            runs, trouble = reading.runs, [*reading.notes, *trouble]
        except ValueError as error:  # of runs without an epoch, which leaves what needs none
            trouble.insert(0, str(error))
    lines = [f"left out: {line}" for line in trouble]
    recorded, unusable = _record_episodes(runs, names, kept)
    found = questions.find_answers(group_runs(runs, reference()), kept | recorded)
    for question in questions.QUESTIONS:
        plot, why = found.get(question.key), unusable.get(question.key)
        if question.name in names and plot is None:
            lines.append(
                f"{question.key}: not drawn, {why or f'it needs {question.needs} in {out}'}"
            )
        elif question.name in names and plot is not None:
            questions.keep({question.key: plot}, folder)
            save(plot, folder / f"{question.key}.svg")
            file = save(plot, folder / f"{question.key}.png")
            again = f"\n    drawn again from its numbers: {why}" if why else ""
            lines.append(f"{question.key}: {file}\n    {plot.caption}{again}")
    return lines


def _record_episodes(
    runs: Sequence[RunData], names: Sequence[str], kept: Container[str]
) -> tuple[dict[str, Plot], dict[str, str]]:
    """The answers that need a policy at work: the targets of q3, and Figure 1; and why one is missing.

    Where no policy is on disk, or none that can be read, a plot that was kept stays as it is.
    """
    from statewise.paper import episodes  # simulates: not needed before

    recorded: dict[str, Plot] = {}
    troubles: dict[str, str] = {}
    # The unconstrained policy meets hazards, which is what the figure is about.
    scpo, trpo = _with_policy(runs, "scpo", DRONE), _with_policy(runs, "trpo", POINT)
    wanted: list[tuple[str, RunData | None, int, Any]] = []
    if "q3" in names and scpo is not None:
        wanted.append(("q3_targets", scpo, _TARGET_EPISODES, episodes.targets))
    if "fig1" in names and (trpo is not None or "figure1" not in kept):
        wanted.append(("figure1", trpo, _FIGURE_EPISODES, episodes.episode))
    for key, run, count, show in wanted:
        try:
            recorded[key] = show(
                episodes.record(run.path if run else None, run.suite if run else POINT, count)
            )
        except _UNREADABLE as error:
            if run is None:
                raise
            why = f"{type(error).__name__}: {error}"
            troubles[key] = f"the policy of {run.path} cannot be used ({why})"
    return recorded, troubles


def _with_policy(runs: Sequence[RunData], label: str, suite: str) -> RunData | None:
    """A run with a checkpoint: in the suite if there is one, of the lowest seed."""
    able = [r for r in runs if r.label == label and checkpoint.latest(r.path / "checkpoints")]
    return min(able, key=lambda r: (r.suite != suite, r.suite, r.seed), default=None)
