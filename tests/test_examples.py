"""The examples run."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import statewise
from statewise.bench.grid import product_grid
from statewise.envs import robots
from statewise.envs.constraints import CONSTRAINTS
from statewise.envs.registry import Registry
from statewise.envs.tasks import TASKS

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture(autouse=True)
def nothing_is_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(robots, "_ROBOTS", dict(robots._ROBOTS))
    for registry in (CONSTRAINTS, TASKS):
        monkeypatch.setattr(registry, "entries", dict(registry.entries))
    monkeypatch.setattr(Registry, "taken", dict(Registry.taken))


def example(name: str) -> dict[str, Any]:
    """What the example defines; its main is not run."""
    return runpy.run_path(str(EXAMPLES / f"{name}.py"))


def test_own_robot_drives_to_its_goals(capsys: pytest.CaptureFixture[str]) -> None:
    result = example("own_robot")["main"](num_envs=16, steps=250)
    assert result["goals"] >= 16  # every sled about once, or more
    assert 0.0 <= result["hazard"] < 0.3 and 0.0 <= result["pillar"] < 0.5
    assert "95 observations, 2 actions" in capsys.readouterr().out


def test_own_robot_goes_through_gymnasium_too() -> None:
    gymnasium = pytest.importorskip("gymnasium")
    statewise.register_robot("Sled", EXAMPLES / "own_robot.xml")
    env = gymnasium.make("statewise/Goal-v0", suite="Sled-Pillar-1")
    obs, _ = env.reset(seed=0)
    assert obs in env.observation_space and env.action_space.shape == (2,)


def test_own_robot_trains_in_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(EXAMPLES)
    monkeypatch.syspath_prepend(EXAMPLES)
    monkeypatch.delitem(sys.modules, "own_robot", raising=False)
    given = {"imports": ("own_robot",), "num_envs": 8}
    (spec,) = product_grid(["Sled-Hazard-8"], ["trpo"], (0,), given=given).specs
    train, _ = spec.resolve("runs")
    assert (train.suite, train.imports) == ("Sled-Hazard-8", ("own_robot",))
    sys.modules.pop("own_robot")  # it registers its robot when it is imported, which is undone


@pytest.mark.parametrize("sensor", ["magnetometer", "root_pos", "root_y"])
def test_own_robot_gets_a_sensor_that_its_file_lacks(sensor: str, tmp_path: Path) -> None:
    lines = (EXAMPLES / "own_robot.xml").read_text().splitlines()
    file = tmp_path / "sled.xml"
    file.write_text("\n".join(line for line in lines if f'name="{sensor}"' not in line))
    statewise.register_robot("Sled", file)
    whole = statewise.register_robot("Whole", EXAMPLES / "own_robot.xml")
    steps = [statewise.make_env(f"{name}-Hazard-4").reset(seed=0) for name in ("Sled", whole.name)]
    assert torch.equal(steps[0].obs, steps[1].obs)


def test_quadruped_trots_inside_its_limits() -> None:
    result = example("quadruped")["main"](num_envs=4, steps=100)
    assert result["speed"] > 0.2 and result["falls"] == 0
    assert result["speed limit"] > 0 and result["tilt limit"] > 0


def test_the_noise_of_a_new_policy_does_not_tip_the_quadruped() -> None:
    example("quadruped")
    env = statewise.make_env("Quad-Run-Speed-1.5-Tilt-30", 8)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(150):
        step = env.step(0.6 * torch.randn(8, 12, generator=generator))
    assert bool((step.min_clearance[:, 1] > 0).all())


def test_boxes_are_pushed_to_their_goals() -> None:
    result = example("pushed_box")["main"](num_envs=16, steps=700)
    assert result["pushed"] >= 8 and 0 < result["violated"] < result["episodes"]


def test_cart_keeps_clear_of_walking_people() -> None:
    main = example("walking_person")["main"]
    careful, careless = (main(num_envs=16, steps=250, care=care) for care in (1.0, 0.0))
    assert careful["close"] < 0.5 * careless["close"] and careful["goals"] >= 16


def test_own_constraint_is_ten_lines_that_random_driving_breaks() -> None:
    text = (EXAMPLES / "own_constraint.py").read_text()
    assert len(text.split("@statewise.constraint")[1].split("\n\n\n")[0].splitlines()) <= 10
    result = example("own_constraint")["main"](num_envs=8, steps=50)
    assert -2.0 <= result["clearance"] < 0 and 0 < result["broken"] <= 1


def test_own_task_is_sixty_lines_and_robots_park() -> None:
    assert len((EXAMPLES / "own_task.py").read_text().splitlines()) <= 60
    assert example("own_task")["main"](num_envs=16, steps=300) >= 8


def test_gymnasium_ppo_trains_and_reports(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("stable_baselines3")
    example("gymnasium_ppo")["main"](steps=64, episodes=1)
    printed = capsys.readouterr().out
    assert "before: return" in printed and "after: return" in printed
