"""Time and size of a report.

    python benchmarks/report.py [--suites 5] [--seeds 4] [--epochs 200]

Runs are made up: five algorithms in each suite, so that the defaults are 100 runs of 200 epochs.
"""

from __future__ import annotations

import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from statewise.envs.suites import PAPER_SUITES
from statewise.paper.questions import paper_parts
from statewise.report.write import write_report
from statewise.runs.reader import find_runs

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from synthetic_runs import Epoch, learning, write_run

from statewise.settings import cli

ALGOS = ("scpo", "trpo", "cpo", "pcpo", "trpo_lag", "trpo_fac", "trpo_ipo", "trpo_sl", "trpo_usl")


@dataclass(frozen=True)
class Args:
    suites: int = 5
    algos: int = 5
    seeds: int = 4
    epochs: int = 200
    keep: Path | None = None
    """Leave the runs and the report in this folder."""


def with_other_metrics(epoch: Epoch) -> Epoch:
    """A real run writes some sixty more numbers each epoch, which a report reads over."""
    others = {f"metric_number_{i}": 0.123456789 * i for i in range(60)}
    return lambda number: others | epoch(number)


def main(args: Args) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        root = args.keep or Path(temporary)
        for suite in PAPER_SUITES[: args.suites]:
            for algo in ALGOS[: args.algos]:
                for seed in range(args.seeds):
                    epoch = with_other_metrics(learning(algo, seed, args.epochs))
                    write_run(root / "runs", suite, algo, seed, epochs=args.epochs, epoch=epoch)
        started = time.perf_counter()
        reading = find_runs([root / "runs"])
        read = time.perf_counter() - started
        reference, sections = paper_parts(reading, [root / "runs"])
        page = write_report(
            reading, root / "report", None, "trpo", reference, sections, root / "results"
        )
        seconds = time.perf_counter() - started
        size = sum(f.stat().st_size for f in (root / "results").rglob("*") if f.is_file())
        print(f"{len(reading.runs)} runs of {args.epochs} epochs: page in {seconds:.1f} s, of which "
              f"{read:.1f} s to read them, {page.stat().st_size / 1e6:.2f} MB; exported, "
              f"{size / len(reading.runs) / 1e3:.0f} kB each")  # fmt: skip


if __name__ == "__main__":
    main(cli(Args))
