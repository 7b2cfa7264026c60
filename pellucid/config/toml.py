"""Configurations from TOML and back: complete, checked, compared, and written with every key explained."""

import ast
import inspect
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
import tomli_w

from pellucid.arguments import convert_argument, convert_setting
from pellucid.config.presets import EVERY_SIZE, PRESETS
from pellucid.config.settings import DEFAULT_TASK, Config, Header, Settings, Size, Task
from pellucid.config.validation import check_agreement
from pellucid.errors import ConfigError, abbreviate_reason, nearest, quote
from pellucid.files import MAX_SETTINGS, TOO_DEEP, read_bytes
from pellucid.tasks.task_settings import is_task, settings_of, task_names
from pellucid.wording import abbreviated

MAX_DOTS = 1000
"""Dots in a line of TOML: the parser takes minutes for a key of very many parts."""
HEADERS = ("auto", "true", "false")
"""The values of `Header`, as TOML and the command line have them."""


def preset(size: Size) -> Config:
    """The complete default configuration of a size."""
    size = convert_argument("size", size, Size)
    return from_settings({"size": size}, origin=f"size {size}")


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None, regular: bool = True) -> Config:
    """A TOML file over the preset of its size, with `overrides` (nested like the file) over both.

    It is a `regular` file, or whatever the user named. Errors: `ConfigError` for a file that is missing or not TOML, an
    unknown key (with the nearest right one), a value of the wrong type or out of range, or two settings that contradict
    each other; always with the key's full name.
    """
    file: Path = convert_argument("path", path, str | Path)
    overrides = convert_argument("overrides", overrides, Mapping[str, Any] | None)
    settings = read_toml(file, convert_argument("regular", regular, bool))
    try:
        overlaid = _overlaid(_given(settings, Config), _given(overrides or {}, Config))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    return from_settings(overlaid, origin=str(file))


def read_toml(path: Path, regular: bool = True) -> dict[str, Any]:
    """Return the tables of a TOML file of at most `MAX_SETTINGS` bytes.

    Whole numbers beyond 64 bits, which TOML does not have, are refused here, so that nothing else meets one. Python's
    reader raises a `ValueError` for one of more than 4,300 digits, and a `RecursionError` for lists that are nested too
    deeply.

    Args:
        path: The file.
        regular: Whether it must be a regular file; a file that the user names may also be a pipe.

    Raises:
        ConfigError: The file is missing, too large, or not TOML.
    """
    content = read_bytes(path, ConfigError, MAX_SETTINGS, regular)
    if max(line.count(b".") for line in content.split(b"\n")) > MAX_DOTS:
        raise ConfigError(f"{path} is not TOML: a line has more than {MAX_DOTS:,} dots")
    try:
        settings = tomllib.loads(content.decode("utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {abbreviate_reason(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: it holds a number of thousands of digits") from error
    except RecursionError:
        raise ConfigError(f"{path} is not TOML: {TOO_DEEP}") from None
    for key, value in _walk(settings, ""):
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, int) and not -(2**63) <= each < 2**63:
                raise ConfigError(f"{path}: {key}: expected a whole number of 64 bits at most, got {quote(each)}")
    return settings


def from_settings(settings: Mapping[str, Any], origin: str) -> Config:
    """The configuration that `settings` (nested, partial) describe; `origin` names them in errors."""
    try:
        given = _given(settings, Config)
        size: Size = convert_setting("size", given.get("size", "base"), Size)
        task = _convert_task(given.get("task", DEFAULT_TASK))
        dialled = _overlaid(_overlaid(EVERY_SIZE, PRESETS[size]), settings_of(task).presets)
        return _agreed(_converted(_overlaid(dialled, given), Config))
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def checked(config: Config) -> Config:
    """The same configuration, if its values are in range and agree with each other; else `ConfigError`."""
    return _agreed(_converted(_given(config, Config), Config))


def _given(settings: object, struct: type[Settings], prefix: str = "") -> dict[str, Any]:
    """Return the values of settings as they were given, as a struct or a mapping; sections as dicts.

    Raises:
        ConfigError: A section is no table, or a key does not exist; the message has its full name.
    """
    fields = {field.name: field.type for field in _fields(struct)}
    try:
        if isinstance(settings, struct):
            table = {name: getattr(settings, name) for name in fields}
        elif isinstance(settings, Mapping):
            table = dict(settings.items())
        else:
            raise ConfigError(f"{prefix.rstrip('.')}: expected a table, got {abbreviated(settings)}")
    except ConfigError:
        raise
    except Exception as error:  # whatever a mapping's own methods may raise
        told = f"expected a table, got {abbreviated(settings)}, which raises {type(error).__name__}"
        raise ConfigError(f"{prefix.rstrip('.')}: {told}" if prefix else told) from error
    for key, value in table.items():
        word = issubclass(type(key), str)
        plain = str.__str__(key) if word else abbreviated(key)
        if not word or plain not in fields:
            raise ConfigError(f"unknown key {quote(f'{prefix}{plain}')}{nearest(plain, fields, prefix)}")
        if is_section(fields[plain]):
            table[key] = _given(value, fields[plain], f"{prefix}{plain}.")
    return table


@cache
def _fields(struct: type[Settings]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """Return the fields of a struct; msgspec reads the annotations anew at each call, which takes a millisecond."""
    return msgspec.structs.fields(struct)


def is_section(kind: Any) -> bool:  # noqa: ANN401 (any type)
    """Return whether a field of this type is a section: a table of settings."""
    return isinstance(kind, type) and issubclass(kind, Settings)


def _converted(settings: Mapping[str, Any], struct: type[Settings], prefix: str = "") -> Any:  # noqa: ANN401 (a struct)
    """Return complete settings as a struct, or raise `ConfigError` for one of the wrong type or out of range."""
    values = dict[str, Any]()
    for field in _fields(struct):
        name, kind, key = field.name, field.type, f"{prefix}{field.name}"
        if name not in settings:
            continue  # it has a default
        value = settings[name]
        if is_section(kind):
            values[name] = _converted(value, kind, f"{key}.")
        else:
            values[name] = _convert_task(value) if kind == Task else convert_setting(key, value, kind)
    return struct(**values)


def _convert_task(value: object) -> Task:
    """Return the name of a task; `ConfigError` for what is none."""
    if type(value) is str and is_task(value):
        return value
    name: Task = convert_setting("task", value, Literal[task_names()])
    return name


def _agreed(config: Config) -> Config:
    """Return the configuration if its settings agree with each other."""
    check_agreement(config)
    return config


def flattened(config: Config) -> dict[str, Any]:
    """Every setting under its full key: {"size": "base", "encoder.num_layers": 1, ...}."""
    return dict(_walk(msgspec.to_builtins(config), ""))


def differences(saved: Config, wanted: Config) -> list[str]:
    """One line for each setting that differs: "encoder.num_layers: 1 in the run, 2 now"."""
    now = flattened(wanted)
    return [
        f"{key}: {quote(value)} in the run, {quote(now[key])} now"
        for key, value in flattened(saved).items()
        if value != now[key]
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
    """`above` over `below`, section by section."""
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = {**inner, **value} if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _walk(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """The leaves of a nested table, each under its full key."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _walk(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def choices_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 (any type)
    """Return the words that a type of settings consists of; none for a type of other values."""
    if kind == Header:
        return HEADERS
    if kind == Task:
        return task_names()
    return get_args(kind) if get_origin(kind) is Literal else ()
