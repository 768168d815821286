"""Tasks and constraints by name, with parameters that a suite's name gives."""

from __future__ import annotations

import inspect
import math
import re
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from statewise.settings import Range, is_number_text, unknown

T = TypeVar("T")
_WHOLE, _POSITIVE = Range(least=1, most=1000), Range(above=0.0, finite=True)


@dataclass(frozen=True)
class Parameter:
    """A number in the name of a suite."""

    name: str
    whole: bool
    """A whole number, such as a count"""
    allowed: Range
    required: bool

    def read(self, text: str, owner: str) -> float:
        """The number that a text stands for. Raises ValueError with the range."""
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if self.whole and not (text.isascii() and text.lstrip("-").isdigit()):
            value = math.nan
        if value not in self.allowed:
            asked = str(self.allowed).replace("a number", "a whole number") if self.whole else None
            raise ValueError(f"the {self.name} of {owner} is {text}: give {asked or self.allowed}")
        return int(value) if self.whole else value


@dataclass(frozen=True)
class Entry(Generic[T]):
    """A registered task or constraint."""

    kind: str
    about: str
    """The first sentence of its docstring."""
    parameters: tuple[Parameter, ...]
    make: Callable[..., T]
    """Makes one from a robot and the parameters."""

    @property
    def usage(self) -> str:
        """How it stands in a suite's name: `Hazard-COUNT`."""
        parts = [p.name.upper() if p.required else f"[{p.name.upper()}]" for p in self.parameters]
        return "-".join([self.kind, *parts])


class Registry(Generic[T]):
    """Entries of one sort, in the order of their registration."""

    taken: typing.ClassVar[dict[str, str]] = {}
    """Every name of any sort, as tasks and constraints stand side by side in suites' names."""

    def __init__(self, sort: str) -> None:
        self.sort = sort
        self.entries: dict[str, Entry[T]] = {}

    def add(
        self, kind: str, made: Callable[..., Any], make: Callable[..., T], replace: bool
    ) -> None:
        """Register under a name; `made` has the parameters and the docstring."""
        if not isinstance(kind, str) or not re.fullmatch(r"[A-Za-z0-9_]*[A-Za-z_]\w*", kind):
            raise ValueError(
                f"{self.sort} name {kind!r} must be letters, digits and '_': it is part of a suite's name"
            )
        if is_number_text(kind):
            raise ValueError(f"{self.sort} name {kind!r} reads as a number: choose another")
        same = next((name for name in self.taken if name.lower() == kind.lower()), kind)
        if same != kind:
            raise ValueError(
                f"{self.sort} name {kind!r} differs from the {self.taken[same]} {same!r} in capitals "
                f"only: choose another"
            )
        other = self.taken.get(kind)
        if other is not None and (other != self.sort or not replace):
            hint = "; pass replace=True to replace it" if other == self.sort else ""
            raise ValueError(f"the name {kind!r} is taken by a {other}{hint}: choose another")
        about = " ".join((inspect.getdoc(made) or "").split("\n\n")[0].split())
        self.entries[kind] = Entry(kind, about, _parameters(made, kind), make)
        self.taken[kind] = self.sort

    def get(self, kind: str) -> Entry[T]:
        if kind not in self.entries:
            raise ValueError(unknown(self.sort, kind, self.entries))
        return self.entries[kind]


def _parameters(made: Callable[..., Any], kind: str) -> tuple[Parameter, ...]:
    """The parameters after the first one: the world of a function, the robot of a class."""
    call = made.__init__ if isinstance(made, type) else made  # type: ignore[misc]
    given = list(inspect.signature(made).parameters.values())
    try:
        hints = typing.get_type_hints(call, include_extras=True)
    except NameError as error:
        raise TypeError(
            f"{kind}: an annotation cannot be read: {error}. Import the name where the module begins"
        ) from error
    if not given:
        wanted = "__init__ takes (self, robot, ...)" if isinstance(made, type) else (
            "a function takes (world, ...)"
        )  # fmt: skip
        raise TypeError(f"{kind}: its first parameter is missing; {wanted}")
    found = []
    for parameter in given[1:]:
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            raise TypeError(
                f"{kind}: the parameter {parameter.name!r} cannot be given by its place: write it as "
                f"a plain one, without * or /"
            )
        hint = hints.get(parameter.name)
        extra = getattr(hint, "__metadata__", ())
        base = typing.get_args(hint)[0] if extra else hint
        if base not in (int, float):
            raise TypeError(
                f"{kind}: the parameter {parameter.name!r} has the type {base}: annotate it as int or "
                f"float, as it is a number in the name of a suite"
            )
        ranges = [e for e in extra if isinstance(e, Range)]
        default = _WHOLE if base is int else _POSITIVE
        required = parameter.default is parameter.empty
        allowed = ranges[0] if ranges else default
        found.append(Parameter(parameter.name, base is int, allowed, required))
    return tuple(found)
