"""Does the number of worlds change what is learned? The same run with 30, 128, 1024 and 4096.

    python benchmarks/worlds.py [--steps 2_400_000] [--out runs/worlds]

Trains what is not there yet (about three minutes each on two cores), then prints a table and draws
the curves.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import matplotlib.pyplot as plt
import tyro

import statewise
from statewise.report.curves import PANELS
from statewise.training.run_folder import RunFolder


@dataclass(frozen=True)
class Args:
    suite: str = "Point-Hazard-8"
    algo: str = "scpo"
    seed: int = 0
    steps: int = 2_400_000
    worlds: tuple[int, ...] = (30, 128, 1024, 4096)
    out: Path = Path("runs/worlds")
    picture: Path | None = None


def main(args: Args) -> None:
    runs = {}
    for worlds in args.worlds:
        out = args.out / str(worlds)
        run = out / args.suite / args.algo / f"seed-{args.seed}"
        if not (run / "config.json").exists():
            statewise.train(args.suite, args.algo, seed=args.seed, steps=args.steps,
                            num_envs=worlds, out=str(out))  # fmt: skip
        lines = RunFolder.open(run).metrics()
        runs[worlds] = [m for m in lines if m["steps"] <= 1.02 * args.steps]
    print(
        f"{args.algo} on {args.suite}, seed {args.seed}: the last 10 epochs of {args.steps:,} steps"
    )
    print(f"{'worlds':>6} {'return':>7} {'episode cost':>13} {'largest cost':>13} {'cost rate':>10} "
          f"{'this epoch':>11}")  # fmt: skip
    for worlds, lines in runs.items():
        last = lines[-10:]
        mean = {k: sum(m[k] for m in last) / len(last) for k in (*PANELS, "epoch_cost_rate")}
        print(f"{worlds:6} {mean['return']:7.3f} {mean['episode_cost']:13.3f} "
              f"{mean['max_cost']:13.4f} {lines[-1]['cost_rate']:10.5f} "
              f"{mean['epoch_cost_rate']:11.5f}")  # fmt: skip
    if args.picture:
        draw(runs, args.picture)


def draw(runs: dict[int, list[dict[str, float]]], picture: Path) -> None:
    figure, axes = plt.subplots(1, len(PANELS), figsize=(4 * len(PANELS), 3.2))
    for axis, (key, title) in zip(axes, PANELS.items(), strict=True):
        for worlds, lines in runs.items():
            known = [m for m in lines if m[key] is not None]
            axis.plot([m["steps"] / 1e6 for m in known], [m[key] for m in known], label=str(worlds))
        axis.set_title(title, fontsize=10)
        axis.set_xlabel("environment steps (millions)", fontsize=9)
        if key != "return":
            axis.set_ylim(bottom=0)
        axis.grid(alpha=0.3)
    axes[0].legend(title="worlds", fontsize=8)
    figure.tight_layout()
    figure.savefig(picture, dpi=100)
    plt.close(figure)


if __name__ == "__main__":
    main(tyro.cli(Args))
