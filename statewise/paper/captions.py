"""What the figures of the paper's questions say, each from the plain data of its answer."""

from __future__ import annotations

from collections.abc import Sequence

from statewise.paper.answers import BOUNDS, COMPARISONS, RESOURCES, Data
from statewise.paper.pictures import share_text as share
from statewise.paper.reference import ALGOS, MAXIMUM_SUITES, reference
from statewise.report.table import millions, number, several


def maximum_caption(data: Data) -> str:
    there = [curve["suite"] for curve in data["curves"]]
    missing = [suite for suite in MAXIMUM_SUITES if suite not in there]
    text = (
        f"Largest cost of a step of an episode, mean over the episodes that ended in each epoch; SCPO. "
        f"{_extents(data['curves'], by='suite')} The paper shows {' and '.join(MAXIMUM_SUITES)}"
    )
    return f"{text}; not here: {', '.join(missing)}." if missing else f"{text}."


def compared_caption(key: str, data: Data) -> str:
    return f"{COMPARISONS[key].about} {data['suite']}; {_extents(data['curves'])}"


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


def bound_caption(data: Data) -> str:
    first, corrected, printed = (data["tests"][key] for key in BOUNDS)
    idle = f", without {data['idle']} that took no step" if data["idle"] else ""
    return (
        f"{data['suite']}, {several(data['seeds'], 'seed')}, {millions(data['steps'])} million steps; "
        f"curves of seed {data['drawn_seed']}, shares over the {data['epochs']} epochs of all seeds"
        f"{idle}. True J_D of the policy made in an epoch, estimated from the next one, against what "
        f"was predicted. To first order: not exceeded in {share(first['share'])} of epochs, median "
        f"distance {number(first['distance'])}; it is NOT an upper bound. With the corrected penalty: "
        f"{share(corrected['share'])}, a median of {number(corrected['excess'])} above the truth. With "
        f"the penalty as printed: {share(printed['share'])}, {number(printed['excess'])} above. Values "
        f"of 0 or less are not on the log axis."
    )


def resources_caption(data: Data) -> str:
    times = ", ".join(f"{ALGOS[a]} {data['used'][a]['epoch']:.2f} s" for a in RESOURCES)
    seeds = ", ".join(f"{ALGOS[a]} {data['seeds'][a]}" for a in RESOURCES)
    unlike = ["on different machines"] if len(data["machines"]) > 1 else []
    unlike += [] if data["same_settings"] else ["with different steps, worlds or devices"]
    return (
        f"{data['suite']}, {' and '.join(data['machines'])}; seeds: {seeds}; "
        f"{millions(min(data['steps'].values()))} million steps. Median epoch ({times}) and peak memory "
        f"of the process, libraries included, relative to TRPO. Runs that shared a machine also shared "
        f"its time, and GPU memory is that of all who used it."
    ) + "".join(f" NOT comparable: made {how}." for how in unlike)


def episode_caption(data: Data) -> str:
    return (
        f"{data['suite']}, {data['policy']}: cost C of each step, its running maximum M, and the "
        f"increments D, which sum to the largest cost of the episode ({number(max(data['M']))}). Of "
        f"{data['episodes']} episodes the one with the most rises of M that matter ({data['rises']})."
    )


def _extents(curves: Sequence[Data], by: str = "name") -> str:
    """Seeds and steps of each curve, beside the paper's."""
    kinds: dict[str, list[str]] = {}
    mixed = len({curve["on"] for curve in curves}) > 1
    for curve in curves:
        on = f", on a {curve['on']}" if mixed else ""
        end = "" if curve["finished"] else " (UNFINISHED)"
        text = (
            f"{several(curve['seeds'], 'seed')}, {millions(curve['steps'])} million steps{on}{end}"
        )
        kinds.setdefault(text, []).append(curve[by])
    one = len(kinds) == 1
    parts = [text if one else f"{', '.join(names)}: {text}" for text, names in kinds.items()]
    paper, suites = reference(), [curve["suite"] for curve in curves]
    steps = sorted({paper.steps[suite] for suite in suites if suite in paper.steps})
    theirs = " or ".join(f"{millions(n)} million" for n in steps)
    theirs = f" (paper: {paper.seeds} seeds, {theirs} steps)" if steps else ""
    return f"{'; '.join(parts)}{theirs}."
