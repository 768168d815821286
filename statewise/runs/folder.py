"""A run on disk: `config.json`, `metrics.jsonl`, `episodes.csv`, `environment.json`, `checkpoints/`.

Everything is written so that a run killed at any point can be read, and continued, up to its last
whole epoch.
"""

from __future__ import annotations

import csv
import json
import logging
import math
import os
import platform
import subprocess
import sys
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TextIO

import torch

from statewise.runs import checkpoint, files, reader
from statewise.types import Episodes
from statewise.version import __version__

log = logging.getLogger("statewise")

_PACKAGES = ("torch", "mujoco", "numpy", "gymnasium", "mujoco-warp", "warp-lang")


class RunFolderError(ValueError):
    """A run folder cannot be made or read."""


class RunFolder:
    """One run's files. `create` makes a new one, `open` goes on with one that exists."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoints = path / "checkpoints"
        self._metrics: TextIO | None = None
        self._episodes: TextIO | None = None

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> RunFolder:
        """A new folder; one that exists is never overwritten."""
        # Made before anything is written, so that a setting that JSON lacks leaves nothing behind.
        content = _as_json(config).encode()
        there = path / "config.json"
        if holds_a_run(path) and not there.exists():
            raise RunFolderError(
                f"{path} holds metrics or checkpoints of a run, but no config.json: move it away"
            )
        folder = cls(path)
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        if not there.exists():  # written first: a run that has a config.json has this too
            environment = _as_json(describe_environment())
            files.write_atomically(path / "environment.json", environment.encode())
        try:
            files.write_new(there, content)  # of two that begin at once only one gets it
        except FileExistsError:
            raise RunFolderError(
                f"the run {path} exists already and is not overwritten. Continue it with "
                f"`statewise train --resume {path}`, or choose another --seed or --out"
            ) from None
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not a run: it has no config.json")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """The resolved settings that reproduce the run."""
        try:
            return reader.read_config(self.path)
        except ValueError as error:
            path = self.path / "config.json"
            raise RunFolderError(f"{path} is damaged ({error}): put it back from a copy") from error

    def label(self) -> str:
        """The name that the run has among others: see `reader.label_of`."""
        return reader.label_of(self.path, self.config())

    # Writing -------------------------------------------------------------------------------------

    def log_metrics(self, metrics: dict[str, Any]) -> None:
        """Append one epoch."""
        if self._metrics is None:
            self._metrics = files.open_to_append(self.path / "metrics.jsonl")
        finite = {k: v if _finite(v) else None for k, v in metrics.items()}
        self._metrics.write(json.dumps(finite) + "\n")
        self._metrics.flush()

    def log_episodes(self, epoch: int, episodes: Episodes, cost_names: Sequence[str]) -> None:
        """Append the episodes that finished in an epoch."""
        if self._episodes is None:
            path = self.path / "episodes.csv"
            new = not path.exists() or path.stat().st_size == 0
            self._episodes = files.open_to_append(path)
            if new:
                per_cost = [f"cost/{n}/{kind}" for n in cost_names for kind in ("episode", "max")]
                columns = ["epoch", "return", *per_cost, "length", "terminated", "sim_fault"]
                csv.writer(self._episodes, lineterminator="\n").writerow(columns)
        writer = csv.writer(self._episodes, lineterminator="\n")  # as `rewind` writes them
        costs = torch.stack([episodes.cost, episodes.cost_max], dim=-1).flatten(1)
        rows = zip(
            episodes.returns.tolist(),
            costs.tolist(),
            episodes.length.tolist(),
            episodes.terminated.int().tolist(),
            episodes.fault.int().tolist(),
            strict=True,
        )
        for total, cost, length, terminated, fault in rows:
            numbers = [f"{x:.6g}" for x in (total, *cost)]
            writer.writerow([epoch, *numbers, length, terminated, fault])
        self._episodes.flush()

    def save(self, epoch: int, payload: dict[str, Any], keep: int) -> Path:
        """Write a checkpoint, then drop the oldest; the metrics it belongs to are on disk first."""
        for file in (self._metrics, self._episodes):
            if file is not None:
                os.fsync(file.fileno())
        path = self.checkpoints / f"epoch-{epoch:05d}.ckpt"
        checkpoint.save(path, payload)
        checkpoint.prune(self.checkpoints, keep)
        return path

    def close(self) -> None:
        for file in (self._metrics, self._episodes):
            if file is not None:
                file.close()
        self._metrics = self._episodes = None

    # Reading -------------------------------------------------------------------------------------

    def load(self, device: str = "cpu") -> tuple[Path, dict[str, Any]]:
        """The newest checkpoint that is whole; damaged ones are named and passed over."""
        candidates = checkpoint.latest(self.checkpoints)
        for path in candidates:
            try:
                return path, checkpoint.load(path, device)
            except checkpoint.CheckpointError as error:
                log.warning("%s; trying the one before", error)
        if candidates:
            what = "has no checkpoint that can be read"
        else:
            begun = (self.path / "metrics.jsonl").exists()
            what = "has metrics but no checkpoint" if begun else "has no checkpoint yet"
        raise RunFolderError(f"the run {self.path} {what}: start it anew in another folder")

    def check_policy(self) -> None:
        """Raise RunFolderError for what `statewise report --export` wrote: it holds no policy."""
        if (self.path / "summary.json").exists() and not self.checkpoints.exists():
            raise RunFolderError(
                f"{self.path} is an export of a run, without its policy: give the run folder that it "
                f"was made from"
            )

    def metrics(self) -> list[dict[str, Any]]:
        """The epochs written so far, without a last line cut short. Damage raises RunFolderError."""
        try:
            epochs, notes = reader.read_epochs(self.path)
            for note in notes:
                if "damaged" in note:
                    raise ValueError(note.partition(": read up to")[0])
        except ValueError as error:
            raise RunFolderError(f"{self.path / str(error)}: put it back from a copy") from error
        return list(epochs.values())

    def rewind(self, epoch: int) -> None:
        """Drop what was written after `epoch`, which a continued run will write again."""
        self.close()
        for folder in (self.path, self.checkpoints):
            files.remove_leftovers(folder)
        epochs = [m for m in self.metrics() if m["epoch"] <= epoch]
        if [m["epoch"] for m in epochs] != list(range(1, epoch + 1)):
            raise RunFolderError(
                f"{self.path / 'metrics.jsonl'} lacks epochs that the checkpoint of epoch {epoch} has "
                f"behind it (it has {len(epochs)}), so the run would go on with a hole: put the file "
                f"back, or train anew in another folder"
            )
        # Newer checkpoints could not be read, or `load` would have taken them. They are put aside
        # before the metrics are cut: one later than the metrics is what a damaged run looks like.
        for path in checkpoint.latest(self.checkpoints):
            if checkpoint.epoch_of(path) > epoch:
                path.rename(path.with_suffix(".unread"))
        kept = [json.dumps(m) + "\n" for m in epochs]
        files.write_atomically(self.path / "metrics.jsonl", "".join(kept).encode())
        path = self.path / "episodes.csv"
        if path.exists():
            rows = [r for r in path.read_text().splitlines(keepends=True) if r.endswith("\n")]
            kept = rows[:1] + [r for r in rows[1:] if int(r.split(",")[0]) <= epoch]
            files.write_atomically(path, "".join(kept).encode())


def file_name(name: str) -> str:
    """The name of a suite or label, such as gym:Walk-v0, as one of a file or folder."""
    return name.replace(":", "-").replace("/", "-")


def holds_a_run(path: Path) -> bool:
    """Whether a folder has metrics or checkpoints, with a config.json or without."""
    return (path / "metrics.jsonl").exists() or bool(checkpoint.latest(path / "checkpoints"))


def check_folder(option: str, path: Path) -> None:
    """ValueError if no folder can be made there, before hours of work are lost for it."""
    there = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise ValueError(f"{option} {path}: {there} is not a folder; choose another place")
    if not os.access(there, os.W_OK):
        raise ValueError(
            f"{option} {path}: nothing may be written to {there}; choose another place"
        )


def describe_environment() -> dict[str, Any]:
    """Versions, hardware and commit a run was made with."""
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    gpu = torch.cuda.get_device_name() if torch.cuda.is_available() else None
    return {
        "statewise": __version__,
        "commit": _commit(),
        "python": sys.version.split()[0],
        "packages": versions,
        "platform": platform.platform(),
        "processor": _processor(),
        "cores": len(os.sched_getaffinity(0)),
        "gpu": gpu,
        "command": [Path(sys.argv[0]).name, *sys.argv[1:]],
    }


def _finite(value: Any) -> bool:
    return not isinstance(value, float) or math.isfinite(value)


def _commit() -> str | None:
    """The commit of the source tree statewise runs from, if it does.

    A copy without its `.git` can be told in the environment variable STATEWISE_COMMIT.
    """
    source = Path(__file__).resolve().parents[2]
    if not (source / ".git").exists():
        return os.environ.get("STATEWISE_COMMIT")
    run = subprocess.run(
        ["git", "-C", str(source), "describe", "--always", "--dirty", "--abbrev=12"],
        capture_output=True,
        text=True,
        check=False,
    )
    return run.stdout.strip() or None


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.exists() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def _as_json(content: dict[str, Any]) -> str:
    return json.dumps(content, indent=2) + "\n"
