"""What the paper reports: its algorithms, suites, numbers of steps and seeds, questions and tables."""

from __future__ import annotations

import csv
from functools import cache
from importlib import resources
from typing import Any

from statewise.envs.suites import PAPER_SUITES as SUITES
from statewise.report.reference import Reference
from statewise.report.tables import COMPARED

ALGOS = {
    "scpo": "SCPO",
    "trpo": "TRPO",
    "cpo": "CPO",
    "pcpo": "PCPO",
    "trpo_lag": "TRPO-Lagrangian",
    "trpo_fac": "TRPO-FAC",
    "trpo_ipo": "TRPO-IPO",
    "trpo_sl": "TRPO-SL",
    "trpo_usl": "TRPO-USL",
}
"""Our name of each algorithm to the paper's, in the order of every legend and table."""
SEEDS = 2
_GRID = {"suites": SUITES, "algos": tuple(ALGOS), "seeds": "0..1"}
"""Its whole experiment, as options of `statewise bench grid`."""
STEPS, _LONG_STEPS, LONG_ROBOTS = 6_000_000, 30_000_000, ("Ant", "Walker", "Humanoid")
"""Environment steps that it trains: 200 epochs of 30,000, and 1000 of some robots."""
POINT, DRONE = "Point-Hazard-8", "Drone-3DHazard-8"
MAXIMUM_SUITES = ("Ant-Hazard-8", "Walker-Hazard-8")
"""Suites of its figures: of single questions, and of the maximum state-wise cost."""
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "scpo-paper": ("all of the paper's settings", {"preset": "paper"}),
    "scpo-blind": ("policy does not see M", {"policy_sees_maximum": False}),
    "scpo-raw-inputs": ("inputs not scaled", {"scale_inputs": False}),
    "scpo-eta-1": ("recovery fraction 1", {"recovery_fraction": 1.0}),
    "scpo-no-feedback": ("asks for the violation", {"cost_feedback": 0.0}),
    "scpo-lam-0.95": ("cost λ 0.95", {"cost_lam": 0.95}),
    "scpo-tolerance-0": ("tolerance 0", {"tolerance": 0.0}),
    "scpo-subsample-resample": ("sub-sampled", {"subsample": "resample"}),
    "trpo_lag-k10": ("TRPO-LAG-10", {"penalty_scale": 10.0}),
    "trpo_lag-k100": ("TRPO-LAG-100", {"penalty_scale": 100.0}),
}
"""What figures call the variants of algorithms, by the label of their runs, and their settings."""
_DEPARTURES = [name for name in VARIANTS if name.startswith("scpo-") and "subsample" not in name]
EXPERIMENTS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "fig1": ((), ()),
    "q2": (MAXIMUM_SUITES, ("scpo",)),
    "q3": ((DRONE,), ("scpo", "scpo-subsample-resample")),
    "q4": ((POINT,), ("scpo",)),
    "q5": ((POINT,), ("trpo", "cpo", "scpo")),
    "app": ((POINT,), ("scpo", "trpo_lag", "trpo_lag-k10", "trpo_lag-k100")),
    "departures": ((POINT,), ("scpo", *_DEPARTURES)),
}
"""The suites and runs of each question of the paper. Figure 1 needs no training."""
_TASK = {"continuing": False, "cost_limit": 0.0}
"""Settings that ask for what the paper asks for. The others change how it is learned, or, like
`compact`, nothing."""


@cache
def reference() -> Reference:
    """The paper's numbers: means of two seeds at the last epoch, for 14 of the 16 suites."""
    ours = {theirs: name for name, theirs in ALGOS.items()}
    text = resources.files("statewise.paper").joinpath("results.csv").read_text()
    values = {
        (row["suite"], ours[row["algorithm"]], metric): row[metric]
        for row in csv.DictReader(text.splitlines())
        for metric in COMPARED
    }
    long = {suite: suite.split("-")[0] in LONG_ROBOTS for suite in SUITES}
    return Reference(
        name="paper",
        cite="Ours beside the figures of Zhao et al. 2023 (arXiv 2306.12594), which are means of two "
        "seeds at the last epoch.",
        values=values,
        steps={suite: _LONG_STEPS if long[suite] else STEPS for suite in SUITES},
        seeds=SEEDS,
        algos=tuple(ALGOS),
        task=_TASK,
    )
