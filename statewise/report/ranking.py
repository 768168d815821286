"""The algorithms over all suites: interquartile means of scores relative to a baseline's."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from statewise.core.statistics import Array, Interval, ratio_bootstrap
from statewise.metrics import COST_RATE, RETURN, find, title
from statewise.report.groups import Group, title_of
from statewise.report.reference import Reference
from statewise.report.table import (
    NONE,
    Cell,
    Column,
    Row,
    Strip,
    Table,
    listed,
    several,
    text_cell,
    text_columns,
)
from statewise.report.tables import COMPARED

EARNED = 0.5
"""Share of the baseline's return below which a method is ranked last."""

_LeftOut = dict[str, dict[str, str]]
"""Metric to the suites that its score is not over, each with the reason."""


@dataclass(frozen=True)
class Rank:
    """One algorithm over the suites it has finished runs in."""

    algo: str
    name: str
    suites: tuple[str, ...]
    scores: dict[str, Interval | None]
    left_out: _LeftOut
    theirs: dict[str, float | None]
    """The same number of the reference, over the same suites (means of seeds only)"""
    theirs_left_out: _LeftOut
    single: set[str]
    """Suites with one seed, of it or of the baseline, where others make an interval"""


def rank(
    groups: Sequence[Group], baseline: str | None, reference: Reference | None = None
) -> list[Rank]:
    """Every algorithm that shares a suite and its settings with the baseline: safest (cost rate) first,
    those that earn little last."""
    bases = {g.suite: g for g in groups if g.own == baseline and g.finished} if baseline else {}
    by_algo: dict[str, list[Group]] = {}
    for group in groups:
        base = bases.get(group.suite)
        if group.main and group.finished and base is not None and base.task == group.task:
            by_algo.setdefault(group.algo, []).append(group)

    def place(ranked: Rank) -> tuple[bool, float]:
        """Methods that hardly earn anything come last: standing still is safe, and no merit."""
        earned, cost = ranked.scores[RETURN], ranked.scores[COST_RATE]
        idle = earned is not None and earned.estimate < EARNED
        return idle, math.inf if cost is None else cost.estimate

    return sorted((_rank(found, bases, reference) for found in by_algo.values()), key=place)


def ranking_tables(
    groups: Sequence[Group], baseline: str | None, reference: Reference | None = None
) -> tuple[list[Rank], tuple[Table, ...]]:
    """All algorithms, and rankings in which all rows are over the same suites: those that all of them
    share, and, where some have more, those that the algorithms with the most suites share."""
    ranks = rank(groups, baseline, reference)
    most = max((len(r.suites) for r in ranks), default=0)
    tables: list[Table] = []
    for chosen in (ranks, [r for r in ranks if len(r.suites) == most]) if ranks else ():
        shared = set.intersection(*(set(r.suites) for r in chosen))
        algos = {r.algo for r in chosen}
        members = [g for g in groups if g.suite in shared and g.algo in algos]
        if shared and not (tables and len(chosen) == len(ranks)):
            tables.append(_ranking_table(rank(members, baseline, reference), baseline, reference))
    return ranks, tuple(tables)


def _ranking_table(
    ranks: Sequence[Rank], baseline: str | None, reference: Reference | None = None
) -> Table:
    """A ranking, with its intervals as numbers and as strips."""
    base = next(r.name for r in ranks if r.algo == baseline)
    columns = [*text_columns("algorithm"), Column("suites")]
    for metric in COMPARED:
        better = "less" if find(metric).less_is_better else "more"
        columns.append(Column(f"{title(metric)} ÷ {base}'s ({better} is better)", strips=True))
    scales = {metric: _scale(ranks, metric) for metric in COMPARED}
    rows = []
    for r in ranks:
        cells = [text_cell(r.name), Cell(str(len(r.suites)), float(len(r.suites)))]
        cells += [_cell(r, m, scales[m], reference) for m in COMPARED]
        rows.append(Row(cells, r.algo))
    hollow = f"Hollow marks: the same from the {reference.name}. " if reference else ""
    notes = [
        f"Interquartile mean over suites and seeds, with 95 % intervals (bootstrap of the seeds "
        f"within each suite, the method's and {base}'s; none for one seed). Return and episode cost "
        f"over the last 5 % of epochs, cost rate over the whole training; each divided by the mean of "
        f"our {base} in the same suite with the same settings, {base}'s own numbers too. {hollow}"
        f"Lowest cost rate first; methods with less than half of {base}'s return come last.",
        *_single_note(ranks, base),
        *_left_out_notes("", [r.left_out for r in ranks]),
    ]
    if reference:
        notes += _left_out_notes(f" {reference.name}'s", [r.theirs_left_out for r in ranks])
    number = max((len(r.suites) for r in ranks), default=0)
    return Table(f"Ranking over {several(number, 'suite')}", columns, rows, notes=notes)


def _rank(
    members: Sequence[Group], bases: Mapping[str, Group], reference: Reference | None
) -> Rank:
    algo, base = members[0].algo, next(iter(bases.values())).algo
    found = Rank(algo, title_of(algo), tuple(g.suite for g in members), {}, {}, {}, {}, set())
    for metric in COMPARED:
        ours, theirs, absent = {}, {}, {}
        for group in members:
            below = bases[group.suite].values("late", metric)
            values = below if group is bases[group.suite] else group.values("late", metric)
            ours[group.suite] = (values, below)
            pair = (
                [reference.value(group.suite, a, metric) for a in (algo, base)] if reference else []
            )
            if None in pair:
                absent[group.suite] = "not in its tables"
            elif pair:
                theirs[group.suite] = (np.array(pair[:1]), np.array(pair[1:]))
        score, left_out = _score(ours, algo, base)
        if score is not None and not math.isnan(score.low):
            found.single.update(s for s in ours if s not in left_out and min(map(len, ours[s])) < 2)
        found.scores[metric], found.left_out[metric] = score, left_out
        other, left_out = _score(theirs, algo, base)
        found.theirs[metric] = other.estimate if other else None
        # A method that the reference does not have lacks nothing.
        found.theirs_left_out[metric] = absent | left_out if other else {}
    return found


def _score(
    pairs: Mapping[str, tuple[Array, Array]], algo: str, base: str
) -> tuple[Interval | None, dict[str, str]]:
    """The score over the suites in which a ratio means something; and why not over the others."""
    left_out = {}
    for suite, (values, below) in pairs.items():
        if not len(below) or below.mean() <= 0:
            why = "is not above 0" if len(below) else "is not known"
            left_out[suite] = f"{title_of(base)}'s {why}"
        elif not len(values):
            left_out[suite] = f"{title_of(algo)}'s is not known"
    tasks = [pair for suite, pair in pairs.items() if suite not in left_out]
    return ratio_bootstrap(tasks) if tasks else None, left_out


def _scale(ranks: Sequence[Rank], metric: str) -> tuple[float, float]:
    """Scale of a column: all estimates and the reference's, and 1; intervals of costs may be cut."""
    points = [1.0] + [p for r in ranks if (p := r.theirs[metric]) is not None]
    for r in ranks:
        if (score := r.scores[metric]) is not None:
            points += [score.low, score.estimate, score.high]
    points = [point for point in points if math.isfinite(point)]
    return (min(points), max(points)) if metric == RETURN else (0.0, min(max(points), 3.0))


def _cell(
    ranked: Rank, metric: str, scale: tuple[float, float], reference: Reference | None
) -> Cell:
    interval, theirs = ranked.scores[metric], ranked.theirs[metric]
    if interval is None:
        return Cell(NONE)
    digits = 2 if abs(interval.estimate) >= 0.1 else 3
    text = f"{interval.estimate:.{digits}f}"
    if not math.isnan(interval.low):
        text += f" ({interval.low:.{digits}f} to {interval.high:.{digits}f})"
    if left_out := len(ranked.left_out[metric]):
        text += f", {several(len(ranked.suites) - left_out, 'suite')}"
    hint = f"{reference.name} {theirs:.2f}" if reference and theirs is not None else ""
    return Cell(text, interval.estimate, Strip(interval, theirs, *scale), hint=hint)


def _single_note(ranks: Sequence[Rank], base: str) -> list[str]:
    """A sentence about suites that add less to an interval than they should."""
    names: dict[str, list[str]] = {}
    for r in ranks:
        if r.single:
            count = f"{len(r.single)} of {several(len(r.suites), 'suite')}"
            names.setdefault(count, []).append(r.name)
    if not names:
        return []
    counts = ", ".join(f"{count} for {listed(who)}" for count, who in names.items())
    return [f"Intervals are too narrow where a suite has one seed only of the method or of {base}: "
            f"{counts}."]  # fmt: skip


def _left_out_notes(whose: str, left_out: Iterable[_LeftOut]) -> list[str]:
    """Sentences about suites that a column is not over, with the reasons."""
    found = list(left_out)
    metrics: dict[str, list[str]] = {}
    for metric in COMPARED:
        suites: dict[str, dict[str, None]] = {}  # by reason; each once, in the order of the report
        for one in found:
            for suite, why in one[metric].items():
                suites.setdefault(why, {})[suite] = None
        if suites:
            text = "; ".join(f"{', '.join(names)} ({why})" for why, names in suites.items())
            metrics.setdefault(text, []).append(title(metric))
    return [f"Left out of the{whose} {listed(names)}: {text}." for text, names in metrics.items()]
