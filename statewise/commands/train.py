"""`statewise train`: a new run, or the rest of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statewise import settings
from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.algos.shared_settings import Settings
from statewise.cli import STOPPED_STATUS, OptionParser
from statewise.plugins import PluginOptions, import_modules
from statewise.settings import option
from statewise.training import api
from statewise.training.config import TrainSettings, parse_run

_SEEDS_HELP = "Train once with each of these seeds, one after another: 0..7, or 0,3,5."


@dataclass(frozen=True)
class Train:
    """A new run: what to train, and with which seeds."""

    train: TrainSettings
    algorithm: Settings
    seeds: str = ""

    @classmethod
    def from_command_line(cls, args: Sequence[str]) -> Train | Resume:
        """With the options of the algorithm that `--algo` names, once plug-ins are imported."""
        first = OptionParser("train", "", add_help=False)
        first.add_argument("--algo", default="scpo")
        first.add_argument("--import", nargs="+", default=(), dest="imports")
        first.add_argument("--resume", nargs="?", const="")
        early = first.parse_known_args(args)[0]
        if early.resume is not None:
            parser = OptionParser("train --resume", Resume.__doc__ or "")
            settings.add_options(parser, Resume)
            return settings.parse(Resume, parser.read(args))
        import_modules(early.imports)
        kind = get_algorithm(early.algo)
        _check_own_settings(kind, args)
        parser = OptionParser(
            "train",
            f"Train {kind.name} in a suite. `--algo NAME --help` shows the settings of another\n"
            f"algorithm ({', '.join(ALGORITHMS)}).\n"
            f"`statewise train --resume RUN` continues a run.",
        )
        parser.usage = "statewise train SUITE [options]"
        settings.add_options(parser, TrainSettings, "what to train")
        settings.add_options(parser, kind.settings_class, f"settings of {kind.name}")
        parser.add_argument("--seeds", default="", metavar="SEEDS", help=_SEEDS_HELP)
        given = parser.read(args)
        seeds = given.pop("seeds")
        return cls(*parse_run(given, text=True), seeds)

    def run(self) -> None:
        from statewise.bench.grid import parse_seeds

        if self.seeds:
            paths = api.train_seeds(self.train, self.algorithm, parse_seeds(self.seeds))
        else:
            paths = [api.start(self.train, self.algorithm)]
        leave_if_stopped(paths[-1])


@dataclass(frozen=True, kw_only=True)
class Resume(PluginOptions):
    """Continue a run from its last checkpoint."""

    resume: Path = option(metavar="RUN")
    """The run folder."""

    def run(self) -> None:
        leave_if_stopped(api.resume(self.resume, imports=self.imports, trust=self.trust))


def _check_own_settings(kind: type[Algorithm], args: Sequence[str]) -> None:
    """ValueError for an option that only other algorithms have, which says which."""
    names = {algo: settings.hints_of(other.settings_class) for algo, other in ALGORITHMS.items()}
    for arg in args:
        name = arg.split("=")[0].removeprefix("--").replace("-", "_")
        both = {name, name.removeprefix("no_")}  # of a switch
        having = [algo for algo, own in names.items() if both & own.keys()]
        if arg.startswith("--") and having and kind.name not in having:
            raise ValueError(
                f"{kind.name} has no setting {arg.split('=')[0]}: leave it out, or choose an --algo "
                f"that has it ({', '.join(having)})"
            )


def leave_if_stopped(run: Path) -> None:
    """End with status 130 if Ctrl-C or SIGTERM stopped the training: a script must not go on."""
    if not api.finished(run):
        raise SystemExit(STOPPED_STATUS)
