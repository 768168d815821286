"""The batched environment: one step is a list that can be read aloud."""

from __future__ import annotations

import functools
import logging
from collections import Counter
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from statewise.envs.goal import GoalTask
from statewise.envs.layouts import PILLAR_HALF_HEIGHT, DeviceStock, LayoutStock
from statewise.envs.suites import Suite, parse_suite
from statewise.sim.backend import Simulator, make_simulator
from statewise.sim.cpu import one_torch_thread
from statewise.sim.scene import SUBSTEPS, build_scene
from statewise.types import EnvSpec, Step, first_step

log = logging.getLogger("statewise")

_FAR = 100.0


class VecEnv:
    """`num_envs` worlds of one suite, stepped together on tensors. See `make_env`."""

    def __init__(
        self,
        suite: str | Suite,
        num_envs: int,
        seed: int = 0,
        device: str = "cpu",
        compact: bool = False,
        continuing: bool = False,
        threads: int = 0,
        integrator: str | None = None,
        autoreset: bool = True,
        deterministic: bool = False,
        contact_room: float = 1.0,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs is {num_envs}: ask for at least 1 world")
        if seed < 0:
            raise ValueError(f"seed is {seed}: give 0 or more")
        self.suite = parse_suite(suite) if isinstance(suite, str) else suite
        self.num_envs = num_envs
        self.seed = seed
        self.continuing = continuing
        self.autoreset = autoreset
        """Begin a new episode where one ended; off, worlds stay as they are until `reset`."""
        pillar_radius = {c.name: c.radius for c in self.suite.constraints}.get("pillar", 0.2)
        scene = build_scene(
            self.suite.robot.file,
            self.suite.robot.required_sensors,
            num_pillars=self.suite.count("pillar"),
            pillar_radius=pillar_radius,
            pillar_half_height=PILLAR_HALF_HEIGHT,
            integrator=integrator,
        )
        self.sim: Simulator = make_simulator(
            scene, num_envs, device, threads, deterministic, contact_room
        )
        self.device = self.sim.device
        self._by_mask = self.sim.by_mask and not continuing
        """`step` does not wait for the device. A continuing task places goals on the host."""
        self.task = GoalTask(self.suite, scene, compact, self.device)
        self.spec = EnvSpec(
            name=self.suite.name,
            obs_size=self.task.obs_size,
            action_size=scene.model.nu,
            cost_names=tuple(c.name for c in self.suite.constraints),
            cost_ceiling=tuple(c.ceiling for c in self.suite.constraints),
            max_episode_steps=self.suite.max_episode_steps,
            control_dt=scene.model.opt.timestep * SUBSTEPS,
            blocks=self.task.blocks,
            num_zeros=self.task.num_zeros,
        )
        self._faults = 0
        self._device_faults = torch.zeros(2, dtype=torch.long, device=self.device)
        """Faults so far, and those by a refused action since they were last reported."""

        low, high = torch.tensor(scene.model.actuator_ctrlrange, dtype=torch.float32).unbind(1)
        self._ctrl_centre = ((low + high) / 2).to(self.device)
        self._ctrl_half = ((high - low) / 2).to(self.device)
        self._ceiling = torch.tensor(
            self.spec.cost_ceiling, dtype=torch.float32, device=self.device
        )
        self._everywhere = torch.arange(num_envs, device=self.device)
        # Layouts are made on the CPU, to be the same on every device.
        self._host_task = GoalTask(self.suite, scene, compact, torch.device("cpu"))
        self._rest = self._sensors_at_rest()
        accept = functools.partial(_may_start, self.suite, self._host_task, self._rest)
        self._layouts = LayoutStock(self.suite, num_envs, self.device, accept)
        self._stock = (
            DeviceStock(self._layouts, self.device, threads) if self._by_mask else self._layouts
        )
        self._ready = False
        self._sensors = self._rest.to(self.device).repeat(num_envs, 1)
        self._distance = self._sensors.new_zeros(num_envs)
        self._cost_max = self._sensors.new_zeros(num_envs, self.spec.num_costs)
        self._time = torch.zeros(num_envs, dtype=torch.long, device=self.device)
        objects = 1 + self.task.num_hazards + self.task.num_pillars
        self._objects = self._sensors.new_zeros(num_envs, objects, 3)

    # What a user may look at -------------------------------------------------------------------

    @property
    def robot_pos(self) -> Tensor:
        """[B, 3] the point of the robot that has to reach the goal"""
        return self._sensors[:, self.task.point]

    @property
    def goal(self) -> Tensor:
        """[B, 3]"""
        return self._objects[:, 0]

    @property
    def hazards(self) -> Tensor:
        """[B, N, 3]"""
        return self._objects[:, 1 : 1 + self.task.num_hazards]

    @property
    def pillars(self) -> Tensor:
        """[B, P, 3]"""
        return self._objects[:, 1 + self.task.num_hazards :]

    @property
    def faults(self) -> int:
        """How many episodes a simulator fault has ended since the environment was made.

        Where physics runs on a device it is counted there: reading it waits for the device, and
        logs a warning if there are new ones.
        """
        if self.sim.by_mask:
            self._report_faults()
        return self._faults

    # Reset and step ----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world. A seed starts the sequence of layouts anew."""
        if seed is not None or not self._ready:
            self._stock.seed(self.seed if seed is None else seed)
        if seed is not None:
            self.seed = seed
        with self._threads():
            return self._begin(*self._stock.take(self.num_envs))

    def reset_to(
        self,
        robot: Tensor,
        yaw: Tensor,
        goal: Tensor,
        hazards: Tensor | None = None,
        pillars: Tensor | None = None,
    ) -> Step:
        """Start a new episode in every world from a layout of your own.

        `robot [B, 2]`, `yaw [B]`, `goal [B, 3]`, `hazards [B, N, 3]`, `pillars [B, P, 3]`.
        """
        if not self._ready:
            self._stock.seed(self.seed)
        parts = [goal.unsqueeze(1)] + [p for p in (hazards, pillars) if p is not None]
        objects = torch.cat([part.to(self.device, torch.float32) for part in parts], dim=1)
        if objects.shape != self._objects.shape:
            raise ValueError(
                f"the layout has objects of shape {tuple(objects.shape)}; {self.suite.name} with "
                f"{self.num_envs} worlds takes {tuple(self._objects.shape)}: goal, hazards, pillars"
            )
        with self._threads():
            robot, yaw = (part.to(self.device, torch.float32) for part in (robot, yaw))
            return self._begin(robot, yaw, objects)

    def set_age(self, age: Tensor) -> None:
        """Take the running episodes to be `age [B]` steps old: their time runs out that much sooner."""
        self.check_ready("set_age")
        if tuple(age.shape) != (self.num_envs,):
            raise ValueError(
                f"the ages have shape {tuple(age.shape)}: give one for each of {self.num_envs} worlds"
            )
        if bool(((age < 0) | (age >= self.spec.max_episode_steps)).any()):
            raise ValueError(f"an age is not from 0 to {self.spec.max_episode_steps - 1}")
        self._time = age.to(self.device, torch.long, copy=True)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action `[B, a]`, each component from -1 to 1.

        An action that is not finite is refused: on the CPU with a ValueError before anything is
        stepped. Where physics runs on a device that would have to be waited for, so there the world
        gets controls of 0 instead, and its episode ends as one with a simulator fault.
        """
        self._check_action(action)
        with self._threads():
            return self._advance(action.to(self.device, torch.float32))

    def _advance(self, action: Tensor) -> Step:
        ctrl = self._ctrl_centre + self._ctrl_half * action.clamp(-1.0, 1.0)
        if self.sim.by_mask:
            refused = ~torch.isfinite(action).all(dim=1)
            ctrl = ctrl.masked_fill(refused.unsqueeze(1), 0.0)
        sensors = self.sim.step(ctrl)

        # A sum is finite only if all its terms are; one that overflows counts as a fault too.
        fault = self.sim.fault | ~torch.isfinite(sensors.sum(dim=1))
        if self.sim.by_mask:
            fault = fault | refused
            self._device_faults += torch.stack([fault, refused]).sum(dim=1)
        sensors = torch.where(fault.unsqueeze(1), self._sensors, sensors)
        distance, cost = self.task.measure(sensors, self._objects)
        reached = (distance <= self.suite.robot.goal_radius) & ~fault
        reward = (self._distance - distance).clamp(-10.0, 10.0) + reached
        reward = reward.masked_fill(fault, 0.0)
        cost = torch.where(fault.unsqueeze(1), self._ceiling, cost)
        before, after = self._cost_max, torch.maximum(self._cost_max, cost)

        self._time = self._time + 1
        terminated = fault if self.continuing else fault | reached
        truncated = (self._time >= self.spec.max_episode_steps) & ~terminated
        if self.continuing:
            truncated = self._replace_goals(reached & ~truncated, sensors, distance) | truncated
        if not self.sim.by_mask:
            self._count_faults(fault)

        ended = terminated | truncated
        self._sensors, self._distance, self._cost_max = sensors, distance, after
        obs, final_obs = self._restart(ended)
        return Step(obs, reward, cost, before, after, terminated, truncated, final_obs, fault)

    # Saving ------------------------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """Everything the next steps depend on: restored, the environment goes on bit for bit."""
        self.check_ready("state_dict")
        return {
            "suite": self.suite.name,
            "num_envs": self.num_envs,
            "continuing": self.continuing,
            "seed": self.seed,
            "faults": self.faults,
            "sim": self.sim.state(),
            "stock": self._stock.state(),
            "objects": self._objects.clone(),
            "sensors": self._sensors.clone(),
            "distance": self._distance.clone(),
            "cost_max": self._cost_max.clone(),
            "time": self._time.clone(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a `state_dict` of the same suite with the same number of worlds."""
        mine = (self.suite.name, self.num_envs, self.continuing)
        theirs = (state["suite"], state["num_envs"], state["continuing"])
        if mine != theirs:
            raise ValueError(
                f"the saved environment is {theirs} (suite, worlds, continuing), this one {mine}: "
                f"make it alike before restoring"
            )
        self.seed, self._faults = state["seed"], state["faults"]
        self._device_faults = torch.tensor([self._faults, 0], device=self.device)
        self.sim.load_state(state["sim"])
        self._stock.load_state(state["stock"])
        self._objects = state["objects"].to(self.device, copy=True)
        self._sensors = state["sensors"].to(self.device, copy=True)
        self._distance = state["distance"].to(self.device, copy=True)
        self._cost_max = state["cost_max"].to(self.device, copy=True)
        self._time = state["time"].to(self.device, copy=True)
        self._ready = True

    # Inside ------------------------------------------------------------------------------------

    def _begin(self, robot: Tensor, yaw: Tensor, objects: Tensor) -> Step:
        self._objects = objects.clone()
        self._sensors = self._put(self._everywhere, robot, yaw, self.pillars)
        self._distance, _ = self.task.measure(self._sensors, self._objects)
        self._cost_max = torch.zeros_like(self._cost_max)
        self._time = torch.zeros_like(self._time)
        self._ready = True
        return first_step(self.task.observe(self._sensors, self._objects), self.spec.num_costs)

    def _put(self, ids: Tensor, robot: Tensor, yaw: Tensor, pillars: Tensor) -> Tensor:
        return self.sim.reset(ids, *self.sim.scene.start_state(robot, yaw, pillars))

    def _restart(self, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Begin new episodes where they ended; observations after and before: `[B, n]` each.

        Both are made in one pass over the rows of all worlds and of those begun anew.
        """
        if not self.autoreset:
            return self._no_restart()
        if isinstance(self._stock, DeviceStock):
            return self._restart_by_mask(ended, self._stock)
        ids = ended.nonzero()[:, 0]
        if len(ids) == 0:
            return self._no_restart()
        robot, yaw, objects = self._stock.take(len(ids))
        sensors = self._put(ids, robot, yaw, objects[:, 1 + self.task.num_hazards :])
        rows = self.task.observe(
            torch.cat([self._sensors, sensors]), torch.cat([self._objects, objects])
        )
        final_obs = rows[: self.num_envs]
        obs = final_obs.clone()
        obs[ids] = rows[self.num_envs :]
        # The tensors of this step are handed out, so they are replaced, never written.
        self._sensors = self._sensors.index_copy(0, ids, sensors)
        self._objects = self._objects.index_copy(0, ids, objects)
        distance, _ = self.task.measure(sensors, objects)
        self._distance = self._distance.index_copy(0, ids, distance)
        self._cost_max = self._cost_max.index_fill(0, ids, 0.0)
        self._time = self._time.index_fill(0, ids, 0)
        return obs, final_obs

    def _no_restart(self) -> tuple[Tensor, Tensor]:
        obs = self.task.observe(self._sensors, self._objects)
        return obs, obs

    def _restart_by_mask(self, ended: Tensor, stock: DeviceStock) -> tuple[Tensor, Tensor]:
        """The same without waiting for the device to tell where: new rows for all, used by mask."""
        robot, yaw, objects = stock.take_where(ended)
        start = self.sim.scene.start_state(robot, yaw, objects[:, 1 + self.task.num_hazards :])
        sensors = self.sim.reset_where(ended, *start)
        rows = self.task.observe(
            torch.cat([self._sensors, sensors]), torch.cat([self._objects, objects])
        )
        final_obs, new_obs = rows.split(self.num_envs)
        distance, _ = self.task.measure(sensors, objects)
        row = ended.unsqueeze(1)
        self._sensors = torch.where(row, sensors, self._sensors)
        self._objects = torch.where(row.unsqueeze(2), objects, self._objects)
        self._distance = torch.where(ended, distance, self._distance)
        self._cost_max = self._cost_max.masked_fill(row, 0.0)
        self._time = self._time.masked_fill(ended, 0)
        return torch.where(row, new_obs, final_obs), final_obs

    def _replace_goals(self, reached: Tensor, sensors: Tensor, distance: Tensor) -> Tensor:
        """Continuing task: move the goals that were reached; where none fits, end the episode."""
        stuck = torch.zeros_like(reached)
        ids = reached.nonzero()[:, 0]
        if len(ids):
            here = sensors[ids][:, self.task.point]
            goal, found = self._layouts.new_goal(here[:, :2], self._objects[ids])
            self._objects = self._objects.clone()
            self._objects[ids, 0] = goal
            distance[ids] = self.task.measure(sensors[ids], self._objects[ids])[0]
            stuck[ids] = ~found
        return stuck

    def _sensors_at_rest(self) -> Tensor:
        """Sensors `[1, ns]` of a robot at the origin with nothing around it, by CPU physics."""
        sim = make_simulator(self.sim.scene, 1, "cpu", threads=1)
        zeros = torch.zeros(1, 2, dtype=torch.float32)
        away = zeros.new_full((1, self.task.num_pillars, 3), _FAR)
        start = sim.scene.start_state(zeros, zeros[:, 0], away)
        return sim.reset(torch.zeros(1, dtype=torch.long), *start)

    def _threads(self) -> AbstractContextManager[None]:
        """Leave the cores to physics, where it is they that run it."""
        return one_torch_thread() if self.device.type == "cpu" else nullcontext()

    def _count_faults(self, fault: Tensor) -> None:
        if not bool(fault.any()):
            return
        worlds = fault.nonzero()[:, 0].tolist()
        self._faults += len(worlds)
        for world in worlds:
            reason = self.sim.messages.get(world, "non-finite sensors")
            log.warning(
                "%s: simulator fault in world %d (%s): its episode ends, at the highest cost",
                self.suite.name,
                world,
                reason,
            )

    def _report_faults(self) -> None:
        """Fetch the count from the device, and warn of faults that are new."""
        total, refused = self._device_faults.tolist()
        new, self._faults = total - self._faults, total
        if not new:
            return
        self._device_faults[1] = 0
        reasons = Counter(self.sim.messages.values())
        reasons["non-finite action"] += refused
        log.warning(
            "%s: %d simulator faults: their episodes end, at the highest cost (%s)",
            self.suite.name,
            new,
            "; ".join(f"in {n} worlds {reason}" for reason, n in reasons.items() if n),
        )

    def check_ready(self, call: str) -> None:
        """Raise RuntimeError if `reset` was not called yet."""
        if not self._ready:
            raise RuntimeError(f"call reset() before {call}()")

    def _check_action(self, action: Tensor) -> None:
        self.check_ready("step")
        wanted = (self.num_envs, self.spec.action_size)
        if not isinstance(action, Tensor):
            raise TypeError(
                f"the action is a {type(action).__name__}: pass a torch tensor of shape {wanted}"
            )
        if tuple(action.shape) != wanted:
            raise ValueError(
                f"the action has shape {tuple(action.shape)}; {self.suite.name} with "
                f"{self.num_envs} worlds takes {wanted}"
            )
        if not action.is_floating_point():
            raise TypeError(f"the action has dtype {action.dtype}: pass floating point values")
        if self.sim.by_mask:
            return
        finite = torch.isfinite(action)
        if not finite.all():
            world = int((~finite.all(dim=1)).nonzero()[0, 0])
            raise ValueError(
                f"the action of world {world} is not finite: {action[world].tolist()}. Nothing was "
                f"stepped"
            )


def make_env(
    suite: str,
    num_envs: int = 1,
    seed: int = 0,
    device: str = "cpu",
    compact: bool = False,
    continuing: bool = False,
    threads: int = 0,
    integrator: str | None = None,
    deterministic: bool = False,
    contact_room: float = 1.0,
) -> VecEnv:
    """A batch of worlds of a suite such as "Point-Hazard-8".

    device: where physics and everything else runs: "cpu", "cuda", "cuda:1" (docs/gpu.md).
    compact: leave out the observation blocks that are always zero.
    continuing: move the goal when it is reached and go on, instead of ending the episode.
    threads: of physics, or on a GPU of drawing layouts, 0 for all cores; trajectories do not depend on
        it.
    integrator: MuJoCo integrator instead of the robot's own, such as "implicitfast".
    deterministic: on a GPU, sums in a fixed order, at a price; docs/gpu.md says what that is not enough
        for. The CPU always gives the same bits.
    contact_room: on a GPU, factor on the room for contacts; raise it if faults say that it is full.
    """
    return VecEnv(suite, num_envs, seed, device, compact, continuing, threads, integrator,
                  deterministic=deterministic, contact_room=contact_room)  # fmt: skip


def _may_start(
    suite: Suite, task: GoalTask, rest: Tensor, robot: Tensor, yaw: Tensor, objects: Tensor
) -> Tensor:
    """Layouts whose episode begins free of cost, short of the goal and with it in reach.

    rest: sensors `[1, ns]` of a robot at rest. No method: threads that draw layouts ahead should not
    keep an environment alive.
    """
    # Seen from the robot: turn the objects instead of the robot.
    moved = objects[..., :2] - robot.unsqueeze(1)
    x, y = moved.unbind(-1)
    cos, sin = torch.cos(yaw).unsqueeze(1), torch.sin(yaw).unsqueeze(1)
    turned = torch.stack([cos * x + sin * y, cos * y - sin * x, objects[..., 2]], dim=-1)
    distance, cost = task.measure(rest.expand(len(yaw), -1), turned)
    good = (cost == 0).all(dim=1) & (distance > suite.robot.goal_radius)
    if suite.robot.reach is not None:
        good &= torch.linalg.vector_norm(objects[:, 0], dim=-1) <= suite.robot.reach
    return good
