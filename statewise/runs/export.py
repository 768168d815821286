"""The small form of runs: settings, versions, final numbers and thinned curves."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from statewise.metrics import CHARTS
from statewise.runs.differences import differences
from statewise.runs.files import as_json, short, write_atomically
from statewise.runs.folder import file_name
from statewise.runs.judged import JUDGED
from statewise.runs.reader import CONFIG, METRICS, SUMMARY, RunData, read_config
from statewise.runs.verify import export_hashes


def export_runs(runs: Sequence[RunData], out: Path) -> list[Path]:
    """Write the small form of runs, from which the same report can be made; returns their folders.

    Raises ValueError, before anything is written, where that would be in the folder of a run.
    """
    sources = {run.path.resolve() for run in runs}
    targets: list[Path] = []
    for run in runs:
        name = out / file_name(run.suite) / file_name(run.label) / f"seed-{run.seed}"
        folder, number = name, 2
        while folder in targets or _taken(folder, run, sources):  # other settings, the same name
            folder = name.with_name(f"seed-{run.seed}-{number}")
            number += 1
        targets.append(folder)
    for run, folder in zip(runs, targets, strict=True):
        _export(run, folder)
    return targets


def _export(run: RunData, folder: Path) -> None:
    """Write the files, without the command and the paths, which may be private."""
    counts = [run.curves[key].astype(int).tolist() for key in ("epoch", "steps")]
    columns = [short(run.curves[key]) for key in CHARTS]
    rows = [dict(zip(("epoch", "steps", *CHARTS), row, strict=True))
            for row in zip(*counts, *columns, strict=True)]  # fmt: skip
    facts = {name: value for name, value in run.environment.items() if name != "command"}
    config = run.config | {"train": run.config["train"] | {"out": "runs"}}
    for name, content in ((CONFIG, config), ("environment.json", facts)):
        write_atomically(folder / name, as_json(content))
    if run.judged is not None:
        write_atomically(folder / JUDGED, as_json(dataclasses.asdict(run.judged)))
    else:  # an earlier export of the run may have been judged
        (folder / JUDGED).unlink(missing_ok=True)
    lines = [as_json(row, indent=None) for row in rows]
    write_atomically(folder / METRICS, b"".join(lines))
    summary = dataclasses.asdict(run.summary) | {"notes": run.notes}
    hashes = {"sha256": export_hashes(folder, summary)}
    write_atomically(folder / SUMMARY, as_json(summary | hashes))


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
        (folder / METRICS).exists() and not (folder / SUMMARY).exists()
    ):
        raise ValueError(
            f"{folder} is a run that no export wrote, and is not written over: choose another folder"
        )
    if not (folder / CONFIG).exists():
        return False
    try:
        there = read_config(folder)
    except ValueError:  # damaged: nobody knows whose it is
        return True
    # Two suites may have one name as a folder.
    same = all(there["train"][key] == getattr(run, key) for key in ("suite", "seed"))
    return not same or bool(differences(there, run.config))
