"""Runs on disk, read for a report: whole run folders, or the small form that `export_runs` writes.

Nothing is dropped in silence: whatever could not be read, or is not whole, comes back as a note.
"""

from __future__ import annotations

import dataclasses
import json
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from statewise.algos import ALGORITHMS
from statewise.report.summary import WHOLE, Metrics, RunSummary, check, is_number, summarise
from statewise.runs.folder import RunFolder
from statewise.training.config import INCIDENTAL, TrainSettings

Array = npt.NDArray[np.float64]

POINTS = 200
"""Points of a curve: longer runs show every n-th epoch, unsmoothed."""
SUMMARY = "summary.json"
_NEEDED = {
    "suite": "str",
    "algo": "str",
    "seed": "int",
    "steps": "positive int",
    "steps_per_epoch": "positive int",
}
_KNOWN = {"device": "str", "num_envs": "positive int"}
_NOT_COMPARED = INCIDENTAL | {"suite", "algo", "seed"}


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

    @property
    def settling(self) -> int:
        """Steps until an episode can have run out of time: those that end sooner end by themselves, and
        are the better ones. 0 where it is not known."""
        longest = int(self.config.get("spec", {}).get("max_episode_steps", 0))
        return longest * int(self.config["train"].get("num_envs", 0))


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
    folders, notes = _run_folders(roots)
    for folder in folders:
        try:
            found = _read_run(folder)
        except (OSError, ValueError) as error:  # one bad folder must not take the others along
            notes.append(f"{folder}: {error}; left out")
            continue
        if found is not None:
            runs.append(found)
    if not runs:
        where = ", ".join(str(root) for root in roots)
        why = f" ({'; '.join(notes)})" if notes else ""
        raise ValueError(
            f"no run with a whole epoch in {where}{why}: train first, for instance "
            f"`statewise train Point-Hazard-8`"
        )
    runs, double = _without_doubles(runs)
    return Reading(tuple(runs), tuple(notes + double))


def settings_of(run: RunData) -> dict[str, dict[str, Any]]:
    """What decides the result of a run, but for its seed; an old run lacks the newest settings."""
    return settings_in(run.config)


def settings_in(config: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The same from what is in its `config.json`."""
    algo = config["train"]["algo"]
    train, own = default_settings(config["train"]["suite"], algo)
    train = train | config["train"]
    train = {k: v for k, v in train.items() if k not in _NOT_COMPARED}
    return {"algo": {"algo": algo}, "train": train, "own": own | config["algorithm"]}


@cache
def default_settings(suite: str, algo: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The default settings for a suite and an algorithm, as `config.json` would have them."""
    train = dataclasses.asdict(TrainSettings(suite, algo="trpo", device="cpu").resolved())
    kind = ALGORITHMS.get(algo)
    own = dataclasses.asdict(kind.settings_class()) if kind is not None else {}
    as_written: tuple[dict[str, Any], dict[str, Any]] = tuple(json.loads(json.dumps([train, own])))
    return as_written


# Reading ---------------------------------------------------------------------------------------


def _run_folders(roots: Sequence[Path]) -> tuple[list[Path], list[str]]:
    """Folders with files of a run, each once, in the order of their names; what cannot be opened."""
    found: list[Path] = []
    notes: list[str] = []
    seen: set[Path] = set()

    def closed(error: OSError) -> None:
        notes.append(f"{error.filename}: cannot be opened ({error.strerror}); left out")

    for root in roots:
        for path, inner, files in os.walk(root, onerror=closed, followlinks=True):
            folder = Path(path)
            real = folder.resolve()
            if real in seen:  # named twice, or a link that leads back
                inner.clear()
                continue
            seen.add(real)
            inner.sort()
            if "config.json" in files or "metrics.jsonl" in files:
                found.append(folder)
    return found, notes


def _read_run(folder: Path) -> RunData | None:
    """The run; None if the folder is no run at all; ValueError says why it must be left out."""
    config = read_config(folder)
    if config is None:
        return None
    train = config["train"]
    epochs = max(1, round(train["steps"] / train["steps_per_epoch"]))
    metrics, notes = _read_metrics(folder / "metrics.jsonl")
    if not metrics:
        raise ValueError("; ".join(notes) or "no whole epoch yet")
    environment = read_json(folder / "environment.json")
    if environment is None:
        notes.append("environment.json is missing or damaged: where it was made is not known")
    grid = _grid(epochs)
    last = metrics[-1]["epoch"]
    summary, more = _read_summary(folder)
    if summary is not None and last > summary.epochs_done:
        notes.append(f"{SUMMARY} is of {summary.epochs_done} epochs, but metrics.jsonl has "
                     f"{last}: the metrics count")  # fmt: skip
        summary = None
    if summary is None:
        names = config.get("spec", {}).get("cost_names", [])
        notes += _gaps(metrics)
        summary, more = summarise(metrics, epochs, names, folder / "episodes.csv")
    else:
        expected = [epoch for epoch in grid if epoch <= summary.epochs_done]
        notes += _gaps(metrics, expected)
        if expected and last < max(expected):
            notes.append(f"metrics.jsonl ends at epoch {last}, but {SUMMARY} is of "
                         f"{summary.epochs_done}: the curves end too early")  # fmt: skip
    kept = [m for m in metrics if m["epoch"] in grid]
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
        notes=tuple(dict.fromkeys(notes + more)),
    )


def read_config(folder: Path) -> dict[str, Any] | None:
    """The settings, as far as a report needs them; None if they are of something else.

    Raises ValueError where they are missing or damaged.
    """
    path = folder / "config.json"
    if not os.path.lexists(path):
        raise ValueError("metrics.jsonl is there, but no config.json")
    config: dict[str, Any] | None = read_json(path)
    if config is None:
        raise ValueError("config.json cannot be read")
    if not {"train", "algorithm"} <= set(config) and not (folder / "metrics.jsonl").exists():
        return None
    check(config, {"train": "dict", "algorithm": "dict"}, "config.json")
    train = config["train"]
    known = {name: kind for name, kind in _KNOWN.items() if name in train}
    check(train, _NEEDED | known, "config.json")
    if "spec" in config:
        check(config, {"spec": "dict"}, "config.json")
        spec = {"cost_names": [], "max_episode_steps": 0} | config["spec"]
        check(spec, {"cost_names": "list[str]", "max_episode_steps": "int"}, "config.json")
    return config


def _read_summary(folder: Path) -> tuple[RunSummary | None, list[str]]:
    """What an export wrote about the run, and its notes; None in a run's own folder."""
    path = folder / SUMMARY
    if not os.path.lexists(path):
        return None, []
    content = read_json(path) or {}
    try:
        summary = RunSummary.from_dict(content)
        check({"notes": []} | content, {"notes": "list[str]"}, "the summary")
    except ValueError as error:  # its few epochs alone would give other numbers
        raise ValueError(f"{SUMMARY} cannot be used ({error})") from None
    return summary, list(content.get("notes", []))


def _grid(epochs: int) -> set[int]:
    """Epochs that curves show and exports have: about `POINTS`, the first and the last always."""
    stride = math.ceil(epochs / POINTS)
    return {1, epochs} | set(range(stride, epochs, stride))


def _column(metrics: Metrics, key: str) -> Array:
    values = (m.get(key) for m in metrics)
    return np.array([math.nan if v is None else v for v in values], dtype=float)


def _read_metrics(path: Path) -> tuple[Metrics, list[str]]:
    """The whole epochs, up to the first line that is not whole, and what is wrong with the file.

    Raises ValueError for a line that is whole but no epoch's: then nothing of it can be trusted.
    """
    *lines, rest = path.read_bytes().split(b"\n") if path.exists() else [b""]
    metrics: dict[int, dict[str, Any]] = {}
    notes = []
    times: Counter[int] = Counter()
    for number, line in enumerate(lines, start=1):
        row = _epoch(line, number)
        if row is None:
            left = len(lines) - number
            notes.append(
                f"metrics.jsonl is damaged in line {number}: read up to there"
                + (f", the {left} after it are left out" if left else "")
            )
            break
        times[row["epoch"]] += 1
        metrics[row["epoch"]] = row  # a run that went on wrote the later one
    else:
        number = len(lines) + 1
        if rest and _epoch(rest, number) is None and not rest.startswith(b"{"):
            notes.append(f"metrics.jsonl is damaged in line {number}: read up to there")
        elif rest:
            notes.append(f"metrics.jsonl is cut short: read to its last whole line ({len(lines)})")
    if twice := [str(epoch) for epoch, count in sorted(times.items()) if count > 1]:
        notes.append(f"metrics.jsonl has {_some(twice)} more than once: the last of each counts")
    return [metrics[epoch] for epoch in sorted(metrics)], notes


def _epoch(line: bytes, number: int) -> dict[str, Any] | None:
    """The epoch in a line; None if it is damaged; ValueError if it is whole, but no epoch's."""
    try:
        row = _parse(line)
    except ValueError:
        return None
    what = f"metrics.jsonl, line {number},"
    check(row, {"epoch": "positive int", "steps": "int"}, what)
    if "episode/count" in row:
        check(row, {"episode/count": "int"}, what)
    for name, value in row.items():
        if value is not None and not is_number(value):
            raise ValueError(f"{what} has {name} {value!r:.40}, not a number")
    return dict(row)


def _gaps(metrics: Metrics, expected: Sequence[int] | None = None) -> list[str]:
    """A note if epochs are missing before the last one: of all, or of those to be expected."""
    missing = []
    for one, next_one in pairwise([0, *(m["epoch"] for m in metrics)]):
        gap: Sequence[int] = range(one + 1, next_one)
        if expected is not None:
            gap = sorted(epoch for epoch in expected if epoch in gap)
        if gap:
            missing.append(f"{gap[0]}" if gap[0] == gap[-1] else f"{gap[0]} to {gap[-1]}")
    return [f"metrics.jsonl lacks {_some(missing)}"] if missing else []


def _some(epochs: Sequence[str]) -> str:
    """The first few of them."""
    shown = ", ".join(epochs[:5]) + (", ..." if len(epochs) > 5 else "")
    return f"epoch{'s' if len(epochs) > 1 or ' ' in shown else ''} {shown}"


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None if there is none."""
    try:
        content = _parse(path.read_bytes()) if path.is_file() else None
    except ValueError:
        return None
    return content if isinstance(content, dict) else None


def _parse(text: bytes) -> Any:
    """What the JSON says; ValueError if it is damaged."""
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def _without_doubles(runs: list[RunData]) -> tuple[list[RunData], list[str]]:
    """Every seed once: of a run that is there twice (a copy, an export) the longer counts."""
    kept: dict[str, RunData] = {}
    notes = []
    for run in runs:
        key = json.dumps([run.suite, run.label, run.seed, settings_of(run)], sort_keys=True)
        other = kept.setdefault(key, run)
        if other is run:
            continue
        longer, shorter = (run, other) if _length(run) > _length(other) else (other, run)
        kept[key] = longer
        note = f"{shorter.path}: same settings and seed as {longer.path}"
        if _results(shorter) == _results(longer):
            notes.append(f"{note}; counted once")
        else:  # no copy: trained again, or stopped on the way
            notes.append(f"{note}, but other final results; only the latter counts")
    return list(kept.values()), notes


def _results(run: RunData) -> list[float | None]:
    return [part.get(key) for part in (run.summary.last, run.summary.late) for key in WHOLE]


def _length(run: RunData) -> int:
    return run.summary.epochs_done
