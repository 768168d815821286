"""The operating domain: what varies from episode to episode beside the layout."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from statewise.algos import Algorithm
from statewise.envs.env import Env
from statewise.runs.files import read_bytes
from statewise.settings import unknown
from statewise.sim.cpu import CpuSim
from statewise.sim.variation import VariedSim, variations_of
from statewise.types import Step

_MOST_BYTES = 2**16
_EVERY_ENV = {
    "noise": "noise on every observation, in standard deviations of that observation in training",
    "delay": "steps by which an action is late",
}


@dataclass(frozen=True)
class Variation:
    """One thing that may vary."""

    neutral: float
    """Its value as trained"""
    least: float
    most: float
    stress: tuple[float, float]
    """The range that `--stress` sweeps"""
    whole: bool = False


VARIATIONS = {
    "friction": Variation(1.0, 0.01, 100.0, (0.25, 2.0)),
    "mass": Variation(1.0, 0.01, 100.0, (0.5, 2.0)),
    "strength": Variation(1.0, 0.01, 100.0, (0.5, 1.5)),
    "damping": Variation(1.0, 0.0, 100.0, (0.25, 4.0)),
    "push": Variation(0.0, 0.0, 100.0, (0.0, 2.0)),
    "start": Variation(0.0, 0.0, 10.0, (0.0, 1.0)),
    "noise": Variation(0.0, 0.0, 10.0, (0.0, 0.8)),
    "delay": Variation(0.0, 0.0, 100.0, (0.0, 8.0), whole=True),
}


@dataclass(frozen=True)
class Domain:
    """Ranges from which each episode draws its own values, uniformly. Layouts always vary."""

    ranges: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, (low, high) in self.ranges.items():
            if name not in VARIATIONS:
                raise ValueError(unknown("variation", name, VARIATIONS))
            kind = VARIATIONS[name]
            if not (math.isfinite(low) and math.isfinite(high) and low <= high):
                raise ValueError(f"{name} varies from {low} to {high}: give a range LOW..HIGH")
            if not kind.least <= low <= high <= kind.most:
                raise ValueError(
                    f"{name} varies from {low:g} to {high:g}: give values from {kind.least:g} to "
                    f"{kind.most:g}"
                )
            if kind.whole and not (float(low).is_integer() and float(high).is_integer()):
                raise ValueError(f"{name} varies from {low:g} to {high:g}: give whole numbers")

    @property
    def physics(self) -> dict[str, tuple[float, float]]:
        """The part that the simulator draws."""
        return {name: ends for name, ends in self.ranges.items() if name not in _EVERY_ENV}


def read_domain(vary: Sequence[str] = (), file: Path | None = None) -> Domain:
    """A domain from texts such as `friction=0.8..1.2`, and from a JSON file of name to [low, high].

    A text replaces what the file says of the same name.
    """
    ranges: dict[str, tuple[float, float]] = {}
    if file is not None:
        try:
            content = json.loads(read_bytes(file, _MOST_BYTES))
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise ValueError(f"{file} is not JSON ({error})") from error
        if not isinstance(content, dict):
            raise ValueError(f'{file} holds no object: write {{"friction": [0.8, 1.2]}}')
        for name, ends in content.items():
            if not (isinstance(ends, list) and len(ends) == 2 and all(map(_is_number, ends))):
                raise ValueError(f"{file}: {name} is {ends!r}: give [low, high]")
            ranges[name] = (float(ends[0]), float(ends[1]))
    for text in vary:
        name, equals, ends = text.partition("=")
        low, _, high = ends.partition("..")
        try:
            ranges[name.strip()] = (float(low), float(high or low))
        except ValueError:
            equals = ""
        if not equals:
            raise ValueError(f"--vary {text}: give NAME=LOW..HIGH, as in friction=0.8..1.2")
    return Domain(ranges)


def variations_in(env: Env) -> dict[str, str]:
    """What can vary in an environment, each with what it means."""
    simulated = env.simulated
    known = ({} if simulated is None else variations_of(simulated.sim.scene)) | _EVERY_ENV
    return {name: known[name] for name in VARIATIONS if name in known}


def enter(env: Env, domain: Domain, seed: int) -> None:
    """Make the worlds of an environment vary from their next reset on.

    Raises ValueError for a variation that the environment does not have, and names those it has.
    """
    known = variations_in(env)
    for name in domain.ranges:
        if name not in known:
            has = ", ".join(known)
            raise ValueError(
                f"{env.spec.name} has no variation {name!r} with an effect. It has: {has}"
            )
    simulated = env.simulated
    if domain.physics and simulated is not None:
        if not isinstance(simulated.sim, CpuSim):
            raise ValueError(f"{env.spec.name} varies on the CPU and once only: make it anew")
        simulated.sim = VariedSim(simulated.sim, domain.physics, seed)


class Disturbance:
    """Noise on observations and late actions, around any policy in any environment."""

    def __init__(self, domain: Domain, algo: Algorithm, env: Env, seed: int) -> None:
        self._ranges = domain.ranges
        self._generator = torch.Generator(env.device).manual_seed(seed)
        b = env.num_envs
        self._spread = _spread(algo).to(env.device)
        self._live = env.spec.num_live
        self._noise = torch.zeros(b, 1, device=env.device)
        self._delay = torch.zeros(b, dtype=torch.long, device=env.device)
        late = int(domain.ranges.get("delay", (0, 0))[1])
        self._past = torch.zeros(late + 1, b, env.spec.action_size, device=env.device)
        self._worlds = torch.arange(b, device=env.device)

    def begin(self, where: Tensor) -> None:
        """Draw the values of the episodes that begin in the worlds of a mask `[B]`."""
        if "noise" in self._ranges:
            low, high = self._ranges["noise"]
            drawn = low + (high - low) * self._uniform()
            self._noise = torch.where(where.unsqueeze(1), drawn.unsqueeze(1), self._noise)
        if "delay" in self._ranges:
            low, high = self._ranges["delay"]
            drawn = (low + (high - low + 1) * self._uniform()).long()
            self._delay = torch.where(where, drawn, self._delay)
            self._past = self._past.masked_fill(where[None, :, None], 0.0)

    def see(self, step: Step) -> Step:
        """Return the step with the noise that the policy sees."""
        if "noise" not in self._ranges:
            return step
        obs = step.obs.clone()
        shape = (len(obs), self._live)
        drawn = torch.randn(shape, generator=self._generator, device=obs.device)
        obs[:, : self._live] += self._noise * self._spread * drawn
        return dataclasses.replace(step, obs=obs)

    def act(self, action: Tensor) -> Tensor:
        """Return the action that reaches the robot, which may be late."""
        if "delay" not in self._ranges:
            return action
        self._past = torch.cat([action.unsqueeze(0), self._past[:-1]])
        return self._past[self._delay, self._worlds]

    def worlds(self) -> dict[str, Tensor]:
        """What belongs to each world: `[B, ...]` each."""
        return {"noise": self._noise, "delay": self._delay, "past": self._past.transpose(0, 1)}

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        """Put rows of `worlds` into the worlds of ids `[k]`."""
        self._noise = self._noise.index_copy(0, where, rows["noise"])
        self._delay = self._delay.index_copy(0, where, rows["delay"])
        self._past = self._past.index_copy(1, where, rows["past"].transpose(0, 1))

    def _uniform(self) -> Tensor:
        return torch.rand(len(self._worlds), generator=self._generator, device=self._worlds.device)


def _spread(algo: Algorithm) -> Tensor:
    """Standard deviation `[n]` of each observation in training; 1 where it was not measured."""
    return 1.0 / algo.scaler.factor[: algo.spec.num_live].detach().cpu()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
