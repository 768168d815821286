"""The tables that the `statewise` command prints."""

from __future__ import annotations

import inspect
from typing import Any

from rich.table import Table

from statewise.algos import ALGORITHMS
from statewise.console import styled
from statewise.envs.constraints import constraint_entries
from statewise.envs.env import Env
from statewise.envs.render import Episode, Tally
from statewise.envs.robots import get_robot, robot_names
from statewise.envs.suites import PAPER_SUITES
from statewise.envs.tasks import task_entries
from statewise.envs.vec_env import VecEnv
from statewise.text import percent, several
from statewise.training.evaluate import Evaluation


def _titled(title: str, caption: str | None = None, **more: Any) -> Table:
    return Table(title=title, title_justify="left", caption=caption, caption_justify="left", **more)


def algorithm_table() -> Table:
    table = _titled(
        "The algorithms", "`statewise train --algo NAME --help` shows the settings of one."
    )
    for name in ("algorithm", "what it does", "from"):
        table.add_column(name, no_wrap=name == "algorithm")
    for name, kind in ALGORITHMS.items():
        about = (kind.__doc__ or inspect.getdoc(inspect.getmodule(kind)) or "").split("\n\n")
        table.add_row(name, " ".join(about[0].split()), kind.__module__)
    return table


def suite_table() -> Table:
    table = _titled("The suites of the paper", "Any {Robot}-{Constraint}-{Number} works, and chains of "
                    "constraints too: Point-Hazard-8-Pillar-4. Radius and keepout are those "
                    "of the objects, goal is the radius of the goal. Episodes have up to 1000 "
                    "steps.")  # fmt: skip
    table.add_column("suite", no_wrap=True)
    _add_columns(table, "observation", "action", "radius m", "keepout m", "goal m", "control Hz")
    for name in PAPER_SUITES:
        table.add_row(*_suite_row(name))
    return table


def _add_columns(table: Table, *names: str) -> None:
    """Add columns of numbers, with a line for each word of a heading: 80 columns have room for all."""
    for name in names:
        table.add_column(name.replace(" ", "\n"), justify="right")


def _suite_row(name: str) -> list[str]:
    env = VecEnv(name)
    constraints: Any = env.suite.constraints  # those of the paper have a count, radius and keepout
    return [
        name,
        *_sizes(env),
        ", ".join(f"{c.radius:g}" for c in constraints),
        ", ".join(f"{c.keepout:g}" for c in constraints),
        *_goal_and_rate(env),
    ]


def _sizes(env: VecEnv) -> tuple[str, str]:
    return str(env.spec.obs_size), str(env.spec.action_size)


def _goal_and_rate(env: VecEnv) -> tuple[str, str]:
    """Radius of the goal, and rate of control."""
    return f"{env.suite.robot.goal_radius:g}", f"{1 / env.spec.control_dt:.3g}"


def robot_table() -> Table:
    table = _titled("The robots", "Observation is its size in a suite of the robot's first constraint, "
                    "and own part how much of it is about the robot itself. Goal is the radius of the "
                    "goal. Episodes have up to 1000 steps.")  # fmt: skip
    table.add_column("robot", no_wrap=True)
    _add_columns(table, "own part", "observation", "action")
    table.add_column("constraints")
    _add_columns(table, "goal m", "control Hz")
    for name in robot_names():
        table.add_row(*_robot_row(name))
    return table


def _robot_row(name: str) -> list[str]:
    robot = get_robot(name)
    env = VecEnv(f"{name}-{robot.constraints[0]}-1")
    own = env.spec.blocks["goal_compass"].start  # what comes before is the robot's own
    return [name, str(own), *_sizes(env), ", ".join(robot.constraints), *_goal_and_rate(env)]


def constraint_table() -> Table:
    table = _titled("The constraints", "A suite's name lists its constraints: Point-Hazard-8-Speed-1.5 "
                    "has two. A word in capitals stands for a number.")  # fmt: skip
    for name in ("constraint", "unit", "clearance"):
        table.add_column(name, no_wrap=name != "clearance")
    for entry in constraint_entries():
        table.add_row(entry.usage, getattr(entry.make, "unit", ""), entry.about)
    return table


def task_table() -> Table:
    table = _titled("The tasks", "A suite's name has the task after the robot: Point-Push-Hazard-4. "
                    "Without one the task is Goal. A number in brackets is optional.")  # fmt: skip
    table.add_column("task", no_wrap=True)
    table.add_column("what it asks for")
    for entry in task_entries():
        table.add_row(entry.usage, entry.about)
    return table


def play_table(env: Env, episodes: list[Episode], running: Tally) -> Table:
    """What happened, for every constraint; a running episode counts for costs, not for returns."""
    done = several(len(episodes), "finished episode")
    table = _titled(f"{env.spec.name}: {done}", show_header=False)
    endings = [e.ending for e in episodes]
    for ending in sorted(set(endings)):
        table.add_row(ending, str(endings.count(ending)))
    if episodes:
        mean = sum(e.ret for e in episodes) / len(episodes)
        table.add_row("return, mean of the finished", f"{mean:.3f}")
    table.add_row("return of the running episode", f"{float(running.ret[0]):.3f}")
    for i, name in enumerate(env.spec.cost_names):
        total = sum(e.cost[i] for e in episodes) + float(running.cost[0, i])
        largest = max([e.cost_max[i] for e in episodes] + [float(running.cost_max[0, i])])
        table.add_row(f"{name} cost, sum over all steps", f"{total:.3f}")
        table.add_row(f"{name} cost, largest of any step", f"{largest:.3f}")
    table.add_row("simulator faults", str(env.faults))
    return table


def evaluation_table(found: Evaluation) -> Table:
    how = "sampled" if found.sampled else "mean"
    table = _titled(f"{found.algo} on {found.suite}: {several(found.episodes, 'fresh episode')}, {how} "
                    f"actions, seed {found.seed}", show_header=False)  # fmt: skip
    table.add_row("return", f"{found.mean_return:.3f} ± {found.return_std:.3f}")
    table.add_row("successful episodes", percent(found.success))
    table.add_row("episode length", f"{found.length:.0f}")
    for c in found.constraints:
        table.add_row(f"{c.name} cost of an episode", f"{c.episode_cost:.4f}")
        table.add_row(f"{c.name} cost, largest of an episode", f"{c.max_cost:.4f}")
        table.add_row(f"{c.name} cost, largest of any step", f"{c.worst_cost:.4f}")
        table.add_row(f"{c.name} cost rate", f"{c.cost_rate:.5f}")
        rate, low, high = (percent(share) for share in (c.rate, c.low, c.high))
        above = f" (cost above {found.threshold:g})" if found.threshold else ""
        table.add_row(
            f"episodes that violate {c.name}{above}", f"{rate} (95 % interval {low} to {high})"
        )
    if found.sim_faults:
        table.add_row(styled("simulator faults", "red"), str(found.sim_faults))
    return table
