"""Do the settings of two runs differ? Training, grids, reports and plots all ask here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from statewise import settings

INCIDENTAL = frozenset(
    (
        "out",
        "label",
        "threads",
        "judge",
        "checkpoint_every",
        "keep_checkpoints",
        "tensorboard",
        "wandb",
    )
)
"""Settings that do not change what is learned (threads change the last digits only). Runs that differ
in nothing else are the same experiment."""


def deciding(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a `config.json` that affect training, without the suite and the seed.

    Older runs have no `final_batch`. All their epochs have the same length.
    """
    named = config["train"] | config["algorithm"]
    if "steps_per_epoch" in named:
        named.setdefault("final_batch", 1)
    return {k: v for k, v in named.items() if k not in INCIDENTAL | {"suite", "seed"}}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which two configs differ, with both values. Incidental ones are ignored."""
    return settings.differences(deciding(one), deciding(other))


def differing(kinds: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the names of the settings that differ between these results of `deciding`."""
    found = [name for kind in kinds[1:] for name in settings.differences(kinds[0], kind)]
    return list(dict.fromkeys(found))


def suffix(values: Mapping[str, Any], names: Sequence[str]) -> str:
    """Return what tells runs of one name but different settings apart, such as ` · target_kl=0.5`."""
    return " · " + settings_text({name: values.get(name) for name in names}) if names else ""


def settings_text(values: Mapping[str, Any]) -> str:
    """Settings as people read them: `hidden=64,64, target_kl=0.5`."""
    return ", ".join(f"{name}={setting_text(value)}" for name, value in values.items())


def setting_text(value: Any) -> str:
    return ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
