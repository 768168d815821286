"""Kills and I/O faults at every file operation of a short run, and of its continuation."""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import random
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import statewise
from attacks import walk
from attacks.harness import KILLED, Outcome, in_child
from statewise.runs import checkpoint, files
from statewise.runs.folder import RunFolder
from statewise.runs.identity import policy_sha256
from statewise.runs.verify import verify_run

OPERATIONS = ("open", "fsync", "replace", "rename", "link", "unlink", "ftruncate", "mkdir")
RUN = Path(walk.SUITE.replace(":", "-")) / "trpo" / "seed-0"
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, errno.EACCES)
Fault = Callable[[str], None]


class Disk:
    """Counts file operations, and has a fault happen at one of them: before, within or after it."""

    def __init__(self, number: int = -1, when: str = "before", fault: Fault | None = None) -> None:
        self.count, self.number, self.when, self.fault = 0, number, when, fault

    def meet(self, when: str, what: str) -> None:
        if self.fault is not None and self.count == self.number and self.when == when:
            self.fault(what)

    def wrap(self, name: str, operation: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any, **more: Any) -> Any:
            self.meet("before", name)
            result = operation(*args, **more)
            self.meet("after", name)
            self.count += 1
            return result

        return wrapped

    def open(self, *args: Any, **more: Any) -> Any:
        """As `open`, with writes that count as operations and may stop half-way."""
        file = open(*args, **more)  # noqa: SIM115
        return _Written(file, self) if file.writable() else file


class _Written:
    """A file whose writes are operations."""

    def __init__(self, file: Any, disk: Disk) -> None:
        self._file, self._disk = file, disk

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def __enter__(self) -> _Written:
        return self

    def __exit__(self, *exc: object) -> None:
        self._file.close()

    def write(self, content: bytes) -> None:
        self._disk.meet("before", "write")
        half = len(content) // 2
        self._file.write(content[:half])
        self._file.flush()
        self._disk.meet("within", "write")
        self._file.write(content[half:])
        self._file.flush()
        self._disk.meet("after", "write")
        self._disk.count += 1


@contextlib.contextmanager
def watched(disk: Disk) -> Iterator[None]:
    """Send the file operations of runs through a `Disk`."""
    before = {name: getattr(os, name) for name in OPERATIONS}
    for name, operation in before.items():
        setattr(os, name, disk.wrap(name, operation))
    files.open = disk.open  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del files.open  # type: ignore[attr-defined]
        for name, operation in before.items():
            setattr(os, name, operation)


def kill(what: str) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def fail_with(number: int) -> Fault:
    def fail(what: str) -> None:
        raise OSError(number, f"{os.strerror(number)} (injected at {what})")

    return fail


def go_on(out: Path) -> None:
    """Begin the run in `out`, or continue it."""
    if (out / RUN / "config.json").exists():
        statewise.resume(out / RUN, quiet=True)
    else:
        walk.train(out)


def result(run: Path) -> tuple[Any, ...]:
    """All that a run came to, without what depends on the clock."""
    clock = ("time/", "memory/")
    rows = RunFolder.open(run).metrics()
    epochs = [{k: v for k, v in m.items() if not k.startswith(clock)} for m in rows]
    newest = checkpoint.load(checkpoint.latest(run / "checkpoints")[0])
    return epochs, (run / "episodes.csv").read_bytes(), policy_sha256(newest["algo"], {}, 0)


def left_over(run: Path) -> list[str]:
    """Files that a finished run should not have."""
    surplus = [p.name for p in checkpoint.latest(run / "checkpoints")[2:]]
    return (
        surplus + [p.name for p in run.rglob("*.partial")] + [p.name for p in run.rglob("*.unread")]
    )


def attack_disk(
    scratch: Path, tries: int, kind: str, seed: int = 0, deadline: float = 60.0
) -> Outcome:
    """Kill a run (`kind` "kills") or fail its files ("faults") at `tries` places; finish it each time.

    The first tries take every operation in turn, before, within and after it. The others choose a place
    in the run and one in its continuation.
    """
    outcome = Outcome(kind)
    with outcome.timed():
        reference = result(walk.train(scratch / "undisturbed"))
        count = _count(lambda: walk.train(scratch / "counted"))
        places = itertools.product(range(count), ("before", "within", "after"))
        every = [(place, None) for place in places]
        rng = random.Random(seed)
        rng.shuffle(every)
        while len(every) < tries:
            pair = [(rng.randrange(count), rng.choice(("before", "within", "after"))) for _ in "12"]
            every.append((pair[0], pair[1]))
        for number, (first, second) in enumerate(every[:tries]):
            out = scratch / str(number)
            fault = kill if kind == "kills" else fail_with(rng.choice(ERRORS))
            problems = [_disturb(out, place, fault, deadline) for place in (first, second) if place]
            status, told = in_child(lambda out=out: _finish(out), deadline)
            if status != "returned":
                problems.append(f"was not finished: {told or status}")
            else:
                _, left, bad = told
                problems += [f"left {left}"] if left else []
                problems += [f"verify: {bad}"] if bad else []
            identical = status == "returned" and told[0] == reference
            if not identical:
                problems.append("another result")
            said = "; ".join(problem for problem in problems if problem)
            outcome.add(f"{first} {second}: {said}" if said else "", identical)
            shutil.rmtree(out, ignore_errors=True)
    return outcome


def _finish(out: Path) -> tuple[Any, list[str], list[str]]:
    go_on(out)
    run = out / RUN
    bad = [f"{check.what}: {check.found}" for check in verify_run(run) if not check.good]
    return result(run), left_over(run), bad


def _count(action: Callable[[], object]) -> int:
    """How many file operations an action takes."""
    disk = Disk()
    with watched(disk):
        action()
    return disk.count


def _disturb(out: Path, place: tuple[int, str], fault: Fault, deadline: float) -> str:
    """Run until a fault; what is wrong with how it ended, or nothing."""

    def run() -> None:
        with watched(Disk(*place, fault)):
            go_on(out)

    status, told = in_child(run, deadline)
    if status in ("returned", KILLED):
        return ""
    injected = status == "raised" and "injected at" in str(told)
    return "" if injected else f"ended wrongly: {told or status}"
