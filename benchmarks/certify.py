"""How long the sequential bound takes and how often it is wrong, over simulated policies.

    python benchmarks/certify.py [--policies 2000] [--claim 0.01] [--confidence 0.95]

Each row is a violation probability. `proved` and `refuted` are shares of the simulated policies, and
`episodes` is the median number until the verdict. `bound missed` is the share of policies whose true rate
was ever outside of the one-sided upper or lower bound, looking after every episode.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from statewise.core.sequential import log_evidence_above, log_evidence_below
from statewise.settings import cli

RATES = (0.0005, 0.002, 0.005, 0.008, 0.01, 0.0101, 0.012, 0.02, 0.03, 0.1)


@dataclass(frozen=True)
class Args:
    policies: int = 2000
    """Simulated policies for each rate."""
    claim: float = 0.01
    confidence: float = 0.95
    budget: int = 10_000
    """Most episodes of each policy."""
    seed: int = 0


def row(args: Args, rate: float, generator: np.random.Generator) -> str:
    enough, n = -math.log1p(-args.confidence), np.arange(1, args.budget + 1)
    counts = {"proved": 0, "refuted": 0, "above": 0, "below": 0}
    episodes = []
    for _ in range(args.policies):
        k = (generator.random(args.budget) < rate).cumsum()
        below = log_evidence_below(args.claim, k, n) >= enough
        above = log_evidence_above(args.claim, k, n) >= enough
        decided = below | above
        first = int(decided.argmax()) if decided.any() else args.budget - 1
        counts["proved"] += bool(below[first])
        counts["refuted"] += bool(above[first] and not below[first])
        # The bounds exclude the true rate exactly when the evidence against it is enough.
        counts["above"] += bool((log_evidence_below(rate, k, n) >= enough).any())
        counts["below"] += bool((log_evidence_above(rate, k, n) >= enough).any())
        episodes.append(first + 1)
    share = {name: count / args.policies for name, count in counts.items()}
    wrong = share["refuted" if rate <= args.claim else "proved"]
    return (
        f"{rate:8.2%} {share['proved']:8.1%} {share['refuted']:8.1%} {wrong:8.2%} "
        f"{np.median(episodes):9.0f} {share['above']:12.2%} {share['below']:12.2%}"
    )


def main(args: Args) -> None:
    generator = np.random.default_rng(args.seed)
    print(
        f"claim: rate <= {args.claim:.2%} at {args.confidence:.0%}, budget {args.budget} episodes, "
        f"{args.policies} policies for each rate"
    )
    print("    rate   proved  refuted    wrong  episodes  upper missed lower missed")
    for rate in RATES:
        print(row(args, rate, generator), flush=True)


if __name__ == "__main__":
    main(cli(Args))
