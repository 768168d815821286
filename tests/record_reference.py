"""Record a few epochs of every algorithm, which `test_reference.py` compares with: run it by hand.

    python tests/record_reference.py

Robots amplify the rounding of another processor within some hundred steps (Point, whose steering
chatters, at once), so they are stepped a few times only. The longer look at each algorithm is on a
line, where rounding stays small.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

import torch
from line_env import LineEnv

import statewise
from statewise.algos import ALGORITHMS, get_algorithm
from statewise.metrics import describe
from statewise.training.collect import Collector

SUITES = ("Swimmer-Hazard-4", "Ant-Hazard-8", "Drone-3DHazard-8-Pillar-1")
WORLDS: dict[str, Any] = {
    "Line, one constraint": lambda: LineEnv(32, num_costs=1),
    "Line, two constraints": lambda: LineEnv(32, num_costs=2, units=(1.0, 0.1)),
    **{name: lambda name=name: statewise.make_env(name, 64, seed=3, threads=1) for name in SUITES},
}
FILE = Path(__file__).parent / "reference.json"
DIGITS = 5


def record(world: str, algo: str) -> list[dict[str, float | None]]:
    """The metrics of each epoch."""
    torch.set_num_threads(1)  # sums of floats depend on their number
    env, kind = WORLDS[world](), get_algorithm(algo)
    wanted = {"hidden": (16, 16), "critic_iterations": 10, "critic_batch": 0, "fisher_states": 0}
    known = {f.name for f in dataclasses.fields(kind.settings_class)}
    settings = kind.settings_class(**{k: v for k, v in wanted.items() if k in known})
    epochs = 5 if world.startswith("Line") else 2
    learner = kind(env.spec, settings, epochs, seed=3)
    collector = Collector(env, learner, seed=4, spread_ages=True)
    cost, found = [0.0] * env.spec.num_costs, []
    for epoch in range(1, epochs + 1):
        rollout, episodes = collector.collect(16 if world.startswith("Line") else 6)
        cost = [c + float(rollout.cost[..., i].sum()) for i, c in enumerate(cost)]
        metrics = describe(rollout, episodes, env.spec.cost_names, cost, epoch * rollout.size)
        metrics |= learner.update(rollout)
        found.append({k: v if v is None else float(f"{v:.{DIGITS}g}")
                      for k, v in metrics.items() if "/age_" not in k})  # fmt: skip
    return found


def main() -> None:
    names = [f"{world}: {algo}" for world in WORLDS for algo in ALGORITHMS]
    rows = [json.dumps(name) + ":" + json.dumps(record(*name.split(": ")), separators=(",", ":"))
            for name in names]  # fmt: skip
    FILE.write_text("{\n" + ",\n".join(rows) + "\n}\n")


if __name__ == "__main__":
    main()
