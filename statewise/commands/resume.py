"""`statewise resume`: the rest of a run, or more of it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from statewise.commands.train import leave_if_stopped
from statewise.plugins import PluginOptions
from statewise.settings import number, option
from statewise.training import api


@dataclass(frozen=True, kw_only=True)
class Resume(PluginOptions):
    """Continue a run from its last checkpoint. --steps makes it longer, also when it is finished."""

    path: Path = option(positional=True, metavar="RUN")
    """The run folder."""
    steps: int | None = number(None, least=1, most=10**13)
    """Environment steps in all, such as 12M. By default as many as the run was started with."""
    quiet: bool = False
    """Print warnings and errors only."""

    def run(self) -> None:
        run = api.resume(self.path, self.steps, self.quiet, self.imports, self.trust)
        leave_if_stopped(run)
