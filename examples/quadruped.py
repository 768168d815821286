"""A quadruped that trots inside a limit on its speed and on its tilt.

    python examples/quadruped.py

The gait here is written by hand, to see that the robot can walk. To learn one instead:

    cd examples
    statewise train Quad-Run-Speed-1.5-Tilt-30 --import quadruped

`quad.xml` is written as published robots are: a free root, position servos and a keyframe, but no
sensors. `docs/own_robot.md` tells what is found in such a file.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

import statewise

SUITE = "Quad-Run-Speed-1.5-Tilt-30"
PERIOD = 0.3  # seconds of one stride
DIAGONALS = (0.0, math.pi, math.pi, 0.0)  # phases: front left and right, hind left and right

# Here, and not in main, so that `--import quadruped` registers it too.
statewise.register_robot(
    "Quad", Path(__file__).with_name("quad.xml"), steps=3_000_000, replace=True
)


def main(num_envs: int = 16, steps: int = 200) -> dict[str, float]:
    """Trot, and return the mean speed and how close the robots came to each limit."""
    env = statewise.make_env(SUITE, num_envs)
    env.reset(seed=0)
    forward, falls = 0.0, 0
    closest = torch.full((num_envs, env.spec.num_costs), math.inf)
    for i in range(steps):
        step = env.step(trot(i * env.spec.control_dt).expand(num_envs, -1))
        forward += float(step.final_obs[:, env.spec.blocks["velocimeter"]][:, 0].mean()) / steps
        falls += int(step.terminated.sum())
        closest = torch.minimum(closest, step.clearance)

    result = {"speed": forward, "falls": float(falls)}
    limits = [f"{name} limit" for name in env.spec.cost_names]
    result |= dict(zip(limits, closest.amin(dim=0).tolist(), strict=True))
    print(f"{SUITE}: mean speed {forward:.2f} m/s, {falls} falls")
    for name, unit in zip(limits, env.spec.clearance_units, strict=True):
        print(f"smallest clearance to the {name}: {result[name]:.2f} {unit}")
    return result


def trot(time: float, stride: float = 1.0, lift: float = 1.0) -> Tensor:
    """Actions `[1, 12]`: the legs swing as a cosine, and the knees bend while they come forward."""
    angles: list[float] = []
    for phase in DIAGONALS:
        turn = 2 * math.pi * time / PERIOD + phase
        angles += [0.0, stride * math.cos(turn), -lift * max(0.0, math.sin(turn))]
    return torch.tensor([angles])


if __name__ == "__main__":
    main()
