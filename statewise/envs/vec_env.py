"""The batched environment of a suite. One step is a list that can be read aloud."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from statewise.envs.env import Env, check_worlds
from statewise.envs.faults import FaultCount
from statewise.envs.goal import GoalTask
from statewise.envs.layouts import PILLAR_HALF_HEIGHT, DeviceStock, LayoutStock
from statewise.envs.suites import Suite, parse_suite
from statewise.sim.backend import Simulator, make_simulator
from statewise.sim.cpu import one_torch_thread
from statewise.sim.scene import build_scene
from statewise.types import EnvSpec, Step, first_step

_FAR = 100.0
_SAVED = (
    "objects", "sensors", "distance", "cost_max", "true_cost_max", "min_clearance", "time"
)  # fmt: skip
"""Tensors of the running episodes: `_objects` and so on."""


class VecEnv(Env):
    """`num_envs` worlds of one suite, stepped together on tensors.

    suite: a name such as "Point-Hazard-8", or a `Suite`.
    device: where physics and everything else runs: "cpu", "cuda", "cuda:1" (docs/gpu.md).
    compact: leave out the observation blocks that are always zero.
    continuing: move the goal when it is reached and go on, instead of ending the episode.
    margin: how long before a constraint is broken `Step.cost` begins, in the constraint's unit. One
        number for all constraints, or one for each. `Step.true_cost` has no margin.
    threads: CPU threads for physics, or on a GPU for drawing layouts. 0 means all cores.
        Trajectories do not depend on it.
    integrator: MuJoCo integrator instead of the robot's own, such as "implicitfast".
    autoreset: begin a new episode where one ended. If off, worlds stay as they are until `reset`.
    deterministic: on a GPU, sum in a fixed order, which is slower. docs/gpu.md says what differs
        nevertheless. The CPU always gives the same bits.
    contact_room: on a GPU, factor on the room for contacts. Raise it if faults say that it is full.
    """

    can_set_age = True

    def __init__(
        self,
        suite: str | Suite,
        num_envs: int = 1,
        seed: int = 0,
        device: str = "cpu",
        *,
        compact: bool = False,
        continuing: bool = False,
        margin: float | Sequence[float] = 0.0,
        threads: int = 0,
        integrator: str | None = None,
        autoreset: bool = True,
        deterministic: bool = False,
        contact_room: float = 1.0,
    ) -> None:
        check_worlds(num_envs, seed)
        self.suite = parse_suite(suite) if isinstance(suite, str) else suite
        self.num_envs, self.seed = num_envs, seed
        self.continuing, self.autoreset = continuing, autoreset
        scene = build_scene(
            self.suite.robot.mjcf,
            num_pillars=self.suite.count("pillar"),
            pillar_radius={c.name: c.radius for c in self.suite.constraints}.get("pillar", 0.2),
            pillar_half_height=PILLAR_HALF_HEIGHT,
            integrator=integrator,
        )
        self.sim: Simulator = make_simulator(
            scene, num_envs, device, threads, deterministic, contact_room
        )
        self.device = self.sim.device
        self.task = GoalTask(self.suite, scene, compact, self.device)
        margins = _margins(margin, [c.name for c in self.suite.constraints], self.suite.name)
        self.spec = EnvSpec(
            name=self.suite.name,
            obs_size=self.task.obs_size,
            action_size=scene.model.nu,
            cost_names=tuple(c.name for c in self.suite.constraints),
            cost_ceiling=tuple(
                c.ceiling if c.contact else c.ceiling + early
                for c, early in zip(self.suite.constraints, margins, strict=True)
            ),
            max_episode_steps=self.suite.max_episode_steps,
            control_dt=scene.control_dt,
            blocks=self.task.blocks,
            num_zeros=self.task.num_zeros,
            margin=margins,
            clearance_units=("m",) * len(margins),
        )
        self._fault_count = FaultCount(self.suite.name, self.sim)
        self._controls = scene.controls(self.device)
        self._ceiling = self._row([c.ceiling for c in self.suite.constraints])
        self._margin = self._row(margins)
        self._contact = self._row([c.contact for c in self.suite.constraints]).bool()
        self._frame: dict[str, Any] | None = None
        self._recording = False
        # Layouts are made on the CPU, to be the same on every device.
        rest = self._sensors_at_rest()
        host_task = GoalTask(self.suite, scene, compact, torch.device("cpu"))
        accept = functools.partial(_may_start, self.suite, host_task, rest)
        self._layouts = LayoutStock(self.suite, num_envs, self.device, accept)
        self._stock = (
            DeviceStock(self._layouts, self.device, threads) if self.sim.by_mask else self._layouts
        )
        everywhere = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        self._everywhere = everywhere if self.sim.by_mask else everywhere.nonzero()[:, 0]
        self._sensors = rest.to(self.device).repeat(num_envs, 1)
        self._distance = self._sensors.new_zeros(num_envs)
        self._cost_max = self._sensors.new_zeros(num_envs, self.spec.num_costs)
        self._true_cost_max = self._min_clearance = self._cost_max
        self._time = torch.zeros(num_envs, dtype=torch.long, device=self.device)
        self._objects = self._sensors.new_zeros(num_envs, self._layouts.num_objects, 3)

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

        If physics runs on a GPU, reading this waits for it and logs a warning about new faults.
        """
        return self._fault_count.total

    def true_cost(self, clearance: Tensor) -> Tensor:
        """The costs `[R, m]` of clearances `[R, m]`, without a margin."""
        return self._cost(clearance, torch.zeros_like(self._margin))

    def record(self, on: bool = True) -> None:
        """Keep a `frame` of every step from now on, or stop doing so."""
        self._recording, self._frame = on, None

    @property
    def frame(self) -> dict[str, Any]:
        """The state that the last step led to, before ended episodes were restarted.

        The parts are those of a `snapshot`.
        """
        if self._frame is None:
            raise RuntimeError("no frame yet: call record() before reset() or step()")
        return self._frame

    def snapshot(self) -> dict[str, Any]:
        """The state that the worlds are in now, after ended episodes were restarted.

        `qpos [B, nq]`, `mocap_pos [B, k, 3]` and `mocap_quat [B, k, 4]` of the bodies that are moved
        between episodes, and `objects`: `[B, N, 3]` for each kind.
        """
        objects = {"goal": self.goal.unsqueeze(1), "hazard": self.hazards, "pillar": self.pillars}
        return {**self.sim.positions(), "objects": objects}

    # Reset and step ----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world. A seed starts the sequence of layouts anew."""
        if seed is not None or not self._ready:
            self._stock.seed(self.seed if seed is None else seed)
        if seed is not None:
            self.seed = seed
        with self._threads():
            return self._begin(*self._stock.take(self._everywhere))

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

        An action that is not finite is refused. On the CPU that is a ValueError before anything is
        stepped. On a GPU, which would have to be waited for, the world gets controls of 0 and its
        episode ends with a simulator fault.
        """
        self.check_action(action, finite=not self.sim.by_mask)
        with self._threads():
            return self._advance(action.to(self.device, torch.float32))

    def _advance(self, action: Tensor) -> Step:
        sensors, fault = self._simulate(action)
        distance, clearance = self.task.measure(sensors, self._objects)
        costs = self._charge(torch.where(fault.unsqueeze(1), -self._ceiling, clearance))
        reached = (distance <= self.suite.robot.goal_radius) & ~fault
        reward = (self._distance - distance).clamp(-10.0, 10.0) + reached
        reward = reward.masked_fill(fault, 0.0)
        terminated = fault if self.continuing else fault | reached
        self._time = self._time + 1
        truncated = (self._time >= self.spec.max_episode_steps) & ~terminated
        if self.continuing:
            truncated = self._replace_goals(reached & ~truncated, sensors, distance) | truncated
        self._sensors, self._distance = sensors, distance
        if self._recording:
            self._frame = self.snapshot()
        obs, final_obs = self._restart(terminated | truncated)
        return Step(
            obs=obs, reward=reward, terminated=terminated, truncated=truncated, final_obs=final_obs,
            sim_fault=fault, success=reached, **costs,
        )  # fmt: skip

    def _charge(self, clearance: Tensor) -> dict[str, Tensor]:
        """The costs of clearances `[B, m]` and their maxima: the parts of a Step."""
        cost_max_before = self._cost_max
        cost = self._cost(clearance, self._margin)
        self._cost_max = torch.maximum(cost_max_before, cost)
        true_cost, true_cost_max = cost, self._cost_max
        if any(self.spec.margin):
            true_cost = self.true_cost(clearance)
            true_cost_max = torch.maximum(self._true_cost_max, true_cost)
        self._true_cost_max = true_cost_max
        self._min_clearance = torch.minimum(self._min_clearance, clearance)
        return {
            "cost": cost,
            "cost_max_before": cost_max_before,
            "cost_max": self._cost_max,
            "true_cost": true_cost,
            "true_cost_max": self._true_cost_max,
            "clearance": clearance,
            "min_clearance": self._min_clearance,
        }

    def _cost(self, clearance: Tensor, margin: Tensor) -> Tensor:
        """What clearances `[R, m]` cost: how far they are below the margin, or 1 for contacts."""
        short = (margin - clearance).clamp_(min=0.0)
        return torch.where(self._contact, (short > 0).to(short.dtype), short)

    def _row(self, values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32).to(self.device)

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
        } | {name: getattr(self, f"_{name}").clone() for name in _SAVED}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on exactly from a `state_dict` of the same suite with the same number of worlds."""
        mine = (self.suite.name, self.num_envs, self.continuing)
        theirs = (state["suite"], state["num_envs"], state["continuing"])
        if mine != theirs:
            raise ValueError(
                f"the saved environment is {theirs} (suite, worlds, continuing), this one {mine}: "
                f"make it alike before restoring"
            )
        self.seed = state["seed"]
        self._fault_count.restore(state["faults"])
        self.sim.load_state(state["sim"])
        self._stock.load_state(state["stock"])
        for name in _SAVED:
            setattr(self, f"_{name}", state[name].to(self.device, copy=True))
        self._ready = True

    def worlds(self) -> dict[str, Tensor]:
        self.check_ready("worlds")
        physics = {f"sim/{name}": rows for name, rows in self.sim.worlds().items()}
        return physics | {name: getattr(self, f"_{name}") for name in _SAVED}

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        physics = {name[4:]: part for name, part in rows.items() if name.startswith("sim/")}
        self.sim.set_worlds(where, physics)
        for name in _SAVED:
            setattr(self, f"_{name}", getattr(self, f"_{name}").index_copy(0, where, rows[name]))

    # Inside ------------------------------------------------------------------------------------

    def _begin(self, robot: Tensor, yaw: Tensor, objects: Tensor) -> Step:
        self._objects = objects.clone()
        self._sensors = self._put(self._everywhere, robot, yaw, objects)
        self._distance, self._min_clearance = self.task.measure(self._sensors, self._objects)
        self._cost_max = self._true_cost_max = torch.zeros_like(self._cost_max)
        self._time = torch.zeros_like(self._time)
        self._ready = True
        if self._recording:
            self._frame = self.snapshot()
        obs = self.task.observe(self._sensors, self._objects)
        return first_step(obs, self.spec.num_costs, self._min_clearance)

    def _put(self, where: Tensor, robot: Tensor, yaw: Tensor, objects: Tensor) -> Tensor:
        """Put robots and pillars in their places; the sensors there."""
        pillars = objects[:, 1 + self.task.num_hazards :]
        return self.sim.reset(where, *self.sim.scene.start_state(robot, yaw, pillars))

    def _simulate(self, action: Tensor) -> tuple[Tensor, Tensor]:
        """Take a step of physics; sensors `[B, ns]` and faults `[B]`.

        Where physics failed, the sensors are those of the step before.
        """
        ctrl = self._controls(action)
        refused = None
        if self.sim.by_mask:  # on the CPU, `step` has refused them already
            refused = ~torch.isfinite(action).all(dim=1)
            ctrl = ctrl.masked_fill(refused.unsqueeze(1), 0.0)
        sensors = self.sim.step(ctrl)
        # A sum is finite only if all its terms are; one that overflows counts as a fault too.
        fault = self.sim.fault | ~torch.isfinite(sensors.sum(dim=1))
        fault = fault if refused is None else fault | refused
        self._fault_count.add(fault, refused)
        return torch.where(fault.unsqueeze(1), self._sensors, sensors), fault

    def _restart(self, ended: Tensor) -> tuple[Tensor, Tensor]:
        """Begin new episodes where they ended; observations after and before: `[B, n]` each.

        Both are made in one pass over the rows of all worlds and of those begun anew. On a device
        these are again all worlds, as it would have to be waited for to tell which.
        """
        where = ended if self.sim.by_mask else ended.nonzero()[:, 0]
        if not self.autoreset or len(where) == 0:
            obs = self.task.observe(self._sensors, self._objects)
            return obs, obs
        robot, yaw, objects = self._stock.take(where)
        sensors = self._put(where, robot, yaw, objects)
        rows = self.task.observe(
            torch.cat([self._sensors, sensors]), torch.cat([self._objects, objects])
        )
        final_obs, first_obs = rows[: self.num_envs], rows[self.num_envs :]
        distance, clearance = self.task.measure(sensors, objects)
        # The tensors of this step are handed out, so they are replaced, never written.
        self._sensors = _replaced(self._sensors, where, sensors)
        self._objects = _replaced(self._objects, where, objects)
        self._distance = _replaced(self._distance, where, distance)
        self._cost_max = self._cost_max.masked_fill(ended.unsqueeze(1), 0.0)
        self._true_cost_max = self._true_cost_max.masked_fill(ended.unsqueeze(1), 0.0)
        self._min_clearance = _replaced(self._min_clearance, where, clearance)
        self._time = self._time.masked_fill(ended, 0)
        return _replaced(final_obs, where, first_obs), final_obs

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


def _margins(
    margin: float | Sequence[float], names: Sequence[str], suite: str
) -> tuple[float, ...]:
    """The margin of each constraint, from one number for all or one for each."""
    given = [margin] if isinstance(margin, int | float) else list(margin)
    given = given * len(names) if len(given) == 1 else given or [0.0] * len(names)
    if len(given) != len(names):
        raise ValueError(
            f"{len(given)} margins for the constraints {', '.join(names)} of {suite}: give one "
            f"number for all, or one for each"
        )
    for value in given:
        if not 0 <= value < math.inf:
            raise ValueError(f"the margin is {value}: give a finite number, 0 or more")
    return tuple(float(value) for value in given)


def _replaced(old: Tensor, where: Tensor, new: Tensor) -> Tensor:
    """A copy of `old [B, ...]` with other rows: of a mask `[B]`, or k new ones for ids `[k]`."""
    if where.dtype == torch.bool:
        return torch.where(where.view(-1, *[1] * (old.dim() - 1)), new, old)
    return old.index_copy(0, where, new)


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
    distance, clearance = task.measure(rest.expand(len(yaw), -1), turned)
    good = (clearance >= 0).all(dim=1) & (distance > suite.robot.goal_radius)
    if suite.robot.reach is not None:
        good &= torch.linalg.vector_norm(objects[:, 0], dim=-1) <= suite.robot.reach
    return good
