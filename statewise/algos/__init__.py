"""The algorithms by name. `register_algorithm` adds one of your own."""

import re
from typing import TypeVar

from statewise.algos.ascpo import Ascpo
from statewise.algos.base import Algorithm, Metrics
from statewise.algos.batch import Batch
from statewise.algos.cpo import Cpo
from statewise.algos.pcpo import Pcpo
from statewise.algos.policy_step import ConstrainedAlgorithm, TrustRegionAlgorithm, surrogate
from statewise.algos.scpo import Scpo
from statewise.algos.shared_settings import (
    ConstrainedSettings,
    CostSettings,
    LimitSettings,
    Settings,
    TrustRegionSettings,
)
from statewise.algos.trpo import Trpo
from statewise.algos.trpo_fac import TrpoFac
from statewise.algos.trpo_ipo import TrpoIpo
from statewise.algos.trpo_lag import TrpoLag
from statewise.algos.trpo_sl import TrpoSl
from statewise.algos.trpo_usl import TrpoUsl
from statewise.core.mmdp import CostSignal
from statewise.settings import typed, unknown

A = TypeVar("A", bound=type[Algorithm])

PAPER_ALGORITHMS = (
    "scpo", "trpo", "cpo", "pcpo", "trpo_lag", "trpo_fac", "trpo_ipo", "trpo_sl", "trpo_usl",
)  # fmt: skip
"""Those that the SCPO paper compares."""
ALGORITHMS: dict[str, type[Algorithm]] = {}
"""Every algorithm that is known, by name."""


def register_algorithm(cls: A) -> A:
    """Register an algorithm under its `name`. Use it as a decorator or call it. Returns the class.

    A class that could not be trained raises ValueError. The same class of the same module may be
    registered again, for example after a reload.
    """
    if not (isinstance(cls, type) and issubclass(cls, Algorithm)):
        raise ValueError(f"{cls!r} is not an algorithm: derive a class from statewise.Algorithm")
    where = f"{cls.__module__}.{cls.__qualname__}"
    name = getattr(cls, "name", "")
    if not isinstance(name, str) or not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError(
            f"the name of {where} is {name!r}: give it a `name` of lower-case letters, digits and "
            f"underscores, such as trpo_pid; its run folders are named after it"
        )
    _check_settings(cls, where)
    if (cls.update_networks, cls.update) == (Algorithm.update_networks, Algorithm.update):
        raise ValueError(
            f"{where} lacks update_networks(batch), which updates the networks and returns metrics"
        )
    other = ALGORITHMS.get(name, cls)
    taken = f"{other.__module__}.{other.__qualname__}"
    if taken != where:
        raise ValueError(f"the name {name!r} is taken by {taken}: give {where} another `name`")
    if "title" not in vars(cls):
        cls.title = name
    ALGORITHMS[name] = cls
    return cls


def _check_settings(cls: type[Algorithm], where: str) -> None:
    """Raise ValueError for a `settings_class` that lacks what the algorithm reads, or can be changed."""
    kind, advice = cls.settings_class, ""
    for owner in reversed([base for base in cls.__mro__[1:] if issubclass(base, Algorithm)]):
        if not (isinstance(kind, type) and issubclass(kind, owner.settings_class)):
            advice = f"derive it from {owner.settings_class.__name__}"
    if not advice and not getattr(vars(kind).get("__dataclass_params__"), "frozen", False):
        advice = "decorate it with @dataclass(frozen=True)"
    if advice:
        raise ValueError(f"the settings_class of {where} is {kind!r}: {advice}")


@typed
def get_algorithm(name: str) -> type[Algorithm]:
    """Return the algorithm of that name. An unknown name raises ValueError with the closest ones."""
    key = name.lower().replace("-", "_")
    if key not in ALGORITHMS:
        raise ValueError(unknown("algorithm", name, ALGORITHMS))
    return ALGORITHMS[key]


for _cls in (Scpo, Trpo, Cpo, Pcpo, TrpoLag, TrpoFac, TrpoIpo, TrpoSl, TrpoUsl, Ascpo):
    register_algorithm(_cls)

__all__ = [
    "ALGORITHMS",
    "PAPER_ALGORITHMS",
    "Algorithm",
    "Batch",
    "ConstrainedAlgorithm",
    "ConstrainedSettings",
    "CostSettings",
    "CostSignal",
    "LimitSettings",
    "Metrics",
    "Settings",
    "TrustRegionAlgorithm",
    "TrustRegionSettings",
    "get_algorithm",
    "register_algorithm",
    "surrogate",
]
