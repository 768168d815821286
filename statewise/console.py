"""The terminal: the only place where text leaves for it. No name can style the output or steer it."""

from __future__ import annotations

import logging
import re
import sys
from typing import IO, Any

from rich.console import Console
from rich.text import Text

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]"
)
"""Characters that move the cursor, change colours, reverse the text or cannot be encoded."""


def printable(text: str) -> str:
    """Return a text whose control characters are written as escapes, such as `\\x1b`."""
    return _CONTROL.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class PlainConsole(Console):
    """A console that takes every string literally: `[red]` is five characters.

    Colours are given as `rich.text.Text` by `styled`.
    """

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)


def console(
    stderr: bool = False, quiet: bool = False, width: int = 120, file: IO[str] | None = None
) -> Console:
    """Return a console. Its tables keep their columns, at `width`, when the output is no terminal."""
    options: dict[str, Any] = {
        "stderr": stderr, "quiet": quiet, "file": file, "markup": False, "emoji": False,
        "highlight": False,
    }  # fmt: skip
    found = PlainConsole(**options)
    return found if found.is_terminal else PlainConsole(width=width, **options)


def styled(text: str, style: str) -> Text:
    """Return a text in a colour, or bold, to give to a console."""
    return Text(printable(text), style=style)


def say(text: str, error: bool = False) -> None:
    """Print a line as it is, without wrapping it."""
    print(printable(text), file=sys.stderr if error else sys.stdout)


class _TerminalLog(logging.Handler):
    """Prints warnings to the standard error of the moment."""

    def emit(self, record: logging.LogRecord) -> None:
        say(self.format(record), error=True)


def log_to_terminal() -> None:
    """Have the warnings of this package printed, with names in them that cannot steer the terminal."""
    log = logging.getLogger("statewise")
    if not log.hasHandlers():
        log.addHandler(_TerminalLog(logging.WARNING))
