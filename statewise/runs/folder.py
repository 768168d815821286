"""A run on disk: `config.json`, `metrics.jsonl`, `episodes.csv`, `environment.json`, `checkpoints/`.

Everything is written so that a run killed at any point can be read, and continued, up to its last
whole epoch.
"""

from __future__ import annotations

import csv
import io
import json
import logging
import math
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar

import torch

from statewise.runs import checkpoint, files, identity, reader
from statewise.runs.journal import Journal, JournalError, Mark, check_marks
from statewise.settings import asked
from statewise.types import Episodes
from statewise.version import __version__

log = logging.getLogger("statewise")

T = TypeVar("T")
_PACKAGES = ("torch", "mujoco", "numpy", "gymnasium", "mujoco-warp", "warp-lang")


class RunFolderError(ValueError):
    """A run folder cannot be made or read."""


class RunFolder:
    """The files of one run. `create` makes a new folder, `open` opens an existing one."""

    def __init__(self, path: Path) -> None:
        self.path = path = path.absolute()  # an environment may change the current folder
        self.checkpoints = path / "checkpoints"
        self._metrics = Journal(path / "metrics.jsonl")
        self._episodes = Journal(path / "episodes.csv")

    @classmethod
    def create(cls, path: Path, config: dict[str, Any]) -> RunFolder:
        """Create a new run folder. An existing one is never overwritten."""
        # Made before anything is written, so that a setting that JSON lacks leaves nothing behind.
        content = files.as_json(config, indent=2)
        there = path / "config.json"
        if holds_a_run(path) and not there.exists():
            raise RunFolderError(f"{path} holds files of a run, but no config.json: move it away")
        folder = cls(path)
        folder.checkpoints.mkdir(parents=True, exist_ok=True)
        if not there.exists():  # written first: a run that has a config.json has this too
            environment = files.as_json(describe_environment(), indent=2)
            files.write_atomically(path / "environment.json", environment)
        try:
            files.write_new(there, content)  # of two that begin at once only one gets it
        except FileExistsError:
            raise RunFolderError(
                f"the run {path} exists already and is not overwritten. Continue it with "
                f"`statewise resume {path}`, or choose another {asked('seed')} or {asked('out')}"
            ) from None
        return folder

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        if not (path / "config.json").is_file():
            raise RunFolderError(f"{path} is not a run: it has no config.json")
        return cls(path)

    def config(self) -> dict[str, Any]:
        """Return the settings that reproduce the run, with all defaults filled in."""
        try:
            return reader.read_config(self.path)
        except ValueError as error:
            path = self.path / "config.json"
            raise RunFolderError(f"{path} is damaged ({error}): put it back from a copy") from error

    def extend(self, steps: int, epoch: int) -> None:
        """Change the steps of the run in its `config.json`, which keeps the earlier ones.

        epoch: the last one that followed the earlier length.

        Checkpoints written before remain those of this run. The caller holds the run's lock.
        """
        config = self.config()
        earlier = [*config.get("extended", []), (config["train"]["steps"], epoch)]
        changed = config | {"train": config["train"] | {"steps": steps}, "extended": earlier}
        files.write_atomically(self.path / "config.json", files.as_json(changed, indent=2))

    def label(self) -> str:
        """The name that the run has among others: see `reader.label_of`."""
        return reader.label_of(self.path, self.config())

    # Writing -------------------------------------------------------------------------------------

    def log_metrics(self, metrics: dict[str, Any]) -> None:
        """Append one epoch."""
        finite = {k: v if _finite(v) else None for k, v in metrics.items()}
        self._metrics.append(json.dumps(finite) + "\n")

    def log_episodes(self, epoch: int, episodes: Episodes, cost_names: Sequence[str]) -> None:
        """Append the episodes that finished in an epoch."""
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if self._episodes.empty:
            per_cost = [f"cost/{n}/{kind}" for n in cost_names for kind in ("episode", "max")]
            writer.writerow(["epoch", "return", *per_cost, "length", "terminated", "sim_fault"])
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
        self._episodes.append(text.getvalue())

    def save(self, epoch: int, payload: dict[str, Any], keep: int) -> Path:
        """Write a checkpoint, and remove the oldest one. The metrics up to it are flushed first."""
        for journal in self._journals:
            journal.sync()
        marks = {journal.path.name: journal.mark() for journal in self._journals}
        path = self.checkpoints / f"epoch-{epoch:05d}.ckpt"
        checkpoint.save(path, payload | self._identity | {"files": marks})
        checkpoint.prune(self.checkpoints, keep)
        return path

    def save_best(self, payload: dict[str, Any]) -> None:
        """Save a policy as the safest one so far."""
        checkpoint.save(self.checkpoints / checkpoint.BEST_SAFE, payload | self._identity)

    def clean(self, keep: int) -> None:
        """Remove temporary files of a killed process. The caller holds the lock of the run."""
        for folder in (self.path, self.checkpoints):
            files.remove_leftovers(folder)
        checkpoint.prune(self.checkpoints, keep)

    def close(self) -> None:
        for journal in self._journals:
            journal.close()

    @property
    def _journals(self) -> tuple[Journal, Journal]:
        return self._metrics, self._episodes

    @cached_property
    def _identity(self) -> dict[str, str]:
        """Return the run id and the hash of the settings, which every checkpoint carries."""
        config = self.config()
        return {"run": identity.id_of(config), "settings": identity.settings_sha256(config)}

    # Reading -------------------------------------------------------------------------------------

    def load(self, use: Callable[[Path, dict[str, Any]], T]) -> T:
        """Give the newest checkpoint that works to `use`, and return what it makes of it.

        One that cannot be read, or that `use` cannot take, is named in a warning, and the one before
        is tried. One of another run or of other settings raises RunFolderError.
        """
        why = ""
        for path in checkpoint.latest(self.checkpoints):
            try:
                return self.load_one(path, use)
            except checkpoint.CheckpointError as error:
                why = str(error)
                log.warning("%s; trying the one before", why)
        if why:
            what = f"has no checkpoint that can be read ({why})"
        else:
            begun = (self.path / "metrics.jsonl").exists()
            what = "has metrics but no checkpoint" if begun else "has no checkpoint yet"
        raise RunFolderError(f"the run {self.path} {what}: start it anew in another folder")

    def load_one(self, path: Path, use: Callable[[Path, dict[str, Any]], T]) -> T:
        """Give one checkpoint of the run to `use`. CheckpointError if it cannot be read or taken."""
        state = checkpoint.load(path)
        self.check_belongs(path, state)
        try:
            if checkpoint.is_epoch(path) and state.get("epoch") != checkpoint.epoch_of(path):
                raise ValueError(f"it is of epoch {state.get('epoch')!r:.40}")
            return use(path, state)
        except checkpoint.UNUSABLE as error:
            raise checkpoint.CheckpointError(
                f"{path} does not fit the run ({type(error).__name__}: {error})"
            ) from error

    def check_settings(self) -> None:
        """Raise RunFolderError if the newest readable checkpoint is not of this run and its settings.

        Call it before anything is built from `config.json`.
        """
        for path in checkpoint.latest(self.checkpoints):
            try:
                state = checkpoint.load(path)
            except checkpoint.CheckpointError:  # `load` will warn of it
                continue
            return self.check_belongs(path, state)

    def check_belongs(self, path: Path, state: Mapping[str, Any]) -> None:
        """Raise RunFolderError if a checkpoint was written by another run or with other settings."""
        config = self.config()
        try:
            mine, accepted = identity.id_of(config), identity.accepted_settings(config)
        except ValueError as error:
            raise RunFolderError(f"{self.path}: {error}") from error
        if state.get("run") != mine:
            raise RunFolderError(
                f"{path} is of another run ({state.get('run')!r:.40}; this one is {mine}): move it away"
            )
        if state.get("settings") not in accepted:
            raise RunFolderError(
                f"{self.path / 'config.json'} was changed after {path.name} was written: put it back "
                f"from a copy, or train with other settings in another folder"
            )

    def check_policy(self) -> None:
        """Raise RunFolderError for an export of `statewise report`, which holds no policy."""
        if (self.path / "summary.json").exists() and not self.checkpoints.exists():
            raise RunFolderError(
                f"{self.path} is an export of a run, without its policy: give the run folder that it "
                f"was made from"
            )

    def metrics(self) -> list[dict[str, Any]]:
        """Return the complete epochs written so far. RunFolderError if the file is damaged."""
        try:
            epochs, notes = reader.read_epochs(self.path)
            for note in notes:
                if "damaged" in note:
                    raise ValueError(note.partition(": read up to")[0])
        except ValueError as error:
            raise RunFolderError(f"{self.path / str(error)}: put it back from a copy") from error
        return list(epochs.values())

    def rewind(self, epoch: int, marks: Mapping[str, Mark] | None = None) -> None:
        """Drop what was written after `epoch`, which a continued run will write again.

        marks: how far the files had come then, from the checkpoint. RunFolderError names a file that
        does not begin with what was written to it.
        """
        for journal in self._journals:
            self._check(journal, marks)
        # Newer checkpoints could not be read, or `load` would have taken them. They are put aside
        # before the metrics are cut: one later than the metrics is what a damaged run looks like.
        for path in checkpoint.latest(self.checkpoints):
            if checkpoint.epoch_of(path) > epoch:
                path.rename(path.with_suffix(".unread"))
        for journal in self._journals:
            journal.rewind(marks[journal.path.name] if marks else None)

    def _check(self, journal: Journal, marks: Mapping[str, Mark] | None) -> None:
        try:
            check_marks(journal.path, [marks[journal.path.name]] if marks else [])
        except JournalError as error:
            if journal is self._metrics:
                self.metrics()  # which names a damaged line
            raise RunFolderError(
                f"{error}. The run cannot be continued from it: put the file back from a copy, or train "
                f"anew in another folder"
            ) from error


def file_name(name: str) -> str:
    """Return the name of a suite or label as a name for a file or folder: `gym:Walk-v0` has a colon."""
    return name.replace(":", "-").replace("/", "-")


def holds_a_run(path: Path) -> bool:
    """Whether a folder has metrics, episodes or checkpoints, with a config.json or without."""
    written = any(os.path.lexists(path / name) for name in ("metrics.jsonl", "episodes.csv"))
    return written or bool(checkpoint.latest(path / "checkpoints"))


def check_folder(option: str, path: Path) -> None:
    """Raise ValueError if no folder can be created there. Call it before hours of training."""
    there = next(p for p in (path, *path.absolute().parents) if os.path.lexists(p))
    if not there.is_dir():
        raise ValueError(f"{option} {path}: {there} is not a folder; choose another place")
    if not os.access(there, os.W_OK):
        raise ValueError(
            f"{option} {path}: nothing may be written to {there}; choose another place"
        )


def describe_environment() -> dict[str, Any]:
    """Return the versions, the hardware and the commit of this machine."""
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
    """Return the commit of the source tree, if statewise runs from one.

    For a copy without `.git`, set the environment variable STATEWISE_COMMIT.
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
