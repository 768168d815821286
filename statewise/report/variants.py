"""The runs that `statewise bench ablations` adds to the paper's: labels, names, where they are shown."""

from __future__ import annotations

from collections.abc import Sequence

from statewise.report.groups import Group

SUBSAMPLED, LAGRANGIAN, VARIANT = "scpo-subsample-", "trpo_lag-k", "scpo-"
"""How the labels of their runs begin."""
DEPARTURES = {
    "scpo-blind": "policy does not see M",
    "scpo-raw-inputs": "inputs not scaled",
    "scpo-eta-1": "recovery fraction 1",
    "scpo-tolerance-0": "tolerance 0",
    "scpo-unreliable": "noise not allowed for",
    "scpo-lam-0.95": "cost λ 0.95",
    "scpo-paper": "all of the paper's settings",
    "scpo-subsample-resample": "sub-sampled",
}


def of_a_question(label: str) -> bool:
    """Whether runs of that label answer one of the paper's questions, and have their figure there."""
    return label in DEPARTURES or label.startswith(LAGRANGIAN)


def charted(groups: Sequence[Group]) -> list[Group]:
    """The groups for the curves of the suites: without those of a question, if others are there."""
    suites = {g.suite for g in groups if not of_a_question(g.label)}
    return [g for g in groups if not of_a_question(g.label) or g.suite not in suites]
