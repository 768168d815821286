"""Recorded episodes, and the file that keeps them: a NumPy archive that anybody can open.

`evaluate` writes the worst episodes of a policy to `worst.npz`. The archive holds the arrays of
episode i under `i/qpos`, `i/cost` and so on, and a JSON text, `facts`, that says where they are from.
It is read as data that anybody may have written: names, sizes and types are checked.
"""

from __future__ import annotations

import dataclasses
import io
import json
import re
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from statewise.runs.files import read_bytes, write_atomically
from statewise.runs.shapes import check, parse_json

FORMAT = 1
WORST_FILE = "worst.npz"
_MOST_BYTES = 2**28
_MOST_EPISODES = 1000
_STATES = {"qpos": 2, "mocap_pos": 3, "mocap_quat": 3, "draws": 2}
"""Arrays with a row for every state, from the first to the last, and their dimensions."""
_STEPS = {"reward": 1, "cost": 2, "clearance": 2, "value": 2}
"""Arrays with a row for every step."""


class RecordingError(ValueError):
    """A file of recorded episodes cannot be used."""


@dataclass(frozen=True, eq=False)
class Recording:
    """One episode of T steps. All arrays are float32."""

    qpos: np.ndarray
    """[T + 1, nq] the states, from the first to the last. An environment that is not drawn has nq = 0."""
    mocap_pos: np.ndarray
    """[T + 1, k, 3]"""
    mocap_quat: np.ndarray
    """[T + 1, k, 4]"""
    draws: np.ndarray
    """[T + 1, d] the random numbers of tasks and constraints, which stay the same"""
    objects: Mapping[str, np.ndarray]
    """[T + 1, N, 3] for each kind of object"""
    reward: np.ndarray
    """[T]"""
    cost: np.ndarray
    """[T, m] the true costs"""
    clearance: np.ndarray
    """[T, m]"""
    value: np.ndarray
    """[T, m] what the cost critic expected before each step, or [T, 0] without a cost critic"""
    ending: str
    worst_of: tuple[str, ...] = ()
    """The constraints that this is one of the worst episodes of"""
    rank: int = 0
    """0 for the worst one"""
    world: int = 0
    """The world that it ran in"""

    @property
    def steps(self) -> int:
        return len(self.reward)


@dataclass(frozen=True)
class Facts:
    """Where recorded episodes are from."""

    suite: str
    algo: str
    policy: str
    """SHA-256 of the policy"""
    episodes: int
    """Among how many episodes these are the worst"""
    seed: int
    sampled: bool
    cost_names: tuple[str, ...]
    clearance_units: tuple[str, ...]
    control_dt: float
    value_name: str
    """What the cost critic predicts: "D", "C", or nothing"""


_FACTS = {
    "suite": str, "algo": str, "policy": str, "episodes": int, "seed": int, "sampled": bool,
    "cost_names": list[str], "clearance_units": list[str], "control_dt": float, "value_name": str,
}  # fmt: skip
_EPISODE = {"ending": str, "worst_of": list[str], "rank": int, "world": int}


def save_recordings(path: Path, recordings: Sequence[Recording], facts: Facts) -> None:
    """Write recorded episodes. A crash at any point leaves the old file."""
    arrays: dict[str, np.ndarray] = {}
    listed = []
    for i, one in enumerate(recordings):
        named = {name: getattr(one, name) for name in (*_STATES, *_STEPS)}
        named |= {f"objects/{kind}": array for kind, array in one.objects.items()}
        arrays |= {f"{i}/{name}": array.astype(np.float32) for name, array in named.items()}
        listed.append({name: getattr(one, name) for name in _EPISODE})
    header = {"format": FORMAT, "facts": dataclasses.asdict(facts), "episodes": listed}
    arrays["facts"] = np.frombuffer(json.dumps(header).encode(), dtype=np.uint8)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, allow_pickle=False, **arrays)
    write_atomically(path, buffer.getvalue())


def load_recordings(path: Path) -> tuple[list[Recording], Facts]:
    """Read what `save_recordings` wrote; RecordingError says what is wrong with it."""
    try:
        content = read_bytes(path, _MOST_BYTES)
        header, arrays = _unpack(content)
        facts, episodes = _facts(header), header["episodes"]
        check(episodes, [_EPISODE], "episodes")
        if len(episodes) > _MOST_EPISODES:
            raise RecordingError(f"it lists {len(episodes)} episodes")
        return [_recording(i, one, arrays, facts) for i, one in enumerate(episodes)], facts
    except (ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile) as error:
        reason = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        raise RecordingError(
            f"{path} holds no recorded episodes that can be read ({reason}): evaluate the run again"
        ) from None


def _unpack(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with zipfile.ZipFile(io.BytesIO(content)) as parts:
        if sum(part.file_size for part in parts.infolist()) > _MOST_BYTES:
            raise RecordingError("it would unpack to too many bytes")
    with np.load(io.BytesIO(content), allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files}
    text = arrays.pop("facts")
    if text.dtype != np.uint8 or text.ndim != 1:
        raise RecordingError("its facts are no text")
    header = parse_json(text.tobytes())
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise RecordingError(f"it is not of format {FORMAT}")
    for name, array in arrays.items():
        if array.dtype != np.float32 or not np.isfinite(array).all():
            raise RecordingError(f"{name} is not an array of finite float32 numbers")
    return header, arrays


def _facts(header: Mapping[str, Any]) -> Facts:
    given = header["facts"]
    check(given, _FACTS, "facts")
    texts = {name: tuple(given[name]) for name in ("cost_names", "clearance_units")}
    facts = Facts(**{name: given[name] for name in _FACTS} | texts)
    if not 0 < facts.control_dt < 100 or len(facts.cost_names) != len(facts.clearance_units):
        raise RecordingError("its time step or its constraints are wrong")
    return facts


def _recording(i: int, listed: Any, arrays: Mapping[str, np.ndarray], facts: Facts) -> Recording:
    """Episode i, its shapes checked against each other."""
    steps, m = len(arrays[f"{i}/reward"]), len(facts.cost_names)
    rows = {**dict.fromkeys(_STATES, steps + 1), **dict.fromkeys(_STEPS, steps)}
    named: dict[str, Any] = {}
    for name, dims in (_STATES | _STEPS).items():
        array = named[name] = arrays[f"{i}/{name}"]
        if array.ndim != dims or len(array) != rows[name] or steps == 0:
            raise RecordingError(f"{i}/{name} has shape {array.shape}")
    objects = {}
    for key, array in arrays.items():
        match = re.fullmatch(rf"{i}/objects/([\w-]+)", key)
        if match:
            if array.ndim != 3 or len(array) != steps + 1 or array.shape[2] != 3:
                raise RecordingError(f"{key} has shape {array.shape}")
            objects[match[1]] = array
    pos, quat, value = named["mocap_pos"], named["mocap_quat"], named["value"]
    if pos.shape[2] != 3 or quat.shape != (*pos.shape[:2], 4):
        raise RecordingError(f"{i}/mocap_pos and {i}/mocap_quat do not fit each other")
    wrong = named["cost"].shape[1] != m or named["clearance"].shape[1] != m
    if wrong or value.shape[1] not in (0, m):
        raise RecordingError(f"episode {i} has not {m} constraints")
    if set(listed["worst_of"]) - {*facts.cost_names} or not listed["worst_of"]:
        raise RecordingError(f"episode {i} is of no constraint")
    texts = {name: listed[name] for name in _EPISODE} | {"worst_of": tuple(listed["worst_of"])}
    return Recording(**named, objects=objects, **texts)
