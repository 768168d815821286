"""Bring your own robot: one MJCF file and one line. Then every suite of its name can be built.

    python examples/own_robot.py

`docs/own_robot.md` tells what is found in the file.
"""

from pathlib import Path

import torch
from torch import Tensor

import statewise

SLED = Path(__file__).with_name("own_robot.xml")
statewise.register_robot(
    "Sled", SLED, replace=True
)  # here, so that `--import own_robot` does it too


def main(num_envs: int = 64, steps: int = 500) -> dict[str, float]:
    """Race sleds to their goals; how many got there, and what it cost."""
    env = statewise.make_env("Sled-Hazard-4-Pillar-2", num_envs)
    print(f"{env.spec.name}: {env.spec.obs_size} observations, {env.spec.action_size} actions,")
    print(f"costs {', '.join(env.spec.cost_names)}, {1 / env.spec.control_dt:.0f} steps a second")

    step = env.reset(seed=0)
    goals, cost = 0, torch.zeros(env.spec.num_costs)
    for _ in range(steps):
        step = env.step(steer(step.obs[:, env.spec.blocks["goal_compass"]]))
        goals += int((step.terminated & ~step.sim_fault).sum())
        cost += step.cost.mean(dim=0)

    result = {"goals": goals} | dict(zip(env.spec.cost_names, (cost / steps).tolist(), strict=True))
    print(f"{goals} goals in {num_envs} x {steps} steps; mean cost of a step: "
          + ", ".join(f"{name} {result[name]:.4f}" for name in env.spec.cost_names))  # fmt: skip
    return result


def steer(compass: Tensor) -> Tensor:
    """Heads straight for the goal, through whatever lies between: fans `[B, 2]`, left and right."""
    x, y = compass[:, 0], compass[:, 1]  # the goal is ahead where x is 1, to the left where y is
    turn = torch.where(x > 0, y, torch.sign(y))
    return torch.stack([-0.4 - turn, -0.4 + turn], dim=1).clamp(-1.0, 1.0)


if __name__ == "__main__":
    main()
