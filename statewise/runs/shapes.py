"""Read JSON that may be damaged, and check its form."""

from __future__ import annotations

import json
import sys
import typing
from pathlib import Path
from typing import Any

from statewise.runs.files import read_bytes

_MOST_JSON = 64 * 2**20
"""Largest JSON file that is read, in bytes."""
_WORDS = {int: "a count", float: "a number", list: "a list", dict: "an object", str: "text",
          bool: "true or false"}  # fmt: skip


def check(value: Any, shape: Any, what: str) -> None:
    """Raise ValueError unless a JSON value has a shape.

    shape: `int` for a count, `float` for a finite number, another type, `list[T]`, `dict[str, T]` or
    `T | None`, a dictionary of the fields that an object must have, or a list of its items' shape.
    """
    kind, inner = typing.get_origin(shape) or shape, typing.get_args(shape)
    if isinstance(shape, dict | list):
        kind, inner = type(shape), (shape[0],) if isinstance(shape, list) else ()
    if kind not in _WORDS:  # a union with None
        return check(value, inner[0], what) if value is not None else None
    fits = is_number(value) if kind is float else isinstance(value, kind)
    if kind is int:
        fits = fits and not isinstance(value, bool) and 0 <= value <= sys.float_info.max
    if not fits:
        raise ValueError(f"{what} is {value!r:.40}, not {_WORDS[kind]}")
    if isinstance(shape, dict):
        if missing := sorted(set(shape) - set(value)):
            raise ValueError(f"{what} lacks {', '.join(missing)}")
        for name, field in shape.items():
            check(value[name], field, f"{name} in {what}")
    for item in (value.values() if kind is dict else value) if inner else ():
        check(item, inner[-1], what)


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float can hold."""
    return isinstance(value, int | float) and abs(value) <= sys.float_info.max


def parse_json(text: bytes) -> Any:
    """What the JSON says. Raises ValueError if it is damaged."""
    try:
        return json.loads(text.decode())
    except RecursionError:
        raise ValueError("nested too deeply") from None


def read_json(path: Path) -> dict[str, Any] | None:
    """The JSON object in a file, or None if there is none."""
    try:
        content = parse_json(read_bytes(path, _MOST_JSON)) if path.is_file() else None
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
