"""Runs on disk, read for a report: whole run folders, or the small form that `export` writes.

Nothing is dropped in silence: whatever could not be read, or is not whole, comes back as a note.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statewise.report.summary import WHOLE, Metrics, RunSummary, summarise
from statewise.training.checkpoint import write_atomically
from statewise.training.loop import INCIDENTAL
from statewise.training.run_folder import RunFolder

Array = npt.NDArray[np.float64]

POINTS = 200
"""Points of a curve: longer runs show every n-th epoch, unsmoothed."""
SUMMARY = "summary.json"
_NEEDED = {"suite", "algo", "seed", "steps", "steps_per_epoch"}


@dataclass(frozen=True, eq=False)
class RunData:
    """One run with at least one whole epoch."""

    path: Path
    suite: str
    label: str
    """Name of its folder under the suite: the algorithm, or what an experiment calls it"""
    algo: str
    seed: int
    config: dict[str, Any]
    environment: dict[str, Any]
    epochs: int
    """How many it was to have"""
    summary: RunSummary
    curve_epochs: tuple[int, ...]
    """Epochs of the curves, on a grid that all runs of these settings share"""
    curves: dict[str, Array]
    """`steps` and every whole metric at those epochs; NaN where no episode ended"""
    notes: tuple[str, ...]
    """What a reader must know about its files"""

    @property
    def finished(self) -> bool:
        return self.summary.epochs_done >= self.epochs


@dataclass(frozen=True)
class Reading:
    """Every run found, and what was found but could not be used."""

    runs: tuple[RunData, ...]
    notes: tuple[str, ...]


def read_runs(roots: Sequence[Path]) -> Reading:
    """All runs in and under some folders. Raises ValueError if there is none to report on."""
    if not roots:
        raise ValueError("name at least one folder of runs to report on")
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"{root} is not a folder: give one that holds runs")
    runs: list[RunData] = []
    notes: list[str] = []
    for folder in _run_folders(roots):
        found = _read_run(folder)
        if isinstance(found, RunData):
            runs.append(found)
        elif found:
            notes.append(found)
    if not runs:
        where = ", ".join(str(root) for root in roots)
        why = f" ({'; '.join(notes)})" if notes else ""
        raise ValueError(
            f"no run with a whole epoch in {where}{why}: train first, for instance "
            f"`statewise train Point-Hazard-8`"
        )
    runs, double = _without_doubles(runs)
    return Reading(tuple(runs), tuple(notes + double))


def export_runs(roots: Sequence[Path], out: Path) -> list[Path]:
    """Write the small form of all runs: the same report can be made from it. The new folders."""
    written: list[Path] = []
    for run in read_runs(roots).runs:
        name = out / run.suite.replace(":", "-").replace("/", "-") / run.label
        folder = name / f"seed-{run.seed}"
        number = 2
        while folder in written or _taken(folder, run):  # other settings under the same name
            folder = name / f"seed-{run.seed}-{number}"
            number += 1
        _export(run, folder)
        written.append(folder)
    return written


# Reading ---------------------------------------------------------------------------------------


def _run_folders(roots: Sequence[Path]) -> Iterator[Path]:
    """Folders with a `config.json`, each once, in the order of their names."""
    seen = set()
    for root in roots:
        for config in sorted(root.rglob("config.json")):
            folder = config.parent
            if folder.resolve() not in seen:
                seen.add(folder.resolve())
                yield folder


def _read_run(folder: Path) -> RunData | str | None:
    """The run; or why it is left out; or None if the folder is no run at all."""
    config = _read_json(folder / "config.json")
    if config is None:
        return f"{folder}: config.json cannot be read; left out"
    if not {"train", "algorithm"} <= set(config):
        return None
    train = config["train"]
    if missing := _NEEDED - set(train):
        return f"{folder}: config.json lacks {', '.join(sorted(missing))}; left out"
    epochs = max(1, round(train["steps"] / train["steps_per_epoch"]))
    metrics, notes = _read_metrics(folder / "metrics.jsonl")
    if not metrics:
        return f"{folder}: no whole epoch yet; left out"
    environment = _read_json(folder / "environment.json")
    if environment is None:
        notes.append("environment.json is missing: where it was made is not known")
    if (folder / SUMMARY).exists():
        small = _read_json(folder / SUMMARY) or {}
        try:
            summary = RunSummary.from_dict(small)
        except ValueError as error:  # its few epochs alone would give other numbers
            return f"{folder}: {SUMMARY} cannot be used ({error}); left out"
        notes += small.get("notes", [])
    else:
        cost_names = config.get("spec", {}).get("cost_names", [])
        summary = summarise(metrics, epochs, cost_names, folder / "episodes.csv")
    kept = [m for m in metrics if m["epoch"] in _grid(epochs)]
    return RunData(
        path=folder,
        suite=train["suite"],
        label=RunFolder(folder).label(),
        algo=train["algo"],
        seed=train["seed"],
        config=config,
        environment=environment or {},
        epochs=epochs,
        summary=summary,
        curve_epochs=tuple(m["epoch"] for m in kept),
        curves={key: _column(kept, key) for key in ("steps", *WHOLE)},
        notes=tuple(notes),
    )


def _grid(epochs: int) -> set[int]:
    """Epochs that curves show: about `POINTS` of them, the first and the last always."""
    stride = math.ceil(epochs / POINTS)
    return {1, epochs} | set(range(stride, epochs, stride))


def _column(metrics: Metrics, key: str) -> Array:
    values = (m.get(key) for m in metrics)
    return np.array([math.nan if v is None else v for v in values], dtype=float)


def _read_metrics(path: Path) -> tuple[Metrics, list[str]]:
    """The whole epochs, up to the first line that is not whole, and a note if there is one."""
    text = path.read_text(errors="replace") if path.exists() else ""
    *lines, rest = text.split("\n")
    metrics: Metrics = []
    for number, line in enumerate(lines, start=1):
        row = _parse(line)
        if row is None or not {"epoch", "steps"} <= set(row):
            left = len(lines) - number
            return metrics, [
                f"metrics.jsonl is damaged in line {number}: read up to there"
                + (f", the {left} after it are left out" if left else "")
            ]
        metrics.append(row)
    cut = [f"metrics.jsonl is cut short: read to its last whole line ({len(lines)})"]
    return metrics, cut if rest else []


def _read_json(path: Path) -> dict[str, Any] | None:
    return _parse(path.read_text(errors="replace")) if path.is_file() else None


def _parse(text: str) -> dict[str, Any] | None:
    """The JSON object, or None if it is none."""
    try:
        content = json.loads(text)
    except json.JSONDecodeError:
        return None
    return content if isinstance(content, dict) else None


def _without_doubles(runs: list[RunData]) -> tuple[list[RunData], list[str]]:
    """Every seed once: of a run that is there twice (a copy, an export) the longer counts."""
    kept: dict[str, RunData] = {}
    notes = []
    for run in runs:
        train = {k: v for k, v in run.config["train"].items() if k not in INCIDENTAL}
        key = json.dumps([run.label, train, run.config["algorithm"]], sort_keys=True)
        other = kept.setdefault(key, run)
        if other is run:
            continue
        longer, shorter = (run, other) if _length(run) > _length(other) else (other, run)
        kept[key] = longer
        notes.append(f"{shorter.path}: same settings and seed as {longer.path}; counted once")
    return list(kept.values()), notes


def _length(run: RunData) -> int:
    return run.summary.epochs_done


# Writing ---------------------------------------------------------------------------------------


def _export(run: RunData, folder: Path) -> None:
    """`config.json`, `environment.json`, `summary.json` and the epochs of the curves."""
    lines = []
    for i, epoch in enumerate(run.curve_epochs):
        row: dict[str, Any] = {"epoch": epoch, "steps": int(run.curves["steps"][i])}
        row |= {key: _short(float(run.curves[key][i])) for key in WHOLE}
        lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    summary = run.summary.as_dict() | {"notes": run.notes}
    for name, content in (
        ("config.json", json.dumps(_public_config(run), indent=1) + "\n"),
        ("environment.json", json.dumps(_public_environment(run), indent=1) + "\n"),
        (SUMMARY, json.dumps(summary, indent=1) + "\n"),
        ("metrics.jsonl", "".join(lines)),
    ):
        write_atomically(folder / name, content.encode())


def _public_config(run: RunData) -> dict[str, Any]:
    """The settings without the folder they were on somebody's disk in."""
    return run.config | {"train": run.config["train"] | {"out": "runs"}}


def _public_environment(run: RunData) -> dict[str, Any]:
    """Versions, hardware and commit; the command may hold private paths."""
    return {name: value for name, value in run.environment.items() if name != "command"}


def _taken(folder: Path, run: RunData) -> bool:
    """Whether another run was exported to the folder before: this one must not replace it."""
    there = folder / "config.json"
    return there.exists() and json.loads(there.read_text()) != _public_config(run)


def _short(value: float) -> float | None:
    """Five digits are more than a curve shows."""
    return float(f"{value:.5g}") if math.isfinite(value) else None
