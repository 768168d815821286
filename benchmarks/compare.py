"""Does a setting change what is learned? The same run, over several seeds, with each of its values.

    python benchmarks/compare.py num_envs 30 128 1024 4096
    python benchmarks/compare.py critic_batch 0 4096 2048 1024 --seeds 0 1 2 --steps 6_000_000

Trains what is not there yet, then prints a table (the last tenth of the run, mean over seeds and the
largest of them), and draws the curves if asked to.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import matplotlib.pyplot as plt
import numpy as np
import tyro

import statewise
from statewise.report.curves import PANELS
from statewise.runs.folder import RunFolder

Epochs = list[dict[str, Any]]


@dataclass(frozen=True)
class Args:
    setting: tyro.conf.Positional[str]
    """Of training or of the algorithm, such as num_envs or critic_batch."""
    values: Annotated[tuple[str, ...], tyro.conf.Positional]
    suite: str = "Point-Hazard-8"
    algo: str = "scpo"
    seeds: tuple[int, ...] = (0,)
    steps: int = 2_400_000
    device: str = "auto"
    num_envs: int = 0
    out: Path = Path("runs/compare")
    picture: Path | None = None


def main(args: Args) -> None:
    runs = {value: [train(args, value, seed) for seed in args.seeds] for value in args.values}
    print(f"{args.algo} on {args.suite}, {args.steps:,} steps, seeds {args.seeds}: "
          "mean over seeds (worst) of the last tenth")  # fmt: skip
    columns = (*PANELS, "cost/epoch_rate", "time/update")
    print(f"{args.setting:>14}" + "".join(f"{name.replace('_', ' '):>20}" for name in columns))
    for value, seeds in runs.items():
        cells = [cell([last(lines, name) for lines in seeds], name) for name in columns]
        print(f"{value:>14}" + "".join(f"{text:>20}" for text in cells))
    if args.picture:
        draw(args, runs, args.picture)


def train(args: Args, value: str, seed: int) -> Epochs:
    """The epochs of one run, trained now if it is not there."""
    out = args.out / f"{args.setting}-{value}"
    run = out / args.suite / args.algo / f"seed-{seed}"
    if (run / "config.json").exists():
        statewise.resume(run)  # nothing to do if it is finished
    else:
        varied = {"num_envs": args.num_envs, args.setting: ast.literal_eval(value)}
        statewise.train(args.suite, args.algo, seed=seed, steps=args.steps, out=str(out),
                        device=args.device, **varied)  # fmt: skip
    epochs = RunFolder.open(run).metrics()
    if abs(epochs[-1]["steps"] - args.steps) > 0.05 * args.steps:
        raise SystemExit(f"{run} has {epochs[-1]['steps']:,} steps: choose another --out")
    return epochs


def last(lines: Epochs, name: str) -> float:
    """Mean over the last tenth of the epochs; the cost rate is a running mean already."""
    known = [m[name] for m in lines if m[name] is not None]
    return known[-1] if name == "cost/rate" else float(np.mean(known[-max(1, len(lines) // 10) :]))


def cell(seeds: list[float], name: str) -> str:
    worst = min(seeds) if name == "episode/return" else max(seeds)
    digits = 5 if "rate" in name else 4 if name == "cost/max" else 3
    return f"{np.mean(seeds):.{digits}f} ({worst:.{digits}f})"


def draw(args: Args, runs: dict[str, list[Epochs]], picture: Path) -> None:
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.2))
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for number, (value, seeds) in enumerate(runs.items()):
            for lines in seeds:
                known = [m for m in lines if m[key] is not None]
                axis.plot([m["steps"] / 1e6 for m in known], [m[key] for m in known], lw=1,
                          color=f"C{number}", label=value if lines is seeds[0] else None)  # fmt: skip
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("environment steps (millions)", fontsize=9)
        if key != "episode/return":
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(title=args.setting, fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Args))
