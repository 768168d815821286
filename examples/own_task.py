"""Bring your own task: one class. Here the robot has to stop inside a parking bay.

    cd examples
    statewise train Point-Park-Hazard-4 --import own_task

`docs/own_task.md` explains every method.
"""

from typing import ClassVar

import torch

import statewise
from statewise.envs.terms import discs


@statewise.task("Park", replace=True)
class Park(statewise.Task):
    """Stop inside a parking bay. The reward is the progress towards it, and 1 for parking."""

    success, sensors = "parked", ("velocimeter",)
    colours: ClassVar = {"bay_lidar": (0.10, 0.72, 0.25)}
    radius, slow = 0.3, 0.2  # metres, metres per second

    def things(self) -> tuple[statewise.Things, ...]:
        return (statewise.Things("bay", count=1, keepout=0.4),)

    def observe(self, world: statewise.World) -> dict[str, torch.Tensor]:
        return {"bay_compass": world.compass("bay"), "bay_lidar": world.lidar("bay")}

    def remember(self, world: statewise.World) -> torch.Tensor:
        return world.distance("bay")

    def reward(self, world: statewise.World) -> torch.Tensor:
        progress = world.memory - world.distance("bay")
        return progress[:, 0] + self.succeeded(world)

    def succeeded(self, world: statewise.World) -> torch.Tensor:
        speed = world.sensor("velocimeter")[:, :2].norm(dim=1)
        return (world.distance("bay")[:, 0] < self.radius) & (speed < self.slow)

    def marks(self, world: statewise.World) -> list:
        return discs(world, "bay", self.radius, self.colours["bay_lidar"])


def main(num_envs: int = 64, steps: int = 500) -> int:
    """Steer to the bay and brake there. Returns how many robots parked."""
    env = statewise.make_env("Point-Park-Hazard-4", num_envs)
    step, parked = env.reset(seed=0), 0
    for _ in range(steps):
        x, y = step.obs[:, env.spec.blocks["bay_compass"]].T[:2]
        near = step.obs[:, env.spec.blocks["bay_lidar"]].amax(dim=1) > 0.6
        drive = (0.3 * x.clamp(min=0.0)).masked_fill(near, 0.01)
        step = env.step(torch.stack([drive, torch.atan2(y, x).clamp(-1, 1)], dim=1))
        parked += int(step.success.sum())
    return parked


if __name__ == "__main__":
    print(f"{main()} robots parked")
