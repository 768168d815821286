"""Reinforcement learning for robots that must be safe at every step."""

import os

# Before torch is loaded: beside other work its threads should sleep at a barrier, not spin at it for
# one that does not run, which takes ten times as long (docs/speed.md).
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

from statewise.algos import ALGORITHMS, get_algorithm
from statewise.envs.env import Env
from statewise.envs.from_gym import GymEnv
from statewise.envs.gym_ids import register_suites
from statewise.envs.make import make_env
from statewise.envs.robots import Robot, get_robot, register_robot, robot_names
from statewise.envs.suites import PAPER_SUITES, Suite, parse_suite
from statewise.envs.vec_env import VecEnv
from statewise.training.api import evaluate, resume, train
from statewise.training.policy import Policy, load_policy
from statewise.types import EnvSpec, Rollout, Step
from statewise.version import __version__

register_suites()

__all__ = [
    "ALGORITHMS",
    "PAPER_SUITES",
    "Env",
    "EnvSpec",
    "GymEnv",
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
    "load_policy",
    "make_env",
    "parse_suite",
    "register_robot",
    "register_suites",
    "resume",
    "robot_names",
    "train",
]
