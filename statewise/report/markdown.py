"""The report as a Markdown file: the same text and tables, with pictures instead of charts."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable
from urllib.parse import quote

from statewise.report.assemble import NO_FAILURE, NO_RANKING, Report, SuiteReport
from statewise.report.notes import harmless
from statewise.report.sections import Section
from statewise.report.table import Cell, Table
from statewise.version import __version__


def escape(text: str) -> str:
    """Text that Markdown shows as it is, on one line: no tag, link, picture or heading comes of it."""
    line = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    line = re.sub(r"[\\`*_\[\]<>&|~$#]", r"\\\g<0>", line)
    line = re.sub(r"(?<=:)/(?=/)|(?<=\bwww)\.", r"\\\g<0>", line)  # some readers link addresses
    return re.sub(r"^(\d*)([-+=.)])(?=[-=\s]|$)", r"\1\\\2", line)  # nor a list, nor a rule


def markdown(report: Report) -> str:
    """The whole Markdown document, in the order of the page."""
    parts = [
        f"# Report of {report.run_count} runs",
        escape(report.lead),
        "[The page](index.html) has the same with curves to read and tables to sort.",
        _table(report.headline),
        "## Ranking",
        *([_table(table) for table in report.rankings] or [NO_RANKING]),
        *itertools.chain(*map(_section, report.sections)),
        *itertools.chain(*map(_suite, report.suites)),
        "## About this report",
        *_list("**About the input**", report.flags),
        harmless(report.notes.overview),
        "### Definitions",
        "\n".join(f"- **{escape(term)}**: {escape(text)}" for term, text in report.definitions),
        "### Where the numbers come from",
        *map(_table, report.provenance),
        f"Made by statewise {__version__}.",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _section(section: Section) -> list[str]:
    parts = [f"## {escape(section.title)}", *map(_table, section.tables)]
    if section.statements:
        failing = [f"{s.suite}: {s.text}" for s in section.statements if not s.holds]
        parts += _list("**What does not hold**", failing or [NO_FAILURE])
    parts += map(escape, section.lines)
    for picture in section.pictures:
        parts += [f"### {escape(picture.title)}",
                  f"![{escape(picture.title)}]({quote(picture.address)})",
                  escape(picture.caption)]  # fmt: skip
    return parts


def _suite(suite: SuiteReport) -> list[str]:
    return [
        f"## {escape(suite.name)}",
        f"![Curves of {escape(suite.name)}]({quote(suite.picture)})",
        *map(_table, suite.tables),
        *_list("**What does not hold here**", suite.failures),
        *_list("**What holds here**", suite.holds),
        *_list("**Limits**", suite.limits),
        harmless(suite.notes),
        _table(suite.seeds),
    ]


def _table(table: Table) -> str:
    """Caption, rows and notes; numbers to the right."""
    if not table.rows:
        return ""
    shown = [i for i, column in enumerate(table.columns) if not column.folded]
    columns, footer = [table.columns[i] for i in shown], [table.footer] if table.footer else []
    rows = [[escape(column.name) for column in columns]]
    rows += [["---:" if column.numeric else "---" for column in columns]]
    rows += [[_cell(row.cells[i]) for i in shown] for row in (*table.rows, *footer)]
    lines = [f"| {' | '.join(row)} |" for row in rows]
    caption, notes = f"**{escape(table.caption)}**", map(escape, table.notes)
    return "\n\n".join([caption, "\n".join(lines), *notes])


def _cell(cell: Cell) -> str:
    if cell.tone == "code":
        return _code(cell.text)
    text = escape(cell.text)
    if cell.strip is not None and cell.hint:
        text += f"; {escape(cell.hint)}"
    return f"*{text}*" if cell.tone == "reference" else text


def _code(text: str) -> str:
    """Text between more backquotes than it has itself."""
    line = " ".join(text.split()).replace("|", "\\|")
    fence = "`" * (1 + max(map(len, re.findall("`+", line)), default=0))
    return f"{fence} {line} {fence}" if "`" in line else f"`{line}`"


def _list(title: str, lines: Iterable[str]) -> list[str]:
    items = [f"- {escape(line)}" for line in lines]
    return [title, "\n".join(items)] if items else []
