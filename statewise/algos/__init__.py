"""The algorithms by name. A new one is one new file and one line here."""

from __future__ import annotations

import difflib

from statewise.algos.base import Algorithm
from statewise.algos.cpo import Cpo
from statewise.algos.pcpo import Pcpo
from statewise.algos.scpo import Scpo
from statewise.algos.trpo import Trpo
from statewise.algos.trpo_fac import TrpoFac
from statewise.algos.trpo_ipo import TrpoIpo
from statewise.algos.trpo_lag import TrpoLag
from statewise.algos.trpo_sl import TrpoSl
from statewise.algos.trpo_usl import TrpoUsl

ALGORITHMS: dict[str, type[Algorithm]] = {
    algo.name: algo for algo in (Scpo, Trpo, Cpo, Pcpo, TrpoLag, TrpoFac, TrpoIpo, TrpoSl, TrpoUsl)
}


def get_algorithm(name: str) -> type[Algorithm]:
    """The algorithm of that name; an unknown one raises ValueError with the closest."""
    key = name.lower().replace("-", "_")
    if key in ALGORITHMS:
        return ALGORITHMS[key]
    close = difflib.get_close_matches(key, ALGORITHMS, n=3, cutoff=0.4) or list(ALGORITHMS)
    raise ValueError(f"unknown algorithm {name!r}. Did you mean {' or '.join(close)}?")


__all__ = ["ALGORITHMS", "Algorithm", "get_algorithm"]
