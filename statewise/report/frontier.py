"""Return against violations: which variants of an algorithm no other variant beats in both."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from statewise.core.statistics import Interval
from statewise.metrics import RETURN
from statewise.report.groups import Group, title_of
from statewise.report.plots import GREY, Panel, Plot, Series, save
from statewise.report.sections import Picture, Section
from statewise.report.table import Cell, Column, Table
from statewise.report.tables import rate_columns
from statewise.runs.differences import settings_text
from statewise.text import letter

_FEWEST = 3
"""Variants of one algorithm in one suite, from which on there is something to choose from."""


class Variant(NamedTuple):
    """A group of runs as a point."""

    group: Group
    earned: float
    rate: Interval

    def beats(self, other: Variant) -> bool:
        """Whether it is at least as good in both, and better in one."""
        better = self.earned > other.earned or self.rate.estimate < other.rate.estimate
        return better and self.earned >= other.earned and self.rate.estimate <= other.rate.estimate


def undominated(variants: Sequence[Variant]) -> list[Variant]:
    """The variants that no other one beats, the safest first."""
    found = [v for v in variants if not any(other.beats(v) for other in variants)]
    return sorted(found, key=lambda v: (v.rate.estimate, v.earned))


def frontier_sections(groups: Sequence[Group], pictures: Path) -> list[Section]:
    """A section with a picture and a table, if a suite has enough variants of one algorithm."""
    members: dict[tuple[str, str], list[Group]] = {}
    for group in groups:
        if group.finished:
            members.setdefault((group.suite, group.algo), []).append(group)
    variants = {key: _variants(found) for key, found in members.items()}
    several = {key: found for key, found in variants.items() if len(found) >= _FEWEST}
    if not several:
        return []
    panels, rows = [], []
    for (suite, algo), found in several.items():
        best = undominated(found)
        panels.append(_panel(f"return of {title_of(algo)}, {suite}", found, best))
        rows += [(letter(place), variant) for place, variant in enumerate(best)]
    plot = Plot(panels, "episodes that violate a constraint, %", columns=3, width=4.4, height=2.8)
    caption = ("Return and violation rate, means over seeds: of fresh episodes with mean actions if all "
               "variants were judged, otherwise of the last 5 % of epochs. A variant is dominated if "
               "another one has at least its return, at most its violation rate, and is better in one of "
               "them. The table names the others.")  # fmt: skip
    picture = Picture(save(plot, pictures / "frontier.png"), "Variants of one algorithm", caption)
    return [Section("Return against violations", pictures=(picture,), tables=(_table(rows),))]


def _variants(groups: Sequence[Group]) -> list[Variant]:
    """The groups as points, all by fresh episodes or all by their last epochs."""
    judged = all(group.judged for group in groups)
    found = []
    for group in groups:
        earned = group.judged_return if judged else group.mean("late", RETURN)
        rate = group.judged_rate if judged else group.violations and group.violations[0]
        if earned is not None and rate is not None:
            found.append(Variant(group, earned, rate))
    return found


def _panel(title: str, variants: Sequence[Variant], best: Sequence[Variant]) -> Panel:
    def series(chosen: Sequence[Variant], name: str, number: int, **more: object) -> Series:
        x = [100 * v.rate.estimate for v in chosen]
        return Series(x, [v.earned for v in chosen], name, number, "points", **more)  # type: ignore[arg-type]

    letters = [letter(place) for place in range(len(best))]
    shown = [series(best, "not dominated", 0, labels=letters, bold=True)]
    if rest := [v for v in variants if v not in best]:
        shown.append(series(rest, "dominated", GREY))
    earned = [v.earned for v in variants]
    space = 0.15 * (max(earned) - min(earned) or abs(max(earned)) or 1.0)
    return Panel(title, shown, limits=[min(earned) - space, max(earned) + space])


def _table(rows: Sequence[tuple[str, Variant]]) -> Table:
    columns = [
        Column.words("suite", lambda row: row[1].group.suite),
        Column.words("point", lambda row: row[0]),
        Column.words("variant", lambda row: row[1].group.name),
        Column("seeds", lambda row: Cell.count(len(row[1].group.counted))),
        Column("return", lambda row: Cell.number(row[1].earned)),
        *rate_columns(lambda row: row[1].rate),
        Column.words("settings that differ from the defaults",
                     lambda row: settings_text(row[1].group.changed) or "defaults"),
    ]  # fmt: skip
    return Table.of("Settings that no other variant beats", columns, rows, wraps=True)
