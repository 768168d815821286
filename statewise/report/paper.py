"""What the paper reports: its tables, the suites of its figures, its number of steps and of seeds."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from functools import cache
from importlib import resources

from statewise.training.config import TrainSettings

NAMES = {
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
"""Ours to the paper's, in the order of every legend and table."""
SEEDS = 2
POINT, DRONE = "Point-Hazard-8", "Drone-3DHazard-8"
MAXIMUM_SUITES = ("Ant-Hazard-8", "Walker-Hazard-8")
"""Suites of its figures: of single questions, and of the maximum state-wise cost."""
METRICS = ("episode/return", "cost/episode", "cost/rate")


@dataclass(frozen=True)
class PaperRow:
    """Last epoch, mean of two seeds, as the tables of the paper print it."""

    values: dict[str, float]
    texts: dict[str, str]
    """The same, with the paper's digits"""


@cache
def paper_results() -> dict[tuple[str, str], PaperRow]:
    """(suite, our name of the algorithm) to its row; the tables hold 14 of the 16 suites."""
    ours = {theirs: name for name, theirs in NAMES.items()}
    text = resources.files("statewise.report").joinpath("paper_results.csv").read_text()
    rows = {}
    for row in csv.DictReader(text.splitlines()):
        texts = {metric: row[metric] for metric in METRICS}
        values = {metric: float(text) for metric, text in texts.items()}
        rows[row["suite"], ours[row["algorithm"]]] = PaperRow(values, texts)
    return rows


def paper_value(suite: str, algo: str, metric: str) -> float | None:
    row = paper_results().get((suite, algo))
    return None if row is None else row.values.get(metric)


def paper_text(suite: str, algo: str, metric: str) -> str | None:
    row = paper_results().get((suite, algo))
    return None if row is None else row.texts.get(metric)


def paper_steps(suite: str) -> int:
    """Environment steps that the paper trains a suite for: our default."""
    return TrainSettings(suite, algo="trpo", device="cpu").resolved().steps
