"""Reads runs: whole run folders, or the small form that `export_runs` writes.

No other module reads the settings and numbers of a run. Reading is tolerant: what is damaged or
missing is named in a note, and only a run that cannot be trusted is left out.
"""

from __future__ import annotations

import json
import logging
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from statewise.extras import need
from statewise.metrics import CHARTS
from statewise.runs.differences import deciding
from statewise.runs.epochs import earlier_lengths, plan_of
from statewise.runs.files import open_regular, read_bytes
from statewise.runs.judged import Judged, read_judged
from statewise.runs.shapes import check, is_number, parse_json, read_json
from statewise.runs.summary import Columns, RunSummary, read_summary, summarise
from statewise.settings import typed

if TYPE_CHECKING:
    import pandas

log = logging.getLogger("statewise")

CONFIG, METRICS, SUMMARY = "config.json", "metrics.jsonl", "summary.json"
POINTS = 200
"""Points of a curve. Longer runs show every n-th epoch, unsmoothed."""
_TAIL = 65536


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
    """Number of epochs that were planned"""
    metrics: Columns
    """Every metric of the epochs on disk, with `epoch` and `steps`; NaN where there is no value"""
    summary: RunSummary
    judged: Judged | None
    """How its final policy was judged, if it was"""
    notes: tuple[str, ...]
    """What is wrong with its files"""

    @property
    def finished(self) -> bool:
        return self.summary.epochs_done >= self.epochs

    @property
    def settling(self) -> int:
        """Steps until the first episodes can reach their time limit, or 0 if that is not known. Episodes
        that end before are the ones that succeed early, so they are not typical."""
        longest = int(self.config.get("spec", {}).get("max_episode_steps", 0))
        return longest * int(self.config["train"].get("num_envs", 0))

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that decide its result, without the seed."""
        return deciding(self.config)

    @cached_property
    def curves(self) -> Columns:
        """`epoch`, `steps` and the metrics of charts, at epochs that runs of one length share."""
        shown = np.isin(self.metrics["epoch"], list(_shown(self.epochs)))
        return Columns({k: self.metrics[k][shown] for k in ("epoch", "steps", *CHARTS)})


@dataclass(frozen=True)
class Reading:
    """Every run found, and what was found but could not be used."""

    runs: tuple[RunData, ...]
    notes: tuple[str, ...]


@typed
def read_runs(paths: str | os.PathLike[str] | Iterable[str | os.PathLike[str]]) -> pandas.DataFrame:
    """Return the epochs of all runs in and under some folders as one tidy table.

    Its columns are suite, algorithm, label, seed, epoch, steps, then one for each metric. A value
    that a run does not have is NaN. What is wrong with the files is logged as a warning.
    """
    need("a table of runs", "report", "pandas")
    import pandas

    given = [paths] if isinstance(paths, str | os.PathLike) else paths
    reading = find_runs([Path(path) for path in given])
    notes = [f"{run.path}: {note}" for run in reading.runs for note in run.notes]
    for note in (*reading.notes, *notes):
        log.warning("%s", note)
    tables = []
    for run in reading.runs:
        who = {"suite": run.suite, "algorithm": run.algo, "label": run.label, "seed": run.seed}
        counts = {key: run.metrics[key].astype(int) for key in ("epoch", "steps")}
        tables.append(pandas.DataFrame(who | counts | run.metrics | counts))
    return pandas.concat(tables, ignore_index=True)


def find_runs(roots: Sequence[Path]) -> Reading:
    """Read all runs in and under some folders. Raises ValueError if there is none."""
    for root in roots:
        if not root.is_dir():
            raise ValueError(f"{root} is not a folder: give one that holds runs")
    runs: list[RunData] = []
    folders, notes = _run_folders(roots)
    for folder in folders:
        try:
            runs.append(_read_run(folder))
        except (OSError, ValueError) as error:  # one bad folder must not take the others along
            notes.append(f"{folder}: {error}; left out")
    if not runs:
        where = ", ".join(map(str, roots)) or "no folder at all"
        why = f" ({'; '.join(notes)})" if notes else ""
        raise ValueError(f"no run with a whole epoch in {where}{why}: train first")
    runs, double = _without_doubles(runs)
    return Reading(tuple(runs), tuple(notes + double))


def _run_folders(roots: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Return the run folders, sorted by name, and notes on the folders that cannot be opened."""
    found: list[Path] = []
    notes: list[str] = []
    seen: set[Path] = set()

    def closed(error: OSError) -> None:
        notes.append(f"{error.filename}: cannot be opened ({error.strerror}); left out")

    for root in roots:
        for path, inner, files in os.walk(root, onerror=closed, followlinks=True):
            folder, real = Path(path), Path(path).resolve()
            if real in seen:  # named twice, or a link that leads back
                inner.clear()
                continue
            seen.add(real)
            inner.sort()
            config = read_json(folder / CONFIG) if CONFIG in files else None
            other = config is not None and not {"train", "algorithm"} <= set(config)
            if METRICS in files or (CONFIG in files and not other):
                found.append(folder)
    return found, notes


def _without_doubles(runs: list[RunData]) -> tuple[list[RunData], list[str]]:
    """Return every seed once. If a run was found twice, for example as a copy, the longer one is used."""
    kept: dict[str, RunData] = {}
    notes = []
    for run in runs:
        key = json.dumps([run.suite, run.label, run.seed, run.settings], sort_keys=True)
        other = kept.setdefault(key, run)
        if other is run:
            continue
        more = run.summary.epochs_done > other.summary.epochs_done
        kept[key], dropped = (run, other) if more else (other, run)
        one, two = kept[key].summary, dropped.summary
        same = (one.last, one.late) == (two.last, two.late)
        end = "; counted once" if same else ", but other final results; only the latter counts"
        notes.append(f"{dropped.path}: same settings and seed as {kept[key].path}{end}")
    return list(kept.values()), notes


# One run ---------------------------------------------------------------------------------------


def _read_run(folder: Path) -> RunData:
    """Read a run. Raises ValueError that says why it must be left out."""
    config = read_config(folder)
    _check_config(config)
    train, (epochs, notes) = config["train"], read_epochs(folder)
    if not epochs:
        raise ValueError("; ".join(notes) or "no whole epoch yet")
    environment = read_json(folder / "environment.json")
    if environment is None:
        notes.append("environment.json is missing or damaged: where it was made is not known")
    rows = [epochs[number] for number in sorted(epochs)]
    keys = dict.fromkeys(key for row in rows for key in row)
    columns = Columns({k: np.array([row.get(k) for row in rows], dtype=float) for k in keys})
    planned, last = plan_of(config).epochs, max(epochs)
    summary, expected = None, set(range(1, last))
    if os.path.lexists(folder / SUMMARY):
        summary, more = read_summary(folder / SUMMARY)
        whose = f"{SUMMARY} is of {summary.epochs_done} epochs, but {METRICS} of {last}"
        shown = {epoch for epoch in _shown(planned) if epoch <= summary.epochs_done}
        if last > summary.epochs_done:
            notes.append(f"{whose}: the metrics count")
            summary = None
        elif last < max(expected := shown, default=0):
            notes.append(f"{whose}: the curves end too early")
    if missing := sorted(n for n in expected - set(epochs) if n < last):
        notes.append(f"{METRICS} lacks {_some(missing)}")
    if summary is None:
        names = config.get("spec", {}).get("cost_names", [])
        summary, more = summarise(columns, planned, names, folder / "episodes.csv")
    judged, wrong = read_judged(folder, summary.epochs_done)
    return RunData(
        folder, train["suite"], label_of(folder, config), train["algo"], train["seed"], config,
        environment or {}, planned, columns, summary, judged,
        tuple(dict.fromkeys(notes + more + wrong)),
    )  # fmt: skip


def read_config(folder: Path) -> dict[str, Any]:
    """The `config.json` of a run. Raises ValueError where it is damaged or names no settings."""
    if not os.path.lexists(folder / CONFIG):
        raise ValueError(f"{METRICS} is there, but no {CONFIG}")
    config = read_json(folder / CONFIG)
    if config is None:
        raise ValueError(f"{CONFIG} cannot be read")
    check(config, {"train": dict, "algorithm": dict}, CONFIG)
    return config


def _check_config(config: dict[str, Any]) -> None:
    """Raise ValueError unless settings have what every report needs."""
    kinds = {"suite": str, "algo": str, "seed": int, "steps": int, "steps_per_epoch": int}
    train = {"device": "", "num_envs": 1, "final_batch": 1} | config["train"]
    check(train, kinds | {"device": str, "num_envs": int, "final_batch": int}, CONFIG)
    check({"spec": {}} | config, {"spec": dict}, CONFIG)
    earlier_lengths(config)
    spec = {"cost_names": [], "max_episode_steps": 0} | config.get("spec", {})
    check(spec, {"cost_names": list[str], "max_episode_steps": int}, CONFIG)
    if not train["steps"] or not train["steps_per_epoch"]:
        raise ValueError(f"{CONFIG} has no steps, or epochs without any")


def label_of(folder: Path, config: Mapping[str, Any]) -> str:
    """Return the label of a run: LABEL of OUT/SUITE/LABEL/seed-SEED, or else the one in its config."""
    path, train = folder.resolve(), config["train"]
    named = path.name.startswith("seed-")
    return path.parent.name if named else str(train.get("label") or train["algo"])


def read_epochs(folder: Path) -> tuple[dict[int, dict[str, Any]], list[str]]:
    """Return the complete epochs by number, and notes on what is wrong with the file.

    Reading ends at the first line that is not JSON. JSON that is not an epoch raises ValueError, because
    then nothing in the file can be trusted.
    """
    path = folder / METRICS
    *lines, rest = read_bytes(path).split(b"\n") if path.exists() else [b""]
    rows: list[dict[str, Any]] = []
    notes = [f"{METRICS} is cut short: read to its last whole line ({len(lines)})"] if rest else []
    for number, line in enumerate(lines, start=1):
        try:
            rows.append(parse_json(line))
        except ValueError as error:
            left = (
                f", the {len(lines) - number} after it are left out" if number < len(lines) else ""
            )
            notes = [f"{METRICS} is damaged in line {number} ({error}): read up to there{left}"]
            break
        _check_epoch(rows[-1], f"line {number}")
    times = Counter(row["epoch"] for row in rows)
    if twice := sorted(number for number, count in times.items() if count > 1):
        notes.append(f"{METRICS} has {_some(twice)} more than once: the last of each counts")
    return {row["epoch"]: row for row in rows}, notes


def last_epoch(folder: Path) -> dict[str, Any]:
    """Return the metrics of the newest epoch, or {} before the first. It reads only the end of the file.

    Raises ValueError if its line is damaged.
    """
    path = folder / METRICS
    if not path.exists():
        return {}
    with open_regular(path) as file:
        file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL))
        lines = file.read().split(b"\n")[:-1]  # after the last newline: nothing, or half a line
    row: dict[str, Any] = parse_json(lines[-1]) if lines else {}
    if lines:
        _check_epoch(row, "its last line")
    return row


def _check_epoch(row: Any, where: str) -> None:
    """Raise ValueError unless JSON is an epoch: its number, its steps, and otherwise numbers."""
    try:
        check(row, {"epoch": int, "steps": int}, "it")
        for name, value in row.items():
            if value is not None and not is_number(value):
                raise ValueError(f"{name} is {value!r:.40}, not a number")
    except ValueError as error:
        raise ValueError(f"{METRICS} is damaged in {where} ({error})") from None


def _shown(epochs: int) -> set[int]:
    """Return the epochs that curves and exports contain: about `POINTS`, with the first and the last."""
    stride = math.ceil(epochs / POINTS)
    return {1, epochs} | set(range(stride, epochs, stride))


def _some(epochs: Sequence[int]) -> str:
    """Name the first few of some epochs."""
    shown = ", ".join(map(str, epochs[:6])) + (", ..." if len(epochs) > 6 else "")
    return f"epoch{'s' if len(epochs) > 1 else ''} {shown}"
