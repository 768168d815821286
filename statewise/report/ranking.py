"""The algorithms over all suites: interquartile means of scores relative to TRPO's."""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    "return": "return ÷ TRPO's (more is better)",
    "episode_cost": "episode cost ÷ TRPO's (less is better)",
    "cost_rate": "cost rate ÷ TRPO's (less is better)",
}
EARNED = 0.5
"""Share of TRPO's return below which a method is ranked last."""


@dataclass(frozen=True)
class Rank:
    """One algorithm over the suites it has finished runs in."""

    algo: str
    name: str
    suites: tuple[str, ...]
    scores: dict[str, Interval | None]
    paper: dict[str, float | None]
    """The same number from the paper's tables, over the same suites (means of seeds only)"""


def rank(groups: Sequence[Group]) -> list[Rank]:
    """Every algorithm that shares a suite and its settings with TRPO: safest (cost rate) first, those
    that earn little last."""
    bases = {g.suite: g for g in groups if g.main and g.algo == "trpo" and g.finished}
    by_algo: dict[str, list[Group]] = {}
    for group in groups:
        base = bases.get(group.suite)
        if group.main and group.finished and base is not None and base.task == group.task:
            by_algo.setdefault(group.algo, []).append(group)
    ranks = []
    for algo, members in by_algo.items():
        scores = {m: _score(members, bases, m) for m in METRICS}
        paper = {m: _paper_score([g.suite for g in members], algo, m) for m in METRICS}
        suites = tuple(g.suite for g in members)
        ranks.append(Rank(algo, NAMES.get(algo, algo), suites, scores, paper))
    return sorted(ranks, key=_place)


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
        cells += [_cell(r.scores[m], r.paper[m], ranges[m]) for m in METRICS]
        rows.append(Row(cells, r.algo))
    notes = [
        "Interquartile mean over suites and seeds, with 95 % intervals (bootstrap of the seeds "
        "within each suite; none for one seed). Return and episode cost over the last 5 % of "
        "epochs, cost rate over the whole training; each divided by the mean of our TRPO in the "
        "same suite with the same settings. Hollow marks: the same from the paper's tables, which "
        "are of its last epoch. Lowest cost rate first; methods with less than half of TRPO's return "
        "come last."
    ]
    number = max((len(r.suites) for r in ranks), default=0)
    title = f"Ranking over {number} suite{'s' if number > 1 else ''}"
    return Table(title, columns, rows, notes=notes)


def bootstrap(tasks: Sequence[Array], resamples: int = 2000, seed: int = 0) -> Interval:
    """IQM of all values with its 95 % percentile interval: values are drawn within their task.

    `core.statistics.stratified_bootstrap` for tasks with different numbers of seeds. One seed in
    every task says nothing about the spread: the interval is then not known (NaN).
    """
    if max(len(task) for task in tasks) < 2:
        return Interval(math.nan, iqm(np.concatenate(tasks)), math.nan, 0.95)
    generator = np.random.default_rng(seed)
    draws = [task[generator.integers(len(task), size=(resamples, len(task)))] for task in tasks]
    means = trim_mean(np.concatenate(draws, axis=1), 0.25, axis=1)
    low, high = np.quantile(means, (0.025, 0.975))
    return Interval(float(low), iqm(np.concatenate(tasks)), float(high), 0.95)


def _score(members: Sequence[Group], bases: dict[str, Group], metric: str) -> Interval | None:
    """Over the suites where TRPO's number is positive: a ratio means nothing elsewhere."""
    tasks = []
    for group in members:
        base = bases[group.suite].mean("late", metric)
        values = group.values("late", metric)
        if base is not None and base > 0 and len(values):
            tasks.append(values / base)
    return bootstrap(tasks) if tasks else None


def _paper_score(suites: Sequence[str], algo: str, metric: str) -> float | None:
    ratios = []
    for suite in suites:
        ours, base = paper_value(suite, algo, metric), paper_value(suite, "trpo", metric)
        if ours is not None and base:
            ratios.append(ours / base)
    return iqm(ratios) if ratios else None


def _place(ranked: Rank) -> tuple[bool, float]:
    """Methods that hardly earn anything come last: standing still is safe, and no merit."""
    earned, cost = ranked.scores["return"], ranked.scores["cost_rate"]
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
    low = 0.0 if metric != "return" else min(points)
    return low, min(max(points), 3.0) if metric != "return" else max(points)


def _cell(interval: Interval | None, paper: float | None, scale: tuple[float, float]) -> Cell:
    if interval is None:
        return Cell(NONE)
    digits = 2 if abs(interval.estimate) >= 0.1 else 3
    low, estimate, high = (
        f"{value:.{digits}f}" for value in (interval.low, interval.estimate, interval.high)
    )
    text = estimate if math.isnan(interval.low) else f"{estimate} ({low} to {high})"
    hint = "" if paper is None else f"paper {paper:.2f}"
    return Cell(text, interval.estimate, Strip(interval, paper, *scale), hint=hint)
