"""Write files so that a crash leaves no half of one, and read files that may be anything."""

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
    """Return the content of a regular file. ValueError for a device, a pipe or a very large file.

    Reading a pipe could wait for ever, and a device such as /dev/zero has no end.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > most:
            raise ValueError(f"{path} has {size:,} bytes, more than the {most:,} that are read")
        return file.read()


def open_regular(path: Path) -> IO[bytes]:
    """Open a regular file for reading. ValueError for a device, a pipe or a folder."""
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
    """Replace a file in one step. If the process dies on the way, the old file is still there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = _write_beside(path, content)
    try:
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


def write_new(path: Path, content: bytes) -> None:
    """Write a new file in one step. FileExistsError if there is one already."""
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
    """Open a file for appending, and create it if needed. A link is not followed."""
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
    """Open a file of a run for writing. A link is refused, because it may lead out of the run folder."""
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EMLINK):
            raise ValueError(
                f"{path} is a link: runs are written to their own files only"
            ) from None
        raise


def _sync_folder(path: Path) -> None:
    """Flush a folder to the disk, so that a rename survives a crash of the machine."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # a file system that cannot
            raise
    finally:
        os.close(descriptor)


def remove_leftovers(path: Path) -> None:
    """Remove temporary files that killed processes left behind."""
    for left in path.glob("*.partial"):
        if left.is_file() and not left.is_symlink():
            left.unlink(missing_ok=True)


def short(values: Iterable[float], digits: int = 5) -> list[float | None]:
    """For JSON: as many significant digits as a curve can show; None where not finite."""
    return [float(f"{v:.{digits}g}") if math.isfinite(v) else None for v in values]


def _write_beside(path: Path, content: bytes) -> Path:
    """Write and flush a temporary file next to another file."""
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
