"""What a report says, before it is a page or a Markdown file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from statewise import metrics
from statewise.report.frontier import frontier_sections
from statewise.report.groups import Group, group_runs
from statewise.report.limits import flags_of, limits_of
from statewise.report.notes import Notes, read_notes
from statewise.report.ranking import ranking_tables
from statewise.report.reference import Reference
from statewise.report.sections import Section
from statewise.report.table import Table
from statewise.report.tables import (
    final_table,
    headline_table,
    metrics_table,
    provenance_tables,
    resources_table,
    safety_table,
    seeds_table,
)
from statewise.runs.folder import file_name
from statewise.runs.reader import Reading
from statewise.text import several

_DEFINED = (metrics.RETURN, metrics.EPISODE_COST, metrics.COST_RATE, metrics.EPOCH_COST_RATE,
            metrics.MAX_COST, "cost/*/violation_rate")  # fmt: skip
_DEFINITIONS = (
    *((metrics.find(key).title, metrics.find(key).about) for key in _DEFINED),
    ("last epoch", "Mean over seeds of the last epoch alone, ± one sample standard deviation over "
     "seeds."),
    ("last 5 %", "The last 5 % of epochs taken together, all their episodes and steps: steadier than "
     "one epoch."),
    ("curves", "Mean over seeds, band of one standard deviation, no smoothing. Long runs show every "
     "n-th epoch. A gap: no episode ended. Dotted: unfinished. On a log scale zeros lie on the "
     "axis."),
    ("IQM", "Interquartile mean: the mean of the middle half of all suites and seeds."),
)  # fmt: skip


NO_RANKING = "No ranking: it needs finished runs of the method that all are compared with."
NO_FAILURE = "No claim that could be judged fails."


Sections = Sequence[Section] | Callable[[Sequence[Group], Path], Sequence[Section]]
"""Sections, or what makes them of the groups of runs and a folder to draw pictures into"""


@dataclass(frozen=True)
class SuiteReport:
    name: str
    failures: tuple[str, ...]
    """Claims of the sections that do not hold here"""
    holds: tuple[str, ...]
    limits: tuple[str, ...]
    """What to know before trusting the numbers; folded"""
    notes: str
    """Hand-written Markdown; folded"""
    tables: tuple[Table, ...]
    seeds: Table

    @property
    def picture(self) -> str:
        """Its curves, beside the Markdown file."""
        return f"pictures/{file_name(self.name)}.png"


@dataclass(frozen=True)
class Report:
    """In the order in which it is read: the answer first, what it rests on after it."""

    lead: str
    run_count: int
    headline: Table
    groups: tuple[Group, ...]
    rankings: tuple[Table, ...]
    sections: tuple[Section, ...]
    flags: tuple[str, ...]
    """What is wrong with the input; folded"""
    notes: Notes
    """Hand-written; folded"""
    suites: tuple[SuiteReport, ...]
    provenance: tuple[Table, ...]
    reference: Reference | None = None
    first: str = ""
    """The algorithm that stands first beside the baseline, whose lines and rows stand out"""
    definitions: tuple[tuple[str, str], ...] = _DEFINITIONS

    @property
    def charted(self) -> list[Group]:
        """The groups for the curves of the suites: without those that a section shows, if others are
        there."""
        shown = {label for section in self.sections for label in section.labels}
        suites = {g.suite for g in self.groups if g.label not in shown}
        return [g for g in self.groups if g.label not in shown or g.suite not in suites]


def assemble(
    reading: Reading,
    notes_file: Path | None = None,
    baseline: str | None = None,
    reference: Reference | None = None,
    sections: Sections = (),
    pictures: Path | None = None,
) -> Report:
    """Group the runs, and compute every table and sentence. Arguments are those of `write_report`.

    pictures: where sections draw; without it the variants of algorithms are not drawn.
    """
    groups = group_runs(reading.runs, reference)
    algos = list(dict.fromkeys(g.algo for g in groups if g.main))
    if baseline is not None and baseline not in algos:
        raise ValueError(f"no run of the baseline {baseline!r} is here: choose one of "
                         f"{', '.join(algos)}, or none")  # fmt: skip
    given = sections(groups, pictures or Path()) if callable(sections) else sections
    added = (*given, *(frontier_sections(groups, pictures) if pictures else ()))
    names = list(dict.fromkeys(group.suite for group in groups))
    notes = read_notes(notes_file, names)
    suites = []
    for name in names:
        members = [g for g in groups if g.suite == name]
        said = [s for section in added for s in section.statements if s.suite == name]
        tables = (
            metrics_table(members, reference), final_table(members), safety_table(members),
            resources_table(members, baseline),
        )  # fmt: skip
        suites.append(
            SuiteReport(
                name=name,
                failures=tuple(s.text for s in said if not s.holds),
                holds=tuple(s.text for s in said if s.holds),
                limits=tuple(limits_of(members, reference)),
                notes=notes.suites.get(name, ""),
                tables=tuple(table for table in tables if table.rows),
                seeds=seeds_table(members),
            )
        )
    ranks, rankings = ranking_tables(groups, baseline, reference)
    # Without a ranking the first other method is shown all the same.
    others = [a for a in (*(r.own for r in ranks), *algos) if baseline and a != baseline]
    first = next(iter(others), "")
    shown = [baseline, first] if baseline else algos[:2]
    return Report(
        lead=_lead(groups, reference),
        run_count=len(reading.runs),
        headline=headline_table(groups, shown, reference),
        groups=tuple(groups),
        rankings=rankings,
        sections=added,
        flags=tuple(flags_of(reading, groups, notes)),
        notes=notes,
        suites=tuple(suites),
        provenance=provenance_tables(groups),
        reference=reference,
        first=first,
    )


def _lead(groups: Sequence[Group], reference: Reference | None) -> str:
    suites = several(len({g.suite for g in groups}), "suite")
    names = dict.fromkeys(g.name.partition(" · ")[0] for g in groups if g.main)
    seeds = sorted({len(g.counted) for g in groups})
    span = " to ".join(str(n) for n in dict.fromkeys((seeds[0], seeds[-1])))
    cite = f" {reference.cite}" if reference else ""
    return f"{suites}, {', '.join(names)}; {span} seed{'' if span == '1' else 's'} each.{cite}"
