"""Promises of the settings mechanism: whatever they come from, settings are typed, checked, named."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from statewise import settings
from statewise.settings import number, option


@dataclass(frozen=True)
class Example:
    """Settings of an example."""

    steps: int = number(10, least=0, most=10**9)
    """How many.

    More take longer."""
    rate: float = number(0.5, above=0.0, most=1.0)
    """How fast."""
    cap: float = math.inf
    """How much at most."""
    widths: tuple[int, ...] = number((64, 64), least=1)
    """How wide."""
    names: tuple[str, ...] = option((), flag="name", metavar="NAME")
    """Who."""
    mode: Literal["slow", "fast"] = "fast"
    """How."""
    loud: bool = False
    """Whether one hears it."""
    where: Path | None = None
    """Where."""

    def __post_init__(self) -> None:
        settings.check(self)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [("6M", 6_000_000), ("1e6", 1_000_000), ("30k", 30_000), ("1_000", 1000), ("7", 7)],
)
def test_numbers_are_read_as_people_write_them(text: str, wanted: int) -> None:
    assert settings.parse(Example, {"steps": text}).steps == wanted


@pytest.mark.parametrize("given", ["64,32", "64 32", ["64", "32"], ["64,32"], (64, 32)])
def test_several_numbers_may_be_given_in_any_form(given: Any) -> None:
    assert settings.parse(Example, {"widths": given}).widths == (64, 32)


def test_what_goes_to_json_comes_back_the_same() -> None:
    import json

    made = Example(steps=3, widths=(8,), names=("a", "b"), where=Path("x"), mode="slow", loud=True)
    written = json.loads(json.dumps(settings.to_json(made), allow_nan=False))
    assert written["cap"] == "inf"
    assert settings.parse(Example, written, text=False) == made


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"stps": 3}, "unknown setting 'stps'. Did you mean steps?"),
        ({"steps": "many"}, "steps is 'many': give a whole number"),
        ({"steps": 1.5}, "steps is 1.5: give a whole number"),
        ({"steps": True}, "steps is True: give a whole number"),
        ({"steps": -1}, "steps is -1: give a number from 0 to 1000000000"),
        ({"rate": 0}, "rate is 0.0: give a number, above 0, at most 1"),
        ({"rate": math.nan}, "rate is nan: give a number, above 0, at most 1"),
        ({"widths": (0,)}, "widths is 0: give a number, 1 or more"),
        ({"names": (5,)}, "names is (5,): give a string, or several"),
        ({"mode": "medium"}, "mode is 'medium': give one of slow, fast"),
        ({"loud": "maybe"}, "loud is 'maybe': give True or False"),
    ],
)
def test_a_wrong_value_is_told_with_its_name_and_what_to_give(
    given: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as caught:
        settings.parse(Example, given)
    assert str(caught.value) == message


def test_settings_made_directly_are_checked_as_well() -> None:
    with pytest.raises(ValueError, match=r"rate is 2.0: give"):
        Example(rate=2.0)
    with pytest.raises(ValueError, match=r"widths is .*: give a whole number, or several"):
        Example(widths=[8])  # type: ignore[arg-type]


def test_python_values_are_not_read_from_text() -> None:
    with pytest.raises(ValueError, match="steps is '6M': give a whole number"):
        settings.parse(Example, {"steps": "6M"}, text=False)


def test_a_command_line_gives_only_what_was_said() -> None:
    made = settings.cli(Example, ["--steps", "6M", "--widths", "8", "16", "--name", "a,b", "c",
                                  "--loud", "--where", "x/y", "--cap=-inf"])  # fmt: skip
    assert made == Example(
        6_000_000, 0.5, -math.inf, (8, 16), ("a,b", "c"), "fast", True, Path("x/y")
    )


def test_the_docstring_below_a_field_is_its_help() -> None:
    docs = settings.field_docs(Example)
    assert docs["steps"] == "How many. More take longer."
    assert docs.keys() == settings.hints_of(Example).keys()


def test_every_setting_of_every_algorithm_is_explained() -> None:
    from statewise.algos import ALGORITHMS
    from statewise.training.config import TrainSettings

    for kind in (TrainSettings, *(a.settings_class for a in ALGORITHMS.values())):
        assert settings.field_docs(kind).keys() == settings.hints_of(kind).keys(), kind


def test_differences_name_what_differs_and_both_values() -> None:
    assert settings.differences({"a": 1, "b": 2}, {"a": 1, "b": 3, "c": 4}) == {
        "b": (2, 3),
        "c": (None, 4),
    }
