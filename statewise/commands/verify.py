"""`statewise verify`: check that files are complete and belong together."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rich.table import Table

from statewise.console import console, say, styled
from statewise.plugins import PluginOptions
from statewise.runs.reader import CONFIG, SUMMARY
from statewise.runs.verify import Check
from statewise.settings import option

_DAMAGED_STATUS = 1
"""Exit status if something is not as it was written."""


@dataclass(frozen=True)
class Kind:
    """A kind of thing that can be verified."""

    name: str
    recognise: Callable[[Path], bool]
    verifier: str
    """`module:function`, called with the path, and with the run if `takes_run` is set. It returns a
    list of `Check`s."""
    takes_run: bool = False


_KINDS = (
    Kind("certificate", lambda path: path.suffix == ".json" and path.is_file(),
         "deploy.verify:verify_certificate", takes_run=True),
    Kind("bundle", lambda path: (path / "policy.json").is_file(), "deploy.export:verify_files"),
    Kind("export", lambda path: (path / SUMMARY).is_file(), "runs.verify:verify_export"),
    Kind("run", lambda path: (path / CONFIG).exists(), "runs.verify:verify_run"),
)  # fmt: skip
"""The first kind that recognises a path verifies it."""


@dataclass(frozen=True, kw_only=True)
class Verify(PluginOptions):
    """Check that a run folder, an export or a certificate is whole and that its parts belong together."""

    path: Path = option(positional=True, metavar="PATH")
    """What to check."""
    run_folder: Path | None = option(None, positional=True, metavar="RUN")
    """The run that it belongs to, where it is not a run itself."""

    def run(self) -> None:
        kind = next((kind for kind in _KINDS if kind.recognise(self.path)), None)
        if kind is None:
            there = (
                "there is no such file or folder"
                if not self.path.exists()
                else "it is none of these"
            )
            names = " or ".join(kind.name for kind in _KINDS)
            raise ValueError(f"verify checks a {names}. {self.path}: {there}")
        if (self.run_folder is None) == kind.takes_run:
            need = "needs the run folder too" if kind.takes_run else "is checked alone"
            raise ValueError(f"{self.path} is a {kind.name}, which {need}")
        module, _, name = kind.verifier.partition(":")
        verifier = getattr(importlib.import_module(f"statewise.{module}"), name)
        checks: list[Check]
        if self.run_folder is None:
            checks = verifier(self.path)
        else:
            checks = verifier(self.path, self.run_folder, self.imports, self.trust)
        console().print(_table(checks))
        bad = [check for check in checks if not check.good]
        say(f"{self.path}: {f'{len(bad)} of {len(checks)} checks failed' if bad else 'verified'}")
        if bad:
            raise SystemExit(_DAMAGED_STATUS)


def _table(checks: list[Check]) -> Table:
    table = Table(show_header=False)
    for check in checks:
        verdict = styled("good", "green") if check.good else styled("bad", "red")
        table.add_row(verdict, check.what, check.found)
    return table
