"""What a run is asked to do: its settings, resolved and checked, and the `config.json` they become."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from statewise import settings
from statewise.algos import get_algorithm
from statewise.algos.presets import find_preset
from statewise.algos.shared_settings import Settings
from statewise.envs.robots import training_steps
from statewise.envs.suites import proper_name
from statewise.extras import installed, need
from statewise.plugins import is_gym
from statewise.runs.epochs import Earlier, Plan, earlier_lengths, make_plan, usual_final_batch
from statewise.runs.folder import file_name
from statewise.runs.identity import new_run_id
from statewise.runs.shapes import check
from statewise.settings import asked, number, option
from statewise.types import EnvSpec
from statewise.version import __version__

log = logging.getLogger("statewise")

_MOST_NUMBERS = 10**6
"""Largest size of an observation or action."""
_SPEC = {
    "name": str, "obs_size": int, "action_size": int, "cost_names": list[str],
    "cost_ceiling": list[float], "max_episode_steps": int, "control_dt": float,
    "blocks": dict[str, list[int]], "num_zeros": int,
}  # fmt: skip
"""The form of the environment's facts in `config.json`."""
_FEW_STEPS = 3_000_000
"""A shorter run needs fewer worlds, so that episodes end before it does."""
_MANY_STEPS = 20_000_000
"""A robot that is trained for longer than this by default gets more worlds on a GPU."""


@dataclass(frozen=True)
class TrainSettings:
    """What to train, for how long, where. Each algorithm has settings of its own beside these."""

    suite: str = option(positional=True, metavar="SUITE")
    """A suite such as Point-Hazard-8, or gym:ID for any Gymnasium environment with a cost."""
    algo: str = "scpo"
    """The algorithm: `statewise list algos` names them. Each has settings of its own."""
    preset: str = ""
    """Settings by name: paper (as published), reference (as its published code), best
    (likely stronger, not tuned over seeds). Settings that you give beside it win."""
    seed: int = number(0, least=0, most=2**32 - 1)
    """Seed of the networks, the layouts and the noise."""
    steps: int = number(0, least=0, most=10**13)
    """Environment steps in all, such as 600000 or 6M, rounded to whole epochs. 0 takes what the
    robot needs: 6 million, or 30 million for Ant, Walker, Humanoid and other legged robots."""
    steps_per_epoch: int = number(30_000, least=1, most=10**9)
    """Environment steps between two updates, rounded to a whole number for each world."""
    final_batch: int = number(0, least=0, most=64)
    """Factor on `steps_per_epoch` in the second half of the training. Costs are rare by then, and larger
    batches have less noise. 1 keeps epochs as they are. 0 takes 4 in runs of 100 epochs or more, else
    1."""
    num_envs: int = number(0, least=0, most=2**20)
    """Worlds that are stepped together. 0 takes 512, but 128 on the CPU for fewer than 3 million steps
    or a Gymnasium environment, and 4096 on a GPU for robots that train for long."""
    device: str = "auto"
    """cpu, cuda (or cuda:1, ...), or auto: a GPU if there is one and MuJoCo Warp is installed."""
    deterministic: bool = False
    """Make GPU physics as repeatable as MuJoCo Warp allows. It is slower. CPU physics always is."""
    contact_room: float = number(1.0, above=0.0, finite=True)
    """Factor on the memory for contacts on a GPU. Raise it if faults say that it is full."""
    threads: int = number(0, least=0, most=1024)
    """CPU threads of physics and learning. 0 takes all cores. Results depend on it in the last digits."""
    spread_ages: bool = True
    """Start as if episodes had begun at different times, so that they do not all end at once. The first
    ones are shortened by that and are left out of the metrics."""
    compact: bool = False
    """Leave out the observation blocks that are always zero."""
    continuing: bool = False
    """Move the goal when it is reached and go on, instead of ending the episode."""
    margin: tuple[float, ...] = number((), least=0.0, finite=True)
    """How long before a constraint is broken its training cost begins, in its unit: one number for all
    constraints or one for each. Reported costs have no margin. Empty means 0."""
    imports: tuple[str, ...] = option((), flag="import", metavar="MODULE")
    """Modules to import first, such as one that registers your environment, robot or algorithm."""
    out: str = "runs"
    """Runs go to OUT/SUITE/ALGO/seed-SEED."""
    label: str = ""
    """Name of the run's folder, if not the algorithm's: OUT/SUITE/LABEL/seed-SEED."""
    judge: int = number(0, least=0, most=10**8)
    """Judge the final policy: after the training, run this many fresh episodes with mean actions and
    write the result to judged.json, which the report shows. 0 leaves it out."""
    checkpoint_every: int = number(10, least=1)
    """Epochs between two checkpoints."""
    keep_checkpoints: int = number(3, least=1)
    """Checkpoints kept, beside the best safe policy."""
    tensorboard: bool | None = None
    """Write TensorBoard files beside the metrics. By default this is done if TensorBoard is installed
    (extra `tracking`)."""
    wandb: bool = False
    """Log to Weights & Biases as well (needs the extra `tracking`)."""

    def __post_init__(self) -> None:
        settings.check(self)
        if self.label and (self.label.strip() in ("", ".", "..") or set(self.label) & set("/\\")):
            raise ValueError(
                f"the label {self.label!r} cannot name a folder: give one without slashes, such as "
                f"my-variant; {asked('out')} says where runs go"
            )

    def resolved(self) -> TrainSettings:
        """With every default filled in; impossible combinations raise ValueError."""
        suite = self.suite if is_gym(self.suite) else proper_name(self.suite)
        usual = training_steps(suite)
        steps = self.steps or usual
        device = self.device
        if device == "auto":
            device = "cuda" if _gpu_usable() and not is_gym(self.suite) else "cpu"
        num_envs = self.num_envs or usual_worlds(suite, device, steps)
        if self.wandb:
            need("logging to Weights & Biases", "tracking", "wandb")
        if self.tensorboard:
            need("writing TensorBoard files", "tracking", "tensorboard")
        per_epoch = _whole_epoch(steps, self.steps_per_epoch, num_envs)
        return dataclasses.replace(
            self,
            suite=suite,
            algo=get_algorithm(self.algo).name,
            steps=steps,
            steps_per_epoch=per_epoch,
            final_batch=self.final_batch or usual_final_batch(steps, per_epoch),
            num_envs=num_envs,
            device=device,
            threads=self.threads or cores(),
            tensorboard=installed("tensorboard") if self.tensorboard is None else self.tensorboard,
        )

    @property
    def plan(self) -> Plan:
        """The epochs of the run."""
        return make_plan(self.steps, self.steps_per_epoch, self.final_batch)

    @property
    def epochs(self) -> int:
        return self.plan.epochs

    @property
    def planned_steps(self) -> int:
        """Steps of all epochs and worlds: `steps`, rounded to whole epochs."""
        return self.steps_per_epoch * self.plan.length

    def horizon(self, epoch: int) -> int:
        """Steps of each world in an epoch, the first of which is 1."""
        return self.steps_per_epoch // self.num_envs * self.plan.factor(epoch)

    def extended(self, steps: int, epoch: int) -> ExtendedSettings:
        """Return these settings with another length, for a run that has done some epochs."""
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(TrainSettings)}
        earlier = (*getattr(self, "earlier", ()), (self.steps, epoch))
        return ExtendedSettings(**values | {"steps": steps}, earlier=earlier)

    @property
    def folder(self) -> Path:
        label = self.label or self.algo
        return Path(self.out) / file_name(self.suite) / label / f"seed-{self.seed}"


@dataclass(frozen=True)
class ExtendedSettings(TrainSettings):
    """The settings of a run whose length was changed after it had begun."""

    earlier: Earlier = ()
    """The lengths that it had before."""

    @property
    def plan(self) -> Plan:
        return make_plan(self.steps, self.steps_per_epoch, self.final_batch, self.earlier)


def usual_worlds(suite: str, device: str, steps: int) -> int:
    """How many worlds a run takes if it is not told."""
    if device.startswith("cuda"):
        return 4096 if training_steps(suite) > _MANY_STEPS else 512
    return 128 if is_gym(suite) or steps < _FEW_STEPS else 512


def parse_run(given: dict[str, Any], text: bool) -> tuple[TrainSettings, Settings]:
    """Settings of the training and of its algorithm, from names and values of both together.

    text: as for `settings.parse`.
    """
    algo = given.get("algo", "scpo")
    if not isinstance(algo, str):
        raise ValueError(f"algo is {algo!r}: give a string")
    kind = get_algorithm(algo)
    given = with_preset(kind.name, given)
    train, own = settings.split_by_owner(given, TrainSettings, kind.settings_class)
    chosen = settings.parse(TrainSettings, train, text=text)
    return chosen, settings.parse(kind.settings_class, own, text=text)


def with_preset(algo: str, given: Mapping[str, Any]) -> dict[str, Any]:
    """Names and values with those of the preset that they name. What is given wins, and is said so."""
    name = given.get("preset", "")
    preset = find_preset(algo, name) if name else {}
    kinds = (TrainSettings, get_algorithm(algo).settings_class)
    for key in [key for key in given if key in preset]:
        owner = next(kind for kind in kinds if key in settings.hints_of(kind))
        with contextlib.suppress(ValueError):  # a wrong value is refused later, by its name
            value = settings.read_value(owner, key, given[key])
            if value != preset[key]:
                log.warning(
                    "%s is given as %s: it wins over the preset %s, which has %s",
                    asked(key), settings.shown(value), name, settings.shown(preset[key]) or "none",
                )  # fmt: skip
    return preset | dict(given)


def to_config(train: TrainSettings, own: Settings, spec: EnvSpec) -> dict[str, Any]:
    """What goes to `config.json`."""
    facts = dataclasses.asdict(spec)
    facts["blocks"] = {name: (s.start, s.stop) for name, s in facts["blocks"].items()}
    return {
        "statewise": __version__,
        "run": new_run_id(),
        "train": settings.to_json(train),
        "algorithm": settings.to_json(own),
        "spec": facts,
    }


def read_config(config: dict[str, Any]) -> tuple[TrainSettings, Settings]:
    """The settings that a run was started with."""
    made_by = config.get("statewise")
    # A run from before `final_batch` has epochs of one length, whatever is usual now.
    train, own = {"final_batch": 1} | config["train"], config["algorithm"]
    try:
        check({"algo": ""} | train, {"algo": str}, "train")
        kind = get_algorithm(train.get("algo", ""))
        earlier = earlier_lengths(config)
        with settings.on_command_line(False):  # the file has names of settings, not options
            own_settings = settings.parse(kind.settings_class, own, text=False)
            if not earlier:
                return settings.parse(TrainSettings, train, text=False), own_settings
            extended = settings.parse(ExtendedSettings, train | {"earlier": earlier}, text=False)
            return extended, own_settings
    except ValueError as error:
        plugins = " ".join(map(str, train.get("imports") or ()))
        hint = f" It was trained with {asked('imports', plugins)}." if plugins else ""
        raise ValueError(f"config.json (statewise {made_by}): {error}{hint}") from error


def read_spec(config: dict[str, Any]) -> EnvSpec:
    """The environment's facts that a run was trained with. ValueError names a field of a wrong form."""
    try:
        check({"spec": None} | config, {"spec": _SPEC}, "config.json")
        spec = dict(config["spec"])
        if unknown := sorted(set(spec) - {f.name for f in dataclasses.fields(EnvSpec)}):
            raise ValueError(f"spec has no field {unknown[0]!r:.40}")
        if any(len(ends) != 2 for ends in spec["blocks"].values()):
            raise ValueError("blocks in spec has ends that are not two numbers")
        if max(spec["obs_size"], spec["action_size"]) > _MOST_NUMBERS or spec["obs_size"] < 1:
            raise ValueError(f"sizes in spec are not from 1 to {_MOST_NUMBERS:,}")
        spec["blocks"] = {name: slice(*ends) for name, ends in spec["blocks"].items()}
        for name in ("cost_names", "cost_ceiling", "margin", "clearance_units"):
            spec[name] = tuple(spec.get(name, ()))
        return EnvSpec(**spec)
    except ValueError as error:
        raise ValueError(f"config.json: {error}") from error


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0))


def _whole_epoch(steps: int, per_epoch: int, num_envs: int) -> int:
    """Steps of an epoch as a multiple of the number of worlds."""
    if num_envs > per_epoch:
        raise ValueError(
            f"{num_envs} worlds are more than the {per_epoch} steps of an epoch: each world needs at "
            f"least one; lower {asked('num_envs')} or raise "
            f"{asked('steps_per_epoch')}"
        )
    whole = round(per_epoch / num_envs) * num_envs
    if abs(whole - per_epoch) > 0.05 * per_epoch:
        low = per_epoch // num_envs * num_envs
        raise ValueError(
            f"an epoch of {per_epoch} steps is not divisible by {num_envs} worlds: use "
            f"{asked('steps_per_epoch', low)} or {low + num_envs}"
        )
    if steps < whole:
        raise ValueError(
            f"steps ({steps}) are less than one epoch of {whole}: give more, or a smaller "
            f"{asked('steps_per_epoch')}"
        )
    return whole


def _gpu_usable() -> bool:
    """Whether physics and learning can both run on a GPU here."""
    import torch

    return torch.cuda.is_available() and installed("mujoco_warp")
