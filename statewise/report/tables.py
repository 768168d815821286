"""The tables of a report: the headline, and for a suite its metrics, safety, resources and seeds."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from statewise.core.statistics import Interval, mean_interval, pooled_error, rate_interval
from statewise.metrics import COST_RATE, EPISODE_COST, EPOCH_COST_RATE, MAX_COST, RETURN, title
from statewise.report.groups import Group, title_of
from statewise.report.reference import Reference
from statewise.report.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    count_cell,
    duration,
    interval_cell,
    interval_text,
    number_cell,
    percent,
    spread,
    text_cell,
    text_columns,
)
from statewise.runs.summary import Array, Channel

COMPARED = (RETURN, EPISODE_COST, COST_RATE)
"""Metrics that are held against a baseline and a reference."""
_LATE = (RETURN, EPISODE_COST, EPOCH_COST_RATE)
_LATE_NAMES = ("return, last 5 %", "episode cost, last 5 %", "cost rate, last 5 %")


def headline_table(
    groups: Sequence[Group], shown: Sequence[str], reference: Reference | None = None
) -> Table:
    """A row for each suite: return, violation rate and episode cost of each algorithm.

    shown: the algorithms that are not folded, in their order.
    """
    mains = [g for g in groups if g.main]
    names = {g.algo: title_of(g.algo) for g in mains}
    algos = [*(a for a in shown if a in names), *(a for a in names if a not in shown)]
    columns = text_columns("suite")
    for what in ("return", "violation rate", "episode cost"):
        columns += [Column(f"{what}, {names[a]}", folded=a not in shown) for a in algos]
    rows = []
    for suite in dict.fromkeys(group.suite for group in groups):
        found = {group.algo: group for group in mains if group.suite == suite}
        steps = [group.steps for group in found.values() if group.finished]
        less = reference.shorter(suite, steps) if reference else ""
        name = f"{suite} (shorter: {less})" if less else suite
        cells = [Cell(name, suite.casefold(), link=f"#{suite}")]
        cells += [_beside(found.get(algo), RETURN, reference) for algo in algos]
        cells += [_violations(found.get(algo)) for algo in algos]
        cells += [_beside(found.get(algo), EPISODE_COST, reference) for algo in algos]
        rows.append(Row(cells))
    beside = f"; beside it the {reference.name}'s number" if reference else ""
    note = (f"Return and episode cost: last epoch, mean over seeds{beside}. Violation rate: share of "
            "the episodes of the last 5 % of epochs with any cost, with its exact 95 % interval; of "
            "several constraints the one broken most often.")  # fmt: skip
    return Table("Results", columns, rows, notes=(note,))


def _beside(group: Group | None, metric: str, reference: Reference | None) -> Cell:
    if group is None:
        return Cell(NONE)
    value, cell = group.mean("last", metric), _spread_cell(group.values("last", metric))
    theirs = reference.text(group.suite, group.algo, metric) if reference else None
    text = cell.text + (f" ({reference.name} {theirs})" if reference and theirs else "")
    return Cell(text + ("" if group.finished else " (unfinished)"), value)


def _violations(group: Group | None) -> Cell:
    rates = [rate for _, channels in _channels(group) if (rate := _rate(channels))] if group else []
    if not rates:
        return Cell(NONE)
    worst = max(rates, key=lambda rate: rate.estimate)
    text = f"{percent(worst.estimate)} ({percent(worst.low)} to {percent(worst.high)})"
    return Cell(text, worst.estimate)


def metrics_table(groups: Sequence[Group], reference: Reference | None = None) -> Table:
    """Return, episode cost and cost rate at the last epoch beside the reference's; then steadier."""
    columns = [*text_columns("algorithm"), Column("seeds", help="finished seeds")]
    for metric in COMPARED:
        columns += [Column(title(metric), help="last epoch, mean ± standard deviation over seeds")]
        if reference:
            about = f"last epoch, mean of {reference.seeds} seeds"
            columns.append(Column(f"{title(metric)}, {reference.name}", help=about))
    late = "over the last 5 % of epochs, mean ± standard deviation over seeds"
    columns += [Column(name, help=late) for name in _LATE_NAMES]
    rows, notes = [], []
    for group in groups:
        left = f" (+{len(group.uncounted)} unfinished)" if group.uncounted else ""
        count = len(group.counted)
        cells = [_name_cell(group), number_cell(count, f"{count}{left}")]
        for metric in COMPARED:
            cells.append(_spread_cell(group.values("last", metric)))
            if reference:
                text = reference.text(group.suite, group.own, metric)
                value = None if text is None else float(text)
                cells.append(number_cell(value, text, tone="reference"))
        cells += [_spread_cell(group.values("late", metric)) for metric in _LATE]
        rows.append(Row(cells, group.own))
        seeds = [str(r.seed) for r in group.counted if r.summary.last.get(RETURN) is None]
        if seeds:
            notes.append(
                f"{group.name}: no episode ended in the last epoch of seed {', '.join(seeds)}; "
                f"not in the means of return and episode cost at the last epoch."
            )
    return Table("Metrics", columns, rows, notes=notes)


def safety_table(groups: Sequence[Group]) -> Table:
    """The largest cost of an episode and the share of episodes with any, for every constraint."""
    columns = [
        *text_columns("algorithm", "constraint"),
        Column("maximum cost", help="mean over episodes of the largest cost of a step"),
        Column("95 % over seeds", help="Student t over the means of the seeds"),
        Column("± over episodes", help="1.96 standard errors over all episodes together"),
        Column("worst episode", help="largest cost of any step in these episodes"),
        Column("violation rate", help="share of episodes with any cost"),
        Column("95 % interval", help="exact (Clopper-Pearson), episodes of all seeds together"),
        Column("episodes"),
    ]
    rows, notes = [], []
    for group in groups:
        for name, channels in _channels(group):
            rows.append(Row(_safety_cells(group, name, channels), group.own))
            notes += [f"{group.name}: {run.path} has no constraint {name}; not in its row."
                      for run in group.counted
                      if name not in [c.name for c in run.summary.channels]]  # fmt: skip
    note = (
        "Episodes that ended in the last 5 % of epochs, actions sampled as in training. Both "
        "intervals over episodes treat them as draws of one policy, though seeds differ and "
        "the policy still moves: read them as lower limits of the uncertainty."
    )
    return Table("State-wise safety", columns, rows, notes=(note, *notes))


def resources_table(groups: Sequence[Group], baseline: str | None = None) -> Table:
    """Time and memory, also as multiples of the baseline's."""
    base = {(g.task, g.device): g for g in groups if g.own == baseline and g.finished}
    name = next((g.name for g in base.values()), "baseline")
    columns = [
        *text_columns("algorithm"),
        Column("time of a run", help="mean over seeds, collecting and updating"),
        Column(f"÷ {name}", help=f"time of a run over that of {name}"),
        Column("steps/s", help="environment steps per second of training"),
        Column("updating", help="share of the time spent in updates"),
        Column("memory, MiB", help="peak resident memory of the process"),
        Column(f"memory ÷ {name}"),
        Column("GPU memory, MiB", help="peak in use on the device, by everything that runs there"),
        Column("simulator faults", help="sum over seeds"),
    ]
    rows = [Row(_resource_cells(g, base.get((g.task, g.device))), g.own) for g in groups]
    return Table("Training time and memory", columns, rows, folded=True)


def seeds_table(groups: Sequence[Group]) -> Table:
    """Every run by itself, unfinished ones too."""
    last = [Column(f"{title(metric)}, last epoch") for metric in COMPARED]
    late = [Column(name) for name in (*_LATE_NAMES, "maximum cost, last 5 %")]
    columns = [*text_columns("algorithm"), Column("seed"), Column("epochs"), Column("steps")]
    rows = []
    for group in groups:
        for run in group.runs:
            done, planned = run.summary.epochs_done, run.epochs
            cells = [text_cell(group.name), Cell(str(run.seed), run.seed)]
            cells += [Cell(str(done) if run.finished else f"{done} of {planned}", done)]
            cells += [count_cell(run.summary.steps)]
            cells += [number_cell(run.summary.last.get(metric)) for metric in COMPARED]
            cells += [number_cell(run.summary.late.get(metric)) for metric in (*_LATE, MAX_COST)]
            rows.append(Row(cells, group.own))
    return Table("Every seed", [*columns, *last, *late], rows, folded=True)


# Cells -----------------------------------------------------------------------------------------


def _name_cell(group: Group) -> Cell:
    """The name, marked if no run of the group is finished."""
    if group.finished:
        return text_cell(group.name)
    done = ", ".join(f"{r.summary.epochs_done} of {r.epochs}" for r in group.runs)
    return Cell(f"{group.name} (unfinished: {done} epochs)", group.name.casefold(), tone="bad")


def _spread_cell(values: Array) -> Cell:
    """Mean ± standard deviation over seeds."""
    if not len(values):
        return Cell(NONE)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return number_cell(float(values.mean()), spread(float(values.mean()), std))


def _channels(group: Group) -> list[tuple[str, list[Channel]]]:
    """Every constraint, with its numbers in the seeds that have it."""
    found: dict[str, list[Channel]] = {}
    for run in group.counted:
        for channel in run.summary.channels:
            found.setdefault(channel.name, []).append(channel)
    return list(found.items())


def _rate(channels: Sequence[Channel]) -> Interval | None:
    """Share of the episodes of all seeds with a cost."""
    events, trials = sum(c.violations for c in channels), sum(c.episodes for c in channels)
    return rate_interval(events, trials) if trials else None


def _safety_cells(group: Group, name: str, channels: Sequence[Channel]) -> list[Cell]:
    means = np.array([c.max_cost for c in channels if c.max_cost is not None], dtype=float)
    parts = [(c.episodes, c.max_cost, c.max_cost_std) for c in channels
             if c.max_cost is not None and c.max_cost_std is not None]  # fmt: skip
    error = pooled_error(parts) if len(parts) == len(channels) else None
    worst = [c.worst_cost for c in channels if c.worst_cost is not None]
    over_seeds, rate = mean_interval(means), _rate(channels)
    return [
        _name_cell(group),
        text_cell(name),
        number_cell(float(means.mean()) if len(means) else None),
        interval_cell(
            over_seeds, interval_text(over_seeds.low, over_seeds.high) if over_seeds else ""
        ),
        number_cell(None if error is None else 1.96 * error),
        number_cell(max(worst, default=None)),
        Cell(NONE) if rate is None else Cell(percent(rate.estimate), rate.estimate),
        interval_cell(rate, f"{percent(rate.low)} to {percent(rate.high)}" if rate else ""),
        count_cell(sum(c.episodes for c in channels)),
    ]


def _resource_cells(group: Group, base: Group | None) -> list[Cell]:
    def mean(of: Group | None, field: str) -> float | None:
        runs = of.counted if of else ()
        known = [value for run in runs if (value := getattr(run.summary, field))]
        return float(np.mean(known)) if known else None

    def ratio(field: str) -> float | None:
        above, below = mean(group, field), mean(base, field)
        return above / below if above and below else None

    seconds, steps = mean(group, "seconds") or 0.0, mean(group, "steps") or 0.0
    collecting, updating = (mean(group, f"{part}_seconds") or 0.0 for part in ("collect", "update"))
    share = updating / (collecting + updating) if collecting + updating else None
    memory, gpu = mean(group, "peak_memory_mib"), mean(group, "gpu_memory_mib")
    return [
        _name_cell(group),
        number_cell(seconds, duration(seconds)),
        number_cell(ratio("seconds")),
        number_cell(steps / seconds if seconds else None),
        number_cell(share, None if share is None else percent(share)),
        number_cell(memory, None if memory is None else f"{memory:,.0f}"),
        number_cell(ratio("peak_memory_mib")),
        number_cell(gpu, None if gpu is None else f"{gpu:,.0f}"),
        count_cell(sum(run.summary.sim_faults for run in group.counted)),
    ]
