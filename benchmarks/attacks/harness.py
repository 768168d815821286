"""Runs one try in a forked child, so that it may die, hang or change the process; keeps the count."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import pickle
import select
import signal
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from statewise.cli import COMMANDS

KILLED = "killed"
HUNG = "hung"


@dataclass
class Outcome:
    """The count of one section."""

    section: str
    tries: int = 0
    survived: int = 0
    """Tries after which nothing was lost, executed or raised that should not be"""
    identical: int | None = None
    """Tries that ended with the result of an undisturbed run; None where that says nothing"""
    failures: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, failure: str, identical: bool | None = None) -> None:
        """Count one try; `failure` is empty if it went well."""
        self.tries += 1
        self.survived += not failure
        if identical is not None:
            self.identical = (self.identical or 0) + identical
        if failure:
            self.failures.append(failure)

    @contextlib.contextmanager
    def timed(self) -> Iterator[None]:
        began = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - began


def warm() -> None:
    """Import what commands use before children are forked, so that not each of them has to."""
    for _, (where, _) in COMMANDS.items():
        if where:
            importlib.import_module(f"statewise.{where.partition(':')[0]}")
    for name in (
        "pandas",
        "statewise.report.curves",
        "statewise.report.write",
        "statewise.paper.questions",
    ):
        importlib.import_module(name)


def in_child(action: Callable[[], Any], seconds: float = 60.0) -> tuple[str, Any]:
    """Run an action in a forked child.

    Returns ("returned", value), ("raised", traceback), or how it ended: `KILLED`, `HUNG`.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run_and_leave(action, writing)
    os.close(writing)
    content, deadline = b"", time.monotonic() + seconds
    with open(reading, "rb", buffering=0) as pipe:
        while time.monotonic() < deadline:
            if select.select([pipe], [], [], 0.2)[0]:
                part = pipe.read(65536)
                if not part:
                    break
                content += part
        else:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            return HUNG, None
    os.waitpid(child, 0)
    return pickle.loads(content) if content else (KILLED, None)


def _run_and_leave(action: Callable[[], Any], writing: int) -> None:
    """In the child: run, tell the result, and end without the parent's clean-up."""
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 1)
    os.dup2(quiet, 2)
    logging.disable(logging.CRITICAL)
    try:
        told = pickle.dumps(("returned", action()))
    except BaseException:  # noqa: BLE001  whatever it is, the parent is told
        told = pickle.dumps(("raised", traceback.format_exc()))
    with open(writing, "wb") as pipe:
        pipe.write(told)
    os._exit(0)
