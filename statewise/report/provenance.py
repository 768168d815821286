"""Which numbers come from where: settings, commands, commits, versions, hardware."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from statewise.report.groups import Group, command
from statewise.report.table import Cell, Column, Row, Table, count_cell, text_cell, text_columns
from statewise.runs.differences import setting_text

_FACTS = ("statewise", "commit", "python", "packages", "platform", "processor", "cores", "gpu")


def machines_table(groups: Sequence[Group]) -> Table:
    """Every combination of code, versions and hardware, with a letter to point at it."""
    counts = Counter(_key(run.environment) for group in groups for run in group.runs)
    rows, notes = [], []
    for key, letter in _machines(groups).items():
        facts = json.loads(key)
        cells = [text_cell(letter), *(text_cell(_fact(name, facts[name])) for name in _FACTS)]
        rows.append(Row([*cells, count_cell(counts[key])]))
        if str(facts["commit"]).endswith("-dirty"):
            notes = ["A commit that ends in -dirty had uncommitted changes: it does not reproduce "
                     "the run alone."]  # fmt: skip
    columns = [*text_columns("made by", *_FACTS), Column("runs")]
    return Table("Code, versions and hardware", columns, rows, notes=notes, wraps=True)


def groups_table(groups: Sequence[Group]) -> Table:
    """Settings, seeds and the command of every group."""
    machines = _machines(groups)
    rows = []
    for group in groups:
        made = sorted({machines[_key(run.environment)] for run in group.runs})
        changed = ", ".join(f"{k}={setting_text(v)}" for k, v in group.changed.items())
        cells = [
            text_cell(group.suite),
            text_cell(group.name),
            text_cell(", ".join(f"{r.seed}" + ("" if r.finished else "*") for r in group.runs)),
            count_cell(group.runs[0].config["train"]["steps"]),
            text_cell(", ".join(made)),
            text_cell(changed or "none"),
            Cell(command(group), tone="code"),
        ]
        rows.append(Row(cells, group.own))
    named = text_columns("made by", "settings that differ from the defaults", "command")
    columns = [*text_columns("suite", "algorithm", "seeds"), Column("steps"), *named]
    note = "A star marks an unfinished seed. Settings not named are the defaults of this version."
    return Table("Settings and commands", columns, rows, notes=(note,), wraps=True)


def _machines(groups: Sequence[Group]) -> dict[str, str]:
    """A letter for each: A, B, ... Z, A1, B1, ..."""
    keys = dict.fromkeys(_key(run.environment) for group in groups for run in group.runs)
    return {key: chr(65 + i % 26) + (str(i // 26) if i >= 26 else "") for i, key in enumerate(keys)}


def _key(environment: dict[str, Any]) -> str:
    return json.dumps({fact: environment.get(fact) for fact in _FACTS}, sort_keys=True)


def _fact(name: str, value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {version}" for name, version in value.items())
    return {"gpu": "none"}.get(name, "not known") if value is None else str(value)
