"""The Markdown twin of the page: the same words and tables, pictures for charts."""

from __future__ import annotations

from collections.abc import Iterable

from statewise.report.assemble import Report, SuiteReport
from statewise.report.table import Cell, Table
from statewise.version import __version__

NO_RANKING = "No ranking: it needs finished runs of the method that all are compared with."
NO_FAILURE = "No claim that could be judged fails."


def markdown(report: Report) -> str:
    """The whole Markdown document, in the order of the page."""
    parts = [
        f"# Report of {report.run_count} runs",
        plain(report.lead),
        "[The page](index.html) has the same with curves to read and tables to sort.",
        _table_markdown(report.headline) if report.headline else "",
        "## Ranking",
        *([_table_markdown(table) for table in report.rankings] or [NO_RANKING]),
    ]
    for section in report.sections:
        parts += [f"## {section.title}", *map(_table_markdown, section.tables)]
        failing = [f"{s.suite}: {s.text}" for s in section.statements if not s.holds]
        if section.statements:
            parts += _list("**What does not hold**", failing or [NO_FAILURE])
        parts.append(section.markdown)
    for suite in report.suites:
        parts += _suite(suite)
    terms = [f"- **{term}**: {text}" for term, text in report.definitions]
    parts += [
        "## About this report",
        *_list("**About the input**", report.flags),
        report.notes.overview,
        "### Definitions",
        "\n".join(terms),
        "### Where the numbers come from",
        *(_table_markdown(table) for table in report.provenance),
        f"Made by statewise {__version__}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _table_markdown(table: Table) -> str:
    """Caption, rows and notes; numbers to the right."""
    if not table.rows:
        return ""
    shown = [i for i, column in enumerate(table.columns) if not column.folded]
    columns, footer = [table.columns[i] for i in shown], [table.footer] if table.footer else []
    rows = [[_escape(column.name) for column in columns]]
    rows += [["---:" if column.numeric else "---" for column in columns]]
    rows += [[_cell(row.cells[i]) for i in shown] for row in (*table.rows, *footer)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    return "\n\n".join([f"**{plain(table.caption)}**", "\n".join(lines), *map(plain, table.notes)])


def plain(text: str) -> str:
    """Prose in which a name with a `<` stays a name."""
    return text.replace("<", "\\<")


def _suite(suite: SuiteReport) -> list[str]:
    return [
        f"## {_escape(suite.name)}",
        f"![Curves of {_escape(suite.name)}]({suite.picture})",
        *(_table_markdown(table) for table in suite.tables),
        *_list("**What does not hold here**", suite.failures),
        *_list("**What holds here**", suite.holds),
        *_list("**Limits**", suite.limits),
        suite.notes,
        _table_markdown(suite.seeds),
    ]


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
