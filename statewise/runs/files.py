"""Files that are whole or not there, and files that are read without trust in what they are."""

from __future__ import annotations

import errno
import json
import math
import os
import stat
import uuid
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS)
"""What a file system without hard links answers."""
_MOST_BYTES = 4 * 2**30
"""Largest file that is read."""


def read_bytes(path: Path, most: int = _MOST_BYTES) -> bytes:
    """The content of a regular file of limited size; ValueError for a device, a pipe or a huge one.

    A pipe would be waited for, a device such as /dev/zero read for ever.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path} has {size:,} bytes, more than the {most:,} that are read")
        return file.read()


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file to read; ValueError for a device, a pipe or a folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError(f"{path} is not a regular file")
    return open(descriptor, "rb")


def as_json(content: Any, indent: int | None = 1, **more: Any) -> bytes:
    """JSON as a text file holds it. It ends in a line break."""
    separators = (",", ":") if indent is None else None
    return (json.dumps(content, indent=indent, separators=separators, **more) + "\n").encode()


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content in one go. A crash at any point leaves the old file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _write_beside(path, content)
    try:
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a file that is whole or not there; FileExistsError if there is one already."""
    beside = _write_beside(path, content)
    try:
        try:
            os.link(beside, path)  # which, unlike a rename, replaces nothing
        except OSError as error:
            if isinstance(error, FileNotFoundError) and path.exists():
                raise FileExistsError(f"{path} exists") from None  # whose writer has tidied up
            if error.errno not in _NO_LINKS:
                raise
            path.touch(exist_ok=False)  # the name is ours now
            os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _sync_folder(path.parent)


def open_to_append(path: Path) -> IO[bytes]:
    """Open a file to append to, or make it. A link is not followed."""
    return open(_open_own(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT), "ab")


def cut(path: Path, size: int) -> None:
    """Cut a file to its first bytes. A link is not followed."""
    descriptor = _open_own(path, os.O_WRONLY)
    try:
        if os.fstat(descriptor).st_size > size:
            os.ftruncate(descriptor, size)
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _open_own(path: Path, flags: int) -> int:
    """Open a file of ours to write. A link is refused: it would lead elsewhere."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ValueError(
                f"{path} is a link: runs are written to their own files only"
            ) from None
        raise


def _sync_folder(path: Path) -> None:
    """Have the system write down which files a folder holds, so that a rename survives a crash."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove what writers that were killed left beside their files."""
    for left in path.glob("*.partial"):
        if left.is_file() and not left.is_symlink():
            left.unlink(missing_ok=True)


def short(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """For JSON: as many significant digits as a curve can show; None where not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _write_beside(path: Path, content: bytes) -> Path:
    """Write and flush a new file with a name of its own next to another."""
    beside = path.with_name(f"{path.name}.{uuid.uuid4().hex}.partial")
    try:
        with open(beside, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    return beside
