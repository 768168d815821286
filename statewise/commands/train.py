"""`statewise train`: start a run, or one for each of several seeds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from statewise import settings
from statewise.algos import ALGORITHMS, Algorithm, get_algorithm
from statewise.algos.shared_settings import Settings
from statewise.cli import STOPPED_STATUS, OptionParser
from statewise.plugins import import_modules
from statewise.training import api
from statewise.training.config import TrainSettings, parse_run

_SEEDS_HELP = "Train once with each of these seeds, one after another: 0..7, or 0,3,5."
QUIET_HELP = "Print warnings and errors only."


@dataclass(frozen=True)
class Train:
    """A new run: what to train, and with which seeds."""

    train: TrainSettings
    algorithm: Settings
    seeds: str = ""
    quiet: bool = False

    @classmethod
    def from_command_line(cls, args: Sequence[str]) -> Train:
        """With the options of the algorithm that `--algo` names, once plug-ins are imported."""
        first = OptionParser("train", "", add_help=False)
        first.add_argument("--algo", default="scpo")
        first.add_argument("--import", nargs="+", default=(), dest="imports")
        early = first.parse_known_args(args)[0]
        import_modules(early.imports)
        kind = get_algorithm(early.algo)
        _check_own_settings(kind, args)
        parser = OptionParser(
            "train",
            f"Train {kind.name} in a suite. `--algo NAME --help` shows the settings of another\n"
            f"algorithm ({', '.join(ALGORITHMS)}).\n"
            f"`statewise resume RUN` continues a run.",
        )
        settings.add_options(parser, TrainSettings, "what to train")
        settings.add_options(parser, kind.settings_class, f"settings of {kind.name}")
        parser.add_argument("--seeds", default="", metavar="SEEDS", help=_SEEDS_HELP)
        parser.add_argument("--quiet", action="store_true", help=QUIET_HELP)
        parser.shorten_usage()
        given = parser.read(args)
        seeds, quiet = given.pop("seeds"), given.pop("quiet")
        if seeds and "seed" in given:
            raise ValueError(
                f"--seed {given['seed']} and --seeds {seeds} are both given: leave out one"
            )
        return cls(*parse_run(given, text=True), seeds, quiet)

    def run(self) -> None:
        from statewise.bench.grid import parse_seeds

        if self.seeds:
            paths = api.train_seeds(self.train, self.algorithm, parse_seeds(self.seeds), self.quiet)
        else:
            paths = [api.start(self.train, self.algorithm, self.quiet)]
        leave_if_stopped(paths[-1])


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
