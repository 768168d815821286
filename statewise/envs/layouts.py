"""A stock of start layouts, drawn in bulk and handed out one episode at a time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from statewise.core.placement import LayoutError, place_one, sample_layouts
from statewise.envs.suites import Suite

PILLAR_HALF_HEIGHT = 0.5
_HAZARD_Z = 0.02
_FIRST_STOCK, _STOCK = 64, 1024

Accept = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Which layouts (robot `[n, 2]`, yaw `[n]`, objects `[n, K, 3]`) may start an episode: `[n]`."""


class LayoutStock:
    """Layouts of one suite from one seeded generator.

    Always drawn on the CPU, so that one seed gives the same episodes on every device.
    """

    def __init__(self, suite: Suite, device: torch.device, accept: Accept) -> None:
        self.suite = suite
        self.device = device
        self._accept = accept
        self._generator = torch.Generator()
        self.seed(0)

    def seed(self, seed: int) -> None:
        """Start over: the same seed hands out the same layouts."""
        self._generator.manual_seed(seed)
        num_objects = 1 + self.suite.count("hazard") + self.suite.count("pillar")
        self._refill_size = _FIRST_STOCK
        self._robot = torch.zeros(0, 2)
        self._yaw = torch.zeros(0)
        self._objects = torch.zeros(0, num_objects, 3)

    def take(self, count: int) -> tuple[Tensor, Tensor, Tensor]:
        """The next `count` layouts: robot `[k, 2]`, yaw `[k]`, objects `[k, K, 3]`."""
        while len(self._yaw) < count:
            self._refill(max(self._refill_size, count))
            # Small at first, for those who need few; then large, for those who need many.
            self._refill_size = min(2 * self._refill_size, _STOCK)
        taken = (self._robot[:count], self._yaw[:count], self._objects[:count])
        self._robot, self._yaw, self._objects = (
            self._robot[count:], self._yaw[count:], self._objects[count:],
        )  # fmt: skip
        robot, yaw, objects = (part.to(self.device) for part in taken)
        return robot, yaw, objects

    def new_goal(self, robot: Tensor, objects: Tensor) -> tuple[Tensor, Tensor]:
        """Another place for the goal among `objects [k, K, 3]`, the robot being at `[k, 2]`.

        Returns the goals `[k, 3]` and whether a place was found `[k]`.
        """
        arena = self.suite.arena
        placed = torch.cat([robot.unsqueeze(1), objects[:, 1:, :2]], dim=1).cpu()
        keepouts = torch.tensor([arena.robot_keepout, *arena.keepouts[1:]])
        half = arena.extent - arena.keepouts[0]
        xy, found = place_one(self._generator, placed, keepouts + arena.keepouts[0], half)
        goal = torch.cat([xy, self._goal_height(len(xy))], dim=1)
        if arena.reach is not None:
            found &= torch.linalg.vector_norm(goal, dim=-1) <= arena.reach
        return goal.to(self.device), found.to(self.device)

    def state(self) -> dict[str, Any]:
        return {
            "generator": self._generator.get_state(),
            "refill_size": self._refill_size,
            "robot": self._robot.clone(),
            "yaw": self._yaw.clone(),
            "objects": self._objects.clone(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        self._generator.set_state(state["generator"])
        self._refill_size = state["refill_size"]
        self._robot, self._yaw, self._objects = state["robot"], state["yaw"], state["objects"]

    def _refill(self, count: int) -> None:
        drawn = sample_layouts(self._generator, count, self.suite.arena)
        objects = torch.cat([drawn.objects, self._heights(count)], dim=2)
        good = self._accept(drawn.robot, drawn.yaw, objects)
        if not good.any():
            raise LayoutError(
                f"{self.suite.name}: in none of {count} layouts does the robot start free of cost "
                f"and short of the goal; give it a larger keepout or fewer objects"
            )
        self._robot = torch.cat([self._robot, drawn.robot[good]])
        self._yaw = torch.cat([self._yaw, drawn.yaw[good]])
        self._objects = torch.cat([self._objects, objects[good]])

    def _heights(self, count: int) -> Tensor:
        """Height of each object's centre: `[n, K, 1]`."""
        suite = self.suite
        goal = self._goal_height(count)
        if suite.robot.spatial:
            hazards = self._in_air(count, suite.count("hazard"))
        else:
            hazards = torch.full((count, suite.count("hazard")), _HAZARD_Z)
        pillars = torch.full((count, suite.count("pillar")), PILLAR_HALF_HEIGHT)
        return torch.cat([goal, hazards, pillars], dim=1).unsqueeze(-1)

    def _goal_height(self, count: int) -> Tensor:
        robot = self.suite.robot
        if robot.spatial:
            return self._in_air(count, 1)
        return torch.full((count, 1), robot.goal_radius / 2 + 0.01)

    def _in_air(self, count: int, objects: int) -> Tensor:
        low, high = self.suite.robot.goal_height
        return low + (high - low) * torch.rand(count, objects, generator=self._generator)
