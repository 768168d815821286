"""What to know before trusting the numbers: flags of the whole input, and limits of each suite."""

from __future__ import annotations

from collections.abc import Sequence

from statewise.algos import ALGORITHMS
from statewise.report.groups import Group, mixed_labels, title_of
from statewise.report.notes import Notes
from statewise.report.reference import Reference
from statewise.runs.differences import settings_text
from statewise.runs.reader import Reading
from statewise.text import millions


def flags_of(reading: Reading, groups: Sequence[Group], notes: Notes) -> list[str]:
    """What is wrong with the input as a whole."""
    runs, see = reading.runs, "see the limits of their suites"
    flags = [*reading.notes, *mixed_labels(groups)]
    if not any(run.finished for run in runs):
        flags.insert(0, "No run is finished: every number below is of runs that stand somewhere on "
                        "the way, and nothing is ranked or judged.")  # fmt: skip
    elif unfinished := sum(not run.finished for run in runs):
        flags.append(f"{unfinished} of {len(runs)} runs are unfinished: {see}.")
    if damaged := sum(bool(run.notes) for run in runs):
        flags.append(f"{damaged} runs have files that are cut short, damaged or missing: {see}.")
    if skipped := sum(bool(run.summary.skipped_updates) for run in runs):
        flags.append(f"Updates of {skipped} of {len(runs)} runs were left out, since a number was not "
                     f"finite: {see}.")  # fmt: skip
    if notes.unknown:
        flags.append(f"The notes speak of suites that are not here: {', '.join(notes.unknown)}.")
    return flags


def limits_of(groups: Sequence[Group], reference: Reference | None = None) -> list[str]:
    """What limits the numbers of one suite: first where its runs are shorter than the reference's."""
    mains = [g for g in groups if g.main and g.finished]
    found = _beside_reference(mains, groups[0].suite, reference) if reference else []
    if early := [g for g in mains if not g.settled]:
        found.append(f"Too short to say how episodes end, since none can have run out of time before "
                     f"{millions(max(g.settling for g in early))} million steps: "
                     f"{', '.join(g.name for g in early)}. Return and costs are those of the "
                     f"episodes that ended by themselves.")  # fmt: skip
    if len({g.task for g in mains}) > 1:
        found.append("The algorithms were not all trained with the same steps, worlds and task.")
    gpu = [g.name for g in groups if g.device.startswith("cuda")]
    cpu = [g.name for g in groups if g.name not in gpu]
    if cpu and gpu:
        found.append(f"Trained on a CPU: {', '.join(cpu)}; on a GPU: {', '.join(gpu)}.")
    if unknown := [g.name for g in mains if g.algo not in ALGORITHMS]:
        found.append(f"Default settings are not known of {', '.join(unknown)}: import the module that "
                     f"registers it. All its settings are listed as changed.")  # fmt: skip
    for group in groups:
        found += _of_runs(group)
    commits = {r.environment["commit"] for g in groups for r in g.runs
               if r.environment.get("commit")}  # fmt: skip
    if len(commits) > 1:
        found.append(f"Its runs come from several commits: {', '.join(sorted(commits))}.")
    specs = [run.config.get("spec", {}) for group in groups for run in group.runs]
    if all(spec.get("cost_names") == [] for spec in specs):
        found.append("Its environment reports no cost: nothing is known of its safety.")
    return found


def _beside_reference(mains: Sequence[Group], suite: str, reference: Reference) -> list[str]:
    """Why the runs are not quite the reference's experiment."""
    found, name = [], reference.name
    if less := reference.shorter(suite, [g.steps for g in mains]):
        found.append(f"Fewer steps than the {name}: {less}.")
    few = [g.name for g in mains if len(g.counted) < reference.seeds]
    if few and suite in reference.steps:
        found.append(f"Fewer seeds than the {name}'s {reference.seeds}: {', '.join(few)}.")
    if other := [
        f"{g.name} ({settings_text(changed)})"
        for g in mains if (changed := reference.other_task(g.settings))
    ]:  # fmt: skip
        found.append(f"Another task than the {name}'s, so not held against its numbers: "
                     f"{', '.join(other)}.")  # fmt: skip
    there = [g.algo for g in mains]
    absent = [title_of(algo) for algo in reference.algos if algo not in there]
    if absent and suite in reference.steps:
        found.append(f"No finished run of {', '.join(absent)}.")
    if not reference.has(suite):
        found.append(f"The {name}'s tables do not have this suite.")
    return found


def _of_runs(group: Group) -> list[str]:
    """Unfinished runs, damaged files, updates left out."""
    found = []
    if runs := [run for run in group.runs if not run.finished]:
        seeds = ", ".join(
            f"seed {r.seed} ({r.summary.epochs_done} of {r.epochs} epochs)" for r in runs
        )
        how = (
            "in the curves (dotted), not in the tables" if group.finished else "shown as it stands"
        )
        found.append(f"{group.name}: unfinished {seeds}; {how}.")
    found += [f"{group.name}, seed {run.seed}: {note}." for run in group.runs for note in run.notes]
    return found + [
        f"{group.name}, seed {run.seed}: {n} update{'s were' if n > 1 else ' was'} left out, since a "
        f"number was not finite."
        for run in group.runs if (n := run.summary.skipped_updates)
    ]  # fmt: skip
