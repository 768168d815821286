"""Training: collect, update, write down, and again. The state is whole at every epoch's end."""

from __future__ import annotations

import logging
import resource
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from statewise.algos import Algorithm, get_algorithm
from statewise.algos.shared_settings import Settings
from statewise.envs.env import Env
from statewise.envs.make import make_env
from statewise.metrics import describe
from statewise.plugins import import_modules, is_gym
from statewise.runs import checkpoint
from statewise.runs.epochs import make_plan
from statewise.runs.folder import RunFolder, RunFolderError
from statewise.runs.journal import MARK, Mark
from statewise.runs.shapes import check
from statewise.settings import asked
from statewise.sim.backend import GpuError
from statewise.training.blocked import BlockedConstraints
from statewise.training.collect import Collector
from statewise.training.config import TrainSettings, cores, read_config, to_config
from statewise.training.interrupts import count_interrupts

log = logging.getLogger("statewise")

Metrics = dict[str, Any]


class Training:
    """One run, from its first epoch or from a checkpoint."""

    def __init__(
        self,
        settings: TrainSettings,
        algo_settings: Settings,
        folder: RunFolder,
        env: Env | None = None,
    ) -> None:
        self.settings, self.folder = settings, folder
        torch.set_num_threads(
            settings.threads or cores()
        )  # a run before may have set another number
        self.env = build_env(settings) if env is None else env
        kind = get_algorithm(settings.algo)
        self.algo: Algorithm = kind(
            self.env.spec, algo_settings, settings.epochs, settings.seed, str(self.env.device)
        )
        self.collector = Collector(self.env, self.algo, settings.seed + 1, settings.spread_ages)
        self._old_faults = 0
        if env is not None:  # it may have been used before: start as a new one would
            self.collector.begin(settings.seed)
            self._old_faults = env.faults
        self.epoch = 0
        self.steps = 0
        self.seconds = 0.0
        self.cost_total = [0.0] * self.env.spec.num_costs
        self.best: tuple[float, float] | None = None
        self.blocked = BlockedConstraints(self.env.spec.cost_names)

    @classmethod
    def start(
        cls,
        settings: TrainSettings,
        algo_settings: Settings,
        env: Env | None = None,
        path: Path | None = None,
    ) -> Training:
        """Start a new run in a folder of its own.

        env: an environment that was built for the same settings.
        path: the folder, if the current one may have changed since the settings were made.
        """
        settings = settings.resolved()
        # Built and begun before the folder is made, so that a mistake leaves nothing behind.
        training = cls(settings, algo_settings, RunFolder(path or settings.folder), env)
        training._warn_of_margins()
        config = to_config(settings, algo_settings, training.env.spec)
        training.folder = RunFolder.create(training.folder.path, config)
        if not training.env.has_time_limit:
            log.warning(
                "%s has no time limit: episodes that do not end by themselves take %d steps, and "
                "until one ends there is no return to show; register it with max_episode_steps",
                training.env.spec.name,
                training.env.spec.max_episode_steps,
            )
        return training

    @classmethod
    def resume(cls, path: Path, env: Env | None = None, steps: int | None = None) -> Training:
        """Continue a run from the newest checkpoint that works. steps: a new length of the run."""
        folder = RunFolder.open(path)
        planned, algo_settings = read_config(folder.config())
        settings = planned
        if steps not in (None, planned.steps):
            _check_steps(planned, steps, folder.metrics())
            settings = planned.extended(steps, epoch=0)
        worlds = build_env(settings) if env is None else env

        def load(path: Path, state: dict[str, Any]) -> tuple[Training, dict[str, Mark]]:
            length = settings
            if settings is not planned:  # what is left is planned from what is done
                length = planned.extended(settings.steps, state["epoch"])
            training = cls(length, algo_settings, folder, worlds)  # anew: a load may fail half-way
            training.load_state_dict(state)
            return training, {
                name: state["files"][name] for name in ("metrics.jsonl", "episodes.csv")
            }

        if checkpoint.latest(folder.checkpoints):
            training, marks = folder.load(load)
            folder.rewind(training.epoch, marks)
        elif folder.metrics():  # to begin anew would delete them
            raise RunFolderError(
                f"the run {path} has metrics but no checkpoint to go on from (it is an export, or its "
                f"checkpoints were removed): train anew in another folder"
            )
        else:
            training = cls(settings, algo_settings, folder, worlds)
            folder.rewind(0)
        if past := folder.metrics():
            training.blocked = BlockedConstraints(training.env.spec.cost_names, past)
        folder.clean(settings.keep_checkpoints)
        if settings is not planned:  # last, so that a run that cannot go on is left alone
            folder.extend(settings.steps, training.epoch)
            training._warn_of_schedules()
        log.info("continuing %s after epoch %d", path, training.epoch)
        return training

    @property
    def finished(self) -> bool:
        return self.epoch >= self.settings.epochs

    def _warn_of_schedules(self) -> None:
        """Say which settings make an extended run differ from one that was as long from the start."""
        from_start = make_plan(
            self.settings.steps, self.settings.steps_per_epoch, self.settings.final_batch
        )
        larger = ("final_batch",) if self.settings.plan != from_start else ()
        if names := self.algo.scheduled + larger:
            log.warning(
                "%s of %s is a schedule over the whole run. Earlier epochs followed the old length, so "
                "the metrics differ from those of a run of %s steps from the start",
                " and ".join(names),
                self.settings.algo,
                f"{self.settings.steps:,}",
            )

    def _warn_of_margins(self) -> None:
        """Begin the first episodes, and say which margins are wider than any start leaves room for."""
        spec, clearance = self.env.spec, self.collector.begin().min_clearance
        if not any(spec.margin):
            return
        furthest = clearance.amax(dim=0).tolist()
        for name, margin, most, unit in zip(
            spec.cost_names, spec.margin, furthest, spec.clearance_units, strict=True
        ):
            if margin > most:
                log.warning(
                    "the margin of %s is %s, and no episode starts further than %s from breaking it: "
                    "every episode begins with a training cost. Lower %s",
                    name, f"{margin:g} {unit}".strip(), f"{most:.3g} {unit}".strip(), asked("margin"),
                )  # fmt: skip

    def run_epoch(self) -> Metrics:
        """Collect, update, write down; returns the epoch's metrics."""
        start = time.perf_counter()
        rollout, episodes = self.collector.collect(self.settings.horizon(self.epoch + 1))
        collected = time.perf_counter()
        self.epoch += 1
        self.steps += rollout.size
        for i in range(self.env.spec.num_costs):
            self.cost_total[i] += float(rollout.true_cost[..., i].double().sum())
        names = self.env.spec.cost_names
        metrics: Metrics = {
            "epoch": self.epoch,
            "steps": self.steps,
            "sim/faults": self.env.faults - self._old_faults,
            **describe(rollout, episodes, names, self.cost_total, self.steps),
        }
        self._keep_best(metrics)  # before the update: these episodes are the present policy's

        updating = time.perf_counter()
        self.algo.progress = min(self.steps / self.settings.planned_steps, 1.0)
        metrics |= self.algo.update(rollout)
        metrics |= self.blocked.add(metrics)
        done = time.perf_counter()
        self.seconds += done - start
        metrics |= {
            "time/collect": collected - start,
            "time/update": done - updating,
            "time/total": self.seconds,
            "time/steps_per_second": rollout.size / (done - start),
            "memory/process_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }
        if self.env.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.env.device)
            metrics["memory/gpu_mib"] = (total - free) / 2**20
        self.folder.log_metrics(metrics)
        self.folder.log_episodes(self.epoch, episodes, names)
        if self.epoch % self.settings.checkpoint_every == 0 or self.finished:
            self.save()
        return metrics

    def _keep_best(self, metrics: Metrics) -> None:
        """Keep the policy of the safest epoch so far, and of the best-paid among equally safe ones."""
        settled = self.steps >= self.env.spec.max_episode_steps * self.env.num_envs
        if metrics["episode/count"] < 50 or not settled:  # the first to finish are the short ones
            return
        # To a hundredth: safer beats better, but not for the noise of a few episodes.
        score = (-round(metrics["cost/max"] or 0.0, 2), metrics["episode/return"])
        if self.best is None or score > self.best:
            self.best = score
            state = {"algo": self.algo.state_dict(), "epoch": self.epoch}
            self.folder.save_best(state)

    def save(self) -> Path:
        """Write a checkpoint of everything."""
        return self.folder.save(self.epoch, self.state_dict(), self.settings.keep_checkpoints)

    def state_dict(self) -> dict[str, Any]:
        collector = self.collector.state_dict()  # first: it may start the first episodes
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "seconds": self.seconds,
            "cost_total": self.cost_total,
            "best": self.best,
            "old_faults": self._old_faults,
            "algo": self.algo.state_dict(),
            "collector": collector,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a `state_dict`. One of a wrong form raises ValueError or what torch raises."""
        _check_state(state, self.env.spec.num_costs)
        checkpoint.check_form(state["collector"], self.collector.state_dict(), skip=("env",))
        self.epoch, self.steps, self.seconds = state["epoch"], state["steps"], state["seconds"]
        self.cost_total, self.best = state["cost_total"], state["best"]
        self.algo.load_state_dict(state["algo"])
        self.collector.load_state_dict(state["collector"])
        self._old_faults = state["old_faults"]


def run(training: Training, report: Callable[[Metrics], None]) -> bool:
    """Run the epochs that are left and report each. Returns whether all were run.

    The first Ctrl-C or SIGTERM lets the epoch finish and saves; the second stops at once.
    """
    training.folder.clean(training.settings.keep_checkpoints)
    if training.epoch == 0:
        training.save()  # so that a run killed in its first epochs can be resumed too
    notice = "stopping after this epoch; press Ctrl-C again to stop at once"
    with count_interrupts(notice, most=1) as interrupts:
        while not training.finished and not interrupts():
            try:
                metrics = training.run_epoch()
            except torch.OutOfMemoryError as error:
                raise GpuError(
                    f"the GPU has too little memory for epochs of "
                    f"{training.settings.steps_per_epoch} steps in {training.settings.num_envs} "
                    f"worlds: lower {asked('steps_per_epoch')} or {asked('num_envs')}, or stop "
                    f"what else is on it ({error})"
                ) from error
            report(metrics)
    if not training.finished:
        training.save()
    training.folder.close()
    return training.finished


def _check_steps(settings: TrainSettings, steps: int, done: list[Metrics]) -> None:
    """Raise ValueError if a run has already done more than another length, rounded to an epoch."""
    steps_done = done[-1]["steps"] if done else 0
    least = max(steps_done, settings.steps_per_epoch)
    if steps < max(
        settings.steps_per_epoch, steps_done - settings.steps_per_epoch * settings.final_batch / 2
    ):
        raise ValueError(
            f"{asked('steps')} is {steps:,}, and the run has done {steps_done:,} already: "
            f"give at least {least:,}"
        )


def _check_state(state: dict[str, Any], num_costs: int) -> None:
    """Raise ValueError unless a checkpoint has the numbers that a run counts with."""
    counts = {"epoch": int, "steps": int, "seconds": float, "old_faults": int}
    journals = {"metrics.jsonl": MARK, "episodes.csv": MARK}
    parts = {"cost_total": list[float], "algo": dict, "collector": dict, "files": journals}
    check(state, counts | parts, "the checkpoint")
    best = state.get("best")
    if best is not None:
        check(list(best) if isinstance(best, tuple) else best, list[float], "best")
    if len(state["cost_total"]) != num_costs or (best is not None and len(best) != 2):
        raise ValueError("the checkpoint has numbers for another set of constraints")


def build_env(settings: TrainSettings) -> Env:
    """The environment a run trains in."""
    import_modules(settings.imports)
    names = ("compact", "continuing", "margin", "deterministic", "contact_room")
    values = {name: getattr(settings, name) for name in names}
    # Only what was asked for, so that an environment can refuse what does not apply to it.
    options = {n: value for n, value in values.items() if value != getattr(TrainSettings, n)}
    if not is_gym(settings.suite):
        options["threads"] = settings.threads
    return make_env(settings.suite, settings.num_envs, settings.seed, settings.device, **options)
