"""What the numbers say about the paper's claims, computed: also, and first, where they fail."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from statewise.metrics import COST_RATE, EPISODE_COST, MAX_COST, RETURN, title
from statewise.paper.reference import reference
from statewise.report.groups import Group
from statewise.report.sections import Section, Statement
from statewise.report.table import NONE, Cell, Column, Row, Table
from statewise.text import number

_RETURN_SHARE = 0.95
"""SCPO keeps the return if it has this share of TRPO's."""
_TRPO_FACTOR = 1.5
"""Our TRPO is the paper's if its costs are within this factor."""
_LEARNED_SHARE = 0.5
"""A method learned a suite if it has this share of the paper's TRPO's return."""
_TITLES = {
    "learned": "some method learns",
    "trpo": "TRPO as in the paper",
    "cost_rate_lowest": "SCPO has the lowest cost rate",
    "episode_cost_lowest": "SCPO has the lowest episode cost",
    "max_cost_lowest": "SCPO has the lowest maximum cost",
    "cost_rate_paper": "SCPO's cost rate ≤ the paper's",
    "episode_cost_paper": "SCPO's episode cost ≤ the paper's",
    "return_kept": "SCPO's return ≥ 0.95 × TRPO's",
}
_OPEN = (
    "no finished {}, no episode that ended, not in the paper's tables, or another task than its own"
)
_Learned = Mapping[Group, bool | None]
"""Whether each method learned the suite, None where no episode ended that would tell"""


@dataclass(frozen=True)
class Check:
    """One claim on one suite. The verdict is None where it cannot be judged."""

    verdict: bool | None
    text: str
    among: int = 0
    """How many methods were compared, where that is the claim"""
    whole: bool = True
    """Whether all methods of the paper were among them"""
    among_learned: int = 0
    """How many of them learned the suite, where the claim fails but holds of these"""


@dataclass(frozen=True)
class Judged:
    """The claims on one suite."""

    suite: str
    shorter: str
    """By how much its runs are shorter than the paper's, if they are"""
    checks: dict[str, Check]
    """In the order of their columns"""


def claims_section(groups: Sequence[Group]) -> Section:
    """The claims in all suites, as a part of a report."""
    suites = dict.fromkeys(g.suite for g in groups)
    found = [judge([g for g in groups if g.suite == suite]) for suite in suites]
    said = []
    for one in found:
        first = f"Shorter than in the paper ({one.shorter}). " if one.shorter else ""
        judged = [check for check in one.checks.values() if check.verdict is not None]
        said += [Statement(one.suite, first + check.text, bool(check.verdict)) for check in judged]
    return Section("The paper's claims", tables=(claims_table(found),), statements=tuple(said))


def claims_table(found: Sequence[Judged]) -> Table:
    """Suites down, claims across: first whether the runs are shorter, then yes, no, or nothing."""

    def steps(one: Judged) -> Cell:
        text = f"shorter: {one.shorter}" if one.shorter else "as in the paper"
        return Cell(text, float(not one.shorter), tone="bad" if one.shorter else "")

    columns = [
        Column("suite", lambda one: Cell.words(one.suite, link=f"#{one.suite}"), numeric=False),
        Column("steps", steps, numeric=False),
    ]
    columns += [Column(name, partial(_verdict_cell, key), numeric=False)
                for key, name in _TITLES.items()]  # fmt: skip
    counts, theirs = tally(found), _paper_tally()
    total = ["; ".join([counts[k][0] + theirs.get(k, ""), *counts[k][1:]]) for k in _TITLES]
    short = sum(bool(one.shorter) for one in found)
    footer = Row([Cell("holds in"), Cell(f"{short} of {len(found)} shorter"), *map(Cell, total)])
    note = ("Last epoch, mean over seeds, as in the paper; the maximum cost over the last 5 %. Each cell "
            "names how many methods were compared, and in brackets how many of them learned (half of "
            f"the return of the paper's TRPO). The paper compares {len(reference().algos)} "
            "everywhere.")  # fmt: skip
    return Table.of("Which claims hold where", columns, found, footer=footer, notes=(note,))


def tally(found: Sequence[Judged]) -> dict[str, list[str]]:
    """In how many suites each claim holds, of those where it can be judged; apart from the rest those
    where only some of the paper's methods were compared."""
    counts = {}
    for key in _TITLES:
        judged = [f.checks[key] for f in found if f.checks[key].verdict is not None]
        whole, fewer = [c for c in judged if c.whole], [c for c in judged if not c.whole]
        parts = [_held([bool(c.verdict) for c in whole])] if whole else []
        if any(c.among_learned for c in whole):
            able = [bool(c.verdict or c.among_learned) for c in whole]
            parts += [f"{_held(able)} among methods that learned"]
        parts += [f"{_held([bool(c.verdict) for c in fewer])} with fewer methods"] if fewer else []
        counts[key] = parts or [NONE]
    return counts


def _held(verdicts: Sequence[bool]) -> str:
    return f"{sum(verdicts)} of {len(verdicts)}"


def _paper_tally() -> dict[str, str]:
    """The same counts over the paper's own tables, where they have them."""
    paper, holds = reference(), dict[str, list[bool]]()
    for suite in filter(paper.has, paper.steps):
        row = {(a, m): float(v) for (s, a, m), v in paper.values.items() if s == suite}
        for key, metric in (("cost_rate_lowest", COST_RATE), ("episode_cost_lowest", EPISODE_COST)):
            lowest = row["scpo", metric] <= min(row[algo, metric] for algo in paper.algos)
            holds.setdefault(key, []).append(lowest)
        kept = row["scpo", RETURN] >= _RETURN_SHARE * row["trpo", RETURN]
        holds.setdefault("return_kept", []).append(kept)
    return {key: f" (paper: {_held(verdicts)})" for key, verdicts in holds.items()}


def _verdict_cell(key: str, one: Judged) -> Cell:
    check = one.checks[key]
    if check.verdict is None:
        return Cell(NONE, 1.0, hint=check.text)
    among = f", of {check.among}" if check.among else ""
    among += f" (yes, of {check.among_learned})" if check.among_learned else ""
    word, tone = ("yes", "good") if check.verdict else ("no", "bad")
    return Cell(word + among, 2.0 * check.verdict, tone=tone, hint=check.text)


# One suite -------------------------------------------------------------------------------------


def judge(groups: Sequence[Group]) -> Judged:
    """All claims on the suite of these groups."""
    suite = groups[0].suite
    mains = {g.algo: g for g in groups if g.main and g.finished}
    scpo, trpo = mains.get("scpo"), mains.get("trpo")
    rivals = [g for g in mains.values() if scpo and g is not scpo and g.task == scpo.task]
    learned = {g: _has_learned(g) for g in mains.values()}
    checks = {
        "learned": _learned(learned),
        "trpo": _trpo_as_paper(trpo),
        "cost_rate_lowest": _lowest(COST_RATE, "last", scpo, rivals, learned),
        "episode_cost_lowest": _lowest(EPISODE_COST, "last", scpo, rivals, learned),
        "max_cost_lowest": _lowest(MAX_COST, "late", scpo, rivals, learned),
        "cost_rate_paper": _at_most_paper(COST_RATE, scpo),
        "episode_cost_paper": _at_most_paper(EPISODE_COST, scpo),
        "return_kept": _return_kept(scpo, trpo if trpo in rivals else None),
    }
    if early := [g.name for g in mains.values() if not g.settled]:
        # The cost rate is that of all steps; the rest is said of episodes.
        why = f"no episode of {', '.join(early)} can have run out of time in so few steps"
        checks |= {key: Check(None, why) for key in checks if not key.startswith("cost_rate")}
    return Judged(suite, reference().shorter(suite, [g.steps for g in mains.values()]), checks)


def _lowest(
    metric: str, part: str, scpo: Group | None, rivals: Sequence[Group], learned: _Learned
) -> Check:
    ours, what = scpo.mean(part, metric) if scpo else None, title(metric)
    theirs = {g: v for g in rivals if (v := g.mean(part, metric)) is not None}
    if scpo is None or ours is None or not theirs:
        return Check(None, "no other finished method with the same settings to compare SCPO with")
    unknown = [g for g in rivals if g not in theirs]
    lower = sorted((g for g in theirs if theirs[g] < ours), key=theirs.__getitem__)
    among, whole = len(theirs) + 1, set(reference().algos) <= {"scpo", *(g.algo for g in theirs)}
    if not lower and unknown:
        names = ", ".join(g.name for g in unknown)
        return Check(None, f"the {what} of {names} is not known: no episode ended")
    if not lower:
        value, name = min((v, g.name) for g, v in theirs.items())
        text = f"SCPO's {what} is the lowest: {number(ours)}, next {name} with {number(value)}."
        return Check(True, text, among, whole)
    below = " and ".join(f"{g.name} ({number(theirs[g])}{_price(scpo, g)})" for g in lower)
    text = f"SCPO is not the safest by {what}: {number(ours)}, below it {below}."
    able = 1 + sum(learned[g] is True for g in theirs)
    if learned[scpo] and able > 1 and all(learned[g] is False for g in (*unknown, *lower)):
        text += f" Of the {able} methods that learned the suite it is."
        return Check(False, text, among, whole, able)
    return Check(False, text, among, whole)


def _price(scpo: Group, rival: Group) -> str:
    """The return of a safer rival, where it pays for that with a worse one."""
    ours, theirs = scpo.mean("last", RETURN), rival.mean("last", RETURN)
    if ours is None or theirs is None or theirs >= ours - (1 - _RETURN_SHARE) * abs(ours):
        return ""
    return f", at return {number(theirs)} against {number(ours)}"


def _printed(group: Group | None, metric: str) -> str:
    """The paper's number of a group that has the paper's task, as it is printed there."""
    if group is None or reference().other_task(group.settings):
        return ""
    return reference().text(group.suite, group.algo, metric) or ""


def _at_most_paper(metric: str, scpo: Group | None) -> Check:
    printed, ours = _printed(scpo, metric), scpo.mean("last", metric) if scpo else None
    if ours is None or not printed:
        return Check(None, _OPEN.format("SCPO"))
    held = ours <= float(printed)
    words = "is at most" if held else "is above"
    text = f"SCPO's {title(metric)} {words} the paper's: {number(ours)} against {printed}."
    return Check(held, text)


def _return_kept(scpo: Group | None, trpo: Group | None) -> Check:
    ours, base = (g.mean("last", RETURN) if g else None for g in (scpo, trpo))
    if ours is None or base is None or base <= 0:
        return Check(None, "no return of TRPO with the same settings to compare with")
    kept, percent = ours >= _RETURN_SHARE * base, math.floor(1000 * ours / base) / 10
    # The percentage is not rounded up to a share that is not reached.
    return Check(kept, f"SCPO {'keeps' if kept else 'loses'} TRPO's return: {number(ours)} against "
                       f"{number(base)} ({percent:.1f} %).")  # fmt: skip


def _trpo_as_paper(trpo: Group | None) -> Check:
    """Whether the environment and the budget are the paper's, judged by the plain method."""
    apart, unknown = [], []
    for metric in (RETURN, EPISODE_COST, COST_RATE):
        printed = _printed(trpo, metric)
        if trpo is None or not printed:
            return Check(None, _OPEN.format("TRPO"))
        ours, theirs = trpo.mean("last", metric), float(printed)
        if ours is None:
            unknown.append(title(metric))
            continue
        near = theirs / _TRPO_FACTOR <= ours <= theirs * _TRPO_FACTOR
        if not (ours >= _RETURN_SHARE * theirs if metric == RETURN else near):
            apart.append(f"{title(metric)} {number(ours)} against {printed}")
    if apart:
        return Check(False, f"TRPO is not the paper's TRPO ({', '.join(apart)}): compare the "
                            f"algorithms with each other here, not with the paper.")  # fmt: skip
    if unknown:
        return Check(None, f"TRPO's {' and '.join(unknown)} of the last epoch is not known: no episode "
                           f"ended in it")  # fmt: skip
    return Check(True, "TRPO lands on the paper's TRPO: at least 95 % of its return, costs within a "
                       "factor of 1.5.")  # fmt: skip


def _learned(learned: _Learned) -> Check:
    did, failed, unknown = (
        [g.name for g, verdict in learned.items() if verdict is v] for v in (True, False, None)
    )
    few = f"not known, since too few episodes ended: {', '.join(unknown)}"
    if not did and (unknown or not learned):
        return Check(None, f"who learned is {few}" if learned else "no finished run")
    if not did:
        best = max(v for g in learned if (v := g.mean("late", RETURN)) is not None)
        return Check(False, f"No method learned this suite: the best return over the last 5 % of epochs "
                            f"is {number(best)}.")  # fmt: skip
    but = f" Not: {', '.join(failed)}." if failed else ""
    but += f" {few[0].upper() + few[1:]}." if unknown else ""
    return Check(True, f"{len(did)} of {len(learned)} methods learned the suite.{but}")


def _has_learned(group: Group) -> bool | None:
    """Half of the paper's TRPO's return; without one, more than an episode's spread above the start."""
    late, paper = group.mean("late", RETURN), reference()
    theirs = paper.value(group.suite, "trpo", RETURN)
    if late is not None and theirs is not None and not paper.other_task(group.settings):
        return late >= _LEARNED_SHARE * theirs
    starts = [run.summary.early_return + (run.summary.early_return_std or 0.0)
              for run in group.counted if run.summary.early_return is not None]  # fmt: skip
    return late > sum(starts) / len(starts) if starts and late is not None else None
