"""A monitor stops when it should, fails closed, and keeps its false alarms to what was asked for."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import statewise
from statewise.cli import main
from statewise.deploy import Monitor, runtime
from statewise.deploy.monitor import (
    WatchedEpisode,
    _order_statistic,
    _shares,
    _uncalibrated,
    calibrate,
    try_monitor,
    watch,
)
from statewise.training.evaluate import _FRESH, run_episodes
from statewise.training.policy import worlds_for

N, A = 4, 2
LIMITS: dict[str, Any] = {
    "measured": "clearance",
    "constraints": ["hazard"],
    "predicts_cost": True,
    "control_dt": 0.02,
    "action_size": A,
    "signals": runtime.signal_names(["hazard"], "clearance", True),
    "warning": [-0.3, -0.2, 0.1, 1.0, 5],
    "stop": [0.0, -0.1, 0.2, 2.0, 10],
    "late": [1.5, 3.0],
    "brake": None,
    "observation": {"centre": [0.0] * N, "width": [1.0, 1.0, 1.0, None]},
}
OBS, ACTION, FAR, SAFE = np.zeros(N), np.array([0.5, -0.5]), [1.0], [0.0]


def monitor(**settings: Any) -> Monitor:
    return Monitor(LIMITS, **{"clock": None, "release": 3, **settings})


def test_what_is_within_all_limits_is_ok_and_passes() -> None:
    verdict = monitor().check(OBS, FAR, ACTION, SAFE)
    assert (verdict.level, verdict.reasons) == ("ok", ())
    np.testing.assert_array_equal(verdict.action, ACTION)


@pytest.mark.parametrize(
    ("given", "warning", "stop"),
    [
        ("clearance", 0.15, 0.05),
        ("cost_value", 0.15, 0.25),
        ("observation", 1.5, 2.5),
        ("observation", -1.5, -2.5),
    ],
)
def test_each_signal_warns_and_then_stops(given: str, warning: float, stop: float) -> None:
    for value, level in ((warning, "warning"), (stop, "stop")):
        inputs = {"clearance": FAR, "cost_value": SAFE, "observation": OBS}
        inputs[given] = np.array([0, value, 0, 0]) if given == "observation" else [value]
        watching = monitor()
        verdict = watching.check(
            inputs["observation"], inputs["clearance"], ACTION, inputs["cost_value"]
        )
        assert verdict.level == level
        words = {"clearance": "closeness", "cost_value": "predicted", "observation": "range"}
        assert words[given] in verdict.reasons[0]
        assert np.array_equal(verdict.action, ACTION) is (level == "warning")


def test_a_number_that_nothing_reads_is_not_watched() -> None:
    assert monitor().check([0, 0, 0, 1e6], FAR, ACTION, SAFE).level == "ok"


def test_a_fast_approach_stops_before_the_constraint_is_close() -> None:
    watching = monitor()
    levels = [watching.check(OBS, [c], ACTION, SAFE).level for c in (1.0, 0.99, 0.9)]
    # 0.09 in one step of 0.02 s is 0.9 in 0.2 s, which is all of the clearance.
    assert levels == ["ok", "ok", "stop"]
    assert watching.extremes[1] == pytest.approx(0.0, abs=1e-9)


def test_an_action_at_its_bounds_for_long_stops() -> None:
    watching = monitor()
    levels = [watching.check(OBS, FAR, [1.0, 0.0], SAFE).level for _ in range(11)]
    assert levels == ["ok"] * 5 + ["warning"] * 5 + ["stop"]
    watching.reset()
    for step in range(30):
        assert watching.check(OBS, FAR, [1.0 - step % 2, 0.0], SAFE).level == "ok"


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"observation": [0.0, np.nan, 0.0, 0.0]}, "the observation is not finite"),
        ({"observation": [0.0, np.inf, 0.0, 0.0]}, "the observation is not finite"),
        ({"observation": [0.0]}, r"shape \(1,\) instead of \(4,\)"),
        ({"observation": "broken"}, "not an array of numbers"),
        ({"observation": None}, "no observation was given"),
        ({"measured": [np.nan]}, "the clearance is not finite"),
        ({"measured": [-np.inf]}, "the clearance is not finite"),
        ({"measured": [1.0, 1.0]}, r"shape \(2,\) instead of \(1,\)"),
        ({"action": [np.nan, 0.0]}, "the action is not finite"),
        ({"action": None}, "no action was given"),
        ({"cost_value": None}, "no cost value was given"),
        ({"cost_value": [np.inf]}, "the cost value is not finite"),
    ],
)
def test_a_faulty_input_is_a_stop(change: dict[str, Any], reason: str) -> None:
    good = {"observation": OBS, "measured": FAR, "action": ACTION, "cost_value": SAFE}
    verdict = monitor().check(**good | change)
    assert verdict.level == "stop" and not verdict.action.any()
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(*verdict.reasons)


def test_a_clearance_may_be_missing_in_the_first_step_only() -> None:
    watching = monitor()
    assert watching.check(OBS, None, ACTION, SAFE).level == "ok"
    verdict = watching.check(OBS, None, ACTION, SAFE)
    assert verdict.level == "stop" and "no clearance" in verdict.reasons[0]


def test_a_policy_that_raises_is_a_stop() -> None:
    def policy(observation: Any, measured: Any) -> np.ndarray:
        raise MemoryError("out of memory")

    verdict = monitor().act(policy, OBS, FAR)
    assert verdict.level == "stop" and verdict.reasons == ("MemoryError: out of memory",)
    assert not verdict.action.any()


def test_late_steps_warn_and_stop_and_a_stuck_clock_stops() -> None:
    now = [0.0]
    watching = monitor(clock=lambda: now[0])
    levels = []
    for later in (0.0, 0.02, 0.035, 0.1):
        now[0] += later
        levels.append(watching.check(OBS, FAR, ACTION, SAFE).level)
    assert levels == ["ok", "ok", "warning", "stop"]
    watching.reset()
    stamps = [5.0, 5.02, 5.02]
    levels = [watching.check(OBS, FAR, ACTION, SAFE, stamp=s).level for s in stamps]
    assert levels == ["ok", "ok", "stop"]


def test_a_stop_is_held_until_all_is_ok_for_some_steps() -> None:
    watching = monitor(release=3)
    clearances = [-0.1, 1.0, 1.0, 0.15, 1.0, 1.0, 1.0, 1.0]
    levels = [watching.check(OBS, [c], ACTION, SAFE).level for c in clearances]
    assert levels == ["stop"] * 6 + ["ok", "ok"]
    assert watching.maximum[0] == pytest.approx(0.1)
    for_ever = monitor(release=0)
    for_ever.check(OBS, [-0.1], ACTION, SAFE)
    assert {for_ever.check(OBS, FAR, ACTION, SAFE).level for _ in range(500)} == {"stop"}


def test_the_fallback_is_what_was_asked_for() -> None:
    def stopped(fallback: Any, limits: dict[str, Any] = LIMITS) -> list[float]:
        watching = Monitor(limits, fallback, clock=None)
        watching.check(OBS, FAR, ACTION, SAFE)
        found: list[float] = watching.check(
            [0.3, 0, 0, 0], [-0.1], [1.0, 1.0], SAFE
        ).action.tolist()
        return found

    law = LIMITS | {"brake": {"start": 0, "stop": 1, "gain": [[2.0], [0.0]]}}
    assert stopped("brake") == [0.0, 0.0]
    assert stopped("brake", law) == [-0.6, 0.0]
    assert stopped("hold") == [0.5, -0.5]
    assert stopped(lambda obs: [obs[0], 7.0]) == [0.3, 1.0]
    for broken in (lambda obs: obs[9], lambda obs: [np.nan, 0.0], lambda obs: [0.0]):
        assert stopped(broken) == [0.0, 0.0]
    with pytest.raises(ValueError, match="fallback is 'jump'"):
        Monitor(LIMITS, "jump")


def test_the_monitor_needs_numpy_only() -> None:
    script = """
import sys, importlib.util
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "statewise", "onnxruntime", "onnx", "scipy"):
            raise ImportError(name)
sys.meta_path.insert(0, Refuse())
spec = importlib.util.spec_from_file_location("runtime", sys.argv[1])
module = importlib.util.module_from_spec(spec)
sys.modules["runtime"] = module
spec.loader.exec_module(module)
module.Monitor
"""
    subprocess.run([sys.executable, "-I", "-c", script, runtime.__file__], check=True)


# Limits ----------------------------------------------------------------------------------------


def test_a_limit_is_exceeded_as_rarely_as_was_asked_for() -> None:
    generator, share = np.random.default_rng(0), 0.05
    exceeded = [
        np.mean(
            generator.lognormal(size=200) > _order_statistic(generator.lognormal(size=59), share)
        )
        for _ in range(400)
    ]
    # By exchangeability the mean is (60 - ceil(60 * 0.95)) / 60 = 0.05; its standard error is 0.0014.
    assert np.mean(exceeded) == pytest.approx(0.05, abs=0.005)


@pytest.mark.parametrize("constraints", [["a"], ["a", "b"]])
@pytest.mark.parametrize("measured", ["clearance", "cost"])
@pytest.mark.parametrize("predicts", [True, False])
def test_the_signals_share_the_false_alarms(
    constraints: list[str], measured: str, predicts: bool
) -> None:
    signals = runtime.signal_names(constraints, measured, predicts)
    shares = _shares(signals, len(constraints))
    assert sum(shares) == pytest.approx(1.0) and len(shares) == len(signals)
    assert [s == 0 for s in shares] == [i < len(constraints) for i in range(len(signals))]


def test_too_few_safe_episodes_for_so_few_false_alarms_are_refused(small_run: Path) -> None:
    policy = statewise.load_policy(small_run)
    with pytest.raises(ValueError, match="takes 889 of them: run more episodes"):
        calibrate(policy, "clearance", 0.01, 0.1, episodes=2, seed=0)
    with pytest.raises(ValueError, match=r"false_alarms is 0\.0"):
        calibrate(policy, "clearance", 0.0, 0.1, episodes=2, seed=0)


def test_lead_time_counts_stops_before_the_violation_only() -> None:
    assert WatchedEpisode(violated=10, stopped=7).lead == 3
    assert WatchedEpisode(violated=10, stopped=10).lead is None
    assert WatchedEpisode(violated=10).lead is None and WatchedEpisode(stopped=3).lead is None


def test_a_monitor_that_looks_on_changes_nothing(small_run: Path) -> None:
    policy = statewise.load_policy(small_run)
    limits = _uncalibrated(policy.algo, "clearance")
    with worlds_for(policy, 4, 0) as env:
        watched = watch(policy.algo, env, limits, 4, _FRESH + 5)
        plain = run_episodes(policy.algo, env, 4, 5)
    assert sorted(e.length for e in watched) == sorted(plain.length.tolist())
    assert sorted(e.total for e in watched) == pytest.approx(
        sorted(plain.returns.tolist()), abs=1e-3
    )
    safe = (plain.cost_max == 0).all(dim=1)
    assert sum(e.safe for e in watched) == int(safe.sum())
    for e in watched:  # without limits only a broken constraint is a stop, in the next step
        assert e.stopped == (None if e.violated in (None, e.length) else e.violated)


def test_a_trial_compares_the_same_episodes_without_and_with_the_monitor(small_run: Path) -> None:
    policy = statewise.load_policy(small_run)
    limits = _uncalibrated(policy.algo, "clearance") | {"false_alarms": 0.5}
    limits["stop"] = [
        0.0,
        None,
        -1.0,
        None,
        None,
    ]  # predicted costs are never below 0: always a stop
    found = try_monitor(policy, limits, 4, 0)
    assert found.success[1] == 0.0
    assert found.violations[1] is not None and found.violations[1].estimate == 0.0
    assert found.false_alarms is None or found.false_alarms.estimate == 1.0


def test_evaluate_shows_what_a_monitor_does(
    small_run: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
) -> None:
    policy = statewise.load_policy(small_run)
    limits = _uncalibrated(policy.algo, "clearance") | {"false_alarms": 0.3}
    asked: list[tuple[Any, ...]] = []

    def calibrated(*given: Any) -> dict[str, Any]:
        asked.append(given[1:5])
        return limits

    monkeypatch.setattr("statewise.deploy.monitor_trial.calibrate", calibrated)
    out, run = tmp_path / "numbers.json", str(small_run)
    given = ["--episodes", "2", "--false-alarms", "0.3", "--worst", "0", "--json", str(out)]
    assert main(["evaluate", run, "--monitor", *given]) == 0
    assert asked == [("clearance", 0.3, 0.9, 500)]
    printed = capsys.readouterr().out
    assert "30 % false alarms" in printed and "safe episodes with a stop" in printed
    assert json.loads(out.read_text())["monitor"]["episodes"] == 2
    assert main(["evaluate", run, "--monitor", "--sampled"]) == 2
    assert "leave out --sampled" in capsys.readouterr().err
