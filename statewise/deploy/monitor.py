"""Calibrates a monitor on the safe episodes of a policy, and tries it out.

A limit is an order statistic of the largest values of a signal, one value for each safe episode. So a
fresh safe episode exceeds it with at most the requested probability (split conformal prediction). The
signals share that probability, by `_WEIGHTS`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from statewise.algos import Algorithm
from statewise.core.statistics import Interval, rate_interval
from statewise.deploy.brake import fit_brake
from statewise.deploy.cost_values import act_and_predict, predicts_cost
from statewise.deploy.runtime import OK, STOP, Fallback, Monitor, signal_names
from statewise.envs.env import Env
from statewise.sim.cpu import one_torch_thread
from statewise.training.policy import Policy, worlds_for
from statewise.types import Step

_CALIBRATION, _TRIAL = 1 << 41, 1 << 42
"""Where the seeds of the layouts begin: none was trained on, and none is used for both."""
_WEIGHTS = {"closeness": 0.3, "predicted": 0.4, "observation": 0.15, "steps": 0.15}
"""Shares of the false alarms, by the first word of a signal. Chosen by hand on Point-Hazard-8: predicted
costs see a violation earliest."""
_WORLDS = 32
"""Few, as all of them are stepped until the slowest has run its share."""
_LATE = (1.5, 3.0)
"""Control periods between two steps that are a warning, and a stop."""


@dataclass
class WatchedEpisode:
    """One episode under a monitor. Times are in steps from its start."""

    total: float = 0.0
    length: int = 0
    success: bool = False
    violated: int | None = None
    """When a constraint was first broken"""
    warned: int | None = None
    stopped: int | None = None
    extremes: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """The largest value of each signal"""
    distance: np.ndarray = field(default_factory=lambda: np.zeros(0))
    """[n] how far each number of the observation was from the centre at most"""

    @property
    def safe(self) -> bool:
        return self.violated is None

    @property
    def lead(self) -> int | None:
        """Steps from the first stop to the first violation; None if either is missing or late."""
        if self.violated is None or self.stopped is None or self.stopped >= self.violated:
            return None
        return self.violated - self.stopped


def watch(
    algo: Algorithm,
    env: Env,
    limits: dict[str, Any],
    episodes: int,
    seed: int,
    fallback: str | Fallback | None = None,
) -> list[WatchedEpisode]:
    """Run episodes with a monitor in every world. Without a fallback it only watches."""
    monitors = [Monitor(limits, fallback or "brake", clock=None) for _ in range(env.num_envs)]
    centre = torch.tensor(limits["observation"]["centre"])
    quota = [episodes // env.num_envs + (i < episodes % env.num_envs) for i in range(env.num_envs)]
    running = [WatchedEpisode() for _ in monitors]
    distance = torch.zeros(env.num_envs, env.spec.obs_size)
    done: list[list[WatchedEpisode]] = [[] for _ in monitors]
    step = env.reset(seed=seed)
    with one_torch_thread():
        while any(len(d) < q for d, q in zip(done, quota, strict=True)):
            distance = torch.maximum(distance, (step.obs - centre).abs())
            action, value = act_and_predict(algo, step)
            active = [i for i, q in enumerate(quota) if len(done[i]) < q]
            acts = _look(limits, monitors, running, active, step, action, value)
            step = env.step(action if fallback is None else acts)
            _record(running, active, step)
            for i in step.ended.nonzero()[:, 0].tolist():
                running[i].extremes = monitors[i].extremes
                running[i].distance = distance[i].numpy().copy()
                done[i].append(running[i])
                running[i] = WatchedEpisode()
                distance[i] = 0.0
                monitors[i].reset()
    return [e for d, q in zip(done, quota, strict=True) for e in d[:q]]


def _look(
    limits: dict[str, Any],
    monitors: Sequence[Monitor],
    running: Sequence[WatchedEpisode],
    active: Sequence[int],
    step: Step,
    action: torch.Tensor,
    value: torch.Tensor | None,
) -> torch.Tensor:
    """Give one step to the monitors. Return the actions that they would execute, `[B, a]`."""
    measured = (step.cost if limits["measured"] == "cost" else step.clearance).numpy()
    obs, acts = step.obs.numpy(), action.numpy().copy()
    values = None if value is None else value.numpy()
    for i in active:
        episode, first = running[i], running[i].length == 0
        given = None if first else measured[i]
        verdict = monitors[i].check(obs[i], given, acts[i], None if values is None else values[i])
        acts[i] = verdict.action
        if verdict.level != OK and episode.warned is None:
            episode.warned = episode.length
        if verdict.level == STOP and episode.stopped is None:
            episode.stopped = episode.length
    return torch.from_numpy(acts)


def _record(running: Sequence[WatchedEpisode], active: Sequence[int], step: Step) -> None:
    reward, success = step.reward.tolist(), step.success.tolist()
    broken = (step.true_cost > 0).any(dim=1).tolist()
    for i in active:
        episode = running[i]
        episode.total += reward[i]
        episode.length += 1
        episode.success |= success[i]
        if broken[i] and episode.violated is None:
            episode.violated = episode.length


# Limits ----------------------------------------------------------------------------------------


def calibrate(
    policy: Policy, measured: str, false_alarms: float, warnings: float, episodes: int, seed: int
) -> dict[str, Any]:
    """The limits of a monitor for a policy, as `Monitor` takes them.

    measured: "clearance" or "cost". false_alarms: share of safe episodes that may be stopped.
    warnings: share of safe episodes that may get a warning.
    """
    for name, share in (("false_alarms", false_alarms), ("warnings", warnings)):
        if not 0.0 < share < 1.0:
            raise ValueError(
                f"{name} is {share}: give a share of the safe episodes above 0, below 1"
            )
    algo = policy.algo
    limits = _uncalibrated(algo, measured)
    with worlds_for(policy, min(episodes, _WORLDS), seed) as env:
        found = watch(algo, env, limits, episodes, _CALIBRATION + seed)
        limits["brake"] = fit_brake(env, _CALIBRATION + seed)
    safe = [e for e in found if e.safe]
    # The width of each input comes from every fourth episode, the limit on leaving it from the rest.
    parts = np.arange(len(safe)) % 4 == 0
    shares = _shares(limits["signals"], algo.spec.num_costs)
    needed = math.ceil(4 / 3 * (1.0 / (false_alarms * min(s for s in shares if s > 0)) - 1.0)) + 1
    if len(safe) < needed:
        raise ValueError(
            f"{len(safe)} of {episodes} episodes were safe. To stop at most {false_alarms:g} of the safe "
            f"episodes takes {needed} of them: run more episodes, or allow more false alarms"
        )
    distance = np.stack([e.distance for e in safe])
    width = np.maximum(distance[parts].max(axis=0), _spread(algo))
    columns = list(np.stack([e.extremes for e in safe]).T)
    at = limits["signals"].index("observation out of range")
    columns[at] = (distance[~parts] / width).max(axis=1)
    for level, rate in (("warning", warnings), ("stop", false_alarms)):
        limits[level] = [
            _order_statistic(column, rate * share) if share else 0.0
            for column, share in zip(columns, shares, strict=True)
        ]
    limits["observation"]["width"] = [x if math.isfinite(x) else None for x in width.tolist()]
    used = {"episodes": episodes, "safe_episodes": len(safe), "seed": seed}
    return limits | {"false_alarms": false_alarms, "warnings": warnings} | used


def _shares(signals: Sequence[str], constraints: int) -> list[float]:
    """The share of the false alarms that each signal may cause; they sum to 1.

    The clearance itself gets no share: its limit is 0, which no safe episode exceeds.
    """
    weights = [_WEIGHTS[name.split()[0]] for name in signals]
    weights[:constraints] = [0.0] * constraints
    several = [w / constraints if w >= 0.3 else w for w in weights]
    return [w / sum(several) for w in several]


def _order_statistic(values: np.ndarray, share: float) -> float:
    """The smallest of the values that a fresh one exceeds with at most this probability."""
    rank = math.ceil((len(values) + 1) * (1.0 - share))
    return float(np.sort(values)[min(rank, len(values)) - 1])


def _uncalibrated(algo: Algorithm, measured: str) -> dict[str, Any]:
    """Return limits that only a violated constraint or a faulty input exceeds."""
    spec = algo.spec
    signals = signal_names(list(spec.cost_names), measured, predicts_cost(algo))
    stop = [0.0] * spec.num_costs + [None] * (len(signals) - spec.num_costs)
    centre = np.zeros(spec.obs_size)
    centre[: spec.num_live] = algo.scaler.mean[: spec.num_live].numpy()
    return {
        "measured": measured,
        "constraints": list(spec.cost_names),
        "predicts_cost": predicts_cost(algo),
        "control_dt": spec.control_dt,
        "action_size": spec.action_size,
        "signals": signals,
        "warning": stop,
        "stop": stop,
        "late": list(_LATE),
        "brake": None,
        "observation": {"centre": centre.tolist(), "width": [None] * spec.obs_size},
    }


def _spread(algo: Algorithm) -> np.ndarray:
    """[n] the standard deviation of each input in training; infinite for those that nothing reads."""
    spread = np.full(algo.spec.obs_size, np.inf)
    spread[: algo.spec.num_live] = 1.0 / algo.scaler.factor[: algo.spec.num_live].numpy()
    return spread


# What it does ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class MonitorTrial:
    """The same episodes without and with a monitor."""

    suite: str
    algo: str
    episodes: int
    asked: float
    """Share of the safe episodes that may be stopped"""
    violations: tuple[Interval | None, Interval | None]
    """Share of the episodes that break a constraint, without and with the monitor"""
    success: tuple[float, float]
    mean_return: tuple[float, float]
    false_alarms: Interval | None
    """Share of the safe episodes in which the monitor would have stopped; None if none was safe"""
    warned: Interval | None
    """Share of the safe episodes with a warning"""
    foreseen: Interval | None
    """Share of the violating episodes in which the monitor stops before the violation"""
    lead: float | None
    """Median time from that stop to the violation, in seconds"""


def try_monitor(
    policy: Policy,
    limits: dict[str, Any],
    episodes: int,
    seed: int,
    fallback: str | Fallback = "brake",
) -> MonitorTrial:
    """Run the same layouts twice. First the monitor only watches, then it acts."""
    with worlds_for(policy, min(episodes, _WORLDS), seed) as env:
        alone = watch(policy.algo, env, limits, episodes, _TRIAL + seed)
        guarded = watch(policy.algo, env, limits, episodes, _TRIAL + seed, fallback)
    safe, broken = ([e for e in alone if e.safe is kind] for kind in (True, False))
    leads = [e.lead for e in broken if e.lead is not None]
    return MonitorTrial(
        suite=policy.spec.name,
        algo=policy.algo.name,
        episodes=episodes,
        asked=limits["false_alarms"],
        violations=(_share(alone, "violated"), _share(guarded, "violated")),
        success=(_mean(alone, "success"), _mean(guarded, "success")),
        mean_return=(_mean(alone, "total"), _mean(guarded, "total")),
        false_alarms=_share(safe, "stopped"),
        warned=_share(safe, "warned"),
        foreseen=_share(broken, "lead"),
        lead=float(np.median(leads)) * policy.spec.control_dt if leads else None,
    )


def _mean(episodes: Sequence[WatchedEpisode], name: str) -> float:
    return float(np.mean([getattr(e, name) for e in episodes]))


def _share(episodes: Sequence[WatchedEpisode], event: str) -> Interval | None:
    """The share of episodes in which something happened, with its exact 95 % interval."""
    if not episodes:
        return None
    return rate_interval(sum(getattr(e, event) is not None for e in episodes), len(episodes))
