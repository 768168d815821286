"""The default settings of SCPO solve small tasks that they were not tuned on. Takes minutes."""

from pathlib import Path

import pytest

import statewise

TASKS = {
    "DockingCart-v0": "own_environment",  # of examples/
    "Tank-v0": "small_tasks",
    "Crane-v0": "small_tasks",
    "Lander-v0": "small_tasks",
}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("task", list(TASKS))
def test_a_small_task_is_solved_without_a_violation(
    task: str, seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = Path(__file__).parent
    monkeypatch.syspath_prepend(here)
    monkeypatch.syspath_prepend(here.parent / "examples")
    run = statewise.train(
        f"gym:{task}", imports=(TASKS[task],), steps=300_000, num_envs=20, steps_per_epoch=4000,
        seed=seed, out=str(tmp_path), threads=1, quiet=True,
    )  # fmt: skip
    result = statewise.evaluate(run, episodes=200)
    assert result.success >= 0.95
    assert [c.violations for c in result.constraints] == [0] * len(result.constraints)
