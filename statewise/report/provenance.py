"""Which numbers come from where: settings, commands, commits, versions, hardware."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from statewise.report.groups import Group, command
from statewise.report.table import Cell, Column, Row, Table, number_cell, text_cell

_FACTS = ("statewise", "commit", "python", "packages", "platform", "processor", "cores", "gpu")


def machines_table(groups: Sequence[Group]) -> Table:
    """Every combination of code, versions and hardware, with a letter to point at it."""
    columns = [Column("made by", numeric=False)] + [Column(f, numeric=False) for f in _FACTS]
    columns.append(Column("runs"))
    rows = []
    found = _machines(groups)
    for key, letter in found.items():
        facts = json.loads(key)
        count = sum(_key(run.environment) == key for g in groups for run in g.runs)
        cells = [text_cell(letter)] + [text_cell(_fact(f, facts[f])) for f in _FACTS]
        rows.append(Row([*cells, number_cell(count, str(count))]))
    notes = []
    if any(str(json.loads(key).get("commit")).endswith("-dirty") for key in found):
        notes.append("A commit that ends in -dirty had uncommitted changes: it does not "
                     "reproduce the run alone.")  # fmt: skip
    return Table("Code, versions and hardware", columns, rows, notes=notes, wraps=True)


def groups_table(groups: Sequence[Group]) -> Table:
    """Settings, seeds and the command of every group."""
    machines = _machines(groups)
    columns = [
        Column("suite", numeric=False),
        Column("algorithm", numeric=False),
        Column("seeds", numeric=False),
        Column("steps"),
        Column("made by", numeric=False),
        Column("settings that differ from the defaults", numeric=False),
        Column("command", numeric=False),
    ]
    rows = []
    for group in groups:
        made = sorted({machines[_key(run.environment)] for run in group.runs})
        planned = group.runs[0].config["train"]["steps"]
        cells = [
            text_cell(group.suite),
            text_cell(group.name),
            text_cell(", ".join(f"{r.seed}" + ("" if r.finished else "*") for r in group.runs)),
            number_cell(planned, f"{planned:,}"),
            text_cell(", ".join(made)),
            text_cell(", ".join(f"{k}={_setting(v)}" for k, v in group.changed.items()) or "none"),
            Cell(command(group), tone="code"),
        ]
        rows.append(Row(cells, group.own))
    note = "A star marks an unfinished seed. Settings not named are the defaults of this version."
    return Table("Settings and commands", columns, rows, notes=(note,), wraps=True)


def _machines(groups: Sequence[Group]) -> dict[str, str]:
    keys = dict.fromkeys(_key(run.environment) for group in groups for run in group.runs)
    return {key: _letter(i) for i, key in enumerate(keys)}


def _key(environment: dict[str, Any]) -> str:
    return json.dumps({fact: environment.get(fact) for fact in _FACTS}, sort_keys=True)


def _letter(i: int) -> str:
    """A, B, ... Z, A1, B1, ..."""
    return chr(ord("A") + i % 26) + (str(i // 26) if i >= 26 else "")


def _fact(name: str, value: Any) -> str:
    if name == "gpu" and value is None:
        return "none"
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return "not known" if value is None else str(value)


def _setting(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)
