"""The tables of a suite: the paper's metrics, state-wise safety, time and memory, every seed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from scipy.stats import t as student_t

from statewise.core.statistics import Interval, rate_interval
from statewise.report.data import Array, RunData
from statewise.report.groups import Group
from statewise.report.paper import METRICS, paper_text, paper_value
from statewise.report.summary import Channel
from statewise.report.table import (
    NONE,
    Cell,
    Column,
    Row,
    Table,
    duration,
    interval_text,
    number_cell,
    percent,
    spread,
    text_cell,
)

TITLES = {
    "episode/return": "episode/return",
    "cost/episode": "episode cost",
    "cost/rate": "cost rate",
}


def metrics_table(groups: Sequence[Group]) -> Table:
    """Return, episode cost and cost rate at the last epoch beside the paper's; then steadier."""
    columns = [Column("algorithm", numeric=False), Column("seeds", help="finished seeds")]
    for metric in METRICS:
        columns += [
            Column(TITLES[metric], help="last epoch, mean ± standard deviation over seeds"),
            Column(f"{TITLES[metric]}, paper", help="last epoch, mean of two seeds"),
        ]
    late = "over the last 5 % of epochs, mean ± standard deviation over seeds"
    columns += [
        Column("return, last 5 %", help=late),
        Column("episode cost, last 5 %", help=late),
        Column("cost rate, last 5 %", help="cost per step in the last 5 % of epochs alone"),
    ]
    rows = []
    for group in groups:
        cells = [name_cell(group), number_cell(len(group.counted), seeds_text(group))]
        for metric in METRICS:
            cells += [spread_cell(group.values("last", metric)), paper_cell(group, metric)]
        for metric in ("episode/return", "cost/episode", "cost/epoch_rate"):
            cells.append(spread_cell(group.values("late", metric)))
        rows.append(Row(cells, group.own))
    return Table("The paper's metrics", columns, rows, notes=_missing_ends(groups))


def safety_table(groups: Sequence[Group]) -> Table:
    """The largest cost of an episode and the share of episodes with any, for every constraint."""
    columns = [
        Column("algorithm", numeric=False),
        Column("constraint", numeric=False),
        Column("maximum state-wise cost", help="mean over episodes of the largest cost of a step"),
        Column("95 % over seeds", help="Student t over the means of the seeds"),
        Column("± over episodes", help="1.96 standard errors over all episodes together"),
        Column("worst episode", help="largest cost of any step in these episodes"),
        Column("violation rate", help="share of episodes with any cost"),
        Column("95 % interval", help="exact (Clopper-Pearson), episodes of all seeds together"),
        Column("episodes"),
    ]
    rows, notes = [], []
    for group in groups:
        names = dict.fromkeys(c.name for run in group.counted for c in run.summary.channels)
        for name in names:
            found = [(run, _channel(run, name)) for run in group.counted]
            channels = [channel for _, channel in found if channel is not None]
            rows.append(Row(_safety_cells(group, channels), group.own))
            notes += [f"{group.name}: {run.path} has no constraint {name}; not in its row."
                      for run, channel in found if channel is None]  # fmt: skip
    note = (
        "Episodes that ended in the last 5 % of epochs, actions sampled as in training. Both "
        "intervals over episodes treat them as draws of one policy, though seeds differ and "
        "the policy still moves: read them as lower limits of the uncertainty."
    )
    return Table("State-wise safety", columns, rows, notes=(note, *notes))


def resources_table(groups: Sequence[Group]) -> Table:
    """Time and memory, also as multiples of TRPO's, as in the paper's fifth question."""
    columns = [
        Column("algorithm", numeric=False),
        Column("time of a run", help="mean over seeds, collecting and updating"),
        Column("÷ TRPO", help="time of a run over TRPO's"),
        Column("steps/s", help="environment steps per second of training"),
        Column("updating", help="share of the time spent in updates"),
        Column("memory, MiB", help="peak resident memory of the process"),
        Column("memory ÷ TRPO"),
        Column("GPU memory, MiB", help="peak in use on the device, by everything that runs there"),
        Column("simulator faults", help="sum over seeds"),
    ]
    base = {(g.task, g.device): g for g in groups if g.main and g.algo == "trpo" and g.finished}
    rows = [Row(_resource_cells(g, base.get((g.task, g.device))), g.own) for g in groups]
    return Table("Training time and memory", columns, rows)


def seeds_table(groups: Sequence[Group]) -> Table:
    """Every run by itself, unfinished ones too."""
    columns = [
        Column("algorithm", numeric=False),
        Column("seed"),
        Column("epochs"),
        Column("steps"),
        *(Column(f"{TITLES[m]}, last epoch") for m in METRICS),
        Column("return, last 5 %"),
        Column("episode cost, last 5 %"),
        Column("cost rate, last 5 %"),
        Column("maximum state-wise cost, last 5 %"),
    ]
    rows = []
    for group in groups:
        for run in group.runs:
            done, planned = run.summary.epochs_done, run.epochs
            cells = [
                text_cell(group.name),
                number_cell(run.seed, str(run.seed)),
                number_cell(done, str(done) if run.finished else f"{done} of {planned}"),
                number_cell(run.summary.steps, f"{run.summary.steps:,}"),
                *(number_cell(run.summary.last.get(m)) for m in METRICS),
                *(
                    number_cell(run.summary.late.get(m))
                    for m in ("episode/return", "cost/episode", "cost/epoch_rate", "cost/max")
                ),
            ]
            rows.append(Row(cells, group.own))
    return Table("Every seed", columns, rows)


# Cells -----------------------------------------------------------------------------------------


def name_cell(group: Group) -> Cell:
    """The name, marked if no run of the group is finished."""
    if group.finished:
        return text_cell(group.name)
    done = ", ".join(f"{r.summary.epochs_done} of {r.epochs}" for r in group.runs)
    return Cell(f"{group.name} (unfinished: {done} epochs)", group.name.casefold(), tone="bad")


def seeds_text(group: Group) -> str:
    left = len(group.uncounted)
    return str(len(group.counted)) + (f" (+{left} unfinished)" if left else "")


def spread_cell(values: Array) -> Cell:
    """Mean ± standard deviation over seeds."""
    if not len(values):
        return Cell(NONE)
    std = float(values.std(ddof=1)) if len(values) > 1 else None
    return number_cell(float(values.mean()), spread(float(values.mean()), std))


def paper_cell(group: Group, metric: str) -> Cell:
    """The paper's figure, as printed there; only an algorithm's own row has one."""
    if not group.main:
        return Cell(NONE)
    value = paper_value(group.suite, group.algo, metric)
    return number_cell(value, paper_text(group.suite, group.algo, metric), tone="reference")


def mean_interval(values: Array, level: float = 0.95) -> Interval | None:
    """Student t interval of a mean that is not negative; None for fewer than two values."""
    if len(values) < 2:
        return None
    mean = float(values.mean())
    error = float(values.std(ddof=1)) / math.sqrt(len(values))
    reach = float(student_t.ppf((1 + level) / 2, len(values) - 1)) * error
    return Interval(max(0.0, mean - reach), mean, mean + reach, level)


def pooled(channels: Sequence[Channel]) -> tuple[float, float] | None:
    """Mean and standard error over the episodes of several seeds together, if they are known."""
    parts = [
        (c.episodes, c.max_cost, c.max_cost_std)
        for c in channels
        if c.max_cost is not None and c.max_cost_std is not None
    ]
    total = sum(n for n, _, _ in parts)
    if len(parts) < len(channels) or total < 2:
        return None
    mean = sum(n * m for n, m, _ in parts) / total
    squares = sum(n * (s**2 + (m - mean) ** 2) for n, m, s in parts)
    return mean, math.sqrt(squares / (total - 1) / total)


def _channel(run: RunData, name: str) -> Channel | None:
    return next((c for c in run.summary.channels if c.name == name), None)


def _safety_cells(group: Group, channels: Sequence[Channel]) -> list[Cell]:
    """A constraint over the seeds that have it."""
    means = np.array([c.max_cost for c in channels if c.max_cost is not None], dtype=float)
    over_seeds = mean_interval(means)
    over_episodes = pooled(channels)
    worst = [c.worst_cost for c in channels if c.worst_cost is not None]
    events, trials = sum(c.violations for c in channels), sum(c.episodes for c in channels)
    rate = rate_interval(events, trials) if trials else None
    return [
        name_cell(group),
        text_cell(channels[0].name),
        number_cell(float(means.mean()) if len(means) else None),
        _interval_cell(over_seeds, interval_text),
        number_cell(None if over_episodes is None else 1.96 * over_episodes[1]),
        number_cell(max(worst) if worst else None),
        Cell(NONE) if rate is None else Cell(percent(rate.estimate), rate.estimate),
        _interval_cell(rate, lambda low, high: f"{percent(low)} to {percent(high)}"),
        number_cell(trials, f"{trials:,}"),
    ]


def _interval_cell(interval: Interval | None, text: Callable[[float, float], str]) -> Cell:
    if interval is None:
        return Cell(NONE)
    return Cell(text(interval.low, interval.high), interval.high)


def _resource_cells(group: Group, trpo: Group | None) -> list[Cell]:
    seconds, memory = _seconds(group), _memory(group)
    base, base_memory = (_seconds(trpo), _memory(trpo)) if trpo else (0.0, None)
    busy = sum(r.summary.collect_seconds + r.summary.update_seconds for r in group.counted)
    updating = sum(r.summary.update_seconds for r in group.counted) / busy if busy else None
    steps = float(np.mean([run.summary.steps for run in group.counted]))
    faults = sum(run.summary.sim_faults for run in group.counted)
    ratio = memory / base_memory if memory and base_memory else None
    gpu = _memory(group, "gpu_memory_mib")
    return [
        name_cell(group),
        number_cell(seconds, duration(seconds)),
        number_cell(seconds / base if base else None),
        number_cell(steps / seconds if seconds else None),
        number_cell(updating, percent(updating) if updating is not None else None),
        number_cell(memory, None if memory is None else f"{memory:,.0f}"),
        number_cell(ratio),
        number_cell(gpu, None if gpu is None else f"{gpu:,.0f}"),
        number_cell(faults, f"{faults:,}"),
    ]


def _seconds(group: Group) -> float:
    return float(np.mean([run.summary.seconds for run in group.counted]))


def _memory(group: Group, kind: str = "peak_memory_mib") -> float | None:
    known = [value for run in group.counted if (value := getattr(run.summary, kind))]
    return float(np.mean(known)) if known else None


def _missing_ends(groups: Sequence[Group]) -> tuple[str, ...]:
    """Seeds without a number at the last epoch are not in its mean: say so."""
    found = []
    for group in groups:
        seeds = [str(r.seed) for r in group.counted if r.summary.last.get("episode/return") is None]
        if seeds:
            found.append(
                f"{group.name}: no episode ended in the last epoch of seed {', '.join(seeds)}; "
                f"not in the means of return and episode cost at the last epoch."
            )
    return tuple(found)
