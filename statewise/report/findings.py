"""What the numbers say about the paper's claims, computed: also, and first, where they fail."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from statewise.envs.suites import PAPER_SUITES
from statewise.report.groups import Group
from statewise.report.paper import (
    NAMES,
    SEEDS,
    paper_results,
    paper_steps,
    paper_text,
    paper_value,
)
from statewise.report.table import NONE, Cell, Column, Row, Table, number, text_cell

RETURN_SHARE = 0.95
"""SCPO keeps the return if it has this share of TRPO's."""
TRPO_FACTOR = 1.5
"""Our TRPO is the paper's if its costs are within this factor."""
LEARNED_SHARE = 0.5
"""A method learned a suite if it has this share of the paper's TRPO's return."""
TASK_SETTINGS = ("continuing", "cost_limit")
"""Settings that ask for something else than the paper does. The others change how it is learned, or,
like `compact`, nothing: what they come to may be held against the paper."""

TITLES = {
    "learned": "some method learns",
    "trpo": "TRPO as in the paper",
    "cost_rate_lowest": "SCPO has the lowest cost rate",
    "episode_cost_lowest": "SCPO has the lowest episode cost",
    "max_cost_lowest": "SCPO has the lowest maximum cost",
    "cost_rate_paper": "SCPO's cost rate ≤ the paper's",
    "episode_cost_paper": "SCPO's episode cost ≤ the paper's",
    "return_kept": "SCPO's return ≥ 0.95 × TRPO's",
}
_KEYS = {"cost/rate": "cost_rate", "cost/episode": "episode_cost", "cost/max": "max_cost"}
_WORDS = {"cost/rate": "cost rate", "cost/episode": "episode cost",
          "cost/max": "maximum state-wise cost"}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One claim on one suite. The verdict is None where it cannot be judged."""

    key: str
    verdict: bool | None
    text: str
    among: int = 0
    """How many methods were compared, where that is the claim"""
    among_learned: int = 0
    """How many of them learned the suite, where the claim fails but holds of these"""


@dataclass(frozen=True)
class SuiteFindings:
    suite: str
    checks: tuple[Check, ...]
    limits: tuple[str, ...]
    """Why the suite is not quite the paper's experiment"""

    @property
    def failures(self) -> tuple[Check, ...]:
        return tuple(check for check in self.checks if check.verdict is False)


def find(groups: Sequence[Group]) -> list[SuiteFindings]:
    """The findings of every suite, in the order of the groups."""
    suites = list(dict.fromkeys(group.suite for group in groups))
    return [_suite_findings(s, [g for g in groups if g.suite == s]) for s in suites]


def checks_table(findings: Sequence[SuiteFindings]) -> Table:
    """Suites down, claims across: yes, no, or nothing where it cannot be judged."""
    columns = [Column("suite", numeric=False)]
    columns += [Column(title, numeric=False) for title in TITLES.values()]
    rows = []
    for found in findings:
        by_key = {check.key: check for check in found.checks}
        cells = [text_cell(found.suite, link=f"#{found.suite}")]
        rows.append(Row(cells + [_verdict_cell(by_key[key]) for key in TITLES]))
    counts, paper = tally(findings), _paper_tally()
    paper = {key: f" (paper: {held})" for key, held in paper.items()}
    total = ["; ".join([counts[k][0] + paper.get(k, ""), *counts[k][1:]]) for k in TITLES]
    footer = Row([Cell("holds in"), *(Cell(text) for text in total)])
    note = ("Last epoch, mean over seeds, as in the paper; the maximum cost over the last 5 %. Lowest of "
            "how many methods is said, and in brackets of how many that learned (half of the return of "
            "the paper's TRPO); the paper compares nine everywhere.")  # fmt: skip
    return Table("Which claims hold where", columns, rows, footer, notes=(note,))


def tally(findings: Sequence[SuiteFindings]) -> dict[str, list[str]]:
    """In how many suites each claim holds, of those where it can be judged; apart from the rest those
    where only some of the methods were compared."""
    counts = {}
    for key in TITLES:
        judged = [c for f in findings for c in f.checks if c.key == key and c.verdict is not None]
        whole = [c for c in judged if c.among in (0, len(NAMES))]
        fewer = [c for c in judged if c not in whole]
        parts = [_held(whole)] if whole else []
        if any(c.among_learned for c in whole):
            held = sum(bool(c.verdict or c.among_learned) for c in whole)
            parts += [f"{held} of {len(whole)} among methods that learned"]
        parts += [f"{_held(fewer)} with fewer methods"] if fewer else []
        counts[key] = parts or [NONE]
    return counts


def _held(checks: Sequence[Check]) -> str:
    return f"{sum(bool(c.verdict) for c in checks)} of {len(checks)}"


def _paper_tally() -> dict[str, str]:
    """The same counts over the paper's own tables."""
    rows: dict[str, dict[str, dict[str, float]]] = {}
    for (suite, algo), row in paper_results().items():
        rows.setdefault(suite, {})[algo] = row.values
    holds: dict[str, list[bool]] = {"cost_rate_lowest": [], "episode_cost_lowest": []}
    kept = holds.setdefault("return_kept", [])
    for algos in rows.values():
        for metric in ("cost/rate", "cost/episode"):
            lowest = min(values[metric] for values in algos.values())
            holds[f"{_KEYS[metric]}_lowest"].append(algos["scpo"][metric] <= lowest)
        kept.append(
            algos["scpo"]["episode/return"] >= RETURN_SHARE * algos["trpo"]["episode/return"]
        )
    return {key: f"{sum(found)} of {len(found)}" for key, found in holds.items()}


# One suite -------------------------------------------------------------------------------------


def _suite_findings(suite: str, groups: Sequence[Group]) -> SuiteFindings:
    mains = {g.algo: g for g in groups if g.main and g.finished}
    early = [g.name for g in mains.values() if not g.settled]
    scpo, trpo = mains.get("scpo"), mains.get("trpo")
    rivals = [g for g in mains.values() if scpo and g is not scpo and g.task == scpo.task]
    learned = _who_learned(suite, list(mains.values()))
    checks = [
        _learned(learned, list(mains.values())),
        _trpo_as_paper(trpo),
        *(_lowest(metric, scpo, rivals, learned) for metric in _WORDS),
        *(_at_most_paper(metric, scpo) for metric in ("cost/rate", "cost/episode")),
        _return_kept(scpo, trpo if trpo in rivals else None),
    ]
    if early:  # the cost rate is that of all steps; the rest is said of episodes
        why = f"no episode of {', '.join(early)} can have run out of time in so few steps"
        checks = [c if c.key.startswith("cost/rate") else Check(c.key, None, why) for c in checks]
    return SuiteFindings(suite, tuple(checks), tuple(_limits(suite, groups, mains)))


def _lowest(
    metric: str, scpo: Group | None, rivals: Sequence[Group], learned: dict[str, bool | None]
) -> Check:
    key, part = f"{_KEYS[metric]}_lowest", "late" if metric == "cost/max" else "last"
    ours = scpo.mean(part, metric) if scpo else None
    theirs = {g.name: v for g in rivals if (v := g.mean(part, metric)) is not None}
    if ours is None or not theirs:
        return Check(key, None, "no finished rival with the same settings to compare SCPO with")
    lower = sorted((v, name) for name, v in theirs.items() if v < ours)
    what, among = _WORDS[metric], len(theirs) + 1
    unknown = [g.name for g in rivals if g.name not in theirs]
    if not lower and unknown:
        return Check(
            key, None, f"the {what} of {', '.join(unknown)} is not known: no episode ended"
        )
    if not lower:
        value, name = min((v, name) for name, v in theirs.items())
        return Check(key, True, f"SCPO's {what} is the lowest: {number(ours)}, next {name} with "
                                f"{number(value)}.", among)  # fmt: skip
    names = " and ".join(f"{name} ({number(v)}{_price(scpo, name, rivals)})" for v, name in lower)
    text = f"SCPO is not the safest by {what}: {number(ours)}, below it {names}."
    in_doubt = [*unknown, *(name for _, name in lower)]
    able = [name for name in theirs if learned[name]]
    if scpo and learned[scpo.name] and able and all(learned[n] is False for n in in_doubt):
        text += f" Of the {len(able) + 1} methods that learned the suite it is."
        return Check(key, False, text, among, among_learned=len(able) + 1)
    return Check(key, False, text, among)


def _price(scpo: Group | None, name: str, rivals: Sequence[Group]) -> str:
    """The return of a safer rival, where it pays for that with a worse one."""
    ours = scpo.mean("last", "episode/return") if scpo else None
    theirs = next(g for g in rivals if g.name == name).mean("last", "episode/return")
    if ours is None or theirs is None or theirs >= ours - (1 - RETURN_SHARE) * abs(ours):
        return ""
    return f", at return {number(theirs)} against {number(ours)}"


def _at_most_paper(metric: str, scpo: Group | None) -> Check:
    key = f"{_KEYS[metric]}_paper"
    ours = scpo.mean("last", metric) if scpo else None
    theirs = paper_value(scpo.suite, "scpo", metric) if scpo and not _changed_task(scpo) else None
    if scpo is None or ours is None or theirs is None:
        return Check(key, None, "nothing to compare: no finished SCPO, no episode that ended, not in "
                                "the paper's tables, or another task than the paper's")  # fmt: skip
    verdict = ours <= theirs
    words = "is at most" if verdict else "is above"
    return Check(key, verdict, f"SCPO's {_WORDS[metric]} {words} the paper's: {number(ours)} "
                               f"against {paper_text(scpo.suite, 'scpo', metric)}.")  # fmt: skip


def _return_kept(scpo: Group | None, trpo: Group | None) -> Check:
    ours = scpo.mean("last", "episode/return") if scpo else None
    base = trpo.mean("last", "episode/return") if trpo else None
    if ours is None or base is None or base <= 0:
        return Check(
            "return_kept", None, "no return of TRPO with the same settings to compare with"
        )
    share = ours / base
    words = "keeps" if share >= RETURN_SHARE else "loses"
    percent = math.floor(1000 * share) / 10  # not rounded up to a share that is not reached
    text = f"SCPO {words} TRPO's return: {number(ours)} against {number(base)} ({percent:.1f} %)."
    return Check("return_kept", share >= RETURN_SHARE, text)


def _trpo_as_paper(trpo: Group | None) -> Check:
    """Whether the environment and the budget are the paper's, judged by the plain method."""
    if trpo is None or (trpo.suite, "trpo") not in paper_results() or _changed_task(trpo):
        return Check("trpo", None, "no finished TRPO, not in the paper's tables, or another task "
                                   "than the paper's")  # fmt: skip
    apart, unknown = [], []
    for metric in ("episode/return", "cost/episode", "cost/rate"):
        ours, theirs = trpo.mean("last", metric), paper_value(trpo.suite, "trpo", metric)
        word = _WORDS.get(metric, "episode/return")
        if ours is None or theirs is None:
            unknown.append(word)
            continue
        near = theirs / TRPO_FACTOR <= ours <= theirs * TRPO_FACTOR
        if metric == "episode/return":
            near = ours >= RETURN_SHARE * theirs
        if not near:
            apart.append(f"{word} {number(ours)} against {paper_text(trpo.suite, 'trpo', metric)}")
    if not apart and unknown:
        return Check("trpo", None, f"TRPO's {' and '.join(unknown)} of the last epoch is not known: "
                                   f"no episode ended in it")  # fmt: skip
    if not apart:
        return Check("trpo", True, "TRPO lands on the paper's TRPO: at least 95 % of its return, "
                                   "costs within a factor of 1.5.")  # fmt: skip
    return Check("trpo", False, f"TRPO is not the paper's TRPO ({', '.join(apart)}): compare the "
                                f"algorithms with each other here, not with the paper.")  # fmt: skip


def _who_learned(suite: str, groups: Sequence[Group]) -> dict[str, bool | None]:
    """Half of the paper's TRPO's return; without one, more than an episode's spread above the start."""
    known = paper_value(suite, "trpo", "episode/return")
    return {g.name: _group_learned(g, None if _changed_task(g) else known) for g in groups}


def _learned(learned: dict[str, bool | None], groups: Sequence[Group]) -> Check:
    if not groups:
        return Check("learned", None, "no finished run")
    did, failed, unknown = (
        [n for n, verdict in learned.items() if verdict is v] for v in (True, False, None)
    )
    if not did and unknown:
        return Check("learned", None, f"not known, since too few episodes ended: whether "
                                      f"{', '.join(unknown)} learned the suite")  # fmt: skip
    if not did:
        best = max(v for g in groups if (v := g.mean("late", "episode/return")) is not None)
        return Check("learned", False, f"No method learned this suite: the best return over the "
                                       f"last 5 % of epochs is {number(best)}.")  # fmt: skip
    but = f" Not: {', '.join(failed)}." if failed else ""
    but += f" Not known, since too few episodes ended: {', '.join(unknown)}." if unknown else ""
    return Check("learned", True, f"{len(did)} of {len(groups)} methods learned the suite.{but}")


def _group_learned(group: Group, paper_return: float | None) -> bool | None:
    """None where no episode ended that would tell."""
    late = group.mean("late", "episode/return")
    if late is None:
        return None
    if paper_return is not None:
        return late >= LEARNED_SHARE * paper_return
    starts = [
        run.summary.early_return + (run.summary.early_return_std or 0.0)
        for run in group.counted
        if run.summary.early_return is not None
    ]
    return late > sum(starts) / len(starts) if starts else None


def _changed_task(group: Group) -> dict[str, Any]:
    """The settings for which the group is not held against the paper's numbers."""
    return {name: group.changed[name] for name in TASK_SETTINGS if name in group.changed}


def _limits(suite: str, groups: Sequence[Group], mains: dict[str, Group]) -> list[str]:
    found = []
    paper = paper_steps(suite)
    short = sorted({g.steps for g in mains.values() if g.steps < 0.99 * paper})
    if short and suite in PAPER_SUITES:
        span = " to ".join(dict.fromkeys(_millions(s) for s in (short[0], short[-1])))
        found.append(f"Fewer steps than the paper: {span} of {_millions(paper)} million.")
    early = [g for g in mains.values() if not g.settled]
    if early:
        names, steps = ", ".join(g.name for g in early), max(g.settling for g in early)
        found.append(f"Too short to say how episodes end, since none can have run out of time before "
                     f"{_millions(steps)} million steps: {names}. Return and costs are those of the "
                     f"episodes that ended by themselves.")  # fmt: skip
    few = [g.name for g in mains.values() if len(g.counted) < SEEDS]
    if few:
        found.append(f"Fewer seeds than the paper's {SEEDS}: {', '.join(few)}.")
    other = [f"{g.name} ({', '.join(f'{k}={v}' for k, v in changed.items())})"
             for g in mains.values() if (changed := _changed_task(g))]  # fmt: skip
    if other:
        found.append(f"Another task than the paper's, so not held against its numbers: "
                     f"{', '.join(other)}.")  # fmt: skip
    absent = [name for algo, name in NAMES.items() if algo not in mains]
    if absent:
        found.append(f"No finished run of {', '.join(absent)}.")
    if len({g.task for g in mains.values()}) > 1:
        found.append("The algorithms were not all trained with the same steps, worlds and task.")
    gpu = [g.name for g in groups if g.device.startswith("cuda")]
    cpu = [g.name for g in groups if not g.device.startswith("cuda")]
    if cpu and gpu:
        found.append(f"Trained on a CPU: {', '.join(cpu)}; on a GPU: {', '.join(gpu)}.")
    for group in groups:
        found += _unfinished(group)
        found += [f"{group.name}, seed {r.seed}: {n}." for r in group.runs for n in r.notes]
        found += [f"{group.name}, seed {r.seed}: {n} update{'s were' if n > 1 else ' was'} left out, "
                  f"since a number was not finite."
                  for r in group.runs if (n := r.summary.skipped_updates)]  # fmt: skip
    commits = {str(r.environment["commit"]) for g in groups for r in g.runs
               if r.environment.get("commit")}  # fmt: skip
    if len(commits) > 1:
        found.append(f"Its runs come from several commits: {', '.join(sorted(commits))}.")
    if (suite, "scpo") not in paper_results():
        found.append("The paper's tables do not have this suite.")
    costs = [r.config.get("spec", {}).get("cost_names") for g in groups for r in g.runs]
    if all(names == [] for names in costs):
        found.append("Its environment reports no cost: nothing is known of its safety.")
    return found


def _unfinished(group: Group) -> list[str]:
    runs = [run for run in group.runs if not run.finished]
    if not runs:
        return []
    seeds = ", ".join(f"seed {r.seed} ({r.summary.epochs_done} of {r.epochs} epochs)" for r in runs)
    what = "in the curves (dotted), not in the tables" if group.finished else "shown as it stands"
    return [f"{group.name}: unfinished {seeds}; {what}."]


def _verdict_cell(check: Check) -> Cell:
    if check.verdict is None:
        return Cell(NONE, 1.0, hint=check.text)
    among = f", of {check.among}" if check.among else ""
    among += f" (yes, of {check.among_learned})" if check.among_learned else ""
    return Cell(
        ("yes" if check.verdict else "no") + among,
        2.0 if check.verdict else 0.0,
        tone="good" if check.verdict else "bad",
        hint=check.text,
    )


def _millions(steps: int) -> str:
    return f"{steps / 1e6:.3g}"
