"""Checks every file of a run folder or of an export."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statewise.runs import checkpoint, reader
from statewise.runs.files import read_bytes
from statewise.runs.folder import RunFolder
from statewise.runs.identity import id_of
from statewise.runs.journal import check_mark, check_marks
from statewise.runs.judged import JUDGED
from statewise.runs.shapes import check, parse_json
from statewise.text import several

_EXPORTED = (reader.CONFIG, "environment.json", reader.METRICS, JUDGED)
"""The files of an export whose hashes its summary carries. Not every run was judged."""


@dataclass(frozen=True)
class Check:
    """The result of checking one thing."""

    what: str
    found: str
    good: bool = True


def verify_run(path: Path) -> list[Check]:
    """Check that the files of a run folder are whole and belong together."""
    folder, checks = RunFolder.open(path), []
    config = folder.config()
    checks.append(Check(reader.CONFIG, f"run {id_of(config)}"))
    environment = _try("environment.json", lambda: _environment(path))
    epochs: list[dict[str, Any]] = []
    metrics = _try(reader.METRICS, lambda: _metrics(folder, epochs))
    episodes = _try("episodes.csv", lambda: _episodes(path / "episodes.csv", epochs))
    checks += [environment, metrics, episodes]
    marks: dict[str, list[Any]] = {reader.METRICS: [], "episodes.csv": []}
    for file in reversed(checkpoint.latest(folder.checkpoints)):
        checks.append(_try(file.name, lambda file=file: _checkpoint(folder, file, marks)))
    best = folder.checkpoints / checkpoint.BEST_SAFE
    if best.exists():
        checks.append(_try(best.name, lambda: _checkpoint(folder, best, {})))
    for name, found in marks.items():
        checks.append(
            _try(f"{name} and the checkpoints", lambda n=name, f=found: _match(path / n, f))
        )
    return checks


def verify_export(path: Path) -> list[Check]:
    """Check that an export can be read, and that its files were written together."""
    (run,) = reader.find_runs([path]).runs
    checks = [Check("export", f"{run.suite}, {run.label}, seed {run.seed}")]
    checks += [Check("note", note) for note in run.notes]
    summary = parse_json(read_bytes(path / reader.SUMMARY))
    if "sha256" not in summary:
        return [*checks, Check("hashes", "the export has none: written by an older version", False)]
    check(summary["sha256"], dict[str, str], "sha256 in summary.json")
    found, written = export_hashes(path, summary), summary["sha256"]
    for name in dict.fromkeys((*found, *written)):
        good = written.get(name) == found.get(name)
        checks.append(Check(name, "as written" if good else "was changed", good))
    return checks


def export_hashes(path: Path, summary: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes that the summary of an export carries: of its files, and of the summary."""
    rest = {name: value for name, value in summary.items() if name != "sha256"}
    names = [name for name in _EXPORTED if name != JUDGED or (path / name).exists()]
    contents = {name: read_bytes(path / name) for name in names}
    contents[reader.SUMMARY] = json.dumps(rest, sort_keys=True).encode()
    return {name: hashlib.sha256(content).hexdigest() for name, content in contents.items()}


def _try(what: str, look: Any) -> Check:
    """Run a check. Return what it found, or why it failed."""
    try:
        return Check(what, look())
    except (ValueError, OSError) as error:
        return Check(what, str(error), False)


def _environment(path: Path) -> str:
    made = parse_json(read_bytes(path / "environment.json"))
    check(made, {"statewise": str}, "environment.json")
    return f"statewise {made['statewise']}"


def _metrics(folder: RunFolder, epochs: list[dict[str, Any]]) -> str:
    """Check that every epoch is there once, in order."""
    epochs += folder.metrics()
    if [epoch["epoch"] for epoch in epochs] != list(range(1, len(epochs) + 1)):
        raise ValueError("epochs are missing, or not in order")
    return several(len(epochs), "epoch")


def _episodes(path: Path, epochs: list[dict[str, Any]]) -> str:
    """Check that each epoch has as many episodes as its metrics say."""
    expected = {e["epoch"]: int(e.get("episode/count") or 0) for e in epochs}
    lines = read_bytes(path).decode().splitlines()[1:] if path.exists() else []
    try:
        found = Counter(int(line.partition(",")[0]) for line in lines)
    except ValueError:
        raise ValueError("a line has no epoch") from None
    for epoch, ended in expected.items():
        if found[epoch] != ended:
            raise ValueError(f"epoch {epoch} has {found[epoch]} episodes, its metrics say {ended}")
    return several(len(lines), "episode")


def _checkpoint(folder: RunFolder, path: Path, marks: dict[str, list[Any]]) -> str:
    """Check that a checkpoint can be read and belongs to the run; collect its marks."""

    def look(path: Path, state: dict[str, Any]) -> str:
        for name, found in marks.items():
            mark = state["files"][name]
            check_mark(mark, f"{name} in the checkpoint")
            found.append(mark)
        return f"epoch {state['epoch']}"

    return folder.load_one(path, look)


def _match(path: Path, marks: list[Any]) -> str:
    check_marks(path, marks)
    return f"as written, {max((mark['lines'] for mark in marks), default=0)} lines"
