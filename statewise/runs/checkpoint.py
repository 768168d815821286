"""Checkpoints: a header with a hash, then tensors and plain values. Loading one runs no code."""

from __future__ import annotations

import hashlib
import io
import pickle
import re
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from statewise.runs.files import read_bytes, write_atomically

FORMAT = 5
_MAGIC = b"statewise checkpoint "
UNUSABLE = (
    pickle.UnpicklingError, zipfile.BadZipFile, RuntimeError, ValueError, EOFError, KeyError,
    TypeError, AttributeError, IndexError, OSError, ImportError,
)  # fmt: skip
"""What torch, or whoever loads a state, raises for content that is not what was written."""
BEST_SAFE = "best-safe.ckpt"


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
    try:
        content = read_bytes(path)
    except ValueError as error:
        raise CheckpointError(str(error)) from None
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
    try:
        with zipfile.ZipFile(io.BytesIO(body)) as parts:
            unpacked = sum(part.file_size for part in parts.infolist())
        if unpacked > len(body) + 2**20:  # torch packs without compression
            raise CheckpointError(
                f"{path} would unpack to {unpacked:,} bytes: it is not one of ours"
            )
        payload = torch.load(io.BytesIO(body), map_location=device, weights_only=True)
    except CheckpointError:
        raise
    except UNUSABLE as error:
        raise CheckpointError(f"{path} cannot be read ({type(error).__name__}: {error})") from None
    if not isinstance(payload, dict):
        raise CheckpointError(f"{path} holds a {type(payload).__name__} where a state should be")
    return payload


def check_form(found: Any, like: Any, where: str = "the state", skip: Sequence[str] = ()) -> None:
    """Raise ValueError unless a state has the keys, types and shapes of another.

    Where the other has None or a list, any value is accepted. skip: keys of the outermost mapping that
    are not checked.
    """
    if isinstance(like, dict):
        if not isinstance(found, dict) or found.keys() != like.keys():
            raise ValueError(f"{where} has not the parts {', '.join(map(str, like))}")
        for name in like.keys() - set(skip):
            check_form(found[name], like[name], str(name))
    elif isinstance(like, torch.Tensor):
        if not isinstance(found, torch.Tensor):
            raise ValueError(f"{where} is a {type(found).__name__}, not a tensor")
        if (found.shape, found.dtype) != (like.shape, like.dtype):
            raise ValueError(
                f"{where} is {found.dtype} {tuple(found.shape)}, not {like.dtype} {tuple(like.shape)}"
            )
    elif like is not None and not isinstance(like, list) and type(found) is not type(like):
        raise ValueError(f"{where} is a {type(found).__name__}, not a {type(like).__name__}")


def latest(folder: Path) -> list[Path]:
    """The epoch checkpoints of a folder, newest first: by number, since names grow after 99999."""
    return sorted(filter(is_epoch, folder.glob("epoch-*.ckpt")), key=epoch_of, reverse=True)


def is_epoch(path: Path) -> bool:
    """Whether a file is named as the checkpoint of an epoch."""
    return re.fullmatch(r"epoch-\d{1,9}\.ckpt", path.name) is not None


def epoch_of(path: Path) -> int:
    """The epoch after which a checkpoint was written, by its name."""
    return int(path.stem.removeprefix("epoch-"))


def prune(folder: Path, keep: int) -> None:
    """Remove all epoch checkpoints but the newest `keep`."""
    for old in latest(folder)[keep:]:
        old.unlink()
