"""Validation of the arguments of public functions and the fields of public structs, by their annotations.

`convert_argument` returns a value as the annotated type or raises an `ArgumentError`: "top_p: expected a number above
0.0, got nan", "sources[2]: expected a string, got None".
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import fields
from errno import ENAMETOOLONG
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from pellucid.error_messages import (
    UNION_TYPES,
    describe_expectation,
    describe_type,
    describe_value,
    join_choices,
    suggest_choice,
)
from pellucid.errors import ArgumentError, ConfigError

SURROGATES = re.compile("[\ud800-\udfff]")
"""Unpaired surrogates, which UTF-8 cannot encode."""
SCALAR_TYPES = (str, bytes, bytearray, memoryview, Mapping)
"""Iterable types that count as a single value."""


class TypeMismatchError(Exception):
    """A value that does not match its annotation."""

    def __init__(self, expected: str, value: object, hint: str = "", path: str = "") -> None:
        """Store the mismatch.

        Args:
            expected: Description of the expected type.
            value: The value.
            hint: Further text for the end of the message.
            path: Location of the value within the argument: "[2].target".
        """
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.hint = hint
        self.path = path

    def message(self, name: str) -> str:
        """Return the error message for an argument of this name."""
        return f"{name}{self.path}: expected {self.expected}, got {describe_value(self.value)}{self.hint}"

    def nested_in(self, place: str) -> "TypeMismatchError":
        """Return the mismatch for the containing value; `place` is the item or field in it."""
        return TypeMismatchError(self.expected, self.value, self.hint, place + self.path)


class ArgumentIteratorError(Exception):
    """Wrapper of an exception that an iterator argument raised, which is its cause and is raised again."""


class CheckedFields:
    """Base class of frozen dataclasses whose fields are validated and converted on construction."""

    def __post_init__(self) -> None:
        """Convert each field to its annotated type; raise `ArgumentError` for the first that does not match."""
        kinds = _field_types(cast(Any, type(self)))
        for field in fields(cast(Any, self)):
            value = convert_argument(field.name, getattr(self, field.name), kinds[field.name])
            object.__setattr__(self, field.name, value)


def convert_argument(name: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return an argument as the type of its annotation.

    NumPy and PyTorch scalars, and subclasses of str, int and float, become the built-in types. A str is accepted as a
    path, and a tuple as a named tuple. A list, tuple or sequence may be any iterable except str, bytes, mappings and
    sets. An iterator passed as `Iterable` stays an iterator, whose items are checked as they are consumed. Exceptions
    that an iterator raises are passed on; exceptions of other methods of a value are mismatches.

    Args:
        name: Name of the argument, for the message.
        value: The value.
        kind: The annotation: a class, `Literal`, `Annotated` with bounds, or containers and unions of these.

    Returns:
        The converted value.

    Raises:
        ArgumentError: The value has another type or is out of range.
    """
    try:
        if _is_iterator(value):
            for each in get_args(kind) if get_origin(kind) in UNION_TYPES else (kind,):
                if get_origin(each) is Iterable:
                    return _convert_items(name, cast(Iterator[object], value), get_args(each)[0])
        return _convert(value, kind)
    except TypeMismatchError as error:
        raise ArgumentError(error.message(name)) from None
    except ArgumentIteratorError as error:
        raise cast(BaseException, error.__cause__) from None


def convert_setting(key: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return a setting as the type of its annotation, as `convert_argument` does; a path is accepted as a str.

    Settings are written to files, so strings with unpaired surrogates are refused.

    Args:
        key: Full name of the setting, for the message.
        value: The value.
        kind: The annotation.

    Raises:
        ConfigError: The value has another type or is out of range.
    """
    try:
        converted = _convert(str(value) if kind is str and issubclass(type(value), Path) else value, kind)
        if isinstance(converted, str) and SURROGATES.search(converted):
            raise TypeMismatchError("text without unpaired surrogates", converted)
    except TypeMismatchError as error:
        raise ConfigError(error.message(key)) from None
    except ArgumentIteratorError as error:
        raise cast(BaseException, error.__cause__) from None
    return converted


def python_scalar(value: object) -> object:
    """Return a NumPy or PyTorch scalar, or an instance of a subclass of str, int or float, as the built-in type.

    Other values are returned unchanged.
    """
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        try:
            if getattr(value, "mask", False):  # NumPy's masked constant is not a number, but converts to 0
                return value
            value = item()
        except Exception:  # a tensor without data, such as one on the meta device
            return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


@cache
def _field_types(owner: type) -> dict[str, Any]:
    """Return the annotations of the fields of a class."""
    return get_type_hints(owner, include_extras=True)


def _convert_items(name: str, items: Iterator[object], kind: object) -> Iterator[Any]:
    """Yield the items of an iterator, each converted when it is consumed."""
    for at, item in enumerate(items):
        yield convert_argument(f"{name}[{at}]", item, kind)


def _is_iterator(value: object) -> bool:
    """Return whether a value is an iterator, even if its `__class__` raises an exception."""
    try:
        return isinstance(value, Iterator)
    except Exception:
        return False


def _iterate(items: Iterator[object]) -> Iterator[object]:
    """Yield the items of an iterator; wrap its exceptions in an `ArgumentIteratorError`."""
    try:
        yield from items
    except Exception as error:
        raise ArgumentIteratorError from error


def _convert(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a value as the annotated type, or raise `TypeMismatchError`."""
    if kind is Any or (kind is str and type(value) is str):
        return value
    try:
        return _convert_any(value, kind)
    except (TypeMismatchError, ArgumentIteratorError, MemoryError):
        raise
    except Exception as error:  # methods of the value may raise anything
        raise TypeMismatchError(describe_type(kind), value, f", which raises {type(error).__name__}") from None


def _convert_any(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a value as the annotated type; raise `TypeMismatchError`, or what methods of the value raise."""
    origin = get_origin(kind)
    if origin in UNION_TYPES:
        return _convert_union(value, get_args(kind))
    if origin in (list, tuple, Sequence, Iterable):
        return _convert_list(value, kind)
    if origin is Mapping:
        return _convert_mapping(value, kind)
    if kind is Path:
        return _convert_path(value)
    if kind in (int, float, bool, str) or origin in (Literal, Annotated):
        return _convert_scalar(value, kind)
    if hasattr(kind, "_fields"):
        return _convert_named_tuple(value, kind)
    if not isinstance(value, kind):
        raise TypeMismatchError(describe_type(kind), value)
    return value


def _convert_union(value: object, kinds: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return a value as the first matching type of a union; raise the mismatch that is nested most deeply."""
    mismatches = list[TypeMismatchError]()
    for kind in kinds:
        if kind is str and Path in kinds:
            continue  # a str is converted as a path
        try:
            return _convert(value, kind)
        except TypeMismatchError as error:
            mismatches.append(error)
    deepest = max(mismatches, key=lambda each: len(each.path))
    if deepest.path:
        raise deepest
    if all(each is bool or get_origin(each) is Literal for each in kinds):
        words = [word for each in kinds for word in get_args(each)]
        raise TypeMismatchError(join_choices([*words, "true", "false"]), value, suggest_choice(value, words))
    hint = "" if Path in kinds else "".join(dict.fromkeys(each.hint for each in mismatches))
    raise TypeMismatchError(join_choices([each.expected for each in mismatches]), value, hint)


def _convert_list(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a list or tuple with converted items."""
    origin, kinds = get_origin(kind), get_args(kind)
    if isinstance(value, SCALAR_TYPES) or hasattr(value, "_fields"):
        fits = isinstance(value, str) and str in (kinds[0], *get_args(kinds[0]))
        hint = f"; put a single string into a list: [{describe_value(value)}]" if fits else ""
        raise TypeMismatchError(describe_type(kind), value, hint)
    if isinstance(value, Set):
        raise TypeMismatchError(describe_type(kind), value, ": a set has no order")
    if getattr(value, "ndim", None) == 0:  # a NumPy scalar, some of which are iterable
        raise TypeMismatchError(describe_type(kind), value)
    try:
        items = _iterate(value) if isinstance(value, Iterator) else iter(cast(Iterable[object], value))
    except TypeError:
        raise TypeMismatchError(describe_type(kind), value) from None
    if origin is tuple and kinds[-1] is not Ellipsis:
        given = list(items)
        if len(given) != len(kinds):
            raise TypeMismatchError(describe_type(kind), value)
        return tuple(_convert_sequence(given, kinds))
    converted = _convert_sequence(items, itertools.repeat(kinds[0]))
    return tuple(converted) if origin is tuple else converted


def _convert_sequence(values: Iterable[object], kinds: Iterable[object], places: Iterable[Any] = ()) -> list[Any]:
    """Return converted items or fields.

    Args:
        values: The items or fields.
        kinds: Annotation of each.
        places: Location of each in error messages; "[0]", "[1]", … by default.
    """
    converted = list[Any]()
    for value, kind in zip(values, kinds, strict=False):
        try:
            converted.append(_convert(value, kind))
        except TypeMismatchError as error:
            at = len(converted)
            raise error.nested_in(next(itertools.islice(places, at, None), f"[{at}]")) from None
    return converted


def _convert_mapping(value: object, kind: Any) -> dict[Any, Any]:  # noqa: ANN401
    """Return a dict with converted keys and values."""
    if not isinstance(value, Mapping):
        raise TypeMismatchError(describe_type(kind), value)
    keys, values = (itertools.repeat(each) for each in get_args(kind))
    names = [f"[{describe_value(key)}]" for key in value]
    return dict(
        zip(_convert_sequence(value, keys, names), _convert_sequence(value.values(), values, names), strict=True)
    )


def _convert_named_tuple(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a named tuple with converted fields; a tuple of the same length is accepted."""
    if isinstance(value, tuple) and type(value) is kind and _holds_only_strings(kind) and {*map(type, value)} == {str}:
        return value  # fast path for examples, of which there may be millions
    names, kinds = kind._fields, _field_types(kind)
    needed = len(names) - len(kind._field_defaults)
    if not isinstance(value, tuple) or not needed <= len(value) <= len(names):
        raise TypeMismatchError(f"{describe_type(kind)} ({', '.join(names)})", value)
    return kind(*_convert_sequence(value, (kinds[name] for name in names), [f".{name}" for name in names]))


@cache
def _holds_only_strings(kind: Any) -> bool:  # noqa: ANN401
    """Return whether all fields of a named tuple are str."""
    return set(_field_types(kind).values()) == {str}


def _convert_path(value: object) -> Path:
    """Return a path that the system accepts."""
    try:
        text = os.fspath(cast(str, value))
        os.stat(text)
    except (TypeError, ValueError):  # not a path, or with a NUL character or an unpaired surrogate
        raise TypeMismatchError(describe_type(Path), value) from None
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise TypeMismatchError("a path that is not too long for the system", value) from None
    if isinstance(value, bytes) or not text:
        raise TypeMismatchError(describe_type(Path), value)
    return Path(str.__str__(text))


def _convert_scalar(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a str, number, boolean or choice within the bounds of its annotation. Numbers must be finite."""
    value = python_scalar(value)
    try:
        converted = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        hint = suggest_choice(value, choices) if choices else ""
        raise TypeMismatchError(_msgspec_expectation(error, value, kind), value, hint) from None
    if isinstance(converted, float) and not isfinite(converted):
        raise TypeMismatchError("a finite number", value)
    return converted


def _msgspec_expectation(error: Exception, value: object, kind: Any) -> str:  # noqa: ANN401
    """Return the description of the type that msgspec expected."""
    if get_origin(kind) is Literal:
        return join_choices(get_args(kind))
    if isinstance(error, UnicodeEncodeError):  # an unpaired surrogate where no str is expected
        return describe_type(kind)
    message = str(error)
    return (
        describe_expectation(message, value).removeprefix("expected ")
        if message.startswith("Expected")
        else "a finite number"
    )
