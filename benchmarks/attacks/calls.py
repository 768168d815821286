"""Fuzzed calls of the public functions: wrong values are refused by name, in a message of ours."""

from __future__ import annotations

import logging
import os
import random
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch

import statewise
from attacks import walk
from attacks.harness import HUNG, KILLED, Outcome, in_child, warm
from statewise.training import api

BATCH = 25
VALUES: tuple[Any, ...] = (
    None, True, 0, 1, -1, 3, 2**64, 10**30, 0.5, -0.5, float("nan"), float("inf"), "", "x", "[/b]", "\0",
    "Point-Hazard-8", "Point-Hazard-300000000", "gym:", "gym:No-v0", "scpo", "cpu", "tpu", b"bytes", [],
    [1], ["x"], (), (1, 2), {}, {"a": 1}, {1, 2}, object(), len, int, Path("nowhere"), np.zeros(3),
    np.float32(2), torch.zeros(2), torch.zeros(1, 2), torch.full((1, 2), torch.nan), 1j, range(3),
    torch.zeros(1, 2).long(), torch.zeros(1, 2, requires_grad=True), slice(1),
)  # fmt: skip
OURS = str(Path(statewise.__file__).parent)
Call = Callable[[random.Random], object]


def _targets(run: Path, out: Path) -> dict[str, tuple[Callable[..., Any], dict[str, Any]]]:
    """Public functions, with arguments that would work."""
    env = statewise.make_env("Point-Hazard-1")
    env.reset()
    policy = statewise.load_policy(run)
    train = {"suite": walk.SUITE, "out": str(out), **walk.SETTINGS}
    kind = statewise.get_algorithm("trpo")
    suite: dict[str, Any] = {"num_envs": 1, "seed": 0, "device": "cpu"}
    return {
        "make_env": (
            statewise.make_env,
            {
                "name": "Point-Hazard-1",
                **suite,
                "compact": False,
                "continuing": False,
                "threads": 1,
                "autoreset": True,
                "margin": 0.0,
            },
        ),
        "make_env gym": (statewise.make_env, {"name": walk.SUITE, **suite, "cost_ceiling": 1.0}),
        "VecEnv": (statewise.VecEnv, {"suite": "Point-Hazard-1", **suite}),
        "GymEnv": (statewise.GymEnv, {"env_id": walk.Walk, **suite}),
        "parse_suite": (statewise.parse_suite, {"name": "Point-Hazard-1"}),
        "get_robot": (statewise.get_robot, {"name": "Point"}),
        "get_algorithm": (statewise.get_algorithm, {"name": "scpo"}),
        "register_algorithm": (statewise.register_algorithm, {"cls": kind}),
        "register_robot": (
            statewise.register_robot,
            {
                "name": "Mine",
                "file": statewise.get_robot("Point").file,
                "sensors": None,
                "replace": True,
                "goal_radius": 0.3,
                "keepout": 0.4,
            },
        ),
        "env.step": (env.step, {"action": torch.zeros(1, 2)}),
        "env.reset": (env.reset, {"seed": 0}),
        "policy": (policy, {"obs": torch.zeros(1), "cost": 0.0}),
        "train": (statewise.train, train),
        "resume": (
            statewise.resume,
            {"path": run, "steps": None, "quiet": True, "imports": (), "trust": False},
        ),
        "evaluate": (
            statewise.evaluate,
            {
                "path": run,
                "episodes": 2,
                "seed": 0,
                "sampled": False,
                "threshold": 0.0,
                "suite": None,
                "best_safe": False,
                "imports": (),
                "trust": False,
            },
        ),
        "load_policy": (
            statewise.load_policy,
            {"path": run, "best_safe": False, "imports": (), "trust": False},
        ),
        "read_runs": (statewise.read_runs, {"paths": run}),
    }


def attack_calls(scratch: Path, tries: int, seed: int = 0, deadline: float = 120.0) -> Outcome:
    """Call public functions with one or two arguments of a wrong kind."""
    outcome, rng = Outcome("calls"), random.Random(seed)
    warm()
    with outcome.timed():
        run = walk.train(scratch / "runs")
        for start in range(0, tries, BATCH):
            numbers = [rng.randrange(2**32) for _ in range(min(BATCH, tries - start))]
            status, told = in_child(
                lambda n=numbers, s=start: _calls(run, scratch / f"c{s}", n), deadline
            )
            if status in (HUNG, KILLED, "raised"):
                for number in numbers:
                    place = scratch / f"c{start}-{number}"
                    status, told = in_child(lambda n=number, p=place: _calls(run, p, [n]), deadline)
                    outcome.add(
                        f"{status}: call {number} {told}" if status != "returned" else told[0]
                    )
            else:
                for failure in told:
                    outcome.add(failure)
    return outcome


def _calls(run: Path, out: Path, numbers: list[int]) -> list[str]:
    logging.disable(logging.CRITICAL)
    out.mkdir()
    os.chdir(out)  # some of the values are paths
    api.run_with_display = lambda training, quiet: training.folder.path  # type: ignore[assignment]
    targets = _targets(run, out)
    return [_call(targets, random.Random(number)) for number in numbers]


def _call(targets: dict[str, Any], rng: random.Random) -> str:
    """What is wrong with how a call ended, or nothing."""
    name = rng.choice(list(targets))
    function, given = targets[name]
    wrong = dict(given)
    for _ in range(rng.randint(1, 2)):
        wrong[rng.choice(list(given))] = rng.choice(VALUES)
    try:
        function(**wrong)
    except Exception as error:  # noqa: BLE001  which kind it is decides
        frame = traceback.extract_tb(error.__traceback__)[-1]
        mine = isinstance(error, ValueError | TypeError | RuntimeError) and bool(str(error))
        named = isinstance(error, OSError) and bool(error.filename)
        if (mine and frame.filename.startswith(OURS)) or named:
            return ""
        shown = {k: v for k, v in wrong.items() if v is not given[k]}
        where = f"{Path(frame.filename).name}:{frame.lineno}"
        inner = [
            f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(OURS)
        ]
        ours = f"{Path(inner[-1].filename).name}:{inner[-1].lineno}" if inner else ""
        return f"{name}({shown!r:.160}) {ours} {where}\n{type(error).__name__}: {error!s:.100}"
    return ""
