"""The small form of runs: settings, versions, final numbers and thinned curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from statewise.report.data import SUMMARY, RunData, read_config, read_runs, settings_in
from statewise.report.summary import WHOLE
from statewise.report.table import short
from statewise.runs.checkpoint import write_atomically
from statewise.runs.folder import file_name


def export_runs(roots: Sequence[Path], out: Path) -> list[Path]:
    """Write the small form of all runs: the same report can be made from it. The new folders.

    Raises ValueError, before anything is written, where that would be in the folder of a run.
    """
    runs = read_runs(roots).runs
    sources = {run.path.resolve() for run in runs}
    targets: list[Path] = []
    for run in runs:
        name = out / file_name(run.suite) / file_name(run.label)
        folder = name / f"seed-{run.seed}"
        number = 2
        while folder in targets or _taken(folder, run, sources):  # other settings, the same name
            folder = name / f"seed-{run.seed}-{number}"
            number += 1
        targets.append(folder)
    for run, folder in zip(runs, targets, strict=True):
        _export(run, folder)
    return targets


def _export(run: RunData, folder: Path) -> None:
    """`config.json`, `environment.json`, `summary.json` and the epochs of the curves."""
    curves, lines = {key: short(run.curves[key]) for key in WHOLE}, []
    for i, epoch in enumerate(run.curve_epochs):
        row: dict[str, Any] = {"epoch": epoch, "steps": int(run.curves["steps"][i])}
        row |= {key: curves[key][i] for key in WHOLE}
        lines.append(json.dumps(row, separators=(",", ":")) + "\n")
    summary = run.summary.as_dict() | {"notes": run.notes}
    for name, content in (
        ("config.json", json.dumps((_public_config(run)), indent=1) + "\n"),
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


def _taken(folder: Path, run: RunData, sources: set[Path]) -> bool:
    """Whether another run was exported to the folder before: this one must not replace it. The same
    one trained again does, whatever version and number of threads it was trained with.

    Raises ValueError for the folder of a run itself, which an export must never touch.
    """
    real = folder.resolve()
    if not sources.isdisjoint((real, *real.parents)):
        raise ValueError(
            f"the export to {folder} would write over the run it is made from: choose another folder"
        )
    if any((folder / name).exists() for name in ("checkpoints", "episodes.csv")) or (
        (folder / "metrics.jsonl").exists() and not (folder / SUMMARY).exists()
    ):
        raise ValueError(
            f"{folder} is a run that no export wrote, and is not written over: choose another folder"
        )
    if not (folder / "config.json").exists():
        return False
    try:
        there = read_config(folder)
    except ValueError:  # damaged: nobody knows whose it is
        return True
    return there is None or _experiment(there) != _experiment(run.config)


def _experiment(config: dict[str, Any]) -> tuple[str, int, dict[str, dict[str, Any]]]:
    """What the runs of two folders are told apart by; two suites may have one name as a folder."""
    return config["train"]["suite"], config["train"]["seed"], settings_in(config)
