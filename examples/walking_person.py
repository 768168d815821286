"""A delivery cart that reaches its goals and keeps clear of people who walk.

    python examples/walking_person.py

The steering here is written by hand. To learn it instead:

    cd examples
    statewise train Cart-Ghost-2 --import walking_person

Of the two people one walks straight on, and the other one follows the cart. They do not collide with it:
being closer than 0.3 m to one is the violation.
"""

import math
from pathlib import Path

import torch
from torch import Tensor

import statewise

SUITE = "Cart-Ghost-2"
SENSORS = ("accelerometer", "velocimeter", "gyro", "magnetometer", "jointvel_*")

# Here, and not in main, so that `--import walking_person` registers it too.
statewise.register_robot("Cart", Path(__file__).with_name("cart.xml"), SENSORS, replace=True)


def main(num_envs: int = 32, steps: int = 500, care: float = 1.0) -> dict[str, float]:
    """Drive to the goals. Returns how many were reached, and the share of steps too close to a person."""
    env = statewise.make_env(SUITE, num_envs)
    step = env.reset(seed=0)
    goals, close = 0, 0.0
    for _ in range(steps):
        compass = step.obs[:, env.spec.blocks["goal_compass"]]
        people = step.obs[:, env.spec.blocks["ghost_lidar"]]
        step = env.step(steer(compass, people, care))
        goals += int(step.success.sum())
        close += float((step.clearance < 0).float().mean()) / steps
    print(
        f"{SUITE}: {goals} goals in {num_envs} x {steps} steps, {close:.1%} of them too close to a person"
    )
    return {"goals": float(goals), "close": close}


def steer(compass: Tensor, people: Tensor, care: float) -> Tensor:
    """Wheel speeds `[B, 2]`: towards the goal, and away from what the lidar sees nearby."""
    bins = people.shape[1]
    angle = (torch.arange(bins) + 0.5) * 2 * math.pi / bins
    near = care * 4.0 * (people - 0.4).clamp(min=0.0)  # a reading of 0.4 is about 0.9 m away
    x = compass[:, 0] - (near * angle.cos()).sum(dim=1)
    y = compass[:, 1] - (near * angle.sin()).sum(dim=1)
    error = torch.atan2(y, x)
    forward = 0.7 * error.cos().clamp(min=0.0)
    turn = 0.4 * error.clamp(-1.0, 1.0)
    return torch.stack([forward - turn, forward + turn], dim=1).clamp(-1.0, 1.0)


if __name__ == "__main__":
    main()
