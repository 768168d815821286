"""The commands as Python functions: `statewise.train`, `resume` and `evaluate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from statewise import metrics
from statewise.algos.shared_settings import Settings
from statewise.console import console
from statewise.envs.env import Env
from statewise.plugins import import_for_run, import_modules
from statewise.runs import checkpoint
from statewise.runs.differences import differences
from statewise.runs.folder import RunFolder, check_folder
from statewise.runs.lock import lock_run
from statewise.settings import asked, to_json, typed
from statewise.text import several
from statewise.training import loop
from statewise.training.config import TrainSettings, parse_run, read_config
from statewise.training.evaluate import Evaluation, world_count
from statewise.training.evaluate import evaluate as evaluate_policy
from statewise.training.judge import judge
from statewise.training.loop import Training
from statewise.training.policy import load_policy, worlds_for
from statewise.training.recording import WORST_FILE, save_recordings
from statewise.training.trackers import Tracker, trackers
from statewise.training.view import View
from statewise.training.worst import WorstEpisodes


@typed
def train(suite: str, algo: str = "scpo", quiet: bool = False, **settings: Any) -> Path:
    """Train, and return the run folder.

    `settings` are fields of `TrainSettings` (seed, steps, num_envs, out, imports, ...) or of the
    algorithm's own settings (cost_limit, target_kl, ...). `statewise train --help` lists them.
    """
    import_modules(settings.get("imports", ()))
    return start(*parse_run({"suite": suite, "algo": algo, **settings}, text=False), quiet)


def start(settings: TrainSettings, algo_settings: Settings, quiet: bool = False) -> Path:
    """Start a new run and return its folder."""
    settings = settings.resolved()
    path = settings.folder.absolute()  # now: an environment may change the current folder
    check_folder(asked("out"), path.parent)
    with loop.build_env(settings) as env:
        training = Training.start(settings, algo_settings, env, path)
        with lock_run(training.folder.path):
            return run_with_display(training, quiet)


def train_seeds(
    settings: TrainSettings, algo_settings: Settings, seeds: Sequence[int], quiet: bool = False
) -> list[Path]:
    """Train once with each seed, one after another in the same worlds. Return the run folders.

    The physics is compiled once for all seeds. Finished runs are skipped and interrupted ones are
    resumed, if their settings are the same.
    """
    settings = settings.resolved()
    here, paths = Path.cwd(), []
    check_folder(asked("out"), settings.folder.parent)
    with loop.build_env(settings) as env:
        for seed in seeds:
            one = dataclasses.replace(settings, seed=seed)
            with lock_run(here / one.folder):
                training = open_run(one, algo_settings, here / one.folder, env)
                paths.append(run_with_display(training, quiet))
            if not training.finished:  # Ctrl-C or SIGTERM stops the seeds that follow too
                break
    console(quiet=quiet).print(_summary_table(paths))
    return paths


def open_run(
    settings: TrainSettings, algo_settings: Settings, path: Path, env: Env | None = None
) -> Training:
    """Open the run of these settings where it stopped, or start it. The caller holds its lock."""
    if not (path / "config.json").exists():
        return Training.start(settings, algo_settings, env, path)
    folder = RunFolder.open(path)
    wanted = {"train": to_json(settings), "algorithm": to_json(algo_settings)}
    if differences(folder.config(), wanted):
        raise ValueError(
            f"the run {path} was made with other settings: choose another {asked('out')}"
        )
    there, own = read_config(folder.config())
    removed = not checkpoint.latest(folder.checkpoints)
    if removed and len(folder.metrics()) >= there.epochs:  # finished, and its checkpoints removed
        training = Training(there, own, folder, env)
        training.epoch = there.epochs
        return training
    return Training.resume(path, env)


@typed
def resume(
    path: str | Path,
    steps: int | None = None,
    quiet: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Path:
    """Continue a run from its last checkpoint, and return its folder.

    steps: environment steps in total. A larger number extends the run, even a finished one. None keeps
        the number of the run.
    imports: the plug-ins that the run was trained with. They are imported only if you name them here.
    trust: import the plug-ins that the run folder names, which runs their code.
    """
    folder = RunFolder.open(Path(path))
    with lock_run(folder.path):
        folder.check_settings()
        import_for_run(folder.path, folder.config(), imports, trust)
        settings, _ = read_config(folder.config())
        with loop.build_env(settings) as env:
            return run_with_display(Training.resume(folder.path, env, steps), quiet)


def finished(path: Path) -> bool:
    """Whether a run has all its epochs."""
    folder = RunFolder.open(path)
    settings, _ = read_config(folder.config())
    return len(folder.metrics()) >= settings.epochs


@typed
def evaluate(
    path: str | Path,
    episodes: int = 1000,
    seed: int = 7,
    sampled: bool = False,
    threshold: float = 0.0,
    suite: str | None = None,
    best_safe: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
    worst: int = 0,
    worst_out: str | Path | None = None,
) -> Evaluation:
    """Run the policy of a run folder for fresh episodes, and measure its return and safety.

    suite: evaluate in another suite. Its observation and action sizes must be the same.
    imports, trust: as for `resume`.
    worst: keep this many of the worst episodes of each constraint, for `statewise.replay`.
    worst_out: the file for them. By default this is `worst.npz` in the run folder.
    """
    out = (worst_file(path) if worst_out is None else Path(worst_out)).absolute()
    policy = load_policy(path, best_safe, imports, trust)
    with worlds_for(policy, world_count(episodes), seed, suite) as env:
        keeper = WorstEpisodes(env, policy.algo, worst) if worst and env.spec.num_costs else None
        found = evaluate_policy(policy.algo, env, episodes, seed, sampled, threshold, keeper)
        if keeper is not None:
            save_recordings(out, keeper.recordings(), keeper.facts(episodes, seed, sampled))
    return dataclasses.replace(found, policy=policy.source)


def worst_file(path: str | Path) -> Path:
    """Where the worst episodes of a run are kept, given its folder or one of its checkpoints."""
    path = Path(path)
    return (path.absolute().parent.parent if path.is_file() else path) / WORST_FILE


def run_with_display(training: Training, quiet: bool) -> Path:
    """Run the remaining epochs of a training, with the live view and the trackers."""
    screen = console(quiet=quiet)
    path, settings = training.folder.path, training.settings
    if training.finished:
        judge(training, screen)  # it may have been stopped before it was
        screen.print(f"{path} is finished: {several(training.epoch, 'epoch')}", soft_wrap=True)
        return path
    screen.print(
        f"{settings.algo} on {settings.suite}, seed {settings.seed}: "
        f"{several(settings.epochs, 'epoch')} of {several(settings.steps_per_epoch, 'step')} in "
        f"{several(settings.num_envs, 'world')} on {settings.device}, into {path}",
        soft_wrap=True,
    )
    with View(training, screen) as view, trackers(training) as others:
        watchers: list[Tracker] = [*others, view]

        def report(epoch: dict[str, Any]) -> None:
            for watch in watchers:
                watch(epoch)

        done = loop.run(training, report)
    judge(training, screen)
    if done:
        screen.print(f"finished: {path}", soft_wrap=True)
    else:
        screen.print(
            f"stopped after epoch {training.epoch} and saved. Continue with\n"
            f"  statewise resume {path}",
            soft_wrap=True,
        )
    return path


def _summary_table(paths: Sequence[Path]) -> Table:
    """A table with the last epoch of each run, and their mean."""
    table = Table(title=str(paths[0].parent), title_justify="left")
    table.add_column("seed")
    for key in metrics.COLUMNS:
        table.add_column(metrics.title(key), justify="right")
    rows = []
    for path in paths:
        epochs = RunFolder.open(path).metrics()
        rows.append([epochs[-1].get(key) if epochs else None for key in metrics.COLUMNS])
    rows.append([_mean(column) for column in zip(*rows, strict=True)])
    labels = [path.name.removeprefix("seed-") for path in paths] + ["mean"]
    for label, row in zip(labels, rows, strict=True):
        shown = zip(metrics.COLUMNS, row, strict=True)
        table.add_row(label, *(metrics.text(key, value) for key, value in shown))
    return table


def _mean(column: Sequence[float | None]) -> float | None:
    """The mean over seeds. None if a seed lacks the number."""
    known = [x for x in column if x is not None]
    return sum(known) / len(known) if len(known) == len(column) else None
