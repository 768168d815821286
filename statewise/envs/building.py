"""What an environment is built from: the scene of a suite, a trial of its terms, and what may start."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from statewise.envs.constraints.base import Constraint
from statewise.envs.suites import Suite
from statewise.envs.tasks.base import Task
from statewise.envs.terms import Term
from statewise.envs.world import MissingSensor, Stage, World
from statewise.sim.backend import make_simulator
from statewise.sim.scene import Scene, build_scene

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
    return build_scene(file, bodies, integrator)


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
    suite, ceilings = rules.suite, []
    try:
        for term in suite.terms:
            _check_memory(rules, at_rest, term)
        world = rules.rest(at_rest, _TRIED)
        _check_task(suite.task, rules.view(world, suite.task), suite.name)
        for constraint in suite.constraints:
            found = _check_clearance(constraint, rules.view(world, constraint), suite.name)
            ceilings.append(_find_ceiling(constraint, found))
        rules.clearance(rules.rest(at_rest, _TRIED + 1))  # the number of worlds is no constant
        rules.observer.measure(world, rules.view)
    except MissingSensor as error:
        raise MissingSensor(f"{suite.name} cannot be made: {error}") from error
    return ceilings


def label_of(term: Term, suite: str) -> str:
    return f"the {'task' if isinstance(term, Task) else 'constraint'} {term.kind} of {suite}"


def check_moved(rules: Rules, objects: Tensor, term: Term, kind: str, centres: Tensor) -> None:
    """Refuse new centres of unknown objects, or of another number of them."""
    label, kinds = label_of(term, rules.suite.name), rules.stage.kinds
    if kind not in kinds:
        known = ", ".join(kinds) or "none"
        raise ValueError(f"{label} moves {kind!r}, but the objects are: {known}")
    wanted = (len(objects), kinds[kind].stop - kinds[kind].start, 3)
    if tuple(centres.shape) != wanted:
        raise ValueError(
            f"{label} moves {kind!r} to centres of shape {tuple(centres.shape)}: return {wanted}"
        )


def check_form(found: object, rows: int, label: str) -> None:
    """Refuse what a constraint returned for so many worlds, unless it is one float for each."""
    if not isinstance(found, Tensor):
        raise TypeError(
            f"{label} returned a {type(found).__name__} for {rows} worlds: return a tensor [R], "
            f"one clearance for each world"
        )
    if tuple(found.shape) != (rows,) or not found.is_floating_point():
        raise ValueError(
            f"{label} returned {found.dtype} of shape {tuple(found.shape)} for {rows} worlds: "
            f"return floats of shape ({rows},), one clearance for each world"
        )


def _check_memory(rules: Rules, at_rest: Tensor, term: Term) -> None:
    """Refuse what a term remembers unless it is `[R, k]`."""
    memory = term.remember(rules.view(rules.rest(at_rest, _TRIED, remembered=False), term))
    if memory is None or (isinstance(memory, Tensor) and memory.shape[:-1] == (_TRIED,)):
        return
    what = f"shape {tuple(memory.shape)}" if isinstance(memory, Tensor) else repr(memory)
    raise ValueError(
        f"{label_of(term, rules.suite.name)}: remember() returned {what} for {_TRIED} worlds: return "
        f"a tensor [R, k]"
    )


def _check_task(task: Task, seen: World, suite: str) -> None:
    """Refuse a task whose reward or ends have a wrong form."""
    rows, parts = len(seen), {}
    for name in ("reward", "succeeded", "ended"):
        part = parts[name] = getattr(task, name)(seen)
        floats, what = name == "reward", str(part)
        if isinstance(part, Tensor):
            what = f"{part.dtype} of shape {tuple(part.shape)}"
            right = part.is_floating_point() if floats else part.dtype == torch.bool
            if right and tuple(part.shape) == (rows,):
                continue
        raise ValueError(
            f"the task {task.kind} of {suite}: `{name}` returned {what} for {rows} worlds: return "
            f"{'floats' if floats else 'bools'} of shape ({rows},)"
        )
    if not bool(torch.isfinite(parts["reward"]).all()):
        raise ValueError(
            f"the task {task.kind} of {suite}: the reward is "
            f"{float(parts['reward'][0])} at rest in world 0: return finite numbers"
        )


def _find_ceiling(constraint: Constraint, at_rest: float) -> float:
    """The largest cost of a constraint. `at_rest`: its clearance for a robot with nothing around it."""
    ceiling = constraint.ceiling
    if ceiling is None:
        ceiling = 1.0 if constraint.things() or at_rest <= 0 else at_rest
    if not (isinstance(ceiling, int | float) and 0 < ceiling < math.inf):
        raise ValueError(
            f"the ceiling of {constraint.kind} is {ceiling!r}: it is the largest cost of a step, so "
            f"give a finite number above 0"
        )
    return float(ceiling)


def _check_clearance(constraint: Constraint, world: World, suite: str) -> float:
    """Check what a constraint returns for robots at rest; the clearance of the first.

    It may be negative only if it depends on where objects are, as they are far away here.
    """
    label = label_of(constraint, suite)
    found = constraint.clearance(world)
    check_form(found, len(world), label)
    clearance = float(found[0])
    if not math.isfinite(clearance):
        raise ValueError(
            f"{label} is {clearance} for a robot at rest in world 0: return finite numbers"
        )
    elsewhere = world.with_objects(torch.zeros_like(world.all_objects))
    if clearance < 0 and float(constraint.clearance(elsewhere)[0]) == clearance:
        raise ValueError(
            f"{label} is broken at the start: its clearance is {clearance:.3g} {constraint.unit}".rstrip()
            + f" for the {world.robot.name} at rest. Choose another limit or another robot"
        )
    return clearance
