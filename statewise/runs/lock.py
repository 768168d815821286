"""A lock, so that only one process writes to a run. The system releases it when the process ends."""

from __future__ import annotations

import fcntl
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from statewise.runs.folder import RunFolderError

LOCK_FILE = "lock"


class RunLockedError(RunFolderError):
    """Another process writes to the run."""


@contextmanager
def lock_run(path: Path, patience: float = 1.0) -> Iterator[None]:
    """Hold the lock of a run folder; raise RunLockedError if it is not free within `patience` s.

    `is_locked` also holds the lock for a moment.
    """
    path.mkdir(parents=True, exist_ok=True)
    deadline = time.monotonic() + patience
    with open(path / LOCK_FILE, "a+") as file:
        while not _try(file.fileno()):
            if time.monotonic() >= deadline:
                raise RunLockedError(
                    f"another process ({_holder(path)}) writes to the run {path}: wait for it or "
                    f"stop it; {path / LOCK_FILE} is free once that process has ended"
                )
            time.sleep(0.1)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}\n")
        file.flush()
        yield


def is_locked(path: Path) -> bool:
    """Whether a process writes to the run right now."""
    if not (path / LOCK_FILE).exists():
        return False
    with open(path / LOCK_FILE) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _try(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _holder(path: Path) -> str:
    return (path / LOCK_FILE).read_text().strip() or "unknown"
