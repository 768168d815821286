"""The batched environment of a suite. One step is a list that can be read aloud."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from statewise.envs.blame import blamed
from statewise.envs.building import (
    FAR,
    check_form,
    check_moved,
    may_start,
    read_margins,
    sensors_at_rest,
    suite_scene,
    suite_stage,
    try_terms,
)
from statewise.envs.env import Env, check_seed, check_worlds
from statewise.envs.faults import FaultCount
from statewise.envs.layouts import DeviceStock, LayoutStock
from statewise.envs.observation import Observer
from statewise.envs.running import Running, replaced
from statewise.envs.suites import NO_LIMIT, Suite, parse_suite
from statewise.envs.tasks.base import Task
from statewise.envs.terms import Term
from statewise.envs.world import Stage, World
from statewise.settings import typed
from statewise.sim.backend import Simulator, make_simulator
from statewise.sim.cpu import one_torch_thread
from statewise.types import EnvSpec, Step, first_step

if TYPE_CHECKING:
    from statewise.sim.draw import Mark


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

    can_set_age = has_scene = True

    @typed
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
        if continuing and not self.suite.has_goal:
            raise ValueError(f"{self.suite.name} has no goal to move: leave out `continuing`")
        margins = read_margins(margin, [c.name for c in self.suite.constraints], self.suite.name)
        scene = suite_scene(self.suite, integrator)
        # Tried on the CPU first, where layouts are made too: mistakes show before anything is built.
        rest = sensors_at_rest(scene)
        host = Rules(
            self.suite, suite_stage(self.suite, scene, rest.device), compact, margins, rest
        )
        self.sim: Simulator = make_simulator(
            scene, num_envs, device, threads, deterministic, contact_room
        )
        self.device = self.sim.device
        self.rules = host
        if self.device.type != "cpu":
            stage = suite_stage(self.suite, scene, self.device)
            self.rules = Rules(self.suite, stage, compact, margins, rest.to(self.device))
        self.has_time_limit = self.suite.max_episode_steps < NO_LIMIT
        self.spec = EnvSpec(
            name=self.suite.name,
            obs_size=host.observer.obs_size,
            action_size=scene.model.nu,
            cost_names=tuple(host.names),
            cost_ceiling=host.highest_cost,
            max_episode_steps=self.suite.max_episode_steps,
            control_dt=scene.control_dt,
            blocks=host.observer.blocks,
            num_zeros=host.observer.num_zeros,
            margin=margins,
            clearance_units=tuple(c.unit for c in self.suite.constraints),
        )
        self._fault_count = FaultCount(self.suite.name, self.sim, host.may_fail)
        self._controls = scene.controls(self.device)
        accept = functools.partial(may_start, self.suite, host, rest)
        self._layouts = LayoutStock(self.suite, num_envs, self.device, accept)
        self._stock = (
            DeviceStock(self._layouts, self.device, threads) if self.sim.by_mask else self._layouts
        )
        everywhere = torch.ones(num_envs, dtype=torch.bool, device=self.device)
        self._everywhere = everywhere if self.sim.by_mask else everywhere.nonzero()[:, 0]
        self._frame: dict[str, Any] | None = None
        self._recording = False
        self._now = Running.before(
            rest.to(self.device).repeat(num_envs, 1), self._layouts.num_objects, host.num_draws,
            self.spec.action_size, self.spec.num_costs,
        )  # fmt: skip

    # What a user may look at -------------------------------------------------------------------

    @property
    def robot_pos(self) -> Tensor:
        """[B, 3] the point of the robot that has to reach the goal"""
        return self._now.sensors[:, self.rules.stage.point]

    def objects(self, kind: str) -> Tensor:
        """[B, N, 3] the centres of the objects of a kind. A kind that is not there has none."""
        return self._now.objects[:, self.rules.stage.kinds.get(kind, slice(0, 0))]

    @property
    def goal(self) -> Tensor:
        """[B, 3]"""
        return self.objects("goal")[:, 0]

    @property
    def hazards(self) -> Tensor:
        """[B, N, 3]"""
        return self.objects("hazard")

    @property
    def pillars(self) -> Tensor:
        """[B, P, 3]"""
        return self.objects("pillar")

    @property
    def faults(self) -> int:
        """How many episodes a fault has ended since the environment was made.

        If physics runs on a GPU, reading this waits for it and logs a warning about new faults.
        """
        return self._fault_count.total

    def true_cost(self, clearance: Tensor) -> Tensor:
        """The costs `[R, m]` of clearances `[R, m]`, without a margin."""
        return self.rules.true_cost(clearance)

    def look(self, world: int, sensors: Tensor) -> World:
        """One world as tasks and constraints see it, with the given sensors `[1, ns]`."""
        return self._now.row(world, self.rules.stage, sensors)

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
        between episodes, `draws [B, d]`, the random numbers of tasks and constraints, and `objects`:
        `[B, N, 3]` for each kind.
        """
        objects = {kind: self.objects(kind) for kind in self.rules.stage.kinds}
        return {**self.sim.positions(), "draws": self._now.draws, "objects": objects}

    # Reset and step ----------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> Step:
        """Start a new episode in every world. A seed starts the sequence of layouts anew."""
        check_seed(seed)
        if seed is not None or not self._ready:
            self._stock.seed(self.seed if seed is None else seed)
        if seed is not None:
            self.seed = seed
        with self._alone():
            return self._begin(*self._stock.take(self._everywhere))

    def reset_to(
        self,
        robot: Tensor,
        yaw: Tensor,
        goal: Tensor | None = None,
        hazards: Tensor | None = None,
        pillars: Tensor | None = None,
        draws: Tensor | None = None,
        **others: Tensor,
    ) -> Step:
        """Start a new episode in every world from a layout of your own.

        `robot [B, 2]`, `yaw [B]`, `goal [B, 3]`, `hazards [B, N, 3]`, `pillars [B, P, 3]`, and other
        objects `[B, N, 3]` by their kind, such as `ghost`. `draws [B, d]` are the random numbers of
        tasks and constraints, each 0.5 by default.
        """
        if not self._ready:
            self._stock.seed(self.seed)
        given = {"goal": None if goal is None else goal.unsqueeze(1), "hazard": hazards}
        objects = self._gather(given | {"pillar": pillars} | others)
        with self._alone():
            robot, yaw = (part.to(self.device, torch.float32) for part in (robot, yaw))
            chosen = torch.full_like(self._now.draws, 0.5)
            chosen = chosen if draws is None else draws.to(chosen)
            return self._begin(robot, yaw, objects, chosen)

    def _gather(self, given: Mapping[str, Tensor | None]) -> Tensor:
        """All objects `[B, K, 3]` from those of each kind."""
        kinds, objects = self.rules.stage.kinds, torch.zeros_like(self._now.objects)
        parts = {kind: part for kind, part in given.items() if part is not None}
        for kind in {**kinds, **parts}:
            shape = tuple(self.objects(kind).shape)
            part = parts.get(kind, torch.zeros(0))
            if tuple(part.shape) != shape:
                raise ValueError(
                    f"the layout has objects {kind!r} of shape {tuple(part.shape)}; {self.suite.name} "
                    f"with {self.num_envs} worlds takes {shape} of them"
                )
            objects[:, kinds.get(kind, slice(0, 0))] = part.to(self.device, torch.float32)
        return objects

    def set_age(self, age: Tensor) -> None:
        self.check_ready("set_age")
        if tuple(age.shape) != (self.num_envs,):
            raise ValueError(
                f"the ages have shape {tuple(age.shape)}: give one for each of {self.num_envs} worlds"
            )
        if bool(((age < 0) | (age >= self.spec.max_episode_steps)).any()):
            raise ValueError(f"an age is not from 0 to {self.spec.max_episode_steps - 1}")
        self._now.time = age.to(self.device, torch.long, copy=True)

    def step(self, action: Tensor) -> Step:
        """Advance every world by one action `[B, a]`, each component from -1 to 1.

        An action that is not finite is refused. On the CPU that is a ValueError before anything is
        stepped. On a GPU, which would have to be waited for, the world gets controls of 0 and its
        episode ends with a simulator fault.
        """
        self.check_action(action, finite=not self.sim.by_mask)
        with self._alone():
            return self._advance(action.detach().to(self.device, torch.float32))

    def _advance(self, action: Tensor) -> Step:
        now, rules = self._now, self.rules
        sensors, fault, refused = self._simulate(action)
        now.time = now.time + 1
        world = rules.moved(now.world(rules.stage, sensors, action))
        reward, ended, success = rules.outcome(world)
        clearance, seen = rules.clearance(world), rules.observe(world)
        # A sum is finite only if all its terms are.
        broken = ~torch.isfinite(clearance.sum(dim=1) + reward + seen.sum(dim=1))
        fault = fault | broken
        self._fault_count.add(fault, refused, lambda: rules.not_finite(clearance, reward, seen))
        reward, success = reward.masked_fill(fault, 0.0), success & ~fault
        terminated = fault if self.continuing else fault | ended
        truncated = (now.time >= self.spec.max_episode_steps) & ~terminated
        if self.continuing:
            before = world
            world, stuck = self._replace_goals(success & ~truncated, world)
            truncated = truncated | stuck
            seen = seen if world is before else rules.observe(world)
        clearance = torch.where(fault.unsqueeze(1), rules.lowest, clearance)
        charged = rules.charge(clearance, now)
        now.memories = rules.remember(world)
        now.sensors, now.objects, now.action = sensors, world.all_objects, action
        self._keep_frame()
        final_obs = self._without_faults(seen, fault)
        obs = self._restart(final_obs, terminated | truncated)
        return Step(
            obs=obs, reward=reward, terminated=terminated, truncated=truncated, final_obs=final_obs,
            sim_fault=fault, success=success, **charged,
        )  # fmt: skip

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
        } | self._now.state()

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
        self._now.load(state)
        self._ready = True

    def worlds(self) -> dict[str, Tensor]:
        self.check_ready("worlds")
        physics = {f"sim/{name}": rows for name, rows in self.sim.worlds().items()}
        return physics | self._now.tensors()

    def set_worlds(self, where: Tensor, rows: Mapping[str, Tensor]) -> None:
        physics = {name[4:]: part for name, part in rows.items() if name.startswith("sim/")}
        self.sim.set_worlds(where, physics)
        self._now.set_rows(where, rows)

    # Inside ------------------------------------------------------------------------------------

    def _begin(self, robot: Tensor, yaw: Tensor, objects: Tensor, draws: Tensor) -> Step:
        now = self._now
        now.objects, now.draws = objects.clone(), draws.clone()
        now.sensors = self._put(self._everywhere, robot, yaw, objects)
        world = World(self.rules.stage, now.sensors, now.objects, draws=now.draws)
        now.memories = world.memories = self.rules.remember(world)
        now.min_clearance = self.rules.clearance(world)
        now.cost_max = now.true_cost_max = torch.zeros_like(now.cost_max)
        now.time, now.action = torch.zeros_like(now.time), torch.zeros_like(now.action)
        obs = self.rules.observe(world)
        self._check_start(obs, self._everywhere)
        self._ready = True
        self._keep_frame()
        return first_step(obs, self.spec.num_costs, now.min_clearance)

    def _check_start(self, obs: Tensor, where: Tensor) -> None:
        """Refuse observations `[k, n]` that are not finite where episodes begin: in worlds `where`."""
        if not bool(torch.isfinite(obs).all()):
            row, column = (~torch.isfinite(obs)).nonzero()[0].tolist()
            world = row if where.dtype == torch.bool else int(where[row])
            raise ValueError(
                f"{self.suite.name}: the observation of world {world} is not finite after a reset, "
                f"in the block {self.rules.observer.block_at(column)!r}"
            )

    def _put(self, where: Tensor, robot: Tensor, yaw: Tensor, objects: Tensor) -> Tensor:
        """Put robots and bodies in their places; the sensors there."""
        return self.sim.reset(
            where, *self.sim.scene.start_state(robot, yaw, objects[:, self.rules.stage.bodies])
        )

    def _simulate(self, action: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """Take a step of physics; sensors `[B, ns]`, faults `[B]` and refused actions `[B]`.

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
        return torch.where(fault.unsqueeze(1), self._now.sensors, sensors), fault, refused

    def _without_faults(self, obs: Tensor, fault: Tensor) -> Tensor:
        """Observations with 0 for what is not finite where a fault ended the episode."""
        if not self.sim.by_mask and not bool(fault.any()):
            return obs
        return torch.where(fault.unsqueeze(1), obs.nan_to_num(0.0, 0.0, 0.0), obs)

    def _restart(self, final_obs: Tensor, ended: Tensor) -> Tensor:
        """Begin new episodes where they ended; the observations `[B, n]` after, from those before.

        On a device new episodes are computed for all worlds, as it would have to be waited for to
        tell which ended. An observation that is not finite is then a fault of the next step.
        """
        where = ended if self.sim.by_mask else ended.nonzero()[:, 0]
        if not self.autoreset or len(where) == 0:
            return final_obs
        robot, yaw, objects, draws = self._stock.take(where)
        sensors = self._put(where, robot, yaw, objects)
        fresh = World(self.rules.stage, sensors, objects, draws=draws)
        fresh.memories = self.rules.remember(fresh)
        self._now.restart(where, ended, fresh, self.rules.clearance(fresh))
        obs = self.rules.observe(fresh)
        if not self.sim.by_mask:
            self._check_start(obs, where)
        return replaced(final_obs, where, obs)

    def _replace_goals(self, reached: Tensor, world: World) -> tuple[World, Tensor]:
        """Continuing task: move the goals that were reached; the worlds then, and `[B]` where none
        fits and the episode ends.
        """
        stuck = torch.zeros_like(reached)
        ids = reached.nonzero()[:, 0]
        if len(ids) == 0:
            return world, stuck
        here, objects = world.position[ids], world.all_objects.clone()
        goal, found = self._layouts.new_goal(here[:, :2], objects[ids])
        objects[ids, 0] = goal
        stuck[ids] = ~found
        return world.with_objects(objects), stuck

    def _keep_frame(self) -> None:
        if self._recording:
            self._frame = self.snapshot()

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Leave the cores to physics, where it is they that run it, and record nothing for gradients."""
        with torch.no_grad(), one_torch_thread() if self.device.type == "cpu" else nullcontext():
            yield


class Rules:
    """The task and the constraints of a suite, applied to worlds on one device."""

    def __init__(
        self, suite: Suite, stage: Stage, compact: bool, margins: Sequence[float], at_rest: Tensor
    ) -> None:
        """at_rest: sensors `[1, ns]` of a robot at rest, to try every term with."""
        self.suite, self.stage = suite, stage
        self.names = [c.name for c in suite.constraints]
        self._movers = [term for term in suite.terms if type(term).move is not Term.move]
        self._ends_itself = type(suite.task).ended is not Task.ended
        self._followed = [
            (stage.kinds[things.kind], f"placed_{things.kind}*")
            for things in suite.things
            if things.body is not None and things.body.moves
        ]
        self._draws: dict[str, slice] = {}
        start = 0
        for term in suite.terms:
            self._draws[term.kind] = slice(start, start + term.draws)
            start += term.draws
        self.num_draws = start
        self.observer = Observer(suite, stage, compact)
        self._set_costs(margins, try_terms(self, at_rest))

    def _set_costs(self, margins: Sequence[float], ceilings: Sequence[float]) -> None:
        def row(values: Sequence[float]) -> Tensor:
            return torch.tensor(values, dtype=torch.float32).to(self.stage.device)

        contact = [c.contact for c in self.suite.constraints]
        self._margin, self._has_margin = row(margins), any(margins)
        self._none = torch.zeros_like(self._margin)
        self.lowest = -row(ceilings)
        """[m] the clearance that a fault is charged with"""
        self._contact, self._has_contact = row(contact).bool(), any(contact)
        self._highest = row(ceilings) + self._margin
        self.highest_cost = tuple(
            ceiling if touch else ceiling + early
            for touch, early, ceiling in zip(contact, margins, ceilings, strict=True)
        )

    def ask(self, term: Term, method: str, world: World) -> Tensor:
        """What a method of a term returns: one number or bool for each world. Else it is refused."""
        with blamed(term, method, self.suite.name):
            found = getattr(term, method)(self.view(world, term))
        return check_form(found, world, term, method, self.suite.name)

    def moved(self, world: World) -> World:
        """The worlds once the objects that move have moved."""
        if not self._movers and not self._followed:
            return world
        objects = world.all_objects.clone()
        for at, pattern in self._followed:
            objects[:, at] = world.sensor(pattern).unflatten(1, (-1, 3))
        for term in self._movers:
            for kind, centres in self.moved_by(term, world).items():
                objects[:, self.stage.kinds[kind]] = centres
        return world.with_objects(objects)

    def moved_by(self, term: Term, world: World) -> dict[str, Tensor]:
        """New centres `[R, N, 3]` of the objects that a term moves, by kind."""
        with blamed(term, "move", self.suite.name):
            found = term.move(self.view(world, term))
            if not isinstance(found, Mapping):
                raise TypeError(
                    f"it returned {found!r}: return a dict of centres [R, N, 3] by kind"
                )
            for kind, centres in found.items():
                check_moved(self, world, term, kind, centres)
        return found

    def clearance(self, world: World) -> Tensor:
        """[R, m] of each constraint, in the order of the suite's name"""
        found = [self.ask(c, "clearance", world) for c in self.suite.constraints]
        if not found:
            return world.sensors.new_zeros(len(world), 0)
        return torch.stack(found, dim=1).to(world.sensors.dtype)

    def outcome(self, world: World) -> tuple[Tensor, Tensor, Tensor]:
        """The reward, whether the task is over, and whether it succeeded: `[R]` each."""
        task = self.suite.task
        success = self.ask(task, "succeeded", world)
        reward = self.ask(task, "reward", world).to(world.sensors.dtype)
        return reward, self.ask(task, "ended", world) if self._ends_itself else success, success

    def remember(self, world: World) -> dict[str, Tensor]:
        """What the terms need in the next step, by kind."""
        found = {term.kind: self.remember_of(term, world) for term in self.suite.terms}
        return {kind: memory for kind, memory in found.items() if memory is not None}

    def remember_of(self, term: Term, world: World) -> Tensor | None:
        """What one term needs in the next step."""
        with blamed(term, "remember", self.suite.name):
            return term.remember(self.view(world, term))

    def observe(self, world: World) -> Tensor:
        """[R, n]"""
        return self.observer.observe(world, self.view)

    def may_start(self, world: World) -> Tensor:
        """[R] whether an episode may start so: free of cost, and not over at once"""
        good = self.ask(self.suite.task, "may_start", world)
        return good & (self.clearance(world) >= 0).all(dim=1)

    def marks(self, world: World) -> list[Mark]:
        """How all terms draw the first of these worlds."""
        return [mark for term in self.suite.terms for mark in term.marks(self.view(world, term))]

    @property
    def may_fail(self) -> list[str]:
        """What `not_finite` speaks of, in words: each clearance, the reward, and each term's blocks."""
        return [
            *(f"a clearance that is not finite from {name}" for name in self.names),
            f"a reward that is not finite from {self.suite.task.kind}",
            *(f"an observation that is not finite in {b!r}" for b in self.observer.blocks_of_terms),
        ]

    def not_finite(self, clearance: Tensor, reward: Tensor, obs: Tensor) -> Tensor:
        """[R, k] which of the clearances `[R, m]`, rewards `[R]` and blocks of terms are not finite"""
        blocks = [obs[:, self.observer.blocks[b]].sum(1) for b in self.observer.blocks_of_terms]
        parts = [clearance, torch.stack([reward, *blocks], dim=1)]
        return ~torch.isfinite(torch.cat(parts, dim=1))

    def true_cost(self, clearance: Tensor) -> Tensor:
        """The costs `[R, m]` of clearances `[R, m]`, without a margin."""
        return self._cost(clearance, self._none, -self.lowest)

    def _cost(self, clearance: Tensor, margin: Tensor, highest: Tensor) -> Tensor:
        short = torch.minimum((margin - clearance).clamp_(min=0.0), highest)
        if self._has_contact:
            return torch.where(self._contact, (short > 0).to(short.dtype), short)
        return short

    def charge(self, clearance: Tensor, now: Running) -> dict[str, Tensor]:
        """The parts of a Step that speak of costs, from clearances `[B, m]`; raises the maxima in `now`.

        Without a margin the true costs are the same tensors as the learner's.
        """
        before = now.cost_max
        cost = true_cost = self._cost(clearance, self._margin, self._highest)
        most = true_most = torch.maximum(before, cost)
        if self._has_margin:
            true_cost = self.true_cost(clearance)
            true_most = torch.maximum(now.true_cost_max, true_cost)
        now.cost_max, now.true_cost_max = most, true_most
        now.min_clearance = torch.minimum(now.min_clearance, clearance)
        return {
            "cost": cost, "cost_max_before": before, "cost_max": most, "true_cost": true_cost,
            "true_cost_max": true_most, "clearance": clearance, "min_clearance": now.min_clearance,
        }  # fmt: skip

    def view(self, world: World, term: Term) -> World:
        """The worlds with the random numbers and the memory of one term."""
        if not term.draws and type(term).remember is Term.remember:
            return world
        return world.of_term(self._draws[term.kind], term.kind)

    def rest(self, at_rest: Tensor, rows: int, remembered: bool = True) -> World:
        """Robots at rest with everything far away."""
        objects = at_rest.new_full((rows, self.stage.num_objects, 3), FAR)
        draws = at_rest.new_full((rows, self.num_draws), 0.5)
        world = World(self.stage, at_rest.repeat(rows, 1), objects, draws=draws)
        world.memories = self.remember(world) if remembered else {}
        return world

    def later(self, start: World) -> World:
        """The same worlds after a step in which nothing moved."""
        action = start.sensors.new_zeros(len(start), self.stage.scene.model.nu)
        steps = torch.ones(len(start), dtype=torch.long, device=start.sensors.device)
        return World(
            self.stage, start.sensors, start.all_objects, action, steps, start.draws, start.memories
        )
