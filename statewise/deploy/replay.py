"""`statewise.replay(...)`: the worst episodes of a policy as one self-contained web page."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from jinja2 import Environment, PackageLoader
from markupsafe import Markup

from statewise.deploy.replay_data import Drawing, side_data
from statewise.envs.vec_env import VecEnv
from statewise.runs.files import write_atomically
from statewise.runs.folder import check_folder
from statewise.settings import asked
from statewise.training.api import worst_file
from statewise.training.evaluate import run_episodes, world_count
from statewise.training.policy import Policy, hash_policy, load_policy, worlds_for
from statewise.training.recording import Facts, Recording, load_recordings
from statewise.training.worst import WorstEpisodes
from statewise.version import __version__

_SEARCHED = 300
"""Fresh episodes among which the worst are found, if `evaluate` has kept none"""
_ARGUMENTS = {"hazard": "hazards", "pillar": "pillars"}
"""What `VecEnv.reset_to` calls objects of some kinds"""


@dataclass(frozen=True)
class Shown:
    """The episodes of one policy."""

    name: str
    recordings: Sequence[Recording]
    facts: Facts


def replay(
    path: str | Path,
    out: str | Path = "replay.html",
    worst: int = 5,
    against: str | Path | None = None,
    episodes: int | None = None,
    seed: int = 7,
    sampled: bool = False,
    best_safe: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> Path:
    """Write a page that replays the worst episodes of a run's policy; returns the page.

    worst: how many episodes of each constraint to show.
    against: another run of the same suite, whose policy is shown beside it on the same layouts.
    episodes: find the worst among this many fresh episodes. By default the page shows the episodes
        that `statewise evaluate` kept, if they are of this policy.
    seed, sampled: of fresh episodes, as for `evaluate`.
    best_safe, imports, trust: as for `load_policy`.
    """
    out = Path(out)
    if out.is_dir():
        raise ValueError(
            f"{out} is a folder: name the page to write, such as {out / 'replay.html'}"
        )
    check_folder(asked("out"), out.parent)
    if worst < 1:
        raise ValueError(f"worst is {worst}: show at least 1 episode")
    policy = load_policy(path, best_safe, imports, trust)
    shown = _kept(Path(path), policy, worst, sampled) if episodes is None else None
    if shown is None:
        shown = _searched(policy, worst, episodes or _SEARCHED, seed, sampled)
    both, policies = [shown], [policy]
    if against is not None:
        policies.append(load_policy(against, best_safe, imports, trust))
        both.append(_repeated(policies[1], shown))
    with worlds_for(policy, 1, seed) as env:
        drawing = Drawing(env.simulated) if env.simulated is not None else None
        content = page(_named(both, policies), drawing)
    write_atomically(out, content.encode())
    return out


# Finding episodes ------------------------------------------------------------------------------


def _kept(path: Path, policy: Policy, worst: int, sampled: bool) -> Shown | None:
    """The episodes that an evaluation of this policy kept, if there are any."""
    file = worst_file(path)
    if not file.exists():
        return None
    recordings, facts = load_recordings(file)
    mine = (hash_policy(policy.algo), policy.settings.suite, sampled)
    if (facts.policy, facts.suite, facts.sampled) != mine:
        return None
    return Shown(policy.algo.name, [r for r in recordings if r.rank < worst], facts)


def _searched(policy: Policy, worst: int, episodes: int, seed: int, sampled: bool) -> Shown:
    """Run fresh episodes and return the worst of them."""
    if not policy.spec.cost_names:
        raise ValueError(f"{policy.spec.name} has no constraint, so that no episode is the worst")
    with worlds_for(policy, world_count(episodes), seed) as env:
        keeper = WorstEpisodes(env, policy.algo, worst)
        run_episodes(policy.algo, env, episodes, seed, sampled, keeper)
        facts = keeper.facts(episodes, seed, sampled)
        return Shown(policy.algo.name, keeper.recordings(), facts)


def _repeated(policy: Policy, shown: Shown) -> Shown:
    """Run another policy in the same layouts, episode by episode."""
    suite = shown.facts.suite
    if policy.settings.suite != suite:
        raise ValueError(
            f"the run to compare with is of {policy.settings.suite}, this one of {suite}: both must "
            f"be of the same suite"
        )
    count = len(shown.recordings)
    with worlds_for(policy, count, shown.facts.seed) as env:
        simulated = env.simulated
        if simulated is None:
            raise ValueError(
                f"the layouts of {suite} cannot be repeated: leave {asked('against')} out"
            )
        keeper = WorstEpisodes(env, policy.algo, count)
        seed, sampled = shown.facts.seed, shown.facts.sampled
        generator = torch.Generator(env.device).manual_seed(seed) if sampled else None
        step = simulated.reset_to(**_layouts(simulated, shown.recordings))
        keeper.begin(step)
        running = torch.ones(count, dtype=torch.bool, device=env.device)
        while bool(running.any()):
            step = env.step(policy.algo.act(step, generator).executed)
            keeper.add(step, running)
            running = running & ~step.ended
        found = sorted(keeper.recordings(), key=lambda one: one.world)
        return Shown(policy.algo.name, found, keeper.facts(count, seed, sampled))


def _layouts(env: VecEnv, recordings: Sequence[Recording]) -> dict[str, torch.Tensor]:
    """What `reset_to` takes, from the first states of episodes."""
    first = {
        name: torch.stack([torch.from_numpy(getattr(r, name)[0]) for r in recordings])
        for name in ("qpos", "mocap_pos", "mocap_quat")
    }
    robot, yaw = env.sim.scene.start_place(**first)
    objects = {
        _ARGUMENTS.get(kind, kind): torch.stack(
            [torch.from_numpy(r.objects[kind][0]) for r in recordings]
        )
        for kind in recordings[0].objects
    }
    if "goal" in objects:
        objects["goal"] = objects["goal"][:, 0]
    draws = torch.stack([torch.from_numpy(r.draws[0]) for r in recordings])
    return {"robot": robot, "yaw": yaw, "draws": draws, **objects}


# The page --------------------------------------------------------------------------------------


def page(shown: Sequence[Shown], drawing: Drawing | None) -> str:
    """The whole HTML document, for one policy or for two side by side.

    drawing: how the worlds look. Without it the page shows numbers only.
    """
    first, facts = shown[0], shown[0].facts
    together = zip(*(one.recordings for one in shown), strict=True)
    data = {
        "dt": facts.control_dt,
        "constraints": [
            {"name": name, "unit": unit}
            for name, unit in zip(facts.cost_names, facts.clearance_units, strict=True)
        ],
        "runs": [{"name": one.name, "value": one.facts.value_name} for one in shown],
        "model": drawing.model_data() if drawing else None,
        "episodes": [_episode(both, shown, drawing) for both in together],
    }
    return (
        _environment()
        .get_template("page.html")
        .render(
            title=f"{' against '.join(one.name for one in shown)} on {facts.suite}",
            lead=_lead(first),
            version=__version__,
            drawn=drawing is not None,
            data=Markup(json.dumps(data).replace("<", "\\u003c")),
        )
    )


def _named(shown: Sequence[Shown], policies: Sequence[Policy]) -> list[Shown]:
    """The policies with names that tell them apart."""
    titles = [policy.algo.title for policy in policies]
    if len(set(titles)) < len(titles):
        seeds = [policy.settings.seed for policy in policies]
        marks = [f"seed {seed}" for seed in seeds] if len(set(seeds)) > 1 else ["A", "B"]
        titles = [f"{title}, {mark}" for title, mark in zip(titles, marks, strict=True)]
    return [dataclasses.replace(one, name=name) for one, name in zip(shown, titles, strict=True)]


def _lead(shown: Shown) -> str:
    facts = shown.facts
    actions = "sampled actions" if facts.sampled else "mean actions"
    return (
        f"The worst of {facts.episodes:,} fresh episodes of {shown.name} with {actions}, seed "
        f"{facts.seed}. Episodes are ranked by their largest cost, then by their smallest clearance."
    )


def _episode(both: Sequence[Recording], shown: Sequence[Shown], drawing: Drawing | None) -> Any:
    """One choice of the page."""
    first, facts = both[0], shown[0].facts
    index = facts.cost_names.index(first.worst_of[0])
    cost = float(first.cost[:, index].max())
    clearance = float(first.clearance[:, index].min())
    unit = facts.clearance_units[index]
    near = f"clearance {clearance:.3f} {unit}".strip()
    name = f"{first.worst_of[0]} " if len(facts.cost_names) > 1 else ""
    numbers = [_numbers(one, policy.name) for one, policy in zip(both, shown, strict=True)]
    return {
        "title": f"{name}cost {cost:.3f}" if cost > 0 else f"{name}{near}",
        "why": f"Number {first.rank + 1} of the worst for {' and '.join(first.worst_of)}. "
        + " ".join(numbers),
        "constraint": index,
        "sides": [side_data(one, drawing) for one in both],
    }


def _numbers(one: Recording, name: str) -> str:
    broken = int((one.cost > 0).any(axis=1).sum())
    breaks = f"breaks a constraint in {broken} of them" if broken else "breaks no constraint"
    return f"{name}: {one.steps} steps, {breaks}, return {one.reward.sum():.2f}, {one.ending}."


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("statewise.deploy", "viewer"), autoescape=True, trim_blocks=True,
        lstrip_blocks=True,
    )  # fmt: skip
    environment.globals["asset"] = _asset
    return environment


def _asset(name: str) -> Markup:
    return Markup(resources.files("statewise.deploy").joinpath("viewer", name).read_text())
