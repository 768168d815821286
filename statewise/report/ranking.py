"""The algorithms over all suites: interquartile means of scores relative to TRPO's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import trim_mean

from statewise.core.statistics import Interval, iqm
from statewise.report.data import Array
from statewise.report.groups import Group
from statewise.report.paper import METRICS, NAMES, paper_value
from statewise.report.table import (
    NONE,
    Cell,
    Column,
    Row,
    Strip,
    Table,
    text_cell,
)

_TITLES = {
    "episode/return": "return ÷ TRPO's (more is better)",
    "cost/episode": "episode cost ÷ TRPO's (less is better)",
    "cost/rate": "cost rate ÷ TRPO's (less is better)",
}
_RESAMPLES = 2000
EARNED = 0.5
"""Share of TRPO's return below which a method is ranked last."""

LeftOut = dict[str, dict[str, str]]
"""Metric to the suites that its score is not over, each with the reason."""


@dataclass(frozen=True, eq=False)
class Task:
    """A metric in one suite: the method's seeds, and TRPO's, by whose mean they are divided."""

    suite: str
    values: Array
    base: Array
    own: bool = False
    """The values are TRPO's: they are drawn once, and divided by their own mean"""

    @property
    def scores(self) -> Array:
        return self.values / self.base.mean()

    @property
    def single(self) -> bool:
        return min(len(self.values), len(self.base)) < 2

    def draw(self, generator: np.random.Generator) -> Array:
        """Scores `[resamples, seeds]` of seeds drawn anew: TRPO's mean is an estimate as well."""
        base = _resample(self.base, generator)
        # A mean of 0 or less is no base: other draws take the place of such ones. The seeds as they
        # are have a positive mean, so one is left.
        base = np.concatenate([base[base.mean(axis=1) > 0], self.base[None]])
        base = np.resize(base, (_RESAMPLES, len(self.base)))
        values = base if self.own else _resample(self.values, generator)
        return values / base.mean(axis=1, keepdims=True)


@dataclass(frozen=True)
class Rank:
    """One algorithm over the suites it has finished runs in."""

    algo: str
    name: str
    suites: tuple[str, ...]
    scores: dict[str, Interval | None]
    paper: dict[str, float | None]
    """The same number from the paper's tables, over the same suites (means of seeds only)"""
    left_out: LeftOut
    paper_left_out: LeftOut
    single: frozenset[str]
    """Suites with one seed, of it or of TRPO, where others make an interval"""


def rank(groups: Sequence[Group]) -> list[Rank]:
    """Every algorithm that shares a suite and its settings with TRPO: safest (cost rate) first, those
    that earn little last."""
    bases = {g.suite: g for g in groups if g.main and g.algo == "trpo" and g.finished}
    by_algo: dict[str, list[Group]] = {}
    for group in groups:
        base = bases.get(group.suite)
        if group.main and group.finished and base is not None and base.task == group.task:
            by_algo.setdefault(group.algo, []).append(group)
    return sorted((_rank(algo, found, bases) for algo, found in by_algo.items()), key=_place)


def ranking_tables(groups: Sequence[Group]) -> tuple[Table, ...]:
    """Rankings in which all rows are over the same suites: those that all algorithms share, and,
    where some have more, those that the algorithms with the most suites share."""
    ranks = rank(groups)
    if not ranks:
        return ()
    most = max(len(r.suites) for r in ranks)
    tables: list[tuple[set[str], Table]] = []
    for chosen in (ranks, [r for r in ranks if len(r.suites) == most]):
        shared = set.intersection(*(set(r.suites) for r in chosen))
        algos = {r.algo for r in chosen}
        members = [g for g in groups if g.suite in shared and g.algo in algos]
        if shared and not (tables and most == len(tables[0][0])):
            tables.append((shared, ranking_table(rank(members))))
    return tuple(table for _, table in tables)


def ranking_table(ranks: Sequence[Rank]) -> Table:
    """A ranking, with its intervals as numbers and as strips."""
    columns = [Column("algorithm", numeric=False), Column("suites")]
    columns += [Column(_TITLES[metric], strips=True) for metric in METRICS]
    ranges = {metric: _range(ranks, metric) for metric in METRICS}
    rows = []
    for r in ranks:
        cells = [text_cell(r.name), Cell(str(len(r.suites)), float(len(r.suites)))]
        cells += [_cell(r, m, ranges[m]) for m in METRICS]
        rows.append(Row(cells, r.algo))
    notes = [
        "Interquartile mean over suites and seeds, with 95 % intervals (bootstrap of the seeds "
        "within each suite, the method's and TRPO's; none for one seed). Return and episode cost "
        "over the last 5 % of epochs, cost rate over the whole training; each divided by the mean of "
        "our TRPO in the same suite with the same settings, TRPO's own numbers too. Hollow marks: the "
        "same from the paper's tables, which are of its last epoch. Lowest cost rate first; methods "
        "with less than half of TRPO's return come last.",
        *_single_note(ranks),
        *_left_out_notes("the", [r.left_out for r in ranks]),
        *_left_out_notes("the paper's", [r.paper_left_out for r in ranks]),
    ]
    number = max((len(r.suites) for r in ranks), default=0)
    return Table(f"Ranking over {_suites(number)}", columns, rows, notes=notes)


def bootstrap(tasks: Sequence[Task]) -> Interval:
    """IQM of all scores with its 95 % percentile interval: seeds are drawn within their task.

    `core.statistics.stratified_bootstrap` for tasks with different numbers of seeds, and a base that
    is drawn too. One seed in every task says nothing about the spread: the interval is then not known
    (NaN).
    """
    estimate = iqm(np.concatenate([task.scores for task in tasks]))
    if max(len(task.values) for task in tasks) < 2:
        return Interval(math.nan, estimate, math.nan, 0.95)
    generator = np.random.default_rng(0)
    draws = np.concatenate([task.draw(generator) for task in tasks], axis=1)
    low, high = np.quantile(trim_mean(draws, 0.25, axis=1), (0.025, 0.975))
    return Interval(float(low), estimate, float(high), 0.95)


def _resample(values: Array, generator: np.random.Generator) -> Array:
    return values[generator.integers(len(values), size=(_RESAMPLES, len(values)))]


def _rank(algo: str, members: Sequence[Group], bases: Mapping[str, Group]) -> Rank:
    name, suites = NAMES.get(algo, algo), tuple(g.suite for g in members)
    scores: dict[str, Interval | None] = {}
    paper: dict[str, float | None] = {}
    left_out: LeftOut = {}
    paper_left_out: LeftOut = {}
    single: set[str] = set()
    for metric in METRICS:
        tasks, left_out[metric] = _tasks(name, members, bases, metric)
        score = scores[metric] = bootstrap(tasks) if tasks else None
        if score is not None and not math.isnan(score.low):
            single |= {task.suite for task in tasks if task.single}
        paper[metric], paper_left_out[metric] = _paper_score(suites, algo, metric)
    return Rank(algo, name, suites, scores, paper, left_out, paper_left_out, frozenset(single))


def _tasks(
    name: str, members: Sequence[Group], bases: Mapping[str, Group], metric: str
) -> tuple[list[Task], dict[str, str]]:
    """The suites where TRPO's number is positive, a ratio means nothing elsewhere; and the others."""
    tasks, left_out = [], {}
    for group in members:
        base = bases[group.suite].values("late", metric)
        values = group.values("late", metric)
        if not len(base):
            left_out[group.suite] = "TRPO's is not known"
        elif base.mean() <= 0:
            left_out[group.suite] = "TRPO's is not above 0"
        elif not len(values):
            left_out[group.suite] = f"{name}'s is not known"
        else:
            tasks.append(Task(group.suite, values, base, own=group is bases[group.suite]))
    return tasks, left_out


def _paper_score(
    suites: Sequence[str], algo: str, metric: str
) -> tuple[float | None, dict[str, str]]:
    """Of the suites in the paper's tables; and the others. A method that it has not lacks nothing."""
    ratios, left_out = [], {}
    for suite in suites:
        ours, base = paper_value(suite, algo, metric), paper_value(suite, "trpo", metric)
        if ours is None or base is None:
            left_out[suite] = "not in its tables"
        elif base <= 0:
            left_out[suite] = "its TRPO's is not above 0"
        else:
            ratios.append(ours / base)
    return (iqm(ratios), left_out) if ratios else (None, {})


def _place(ranked: Rank) -> tuple[bool, float]:
    """Methods that hardly earn anything come last: standing still is safe, and no merit."""
    earned, cost = ranked.scores["episode/return"], ranked.scores["cost/rate"]
    idle = earned is not None and earned.estimate < EARNED
    return idle, float("inf") if cost is None else cost.estimate


def _range(ranks: Sequence[Rank], metric: str) -> tuple[float, float]:
    """Scale of a column: all estimates and the paper's, and 1; intervals may be cut."""
    found = [r.scores[metric] for r in ranks]
    points = [1.0] + [p for r in ranks if (p := r.paper[metric]) is not None]
    for interval in found:
        if interval is not None:
            points += [interval.low, interval.estimate, interval.high]
    points = [point for point in points if math.isfinite(point)]
    low = 0.0 if metric != "episode/return" else min(points)
    return low, min(max(points), 3.0) if metric != "episode/return" else max(points)


def _cell(ranked: Rank, metric: str, scale: tuple[float, float]) -> Cell:
    interval, paper = ranked.scores[metric], ranked.paper[metric]
    if interval is None:
        return Cell(NONE)
    digits = 2 if abs(interval.estimate) >= 0.1 else 3
    low, estimate, high = (
        f"{value:.{digits}f}" for value in (interval.low, interval.estimate, interval.high)
    )
    text = estimate if math.isnan(interval.low) else f"{estimate} ({low} to {high})"
    if left_out := len(ranked.left_out[metric]):
        text += f", {_suites(len(ranked.suites) - left_out)}"
    hint = "" if paper is None else f"paper {paper:.2f}"
    return Cell(text, interval.estimate, Strip(interval, paper, *scale), hint=hint)


def _single_note(ranks: Sequence[Rank]) -> list[str]:
    """A sentence about suites that add less to an interval than they should."""
    names: dict[str, list[str]] = {}
    for r in ranks:
        if r.single:
            names.setdefault(f"{len(r.single)} of {_suites(len(r.suites))}", []).append(r.name)
    if not names:
        return []
    counts = ", ".join(f"{count} for {_and(who)}" for count, who in names.items())
    return [f"Intervals are too narrow where a suite has one seed only of the method or of TRPO: "
            f"{counts}."]  # fmt: skip


def _left_out_notes(whose: str, left_out: Iterable[LeftOut]) -> list[str]:
    """Sentences about suites that a column is not over, with the reasons."""
    found = list(left_out)
    metrics: dict[str, list[str]] = {}
    for metric in METRICS:
        suites: dict[str, dict[str, None]] = {}  # by reason; each once, in the order of the report
        for one in found:
            for suite, why in one[metric].items():
                suites.setdefault(why, {})[suite] = None
        if suites:
            text = "; ".join(f"{', '.join(names)} ({why})" for why, names in suites.items())
            metrics.setdefault(text, []).append(metric.replace("_", " "))
    return [f"Left out of {whose} {_and(names)}: {text}." for text, names in metrics.items()]


def _suites(number: int) -> str:
    return f"{number} suite{'' if number == 1 else 's'}"


def _and(names: Sequence[str]) -> str:
    *rest, last = names
    return f"{', '.join(rest)} and {last}" if rest else last
