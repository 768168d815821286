"""Writes run folders as training does, with numbers that a test chooses."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

from statewise.algos import get_algorithm
from statewise.runs.judged import JUDGED
from statewise.training.config import TrainSettings, usual_worlds

Epoch = Callable[[int], dict[str, Any]]


def constant(epoch: int) -> dict[str, Any]:
    """The same epoch again and again."""
    return {}


def learning(algo: str, seed: int, epochs: int) -> Epoch:
    """Curves that look like training: the return rises to 2.6, costs fall, more for the safe."""
    safety = {"scpo": 0.1, "cpo": 0.4, "pcpo": 0.6, "trpo_sl": 2.0}.get(algo, 1.0)

    def epoch(number: int) -> dict[str, Any]:
        done = 1 - math.exp(-5 * number / epochs)
        noise = 0.08 * math.sin(7.7 * number + 3.1 * seed + len(algo)) + 0.02 * seed
        cost = (1.2 - (1.2 - 0.5 * safety) * done) * (1 + noise)
        rate = 0.02 - (0.02 - 0.006 * safety) * done
        return {
            "episode/return": 2.6 * done + 0.3 * noise,
            "cost/episode": cost,
            "cost/max": 0.1 * cost,
            "cost/hazard/max": 0.1 * cost,
            "cost/rate": rate,
            "cost/epoch_rate": rate * (1 + noise) * 0.8,
            "cost/hazard/violation_rate": round(100 * min(1.0, 0.5 * cost)) / 100,
        }

    return epoch


def write_run(
    root: Path,
    suite: str = "Point-Hazard-8",
    algo: str = "scpo",
    seed: int = 0,
    *,
    label: str | None = None,
    epochs: int = 20,
    done: int | None = None,
    epoch: Epoch = constant,
    episodes: bool = True,
    environment: dict[str, Any] | None = None,
    train: dict[str, Any] | None = None,
    longest: int = 0,
    **own: Any,
) -> Path:
    """A run folder with `done` of its `epochs`; `train` and `own` are settings other than defaults,
    `longest` the steps after which an episode runs out of time (0: that is not known)."""
    folder = root / suite / (label or algo) / f"seed-{seed}"
    folder.mkdir(parents=True)
    worlds = usual_worlds(suite, "cpu", epochs * 30_000)
    given = TrainSettings(suite, algo, seed=seed, device="cpu", num_envs=worlds, final_batch=1)
    settings = given.resolved()
    resolved = dataclasses.asdict(settings)
    if epochs != settings.epochs:
        resolved["steps"] = epochs * settings.steps_per_epoch
    config = {
        "statewise": "0",
        "train": resolved | (train or {}),
        "algorithm": dataclasses.asdict(get_algorithm(algo).settings_class(**own)),
        "spec": {"name": suite, "cost_names": ["hazard"], "max_episode_steps": longest},
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "environment.json").write_text(json.dumps(environment or ENVIRONMENT))
    rows = [_row(i, settings.steps_per_epoch, epoch(i)) for i in range(1, (done or epochs) + 1)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    if episodes:
        header = "epoch,return,cost/hazard/episode,cost/hazard/max,length,terminated,sim_fault\n"
        (folder / "episodes.csv").write_text(header + "".join(map(_episodes, rows)))
    return folder


def write_judged(run: Path, violations: int = 10, earned: float = 2.5, **more: Any) -> None:
    """`judged.json` of 1000 fresh episodes of a run of 20 epochs."""
    hazard = {"name": "hazard", "violations": violations, "episode_cost": 0.5, "max_cost": 0.1}
    facts = {"epoch": 20, "seed": 7, "episodes": 1000, "mean_return": earned, "success": 0.98}
    (run / JUDGED).write_text(json.dumps(facts | {"constraints": [hazard]} | more))


ENVIRONMENT = {
    "statewise": "0",
    "commit": "0123456789ab",
    "python": "3.11.7",
    "packages": {"torch": "2.13.0", "mujoco": "4.0.0"},
    "platform": "Linux",
    "processor": "a processor",
    "cores": 2,
    "gpu": None,
    "command": ["statewise", "train"],
}


def _episodes(row: dict[str, Any]) -> str:
    """A line for each episode of an epoch: every other one has a cost of 0.2."""
    one, other = (f"{row['epoch']},2.5,0.5,{cost},80,1,0\n" for cost in (0.0, 0.2))
    half, odd = divmod(row["episode/count"], 2)
    return (one + other) * half + one * odd


def _row(number: int, steps: int, given: dict[str, Any]) -> dict[str, Any]:
    row = {
        "epoch": number,
        "steps": number * steps,
        "episode/count": 100,
        "episode/return": 2.5,
        "episode/return_std": 0.5,
        "cost/episode": 0.5,
        "cost/max": 0.1,
        "cost/hazard/max": 0.1,
        "cost/hazard/violation_rate": 0.25,
        "cost/rate": 0.01,
        "cost/epoch_rate": 0.005,
        "sim/faults": 0,
        "time/collect": 1.0,
        "time/update": 3.0,
        "time/total": 4.0 * number,
        "memory/process_mib": 500.0,
    }
    return row | given
