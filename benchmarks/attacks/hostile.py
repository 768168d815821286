"""Hostile files: nothing in a run folder is executed, followed or waited for."""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import random
import shutil
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from attacks import walk
from attacks.commands import run_command
from attacks.disk import RUN
from attacks.harness import Outcome, in_child, warm
from statewise.runs import checkpoint

COMMANDS: tuple[tuple[str, ...], ...] = (
    ("evaluate", "--episodes", "1"), ("evaluate", "--episodes", "1", "--best-safe"), ("verify",),
    ("resume",), ("play",), ("plot", "--out", "curves.png"),
)  # fmt: skip


class _Gadget:
    """Unpickled, it calls a function."""

    def __init__(self, call: Callable[..., Any], *args: Any) -> None:
        self.call, self.args = call, args

    def __reduce__(self) -> tuple[Any, ...]:
        return self.call, self.args


def _gadgets(canary: str) -> list[Any]:
    write = f"open({canary!r}, 'w').close()"
    return [
        _Gadget(os.system, f"touch {canary}"),
        _Gadget(eval, write),
        _Gadget(exec, write),
        _Gadget(open, canary, "w"),
        _Gadget(os.mkdir, canary),
        _Gadget(__import__("subprocess").check_call, ["touch", canary]),
        _Gadget(torch.serialization.load, canary),
    ]


def _with_header(body: bytes) -> bytes:
    head = f"statewise checkpoint format {checkpoint.FORMAT} sha256 {hashlib.sha256(body).hexdigest()}\n"
    return head.encode() + body


def _torch_file(value: Any, legacy: bool) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer, _use_new_zipfile_serialization=not legacy)
    return buffer.getvalue()


def _bomb() -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"\0" * (64 << 20))
    return buffer.getvalue()


def _hostile_checkpoint(path: Path, canary: str, rng: random.Random) -> None:
    gadget = rng.choice(_gadgets(canary))
    state = checkpoint.load(path)
    where = rng.choice(("whole", "algo", "files", "collector", "key"))
    payload = gadget if where == "whole" else {**state, where: gadget}
    if where == "key":
        payload = [state, gadget]
    body = rng.choice(
        (
            lambda: pickle.dumps(payload),
            lambda: _torch_file(payload, legacy=True),
            lambda: _torch_file(payload, legacy=False),
            _bomb,
        )
    )()
    path.write_bytes(rng.choice((_with_header, _with_header, bytes))(body))


def _hostile_file(path: Path, canary: str, rng: random.Random) -> None:
    """In place of a file: a pipe, a device, a link to elsewhere, a folder, or a link to itself."""
    path.unlink()
    how = rng.choice(("pipe", "device", "link", "folder", "loop"))
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    else:
        path.symlink_to({"device": "/dev/zero", "link": canary + ".link", "loop": path}[how])


def _hostile_config(run: Path, module: str, rng: random.Random) -> None:
    path = run / "config.json"
    config = json.loads(path.read_text())
    if rng.random() < 0.5:
        config["train"]["imports"] = [module]
    else:
        config["train"]["suite"] = f"gym:{module}:X-v0"
    path.write_text(json.dumps(config))


def attack_hostile(scratch: Path, tries: int, seed: int = 0, deadline: float = 30.0) -> Outcome:
    """Put one hostile file into a run folder and open it; a canary tells of code that ran."""
    outcome, rng = Outcome("hostile files"), random.Random(seed)
    warm()
    with outcome.timed():
        walk.train(scratch / "runs")
        for number in range(tries):
            out, canary = scratch / str(number), scratch / f"canary{number}"
            shutil.copytree(scratch / "runs", out)
            run = out / RUN
            newest = checkpoint.latest(run / "checkpoints")[0]
            shutil.copy(newest, run / "checkpoints" / checkpoint.BEST_SAFE)
            (out / f"evil{number}.py").write_text(f"open({str(canary)!r}, 'w').close()\n")
            how = rng.choice(("checkpoint", "checkpoint", "file", "config"))
            if how == "checkpoint":
                for path in (newest, run / "checkpoints" / checkpoint.BEST_SAFE):
                    _hostile_checkpoint(path, str(canary), rng)
            elif how == "config":
                _hostile_config(run, f"evil{number}", rng)
            else:
                names = ("config.json", "metrics.jsonl", "episodes.csv", "environment.json", "lock")
                _hostile_file(
                    rng.choice([newest, *(run / name for name in names)]), str(canary), rng
                )
            name, *options = rng.choice(COMMANDS)
            given = [name, str(run), *options]
            status, told = in_child(lambda g=given, o=out: _open(g, o), deadline)
            failure = "" if status == "returned" else f"{status}: {told}"
            failure = failure or told
            if list(scratch.glob(f"canary{number}*")):
                failure = f"executed or written: {failure}"
            outcome.add(f"{how} {given[0]} (try {number}): {failure}" if failure else "")
            shutil.rmtree(out, ignore_errors=True)
    return outcome


def _open(given: list[str], cwd: Path) -> str:
    sys.path.append(str(cwd))  # the worst case: the module could be found
    return run_command(given, cwd)[1]
