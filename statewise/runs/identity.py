"""Which run, settings and policy a file belongs to: ids and hashes."""

from __future__ import annotations

import hashlib
import json
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from statewise.runs.differences import INCIDENTAL
from statewise.runs.epochs import earlier_lengths

_ACTING = ("algo", "epoch", "modules", "scaler", "extra")
"""The parts of an algorithm's state that decide its actions."""


@dataclass(frozen=True)
class PolicyId:
    """Where a policy came from, and what it is."""

    run: str
    """The id of the run"""
    checkpoint: str
    """The name of the checkpoint file"""
    epoch: int
    sha256: str
    """Hash of everything that decides its actions"""


def new_run_id() -> str:
    """Return a random id for a new run."""
    return uuid.uuid4().hex


def id_of(config: Mapping[str, Any]) -> str:
    """Return the run id in a `config.json`. ValueError if it has none."""
    found = config.get("run")
    if not isinstance(found, str) or not found:
        raise ValueError(f"config.json: run is {found!r:.40}, not the id of a run")
    return found


def settings_sha256(config: Mapping[str, Any]) -> str:
    """Return the hash of a `config.json`, without the settings that do not change what is learned.

    `imports` is left out too: a plug-in may have moved to another module.
    """
    plain = {name: value for name, value in config.items() if name != "extended"}
    free = INCIDENTAL | {"imports"}
    plain["train"] = {name: value for name, value in config["train"].items() if name not in free}
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()


def accepted_settings(config: Mapping[str, Any]) -> list[str]:
    """Return the settings hashes that checkpoints of a run may carry: the present one first.

    Extending a run changes its `steps`. Its `extended` field lists the earlier values.
    """
    earlier = [steps for steps, _ in earlier_lengths(config)]
    versions = [config, *({**config, "train": {**config["train"], "steps": n}} for n in earlier)]
    return [settings_sha256(version) for version in versions]


def policy_sha256(algo_state: Mapping[str, Any], settings: Mapping[str, Any], epochs: int) -> str:
    """Return the hash of a policy, from the `algo` part of a checkpoint.

    settings: of the algorithm, as in `config.json`. A safety layer acts by its limit and its slack.
    epochs: of the whole run. Layers and noise depend on the share of them that is done.

    It does not cover critics' optimisers or random generators. The same policy has the same hash on
    every device.
    """
    digest = hashlib.sha256()
    acting = {name: algo_state[name] for name in _ACTING}
    plain = json.dumps(dict(settings), sort_keys=True)  # lists and tuples read the same
    _feed(digest, acting | {"settings": plain, "epochs": epochs})
    return digest.hexdigest()


def _feed(digest: Any, value: Any) -> None:
    """Add a value to a hash, with its type and length, so that no two values read the same."""
    if isinstance(value, Mapping):
        digest.update(f"map {len(value)}\n".encode())
        for name in sorted(value):
            digest.update(f"key {name!r}\n".encode())
            _feed(digest, value[name])
    elif isinstance(value, torch.Tensor):
        plain = value.detach().cpu().contiguous()
        digest.update(f"tensor {plain.dtype} {tuple(plain.shape)}\n".encode())
        digest.update(plain.reshape(-1).view(torch.uint8).numpy().tobytes())
    elif isinstance(value, list | tuple):
        digest.update(f"list {len(value)}\n".encode())
        for item in value:
            _feed(digest, item)
    else:
        digest.update(f"{type(value).__name__} {value!r}\n".encode())
