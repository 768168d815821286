"""The runs of a benchmark, and the state of each, which is read from its run folder."""

from __future__ import annotations

import contextlib
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from statewise import settings
from statewise.algos import Algorithm, get_algorithm
from statewise.algos.shared_settings import LimitSettings, Settings
from statewise.envs.from_gym import check_id
from statewise.envs.suites import parse_suite
from statewise.plugins import import_modules, is_gym
from statewise.runs import checkpoint
from statewise.runs.differences import differences
from statewise.runs.epochs import plan_of
from statewise.runs.folder import file_name, holds_a_run
from statewise.runs.judged import read_judged
from statewise.runs.lock import is_locked
from statewise.runs.reader import last_epoch, read_config
from statewise.training.config import TrainSettings, with_preset

State = Literal[
    "new",  # nothing on disk yet
    "interrupted",  # begun, not finished: goes on from its newest checkpoint
    "failed",  # its last worker ended with an error: tried again by the next start
    "running",  # a worker of ours trains it
    "busy",  # some other process trains it
    "conflict",  # its folder holds a run with other settings: never touched
    "damaged",  # its folder cannot be gone on with: never touched
    "finished",
]
FAILED_FILE = "failed.txt"
"""The file that says why the last worker of a run failed. A new worker removes it."""
LOG_FILE = "log.txt"
"""What the workers of a run printed."""

_MOST_SEEDS = 10_000


@dataclass(frozen=True)
class RunSpec:
    """One run of a grid: what to train, and what differs from the defaults."""

    suite: str
    algo: str
    seed: int = 0
    train: Mapping[str, Any] = field(default_factory=dict)
    """Fields of TrainSettings, such as steps and num_envs."""
    algorithm: Mapping[str, Any] = field(default_factory=dict)
    """Fields of the algorithm's own settings, such as cost_limit."""
    label: str = ""
    """Name of the variant, and of its folder; empty: the algorithm's name."""

    @property
    def name(self) -> str:
        return self.label or get_algorithm(self.algo).name

    def resolve(self, out: str) -> tuple[TrainSettings, Settings]:
        """The settings it trains with, all defaults filled in; wrong ones raise ValueError."""
        train = dict(self.train)
        import_modules(train.get("imports", ()))  # they may register the robot or the algorithm
        kind = get_algorithm(self.algo)
        if is_gym(self.suite):
            check_id(self.suite)
            num_costs = 0  # shown by its first step
        else:
            num_costs = len(parse_suite(self.suite).constraints)
        if not re.fullmatch(r"[\w.-]*", self.label) or self.label.startswith("."):
            raise ValueError(
                f"the label {self.label!r} names a folder: use letters, digits, dots and dashes"
            )
        train |= {"suite": self.suite, "algo": kind.name, "seed": self.seed}
        train |= {"label": self.label, "out": out}
        both = with_preset(kind.name, train | dict(self.algorithm))
        train, algorithm = settings.split_by_owner(both, TrainSettings, kind.settings_class)
        own = settings.parse(kind.settings_class, algorithm, kind.name)
        if isinstance(own, LimitSettings) and num_costs:
            own.limits(num_costs)
        return settings.parse(TrainSettings, train).resolved(), own


@dataclass(frozen=True)
class Grid:
    """Runs that belong together, under one folder."""

    specs: tuple[RunSpec, ...]
    out: str = "runs"
    """Runs go to OUT/SUITE/LABEL/seed-SEED."""

    def open(self) -> list[Run]:
        """Every run with its settings and the state its folder shows."""
        if not self.specs:
            raise ValueError("the grid has no runs: name at least one suite, algorithm and seed")
        runs = [Run(spec, *spec.resolve(self.out)) for spec in self.specs]
        folders: dict[Path, RunSpec] = {}
        for run in runs:
            if run.folder in folders:
                raise ValueError(
                    f"two runs of the grid share the folder {run.folder}: give each variant a "
                    f"label of its own"
                )
            folders[run.folder] = run.spec
            run.look()
        return runs


@dataclass
class Run:
    """A run of a grid, with its state."""

    spec: RunSpec
    train: TrainSettings
    algorithm: Settings
    state: State = "new"
    note: str = ""
    """What is wrong with it, if something is."""
    metrics: dict[str, Any] = field(default_factory=dict)
    """Of its newest epoch; empty before the first."""

    def __str__(self) -> str:
        return f"{self.spec.suite} {self.spec.name} seed {self.spec.seed}"

    @property
    def folder(self) -> Path:
        return self.train.folder

    @property
    def epoch(self) -> int:
        return int(self.metrics.get("epoch", 0))

    @property
    def progress(self) -> float:
        """From 0 to 1, by steps: epochs differ in length."""
        return min(1.0, self.metrics.get("steps", 0) / self.train.planned_steps)

    def look(self) -> None:
        """Read state, note and metrics from the run folder."""
        self.note, self.metrics = "", {}
        config, failed = self.folder / "config.json", self.folder / FAILED_FILE
        try:
            if config.exists():
                self.note = self._difference()
                # Checkpoints before metrics: a running worker writes them the other way round.
                newest = checkpoint.latest(self.folder / "checkpoints")[:1]
                self.metrics = last_epoch(self.folder)
                if newest and checkpoint.epoch_of(newest[0]) > self.epoch:
                    raise ValueError(
                        f"metrics.jsonl ends at epoch {self.epoch}, before {newest[0].name}"
                    )
                if self.metrics and not newest and not self.complete:
                    raise ValueError("it has no checkpoint to go on from")
            elif holds_a_run(self.folder):
                raise ValueError("it has no config.json")
        except ValueError as error:
            self.state = "damaged"
            self.note = f"{self.folder} is damaged ({error}): move it away to train the run anew"
            return
        if self.note:
            self.state = "conflict"
            return
        if self.complete:
            self.state = "finished"
        elif is_locked(self.folder):
            self.state, self.note = "busy", "another process trains it right now"
        elif failed.exists():
            self.state, self.note = "failed", failed.read_text().strip()
        else:
            self.state = "interrupted" if config.exists() else "new"

    def _difference(self) -> str:
        """Return a sentence that names the settings in which the run on disk differs from this one."""
        own = settings.to_json(self.algorithm)
        wanted = {"train": settings.to_json(self.train), "algorithm": own}
        differs = sorted(differences(read_config(self.folder), wanted).items())
        found = [f"{name} is {there!r} there, {here!r} here" for name, (there, here) in differs]
        if not found:
            return ""
        return (
            f"{self.folder} holds a run with other settings ({'; '.join(found)}), which is left as "
            f"it is: choose another --out, or move that folder away"
        )

    def refresh(self) -> None:
        """Read the newest metrics only."""
        with contextlib.suppress(ValueError):  # damage is shown by the next `look`
            self.metrics = last_epoch(self.folder) or self.metrics

    @property
    def complete(self) -> bool:
        """Whether all epochs are written, the last one is saved and its policy is judged, if it is to
        be. Without checkpoints all epochs are enough."""
        if self.epoch < self._planned_epochs():
            return False
        newest = [p.stem for p in checkpoint.latest(self.folder / "checkpoints")[:1]]
        if not newest:  # they were removed
            return True
        judged = not self.train.judge or read_judged(self.folder, self.epoch)[0] is not None
        return judged and newest == [f"epoch-{self.epoch:05d}"]

    def _planned_epochs(self) -> int:
        """How many epochs the run has. One that was extended may have others than a new run has."""
        with contextlib.suppress(
            ValueError
        ):  # there is no run yet, or it is damaged, which `look` says
            return plan_of(read_config(self.folder)).epochs
        return self.train.epochs


def product_grid(
    suites: Sequence[str],
    algos: Sequence[str],
    seeds: Sequence[int],
    out: str = "runs",
    given: Mapping[str, Any] | None = None,
) -> Grid:
    """Every suite, algorithm and seed, with every combination of the values given for settings.

    One seed of all of them comes before the next. given: names of settings, each to a value or to a
    list of values. A setting that only some algorithms have is set for those. Lists make variants,
    whose labels name the value: `scpo-cost_limit-0.01`.
    """
    kinds = [get_algorithm(name) for name in dict.fromkeys(algos)]
    owners: list[type] = [TrainSettings, *(kind.settings_class for kind in kinds)]
    chosen: dict[str, dict[str, Any]] = {}
    for name, values in (given or {}).items():
        owner = next((owner for owner in owners if name in settings.hints_of(owner)), None)
        if owner is None:
            known = {n for owner in owners for n in settings.hints_of(owner)}
            raise ValueError(f"--set {name}: {settings.unknown('setting', name, known)}")
        read = [settings.read_value(owner, name, value)
                for value in (values if isinstance(values, list) else [values])]  # fmt: skip
        chosen[name] = {_label(value): value for value in read}  # 0 and 0.0 are one value
    specs: dict[tuple[str, str, int], RunSpec] = {}
    for seed in dict.fromkeys(seeds):
        for suite in dict.fromkeys(suites):
            for kind in kinds:
                for spec in _variants(suite, kind, seed, chosen):
                    specs.setdefault((suite, spec.name, seed), spec)
    return Grid(tuple(specs.values()), out)


def _variants(
    suite: str, kind: type[Algorithm], seed: int, chosen: Mapping[str, Mapping[str, Any]]
) -> Iterator[RunSpec]:
    """The runs of one suite, algorithm and seed: one for each combination of the settings' values.

    chosen: for each setting its values by label.
    """
    own_names = settings.hints_of(kind.settings_class)
    train_names = settings.hints_of(TrainSettings)
    mine = {n: v for n, v in chosen.items() if n in own_names or n in train_names}
    for labels in itertools.product(*mine.values()):
        one = dict(zip(mine, labels, strict=True))
        several = [f"{n}-{file_name(label)}" for n, label in one.items() if len(mine[n]) > 1]
        yield RunSpec(
            suite,
            kind.name,
            seed,
            {n: mine[n][label] for n, label in one.items() if n in train_names},
            {n: mine[n][label] for n, label in one.items() if n in own_names},
            "-".join([kind.name, *several]) if several else "",
        )


def _label(value: Any) -> str:
    """A value of a setting as part of a folder's name: 0.1, 64_64."""
    if isinstance(value, tuple | list):
        return "_".join(map(_label, value))
    return str(value).removesuffix(".0") if isinstance(value, float) else str(value)


def parse_seeds(text: str) -> tuple[int, ...]:
    """Seeds from `0..2` (0, 1 and 2), `0,1,5` or `3` (that one alone)."""
    seeds: list[int] = []
    for part in text.split(","):
        first, dots, last = part.strip().partition("..")
        if not first.isdecimal() or (dots and not last.isdecimal()):
            raise ValueError(f"--seeds is {text!r}: give 0..2, a list such as 0,1,5, or one seed")
        if dots and int(last) < int(first):
            raise ValueError(f"--seeds {part.strip()} is empty: write the lower seed first")
        if int(last or first) - int(first) >= _MOST_SEEDS:
            raise ValueError(f"--seeds {part.strip()} are more than {_MOST_SEEDS}: give fewer")
        seeds += range(int(first), int(last or first) + 1)
    return tuple(dict.fromkeys(seeds))
