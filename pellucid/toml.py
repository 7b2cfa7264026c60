"""Configurations from TOML and back: complete, checked, compared, and written with every key explained."""

import ast
import inspect
import math
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
import tomli_w

from pellucid.agreement import check_agreement
from pellucid.config import Config, Settings, Size, Task
from pellucid.errors import ConfigError, nearest
from pellucid.files import read_bytes
from pellucid.sizes import EVERY_SIZE, PRESETS, TASKS

WORDS: Mapping[str, str] = {
    **{"`int`": "a whole number", "`float`": "a number", "`bool`": "true or false", "`str`": "a text"},
    **{"`array`": "a list", "`object`": "a table"},
    **{" >= ": " of at least ", " <= ": " of at most ", " > ": " above ", " < ": " below "},
}
"""What msgspec says of a value, and what is said instead."""


def preset(size: Size) -> Config:
    """The complete default configuration of a size."""
    return from_settings({"size": size}, origin=f"size {size}")


def load_config(path: Path, overrides: Mapping[str, Any] | None = None) -> Config:
    """A TOML file over the preset of its size, with `overrides` (nested like the file) over both.

    Errors: `ConfigError` for a file that is missing or not TOML, an unknown key (with the nearest right one), a value
    of the wrong type or out of range, or two settings that contradict each other; always with the key's full name.
    """
    try:
        settings = tomllib.loads(read_bytes(path, ConfigError).decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from error
    return from_settings(_overlaid(settings, overrides or {}), origin=str(path))


def from_settings(settings: Mapping[str, Any], origin: str) -> Config:
    """The configuration that `settings` (nested, partial) describe; `origin` names them in errors."""
    _refuse_unknown(settings, Config, origin)
    size, task = settings.get("size", "base"), settings.get("task", "transduce")
    for name, value, kind in (("size", size, Size), ("task", task, Task)):
        if value not in get_args(kind):
            raise ConfigError(f"{origin}: {name}: {_expected(get_args(kind), value)}")
    dialled = _overlaid(_overlaid(EVERY_SIZE, PRESETS[cast(Size, size)]), TASKS[cast(Task, task)])
    complete = _overlaid(dialled, settings)
    try:
        return checked(msgspec.convert(complete, Config))
    except msgspec.ValidationError as error:
        raise ConfigError(f"{origin}: {_plain(error, complete)}") from error
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def checked(config: Config) -> Config:
    """The same configuration, if its values are in range and agree with each other; else `ConfigError`."""
    settings = msgspec.to_builtins(config)
    try:
        msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_plain(error, settings)) from error
    for key, value in flattened(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}: expected a finite number, got {value}")
    check_agreement(config)
    return config


def flattened(config: Config) -> dict[str, Any]:
    """Every setting under its full key: {"size": "base", "encoder.layers": 1, ...}."""
    return dict(_walk(msgspec.to_builtins(config), ""))


def differences(saved: Config, wanted: Config) -> list[str]:
    """One line for each setting that differs: "encoder.layers: 1 in the run, 2 now"."""
    now = flattened(wanted)
    return [
        f"{key}: {value!r} in the run, {now[key]!r} now" for key, value in flattened(saved).items() if value != now[key]
    ]


def to_toml(config: Config) -> str:
    """The configuration as TOML, each key under a comment that says what it does and takes."""
    lines: list[str] = []
    nested = [(field.name, getattr(config, field.name)) for field in msgspec.structs.fields(config)]
    lines += _section(config, [(name, value) for name, value in nested if not isinstance(value, Settings)])
    for name, value in nested:
        if isinstance(value, Settings):
            lines += ["", f"[{name}]"]
            lines += _section(value, [(f.name, getattr(value, f.name)) for f in msgspec.structs.fields(value)])
    return "\n".join(lines) + "\n"


def _section(settings: Settings, values: list[tuple[str, Any]]) -> list[str]:
    """The commented lines of one struct's own values."""
    about = _field_docstrings(type(settings))
    return [line for name, value in values for line in (f"# {about[name]}", _line(name, value))]


def _line(name: str, value: object) -> str:
    """A key and its value; a list of numbers stays on its line."""
    if isinstance(value, tuple):
        return f"{name} = {list(value)}"
    return tomli_w.dumps({name: value}).strip()


_PARSING = Lock()
"""Held while Python is parsed: in Python 3.11 two threads that parse at once may each meet a SystemError."""


@cache
def _field_docstrings(struct: type[Settings]) -> dict[str, str]:
    """The string below each field of a struct, by field name."""
    with _PARSING:
        body = cast(ast.ClassDef, ast.parse(inspect.getsource(struct)).body[0]).body
    return {
        cast(ast.Name, field.target).id: cast(str, cast(ast.Constant, text.value).value)
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def _overlaid(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """`above` over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = _overlaid(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _refuse_unknown(settings: Mapping[str, Any], struct: type[Settings], origin: str, prefix: str = "") -> None:
    """Raise for the first key that `struct` has not, with its full name and the nearest right one."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(f"{origin}: unknown key {prefix + key!r}{nearest(key, fields, prefix)}")
        inner = fields[key]
        if isinstance(value, Mapping) and isinstance(inner, type) and issubclass(inner, Settings):
            _refuse_unknown(value, inner, origin, f"{prefix}{key}.")


def _walk(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a nested table, each under its full key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _walk(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def _plain(error: msgspec.ValidationError, settings: Mapping[str, Any]) -> str:
    """msgspec's message, with the key first and the value last: "seed: expected a whole number, got 0.5"."""
    what, _, where = str(error).partition(" - at `$.")
    key = where.rstrip("`")
    kind: Any = Config
    value: Any = settings
    for name in key.partition("[")[0].split("."):
        kind, value = {field.name: field.type for field in msgspec.structs.fields(kind)}[name], value[name]
    if get_origin(kind) is Literal:
        return f"{key}: {_expected(get_args(kind), value)}"
    return f"{key}: {in_words(what)}, got {value!r}"


def in_words(told: str) -> str:
    """What msgspec expects, without Python's words: "expected a whole number of at least 1"."""
    expected = told.partition(", got ")[0]
    for theirs, ours in WORDS.items():
        expected = expected.replace(theirs, ours)
    return f"{expected[0].lower()}{expected[1:]}"


def _expected(choices: Sequence[str], value: object) -> str:
    """What a choice takes: "expected gru or lstm, got 'gur'; did you mean 'gru'?"."""
    return f"expected {', '.join(choices[:-1])} or {choices[-1]}, got {value!r}{nearest(str(value), choices)}"
