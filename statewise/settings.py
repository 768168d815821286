"""Settings: frozen dataclasses whose fields carry a default, a range and a docstring.

This module turns a mapping (a command line, keyword arguments, `--set`, `config.json`) into checked
settings, and settings back into JSON. Nothing else parses or checks them.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import difflib
import functools
import inspect
import math
import os
import re
import textwrap
import types
import typing
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from numbers import Real
from pathlib import Path
from typing import Any, Literal, TypeVar

S = TypeVar("S")
_ON_COMMAND_LINE = ContextVar("on_command_line", default=False)
_FLAGS = {"imports": "import"}
"""Settings whose option has another name."""
F = TypeVar("F", bound=Callable[..., Any])

_SUFFIXES = {"k": 1e3, "M": 1e6, "G": 1e9}
_KINDS = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a string",
    Path: "a path",
    os.PathLike: "a path",
    os.PathLike[str]: "a path",
}


@dataclass(frozen=True)
class Range:
    """The numbers that a setting may take. Infinite ones are allowed where no bound forbids them."""

    least: float | None = None
    most: float | None = None
    above: float | None = None
    below: float | None = None
    finite: bool = False

    def __contains__(self, value: float) -> bool:
        return (
            not math.isnan(value)
            and (self.least is None or value >= self.least)
            and (self.most is None or value <= self.most)
            and (self.above is None or value > self.above)
            and (self.below is None or value < self.below)
            and (not self.finite or math.isfinite(value))
        )

    def __str__(self) -> str:
        kind = "a finite number" if self.finite else "a number"
        if self.least is not None and self.most is not None:
            return f"a number from {self.least:.12g} to {self.most:.12g}"
        bounds = {
            "{:g} or more": self.least,
            "above {:g}": self.above,
            "at most {:g}": self.most,
            "below {:g}": self.below,
        }
        return ", ".join([kind, *(k.format(v) for k, v in bounds.items() if v is not None)])


def number(
    default: Any = dataclasses.MISSING,
    *,
    least: float | None = None,
    most: float | None = None,
    above: float | None = None,
    below: float | None = None,
    finite: bool = False,
) -> Any:
    """A field of settings whose value, or each of its values if it is a tuple, lies in a range."""
    allowed = Range(least, most, above, below, finite)
    return field(default=default, metadata={"range": allowed})


def option(
    default: Any = dataclasses.MISSING,
    *,
    positional: bool = False,
    metavar: str = "",
    flag: str = "",
    help: str = "",
) -> Any:
    """A field with a form of its own on the command line, such as a positional argument."""
    facts = {"positional": positional, "metavar": metavar, "flag": flag, "help": help}
    return field(default=default, metadata={"option": facts})


@contextlib.contextmanager
def on_command_line(yes: bool = True) -> Iterator[None]:
    """Have messages name settings as options, such as --num-envs, instead of as keyword arguments."""
    token = _ON_COMMAND_LINE.set(yes)
    try:
        yield
    finally:
        _ON_COMMAND_LINE.reset(token)


def asked(name: str, value: Any = None) -> str:
    """A setting as the user writes it, with a value or without.

    That is `--num-envs 8` on the command line and `num_envs=8` in Python.
    """
    if not _ON_COMMAND_LINE.get():
        return name if value is None else f"{name}={value!r}"
    option = "--" + _FLAGS.get(name, name).replace("_", "-")
    return option if value is None else f"{option} {value}"


def parse(kind: type[S], given: Mapping[str, Any], owner: str = "", text: bool = True) -> S:
    """Settings of a dataclass from names and values.

    Unknown names, wrong types and numbers out of range raise ValueError. owner: what to call the
    settings in a message, such as "scpo". text: "6M" or "64,64" may stand for numbers, as on a
    command line.
    """
    hints = hints_of(kind)
    for name in given:
        if name not in hints:
            raise ValueError(unknown("setting", name, hints, owner))
    called = _called(kind)
    values = {name: _read(called[name], hints[name], value, text) for name, value in given.items()}
    missing = [f.name for f in dataclasses.fields(kind)  # type: ignore[arg-type]
               if f.init and f.default is f.default_factory and f.name not in values]  # fmt: skip
    if missing:
        raise ValueError(f"{', '.join(missing)} is missing{f' from {owner}' if owner else ''}")
    return kind(**values)


def check(settings: Any) -> None:
    """Raise ValueError if a value has the wrong type or lies outside of its field's range.

    Settings call this from `__post_init__`, so that none exist that were not checked.
    """
    hints, called = hints_of(settings.__class__), _called(settings.__class__)
    for f in dataclasses.fields(settings):
        value, name = getattr(settings, f.name), called[f.name]
        if _read(name, hints[f.name], value, text=False) != value and value == value:
            raise ValueError(f"{name} is {value!r}: give {_wanted(hints[f.name])}")
        numbers = value if isinstance(value, tuple) else (value,)
        allowed = f.metadata.get("range", Range())
        for item in numbers:
            if isinstance(item, int | float) and not isinstance(item, bool) and item not in allowed:
                raise ValueError(f"{name} is {shown(value)}: give {allowed}")


def _called(kind: Any) -> dict[str, str]:
    """What messages call each field of a dataclass: a positional argument has no option."""
    given = {f.name: f.metadata.get("option", {}) for f in dataclasses.fields(kind)}
    return {n: n if facts.get("positional") else asked(n) for n, facts in given.items()}


def to_json(settings: Any) -> dict[str, Any]:
    """Settings as JSON can hold them: tuples become lists, infinite numbers "inf" and "-inf"."""

    def plain(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return [plain(item) for item in value]
        if isinstance(value, float) and math.isinf(value):
            return str(value)
        return os.fspath(value) if isinstance(value, os.PathLike) else value

    return {f.name: plain(getattr(settings, f.name)) for f in dataclasses.fields(settings)}


def differences(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """The names whose values differ between two mappings of plain settings, with both values.

    A setting that one of them does not name is None there.
    """
    names = dict.fromkeys([*one, *other])
    return {n: (one.get(n), other.get(n)) for n in names if one.get(n) != other.get(n)}


def split_by_owner(given: Mapping[str, Any], *kinds: type) -> list[dict[str, Any]]:
    """Names and values, sorted to the first dataclass that has each; unknown names raise ValueError."""
    known = [hints_of(kind) for kind in kinds]
    parts: list[dict[str, Any]] = [{} for _ in kinds]
    for name, value in given.items():
        owner = next((i for i, names in enumerate(known) if name in names), None)
        if owner is None:
            raise ValueError(unknown("setting", name, {n for names in known for n in names}))
        parts[owner][name] = value
    return parts


def read_pairs(items: Iterable[str]) -> dict[str, list[str]]:
    """`NAME=VALUE` texts as names and lists of values: commas separate the values."""
    pairs: dict[str, list[str]] = {}
    for item in items:
        name, equals, text = item.partition("=")
        name = name.strip().replace("-", "_")
        if not equals or not name or name in pairs:
            why = "is given twice" if name in pairs else "is not NAME=VALUE"
            raise ValueError(f"--set {item}: {name if name in pairs else item!r} {why}")
        pairs[name] = text.split(",")
    return pairs


def unknown(what: str, name: str, known: Iterable[str], owner: str = "") -> str:
    """The message for a name that is not known, with the closest ones that are."""
    names = list(known)
    close = closest(name, names)
    hint = f"Did you mean {close}?" if close else f"Known: {', '.join(names[:20])}."
    return f"{owner + ' has no' if owner else 'unknown'} {what} {name!r}. {hint}"


def is_number_text(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def closest(name: str, known: Iterable[str]) -> str:
    """The known names that are closest to a wrong one: "a, b or c"; empty if none is close."""
    names = list(known)
    close = difflib.get_close_matches(str(name), names, n=3, cutoff=0.5)
    if not close:
        lower = {n.casefold(): n for n in names}
        found = difflib.get_close_matches(str(name).casefold(), lower, n=3, cutoff=0.4)
        close = [lower[n] for n in found]
    return " or ".join(filter(None, [", ".join(close[:-1]), *close[-1:]]))


def hints_of(kind: type) -> dict[str, Any]:
    """The type of each field of a dataclass."""
    hints = typing.get_type_hints(kind)
    return {f.name: hints[f.name] for f in dataclasses.fields(kind)}


def typed(function: F) -> F:
    """Have a public function refuse arguments of a wrong type with a ValueError that names them."""
    signature, hints = inspect.signature(function), dict[str, Any]()

    @functools.wraps(function)
    def checked(*args: Any, **more: Any) -> Any:
        if not hints:
            hints.update({name: _resolve(function, p) for name, p in signature.parameters.items()})
        given: Mapping[str, Any] = {}
        with contextlib.suppress(TypeError):  # the call itself says what is missing or too much
            given = signature.bind(*args, **more).arguments
        for name, value in given.items():
            if not _fits(hints[name], value):
                raise ValueError(f"{name} is {_short(value)}: give {_wanted(hints[name])}")
        return function(*args, **more)

    return typing.cast(F, checked)


def _resolve(function: Callable[..., Any], parameter: inspect.Parameter) -> Any:
    """The type of a parameter; `Any` for what takes several values, or is known to type checkers only."""
    several = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
    if several or parameter.annotation is parameter.empty:
        return Any
    alone = types.SimpleNamespace(__annotations__={"it": parameter.annotation})
    try:
        return typing.get_type_hints(alone, vars(inspect.getmodule(function)))["it"]
    except NameError:
        return Any


def _fits(hint: Any, value: Any) -> bool:
    """Whether a value has a type. What cannot be told from the outside fits."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint is Any:
        return True
    if origin in (typing.Union, types.UnionType):
        return any(_fits(one, value) for one in inner)
    if hint in (int, float):
        real = isinstance(value, Real) and not isinstance(value, bool)
        return real and (hint is float or (math.isfinite(value) and float(value).is_integer()))
    if origin is not None and isinstance(origin, type):
        plain = isinstance(value, origin) and not isinstance(value, bytes | bytearray | memoryview)
        if plain and inner and isinstance(value, Collection) and not isinstance(value, Mapping):
            return all(_fits(inner[0], item) for item in value)
        return plain
    return not isinstance(hint, type) or isinstance(value, hint)


def _short(value: Any) -> str:
    """A value as a message shows it."""
    text = " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "..."


# Values ----------------------------------------------------------------------------------------


def read_value(kind: type, name: str, value: Any) -> Any:
    """One value as the type of its field of a dataclass; text may stand for it."""
    return _read(name, hints_of(kind)[name], value, text=True)


def _read(name: str, hint: Any, value: Any, text: bool) -> Any:
    """A value as the type of its field. text: words such as "6M" may stand for it."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if origin in (typing.Union, types.UnionType):
        if value is None:
            return None
        return _read(name, next(h for h in inner if h is not type(None)), value, text)
    if origin is Literal:
        if value not in inner:
            raise ValueError(f"{name} is {value!r}: give one of {', '.join(map(str, inner))}")
        return value
    if origin is tuple:
        items = value if isinstance(value, list | tuple) else (value,)
        if ... not in inner:  # such as (low, high): a type for each item
            if len(items) != len(inner):
                raise ValueError(f"{name} is {value!r}: give {len(inner)} values")
            pairs = zip(inner, items, strict=True)
            return tuple(_read_one(name, kind, item, kind, value, text) for kind, item in pairs)
        if typing.get_origin(inner[0]) is tuple:
            return tuple(_read(name, inner[0], item, text) for item in items)
        words = typing.get_origin(inner[0]) is Literal
        if text and (words or inner[0] in (int, float)):  # 64,64 and "64 64" are two numbers
            items = [part for item in items for part in _parts(item)]
        if words:
            return tuple(_read(name, inner[0], item, text) for item in items)
        return tuple(_read_one(name, inner[0], item, hint, value, text) for item in items)
    return _read_one(name, hint, value, hint, value, text)


def _parts(item: Any) -> list[Any]:
    return re.split(r"[,\s]+", item.strip()) if isinstance(item, str) else [item]


def _read_one(name: str, kind: Any, item: Any, hint: Any, value: Any, text: bool) -> Any:
    if kind is Path and isinstance(item, str | os.PathLike):
        return Path(item)
    if kind is str and isinstance(item, os.PathLike):
        return os.fspath(item)
    if kind in (str, bool) and isinstance(item, kind):
        return item
    if kind is bool and text and isinstance(item, str) and item.lower() in ("true", "false"):
        return item.lower() == "true"
    if kind in (int, float):
        found = _number(item) if text or item in ("inf", "-inf") else item
        whole = isinstance(found, Real) and not isinstance(found, bool)
        if whole and (kind is float or (math.isfinite(found) and float(found).is_integer())):
            return kind(found)
    raise ValueError(f"{name} is {value!r}: give {_wanted(hint)}")


def _number(item: Any) -> Any:
    """A number from text such as 6M, 1e6, 1_000 or inf; anything else as it is."""
    if not isinstance(item, str):
        return item
    body = item.strip()
    factor = _SUFFIXES.get(body[-1:], 1.0)
    try:
        if factor == 1.0 and re.fullmatch(r"[+-]?[\d_]+", body):
            return int(body)
        return float(body[:-1] if factor != 1.0 else body) * factor
    except ValueError:
        return item


def _wanted(hint: Any) -> str:
    """What to give for a field or argument of that type."""
    origin, inner = typing.get_origin(hint), typing.get_args(hint)
    if hint in _KINDS:
        return _KINDS[hint]
    if origin is tuple:
        return f"{_KINDS.get(inner[0], 'a value')}, or several"
    if origin in (typing.Union, types.UnionType):
        kinds = dict.fromkeys(_wanted(h) for h in inner if h is not type(None))
        return " or ".join(kinds)
    if origin is not None and inner:
        return f"several of {_wanted(inner[0])}" if inner[0] in _KINDS else "several"
    return f"a {getattr(hint, '__name__', hint)}"


def shown(value: Any) -> str:
    """A value as a message shows it: several ones with commas."""
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


# The command line ------------------------------------------------------------------------------


def field_docs(kind: type) -> dict[str, str]:
    """The docstring below each field of a dataclass and of those it inherits from."""
    docs: dict[str, str] = {}
    for owner in reversed(kind.__mro__):
        if not dataclasses.is_dataclass(owner):
            continue
        source = textwrap.dedent(inspect.getsource(typing.cast(type, owner)))
        found = re.findall(r'^    (\w+):[^\n]*(?:\n        [^\n]*|\n    \))*\n    """(.*?)"""$', source,
                           re.MULTILINE | re.DOTALL)  # fmt: skip
        docs |= {name: " ".join(text.split()) for name, text in found}
    return docs


class _Switch(argparse.BooleanOptionalAction):
    """A switch that is off by default. `--no-NAME` works too, and is not shown."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        setattr(namespace, self.dest, not str(option).startswith("--no-"))


class _Several(argparse.Action):
    """An option with several values. A second one would silently replace the first."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option: Any = None) -> None:
        if hasattr(namespace, self.dest):
            raise ValueError(
                f"{option} is given twice: write all of its values behind one {option}"
            )
        setattr(namespace, self.dest, values)


def _without_none(hint: Any) -> Any:
    """The type of a value that may be left out: int for `int | None`."""
    inner = [h for h in typing.get_args(hint) if h is not type(None)]
    return inner[0] if isinstance(hint, types.UnionType) and len(inner) == 1 else hint


def add_options(parser: argparse.ArgumentParser, kind: type, title: str = "") -> None:
    """An option for every field of a dataclass. What is not given does not appear in the result."""
    group = parser.add_argument_group(title) if title else parser
    docs, hints = field_docs(kind), hints_of(kind)
    for f in dataclasses.fields(kind):
        facts = f.metadata.get("option", {})
        text = (facts.get("help") or docs.get(f.name, "")).replace("%", "%%")
        silent = f.default in (dataclasses.MISSING, None, "", ()) or f.default is False
        text += "" if silent else f" (default: {shown(f.default)})"
        several = typing.get_origin(hints[f.name]) is tuple
        inner = typing.get_args(hints[f.name])[0] if several else _without_none(hints[f.name])
        given: dict[str, Any] = {"help": text, "default": argparse.SUPPRESS, "dest": f.name}
        if typing.get_origin(inner) is Literal:
            given["metavar"] = "{" + ",".join(map(str, typing.get_args(inner))) + "}"
        else:
            short = {int: "N", float: "X", Path: "PATH"}.get(inner, f.name.upper())
            given["metavar"] = facts.get("metavar") or short
        if facts.get("positional"):
            del given["dest"]
            optional = f.default is not dataclasses.MISSING
            count = "*" if several else "?" if optional else None
            group.add_argument(f.name, nargs=count, **given)
        elif hints[f.name] in (bool, bool | None):
            del given["metavar"]
            kind = argparse.BooleanOptionalAction if f.default is not False else _Switch
            switch = group.add_argument("--" + f.name.replace("_", "-"), action=kind, **given)
            if f.default is False:  # the help shows only what turns it on
                switch.option_strings = switch.option_strings[:1]
        else:
            flag = "--" + (facts.get("flag") or f.name).replace("_", "-")
            action = _Several if several else "store"
            group.add_argument(flag, nargs="+" if several else None, action=action, **given)


def cli(kind: Callable[..., S], args: Sequence[str] | None = None) -> S:
    """Settings of one dataclass from a command line, for a script."""
    about = inspect.getdoc(inspect.getmodule(kind))
    parser = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_options(parser, kind)  # type: ignore[arg-type]
    return parse(kind, vars(parser.parse_args(args)))  # type: ignore[arg-type]
