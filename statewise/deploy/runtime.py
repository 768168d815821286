"""Run an exported policy and watch over it. Needs numpy and onnxruntime, and nothing else.

    policy, monitor = Policy("bundle"), Monitor.from_bundle("bundle")
    action = monitor.act(policy, observation, clearance).action

`Policy` runs `policy.onnx` and keeps the running maximum of the costs. `Monitor` compares what goes in
and out with limits, and replaces the action by a fallback when it has to stop. It fails closed.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

FORMAT = "statewise bundle 1"
OK, WARNING, STOP = "ok", "warning", "stop"
_AT_BOUND = 0.999
"""A component of an action beyond this, up to 1, is at its bound."""
_LOOK_AHEAD = 0.2
"""Seconds by which a clearance is extrapolated at its present rate."""
Fallback = Callable[[np.ndarray], Any]


class BundleError(ValueError):
    """A bundle cannot be used: incomplete, changed, or too new for what is installed."""


# The bundle ------------------------------------------------------------------------------------


def verify_bundle(folder: str | Path) -> dict[str, Any]:
    """Return the content of `policy.json` if all files are as they were exported.

    The hashes are inside the bundle. So this finds damage and mixed-up files, not an attacker.
    """
    folder = Path(folder)
    facts = _read_facts(folder)
    for name, digest in facts["manifest"].items():
        path = folder / name
        if not path.is_file():
            raise BundleError(f"{folder} has no {name}: export the policy again")
        if hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            raise BundleError(
                f"{path} was changed after the export: its hash is not the one in policy.json. Export "
                f"the policy again"
            )
    if (folder / "certificate.json").exists() and "certificate.json" not in facts["manifest"]:
        raise BundleError(
            f"{folder / 'certificate.json'} was added after the export, so nothing ties it to this "
            f"policy: remove it, or export again"
        )
    return facts


def _read_facts(folder: Path) -> dict[str, Any]:
    """The content of `policy.json`, if it is as it was written."""
    path = folder / "policy.json"
    if not path.is_file():
        raise BundleError(f"{folder} is not a bundle: it has no policy.json")
    try:
        facts = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, UnicodeError) as error:
        raise BundleError(f"{path} is damaged ({error}): export the policy again") from None
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        found = facts.get("format") if isinstance(facts, dict) else type(facts).__name__
        raise BundleError(f"{path} has the format {found!r}: this runtime reads {FORMAT!r}")
    if facts.get("sha256") != facts_digest(facts):
        raise BundleError(f"{path} was changed after the export: its hash does not fit its content")
    return facts


def facts_digest(facts: dict[str, Any]) -> str:
    """The hash of everything in `policy.json` but the hash itself."""
    rest = {key: value for key, value in facts.items() if key != "sha256"}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()


def open_session(model: str | bytes, oldest: str, opset: int) -> Any:
    """An onnxruntime session on one CPU thread; BundleError if onnxruntime is missing or too old."""
    try:
        import onnxruntime
    except ImportError:
        raise BundleError("onnxruntime is not installed: pip install onnxruntime") from None
    here = onnxruntime.__version__
    if _version(here) < _version(oldest):
        raise BundleError(
            f"onnxruntime {here} is too old for this bundle, which uses opset {opset}: install "
            f"onnxruntime {oldest} or newer"
        )
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])


def _version(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(".")[:2])


# The policy ------------------------------------------------------------------------------------


class Policy:
    """An exported policy, and the largest costs since its episodes began.

    Give one observation `[n]` or a batch `[B, n]`. `measured` is what `policy.json` asks for, clearance
    or cost: `[m]` or `[B, m]`, of the step that led to the observation. It may be None in the first
    step of an episode, and always if `needs_cost` is false.
    """

    def __init__(self, folder: str | Path) -> None:
        self.facts = verify_bundle(folder)
        self.obs_size: int = self.facts["inputs"][0]["size"]
        self.constraints: list[str] = self.facts["constraints"]
        self.measured: str = self.facts["measured"]
        self.needs_cost: bool = self.facts["needs_cost"]
        needs = self.facts["onnx"]
        path = str(Path(folder) / "policy.onnx")
        self._session = open_session(path, needs["onnxruntime"], needs["opset"])
        self._nothing = np.float32(np.inf if self.measured == "clearance" else 0.0)
        """What is measured before the first step: infinite clearance, or no cost."""
        self.reset()

    def reset(self, rows: Any = None) -> None:
        """Begin new episodes: all of them, or the rows of a batch that a mask `[B]` selects.

        What is measured of those rows in the next call is ignored: a batched environment still
        reports the episode that ended there.
        """
        if rows is None:
            self.maximum: np.ndarray | None = None
            """[B, m] largest cost of each episode so far, with the training margin"""
            self.cost_value: np.ndarray | None = None
            """[m] or [B, m] predicted cost of the last call"""
            self._begun: np.ndarray | None = None
            return
        mask = np.asarray(rows, dtype=bool)
        if self.maximum is None or mask.shape != (len(self.maximum),):
            raise ValueError("reset(rows) takes one truth value for each row of the last batch")
        self.maximum = np.where(mask[:, None], np.float32(0), self.maximum)
        self._begun = mask if self._begun is None else self._begun | mask

    def __call__(self, observation: Any, measured: Any = None) -> np.ndarray:
        """The action `[a]` or `[B, a]`, each component from -1 to 1."""
        obs = np.asarray(observation, dtype=np.float32)
        single = obs.ndim == 1
        obs = obs[None] if single else obs
        if obs.ndim != 2 or obs.shape[1] != self.obs_size:
            raise ValueError(
                f"the observation has shape {np.shape(observation)}: give [{self.obs_size}] or a "
                f"batch [B, {self.obs_size}]"
            )
        if not np.isfinite(obs).all():
            raise ValueError("the observation is not finite")
        feeds = {"observation": obs}
        if self.constraints:
            feeds |= self._feed(measured, len(obs))
        action, *rest = self._session.run(None, feeds)
        if rest:
            self.maximum, self._begun = rest[0], None
        self.cost_value = (rest[1][0] if single else rest[1]) if len(rest) > 1 else None
        return np.asarray(action[0] if single else action)

    def _feed(self, measured: Any, batch: int) -> dict[str, np.ndarray]:
        """Inputs of the graph beside the observation."""
        shape = (batch, len(self.constraints))
        first = self.maximum is None
        maximum = np.zeros(shape, np.float32) if self.maximum is None else self.maximum
        if len(maximum) != batch:
            raise ValueError(
                f"the batch has {batch} rows, the one before had {len(maximum)}: call reset() when new "
                f"episodes begin"
            )
        if measured is None:
            if self.needs_cost and not first and (self._begun is None or not self._begun.all()):
                raise ValueError(
                    f"give the {self.measured} of the step just taken: this policy acts on it (or call "
                    f"reset(), if an episode begins)"
                )
            given = np.full(shape, self._nothing)
        else:
            given = self._check_measured(np.asarray(measured, dtype=np.float32), shape)
        if self._begun is not None:
            given = np.where(self._begun[:, None], self._nothing, given)
        return {self.measured: given, "maximum": maximum}

    def _check_measured(self, given: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
        if given.size != shape[0] * shape[1]:
            raise ValueError(
                f"the {self.measured} has {given.size} numbers: give one for each constraint "
                f"({', '.join(self.constraints)}) of each of {shape[0]} rows"
            )
        if not np.isfinite(given).all() or (self.measured == "cost" and (given < 0).any()):
            raise ValueError(
                f"the {self.measured} is {given.tolist()}: it must be finite"
                + (", and costs are never negative" if self.measured == "cost" else "")
            )
        return given.reshape(shape)


# The monitor -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Verdict:
    """What the monitor says about one step."""

    level: str
    """ok, warning or stop"""
    reasons: tuple[str, ...]
    """Why it is not ok; empty while a stop is held although nothing is wrong any more"""
    action: np.ndarray
    """[a] what to execute: the policy's action, or that of the fallback on a stop"""


class Monitor:
    """Watches over a policy, step by step, and switches to a fallback when it has to stop.

    Call `act(policy, observation, measured)`, or `check` with an action of your own. Each signal has a
    limit for a warning and one for a stop. A stop ends after `release` steps in a row that are ok.
    Inputs that are missing, late, not finite or of a wrong size are a stop, and so is an exception.

    limits: the part `monitor` of `policy.json`.
    fallback: "brake" (against the measured velocity, or action 0 if no such law is known), "hold" (the
        last action that was ok), or a function from the observation to an action.
    release: steps after which a stop ends; 0 never ends it. None takes one second.
    clock: seconds, to find late inputs. None does not look at the time unless `stamp` is given.
    """

    def __init__(
        self,
        limits: dict[str, Any],
        fallback: str | Fallback = "brake",
        release: int | None = None,
        clock: Callable[[], float] | None = time.monotonic,
    ) -> None:
        if isinstance(fallback, str) and fallback not in ("brake", "hold"):
            raise ValueError(f"fallback is {fallback!r}: give 'brake', 'hold' or a function")
        self.limits, self.fallback, self.clock = limits, fallback, clock
        self.constraints: list[str] = limits["constraints"]
        self.release = round(1.0 / limits["control_dt"]) if release is None else release
        self._is_cost = limits["measured"] == "cost"
        self._centre = np.array(limits["observation"]["centre"], dtype=np.float64)
        self._width = _limits(limits["observation"]["width"])
        self._action_shape = (limits["action_size"],)
        self._predicts = bool(limits["predicts_cost"])
        self.signals: list[str] = limits["signals"]
        """What is compared with limits, see `signal_names`."""
        self._steps_ahead = _LOOK_AHEAD / limits["control_dt"]
        self._warn, self._stop = _limits(limits[WARNING]), _limits(limits[STOP])
        self._least = np.full(len(self.signals), -np.inf)
        self._late = [factor * limits["control_dt"] for factor in limits["late"]]
        self.reset()

    @classmethod
    def from_bundle(cls, folder: str | Path, **settings: Any) -> Monitor:
        """The monitor of a bundle, with the limits that were calibrated for it."""
        return cls(verify_bundle(folder)["monitor"], **settings)

    def reset(self) -> None:
        """Begin an episode."""
        self.maximum = np.zeros(len(self.constraints))
        """[m] largest cost, or depth of a violation, since the episode began"""
        self.extremes = self._least.copy()
        """The largest value of each signal since the episode began."""
        self.stopped = False
        self._calm, self._saturated = 0, 0
        self._last: float | None = None
        self._good = np.zeros(self._action_shape)
        self._danger: np.ndarray | None = None
        self._started = False

    def act(
        self,
        policy: Callable[..., Any],
        observation: Any,
        measured: Any,
        stamp: float | None = None,
    ) -> Verdict:
        """Ask the policy for an action and check it. If the policy raises an exception, stop."""
        try:
            action = policy(observation, measured)
            value = getattr(policy, "cost_value", None)
        except Exception as error:  # noqa: BLE001 - whatever it is, the robot has to stop
            return self._conclude(observation, None, [f"{type(error).__name__}: {error}"], [])
        return self.check(observation, measured, action, value, stamp)

    def check(
        self,
        observation: Any,
        measured: Any,
        action: Any,
        cost_value: Any = None,
        stamp: float | None = None,
    ) -> Verdict:
        """Compare one step with the limits.

        measured: clearances or costs `[m]`; None only in the first step of an episode.
        cost_value: `[m]` what the policy predicts, if it does.
        stamp: when the observation was measured, in seconds; if not given, the clock is read.
        """
        faults, warns = self._lateness(stamp)
        if measured is None and not self._started:
            measured = np.zeros(len(self.constraints)) if self._is_cost else self._far
        self._started = True
        m = (len(self.constraints),)
        obs = _array(observation, self._centre.shape, "observation", faults)
        near = _array(measured, m, self.limits["measured"], faults, not self._is_cost)
        act = _array(action, self._action_shape, "action", faults)
        value = _array(cost_value, m, "cost value", faults) if self._predicts else None
        if faults:
            return self._conclude(observation, None, faults, [])
        assert obs is not None and near is not None and act is not None
        danger = near if self._is_cost else -near
        if self._is_cost and danger.size and danger.min() < 0.0:
            return self._conclude(obs, None, [f"the cost is negative: {danger.min():.4g}"], [])
        np.maximum(self.maximum, danger, out=self.maximum)
        parts = [danger]
        if not self._is_cost:
            parts.append(danger + self._rise(danger))
        if value is not None:
            parts.append(value)
        at_bound = np.abs(act).max() >= _AT_BOUND
        self._saturated = self._saturated + 1 if at_bound else 0
        outside = (np.abs(obs - self._centre) / self._width).max()
        parts.append(np.array((outside, self._saturated)))
        signals = np.concatenate(parts)
        np.maximum(self.extremes, signals, out=self.extremes)
        bad, poor = signals > self._stop, signals > self._warn
        stops = self._describe(signals, self._stop, bad) if bad.any() else []
        warns += self._describe(signals, self._warn, poor & ~bad) if poor.any() else []
        return self._conclude(obs, act, stops, warns)

    def _rise(self, danger: np.ndarray) -> np.ndarray:
        """[m] how much closer a constraint will be after the look-ahead, at the present rate."""
        last, self._danger = self._danger, danger
        if last is None:
            return np.zeros(len(danger))
        both = np.isfinite(danger) & np.isfinite(last)
        rise = np.subtract(danger, last, out=np.zeros(len(danger)), where=both)
        return np.maximum(rise, 0.0) * self._steps_ahead

    @property
    def _far(self) -> np.ndarray:
        return np.full(len(self.constraints), np.inf)

    def _lateness(self, stamp: float | None) -> tuple[list[str], list[str]]:
        """What is wrong with the time of this step: reasons to stop, and to warn."""
        now = stamp if stamp is not None else self.clock() if self.clock else None
        last, self._last = self._last, now
        if now is None or last is None:
            return [], []
        gap = now - last
        if not gap > 0.0:
            return [f"the time did not advance: {last:g} s, then {now:g} s"], []
        late = [f"late: {gap:.3g} s since the last step"]
        warning, stop = self._late
        return (late, []) if gap > stop else ([], late if gap > warning else [])

    def _describe(self, values: np.ndarray, limits: np.ndarray, which: np.ndarray) -> list[str]:
        return [
            f"{self.signals[i]}: {values[i]:.4g}, limit {limits[i]:.4g}" for i in which.nonzero()[0]
        ]

    def _conclude(
        self, observation: Any, action: np.ndarray | None, stops: list[str], warns: list[str]
    ) -> Verdict:
        """Level and action of a step. Stops are held until all is ok for `release` steps."""
        if stops:
            self.stopped, self._calm = True, 0
        elif self.stopped:
            self._calm = 0 if warns else self._calm + 1
            self.stopped = not (self.release and self._calm >= self.release)
        reasons = (*stops, *warns)
        if self.stopped or action is None:
            return Verdict(STOP, reasons, self._fall_back(observation))
        if not warns:
            self._good = action
        return Verdict(WARNING if warns else OK, reasons, action)

    def _fall_back(self, observation: Any) -> np.ndarray:
        """The action of the fallback, or 0 if it gives none that can be executed."""
        zero = np.zeros(self._action_shape)
        if self.fallback == "hold":
            return self._good
        if self.fallback == "brake":
            law, obs = self.limits["brake"], _array(observation, self._centre.shape, "", [])
            if law is None or obs is None:
                return zero
            return (-np.array(law["gain"]) @ obs[law["start"] : law["stop"]]).clip(-1.0, 1.0)
        assert callable(self.fallback)
        try:
            action = _array(self.fallback(observation), self._action_shape, "action", [])
        except Exception:  # noqa: BLE001 - the last resort cannot raise
            return zero
        return zero if action is None else action.clip(-1.0, 1.0)


def signal_names(constraints: list[str], measured: str, predicts_cost: bool) -> list[str]:
    """The names of a monitor's signals, in order. A larger value is always the worse one."""
    names = [f"closeness to {name}" for name in constraints]
    if measured == "clearance":
        names += [f"closeness to {name} in {_LOOK_AHEAD} s" for name in constraints]
    if predicts_cost:
        names += [f"predicted cost of {name}" for name in constraints]
    return [*names, "observation out of range", "steps with an action at its bound"]


def _limits(values: list[float | None]) -> np.ndarray:
    """Limits as an array. None is no limit."""
    return np.array([np.inf if x is None else x for x in values], dtype=np.float64)


def _array(
    x: Any, shape: tuple[int, ...], name: str, faults: list[str], far: bool = False
) -> np.ndarray | None:
    """x as numbers of a shape; None, and a fault, if it is not that or not finite.

    far: +inf is allowed, for a clearance where nothing is near.
    """
    if x is None:
        faults.append(f"no {name} was given")
        return None
    try:
        array = np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError):
        faults.append(f"the {name} is not an array of numbers")
        return None
    array = array.reshape(1) if array.ndim == 0 else array
    if array.shape != shape:
        faults.append(f"the {name} has shape {array.shape} instead of {shape}")
        return None
    if not (np.isfinite(array).all() or (far and (array > -np.inf).all())):
        faults.append(f"the {name} is not finite")
        return None
    return array
