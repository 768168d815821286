"""Files that are only appended to, with a running hash of their content."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import IO, Any

from statewise.runs import files
from statewise.runs.shapes import check

Mark = dict[str, Any]
"""How far a journal had come: `lines`, `bytes` and the `sha256` of those bytes."""

MARK = {"lines": int, "bytes": int, "sha256": str}
_EMPTY: Mark = {"lines": 0, "bytes": 0, "sha256": hashlib.sha256().hexdigest()}
_CHUNK = 2**20


class JournalError(ValueError):
    """A file does not begin with what was written to it."""


class Journal:
    """A text file to append to. The hash is updated with each append."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._file: IO[bytes] | None = None
        self._lines = self._bytes = 0
        self._digest = hashlib.sha256()

    def append(self, text: str) -> None:
        """Append whole lines."""
        content = text.encode()
        if self._file is None:
            self._file = files.open_to_append(self.path)
        self._file.write(content)
        self._file.flush()
        self._digest.update(content)
        self._lines += content.count(b"\n")
        self._bytes += len(content)

    @property
    def empty(self) -> bool:
        return self._bytes == 0

    def mark(self) -> Mark:
        """Return the length and the hash of the file."""
        return {"lines": self._lines, "bytes": self._bytes, "sha256": self._digest.hexdigest()}

    def sync(self) -> None:
        """Flush what was appended to the disk."""
        if self._file is not None:
            os.fsync(self._file.fileno())

    def rewind(self, mark: Mark | None) -> None:
        """Check that the file begins as marked, and cut it there. None empties the file."""
        self.close()
        mark = _EMPTY if mark is None else mark
        self._digest = check_marks(self.path, [mark])
        self._lines, self._bytes = mark["lines"], mark["bytes"]
        if self.path.exists():
            files.cut(self.path, self._bytes)

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None


def check_marks(path: Path, marks: Sequence[Mark]) -> Any:
    """Check that a file begins as each mark says, in one pass; return the hash up to the last mark.

    Raises JournalError, naming the file, if it does not.
    """
    digest, done = hashlib.sha256(), 0
    for mark in sorted(marks, key=lambda mark: mark["bytes"]):
        if not mark["bytes"]:
            continue
        if not path.exists():
            raise JournalError(f"{path} is missing: it had {mark['lines']} lines")
        with files.open_regular(path) as file:
            file.seek(done)
            lines = 0
            while done < mark["bytes"]:
                part = file.read(min(_CHUNK, mark["bytes"] - done))
                if not part:
                    raise JournalError(
                        f"{path} is shorter than it was: {mark['lines']} lines were written"
                    )
                digest.update(part)
                done += len(part)
                lines += part.count(b"\n")
        if digest.hexdigest() != mark["sha256"]:
            raise JournalError(
                f"{path} was changed: its first {mark['lines']} lines are not those that were written"
            )
    return digest


def check_mark(mark: Any, where: str) -> None:
    """Raise ValueError unless a value is a mark."""
    check(mark, MARK, where)
