"""Writes the reference pages that come from the code: commands, settings, suites and robots."""

from __future__ import annotations

import contextlib
import dataclasses
import io
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import statewise
from statewise import cli, settings
from statewise.algos import ALGORITHMS, TrustRegionSettings
from statewise.training.config import TrainSettings

_HELP_WIDTH = "96"


def write_all(folder: Path) -> None:
    """Write every generated page into `folder`. Pages that have not changed keep their date."""
    folder.mkdir(exist_ok=True)
    pages = {"commands": commands(), "settings": all_settings(), "names": names()}
    for name, text in pages.items():
        path = folder / f"{name}.md"
        if not path.exists() or path.read_text() != text:
            path.write_text(text)


def commands() -> str:
    """The command line, as `--help` prints it."""
    parts = [
        "# Command line",
        "",
        "This page shows what `--help` prints for each command.",
        "",
        _code(cli.overview()),
    ]
    for name, (home, about) in cli.COMMANDS.items():
        parts += ["", f"## statewise {name}", "", about]
        if home:
            parts += ["", _code(_help_of(name))]
    return "\n".join(parts) + "\n"


def all_settings() -> str:
    """The settings of a run and of every algorithm, with defaults and explanations."""
    parts = [
        "# Settings",
        "",
        "Every setting is an option of `statewise train` and a keyword of `statewise.train`.",
        "The option has dashes where the keyword has underscores.",
        "",
        "## Of every run",
        "",
        _table(TrainSettings, ()),
    ]
    shared = {field.name for field in dataclasses.fields(TrustRegionSettings)}
    parts += ["", "## Of every algorithm", "", _table(TrustRegionSettings, ())]
    for name, algorithm in ALGORITHMS.items():
        own = _table(algorithm.settings_class, shared)
        parts += ["", f"## {name}", "", own or "It has no settings of its own."]
    return "\n".join(parts) + "\n"


def names() -> str:
    """The public names of `import statewise`, documented from their docstrings."""
    functions, classes, rest = [], [], []
    for name in statewise.__all__:
        value = getattr(statewise, name)
        kind = classes if isinstance(value, type) else functions if callable(value) else rest
        kind.append(name)
    parts = ["# Python API", "", "These are the public names of `import statewise`."]
    for title, directive, members in (
        ("Functions", "autofunction", functions),
        ("Classes", "autoclass", classes),
    ):
        parts += ["", f"## {title}"]
        for name in sorted(members):
            option = ["   :members:"] if directive == "autoclass" else []
            parts += ["", "```{eval-rst}", f".. {directive}:: statewise.{name}", *option, "```"]
    parts += ["", "## Constants", ""]
    parts += [f"- `statewise.{name}`" for name in sorted(rest)]
    return "\n".join(parts) + "\n"


def _help_of(name: str) -> str:
    """What a command prints for `--help`."""
    text, columns = io.StringIO(), os.environ.get("COLUMNS")
    os.environ["COLUMNS"] = _HELP_WIDTH
    try:
        with contextlib.redirect_stdout(text), contextlib.suppress(SystemExit):
            cli.main([*name.split(), "--help"])
    finally:
        os.environ.pop("COLUMNS")
        if columns is not None:
            os.environ["COLUMNS"] = columns
    return text.getvalue()


def _table(kind: Any, leave_out: Collection[str]) -> str:
    docs = settings.field_docs(kind)
    rows = []
    for field in dataclasses.fields(kind):
        if field.name in leave_out:
            continue
        default = "required" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        meaning = " ".join(docs.get(field.name, "").split()).replace("|", "\\|")
        rows.append(f"| `{field.name}` | {default} | {meaning} |")
    return "\n".join(["| setting | default | meaning |", "|---|---|---|", *rows]) if rows else ""


def _code(text: str) -> str:
    return f"```text\n{text.rstrip()}\n```"
