"""What a report says, before it is a page or a Markdown file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from statewise.report.curves import ReferenceValues
from statewise.report.data import Reading
from statewise.report.findings import checks_table, find
from statewise.report.groups import Group, group_runs, mixed_labels
from statewise.report.notes import Notes, read_notes
from statewise.report.paper import NAMES, paper_value
from statewise.report.provenance import groups_table, machines_table
from statewise.report.ranking import ranking_tables
from statewise.report.table import Table
from statewise.report.tables import metrics_table, resources_table, safety_table, seeds_table
from statewise.report.variants import charted
from statewise.runs.folder import file_name

DEFINITIONS = (
    ("return", "Sum of the rewards of an episode, not discounted; mean over the episodes that ended "
     "in an epoch (the paper's J_r)."),
    ("episode cost", "Sum of the costs of an episode, likewise (M_c). With several constraints, the "
     "sum over them."),
    ("cost rate, running", "All cost since training began over all steps since then, unfinished "
     "episodes included (ρ_c, the paper's). At the last epoch it still holds the unsafe first ones."),
    ("cost rate, per epoch", "Cost of an epoch over its steps: how safe the policy is now, which the "
     "running mean hides."),
    ("maximum state-wise cost", "The largest cost of any step of an episode; mean over the episodes "
     "that ended. What SCPO bounds. In a chart of several constraints, the sum over them."),
    ("violation rate", "Share of the episodes with at least one step of positive cost."),
    ("last epoch", "As in the paper's tables: the mean over seeds of the last epoch alone, ± one "
     "sample standard deviation over seeds."),
    ("last 5 %", "The last 5 % of epochs taken together, all their episodes and steps: steadier than "
     "one epoch."),
    ("curves", "Mean over seeds, band of one standard deviation, no smoothing. Long runs show every "
     "n-th epoch. A gap: no episode ended. Dotted: unfinished. On a log scale zeros lie on the "
     "axis."),
    ("IQM", "Interquartile mean: the mean of the middle half of all suites and seeds."),
)  # fmt: skip


class Statement(NamedTuple):
    """A claim about a suite that holds, or does not."""

    suite: str
    text: str
    holds: bool


class Section(NamedTuple):
    """A part that somebody adds: its text for the page, the same for Markdown, and files."""

    title: str
    html: str
    """For the page, which must need nothing else: embed pictures (`picture`)"""
    markdown: str
    """May refer to its files as `pictures/NAME`"""
    files: tuple[Path, ...] = ()
    """Copied to `pictures/` beside the report"""
    tables: tuple[Table, ...] = ()
    statements: tuple[Statement, ...] = ()
    """Claims that its tables judge, which are shown with their suites too"""


@dataclass(frozen=True)
class SuiteReport:
    name: str
    failures: tuple[str, ...]
    """Claims of the sections that do not hold here"""
    holds: tuple[str, ...]
    limits: tuple[str, ...]
    """What to know before trusting the numbers"""
    notes: str
    """Hand-written Markdown"""
    tables: tuple[Table, ...]
    seeds: Table

    @property
    def picture(self) -> str:
        """Its curves, beside the Markdown file."""
        return f"pictures/{file_name(self.name)}.png"


@dataclass(frozen=True)
class Report:
    lead: str
    run_count: int
    flags: tuple[str, ...]
    """What is wrong with the input"""
    groups: tuple[Group, ...]
    rankings: tuple[Table, ...]
    suites: tuple[SuiteReport, ...]
    provenance: tuple[Table, ...]
    notes: Notes
    sections: tuple[Section, ...]
    definitions: tuple[tuple[str, str], ...] = DEFINITIONS
    headline: Table | None = None
    reference: ReferenceValues | None = None

    @property
    def charted(self) -> list[Group]:
        return charted(self.groups)


def assemble(
    reading: Reading, notes_file: Path | None = None, sections: Sequence[Section] = ()
) -> Report:
    """Group the runs, compute every table and finding."""
    groups = group_runs(reading.runs)
    findings = find(groups)
    notes = read_notes(notes_file, [f.suite for f in findings])
    suites = []
    for found in findings:
        members = [g for g in groups if g.suite == found.suite]
        kinds = (metrics_table, safety_table, resources_table)
        tables = tuple(table for kind in kinds if (table := kind(members)).rows)
        text = notes.suites.get(found.suite, "")
        failures = tuple(check.text for check in found.failures)
        holds = tuple(check.text for check in found.checks if check.verdict)
        suites.append(SuiteReport(found.suite, failures, holds, found.limits, text, tables,
                                  seeds_table(members)))  # fmt: skip
    judged = [Statement(f.suite, check.text, check.verdict)
              for f in findings for check in f.checks if check.verdict is not None]  # fmt: skip
    claims = Section("Claims", "", "", (), (checks_table(findings),), tuple(judged))
    return Report(
        lead=_lead(groups),
        run_count=len(reading.runs),
        flags=tuple(_flags(reading, groups, notes)),
        groups=tuple(groups),
        rankings=ranking_tables(groups),
        suites=tuple(suites),
        provenance=(groups_table(groups), machines_table(groups)),
        notes=notes,
        sections=(claims, *(Section(*section) for section in sections)),
        reference=_Paper(),
    )


class _Paper:
    name = "paper"

    def value(self, suite: str, algo: str, metric: str) -> float | None:
        return paper_value(suite, algo, metric)


def _lead(groups: Sequence[Group]) -> str:
    suites = len({g.suite for g in groups})
    algos = list(dict.fromkeys(NAMES.get(g.algo, g.algo) for g in groups))
    seeds = sorted({len(g.counted) for g in groups})
    span = str(seeds[0]) if len(seeds) == 1 else f"{seeds[0]} to {seeds[-1]}"
    return (
        f"{suites} suite{'s' if suites > 1 else ''}, {', '.join(algos)}; {span} "
        f"seed{'' if span == '1' else 's'} each. Ours beside the figures of Zhao et al. 2023 "
        f"(arXiv 2306.12594), which are means of two seeds at the last epoch."
    )


def _flags(reading: Reading, groups: Sequence[Group], notes: Notes) -> list[str]:
    flags = list(reading.notes) + mixed_labels(groups)
    unfinished = sum(not run.finished for run in reading.runs)
    if unfinished == len(reading.runs):
        flags.insert(0, "No run is finished: every number below is of runs that stand somewhere on "
                        "the way, and nothing is ranked or judged.")  # fmt: skip
    elif unfinished:
        flags.append(f"{unfinished} of {len(reading.runs)} runs are unfinished: see the limits of "
                     f"their suites.")  # fmt: skip
    damaged = sum(bool(run.notes) for run in reading.runs)
    if damaged:
        flags.append(f"{damaged} runs have files that are cut short, damaged or missing: see the "
                     f"limits of their suites.")  # fmt: skip
    skipped = sum(bool(run.summary.skipped_updates) for run in reading.runs)
    if skipped:
        flags.append(f"Updates of {skipped} of {len(reading.runs)} runs were left out, since a number "
                     f"was not finite: see the limits of their suites.")  # fmt: skip
    if notes.unknown:
        flags.append(f"The notes speak of suites that are not here: {', '.join(notes.unknown)}.")
    return flags
