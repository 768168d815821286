"""A robot that pushes a box to a goal, among hazards that it must not enter.

    python examples/pushed_box.py

The steering here is written by hand, and it does not look at the hazards. To learn it instead, with them:

    statewise train Point-Push-Hazard-4

The box is a free body of a fifth of the robot's mass. Only the robot has to keep out of the hazards.
"""

import torch
from torch import Tensor

import statewise

SUITE = "Point-Push-Hazard-4"
SPEED = 0.5  # metres per second


def main(num_envs: int = 32, steps: int = 1000) -> dict[str, float]:
    """Push boxes. Returns how many episodes ended, how many boxes arrived, and the violating episodes."""
    env = statewise.make_env(SUITE, num_envs)
    step = env.reset(seed=0)
    pushed, ended, violated = 0, 0, 0
    for _ in range(steps):
        blocks = {name: step.obs[:, at] for name, at in env.spec.blocks.items()}
        step = env.step(steer(blocks))
        over = step.terminated | step.truncated
        pushed += int(step.success.sum())
        ended += int(over.sum())
        violated += int((over & (step.min_clearance[:, 0] < 0)).sum())
    print(f"{SUITE}: {pushed} boxes pushed to their goals in {ended} episodes")
    print(f"in {violated} of them the robot entered a hazard")
    return {"pushed": float(pushed), "episodes": float(ended), "violated": float(violated)}


def steer(blocks: dict[str, Tensor]) -> Tensor:
    """Thrust and turn `[B, 2]`: in an arc around the box until it lies between robot and goal."""
    box, goal = (
        _place(blocks[f"{name}_compass"], blocks[f"{name}_lidar"]) for name in ("box", "goal")
    )
    to_box, box_to_goal = _angle(box), _angle(goal - box)
    error = _wrap(to_box + 0.7 * _wrap(to_box - box_to_goal))
    forward = blocks["velocimeter"][:, 0]
    thrust = 0.5 * (SPEED * error.cos().clamp(min=0.1) - forward)
    return torch.stack([thrust, 3.0 * error], dim=1).clamp(-1.0, 1.0)


def _place(compass: Tensor, lidar: Tensor) -> Tensor:
    """Metres ahead and to the left `[B, 2]`. A lidar reads exp(-distance)."""
    return -lidar.amax(dim=1).log().unsqueeze(1) * compass[:, :2]


def _angle(vector: Tensor) -> Tensor:
    x, y = vector.unbind(1)
    return torch.atan2(y, x)


def _wrap(angle: Tensor) -> Tensor:
    """The same angle from -pi to pi"""
    return torch.atan2(angle.sin(), angle.cos())


if __name__ == "__main__":
    main()
