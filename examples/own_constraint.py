"""Bring your own constraint: one function of the world. Here the robot must not turn too fast.

    cd examples
    statewise train Point-Hazard-8-Spin-2 --import own_constraint

`docs/own_constraint.md` explains every step.
"""

import torch

import statewise


@statewise.constraint("Spin", unit="rad/s", sensors=("gyro",), replace=True)
def spin(world: statewise.World, limit: float) -> torch.Tensor:
    """Radians per second below the limit on turning."""
    return limit - world.sensor("gyro")[:, 2].abs()


def main(num_envs: int = 64, steps: int = 200) -> dict[str, float]:
    """Drive at random. Returns the smallest clearance and the share of episodes that broke the rule."""
    env = statewise.make_env("Point-Hazard-8-Spin-2", num_envs)
    env.reset(seed=0)
    generator = torch.Generator().manual_seed(0)
    for _ in range(steps):
        action = 2 * torch.rand(num_envs, env.spec.action_size, generator=generator) - 1
        step = env.step(action)
    channel = env.spec.cost_names.index("spin")
    smallest = step.min_clearance[:, channel]
    result = {"clearance": float(smallest.min()), "broken": float((smallest < 0).float().mean())}
    unit = env.spec.clearance_units[channel]
    print(f"{env.spec.name}: smallest clearance of spin {result['clearance']:.2f} {unit}")
    print(f"{result['broken']:.0%} of the running episodes turned too fast")
    return result


if __name__ == "__main__":
    main()
