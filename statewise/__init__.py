"""Reinforcement learning for robots that must be safe at every step."""

import os

# Before torch is loaded: beside other work its threads should sleep at a barrier, not spin at it for
# one that does not run, which takes ten times as long (docs/speed.md).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from statewise.algos import ALGORITHMS, Algorithm, get_algorithm, register_algorithm
from statewise.envs.gymnasium import register_suites
from statewise.envs.imports import ImportedEnv, import_env
from statewise.envs.robots import Robot, get_robot, register_robot, robot_names
from statewise.envs.suites import PAPER_SUITES, Suite, parse_suite
from statewise.envs.vec_env import VecEnv, make_env
from statewise.training.api import evaluate, resume, train
from statewise.training.policy import Policy, load_policy
from statewise.types import EnvSpec, Rollout, Step
from statewise.version import __version__

register_suites()

__all__ = [
    "ALGORITHMS",
    "PAPER_SUITES",
    "Algorithm",
    "EnvSpec",
    "ImportedEnv",
    "Policy",
    "Robot",
    "Rollout",
    "Step",
    "Suite",
    "VecEnv",
    "__version__",
    "evaluate",
    "get_algorithm",
    "get_robot",
    "import_env",
    "load_policy",
    "make_env",
    "parse_suite",
    "register_algorithm",
    "register_robot",
    "register_suites",
    "resume",
    "robot_names",
    "train",
]
