"""The Markdown twin of the page: the same words and tables, pictures for charts."""

from __future__ import annotations

from collections.abc import Iterable

from statewise.report.assemble import Report, SuiteReport
from statewise.report.table import Cell, Table
from statewise.version import __version__


def markdown(report: Report) -> str:
    """The whole Markdown document."""
    parts = [
        f"# Report of {report.run_count} runs",
        plain(report.lead),
        "[The page](index.html) has the same with curves to read and tables to sort.",
        "## Summary",
        table_markdown(report.headline),
        *([table_markdown(t) for t in report.rankings] or ["No ranking: it needs finished runs of the baseline."]),
        *(table_markdown(table) for section in report.sections for table in section.tables),
        *_failures(report),
        *_list("**About the input**", report.flags),
        report.notes.overview,
    ]
    for suite in report.suites:
        parts += _suite(suite)
    for section in report.sections:
        parts += [f"## {section.title}", section.markdown] if section.markdown else []
    parts += ["## Definitions", "\n".join(f"- **{t}**: {text}" for t, text in report.definitions)]
    parts += ["## Where the numbers come from", f"Made by statewise {__version__}."]
    parts += [table_markdown(table) for table in report.provenance]
    return "\n\n".join(part for part in parts if part) + "\n"


def table_markdown(table: Table) -> str:
    """Caption, rows and notes; numbers to the right."""
    if not table.rows:
        return ""
    shown = [column for column in table.columns if not column.folded]
    names = [_escape(column.name) for column in shown]
    rules = ["---:" if column.numeric else "---" for column in shown]
    lines = [f"| {' | '.join(names)} |", f"| {' | '.join(rules)} |"]
    rows = [*table.rows, *([table.footer] if table.footer else [])]
    for row in rows:
        pairs = zip(table.columns, row.cells, strict=True)
        lines.append(f"| {' | '.join(_cell(cell) for column, cell in pairs if not column.folded)} |")
    notes = map(plain, table.notes)
    return "\n\n".join([f"**{plain(table.caption)}**", "\n".join(lines), *notes])


def plain(text: str) -> str:
    """Prose in which a name with a `<` stays a name."""
    return text.replace("<", "\\<")


def _suite(suite: SuiteReport) -> list[str]:
    return [
        f"## {_escape(suite.name)}",
        *_list("**Does not reproduce**", suite.failures),
        *_list("**Holds**", suite.holds),
        *_list("**Limits**", suite.limits),
        suite.notes,
        f"![Curves of {_escape(suite.name)}]({suite.picture})",
        *(table_markdown(table) for table in (*suite.tables, suite.seeds)),
    ]


def _failures(report: Report) -> list[str]:
    lines = [f"{s.name}: {text}" for s in report.suites for text in s.failures]
    return _list("**What does not reproduce**", lines) or ["No claim that could be judged fails."]


def _list(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"- {plain(line)}" for line in lines]
    return [title, "\n".join(items)] if items else []


def _cell(cell: Cell) -> str:
    text = _escape(cell.text)
    if cell.strip is not None and cell.hint:
        text += f"; {_escape(cell.hint)}"
    if cell.tone == "reference":
        return f"*{text}*"
    return f"`{cell.text}`" if cell.tone == "code" else text


def _escape(text: str) -> str:
    return plain(text.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_"))
