"""A constraint that blocks the learning is named, with what can be tried."""

import logging
from pathlib import Path

import pytest

import statewise
from statewise.training.blocked import PATIENCE, BlockedConstraints


def epoch(number: int, capped: float, cost: float = 0.12) -> dict[str, float]:
    return {
        "epoch": number,
        "constraint/torque/capped": capped,
        "constraint/torque/estimate": cost,
        "constraint/torque/violation": cost - 0.01,
    }


def test_a_constraint_above_its_limit_for_long_is_named(caplog: pytest.LogCaptureFixture) -> None:
    blocked = BlockedConstraints(["torque"])
    with caplog.at_level(logging.WARNING, "statewise"):
        for number in range(1, 4):
            blocked.add(epoch(number, 0.0))
        for number in range(4, 4 + PATIENCE - 1):
            blocked.add(epoch(number, 1.0))
        assert not caplog.messages
        assert blocked.add(epoch(3 + PATIENCE, 1.0)) == {"constraint/torque/blocked": PATIENCE}
    (said,) = caplog.messages
    for part in ("torque", "since epoch 4", "0.12", "limit 0.01", "higher cost limit", "margin"):
        assert part in said


def test_an_epoch_within_the_limit_starts_the_count_anew() -> None:
    blocked = BlockedConstraints(["torque"])
    for capped, count in ((1.0, 1), (1.0, 2), (0.0, 0), (1.0, 1)):
        assert blocked.add(epoch(1, capped)) == {"constraint/torque/blocked": count}


def test_a_cost_that_falls_by_a_tenth_starts_the_count_anew() -> None:
    blocked = BlockedConstraints(["torque"])
    for cost, count in ((1.0, 1), (0.95, 2), (0.91, 3), (0.89, 1), (0.85, 2), (0.7, 1)):
        assert blocked.add(epoch(1, 1.0, cost)) == {"constraint/torque/blocked": count}


def test_with_feedback_the_measured_cost_counts_and_its_limit_is_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    blocked = BlockedConstraints(["torque"])
    seen = {"constraint/torque/measured": 0.3, "constraint/torque/limit": 0.005}
    for number in range(1, PATIENCE + 1):
        blocked.add(epoch(number, 1.0, 1.0 / number) | seen)
    assert "it is 0.3, its limit 0.005" in caplog.text


def test_a_resumed_run_continues_the_count() -> None:
    past = [epoch(1, 0.0), epoch(2, 1.0, 0.2), epoch(3, 1.0, 0.12), epoch(4, 1.0, 0.2)]
    blocked = BlockedConstraints(["torque"], past)
    assert blocked.add(epoch(5, 1.0, 0.11)) == {"constraint/torque/blocked": 3}


def test_exploration_that_breaks_a_limit_counts_as_blocked(tmp_path: Path) -> None:
    # Noise in the actions alone exceeds so small a speed, whatever the policy's mean does.
    run = statewise.train(
        "Point-Speed-0.05", out=str(tmp_path), steps=9000, steps_per_epoch=3000, num_envs=3,
        threads=1, quiet=True, cost_feedback=1.0, tightening=0.0,
    )  # fmt: skip
    table = statewise.read_runs(tmp_path)
    assert run.exists()
    # The first epoch only measures inputs. Then so large a gain asks for all it may at once.
    assert table["constraint/speed/blocked"].iloc[-1] == 2
