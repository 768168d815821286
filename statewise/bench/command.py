"""`statewise bench`: the options of its subcommands, and how a grid is run and reported."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table
from rich.text import Text

from statewise import settings
from statewise.algos import PAPER_ALGORITHMS, get_algorithm
from statewise.bench import launch
from statewise.bench.estimate import as_text, grid_seconds_left, seconds_left
from statewise.bench.grid import LOG_FILE, Grid, Run, State, parse_seeds, product_grid
from statewise.bench.launch import LaunchOptions, Report
from statewise.bench.table import GridView, summary
from statewise.console import console, say, styled
from statewise.envs.suites import PAPER_SUITES, proper_name
from statewise.plugins import ImportOptions, import_modules, is_gym
from statewise.runs.folder import check_folder
from statewise.settings import number, option
from statewise.text import several

_OPTIONS = {
    "suite": "suites", "algo": "algos", "seed": "seeds", "steps": "steps", "num_envs": "num-envs",
    "device": "device", "out": "out", "threads": "threads", "label": "out", "imports": "import",
}  # fmt: skip
"""Settings of a run that the command has options for."""
_PLAN: dict[State, str] = {
    "finished": "finished", "interrupted": "to resume", "new": "to start",
    "failed": "to try again", "busy": "elsewhere", "conflict": "other settings",
    "damaged": "damaged",
}  # fmt: skip
"""What a run's state means for the plan."""
_MOST_NOTES = 8
"""Most runs whose problems are printed in full."""
STOPPED_STATUS = 130
"""Exit status after Ctrl-C, as is usual."""


@dataclass(frozen=True)
class GridOptions(LaunchOptions, ImportOptions):
    """Which runs, shared by all benchmarks."""

    suites: tuple[str, ...] = option((), metavar="SUITE")
    """Suites, such as Point-Hazard-8 Ant-Hazard-8."""
    seeds: str = "0"
    """Seeds: 0..2 means 0, 1 and 2. 0,1,5 means these three."""
    steps: int = number(0, least=0)
    """Environment steps of each run, such as 6M. 0 takes as many as `statewise train` does."""
    num_envs: int = number(0, least=0)
    """Worlds of each run. 0 takes as many as `statewise train` does."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where each run trains."""
    out: Path = Path("runs")
    """Runs go to OUT/SUITE/ALGO/seed-SEED. What is finished there is not trained again."""
    set: tuple[str, ...] = option((), metavar="NAME=VALUE")
    """Any other setting of `statewise train`, as NAME=VALUE. NAME=A,B,C trains with each of the values,
    into OUT/SUITE/ALGO-NAME-VALUE/seed-SEED. Spaces join the parts of one value: "hidden=64 64". A
    setting that only some algorithms have is set for those."""
    dry_run: bool = False
    """Only print the plan and an estimate of the time."""
    quiet: bool = False
    """Print only what went wrong: runs that failed, or that could not be touched."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.quiet and self.dry_run:
            raise ValueError("--dry-run only prints a plan: leave out --quiet")

    def given(self) -> dict[str, Any]:
        """What the settings of the runs are, or the list of values that one takes."""
        pairs: dict[str, Any] = dict(settings.read_pairs(self.set))
        for name in pairs:
            if name in _OPTIONS:
                raise ValueError(f"--set {name}=... does not work: use --{_OPTIONS[name]}")
        names = ("steps", "num_envs", "device", "imports")
        # What is not given is left out, so that it does not win over a preset.
        chosen = {name: getattr(self, name) for name in names}
        return {name: x for name, x in chosen.items() if x != getattr(GridOptions, name)} | pairs

    def grid(self, suites: Sequence[str], algos: Sequence[str]) -> Grid:
        """Every suite, algorithm, seed and combination of settings; plug-ins are imported first."""
        import_modules(self.imports)
        seeds = parse_seeds(self.seeds)
        names = [name if is_gym(name) else proper_name(name) for name in split(suites)]
        return product_grid(names, split(algos), seeds, str(self.out), self.given())


@dataclass(frozen=True)
class GridCommand(GridOptions):
    """Train any product of suites, algorithms, settings and seeds, many runs at a time.

    Finished runs are skipped, interrupted ones go on where they were, failed ones are tried again:
    stop it (Ctrl-C) and start it as you like. Runs that fail are reported at the end.
    """

    algos: tuple[str, ...] = option(("scpo",), metavar="ALGO")
    """Algorithms, such as scpo cpo."""

    def run(self) -> None:
        if not self.suites:
            raise ValueError("name at least one suite: --suites Point-Hazard-8")
        leave(run_grid(self.grid(self.suites, self.algos), self, self.dry_run, self.quiet))


@dataclass(frozen=True)
class Paper(GridCommand):
    """Train every algorithm on every suite of the SCPO paper with every seed, many runs at a time.

    Otherwise like `bench grid`: stop it (Ctrl-C) and start it as you like.
    """

    suites: tuple[str, ...] = option(PAPER_SUITES, metavar="SUITE")
    """Suites, instead of all sixteen."""
    algos: tuple[str, ...] = option(PAPER_ALGORITHMS, metavar="ALGO")
    """Algorithms, instead of all nine."""
    seeds: str = "0..1"
    """Seeds, as for `bench grid`. The paper has two."""


@dataclass(frozen=True)
class Frontier(GridCommand):
    """Vary the training margin and the cost limit, to compare return with safety.

    Every margin is trained with every limit, as a variant of its own. `statewise report OUT` then draws
    return against violations and names the settings that no other one beats. Otherwise like
    `bench grid`: stop it (Ctrl-C) and start it as you like.
    """

    suites: tuple[str, ...] = option((), positional=True, metavar="SUITE")
    """Suites, such as Point-Hazard-8."""
    set: tuple[str, ...] = option((), metavar="NAME=VALUE")
    """Settings, as for `bench grid`. Without others these are margin=0,0.05,0.1,0.2, cost_limit=0,0.01
    and judge=2000."""

    def given(self) -> dict[str, Any]:
        return {
            "margin": ["0", "0.05", "0.1", "0.2"],
            "cost_limit": ["0", "0.01"],
            "judge": "2000",  # the last epochs of a short run hold too few episodes to choose by
        } | super().given()

    def grid(self, suites: Sequence[str], algos: Sequence[str]) -> Grid:
        import_modules(self.imports)
        for kind in map(get_algorithm, split(algos)):
            if "cost_limit" not in settings.hints_of(kind.settings_class):
                raise ValueError(f"{kind.name} has no cost limit to vary: choose one that has, such as "
                                 "--algos scpo")  # fmt: skip
        found = super().grid(suites, algos)
        if not any(spec.label for spec in found.specs):
            raise ValueError("there is nothing to compare: give several values, such as --set "
                             "margin=0,0.1")  # fmt: skip
        for spec in found.specs:
            if is_gym(spec.suite) and any(spec.train.get("margin", ())):
                raise ValueError(f"{spec.suite} has no margins: use --set margin=0")
        return found

    def run(self) -> None:
        if not self.suites:
            raise ValueError("name a suite: statewise bench frontier Point-Hazard-8")
        status = run_grid(self.grid(self.suites, self.algos), self, self.dry_run, self.quiet)
        if status == 0 and not (self.dry_run or self.quiet):
            say(f"draw it with: statewise report {self.out}")
        leave(status)


def leave(status: int) -> None:
    """End the process with a status, unless all is well."""
    if status:
        raise SystemExit(status)


def run_grid(grid: Grid, options: LaunchOptions, dry_run: bool = False, quiet: bool = False) -> int:
    """Train what is left of a grid, showing it; the exit status.

    0: all runs are finished. 1: some failed, or could not be touched. 130: stopped by Ctrl-C.
    """
    # The true output, also while Ray's own prints go to a file.
    screen = console(quiet=quiet, width=140, file=sys.stdout)
    runs = grid.open()
    check_folder("--out", Path(grid.out))
    if dry_run:
        _print_plan(screen, runs, options)
        return 0
    if options.launcher == "local" and any(r.train.device.startswith("cuda") for r in runs):
        import torch

        if not torch.cuda.is_available():
            raise ValueError(
                "--device cuda needs a GPU, and none is to be found here: use --device cpu"
            )
    started = time.monotonic()
    screen.print(_opening(runs, grid.out, options))
    with GridView(screen) as view:
        runs = launcher(options)(grid, options, view)
    return _print_end(screen, runs, time.monotonic() - started)


def launcher(options: LaunchOptions) -> Callable[[Grid, LaunchOptions, Report], list[Run]]:
    """The function that trains a grid as the options say."""
    if options.launcher == "local":
        return launch.launch
    from statewise.bench import ray_launcher  # needs an extra

    return ray_launcher.launch


def split(names: Sequence[str]) -> list[str]:
    """Names given one by one or with commas between."""
    return [name for given in names for name in given.split(",") if name]


# What is printed ---------------------------------------------------------------------------------


def _opening(runs: Sequence[Run], out: str, options: LaunchOptions) -> str:
    """Return a sentence about what will be trained."""
    where = f"Ray, {options.cpus_per_run} CPU each"
    if options.launcher == "local":
        where = f"{launch.job_count(runs, options)} at a time, {options.threads or 1} thread each"
    return f"{_counts(runs)}, in {out} ({where})"


def _counts(runs: Sequence[Run]) -> str:
    states = [run.state for run in runs]
    parts = [f"{states.count(s)} {word}" for s, word in _PLAN.items() if s in states]
    return f"{several(len(runs), 'run')}: {', '.join(parts)}"


def _print_plan(screen: Console, runs: Sequence[Run], options: LaunchOptions) -> None:
    """What is finished and what is left of each suite, and about how long it takes."""
    jobs = launch.job_count(runs, options)
    table = Table()
    table.add_column("suite", no_wrap=True)
    shown = [state for state in _PLAN if any(run.state == state for run in runs)]
    for name in ("runs", *(_PLAN[state] for state in shown), "training time"):
        table.add_column(name, justify="right")
    for suite in dict.fromkeys(run.spec.suite for run in runs):
        some = [run for run in runs if run.spec.suite == suite]
        states = [run.state for run in some]
        left = sum(seconds_left(run, runs) for run in some)
        table.add_row(suite, str(len(some)), *(str(states.count(s) or "") for s in shown),
                      as_text(left) if left else "")  # fmt: skip
    screen.print(table)
    screen.print(_counts(runs))
    left = grid_seconds_left(runs, jobs)
    if left and options.launcher == "local":
        guess = "" if any(run.metrics for run in runs) else ", a guess until some runs have begun"
        screen.print(f"about {as_text(left)} with {jobs} at a time{guess}")
    _print_notes(screen, runs)


def _print_end(screen: Console, runs: Sequence[Run], seconds: float) -> int:
    """Say how it went and what to do next; the exit status."""
    states = {run.state for run in runs}
    # In a terminal the last table stays, with the summary below it.
    text = "" if screen.is_terminal else f"{summary(runs)}; "
    screen.print(f"{text}took {as_text(seconds)}")
    _print_notes(console(width=140, file=sys.stdout), runs)  # also with --quiet
    if states == {"finished"}:
        return 0
    if states & {"interrupted", "new", "failed"}:
        again = "the same command goes on where it stopped, tries failed runs again"
        screen.print(f"{again}, and skips what is finished")
    return STOPPED_STATUS if states & {"interrupted", "new"} else 1


def _print_notes(screen: Console, runs: Sequence[Run]) -> None:
    """What is wrong with which run."""
    noted = [run for run in runs if run.note]
    for run in noted[:_MOST_NOTES]:
        first, *rest = run.note.splitlines()
        word = run.state if run.state == "failed" else _PLAN[run.state]
        parts = styled(word, "bold red"), " ", styled(str(run), "bold"), ": ", styled(first, "")
        screen.print(Text.assemble(*parts), soft_wrap=True)
        if run.state == "failed":
            rest.append(f"(all of it: {run.folder / LOG_FILE})")
        for text in rest:
            screen.print(f"    {text}", soft_wrap=True)
    if len(noted) > _MOST_NOTES:
        screen.print(f"and {len(noted) - _MOST_NOTES} more like these")
