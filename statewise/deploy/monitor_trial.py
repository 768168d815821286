"""What `statewise evaluate --monitor` runs and prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table

from statewise.core.statistics import Interval
from statewise.deploy.facts import charges_of
from statewise.deploy.monitor import MonitorTrial, calibrate, try_monitor
from statewise.text import share
from statewise.training.policy import load_policy, worlds_for


def monitor_trial(
    path: str | Path,
    episodes: int,
    seed: int,
    false_alarms: float = 0.01,
    best_safe: bool = False,
    imports: Sequence[str] = (),
    trust: bool = False,
) -> MonitorTrial:
    """Calibrate a monitor for the policy of a run, and run fresh episodes without and with it."""
    policy = load_policy(path, best_safe, imports, trust)
    if not policy.spec.num_costs:
        raise ValueError(f"{policy.spec.name} has no constraints: there is nothing to monitor")
    with worlds_for(policy, 1, seed) as env:
        measured = "cost" if charges_of(env) is None else "clearance"
    enough = max(500, math.ceil(15 / false_alarms))
    warnings = min(0.9, 10 * false_alarms)
    limits = calibrate(policy, measured, false_alarms, warnings, enough, seed)
    return try_monitor(policy, limits, episodes, seed)


def trial_table(trial: MonitorTrial) -> Table:
    """The same episodes without and with the monitor, side by side."""
    table = Table(title=f"monitor: {trial.episodes} fresh episodes, {share(trial.asked)} false alarms "
                        f"allowed, the fallback brakes", title_justify="left")  # fmt: skip
    for name in ("", "without", "with the monitor"):
        table.add_column(name)
    table.add_row("episodes that violate", *map(_interval, trial.violations))
    table.add_row("return", *(f"{x:.3f}" for x in trial.mean_return))
    table.add_row("success", *map(share, trial.success))
    table.add_section()
    table.add_row("safe episodes with a stop", "", _interval(trial.false_alarms))
    table.add_row("safe episodes with a warning", "", _interval(trial.warned))
    table.add_row("violations with a stop before", "", _interval(trial.foreseen))
    lead = "none" if trial.lead is None else f"{trial.lead:.2f} s"
    table.add_row("median time from that stop", "", lead)
    return table


def _interval(rate: Interval | None) -> str:
    if rate is None:
        return "no such episode"
    return f"{share(rate.estimate)} ({share(rate.low)} to {share(rate.high)})"
