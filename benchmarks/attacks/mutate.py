"""Mutated files: every command says in a line what is wrong, and nothing differs in silence."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import statewise
from attacks import walk
from attacks.commands import run_command
from attacks.disk import RUN, result
from attacks.harness import Outcome, in_child, warm
from statewise.runs import checkpoint
from statewise.runs.export import export_runs
from statewise.runs.reader import find_runs

FILES = ("config.json", "metrics.jsonl", "episodes.csv", "environment.json", "checkpoints/NEWEST",
         "checkpoints/OLDER", "EXPORT/summary.json", "EXPORT/metrics.jsonl")  # fmt: skip
EXPORT = "EXPORT"
VALUES: tuple[Any, ...] = (
    None, True, -1, 0, 1, 10**20, -(10**400), 1e308, 0.5, "", "x", "[/b]", "\u202e", "9" * 5000, [], [1],
    [[]], {}, {"a": 1}, "inf", "-inf", float("nan"),
)  # fmt: skip


def flip(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content))
    return content[:at] + bytes([content[at] ^ 1 << rng.randrange(8)]) + content[at + 1 :]


def cut(content: bytes, rng: random.Random) -> bytes:
    return content[: rng.randrange(len(content))]


def empty(content: bytes, rng: random.Random) -> bytes:
    return b""


def insert(content: bytes, rng: random.Random) -> bytes:
    at = rng.randrange(len(content) + 1)
    return content[:at] + rng.randbytes(rng.randint(1, 40)) + content[at:]


def zero(content: bytes, rng: random.Random) -> bytes:
    at, size = rng.randrange(len(content)), rng.randint(1, 4096)
    return content[:at] + b"\0" * len(content[at : at + size]) + content[at + size :]


def lines(content: bytes, rng: random.Random) -> bytes:
    """Drop, double or exchange lines."""
    rows = content.split(b"\n")
    i, j = rng.randrange(len(rows)), rng.randrange(len(rows))
    how = rng.choice(["drop", "double", "exchange"])
    if how == "drop":
        del rows[i]
    elif how == "double":
        rows.insert(j, rows[i])
    else:
        rows[i], rows[j] = rows[j], rows[i]
    return b"\n".join(rows)


def nest(content: bytes, rng: random.Random) -> bytes:
    return (b'{"train":' * 100_000) + b"1" + b"}" * 100_000


def field(content: bytes, rng: random.Random) -> bytes:
    """Replace, drop or add a value of JSON; other files have a byte flipped."""
    try:
        tree = json.loads(content.split(b"\n")[0] if b"\n{" in content[:-1] else content)
    except ValueError:
        return flip(content, rng)
    places: list[tuple[Any, Any]] = []

    def walk_tree(node: Any) -> None:
        for name in node if isinstance(node, dict) else range(len(node)):
            places.append((node, name))
            if isinstance(node[name], dict | list):
                walk_tree(node[name])

    walk_tree(tree)
    owner, name = rng.choice(places)
    how = rng.randrange(8)
    if how == 0 and isinstance(owner, dict):
        del owner[name]
    elif how == 1 and isinstance(owner, dict):
        owner[rng.choice(("x", "run", "train", ""))] = rng.choice(VALUES)
    else:
        owner[name] = rng.choice(VALUES)
    rest = content.split(b"\n")[1:] if b"\n{" in content[:-1] else [b""]
    return b"\n".join([json.dumps(tree).encode(), *rest])


MUTATIONS: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    flip, cut, empty, insert, zero, lines, nest, field, field, field,
)  # fmt: skip
COMMANDS = (
    ("evaluate", "--episodes", "2"),
    ("verify",),
    ("plot", "--out", "curves.png"),
    ("play",),
    ("report", "--out", "report"),
)
EXPORT_COMMANDS = (("report", "--out", "report"), ("plot", "--out", "curves.png"), ("verify",))


def attack_files(scratch: Path, tries: int, seed: int = 0, deadline: float = 60.0) -> Outcome:
    """Mutate one file of an unfinished run; read it with each command, then continue it."""
    outcome, rng = Outcome("mutated files"), random.Random(seed)
    warm()
    with outcome.timed():
        reference = result(walk.train(scratch / "undisturbed"))
        walk.train(scratch / "stopped")
        for path in checkpoint.latest(scratch / "stopped" / RUN / "checkpoints")[:1]:
            path.unlink()  # one epoch is left to do
        export_runs(find_runs([scratch / "stopped"]).runs, scratch / "stopped" / EXPORT)
        for number in range(tries):
            out = scratch / str(number)
            shutil.copytree(scratch / "stopped", out)
            newest, *older = checkpoint.latest(out / RUN / "checkpoints")
            kept = {"NEWEST": newest.name, "OLDER": (older or [newest])[0].name}
            name = rng.choice(FILES)
            for word, file in kept.items():
                name = name.replace(word, file)
            change = rng.choice(MUTATIONS)
            exported = name.startswith(EXPORT)
            run = out / EXPORT / RUN if exported else out / RUN
            target = run / name.removeprefix(f"{EXPORT}/")
            target.write_bytes(change(target.read_bytes(), rng))
            command = rng.choice(EXPORT_COMMANDS if exported else COMMANDS)
            status, told = in_child(lambda r=run, c=command: _use(r, c), deadline)
            failure, identical = "", True
            if status != "returned":
                failure = f"{status}: {told}"
            elif told[0]:
                failure = told[0]
            elif told[1] is not None and told[1] != reference:
                identical, failure = False, "another result, in silence"
            said = f"{name} {change.__name__} {command[0]} (try {number}): {failure}"
            outcome.add(said if failure else "", identical)
            if not failure:
                shutil.rmtree(out, ignore_errors=True)
    return outcome


def _use(run: Path, command: tuple[str, ...]) -> tuple[str, Any]:
    """Tracebacks of a command, of the table of runs and of the continuation; what the latter led to."""
    name, *options = command
    _, trace = run_command([name, str(run), *options], cwd=run.parents[2])
    if trace:
        return trace, None
    with contextlib.suppress(ValueError, OSError):
        statewise.read_runs(run)
    status, trace = run_command(["resume", str(run)], cwd=run.parents[2])
    return trace, result(run) if status == 0 else None  # refused: nothing was done
