"""The live table of a training: it fits 100 columns, and says what is better than before."""

import io
from types import SimpleNamespace
from typing import Any, cast

from statewise.commands.show import Demo
from statewise.console import PlainConsole
from statewise.training.loop import Training
from statewise.training.view import View


def epoch(number: int, ret: float, violations: float) -> dict[str, Any]:
    return {
        "epoch": number, "steps": 30_000 * number, "episode/count": 90, "episode/return": ret,
        "episode/length": 312.0, "cost/hazard/violation_rate": violations, "policy/case": 2,
        "time/collect": 1.5, "time/update": 0.5, "time/steps_per_second": 15_000.0,
    }  # fmt: skip


def shown(*epochs: dict[str, Any], width: int = 100) -> list[str]:
    spec = SimpleNamespace(cost_names=("hazard",))
    training = SimpleNamespace(
        settings=SimpleNamespace(epochs=200),
        epoch=0,
        finished=False,
        env=SimpleNamespace(spec=spec),
    )
    out = io.StringIO()
    console = PlainConsole(file=out, force_terminal=True, width=width, color_system=None)
    view = View(cast(Training, training), console)
    for metrics in epochs:
        view(metrics)
    out.truncate(0)
    console.print(view.live.renderable)
    return out.getvalue().strip("\0").splitlines()


def test_the_table_fits_100_columns_and_says_what_is_better_and_how_long_it_takes() -> None:
    lines = shown(epoch(1, 1.0, 0.5), epoch(2, 2.0, 0.25))
    assert max(map(len, lines)) <= 100
    rows = {line[:28].strip(): line.split() for line in lines if line.strip()}
    assert rows["return"] == ["return", "2.000", "reward", "per", "episode", "↑", "better", "1.000"]
    assert rows["hazard violation rate"][3:] == [
        "25.0", "%", "of", "the", "episodes", "↓", "better", "50.0", "%",
    ]  # fmt: skip
    assert any("1 epoch ago" in line for line in lines)
    # 198 epochs of 2 s are left.
    assert "0:06:36 left, 15,000 steps/s" in lines[-1]


def test_the_table_is_whole_in_80_columns_too() -> None:
    lines = shown(epoch(1, 1.0, 0.5), epoch(2, 2.0, 0.25), width=80)
    assert max(map(len, lines)) <= 80 and not any("…" in line for line in lines)
    rows = {line[:28].strip(): line.split() for line in lines if line.strip()}
    assert rows["return"] == ["return", "2.000", "↑", "better", "1.000"]
    assert "last update: near the limit" in map(str.strip, lines)


def test_the_speed_is_shown_once() -> None:
    assert sum("steps/s" in line for line in shown(epoch(1, 1.0, 0.1))) == 1


def test_a_worse_number_is_called_worse() -> None:
    lines = shown(epoch(1, 1.0, 0.1), epoch(2, 0.5, 0.2))
    assert sum("worse" in line for line in lines) == 2


def test_the_demo_says_what_its_violations_mean() -> None:
    short, full = ({"constraints": [{"rate": rate}]} for rate in (0.14, 0.021))
    told = Demo().meaning(short, full)
    assert "after 600,000 steps 14.0 % of the episodes still enter a hazard" in told
    assert "6,000,000 steps, as in the paper: 2.1 % of its episodes do" in told
    assert "--margin" in told and max(map(len, told.splitlines())) <= 92
