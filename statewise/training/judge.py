"""Judge the final policy of a run, with the actions that are deployed: the mean ones."""

import dataclasses
import logging

from rich.console import Console

from statewise.runs.files import as_json, write_atomically
from statewise.runs.judged import JUDGED, Judged, JudgedConstraint, read_judged
from statewise.text import percent, several
from statewise.training.evaluate import evaluate
from statewise.training.loop import Training

log = logging.getLogger("statewise")

_SEED = 7
"""Of the layouts, as in `statewise evaluate`. None of them occurs in a training."""


def judge(training: Training, screen: Console) -> None:
    """Run as many fresh episodes of a finished run as `judge` asks for, unless that was done before."""
    path, episodes = training.folder.path, training.settings.judge
    if not (training.finished and episodes):
        return
    if read_judged(path, training.epoch)[0] is not None:
        return
    if training.algo.epoch < training.epoch:  # its policy is not here
        log.warning("%s was not judged, and has no checkpoint left to judge", path)
        return
    screen.print(f"judging the final policy by {several(episodes, 'fresh episode')}, mean actions")
    found = evaluate(training.algo, training.env, episodes, _SEED)
    constraints = tuple(
        JudgedConstraint(c.name, c.violations, c.episode_cost, c.max_cost)
        for c in found.constraints
    )
    judged = Judged(training.epoch, _SEED, episodes, found.mean_return, found.success, constraints)
    write_atomically(path / JUDGED, as_json(dataclasses.asdict(judged)))
    rates = [f"{percent(c.rate)} violate {c.name}" for c in found.constraints]
    screen.print(", ".join([f"return {found.mean_return:.3f}", *rates]))
