"""The report as one web page that needs nothing else: style, script and data are in it."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from html import escape
from importlib import resources
from typing import Any

from statewise.report.charts import COLOURS, UNSETTLED, chart_data
from statewise.report.assemble import Report, SuiteReport
from statewise.report.notes import markdown_html
from statewise.report.table import Cell, Column, Row, Strip, Table
from statewise.version import __version__

CAPTIONS = {
    "episode/return": ("Return", "reward of an episode, not discounted"),
    "cost/episode": ("Episode cost", "cost of an episode, not discounted"),
    "cost/rate": ("Cost rate, running", "cost per step since training began"),
    "cost/epoch_rate": ("Cost rate, per epoch", "cost per step in this epoch alone"),
    "cost/max": ("Maximum state-wise cost", "largest cost of a step, mean over episodes"),
}
CHARTS = ("episode/return", "cost/episode", "cost/rate", "cost/max")


def page(report: Report) -> str:
    """The whole HTML document."""
    data = chart_data(report.charted, report.reference) | {"captions": CAPTIONS}
    body = "\n".join(
        [
            _header(report),
            _summary(report),
            f'<div class="results">{_toolbar(data["series"])}',
            *(_suite(i, suite, data["suites"][i]["settling"]) for i, suite in enumerate(report.suites)),
            "</div>",
            *(f'<section id="{_anchor(s.title)}"><h2>{escape(s.title)}</h2>{s.html}</section>'
              for s in report.sections),
            _definitions(report),
            _provenance(report),
        ]
    )  # fmt: skip
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>statewise report: {len(report.suites)} suites, {report.run_count} runs</title>
<link rel="icon" href="data:,">
<style>
{_colours()}
{_asset("page.css")}</style>
</head>
<body>
{body}
<div id="tip" role="status"></div>
<script type="application/json" id="data">{_json(data)}</script>
<script>
{_asset("page.js")}</script>
</body>
</html>
"""


# Parts of the page -----------------------------------------------------------------------------


def _header(report: Report) -> str:
    links = [(suite.name, suite.name) for suite in report.suites]
    links += [(s.title, _anchor(s.title)) for s in report.sections]
    links += [("Definitions", "definitions"), ("Where the numbers come from", "provenance")]
    index = "".join(f'<a href="#{escape(to)}">{escape(text)}</a>' for text, to in links)
    return f"""<header><h1>Report of {report.run_count} runs</h1>
<p class="lead">{escape(report.lead)}</p>
<nav class="index" aria-label="Contents">{index}</nav></header>"""


def _summary(report: Report) -> str:
    parts = ['<main><section id="summary"><h2>Summary</h2>', table_html(report.headline)]
    if report.flags:
        parts.append(_box("bad", "About the input", report.flags))
    if report.notes.overview:
        parts.append(f'<div class="box notes columns">{markdown_html(report.notes.overview)}</div>')
    failures = [(s.name, " ".join(s.failures)) for s in report.suites if s.failures]
    if failures:
        lines = "".join(f'<li><a href="#{escape(s)}">{escape(s)}</a>: {escape(t)}</li>'
                        for s, t in failures)  # fmt: skip
        parts.append(f'<div class="box bad"><h3>What does not reproduce</h3>'
                     f'<ul class="columns">{lines}</ul></div>')  # fmt: skip
    else:
        parts.append('<div class="box good"><p>No claim that could be judged fails.</p></div>')
    if report.rankings:
        parts += [table_html(table) for table in report.rankings]
    else:
        parts.append('<p class="soft">No ranking: it needs finished runs of the baseline.</p>')
    parts += [table_html(table) for section in report.sections for table in section.tables]
    return "\n".join([*parts, "</section>"])


def _toolbar(series: Sequence[dict[str, Any]]) -> str:
    keys = "".join(_key(i, entry) for i, entry in enumerate(series))
    return f"""<div class="toolbar" aria-label="Charts">
<div class="legend" role="group" aria-label="Algorithms: press to hide or show in all charts">
{keys}<button data-all="all">all</button><button data-all="none">none</button></div>
<div class="switches" role="group" aria-label="What the charts show">
<button class="switch" data-rate="cost/rate" aria-pressed="true">cost rate: running (paper)</button>
<button class="switch" data-rate="cost/epoch_rate" aria-pressed="false">per epoch</button>
<button class="switch" data-flip="log" aria-pressed="false">log costs</button>
<button class="switch" data-flip="bands" aria-pressed="true">bands</button>
<button class="switch" data-flip="paper" aria-pressed="true">paper's final values</button>
</div></div>"""


def _key(index: int, entry: dict[str, Any]) -> str:
    width = 3.5 if entry["bold"] else 2
    stroke = f'stroke="var(--c-{entry["colour"]})" stroke-width="{width}"'
    return (
        f'<button class="key" data-series="{index}" aria-pressed="true">'
        f'<svg viewBox="0 0 24 10" aria-hidden="true"><line x1="0" x2="24" y1="5" y2="5" {stroke} '
        f'stroke-dasharray="{entry["dash"] or "none"}"/></svg>{escape(entry["name"])}</button>'
    )


def _suite(index: int, suite: SuiteReport, settling: int) -> str:
    failed, holds = suite.failures, suite.holds
    parts = [f'<section class="suite" id="{escape(suite.name)}"><h2>{escape(suite.name)}</h2>']
    boxes = (("bad", "Does not reproduce", failed), ("", "Limits", suite.limits))
    said = "".join(_box(kind, title, lines) for kind, title, lines in boxes if lines)
    if holds:
        items = "".join(f"<li>{escape(text)}</li>" for text in holds)
        said += (f'<details class="box good"><summary>Holds: {len(holds)} '
                 f'claim{"s" if len(holds) > 1 else ""}</summary><ul>{items}</ul></details>')  # fmt: skip
    parts.append(f'<div class="said">{said}</div>')
    if suite.notes:
        parts.append(f'<div class="box notes">{markdown_html(suite.notes)}</div>')
    charts = "".join(_chart(index, suite.name, metric) for metric in CHARTS)
    parts.append(f'<div class="charts">{charts}</div>')
    if settling:
        parts.append(f'<p class="soft">{UNSETTLED}</p>')
    parts += [table_html(table) for table in suite.tables]
    parts.append(f"<details><summary>Every seed</summary>{table_html(suite.seeds)}</details>")
    return "\n".join([*parts, "</section>"])


def _chart(index: int, suite: str, metric: str) -> str:
    title, unit = CAPTIONS[metric]
    label = f"{title} over environment steps, {suite}. Arrow keys read the values."
    return (
        f'<figure class="chart" data-suite="{index}" data-metric="{metric}">'
        f'<figcaption><span class="title">{title}</span><small>{unit}</small></figcaption>'
        f'<svg role="img" tabindex="0" aria-label="{escape(label)}"></svg></figure>'
    )


def _definitions(report: Report) -> str:
    items = "".join(f"<dt>{escape(term)}</dt><dd>{escape(text)}</dd>"
                    for term, text in report.definitions)  # fmt: skip
    return f'<section id="definitions"><h2>Definitions</h2><dl>{items}</dl></section>'


def _provenance(report: Report) -> str:
    tables = "".join(table_html(table) for table in report.provenance)
    return f"""<section id="provenance"><h2>Where the numbers come from</h2>
<p>Made by statewise {escape(__version__)}. The curves and the legend as data:
<button id="download">download JSON</button></p>{tables}</section></main>"""


def _box(kind: str, title: str, lines: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(line)}</li>" for line in lines)
    return f'<div class="box {kind}"><h3>{escape(title)}</h3><ul>{items}</ul></div>'


# Tables ----------------------------------------------------------------------------------------


def table_html(table: Table) -> str:
    """A table whose columns sort at a click."""
    head = "".join(_header_cell(column) for column in table.columns)
    rows = "".join(_row(row, table.columns) for row in table.rows)
    foot = f"<tfoot>{_row(table.footer, table.columns)}</tfoot>" if table.footer else ""
    notes = "".join(f'<p class="table-note">{escape(note)}</p>' for note in table.notes)
    kind = "data wraps" if table.wraps else "data"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(table.caption)}">'
        f'<table class="{kind}"><caption>{escape(table.caption)}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{rows}</tbody>{foot}</table></div>{notes}"
    )


def _header_cell(column: Column) -> str:
    kind = ' data-kind="number"' if column.numeric else ""
    kind += ' class="num"' if column.numeric and not column.strips else ""
    name = escape(column.name).replace(" %", "&nbsp;%")
    title = f' title="{escape(column.help)}"' if column.help else ""
    return f'<th scope="col" aria-sort="none"{kind}><button{title}>{name}</button></th>'


def _row(row: Row, columns: Sequence[Column]) -> str:
    kind = ' class="scpo"' if row.algo == "scpo" else ""
    cells = "".join(_cell(cell, column) for cell, column in zip(row.cells, columns, strict=True))
    return f"<tr{kind}>{cells}</tr>"


def _cell(cell: Cell, column: Column) -> str:
    kinds = " ".join(
        k for k in (cell.tone, "num" if column.numeric and not column.strips else "") if k
    )
    value = "" if cell.value is None else f' data-v="{escape(str(cell.value))}"'
    title = f' title="{escape(cell.hint)}"' if cell.hint else ""
    text = escape(cell.text)
    if cell.tone == "code":  # no line break within an option
        text = " ".join(f"<span>{part}</span>" for part in re.split(r" (?=--)", text))
    if cell.link:
        text = f'<a href="{escape(cell.link)}">{text}</a>'
    strip = _strip(cell.strip) if cell.strip else ""
    return f'<td class="{kinds}"{value}{title}>{text}{strip}</td>'


def _strip(strip: Strip) -> str:
    """The interval as a bar, its estimate as a dot, the paper's number as a ring, 1 as a line."""
    width, middle = 176.0, 7.0

    def x(value: float) -> float:
        share = (value - strip.low) / ((strip.high - strip.low) or 1.0)
        return 6 + (width - 12) * min(max(share, 0.0), 1.0)

    bar = ""
    if math.isfinite(strip.interval.low):
        low, high = x(strip.interval.low), x(strip.interval.high)
        bar = (
            f'<line x1="{low:.1f}" x2="{high:.1f}" y1="{middle}" y2="{middle}" '
            f'stroke="currentColor" stroke-width="3" opacity="0.45"/>'
        )
    ring = "" if strip.reference is None else (
        f'<circle cx="{x(strip.reference):.1f}" cy="{middle}" r="4" fill="none" stroke="currentColor" '
        f'opacity="0.6"/>'
    )  # fmt: skip
    return (
        f'<svg class="strip" viewBox="0 0 {width:g} 14" aria-hidden="true">'
        f'<line class="one" x1="{x(1.0):.1f}" x2="{x(1.0):.1f}" y1="0" y2="14"/>'
        f'{bar}<circle cx="{x(strip.interval.estimate):.1f}" cy="{middle}" r="3.5" fill="currentColor"/>'
        f"{ring}</svg>"
    )


def _colours() -> str:
    """Style variables for the colours of the legend, on light and on dark."""
    light, dark = ("".join(f"--c-{name}:{pair[i]};" for name, pair in COLOURS.items())
                   for i in (0, 1))  # fmt: skip
    return f":root{{{light}}}@media(prefers-color-scheme:dark){{:root{{{dark}}}}}"


def _asset(name: str) -> str:
    return resources.files("statewise.report").joinpath(name).read_text()


def _json(data: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    return json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")


def _anchor(title: str) -> str:
    return "-".join(title.casefold().split())
