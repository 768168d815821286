"""Files that are whole or not there: written beside, checked by a hash, renamed into place."""

from __future__ import annotations

import hashlib
import io
import os
import re
from pathlib import Path
from typing import Any

import torch

FORMAT = 4
_MAGIC = b"statewise checkpoint "


class CheckpointError(ValueError):
    """A checkpoint cannot be used: truncated, damaged, or of another version."""


def save(path: Path, payload: dict[str, Any]) -> None:
    """Write `payload` (tensors and plain values). A crash at any point leaves the old file."""
    buffer = io.BytesIO()
    torch.save(payload, buffer)
    body = buffer.getvalue()
    header = _MAGIC + f"format {FORMAT} sha256 {hashlib.sha256(body).hexdigest()}\n".encode()
    write_atomically(path, header + body)


def load(path: Path, device: str = "cpu") -> dict[str, Any]:
    """Read what `save` wrote, or raise CheckpointError saying what is wrong with it."""
    content = path.read_bytes()
    header, _, body = content.partition(b"\n")
    match = re.fullmatch(_MAGIC + rb"format (\d+) sha256 ([0-9a-f]{64})", header)
    if match is None:
        raise CheckpointError(f"{path} is not a statewise checkpoint, or its beginning is damaged")
    if int(match[1]) != FORMAT:
        raise CheckpointError(
            f"{path} is of checkpoint format {int(match[1])}, this version reads {FORMAT}: use the "
            f"statewise version that wrote it (see environment.json of the run)"
        )
    if hashlib.sha256(body).hexdigest().encode() != match[2]:
        raise CheckpointError(f"{path} is truncated or damaged: its contents do not match its hash")
    payload: dict[str, Any] = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    return payload


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file by new content in one go."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(path.name + ".partial")
    try:
        with open(beside, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise


def latest(folder: Path) -> list[Path]:
    """The epoch checkpoints of a folder, newest first: by number, since names grow after 99999."""
    found = [p for p in folder.glob("epoch-*.ckpt") if re.fullmatch(r"epoch-\d+", p.stem)]
    return sorted(found, key=epoch_of, reverse=True)


def epoch_of(path: Path) -> int:
    """The epoch after which a checkpoint was written, by its name."""
    return int(path.stem.removeprefix("epoch-"))


def prune(folder: Path, keep: int) -> None:
    """Remove all epoch checkpoints but the newest `keep`."""
    for old in latest(folder)[keep:]:
        old.unlink()
