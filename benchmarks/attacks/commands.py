"""Fuzzed command lines: each ends with a status and at most one line, never with a traceback."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import io
import os
import random
import traceback
import webbrowser
from pathlib import Path
from typing import Any

from attacks import walk
from attacks.harness import HUNG, KILLED, Outcome, in_child, warm
from statewise import cli
from statewise.training import api

BATCH = 25
"""Commands that share a child."""
VALUES = (
    "", " ", "0", "1", "-1", "3", "0.5", "nan", "inf", "-inf", "1e400", "1e6", "6M", "6MM", "10" * 40,
    "18446744073709551616", "300000000", "x", "[red]", "a[/b]", "../..", "/", "/dev/null", "/dev/zero",
    ".", "nowhere", "0..3", "0..100000000", "3..0", "1,2,,3", "\u202e", "\0", "é", "\udcff", "-", "--",
    "=", "a=b", "a=b=c", "Point-Hazard-8", "point-hazard-8", "Point-Hazard-300000000", "Point-Hazard--1",
    "Point-Hazard-1-Hazard-1", "gym:", "gym:No-v0", "gym:no.module:No-v0", "scpo", "SCPO", "trpo", "cpu",
    "cuda:99", "tpu", "os", "no.such.module", "%s", "{}", "$HOME", "x" * 5000, "true", "None", "RUN",
)  # fmt: skip


def run_command(args: list[str], cwd: Path) -> tuple[int, str]:
    """The status of a command, and the traceback that it ends with, or nothing."""
    before = os.getcwd()
    os.chdir(cwd)
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            return cli.main(args), ""
    except SystemExit as left:
        return int(left.code or 0), ""
    except BaseException:  # noqa: BLE001  any kind is what is looked for
        return -1, f"statewise {args!r:.300}\n{traceback.format_exc()[-1500:]}"
    finally:
        os.chdir(before)


def attack_commands(scratch: Path, tries: int, seed: int = 0, deadline: float = 120.0) -> Outcome:
    """Random commands with random options and values."""
    outcome, rng = Outcome("commands"), random.Random(seed)
    warm()
    with outcome.timed():
        run = walk.train(scratch / "runs")
        commands = [_random_command(rng, run) for _ in range(tries)]
        for start in range(0, tries, BATCH):
            batch = commands[start : start + BATCH]
            place = scratch / f"place{start}"
            place.mkdir()
            status, told = in_child(lambda b=batch, p=place: _run_batch(b, p), deadline)
            if status in (HUNG, KILLED, "raised"):  # one of them: each alone
                for args in batch:
                    status, told = in_child(lambda a=args, p=place: _run_batch([a], p), deadline)
                    outcome.add(f"{status}: {args} {told}" if status != "returned" else told[0])
            else:
                for trace in told:
                    outcome.add(trace)
    return outcome


def _run_batch(commands: list[list[str]], place: Path) -> list[str]:
    """Run commands where the long work is left out: whole trainings, grids and the browser."""
    api.run_with_display = lambda training, quiet: training.folder.path  # type: ignore[assignment]
    for module, name, value in (
        ("bench.launch", "launch", lambda grid, *args, **more: []),
        ("bench.command", "leave", lambda runs: None),
        ("commands.play", "_SPEED_SECONDS", 0.01),
        ("envs.suites", "PAPER_SUITES", ("Point-Hazard-8",)),
    ):
        setattr(importlib.import_module(f"statewise.{module}"), name, value)
    webbrowser.open = lambda *args, **more: True  # type: ignore[assignment]
    importlib.import_module("statewise.cli").COMMANDS.pop("demo", None)
    return [run_command(args, place)[1] for args in commands]


def _random_command(rng: random.Random, run: Path) -> list[str]:
    """A command line of known and unknown words."""
    name = rng.choice([*cli.COMMANDS, "demo", "nonsense", "--version", "--help"])
    options = [*_options(name), "--help", "--seeds", "--nonsense", "-x", "--cost_limit", "--target-kl",
               "--print-completion", "--set"]  # fmt: skip
    words = name.split()
    values = [str(run) if value == "RUN" else value for value in VALUES]
    targets = [str(run), str(run.parents[2]), "Point-Hazard-1", walk.SUITE, rng.choice(values)]
    if rng.random() < 0.8:
        words.append(rng.choice(targets))
    for _ in range(rng.randint(0, 4)):
        option, value = rng.choice(options), rng.choice(values)
        if option in ("--window", "--open", "--ray", "--address"):  # a person is needed
            continue
        words += (
            [f"{option}={value}"] if rng.random() < 0.3 else [option, value][: rng.randint(1, 2)]
        )
    if name == "play" and "--seconds" not in words:
        words += ["--seconds", "0.2"]
    if name == "evaluate":
        words += ["--episodes", "2"]
    return words


def _options(name: str) -> list[str]:
    module, _, kind = cli.COMMANDS.get(name, ("", ""))[0].partition(":")
    if not module:
        return []
    owner: Any = getattr(importlib.import_module(f"statewise.{module}"), kind)
    if name == "train":
        from statewise.training.config import TrainSettings

        owner = TrainSettings
    return ["--" + f.name.replace("_", "-") for f in dataclasses.fields(owner)]
