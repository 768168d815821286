"""One run of a grid in a process of its own: `python -m statewise.bench.worker JOB`.

A launcher starts it with `start_worker` and reads its exit status. It begins the run or goes on
from the newest checkpoint, stops at the end of an epoch on SIGINT, and dies with its launcher.
"""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

from statewise import settings
from statewise.bench.grid import FAILED_FILE, LOG_FILE, Run
from statewise.plugins import import_modules
from statewise.runs.lock import RunLockedError, lock_run
from statewise.training import api
from statewise.training.config import read_config
from statewise.version import __version__

FINISHED = 0
STOPPED = 3
"""Exit status: the run was saved after SIGINT and is not finished."""
BUSY = 4
"""Exit status: another process trains the run."""
_LOCK_PATIENCE = 20.0
"""Seconds to wait until the worker of a lost launcher or node has ended."""


def describe_job(run: Run, threads: int) -> str:
    """Return the settings of a run as JSON for its worker."""
    train = dataclasses.replace(run.train, threads=threads)
    parts = {"train": settings.to_json(train), "algorithm": settings.to_json(run.algorithm)}
    return json.dumps({"statewise": __version__, "folder": os.getcwd()} | parts)


def start_worker(
    job: str, folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a worker. Its output is appended to the log in the run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / LOG_FILE, "ab") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "statewise.bench.worker", job],
            stdin=subprocess.PIPE,  # never written to: it closes when the launcher dies
            stdout=log,
            stderr=subprocess.STDOUT,
            env=os.environ | dict(environment or {}),
            start_new_session=True,  # Ctrl-C reaches the launcher only, which passes it on once
        )


def last_lines(folder: Path, count: int = 12) -> str:
    """The end of a run's log."""
    path = folder / LOG_FILE
    lines = path.read_text(errors="replace").splitlines() if path.exists() else []
    return "\n".join(lines[-count:])


def main(job: str) -> int:
    """Train the run of a job to its end; the exit status."""
    threading.Thread(target=_die_with_launcher, daemon=True).start()
    signal.signal(signal.SIGINT, _leave)  # until the training listens itself
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # Ray blocks it for its children
    config = json.loads(job)
    # The user named them on the launcher's command line, in a folder that may not be this one.
    import_modules(config["train"]["imports"], config["folder"])
    train, own = read_config(config)
    folder = train.folder.absolute()
    try:
        with lock_run(folder, _LOCK_PATIENCE):
            (folder / FAILED_FILE).unlink(missing_ok=True)
            training = api.open_run(train, own, folder)
            api.run_with_display(training, quiet=False)
    except RunLockedError as error:
        print(error, flush=True)
        return BUSY
    return FINISHED if training.finished else STOPPED


def _die_with_launcher() -> None:
    """End this process as soon as its launcher ends, so that no orphan writes to the run."""
    os.read(sys.stdin.fileno(), 1)  # nothing ever comes but the end
    os.kill(os.getpid(), signal.SIGKILL)


def _leave(signum: int, frame: object) -> None:
    sys.exit(STOPPED)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
