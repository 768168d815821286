"""The tables of a report: results, a suite's metrics, safety, resources and seeds, and provenance."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from statewise.core.statistics import Interval, mean_interval, pooled_error
from statewise.metrics import COST_RATE, EPISODE_COST, EPOCH_COST_RATE, MAX_COST, RETURN, title
from statewise.report.groups import Constraint, FinalPolicies, Group, command, title_of
from statewise.report.reference import Reference
from statewise.report.table import NONE, Cell, Column, Table
from statewise.runs.differences import settings_text
from statewise.runs.judged import Judged, JudgedConstraint
from statewise.runs.reader import RunData
from statewise.runs.summary import Array
from statewise.text import duration, interval_text, letter, percent, spread

COMPARED = (RETURN, EPISODE_COST, COST_RATE)
"""Metrics that are held against a baseline and a reference."""
_LATE = {RETURN: "return, last 5 %", EPISODE_COST: "episode cost, last 5 %",
         EPOCH_COST_RATE: "cost rate, last 5 %"}  # fmt: skip
_FACTS = ("statewise", "commit", "python", "packages", "platform", "processor", "cores", "gpu")


def headline_table(
    groups: Sequence[Group], shown: Sequence[str], reference: Reference | None = None
) -> Table:
    """A row for each suite: return, violation rate and episode cost of each algorithm.

    shown: the algorithms that are not folded, in their order.
    """
    mains = {(g.suite, g.algo): g for g in groups if g.main}
    names = {g.algo: title_of(g.algo) for g in mains.values()}
    algos = [*(a for a in shown if a in names), *(a for a in names if a not in shown)]

    def suite_cell(suite: str) -> Cell:
        steps = [g.steps for g in mains.values() if g.suite == suite and g.finished]
        less = reference.shorter(suite, steps) if reference else ""
        text = f"{suite} (shorter: {less})" if less else suite
        return Cell(text, suite.casefold(), link=f"#{suite}")

    final = any(g.judged for g in mains.values())
    cells: dict[str, Callable[[Group], Cell]] = {
        "return": lambda g: _beside(g, RETURN, reference),
        "violation rate": _worst_rate,
        "episode cost": lambda g: _beside(g, EPISODE_COST, reference),
    }
    if final:
        cells = {"final return": _final_return, "final violation rate": _final_rate} | cells
    columns = [Column("suite", suite_cell, numeric=False)]
    for what, make in cells.items():
        for algo in algos:

            def cell(suite: str, algo: str = algo, make: Callable[[Group], Cell] = make) -> Cell:
                group = mains.get((suite, algo))
                return Cell(NONE) if group is None else make(group)

            less = final and what in ("return", "violation rate")
            columns.append(Column(f"{what}, {names[algo]}", cell, folded=less or algo not in shown))
    beside = f", beside it the {reference.name}'s number" if reference else ""
    note = (f"Return and episode cost: last epoch, mean over seeds{beside}. Violation rate: share of "
            "the episodes of the last 5 % of epochs with any cost, with its 95 % interval over new "
            "seeds. Of several constraints the one broken most often.")  # fmt: skip
    if final:
        note += (" Final: fresh episodes of the policy after the last epoch, with mean actions, where "
                 "all seeds were judged.")  # fmt: skip
    suites = list(dict.fromkeys(group.suite for group in groups))
    return Table.of("Results", columns, suites, notes=(note,))


def _beside(group: Group, metric: str, reference: Reference | None) -> Cell:
    text = _spread_cell(group.values("last", metric)).text
    theirs = reference.text(group.suite, group.algo, metric) if reference else None
    text += f" ({reference.name} {theirs})" if reference and theirs else ""
    return Cell(text + ("" if group.finished else " (unfinished)"), group.mean("last", metric))


def _final_return(group: Group) -> Cell:
    return _spread_cell(np.array([j.mean_return for j in group.judged]))


def _final_rate(group: Group) -> Cell:
    """Of the constraint that the final policies break most often."""
    return Cell.interval(
        group.judged_rate, lambda r: f"{percent(r.estimate)} ({_percents(r, len(group.judged))})"
    )


def _worst_rate(group: Group) -> Cell:
    if group.violations is None:
        return Cell(NONE)
    rate, seeds = group.violations
    return Cell(f"{percent(rate.estimate)} ({_percents(rate, seeds)})", rate.estimate)


def metrics_table(groups: Sequence[Group], reference: Reference | None = None) -> Table:
    """Return, episode cost and cost rate at the last epoch beside the reference's; then steadier."""

    def seeds(group: Group) -> Cell:
        left = f" (+{len(group.uncounted)} unfinished)" if group.uncounted else ""
        return Cell(f"{len(group.counted)}{left}", len(group.counted))

    def theirs(metric: str, group: Group) -> Cell:
        text = reference.text(group.suite, group.own, metric) if reference else None
        return Cell.number(None if text is None else float(text), text, tone="reference")

    columns = [_NAME, Column("seeds", seeds, "finished seeds")]
    for metric in COMPARED:
        columns.append(_over_seeds(title(metric), "last", metric, "last epoch"))
        if reference:
            about = f"last epoch, mean of {reference.seeds} seeds"
            name = f"{title(metric)}, {reference.name}"
            columns.append(Column(name, partial(theirs, metric), about))
    late = "over the last 5 % of epochs"
    columns += [_over_seeds(name, "late", metric, late) for metric, name in _LATE.items()]
    notes = []
    for group in groups:
        missing = [str(r.seed) for r in group.counted if r.summary.last.get(RETURN) is None]
        if missing:
            notes.append(f"{group.name}: no episode ended in the last epoch of seed "
                         f"{', '.join(missing)}, which is not in the means of return and episode cost "
                         f"at the last epoch.")  # fmt: skip
    return Table.of("Metrics", columns, groups, notes=notes)


def final_table(groups: Sequence[Group]) -> Table:
    """The final policies with mean actions, in fresh episodes, for every constraint."""

    def over_seeds(
        name: str, about: str, value: Callable[[Judged, JudgedConstraint], float]
    ) -> Column:
        def cell(row: FinalPolicies) -> Cell:
            return _spread_cell(np.array([value(j, c) for j, c in row.found]))

        return Column(name, cell, f"{about}, mean ± standard deviation over seeds")

    def success(row: FinalPolicies) -> Cell:
        share = float(np.mean([j.success for j, _ in row.found]))
        return Cell.number(share, percent(share))

    columns = [
        Column("algorithm", lambda row: _name_cell(row.group), numeric=False),
        Column("seeds", lambda row: Cell.count(len(row.found))),
        over_seeds("return", "of an episode", lambda j, _: j.mean_return),
        Column("task done", success, "share of the episodes in which the task succeeded"),
        Column.words("constraint", lambda row: row.name),
        *rate_columns(lambda row: row.rate, lambda row: len(row.found)),
        over_seeds("episode cost", "sum over an episode", lambda _, c: c.episode_cost),
        over_seeds("maximum cost", "largest cost of an episode", lambda _, c: c.max_cost),
        Column("episodes", lambda row: Cell.count(sum(j.episodes for j, _ in row.found))),
    ]
    note = ("Fresh episodes of the policy after the last epoch, with mean actions: what would be "
            "deployed. The interval of the violation rate is over new seeds, as below.")  # fmt: skip
    rows = [row for group in groups for row in group.final_policies]
    return Table.of("Final policies", columns, rows, notes=(note,))


def safety_table(groups: Sequence[Group]) -> Table:
    """The largest cost of an episode and the share of episodes with any, for every constraint."""

    def means(row: Constraint) -> Array:
        return np.array([c.max_cost for c in row.channels if c.max_cost is not None], dtype=float)

    def error(row: Constraint) -> Cell:
        parts = [(c.episodes, c.max_cost, c.max_cost_std) for c in row.channels
                 if c.max_cost is not None and c.max_cost_std is not None]  # fmt: skip
        found = pooled_error(parts) if len(parts) == len(row.channels) else None
        return Cell.number(None if found is None else 1.96 * found)

    def worst(row: Constraint) -> Cell:
        known = [c.worst_cost for c in row.channels if c.worst_cost is not None]
        return Cell.number(max(known, default=None))

    columns = [
        Column("algorithm", lambda row: _name_cell(row.group), numeric=False),
        Column.words("constraint", lambda row: row.name),
        Column("maximum cost",
               lambda row: Cell.number(float(means(row).mean()) if len(means(row)) else None),
               "mean over episodes of the largest cost of a step"),
        Column("95 % over seeds", lambda row: Cell.interval(mean_interval(means(row)), interval_text),
               "Student t over the means of the seeds"),
        Column("± over episodes", error, "1.96 standard errors over all episodes together"),
        Column("worst episode", worst, "largest cost of any step in these episodes"),
        *rate_columns(lambda row: row.rate, lambda row: len(row.channels)),
        Column("episodes", lambda row: Cell.count(sum(c.episodes for c in row.channels))),
    ]  # fmt: skip
    rows = [constraint for group in groups for constraint in group.constraints]
    notes = [
        f"{row.group.name}: {run.path} has no constraint {row.name} and is not in its row."
        for row in rows for run in row.group.counted
        if row.name not in [c.name for c in run.summary.channels]
    ]  # fmt: skip
    note = ("Episodes that ended in the last 5 % of epochs, actions sampled as in training. The interval "
            "of the violation rate is over new seeds: a Student t interval of the seeds' rates on the "
            "arcsine scale, never narrower than the exact one of all episodes together. That of one seed "
            "is the exact one, and says nothing of other seeds. The ± over episodes treats all episodes "
            "as draws of one policy: read it as a lower limit.")  # fmt: skip
    return Table.of("State-wise safety", columns, rows, notes=(note, *notes))


def resources_table(groups: Sequence[Group], baseline: str | None = None) -> Table:
    """Time and memory, also as multiples of the baseline's."""
    base = {(g.task, g.device): g for g in groups if g.own == baseline and g.finished}
    name = next((g.name for g in base.values()), "baseline")

    def mean(group: Group | None, field: str) -> float:
        known = [
            v for run in (group.counted if group else ()) if (v := getattr(run.summary, field))
        ]
        return float(np.mean(known)) if known else 0.0

    def ratio(group: Group, field: str) -> Cell:
        above, below = mean(group, field), mean(base.get((group.task, group.device)), field)
        return Cell.number(above / below if above and below else None)

    def speed(group: Group) -> Cell:
        seconds = mean(group, "seconds")
        return Cell.number(mean(group, "steps") / seconds if seconds else None)

    def updating(group: Group) -> Cell:
        part, rest = mean(group, "update_seconds"), mean(group, "collect_seconds")
        share = part / (part + rest) if part + rest else None
        return Cell.number(share, None if share is None else percent(share))

    def memory(group: Group, field: str) -> Cell:
        value = mean(group, field)
        return Cell.number(value or None, f"{value:,.0f}")

    columns = [
        _NAME,
        Column("time of a run", lambda g: Cell.number(mean(g, "seconds"), duration(mean(g, "seconds"))),
               "mean over seeds, collecting and updating"),
        Column(f"÷ {name}", lambda g: ratio(g, "seconds"), f"time of a run over that of {name}"),
        Column("steps/s", speed, "environment steps per second of training"),
        Column("updating", updating, "share of the time spent in updates"),
        Column("memory, MiB", lambda g: memory(g, "peak_memory_mib"),
               "peak resident memory of the process"),
        Column(f"memory ÷ {name}", lambda g: ratio(g, "peak_memory_mib")),
        Column("GPU memory, MiB", lambda g: memory(g, "gpu_memory_mib"),
               "peak in use on the device, by everything that runs there"),
        Column("simulator faults", lambda g: Cell.count(sum(r.summary.sim_faults for r in g.counted)),
               "sum over seeds"),
    ]  # fmt: skip
    return Table.of("Training time and memory", columns, groups, folded=True)


def seeds_table(groups: Sequence[Group]) -> Table:
    """Every run by itself, unfinished ones too."""

    def epochs(row: _Seed) -> Cell:
        done = row.run.summary.epochs_done
        return Cell(str(done) if row.run.finished else f"{done} of {row.run.epochs}", done)

    def column(name: str, part: str, metric: str) -> Column:
        return Column(name, lambda row: Cell.number(getattr(row.run.summary, part).get(metric)))

    columns = [
        Column.words("algorithm", lambda row: row.group.name),
        Column("seed", lambda row: Cell(str(row.run.seed), row.run.seed)),
        Column("epochs", epochs),
        Column("steps", lambda row: Cell.count(row.run.summary.steps)),
        *(column(f"{title(metric)}, last epoch", "last", metric) for metric in COMPARED),
        *(column(name, "late", metric) for metric, name in _LATE.items()),
        column("maximum cost, last 5 %", "late", MAX_COST),
    ]
    rows = [_Seed(group, run) for group in groups for run in group.runs]
    return Table.of("Every seed", columns, rows, folded=True)


# Where the numbers come from -------------------------------------------------------------------


def provenance_tables(groups: Sequence[Group]) -> tuple[Table, Table]:
    """Settings, seeds and the command of every group; and the code, versions and hardware of each."""
    counts = Counter(_machine(run) for group in groups for run in group.runs)
    letters = {key: letter(place) for place, key in enumerate(counts)}

    def made_by(group: Group) -> str:
        return ", ".join(sorted({letters[_machine(run)] for run in group.runs}))

    columns = [
        Column.words("suite", lambda g: g.suite),
        Column.words("algorithm", lambda g: g.name),
        Column.words("seeds",
                     lambda g: ", ".join(f"{r.seed}{'' if r.finished else '*'}" for r in g.runs)),
        Column("steps", lambda g: Cell.count(g.runs[0].config["train"]["steps"])),
        Column.words("made by", made_by),
        Column.words("settings that differ from the defaults",
                     lambda g: settings_text(g.changed) or "none"),
        Column("command", lambda g: Cell(command(g), tone="code"), numeric=False),
    ]  # fmt: skip
    note = "A star marks an unfinished seed. Settings not named are the defaults of this version."
    made = Table.of("Settings and commands", columns, groups, notes=(note,), wraps=True)
    facts = [Column.words("made by", lambda key: letters[key])]
    facts += [Column.words(name, partial(_fact, name)) for name in _FACTS]
    facts.append(Column("runs", lambda key: Cell.count(counts[key])))
    dirty = any(str(json.loads(key)["commit"]).endswith("-dirty") for key in counts)
    notes = ["A commit that ends in -dirty had uncommitted changes: it does not reproduce the run "
             "alone."] if dirty else []  # fmt: skip
    where = Table.of("Code, versions and hardware", facts, list(counts), notes=notes, wraps=True)
    return made, where


def _machine(run: RunData) -> str:
    return json.dumps({fact: run.environment.get(fact) for fact in _FACTS}, sort_keys=True)


def _fact(name: str, machine: str) -> str:
    value = json.loads(machine)[name]
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return {"gpu": "none"}.get(name, "not known") if value is None else str(value)


# Rows and cells --------------------------------------------------------------------------------


class _Seed(NamedTuple):
    group: Group
    run: RunData


def _name_cell(group: Group) -> Cell:
    """The name, marked if no run of the group is finished."""
    if group.finished:
        return Cell.words(group.name)
    done = ", ".join(f"{r.summary.epochs_done} of {r.epochs}" for r in group.runs)
    return Cell(f"{group.name} (unfinished: {done} epochs)", group.name.casefold(), tone="bad")


def _spread_cell(values: Array) -> Cell:
    """Mean ± standard deviation over seeds."""
    if not len(values):
        return Cell(NONE)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return Cell.number(float(values.mean()), spread(float(values.mean()), std))


_NAME = Column("algorithm", _name_cell, numeric=False)


def _over_seeds(name: str, part: str, metric: str, when: str) -> Column:
    return Column(name, lambda group: _spread_cell(group.values(part, metric)),
                  f"{when}, mean ± standard deviation over seeds")  # fmt: skip


def rate_columns(
    rate: Callable[[Any], Interval | None], seeds: Callable[[Any], int] = lambda row: 0
) -> list[Column]:
    """A violation rate and its interval. seeds: how many a row has, to mark the interval of one."""
    return [
        Column("violation rate", lambda row: Cell.interval(rate(row), lambda r: percent(r.estimate)),
               "share of episodes with any cost"),
        Column("95 % interval",
               lambda row: Cell.interval(rate(row), lambda r: _percents(r, seeds(row))),
               "of the violation rate, over new seeds"),
    ]  # fmt: skip


def _percents(rate: Interval, seeds: int) -> str:
    return f"{percent(rate.low)} to {percent(rate.high)}{', one seed' if seeds == 1 else ''}"
