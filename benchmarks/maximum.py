"""What a policy makes of the running maximum M: fresh episodes with it, and the same told M = 0.

    python benchmarks/maximum.py runs/Walker-Hazard-8/scpo/seed-0 [--episodes 1024]

A policy that reads M can learn to do nothing more once a cost was met. Episodes that met one are shown
apart, with how many of them never reached the goal, and their share of all cost.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

import statewise
from statewise.settings import cli, option
from statewise.training.evaluate import Episodes, run_episodes


@dataclass(frozen=True)
class Args:
    run: Path = option(positional=True, metavar="RUN")
    """Of SCPO with `policy_sees_maximum`."""
    episodes: int = 1024
    seed: int = 7
    worlds: int = 256


def line(name: str, found: Episodes) -> str:
    cost, met = found.cost.sum(1), (found.cost_max > 0).any(1)
    reached = found.terminated & ~found.fault
    stayed = met & ~reached
    share = float(cost[stayed].sum() / cost.sum().clamp(min=1e-9))
    return (f"{name:8} {found.returns.mean():8.3f} {reached.float().mean():8.1%} "
            f"{cost.mean():9.4f} {found.cost_max.mean():9.4f} {int(met.sum()):8} {int(stayed.sum()):8} "
            f"{share:8.1%}")  # fmt: skip


def main(args: Args) -> None:
    policy = statewise.load_policy(args.run)
    algo, suite = policy.algo, policy.settings.suite
    if not getattr(algo.settings, "policy_sees_maximum", False):
        raise SystemExit(f"{args.run}: the policy of {algo.name} does not read M")
    env = statewise.make_env(suite, args.worlds)
    print(f"{suite}, {args.episodes} episodes, sampled actions, seed {args.seed}")
    print("M told     return    goals      cost   largest  met cost  stayed  of cost")
    print(line("as it is", run_episodes(algo, env, args.episodes, args.seed, sampled=True)))
    observe = algo.observe

    def without(obs: Tensor, cost_max: Tensor) -> Tensor:
        return observe(obs, torch.zeros_like(cost_max))

    algo.observe = without  # type: ignore[method-assign]
    print(line("as 0", run_episodes(algo, env, args.episodes, args.seed, sampled=True)))


if __name__ == "__main__":
    main(cli(Args))
