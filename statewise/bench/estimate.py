"""Estimate how long the rest of a grid takes, from the speed of its runs or from a rough guess."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

from statewise.bench.grid import Run

_CORE_SECONDS = {
    "Point": 1.1e-4,
    "Arm3": 1.3e-4,
    "Drone": 1.4e-4,
    "Walker": 1.7e-4,
    "Swimmer": 1.8e-4,
    "Ant": 2.9e-4,
    "Humanoid": 5.6e-4,
}
"""A guess of what a training step costs one core: two cores' time for the environment (the speeds
in docs/speed.md) and for Point's update. Replaced by the runs' own speed once there is one."""
_GPU_SECONDS = 1e-5
"""The same for a run on a GPU that it shares with two others; a guess too."""


def seconds_left(run: Run, runs: Sequence[Run]) -> float:
    """Return the training time that a run still needs, from its own speed or that of similar runs."""
    if run.state in ("finished", "conflict", "damaged", "busy"):
        return 0.0
    return run.train.planned_steps * (1.0 - run.progress) * _step_seconds(run, runs)


def grid_seconds_left(runs: Sequence[Run], jobs: int) -> float:
    """Return the time until all runs are finished, with so many at a time."""
    left = [seconds_left(run, runs) for run in runs]
    return max(sum(left) / max(1, jobs), *left, 0.0)


def as_text(seconds: float) -> str:
    """`40 s`, `12 min`, `3 h 20 min`, `2 d 4 h`."""
    minutes, hours = round(seconds / 60), round(seconds / 3600)
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    if minutes < 90:
        return f"{minutes} min"
    if hours < 48:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{hours // 24} d {hours % 24} h"


def _step_seconds(run: Run, runs: Sequence[Run]) -> float:
    if _timed(run):
        return _measured(run)
    robot = run.spec.suite.split("-")[0]
    seen = [other for other in runs if _timed(other)]
    alike = (
        [r for r in seen if (r.spec.suite, r.spec.name) == (run.spec.suite, run.spec.name)]
        or [r for r in seen if r.spec.suite == run.spec.suite]
        or [r for r in seen if r.spec.suite.split("-")[0] == robot]
    )
    if alike:
        return statistics.mean(_measured(r) for r in alike)
    return _GPU_SECONDS if run.train.device != "cpu" else _CORE_SECONDS.get(robot, 2e-4)


def _timed(run: Run) -> bool:
    return "time/total" in run.metrics  # exported ones keep the curves only


def _measured(run: Run) -> float:
    return float(run.metrics["time/total"] / run.metrics["steps"])
