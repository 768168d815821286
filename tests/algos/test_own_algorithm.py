"""The algorithm of `examples/own_algorithm.py` trains, resumes exactly, and raises its price."""

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from line_env import LineEnv

import statewise
from statewise.training.collect import Collector
from statewise.training.loop import Training

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL = {"steps": 640, "steps_per_epoch": 160, "num_envs": 8, "device": "cpu", "quiet": True,
         "hidden": (8, 8), "critic_iterations": 5, "threads": 1, "tensorboard": False}  # fmt: skip
CLOCK = ("time/", "memory/")


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example's module, imported as `--import own_algorithm` does in its folder."""
    monkeypatch.syspath_prepend(EXAMPLES)
    yield importlib.import_module("own_algorithm")
    sys.modules.pop("own_algorithm")


def epochs_of(run: Path) -> list[dict[str, float]]:
    """The metrics of each epoch, without the clock."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    return [{k: v for k, v in row.items() if not k.startswith(CLOCK)} for row in rows]


def test_it_trains_under_its_name_with_its_settings(example: Any, tmp_path: Path) -> None:
    run = statewise.train("Point-Hazard-8", "trpo_pid", out=tmp_path, kp=0.5, **SMALL)
    assert run == tmp_path / "Point-Hazard-8" / "trpo_pid" / "seed-0"
    assert json.loads((run / "config.json").read_text())["algorithm"]["kp"] == 0.5
    rows = epochs_of(run)
    assert len(rows) == 4 and all(row["policy/step_accepted"] == 1.0 for row in rows[1:])
    for key in ("price", "integral", "violation"):
        assert all(f"constraint/hazard/{key}" in row for row in rows[1:])
    assert statewise.load_policy(run).algo.title == "TRPO-PID"


def test_a_stopped_run_continues_as_if_it_had_not_been(example: Any, tmp_path: Path) -> None:
    whole, stopped = (
        statewise.train("Point-Hazard-8", "trpo_pid", out=tmp_path / out, **SMALL | more)
        for out, more in (
            ("whole", {}),
            ("stopped", {"checkpoint_every": 2, "keep_checkpoints": 9}),
        )
    )
    for file in (stopped / "checkpoints").glob("epoch-*4.ckpt"):
        file.unlink()
    training = Training.resume(stopped)
    assert training.epoch == 2
    statewise.resume(stopped, quiet=True)
    assert epochs_of(stopped) == epochs_of(whole)
    a, b = (statewise.load_policy(run).algo.state_dict() for run in (whole, stopped))
    for name, value in a["extra"].items():
        assert torch.equal(value, b["extra"][name])


def test_the_price_rises_while_the_limit_is_violated_and_falls_to_zero_when_it_is_met(
    example: Any,
) -> None:
    env = LineEnv(16)
    algo = example.TrpoPid(env.spec, example.TrpoPidSettings(cost_limit=(0.5,)), 20, 0)
    prices = []
    for algo.epoch in range(1, 11):
        cost = torch.tensor([2.0 if algo.epoch <= 5 else 0.0]).double()
        prices.append(float(algo.control(cost, algo.settings.violation(cost))))
    # 1.5 too much: 0.1 · 1.5 at once, and 0.01 · 1.5 more in every epoch.
    assert prices[:5] == pytest.approx([0.165, 0.18, 0.195, 0.21, 0.225])
    assert prices[5:] == sorted(prices[5:], reverse=True) and prices[-1] < 0.1 * prices[4]


def test_a_priced_cost_is_lower_than_a_free_one(example: Any) -> None:
    costs = []
    for scale in (0.0, 20.0):
        settings = example.TrpoPidSettings(
            hidden=(16, 16), critic_iterations=20, critic_batch=512, log_std=-1.0,
            kp=0.1 * scale, ki=0.01 * scale, kd=0.1 * scale,
        )  # fmt: skip
        env = LineEnv(64)
        algo = example.TrpoPid(env.spec, settings, 40, 0)
        collector = Collector(env, algo, 1)
        metrics = [algo.update(collector.collect(16)[0]) for _ in range(40)]
        costs.append(metrics[-1]["constraint/edge0/estimate"])
    assert costs[1] < 0.5 * costs[0]


def test_ranges_of_its_settings_are_checked(example: Any) -> None:
    with pytest.raises(ValueError, match="kp is -1: give a number, 0 or more"):
        example.TrpoPidSettings(kp=-1)
    with pytest.raises(ValueError, match="smoothing is 1: give a number, 0 or more, below 1"):
        example.TrpoPidSettings(smoothing=1)
