"""The algorithms over all suites: interquartile means of scores relative to a baseline's."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from statewise.core.statistics import Array, Interval, ratio_bootstrap
from statewise.metrics import COST_RATE, RETURN, find, title
from statewise.report.groups import Group, title_of
from statewise.report.reference import Reference
from statewise.report.table import NONE, Cell, Column, Strip, Table
from statewise.report.tables import COMPARED
from statewise.runs.differences import differing
from statewise.text import listed, several

_EARNED = 0.5
"""Share of the baseline's return below which a method is ranked last."""


@dataclass(frozen=True)
class Score:
    """One metric relative to the baseline's, over the suites in which a ratio means something."""

    interval: Interval | None = None
    left_out: dict[str, str] = field(default_factory=dict)
    """Suites that it is not over, each with the reason"""
    single: frozenset[str] = frozenset()
    """Suites with one seed, of the method or of the baseline, where others make an interval"""


@dataclass(frozen=True)
class Rank:
    """One algorithm over the suites it has finished runs in."""

    own: str
    suites: tuple[str, ...]
    scores: dict[str, Score]
    theirs: dict[str, Score]
    """The same of the reference, over the same suites (means of seeds only)"""

    @property
    def name(self) -> str:
        return title_of(self.own)

    @property
    def place(self) -> tuple[bool, float]:
        """Safest first. Methods that hardly earn anything come last: standing still is no merit."""
        earned, cost = (self.scores[metric].interval for metric in (RETURN, COST_RATE))
        idle = earned is not None and earned.estimate < _EARNED
        return idle, math.inf if cost is None else cost.estimate


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
    ranks = []
    for algo, members in by_algo.items():
        scores, theirs = {}, dict.fromkeys(COMPARED, Score())
        for metric in COMPARED:
            late = partial(Group.values, part="late", metric=metric)
            scores[metric] = _score(members, bases, late, "{}'s is not known")
            if reference is not None:
                printed = partial(_printed, reference, metric)
                found = _score(members, bases, printed, "not in its tables")
                # A method that the reference does not have lacks nothing.
                theirs[metric] = found if found.interval else Score()
        ranks.append(Rank(algo, tuple(g.suite for g in members), scores, theirs))
    return sorted(ranks, key=lambda ranked: ranked.place)


def _printed(reference: Reference, metric: str, group: Group) -> Array:
    value = reference.value(group.suite, group.algo, metric)
    return np.array([] if value is None else [value])


def _score(
    members: Sequence[Group],
    bases: Mapping[str, Group],
    values: Callable[[Group], Array],
    absent: str,
) -> Score:
    """values: those of a group's seeds. absent: why a suite is left out where a group has none."""
    pairs, left_out = {}, {}
    for group in members:
        base = bases[group.suite]
        below = values(base)
        above = below if group is base else values(group)
        if not len(below) or below.mean() <= 0:
            why = "{}'s is not above 0" if len(below) else absent
            left_out[group.suite] = why.format(title_of(base.algo))
        elif not len(above):
            left_out[group.suite] = absent.format(title_of(group.algo))
        else:
            pairs[group.suite] = (above, below)
    if not pairs:
        return Score(None, left_out)
    interval = ratio_bootstrap(list(pairs.values()))
    single = [suite for suite, pair in pairs.items() if min(map(len, pair)) < 2]
    return Score(interval, left_out, frozenset(() if math.isnan(interval.low) else single))


# Tables ------------------------------------------------------------------------------------------


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
        algos = {r.own for r in chosen}
        members = [g for g in groups if g.suite in shared and g.algo in algos]
        if shared and not (tables and len(chosen) == len(ranks)):
            table = _ranking_table(rank(members, baseline, reference), baseline, reference)
            tables.append(replace(table, notes=(*table.notes, *_unranked_notes(groups, baseline))))
    return ranks, tuple(tables)


def _unranked_notes(groups: Sequence[Group], baseline: str | None) -> list[str]:
    """A sentence for each method with runs that cannot be compared with the baseline's."""
    bases = {g.suite: json.loads(g.task) for g in groups if g.own == baseline and g.finished}
    apart: dict[str, dict[str, None]] = {}  # the settings, each once
    for g in groups:
        if g.main and g.finished and g.suite in bases:
            keys = differing([bases[g.suite], json.loads(g.task)])
            apart.setdefault(g.algo, {}).update(dict.fromkeys(keys))
    return [
        f"Suites in which {title_of(algo)} has another {listed(list(keys))} than "
        f"{title_of(baseline or '')} are not in its row."
        for algo, keys in apart.items()
        if keys
    ]


def _ranking_table(ranks: list[Rank], baseline: str | None, reference: Reference | None) -> Table:
    """A ranking, with its intervals as numbers and as strips."""
    base = next(r.name for r in ranks if r.own == baseline)
    columns = [Column.words("algorithm", lambda r: r.name),
               Column("suites", lambda r: Cell.count(len(r.suites)))]  # fmt: skip
    for metric in COMPARED:
        better, scale = "less" if find(metric).less_is_better else "more", _scale(ranks, metric)
        name = f"{title(metric)} ÷ {base}'s ({better} is better)"
        columns.append(Column(name, partial(_cell, metric, scale, reference), strips=True))
    hollow = f"Hollow marks: the same from the {reference.name}. " if reference else ""
    notes = [
        f"Interquartile mean over suites and seeds, with 95 % intervals (bootstrap of the seeds "
        f"within each suite, the method's and {base}'s; none for one seed). Return and episode cost "
        f"over the last 5 % of epochs, cost rate over the whole training; each divided by the mean of "
        f"our {base} in the same suite with the same settings, {base}'s own numbers too. {hollow}"
        f"Lowest cost rate first; methods with less than half of {base}'s return come last.",
        *_single_note(ranks, base),
        *_left_out_notes("", [r.scores for r in ranks]),
    ]
    if reference:
        notes += _left_out_notes(f" {reference.name}'s", [r.theirs for r in ranks])
    count = max(len(r.suites) for r in ranks)
    return Table.of(f"Ranking over {several(count, 'suite')}", columns, ranks, notes=notes)


def _scale(ranks: Sequence[Rank], metric: str) -> tuple[float, float]:
    """Scale of a column: all estimates and the reference's, and 1; intervals of costs may be cut."""
    found = [i for r in ranks for s in (r.scores, r.theirs) if (i := s[metric].interval)]
    points = [1.0, *(p for i in found for p in (i.low, i.estimate, i.high) if math.isfinite(p))]
    return (min(points), max(points)) if metric == RETURN else (0.0, min(max(points), 3.0))


def _cell(
    metric: str, scale: tuple[float, float], reference: Reference | None, ranked: Rank
) -> Cell:
    score, other = ranked.scores[metric], ranked.theirs[metric].interval
    interval = score.interval
    if interval is None:
        return Cell(NONE)
    digits = 2 if abs(interval.estimate) >= 0.1 else 3
    text = f"{interval.estimate:.{digits}f}"
    if not math.isnan(interval.low):
        text += f" ({interval.low:.{digits}f} to {interval.high:.{digits}f})"
    if score.left_out:
        text += f", {several(len(ranked.suites) - len(score.left_out), 'suite')}"
    theirs = other.estimate if other else None
    hint = f"{reference.name} {theirs:.2f}" if reference and theirs is not None else ""
    return Cell(text, interval.estimate, Strip(interval, theirs, *scale), hint=hint)


def _single_note(ranks: Sequence[Rank], base: str) -> list[str]:
    """A sentence about suites that add less to an interval than they should."""
    names: dict[str, list[str]] = {}
    for r in ranks:
        if single := frozenset[str]().union(*(score.single for score in r.scores.values())):
            count = f"{len(single)} of {several(len(r.suites), 'suite')}"
            names.setdefault(count, []).append(r.name)
    counts = ", ".join(f"{count} for {listed(who)}" for count, who in names.items())
    return [f"Intervals are too narrow where a suite has one seed only of the method or of {base}: "
            f"{counts}."] if counts else []  # fmt: skip


def _left_out_notes(whose: str, scores: Iterable[Mapping[str, Score]]) -> list[str]:
    """Sentences about suites that a column is not over, with the reasons."""
    found = list(scores)
    metrics: dict[str, list[str]] = {}
    for metric in COMPARED:
        suites: dict[str, dict[str, None]] = {}  # by reason; each once, in the order of the report
        for suite, why in (item for one in found for item in one[metric].left_out.items()):
            suites.setdefault(why, {})[suite] = None
        if suites:
            text = "; ".join(f"{', '.join(names)} ({why})" for why, names in suites.items())
            metrics.setdefault(text, []).append(title(metric))
    return [f"Left out of the{whose} {listed(names)}: {text}." for text, names in metrics.items()]
