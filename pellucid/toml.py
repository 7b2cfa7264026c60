"""Configurations from TOML and back: complete, checked, compared, and written with every key explained."""

import ast
import inspect
import math
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
import tomli_w

from pellucid.agreement import check_agreement
from pellucid.arguments import convert_argument, python_scalar
from pellucid.config import DEFAULT_TASK, Config, Header, Settings, Size, Task
from pellucid.errors import ConfigError, abbreviate, nearest, quote
from pellucid.files import MAX_SETTINGS, TOO_DEEP, read_bytes
from pellucid.sizes import EVERY_SIZE, PRESETS
from pellucid.tasks.task_settings import is_task, settings_of, task_names
from pellucid.wording import abbreviated, expectation, expected_choice

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
    return from_settings(_overlaid(read_toml(file, regular), overrides or {}), origin=str(file))


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
        raise ConfigError(f"{path} is not TOML: {abbreviate(str(error), 200)}") from error
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
        settings = _plain_values(settings)
    except RecursionError:
        raise ConfigError(f"{origin}: {TOO_DEEP}") from None
    _refuse_unknown(settings, Config, origin)
    size, task = settings.get("size", "base"), settings.get("task", DEFAULT_TASK)
    if not isinstance(size, str) or size not in get_args(Size):
        raise ConfigError(f"{origin}: size: {expected_choice(get_args(Size), size)}")
    if not isinstance(task, str) or not is_task(task):
        raise ConfigError(f"{origin}: task: {expected_choice(task_names(), task)}")
    dialled = _overlaid(_overlaid(EVERY_SIZE, PRESETS[cast(Size, size)]), settings_of(task).presets)
    complete = _overlaid(dialled, settings)
    try:
        return _agreed(_converted(complete))
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def checked(config: Config) -> Config:
    """The same configuration, if its values are in range and agree with each other; else `ConfigError`."""
    return _agreed(_converted(_plain_values(config)))


def _converted(settings: Mapping[str, Any]) -> Config:
    """Return complete settings as a configuration, or raise `ConfigError` for one of the wrong type or out of range."""
    try:
        return msgspec.convert(settings, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(_plain(error, settings)) from error
    except UnicodeEncodeError as error:
        keys = [key for key, value in _walk(settings, "") if value == error.object]
        raise ConfigError(f"{keys[0]}: expected whole characters, got {abbreviated(error.object)}") from error


def _agreed(config: Config) -> Config:
    """Return the configuration if its numbers are finite and its settings agree with each other."""
    for key, value in flattened(config).items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ConfigError(f"{key}: expected a finite number, got {value}")
    if not is_task(config.task):
        raise ConfigError(f"task: {expected_choice(task_names(), config.task)}")
    check_agreement(config)
    return config


def flattened(config: Config) -> dict[str, Any]:
    """Every setting under its full key: {"size": "base", "encoder.layers": 1, ...}."""
    return dict(_walk(msgspec.to_builtins(config), ""))


def differences(saved: Config, wanted: Config) -> list[str]:
    """One line for each setting that differs: "encoder.layers: 1 in the run, 2 now"."""
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
    """`above` over `below`, table by table."""
    merged = dict(below)
    for key, value in above.items():
        inner = merged.get(key)
        merged[key] = _overlaid(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return merged


def _plain_values(value: object) -> Any:  # noqa: ANN401 (settings are of any type)
    """Return settings, given as structs or mappings, as nested dicts of Python's own values; a path is a text."""
    if isinstance(value, Settings):
        return {field.name: _plain_values(getattr(value, field.name)) for field in msgspec.structs.fields(value)}
    if isinstance(value, Mapping):
        return {key: _plain_values(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain_values(each) for each in value]
    return str(value) if isinstance(value, Path) else python_scalar(value)


def _refuse_unknown(settings: Mapping[Any, Any], struct: type[Settings], origin: str, prefix: str = "") -> None:
    """Raise for the first key that `struct` has not, with its full name and the nearest right one."""
    fields = {field.name: field.type for field in msgspec.structs.fields(struct)}
    for key, value in settings.items():
        if key not in fields:
            raise ConfigError(f"{origin}: unknown key {quote(f'{prefix}{key}')}{nearest(key, fields, prefix)}")
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
    if choices_of(kind):
        return f"{key}: {expected_choice(choices_of(kind), value)}"
    return f"{key}: {expectation(what, value)}, got {abbreviated(value)}"


def choices_of(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 (any type)
    """Return the words that a type of settings consists of; none for a type of other values."""
    if kind == Header:
        return HEADERS
    if kind == Task:
        return task_names()
    return get_args(kind) if get_origin(kind) is Literal else ()
