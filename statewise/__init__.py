"""Reinforcement learning for robots that must be safe at every step."""

from statewise.envs.robots import Robot, get_robot, register_robot, robot_names
from statewise.envs.suites import PAPER_SUITES, Suite, parse_suite
from statewise.envs.vec_env import VecEnv, make_env
from statewise.types import EnvSpec, Step
from statewise.version import __version__

__all__ = [
    "PAPER_SUITES",
    "EnvSpec",
    "Robot",
    "Step",
    "Suite",
    "VecEnv",
    "__version__",
    "get_robot",
    "make_env",
    "parse_suite",
    "register_robot",
    "robot_names",
]
