"""What the figures of the paper's questions say, each from the plain data of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from statewise.envs.suites import PAPER_SUITES
from statewise.report.paper import MAXIMUM_SUITES, NAMES, SEEDS, paper_steps
from statewise.report.question_pictures import Data
from statewise.report.question_pictures import share_text as share
from statewise.report.table import number

RESOURCES = ("trpo", "cpo", "scpo")
BOUNDS = ("J_predicted", "J_bound", "J_bound_paper")
"""First order, with the corrected penalty, with the printed one."""


def maximum_caption(data: Data) -> str:
    curves = data["curves"]
    paper = [c["suite"] for c in curves if c["suite"] in MAXIMUM_SUITES]
    missing = [suite for suite in MAXIMUM_SUITES if suite not in paper]
    text = (
        f"Largest cost of a step of an episode, mean over the episodes that ended in each epoch; SCPO. "
        f"{_extents(curves, by='suite')} The paper shows {' and '.join(MAXIMUM_SUITES)}"
    )
    return f"{text}; not here: {', '.join(missing)}." if missing else f"{text}."


def targets_caption(data: Data) -> str:
    shown, zeros = len(data["targets"]), data["zeros"]
    return (
        f"{data['suite']}, {data['policy']}, sampled actions. What the cost critics are fitted to, "
        f"along {shown} episodes drawn at random from the {data['costly']} with a cost, of "
        f"{data['episodes']} in all. Left: discounted cost to go, the target of V_C; right: "
        f"increments of the maximum to go, the target of V_D, a staircase that ends at 0. Of all "
        f"{data['steps']:,} steps, {share(zeros['V_C'])} have a V_C target of exactly 0, "
        f"{share(zeros['V_D'])} a V_D target of 0. Nothing is bootstrapped past an episode's end."
    )


def subsampling_caption(data: Data) -> str:
    return (
        f"SCPO with V_D fitted to all rows (the default here) and to as many zero targets as positive "
        f"ones, drawn anew in each step (the paper's). {_extents(data['curves'], data['suite'])}"
    )


def lagrangian_caption(data: Data) -> str:
    return (
        f"SCPO and TRPO-Lagrangian with the multiplier weighed k times in the loss, its own rise "
        f"unchanged. The paper's text does not name its k. {_extents(data['curves'], data['suite'])}"
    )


def departures_caption(data: Data) -> str:
    return (
        f"SCPO as it is here, and with one choice of the paper's or of its code restored; \"all of the "
        f"paper's settings\" restores them together, but for the ages of the worlds, which stay as they "
        f"are here (spread_ages). {_extents(data['curves'], data['suite'])}"
    )


def bound_caption(data: Data) -> str:
    first, corrected, printed = (data["tests"][key] for key in BOUNDS)
    seeds = f"{data['seeds']} seed{'s' * (data['seeds'] > 1)}"
    idle = f", without {data['idle']} that took no step" if data["idle"] else ""
    return (
        f"{data['suite']}, {seeds}, {_millions(data['steps'])} steps; curves of seed "
        f"{data['drawn_seed']}, shares over the {data['epochs']} epochs of all seeds{idle}. True J_D "
        f"of the policy made in an epoch, estimated from the next one, against what was predicted. To "
        f"first order: not exceeded in {share(first['share'])} of epochs, median distance "
        f"{number(first['distance'])}; it is NOT an upper bound. With the corrected penalty: "
        f"{share(corrected['share'])}, a median of {number(corrected['excess'])} above the truth. With "
        f"the penalty as printed: {share(printed['share'])}, {number(printed['excess'])} above. Values "
        f"of 0 or less are not on the log axis."
    )


def resources_caption(data: Data) -> str:
    used = data["used"]
    times = ", ".join(f"{NAMES[a]} {used[a]['epoch']:.2f} s" for a in RESOURCES)
    seeds = ", ".join(f"{NAMES[a]} {data['seeds'][a]}" for a in RESOURCES)
    text = (
        f"{data['suite']}, {' and '.join(data['machines'])}; seeds: {seeds}; "
        f"{_millions(min(data['steps'].values()))} steps. Median epoch ({times}) and peak memory of "
        f"the process, libraries included, relative to TRPO. Runs that shared a machine also shared "
        f"its time, and GPU memory is that of all who used it."
    )
    if len(data["machines"]) > 1:
        text += " NOT comparable: made on different machines."
    if not data["same_settings"]:
        text += " NOT comparable: made with different steps, worlds or devices."
    return text


def episode_caption(data: Data) -> str:
    return (
        f"{data['suite']}, {data['policy']}: cost C of each step, its running maximum M, and the "
        f"increments D, which sum to the largest cost of the episode ({number(max(data['M']))}). Of "
        f"{data['episodes']} episodes the one with the most rises of M that matter ({data['rises']})."
    )


def _extents(curves: Sequence[Data], suite: str = "", by: str = "name") -> str:
    """Seeds and steps of each curve, beside the paper's."""
    kinds: dict[tuple[int, int, bool, str], list[str]] = {}
    mixed = len({c.get("on") for c in curves}) > 1
    for c in curves:
        on = f", on a {c['on']}" if mixed and "on" in c else ""
        kinds.setdefault((c["seeds"], c["steps"], c["finished"], on), []).append(c[by])
    parts = []
    for (seeds, steps, finished, on), names in kinds.items():
        who = f"{', '.join(names)}: " if len(kinds) > 1 else ""
        parts.append(f"{who}{seeds} seed{'s' * (seeds > 1)}, {_millions(steps)} steps{on}"
                     + ("" if finished else " (UNFINISHED)"))  # fmt: skip
    where = f"{suite}; " if suite else ""
    paper = sorted({paper_steps(c["suite"]) for c in curves if c["suite"] in PAPER_SUITES})
    theirs = f" (paper: {SEEDS} seeds, {' or '.join(map(_millions, paper))} steps)" if paper else ""
    return f"{where}{'; '.join(parts)}{theirs}."


def _millions(steps: int) -> str:
    """Two decimals, or two digits of fewer than 100,000 steps: never 0 of some."""
    short = round(steps / 1e6, 2) if steps >= 100_000 else float(f"{steps / 1e6:.2g}")
    return f"{short:.6f}".rstrip("0").rstrip(".") + " million"
