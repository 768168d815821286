"""Training: collect, update, write down, and again. The state is whole at every epoch's end."""

from __future__ import annotations

import dataclasses
import importlib.util
import logging
import os
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro

from statewise.algos import Algorithm, get_algorithm
from statewise.algos.base import Settings
from statewise.envs.env import Env
from statewise.envs.make import is_gym, make_env
from statewise.metrics import describe
from statewise.plugins import import_modules
from statewise.runs import checkpoint
from statewise.runs.folder import RunFolder, RunFolderError, file_name
from statewise.sim.backend import GpuError
from statewise.training.collect import Collector
from statewise.types import Episodes, Rollout
from statewise.version import __version__

log = logging.getLogger("statewise")

LONG_ROBOTS = ("Ant", "Walker", "Humanoid")
"""Trained for 1000 epochs in the paper; the others for 200."""


INCIDENTAL = frozenset(
    ("out", "label", "threads", "checkpoint_every", "keep_checkpoints", "tensorboard", "wandb")
)
"""Settings that do not change what is learned (threads change the last digits only): runs that differ
in nothing else are the same experiment."""
_EARLIER = {"spread_ages": False, "enough_costs": 0}
"""What was done before there was a setting for it, where that is not its default: runs of that time do
not name it."""


@dataclass(frozen=True)
class TrainSettings:
    """What to train, for how long, where. Each algorithm has settings of its own beside these."""

    suite: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="SUITE")]
    """A suite such as Point-Hazard-8, or gym:ID for any Gymnasium environment with a cost."""
    algo: str = "scpo"
    """scpo, trpo, cpo, pcpo, trpo_lag, trpo_fac, trpo_ipo, trpo_sl or trpo_usl."""
    seed: int = 0
    """Decides the networks, the layouts and the noise."""
    steps: int = 0
    """Environment steps in all, rounded to whole epochs; 0: the paper's 6 million (30 million for Ant,
    Walker, Humanoid)."""
    steps_per_epoch: int = 30_000
    """Environment steps between two updates, rounded to a whole number for each world."""
    num_envs: int = 0
    """Worlds; 0: 128 on the CPU, 2048 on a GPU (4096 for Ant, Walker, Humanoid)."""
    device: str = "auto"
    """cpu, cuda (or cuda:1, ...), or auto: a GPU if there is one and MuJoCo Warp is installed."""
    deterministic: bool = False
    """Make physics on a GPU as repeatable as MuJoCo Warp can, at a price; on the CPU it always is."""
    contact_room: float = 1.0
    """Factor on a GPU's room for contacts; raise it if faults say that it is full."""
    threads: int = 0
    """CPU threads of physics and of learning; 0: all cores. Sums of floats depend on their number."""
    spread_ages: bool = True
    """Start as if episodes had begun at different times, so that they do not all end at once; the first
    ones, cut short by it, are left out of the metrics."""
    compact: bool = False
    """Leave out the observation blocks that are always zero."""
    continuing: bool = False
    """Move the goal when it is reached and go on, instead of ending the episode."""
    imports: Annotated[tuple[str, ...], tyro.conf.arg(name="import")] = ()
    """Modules to import first, such as the one that registers your environment or robot."""
    out: str = "runs"
    """Runs go to OUT/SUITE/ALGO/seed-SEED."""
    label: str = ""
    """Name of the run's folder, if not the algorithm's: OUT/SUITE/LABEL/seed-SEED."""
    checkpoint_every: int = 10
    """Epochs between two checkpoints."""
    keep_checkpoints: int = 3
    """Checkpoints kept, beside the best safe policy."""
    tensorboard: bool = True
    """Write TensorBoard files beside the metrics."""
    wandb: bool = False
    """Log to Weights & Biases as well (needs the extra `wandb`)."""

    def resolved(self) -> TrainSettings:
        """With every default filled in; impossible combinations raise ValueError."""
        robot = self.suite.split("-")[0]
        steps = self.steps or (30_000_000 if robot in LONG_ROBOTS else 6_000_000)
        device = self.device
        if device == "auto":
            device = "cuda" if _gpu_usable() and not is_gym(self.suite) else "cpu"
        num_envs = self.num_envs or 128
        if not self.num_envs and device.startswith("cuda"):
            num_envs = 4096 if robot in LONG_ROBOTS else 2048
        if num_envs < 1 or steps < 1 or self.steps_per_epoch < 1:
            raise ValueError(
                f"steps ({steps}), steps_per_epoch ({self.steps_per_epoch}) and num_envs "
                f"({num_envs}) must be positive"
            )
        if num_envs > self.steps_per_epoch:
            raise ValueError(
                f"{num_envs} worlds are more than the {self.steps_per_epoch} steps of an epoch: "
                f"each world needs at least one; lower --num-envs or raise --steps-per-epoch"
            )
        per_epoch = round(self.steps_per_epoch / num_envs) * num_envs
        if abs(per_epoch - self.steps_per_epoch) > 0.05 * self.steps_per_epoch:
            low = self.steps_per_epoch // num_envs * num_envs
            raise ValueError(
                f"an epoch of {self.steps_per_epoch} steps is not divisible by {num_envs} worlds: "
                f"use --steps-per-epoch {low} or {low + num_envs}"
            )
        if steps < per_epoch:
            raise ValueError(
                f"steps ({steps}) are less than one epoch of {per_epoch}: give more, or a smaller "
                f"--steps-per-epoch"
            )
        if self.seed < 0:
            raise ValueError(f"seed is {self.seed}: give 0 or more")
        if self.threads < 0:
            raise ValueError(f"threads is {self.threads}: give 0 (all cores) or more")
        if self.label and (self.label.strip() in ("", ".", "..") or set(self.label) & set("/\\")):
            raise ValueError(
                f"the label {self.label!r} is no name of a folder: give one without slashes, such as "
                f"my-variant; --out says where runs go"
            )
        if self.wandb and importlib.util.find_spec("wandb") is None:
            raise ValueError("--wandb needs Weights & Biases: pip install 'statewise[wandb]'")
        if self.checkpoint_every < 1 or self.keep_checkpoints < 1:
            raise ValueError(
                f"checkpoint_every ({self.checkpoint_every}) and keep_checkpoints "
                f"({self.keep_checkpoints}) must be at least 1"
            )
        algo = get_algorithm(self.algo).name
        return dataclasses.replace(
            self,
            algo=algo,
            steps=steps,
            steps_per_epoch=per_epoch,
            num_envs=num_envs,
            device=device,
            threads=self.threads or _cores(),
        )

    @property
    def epochs(self) -> int:
        return max(1, round(self.steps / self.steps_per_epoch))

    @property
    def folder(self) -> Path:
        label = self.label or self.algo
        return Path(self.out) / file_name(self.suite) / label / f"seed-{self.seed}"


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
        # Also after a run with another number; one from before it was written down had all cores.
        torch.set_num_threads(settings.threads or _cores())
        self.env = build_env(settings) if env is None else env
        kind = get_algorithm(settings.algo)
        self.algo: Algorithm = kind(
            self.env.spec, algo_settings, settings.epochs, settings.seed, str(self.env.device)
        )
        self.collector = Collector(self.env, self.algo, settings.seed + 1, settings.spread_ages)
        self._old_faults = 0
        if env is not None:  # it may have been used: start as a new one would
            self.collector.begin(settings.seed)
            self._old_faults = env.faults
        self.epoch = 0
        self.steps = 0
        self.seconds = 0.0
        self.cost_total = [0.0] * self.env.spec.num_costs
        self.best: tuple[float, float] | None = None

    @classmethod
    def start(
        cls, settings: TrainSettings, algo_settings: Settings, env: Env | None = None
    ) -> Training:
        """A new run in a folder of its own; `env`: one built for the same settings, to be used."""
        settings = settings.resolved()
        # Built before the folder is made, so that a mistake leaves nothing behind.
        training = cls(settings, algo_settings, RunFolder(settings.folder), env)
        spec = dataclasses.asdict(training.env.spec)
        spec["blocks"] = {name: (s.start, s.stop) for name, s in spec["blocks"].items()}
        config = {
            "statewise": __version__,
            "train": dataclasses.asdict(settings),
            "algorithm": dataclasses.asdict(algo_settings),
            "spec": spec,
        }
        training.folder = RunFolder.create(settings.folder, config)
        if not training.env.has_time_limit:
            log.warning(
                "%s has no time limit: episodes that do not end by themselves take %d steps, and "
                "until one ends there is no return to show; register it with max_episode_steps",
                training.env.spec.name,
                training.env.spec.max_episode_steps,
            )
        return training

    @classmethod
    def resume(cls, path: Path, env: Env | None = None) -> Training:
        """Continue a run from its newest whole checkpoint."""
        folder = RunFolder.open(path)
        settings, algo_settings = read_config(folder.config())
        training = cls(settings, algo_settings, folder, env)
        if checkpoint.latest(folder.checkpoints):
            _, state = folder.load()
            training.load_state_dict(state)
        elif folder.metrics():  # to begin anew would delete them
            raise RunFolderError(
                f"the run {path} has metrics but no checkpoint to go on from (it is an export, or its "
                f"checkpoints were removed): train anew in another folder"
            )
        folder.rewind(training.epoch)
        log.info("continuing %s after epoch %d", path, training.epoch)
        return training

    @property
    def finished(self) -> bool:
        return self.epoch >= self.settings.epochs

    def run_epoch(self) -> dict[str, Any]:
        """Collect, update, write down; returns the epoch's metrics."""
        start = time.perf_counter()
        horizon = self.settings.steps_per_epoch // self.settings.num_envs
        rollout, episodes = self.collector.collect(horizon)
        collected = time.perf_counter()
        self.epoch += 1
        self.steps += rollout.size
        metrics = self._describe(rollout, episodes)
        self._keep_best(metrics)  # before the update: these episodes are the policy's as it is

        updating = time.perf_counter()
        metrics |= self.algo.update(rollout)
        done = time.perf_counter()
        self.seconds += done - start
        metrics |= {"time/collect": collected - start, "time/update": done - updating}
        metrics["time/total"] = self.seconds
        metrics["time/steps_per_second"] = rollout.size / (done - start)
        metrics["memory/process_mib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        if self.env.device.type == "cuda":
            free, total = torch.cuda.mem_get_info(self.env.device)
            metrics["memory/gpu_mib"] = (total - free) / 2**20  # by all on it, physics included
        self.folder.log_metrics(metrics)
        self.folder.log_episodes(self.epoch, episodes, self.env.spec.cost_names)
        if self.epoch % self.settings.checkpoint_every == 0 or self.finished:
            self.save()
        return metrics

    def _describe(self, rollout: Rollout, episodes: Episodes) -> dict[str, Any]:
        """The paper's metrics and their like, from the rollout and its finished episodes."""
        for i in range(self.env.spec.num_costs):
            self.cost_total[i] += float(rollout.cost[..., i].double().sum())
        names = self.env.spec.cost_names
        return {
            "epoch": self.epoch,
            "steps": self.steps,
            "sim/faults": self.env.faults - self._old_faults,
            **describe(rollout, episodes, names, self.cost_total, self.steps),
        }

    def _keep_best(self, metrics: dict[str, Any]) -> None:
        """Keep the policy that collected the safest, then the best-paid, epoch so far."""
        settled = self.steps >= self.env.spec.max_episode_steps * self.env.num_envs
        if metrics["episode/count"] < 50 or not settled:  # the first to finish are the short ones
            return
        # To a hundredth: safer beats better, but not for the noise of a few episodes.
        score = (-round(metrics["cost/max"] or 0.0, 2), metrics["episode/return"])
        if self.best is None or score > self.best:
            self.best = score
            state = {"algo": self.algo.state_dict(), "epoch": self.epoch}
            checkpoint.save(self.folder.checkpoints / "best-safe.ckpt", state)

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
        self.epoch, self.steps, self.seconds = state["epoch"], state["steps"], state["seconds"]
        self.cost_total, self.best = state["cost_total"], state["best"]
        self.algo.load_state_dict(state["algo"])
        self.collector.load_state_dict(state["collector"])
        self._old_faults = state["old_faults"]


def run(training: Training, report: Callable[[dict[str, Any]], None]) -> bool:
    """Run all epochs that are left, reporting each; False if Ctrl-C or SIGTERM stopped it (and it was
    saved).

    The first of them lets the epoch finish and saves; the second stops at once.
    """
    if training.epoch == 0:
        training.save()  # so that a run killed in its first epochs can be resumed too
    with _stop_on_interrupt() as stopped:
        while not training.finished and not stopped():
            try:
                metrics = training.run_epoch()
            except torch.OutOfMemoryError as error:
                raise GpuError(
                    f"the GPU has too little memory for epochs of "
                    f"{training.settings.steps_per_epoch} steps in {training.settings.num_envs} "
                    f"worlds: lower --steps-per-epoch or --num-envs, or stop what else is on it "
                    f"({error})"
                ) from error
            report(metrics)
    if not training.finished:
        training.save()
    training.folder.close()
    return training.finished


@contextmanager
def _stop_on_interrupt() -> Iterator[Callable[[], bool]]:
    pressed = False

    def handler(signum: int, frame: object) -> None:
        nonlocal pressed
        if pressed:
            raise KeyboardInterrupt
        pressed = True
        log.warning("stopping after this epoch; press Ctrl-C again to stop at once")

    try:
        before = {s: signal.signal(s, handler) for s in (signal.SIGINT, signal.SIGTERM)}
    except ValueError:  # not in the main thread: nobody presses Ctrl-C there
        yield lambda: False
        return
    try:
        yield lambda: pressed
    finally:
        for number, previous in before.items():
            signal.signal(number, previous)


def build_env(settings: TrainSettings) -> Env:
    """The environment a run trains in."""
    import_modules(settings.imports)
    names = ("compact", "continuing", "deterministic", "contact_room")
    values = {name: getattr(settings, name) for name in names}
    # Only what was asked for, so that an environment can refuse what does not apply to it.
    options = {n: value for n, value in values.items() if value != getattr(TrainSettings, n)}
    if not is_gym(settings.suite):
        options["threads"] = settings.threads
    return make_env(settings.suite, settings.num_envs, settings.seed, settings.device, **options)


def _cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _gpu_usable() -> bool:
    """Whether physics and learning can both run on a GPU here."""
    return torch.cuda.is_available() and importlib.util.find_spec("mujoco_warp") is not None


def read_config(config: dict[str, Any]) -> tuple[TrainSettings, Settings]:
    """The settings a run was started with; those newer than the run are as they were then."""
    train, own = (_with_tuples(config[part]) for part in ("train", "algorithm"))
    kind = get_algorithm(train.get("algo", ""))
    if "suite" not in train:
        raise ValueError("config.json names no suite: it is damaged")
    for given, known in ((train, TrainSettings), (own, kind.settings_class)):
        unknown = set(given) - {f.name for f in dataclasses.fields(known)}
        if unknown:
            raise ValueError(
                f"the run was made by statewise {config.get('statewise')} with settings that this "
                f"version ({__version__}) does not have: {', '.join(sorted(unknown))}. Use that "
                f"version, or train anew"
            )
    own = earlier(kind.settings_class) | own
    return TrainSettings(**(earlier(TrainSettings) | train)), kind.settings_class(**own)


def earlier(settings: type) -> dict[str, Any]:
    """What runs that do not name all of these settings had, where that is not the default."""
    known = {f.name for f in dataclasses.fields(settings)}
    return {name: value for name, value in _EARLIER.items() if name in known}


def _with_tuples(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings as they were before JSON made lists of tuples."""
    return {k: tuple(v) if isinstance(v, list) else v for k, v in settings.items()}
