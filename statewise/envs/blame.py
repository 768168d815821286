"""Names the task or the constraint in an error that its own code raises, and the line of that code."""

from __future__ import annotations

from types import TracebackType

import torch

from statewise.envs.tasks.base import Task
from statewise.envs.terms import Term
from statewise.envs.world import MissingSensor
from statewise.plugins import where


class TermError(ValueError):
    """A method of a task or of a constraint raised an error."""


_NAMED = (TermError, torch.OutOfMemoryError, torch.AcceleratorError)
"""Errors that say enough as they are."""


class blamed:
    """Turns an error that leaves a `with` block into one that names a term, its method and the line.

    The line is that of the user's code.
    """

    __slots__ = ("_method", "_suite", "_term")

    def __init__(self, term: Term | str, method: str, suite: str) -> None:
        """term: or its label, such as "the task Park", where it is not made yet."""
        self._term, self._method, self._suite = term, method, suite

    def __enter__(self) -> None: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if not isinstance(error, Exception) or isinstance(error, _NAMED):
            return
        name = (self._term if isinstance(self._term, str) else self._term.kind).split()[-1]
        if isinstance(error, ValueError) and name in str(error):
            return
        if isinstance(error, MissingSensor):
            raise MissingSensor(f"{name} reads a sensor that is not there: {error}") from error
        raise TermError(
            f"{label_of(self._term, self._suite)}: `{self._method}` raised {where(error)}"
        ) from error


def label_of(term: Term | str, suite: str) -> str:
    """What messages call a term: `the constraint Speed of Point-Speed-1`."""
    if isinstance(term, str):
        return f"{term} of {suite}"
    return f"the {'task' if isinstance(term, Task) else 'constraint'} {term.kind} of {suite}"
