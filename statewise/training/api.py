"""`statewise.train(...)`: the same as the command, from Python."""

from __future__ import annotations

import dataclasses
import difflib
import os
import typing
from collections.abc import Mapping, Sequence
from numbers import Real
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from statewise import metrics
from statewise.algos import get_algorithm
from statewise.algos.base import Settings
from statewise.envs.env import Env
from statewise.runs import checkpoint
from statewise.runs.folder import RunFolder, check_folder
from statewise.runs.lock import lock_run
from statewise.training import loop
from statewise.training.evaluate import Evaluation, world_count
from statewise.training.evaluate import evaluate as evaluate_policy
from statewise.training.loop import Training, TrainSettings
from statewise.training.policy import load_policy
from statewise.training.trackers import Tracker, trackers
from statewise.training.view import View

_WANTED = {bool: "True or False", int: "a whole number", float: "a number", str: "a string"}
"""What to give for a setting of each type."""


def train(suite: str, algo: str = "scpo", quiet: bool = False, **settings: Any) -> Path:
    """Train, and return the run folder.

    `settings` are fields of `TrainSettings` (seed, steps, num_envs, out, ...) or of the algorithm's
    own settings (cost_limit, target_kl, ...). `statewise train --help` lists and explains them.
    """
    chosen = _typed(TrainSettings, {"suite": suite, "algo": algo})
    kind = get_algorithm(algo)
    train_names = {f.name for f in dataclasses.fields(TrainSettings)}
    own_names = {f.name for f in dataclasses.fields(kind.settings_class)}
    for name in settings:
        if name not in train_names | own_names:
            close = difflib.get_close_matches(name, train_names | own_names, n=3, cutoff=0.5)
            hint = f"Did you mean {' or '.join(close)}? " if close else ""
            raise ValueError(
                f"unknown setting {name!r}. {hint}`statewise train --algo {kind.name} --help` "
                f"lists all"
            )
    if isinstance(settings.get("out"), os.PathLike):  # which config.json could not hold
        settings["out"] = os.fspath(settings["out"])
    chosen |= _typed(TrainSettings, {k: v for k, v in settings.items() if k in train_names})
    own = _typed(kind.settings_class, {k: v for k, v in settings.items() if k in own_names})
    return start(TrainSettings(**chosen), kind.settings_class(**own), quiet)


def _typed(owner: type, given: Mapping[str, Any]) -> dict[str, Any]:
    """Settings as the types of their fields; values of another type raise ValueError.

    One item serves where several may be given.
    """
    hints, typed = typing.get_type_hints(owner), dict[str, Any]()
    for name, value in given.items():
        several = typing.get_origin(hints[name]) is tuple
        kind = typing.get_args(hints[name])[0] if several else hints[name]
        items = value if several and isinstance(value, list | tuple) else (value,)
        if kind in _WANTED:  # the others are a choice of words, which the settings check
            items = tuple(_as(kind, item) for item in items)
            if None in items:
                wanted = _WANTED[kind] + (", or several in a tuple" if several else "")
                raise ValueError(f"{name} is {value!r}: give {wanted}")
        typed[name] = items if several else items[0]
    return typed


def _as(kind: type, value: Any) -> Any:
    """A value as a bool, int, float or str; None if it is of another type."""
    if kind in (bool, str):
        return value if isinstance(value, kind) else None
    if isinstance(value, bool) or not isinstance(value, Real):
        return None
    if kind is int and not float(value).is_integer():
        return None
    return kind(value)


def start(settings: TrainSettings, algo_settings: Settings, quiet: bool = False) -> Path:
    """Train from the beginning; the run folder."""
    settings = settings.resolved()
    check_folder("--out", settings.folder.parent)
    with loop.build_env(settings) as env:
        training = Training.start(settings, algo_settings, env)
        with lock_run(training.folder.path):
            return go(training, quiet)


def train_seeds(
    settings: TrainSettings, algo_settings: Settings, seeds: Sequence[int], quiet: bool = False
) -> list[Path]:
    """Train once with each seed, one after another in the same worlds; the run folders.

    Physics is compiled, captured and built once for all. Runs that are finished are left as they
    are and interrupted ones continued, if their settings are these.
    """
    settings = settings.resolved()
    check_folder("--out", settings.folder.parent)
    paths = []
    with loop.build_env(settings) as env:
        for seed in seeds:
            one = dataclasses.replace(settings, seed=seed)
            with lock_run(one.folder):
                training = open_run(one, algo_settings, env)
                paths.append(go(training, quiet))
            if not training.finished:  # stopped by Ctrl-C or SIGTERM: not on to the next one
                break
    Console(quiet=quiet).print(summary_table(paths))
    return paths


def open_run(settings: TrainSettings, algo_settings: Settings, env: Env | None = None) -> Training:
    """The run of these settings: where it stopped, or from the start. Its lock should be held."""
    if not (settings.folder / "config.json").exists():
        return Training.start(settings, algo_settings, env)
    folder = RunFolder.open(settings.folder)
    there, own = loop.read_config(folder.config())
    incidental = {name: getattr(settings, name) for name in loop.INCIDENTAL}
    if (dataclasses.replace(there, **incidental), own) != (settings, algo_settings):
        raise ValueError(
            f"the run {settings.folder} was made with other settings: choose another --out"
        )
    removed = not checkpoint.latest(folder.checkpoints)
    if removed and len(folder.metrics()) >= there.epochs:  # nothing is left to go on with, or to do
        training = Training(there, own, folder, env)
        training.epoch = there.epochs
        return training
    return Training.resume(settings.folder, env)


def summary_table(paths: Sequence[Path]) -> Table:
    """How runs ended: the last epoch of each, and their mean."""
    last = [RunFolder.open(path).metrics()[-1] for path in paths]
    table = Table(title=str(paths[0].parent), title_justify="left")
    table.add_column("seed")
    for key in metrics.COLUMNS:
        table.add_column(metrics.title(key), justify="right")
    rows = [[m[key] for key in metrics.COLUMNS] for m in last]
    rows.append([_mean(column) for column in zip(*rows, strict=True)])
    labels = [path.name.removeprefix("seed-") for path in paths] + ["mean"]
    for label, row in zip(labels, rows, strict=True):
        shown = zip(metrics.COLUMNS, row, strict=True)
        table.add_row(label, *(metrics.text(key, value) for key, value in shown))
    return table


def _mean(column: Sequence[float | None]) -> float | None:
    """Of seeds of which all have the number: none where no episode ended in one's last epoch."""
    known = [x for x in column if x is not None]
    return sum(known) / len(known) if len(known) == len(column) else None


def resume(path: str | Path, quiet: bool = False) -> Path:
    """Continue a run from its last checkpoint; the run folder."""
    folder = RunFolder.open(Path(path))
    with lock_run(folder.path):
        settings, _ = loop.read_config(folder.config())
        with loop.build_env(settings) as env:
            return go(Training.resume(folder.path, env), quiet)


def finished(path: Path) -> bool:
    """Whether a run has all its epochs: it was not stopped before."""
    folder = RunFolder.open(path)
    settings, _ = loop.read_config(folder.config())
    return len(folder.metrics()) >= settings.epochs


def evaluate(
    path: str | Path,
    episodes: int = 1000,
    seed: int = 7,
    sampled: bool = False,
    threshold: float = 0.0,
    suite: str | None = None,
    best_safe: bool = False,
) -> Evaluation:
    """Run the policy of a run folder for fresh episodes, and say how good and how safe it is.

    suite: evaluate in another suite than the one it was trained in (its sizes must fit).
    """
    policy = load_policy(path, best_safe)
    settings = dataclasses.replace(
        policy.settings,
        suite=suite or policy.settings.suite,
        num_envs=world_count(episodes),
        seed=seed,
        device="cpu",
        threads=0,  # of this machine; they change nothing
    )
    with loop.build_env(settings) as env:
        policy.check(env.spec)
        return evaluate_policy(policy.algo, env, episodes, seed, sampled, threshold)


def go(training: Training, quiet: bool) -> Path:
    """Run what is left of a training, with everything that watches it."""
    console = Console(quiet=quiet)
    path, settings = training.folder.path, training.settings
    if training.finished:
        console.print(f"{path} is finished: {training.epoch} epochs")
        return path
    console.print(
        f"{settings.algo} on {settings.suite}, seed {settings.seed}: {settings.epochs} epochs of "
        f"{settings.steps_per_epoch:,} steps in {settings.num_envs} worlds on {settings.device}, "
        f"into {path}"
    )
    with View(training, console) as view, trackers(training) as others:
        watchers: list[Tracker] = [*others, view]

        def report(epoch: dict[str, Any]) -> None:
            for watch in watchers:
                watch(epoch)

        finished = loop.run(training, report)
    if finished:
        console.print(f"finished: {path}")
    else:
        console.print(
            f"stopped after epoch {training.epoch} and saved. Continue with\n"
            f"  statewise train --resume {path}"
        )
    return path
