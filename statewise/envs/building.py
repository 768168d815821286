"""What an environment is built from: the scene of a suite, a trial of its terms, and what may start."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statewise.envs.blame import label_of
from statewise.envs.constraints.base import Constraint
from statewise.envs.suites import Suite
from statewise.envs.tasks.base import Task
from statewise.envs.terms import Term
from statewise.envs.world import MissingSensor, Stage, World
from statewise.sim.backend import make_simulator
from statewise.sim.errors import RobotFileError
from statewise.sim.scene import Scene, build_scene
from statewise.sim.sensors import LacksSensor

if TYPE_CHECKING:
    from statewise.envs.vec_env import Rules

FAR = 100.0
"""Metres to objects that are nowhere near."""
_TRIED = 3
"""Worlds of the trial. More than one, so that a wrong shape shows."""


def suite_scene(suite: Suite, integrator: str | None) -> Scene:
    """The scene of a suite, with all bodies and sensors that its terms ask for."""
    bodies = {
        f"{things.kind}{i}": things.body
        for things in suite.things
        if things.body is not None
        for i in range(things.count)
    }
    wanted = [pattern for term in suite.terms for pattern in term.sensors]
    file = suite.robot.mjcf
    file = dataclasses.replace(file, sensors=tuple(dict.fromkeys([*file.sensors, *wanted])))
    try:
        return build_scene(file, bodies, integrator)
    except LacksSensor as error:
        term = next((term for term in suite.terms if error.pattern in term.sensors), None)
        if term is None:  # a sensor of the robot's own observation
            raise
        raise RobotFileError(
            f"{suite.name} cannot be made: the robot has no sensor {error.pattern!r}, which "
            f"{term.kind} reads. {error.path} has: {error.has}. Add it to the file's <sensor> section, "
            f"or leave {term.kind} out"
        ) from error


def sensors_at_rest(scene: Scene) -> Tensor:
    """Sensors `[1, ns]` of a robot at the origin with nothing around it, by CPU physics."""
    sim = make_simulator(scene, 1, "cpu", threads=1)
    zeros = torch.zeros(1, 2, dtype=torch.float32)
    away = zeros.new_full((1, len(scene.bodies), 3), FAR)
    start = scene.start_state(zeros, zeros[:, 0], away)
    return sim.reset(torch.zeros(1, dtype=torch.long), *start)


def suite_stage(suite: Suite, scene: Scene, device: torch.device) -> Stage:
    """What the worlds of a suite have in common, on a device."""
    extent, max_steps = suite.arena.extent, suite.max_episode_steps
    return Stage(scene, suite.robot, suite.things, extent, max_steps, device)


def may_start(
    suite: Suite,
    rules: Rules,
    rest: Tensor,
    robot: Tensor,
    yaw: Tensor,
    objects: Tensor,
    draws: Tensor,
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
    world = World(rules.stage, rest.expand(len(yaw), -1), turned, draws=draws)
    world.memories = rules.remember(world)
    good = rules.may_start(world)
    if suite.robot.reach is not None and suite.has_goal:
        good &= torch.linalg.vector_norm(objects[:, 0], dim=-1) <= suite.robot.reach
    return good


def read_margins(
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
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise ValueError(f"the margin is {value!r}: give a number")
        if not 0 <= value < math.inf:
            raise ValueError(f"the margin is {value}: give a finite number, 0 or more")
    return tuple(float(value) for value in given)


def try_terms(rules: Rules, at_rest: Tensor) -> list[float]:
    """Try every term on robots at rest, so that mistakes show before the first episode.

    Returns the ceiling of each constraint.
    """
    suite = rules.suite
    try:
        with torch.no_grad():
            for term in suite.terms:
                _check_memory(rules, at_rest, term)
            start = rules.rest(at_rest, _TRIED)
            rules.observer.measure(start, rules.view)
            ceilings = [
                _find_ceiling(constraint, _check_at_rest(rules, start, constraint))
                for constraint in suite.constraints
            ]
            rules.clearance(rules.rest(at_rest, _TRIED + 1))  # the number of worlds is no constant
            for world in (start, rules.later(start)):
                for term in suite.terms:
                    _try(rules, world, term)
    except MissingSensor as error:
        raise MissingSensor(f"{suite.name} cannot be made: {error}") from error
    return ceilings


def _try(rules: Rules, world: World, term: Term) -> None:
    """Call every method of a term at one moment, and refuse what has a wrong form."""
    label, seen = label_of(term, rules.suite.name), rules.view(world, term)
    before = world.writes()
    if isinstance(term, Task):
        parts = [rules.ask(term, name, world) for name in ("reward", "succeeded", "ended")]
        if not bool(torch.isfinite(parts[0]).all()):
            raise ValueError(
                f"{label}: the reward is {float(parts[0][0])} at rest in world 0: return finite numbers"
            )
        if world.starts:
            rules.ask(term, "may_start", world)
    else:
        rules.ask(term, "clearance", world)
    rules.observer.observe_term(term, world, seen)
    rules.moved_by(term, world)
    rules.remember_of(term, world)
    if world.writes() != before:
        raise ValueError(
            f"{label} writes into what it reads, and others read the same memory: write into a copy, "
            f"as in world.position.clone()"
        )


def check_moved(rules: Rules, world: World, term: Term, kind: str, centres: Tensor) -> None:
    """Refuse new centres of unknown objects, or of another number of them."""
    label, kinds = label_of(term, rules.suite.name), rules.stage.kinds
    if kind not in kinds:
        known = ", ".join(kinds) or "none"
        raise ValueError(f"{label} moves {kind!r}, but the objects are: {known}")
    wanted = (len(world), kinds[kind].stop - kinds[kind].start, 3)
    if tuple(centres.shape) != wanted:
        raise ValueError(
            f"{label} moves {kind!r} to centres of shape {tuple(centres.shape)}: return {wanted}"
        )


def check_form(found: object, world: World, term: Term, method: str, suite: str) -> Tensor:
    """Refuse what a method returned unless it is one number, or for some one bool, for each world."""
    rows, floats, device = len(world), method in ("clearance", "reward"), world.sensors.device
    what, where = "None" if found is None else f"a {type(found).__name__}", ""
    if isinstance(found, Tensor):
        right = found.dtype.is_floating_point if floats else found.dtype == torch.bool
        if right and found.shape == (rows,) and found.device == device:
            return found
        what = f"{found.dtype} of shape {tuple(found.shape)}"
        if found.device != device:
            what, where = f"{what} on {found.device}", f" on {device}"
    wanted = f"{'floats' if floats else 'bools'} of shape ({rows},){where}"
    label = f"{label_of(term, suite)}: `{method}`"
    if method == "clearance":  # it may be a function of any name
        label, wanted = label_of(term, suite), f"{wanted}, one clearance for each world"
    raise ValueError(f"{label} returned {what} for {rows} worlds: return {wanted}")


def _check_memory(rules: Rules, at_rest: Tensor, term: Term) -> None:
    """Refuse what a term remembers unless it is `[R, k]`, and the same k in every step."""
    start = rules.rest(at_rest, _TRIED, remembered=False)
    memory, label = rules.remember_of(term, start), label_of(term, rules.suite.name)
    if memory is not None and not (
        isinstance(memory, Tensor) and memory.dim() == 2 and len(memory) == _TRIED
    ):
        raise ValueError(
            f"{label}: remember() returned {_form(memory)} for {_TRIED} worlds: return a tensor [R, k]"
        )
    start.memories = {} if memory is None else {term.kind: memory}
    then = rules.remember_of(term, rules.later(start))
    if _form(then) != _form(memory):
        raise ValueError(
            f"{label}: remember() returned {_form(then)} after a step and {_form(memory)} at the start, "
            f"for {_TRIED} worlds: return the same form"
        )


def _form(memory: object) -> str:
    """What a term remembers, in words."""
    if not isinstance(memory, Tensor):
        return repr(memory)
    return f"{memory.dtype} of shape {tuple(memory.shape)}"


def _find_ceiling(constraint: Constraint, at_rest: float) -> float:
    """The largest cost of a constraint. `at_rest`: its clearance for a robot with nothing around it."""
    ceiling = constraint.ceiling
    if ceiling is None:
        ceiling = 1.0 if constraint.things() or at_rest <= 0 else at_rest
    number = isinstance(ceiling, int | float) and not isinstance(ceiling, bool)
    if not (number and 0 < ceiling < math.inf):
        raise ValueError(
            f"the ceiling of {constraint.kind} is {ceiling!r}: it is the largest cost of a step, so "
            f"give a finite number above 0"
        )
    return float(ceiling)


def _check_at_rest(rules: Rules, world: World, constraint: Constraint) -> float:
    """Check the clearance of robots at rest, and return that of the first.

    It may be negative only if it depends on where objects are, as they are far away here.
    """
    label = label_of(constraint, rules.suite.name)
    clearance = float(rules.ask(constraint, "clearance", world)[0])
    if not math.isfinite(clearance):
        raise ValueError(
            f"{label} is {clearance} for a robot at rest in world 0: return finite numbers"
        )
    elsewhere = world.with_objects(torch.zeros_like(world.all_objects))
    if clearance < 0 and float(rules.ask(constraint, "clearance", elsewhere)[0]) == clearance:
        raise ValueError(
            f"{label} is broken at the start: its clearance is {clearance:.3g} {constraint.unit}".rstrip()
            + f" for the {world.robot.name} at rest. Choose another limit or another robot"
        )
    return clearance
