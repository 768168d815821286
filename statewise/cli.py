"""The `statewise` command: finds the subcommand, reads its options, runs it, and reports mistakes.

Each subcommand is a dataclass of its options with a `run` method. Its module is imported only when
it is asked for, so that `statewise --help` answers at once.
"""

from __future__ import annotations

import argparse
import importlib
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import Any, NoReturn, Protocol

from statewise import settings
from statewise.console import log_to_terminal, printable
from statewise.extras import MissingPackage
from statewise.version import __version__

COMMANDS = {
    "train": ("commands.train:Train", "Train an algorithm in a suite."),
    "resume": ("commands.resume:Resume", "Continue a run where it stopped, or make it longer."),
    "evaluate": ("commands.evaluate:Evaluate", "Say how good and how safe a trained policy is."),
    "certify": (
        "deploy.certify_command:Certify",
        "Prove or refute a bound on a policy's violations.",
    ),
    "play": ("commands.play:Play", "Watch a policy: as a video, in a window, or as numbers."),
    "replay": ("deploy.replay_command:Replay", "Show a policy's worst episodes in 3D, as a page."),
    "plot": ("commands.report:Plot", "Draw the learning curves of runs."),
    "report": ("commands.report:Report", "Make a web page that compares all runs in some folders."),
    "bench": ("", "Train many runs at once, on this machine or on a Ray cluster."),
    "bench grid": ("bench.command:GridCommand", "Any suites, algorithms, settings and seeds."),
    "bench paper": ("bench.command:Paper", "All of the SCPO paper's suites and algorithms."),
    "bench frontier": ("bench.command:Frontier", "Vary margin and cost limit: return or safety."),
    "bench ablations": ("paper.ablations:Ablations", "The paper's questions, and their figures."),
    "export": ("deploy.export_command:Export", "Write a policy to a folder that runs on a robot."),
    "verify": ("commands.verify:Verify", "Check that a run's files are whole and belong together."),
    "list": ("commands.show:List", "Print the algorithms, suites, robots, constraints or tasks."),
    "demo": ("commands.show:Demo", "Train, evaluate, plot and film a policy in about two minutes."),
}
"""Where each subcommand is defined, and what it does."""
STOPPED_STATUS = 130
"""Exit status after Ctrl-C, as is usual."""


class Command(Protocol):
    """What a subcommand is: its fields are options, `run` does it."""

    def run(self) -> None: ...


class _HelpFormatter(argparse.HelpFormatter):
    """Wraps each paragraph of a description to the width of the terminal."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        paragraphs = [" ".join(part.split()) for part in text.split("\n\n")]
        return "\n\n".join(
            super(_HelpFormatter, self)._fill_text(p, width, indent) for p in paragraphs
        )


class OptionParser(argparse.ArgumentParser):
    """An `ArgumentParser` whose mistakes are ValueErrors of one line that name the closest options."""

    def __init__(self, name: str, description: str, add_help: bool = True) -> None:
        super().__init__(
            prog=f"statewise {name}".strip(),
            description=description,
            add_help=add_help,
            allow_abbrev=False,
            formatter_class=_HelpFormatter,
        )

    def shorten_usage(self) -> None:
        """Show the positional arguments only in the usage line: the options are listed below it."""
        form = self._get_formatter()
        parts = [form._format_args(a, a.dest) for a in self._get_positional_actions()]
        self.usage = " ".join([self.prog, *parts, "[options]"])

    def error(self, message: str) -> NoReturn:
        raise ValueError(f"{message}. `{self.prog} --help` lists the options")

    def read(self, args: Sequence[str]) -> dict[str, Any]:
        """The options that were given, by the names of their fields."""
        dashed = [_with_dashes(arg) for arg in args]
        found, rest = self.parse_known_args(_join_negative_numbers(dashed))
        wrong = next((a.split("=")[0] for a in rest if a.startswith("-")), None)
        if wrong is not None:
            close = settings.closest(wrong, self._option_string_actions)
            hint = f"Did you mean {close}? " if close else ""
            raise ValueError(
                f"unknown option {wrong}. {hint}`{self.prog} --help` lists all options"
            )
        if rest:
            raise ValueError(f"{rest[0]!r} is one argument too many. `{self.prog} --help` helps")
        return vars(found)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status. A wrong input is one line and status 2.

    Ctrl-C is one line and status 130, except where it has a meaning of its own, as in training.
    """
    args = list(sys.argv[1:] if argv is None else argv)
    log_to_terminal()
    try:
        with settings.on_command_line():
            command = read_command(args)
            if command is not None:
                command.run()
    except (ValueError, OSError, RuntimeError, ImportError) as error:
        if not _is_mistake(error):
            raise
        line = printable(" ".join(str(error).split()))
        red, plain = ("\033[1;31m", "\033[0m") if sys.stderr.isatty() else ("", "")
        print(f"{red}error:{plain} {line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
        return STOPPED_STATUS
    return 0


def read_command(args: Sequence[str]) -> Command | None:
    """The subcommand that a command line asks for; None if it asked for help only."""
    first = args[0] if args else "--help"
    if first in ("help", "version"):  # as other programs have it
        first = f"--{first}"
        if len(args) > 1 and first == "--help":
            return read_command([*args[1:], "--help"])
    if first == "--version":
        print(f"statewise {__version__}")
        return None
    if first in ("--help", "-h"):
        print(overview())
        return None
    name, rest = first, list(args[1:])
    if name == "bench":
        if not rest or rest[0] in ("--help", "-h"):
            print(overview("bench"))
            return None
        if rest[0].startswith("-") and "--dry-run" in rest:  # a plan alone is the paper's
            rest = ["paper", *rest]
        if rest[0].startswith("-"):
            raise ValueError(
                f"say which benchmark before the options, as in `statewise bench paper {rest[0]}`: "
                "`statewise bench --help` lists them"
            )
        name, rest = f"bench {rest[0]}", rest[1:]
    if name.startswith("-"):
        raise ValueError(
            f"unknown option {name}. Begin with a command: `statewise --help` lists them"
        )
    if name not in COMMANDS:
        *parents, last = name.split()
        known = [c.split()[-1] for c in COMMANDS if c.split()[:-1] == parents]
        raise ValueError(settings.unknown("command", last, known))
    module, _, kind = COMMANDS[name][0].partition(":")
    owner = getattr(importlib.import_module(f"statewise.{module}"), kind)
    if hasattr(owner, "from_command_line"):  # its options depend on what is given
        special: Command = owner.from_command_line(rest)
        return special
    parser = OptionParser(name, owner.__doc__)
    settings.add_options(parser, owner)
    parser.shorten_usage()
    command: Command = settings.parse(owner, parser.read(rest))
    return command


def overview(parent: str = "") -> str:
    """The help of `statewise`, or of a command with subcommands of its own."""
    start = f"{parent} " if parent else ""
    rows = {
        name.removeprefix(start): about
        for name, (_, about) in COMMANDS.items()
        if name.startswith(start) and " " not in name.removeprefix(start)
    }
    width = max(map(len, [*rows, "--version"])) + 2
    what = (
        COMMANDS[parent][1]
        if parent
        else "Reinforcement learning for robots that must be safe at every step."
    )
    columns = shutil.get_terminal_size().columns
    lines = [f"usage: statewise {start}COMMAND [options]", "", *textwrap.wrap(what, columns), ""]
    options = {"--help": "Print this help.", "--version": f"Print the version ({__version__})."}
    for name, about in (rows if parent else rows | options).items():
        first = f"  {name:<{width}}"
        lines += textwrap.wrap(about, max(columns, 40), initial_indent=first,
                               subsequent_indent=" " * len(first))  # fmt: skip
    last = f"`statewise {start}COMMAND --help` explains one of them."
    return "\n".join([*lines, "", *textwrap.wrap(last, columns)])


def _join_negative_numbers(args: Sequence[str]) -> list[str]:
    """`--option -1e-3` as `--option=-1e-3`: argparse would take such a number for an option."""
    joined: list[str] = []
    for arg in args:
        last = joined[-1] if joined else ""
        negative = arg.startswith("-") and settings.is_number_text(arg)
        if negative and last.startswith("--") and "=" not in last:
            joined[-1] = f"{last}={arg}"
        else:
            joined.append(arg)
    return joined


def _with_dashes(arg: str) -> str:
    """`--cost_limit=1` as `--cost-limit=1`."""
    name, equals, value = arg.partition("=")
    return name.replace("_", "-") + equals + value if arg.startswith("--") else arg


def _is_mistake(error: Exception) -> bool:
    """Whether an error is a wrong input, which is told in a line, and not a fault of the program."""
    if isinstance(error, ValueError | OSError | MissingPackage):
        return True
    from statewise.sim.backend import GpuError
    from statewise.sim.draw import DrawError

    return isinstance(error, GpuError | DrawError)


if __name__ == "__main__":
    sys.exit(main())
