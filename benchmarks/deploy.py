"""How long an exported policy and its monitor take for one step on one core, and how large a bundle is.

    python benchmarks/deploy.py [--suite Point-Hazard-8] [--hidden 64 64]

Networks have random weights, which take as long as trained ones. TRPO-SL and TRPO-USL take longer for
inputs that they correct: "least" and "most" are over 20 inputs. Times are medians over blocks of calls.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.deploy import Monitor, runtime
from statewise.deploy.monitor import _uncalibrated
from statewise.deploy.policy_graph import build_model
from statewise.envs.vec_env import VecEnv
from statewise.settings import cli, number
from statewise.types import EnvSpec


@dataclass(frozen=True)
class Args:
    suite: str = "Point-Hazard-8"
    hidden: tuple[int, ...] = number((64, 64), least=1)
    """Widths of the hidden layers."""


def microseconds(call: Callable[[], object], calls: int = 100, blocks: int = 9) -> float:
    """The median time of a call."""
    times = []
    for _ in range(blocks):
        started = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - started) / calls * 1e6)
    return float(np.median(times))


def make(name: str, spec: EnvSpec, hidden: tuple[int, ...]) -> Algorithm:
    kind = get_algorithm(name)
    algo = kind(spec, kind.settings_class(hidden=hidden), epochs=10, seed=0)
    algo.epoch = 9  # past the warm-up of the safety layers
    return algo


def actions(algo: Algorithm, obs: np.ndarray, folder: Path) -> tuple[list[float], int]:
    """Time of an action for each of some observations, and the size of the graph in bytes."""
    path = folder / f"{algo.name}.onnx"
    path.write_bytes(build_model(algo, "cost").SerializeToString())
    session = runtime.open_session(path, "1.6", 13)
    zero = np.zeros((1, algo.spec.num_costs), np.float32)
    feeds = [{"observation": row[None], "cost": zero, "maximum": zero} for row in obs]
    return [microseconds(lambda f=f: session.run(None, f)) for f in feeds], path.stat().st_size


def main(args: Args) -> None:
    env = VecEnv(args.suite, 20, threads=1)
    step = env.reset()
    for _ in range(5):
        step = env.step(2 * torch.rand(20, env.spec.action_size) - 1)
    obs = step.obs.numpy()
    print(f"{args.suite}, hidden layers {args.hidden}\n")
    print("algorithm   least us  most us  graph kB")
    with tempfile.TemporaryDirectory() as folder:
        for name in ALGORITHMS:
            times, size = actions(make(name, env.spec, args.hidden), obs, Path(folder))
            print(f"{name:10} {min(times):9.1f} {max(times):8.1f} {size / 1000:9.1f}")
    limits = _uncalibrated(make("scpo", env.spec, args.hidden), "clearance")
    limits["observation"]["width"] = [1e3] * env.spec.obs_size
    monitor, far, zero = Monitor(limits), [1.0], [0.0]
    action = np.zeros(env.spec.action_size, np.float32)
    taken = microseconds(lambda: monitor.check(obs[0], far, action, zero), calls=1000)
    print(f"\nthe monitor takes {taken:.1f} us a step")


if __name__ == "__main__":
    main(cli(Args))
