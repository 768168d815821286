"""Reinforcement learning for robots that must be safe at every step."""

import importlib
import os
from typing import TYPE_CHECKING, Any

# Before torch is loaded: beside other work its threads should sleep at a barrier, not spin at it for
# one that does not run, which takes ten times as long (docs/speed.md).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from statewise.envs.gym_ids import register_suites
from statewise.version import __version__

if TYPE_CHECKING:
    from statewise.algos import ALGORITHMS as ALGORITHMS
    from statewise.algos import Algorithm as Algorithm
    from statewise.algos import get_algorithm as get_algorithm
    from statewise.algos import register_algorithm as register_algorithm
    from statewise.deploy.certify import certify as certify
    from statewise.deploy.domain import Domain as Domain
    from statewise.deploy.replay import replay as replay
    from statewise.envs.constraints import Constraint as Constraint
    from statewise.envs.constraints import constraint as constraint
    from statewise.envs.env import Env as Env
    from statewise.envs.from_gym import GymEnv as GymEnv
    from statewise.envs.make import make_env as make_env
    from statewise.envs.robots import Robot as Robot
    from statewise.envs.robots import get_robot as get_robot
    from statewise.envs.robots import register_robot as register_robot
    from statewise.envs.robots import robot_names as robot_names
    from statewise.envs.suites import PAPER_SUITES as PAPER_SUITES
    from statewise.envs.suites import Suite as Suite
    from statewise.envs.suites import parse_suite as parse_suite
    from statewise.envs.tasks import Task as Task
    from statewise.envs.tasks import task as task
    from statewise.envs.terms import Things as Things
    from statewise.envs.vec_env import VecEnv as VecEnv
    from statewise.envs.world import World as World
    from statewise.runs.reader import read_runs as read_runs
    from statewise.training.api import evaluate as evaluate
    from statewise.training.api import resume as resume
    from statewise.training.api import train as train
    from statewise.training.policy import Policy as Policy
    from statewise.training.policy import load_policy as load_policy
    from statewise.types import EnvSpec as EnvSpec
    from statewise.types import Rollout as Rollout
    from statewise.types import Step as Step
    from statewise.zoo import pretrained as pretrained

_HOMES = {
    "algos": ("ALGORITHMS", "Algorithm", "get_algorithm", "register_algorithm"),
    "envs.constraints": ("Constraint", "constraint"),
    "deploy.certify": ("certify",),
    "deploy.domain": ("Domain",),
    "deploy.replay": ("replay",),
    "envs.env": ("Env",),
    "envs.from_gym": ("GymEnv",),
    "envs.make": ("make_env",),
    "envs.robots": ("Robot", "get_robot", "register_robot", "robot_names"),
    "envs.suites": ("PAPER_SUITES", "Suite", "parse_suite"),
    "envs.tasks": ("Task", "task"),
    "envs.terms": ("Things",),
    "envs.vec_env": ("VecEnv",),
    "envs.world": ("World",),
    "zoo": ("pretrained",),
    "runs.reader": ("read_runs",),
    "training.api": ("evaluate", "resume", "train"),
    "training.policy": ("Policy", "load_policy"),
    "types": ("EnvSpec", "Rollout", "Step"),
}
"""The module that each public name is imported from when it is first used: torch loads only then."""
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = ["__version__", "register_suites", *sorted(_HOME)]

register_suites()  # imports nothing: Gymnasium learns of the suites once somebody imports it


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'statewise' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"statewise.{_HOME[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__
