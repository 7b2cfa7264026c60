"""Arguments of public functions and fields of public structs, checked against their annotations.

`convert_argument` takes the annotation of a parameter and returns the value as that type, or raises one
`ArgumentError`: "top_p: expected a number above 0.0, got nan", "sources[2]: expected a text, got None". What a
signature documents is what is checked.
"""

import itertools
import os
import re
from collections.abc import Iterable, Iterator, Mapping, MappingView, Sequence, Set, Sized
from dataclasses import fields
from errno import ENAMETOOLONG
from functools import cache
from math import isfinite
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, cast, get_args, get_origin, get_type_hints

import msgspec

from pellucid.errors import ArgumentError, ConfigError
from pellucid.wording import UNIONS, abbreviated, choice_hint, expectation, listed, noun_of

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no file in UTF-8 holds."""
MAX_ITEMS = 2**20
"""Items that are taken of an iterable that does not know its length, and of a mapping that is no dict."""
MAX_PATHS = 2**12
"""The same of paths, each of which the system is asked about."""
ONE_VALUE = (str, bytes, bytearray, memoryview, Mapping)
"""Iterable types that are one value, not a list of items."""


class MismatchError(Exception):
    """A value that is not what its annotation says."""

    def __init__(self, expected: str, value: object, hint: str = "", path: str = "") -> None:
        """Keep what was expected, in words, and where the value stands in the argument: "[2].target"."""
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.hint = hint
        self.path = path

    def told(self, name: str) -> str:
        """Return the message about an argument of this name."""
        return f"{name}{self.path}: expected {self.expected}, got {abbreviated(self.value)}{self.hint}"

    def below(self, place: str) -> "MismatchError":
        """Return the same, of an item or a field of the value in question."""
        return MismatchError(self.expected, self.value, self.hint, place + self.path)


class IteratorError(Exception):
    """An exception of an iterator that was given, which is its cause; it passes through."""


class CheckedFields:
    """Base of frozen dataclasses whose fields are checked and converted when they are constructed."""

    def __post_init__(self) -> None:
        """Check every field against its annotation; `ArgumentError` names the first that does not fit."""
        kinds = _field_kinds(cast(Any, type(self)))
        for field in fields(cast(Any, self)):
            value = convert_argument(field.name, getattr(self, field.name), kinds[field.name])
            object.__setattr__(self, field.name, value)


def convert_argument(name: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return an argument as the type of its annotation.

    Scalars of NumPy and PyTorch, and subclasses of text and numbers, become Python's own; a path may be a text, and a
    named tuple a tuple. Where a list, tuple or sequence is expected, any iterable is taken but a text, bytes, a mapping
    or a set. Where an `Iterable` is expected, an iterator stays one: its items are checked as they are taken. An
    exception that an iterator raises passes through; one that another value's own methods raise is a mismatch.

    Args:
        name: The argument's name, which begins the message.
        value: What was given.
        kind: The annotation: a class, `Literal`, `Annotated` with bounds, or containers and unions of these.

    Returns:
        The value, converted.

    Raises:
        ArgumentError: The value is of another type, or out of bounds.
    """
    try:
        if _is_iterator(value):
            for each in get_args(kind) if get_origin(kind) in UNIONS else (kind,):
                if get_origin(each) is Iterable:
                    return _convert_items(name, cast(Iterator[object], value), get_args(each)[0])
        return _convert(value, kind)
    except MismatchError as error:
        raise ArgumentError(error.told(name)) from None
    except IteratorError as error:
        raise cast(BaseException, error.__cause__) from None


def convert_setting(key: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return a setting as the type of its annotation, as `convert_argument` does; a path may stand for a text.

    Texts of settings are written into files, so they hold whole characters only.

    Raises:
        ConfigError: The value is of another type, or out of bounds; the message begins with the key.
    """
    try:
        converted = _convert(str(value) if kind is str and issubclass(type(value), Path) else value, kind)
        if isinstance(converted, str) and SURROGATES.search(converted):
            raise MismatchError("whole characters", converted)
    except MismatchError as error:
        raise ConfigError(error.told(key)) from None
    except IteratorError as error:
        raise cast(BaseException, error.__cause__) from None
    return converted


def python_scalar(value: object) -> object:
    """Return a scalar of NumPy or PyTorch, or of a subclass of text or number, as Python's own; else the value."""
    if getattr(value, "ndim", None) == 0 and callable(item := getattr(value, "item", None)):
        try:
            if getattr(value, "mask", False):  # NumPy's masked: no number, though it converts to 0
                return value
            value = item()
        except Exception:  # a tensor without data
            return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return int.__int__(value)
    return float.__float__(value) if isinstance(value, float) else value


@cache
def _field_kinds(owner: type) -> dict[str, Any]:
    """Return the annotations of a class's fields."""
    return get_type_hints(owner, include_extras=True)


def _convert_items(name: str, items: Iterator[object], kind: object) -> Iterator[Any]:
    """Yield the items of an iterator, each checked when it is taken."""
    for at, item in enumerate(items):
        yield convert_argument(f"{name}[{at}]", item, kind)


def _is_iterator(value: object) -> bool:
    """Return whether a value is an iterator, whatever asking for its class may raise."""
    try:
        return isinstance(value, Iterator)
    except Exception:
        return False


def _taken(items: Iterator[object]) -> Iterator[object]:
    """Yield the items of an iterator; an exception of its own becomes the cause of an `IteratorError`."""
    try:
        yield from items
    except Exception as error:
        raise IteratorError from error


def _convert(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a value as an annotation's type, or raise `MismatchError`."""
    if kind is Any or (kind is str and type(value) is str):
        return value
    try:
        return _convert_any(value, kind)
    except (MismatchError, IteratorError, MemoryError):
        raise
    except Exception as error:  # whatever a method of the value may raise
        raise MismatchError(noun_of(kind), value, f", which raises {type(error).__name__}") from None


def _convert_any(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a value as an annotation's type, or raise `MismatchError`, or what its own methods raise."""
    origin = get_origin(kind)
    if origin in UNIONS:
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
        raise MismatchError(noun_of(kind), value)
    return value


def _convert_union(value: object, kinds: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return a value as the first of several types that fits; the mismatch farthest into the value counts."""
    mismatches = list[MismatchError]()
    for kind in kinds:
        if kind is str and Path in kinds:
            continue  # a text is a path
        try:
            return _convert(value, kind)
        except MismatchError as error:
            mismatches.append(error)
    deepest = max(mismatches, key=lambda each: len(each.path))
    if deepest.path:
        raise deepest
    if all(each is bool or get_origin(each) is Literal for each in kinds):
        words = [word for each in kinds for word in get_args(each)]
        raise MismatchError(listed([*words, "true", "false"]), value, choice_hint(value, words))
    hint = "" if Path in kinds else "".join(dict.fromkeys(each.hint for each in mismatches))
    raise MismatchError(listed([each.expected for each in mismatches]), value, hint)


def _convert_list(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a list or tuple of converted items."""
    origin, kinds = get_origin(kind), get_args(kind)
    if isinstance(value, ONE_VALUE) or hasattr(value, "_fields"):
        fits = isinstance(value, str) and str in (kinds[0], *get_args(kinds[0]))
        hint = f"; put one text into a list: [{abbreviated(value)}]" if fits else ""
        raise MismatchError(noun_of(kind), value, hint)
    if isinstance(value, Set) and not isinstance(value, MappingView):  # views of a dict have its order
        raise MismatchError(noun_of(kind), value, ": a set has no order")
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy, of which some can be iterated over
        raise MismatchError(noun_of(kind), value)
    try:
        items = _bounded(value, kind)
    except TypeError:
        raise MismatchError(noun_of(kind), value) from None
    if origin is tuple and kinds[-1] is not Ellipsis:
        given = list(itertools.islice(items, len(kinds) + 1))
        if len(given) != len(kinds):
            raise MismatchError(noun_of(kind), value)
        return tuple(_convert_all(given, kinds))
    converted = _convert_all(items, itertools.repeat(kinds[0]))
    return tuple(converted) if origin is tuple else converted


def _bounded(value: object, kind: Any) -> Iterator[object]:  # noqa: ANN401
    """Return the items of an iterable; a mismatch where an endless one would have more and more of them."""
    items = _taken(value) if isinstance(value, Iterator) else iter(cast(Iterable[object], value))
    if type(value) in (list, tuple):
        return items
    paths = any(each is Path or Path in get_args(each) for each in get_args(kind))
    most = max(MAX_PATHS if paths else MAX_ITEMS, len(value) if isinstance(value, Sized) else 0)
    error = MismatchError(f"{noun_of(kind)} with at most {most:,} items", value)
    return itertools.chain(itertools.islice(items, most), _refused(items, error))


def _refused(items: Iterator[object], error: MismatchError) -> Iterator[object]:
    """Raise the error if there is an item left."""
    for _ in items:
        raise error
    yield from ()


def _convert_all(values: Iterable[object], kinds: Iterable[object], places: Iterable[Any] = ()) -> list[Any]:
    """Return items or fields as their types; `places` name them where numbers do not."""
    converted = list[Any]()
    for value, kind in zip(values, kinds, strict=False):
        try:
            converted.append(_convert(value, kind))
        except MismatchError as error:
            at = len(converted)
            raise error.below(next(itertools.islice(places, at, None), f"[{at}]")) from None
    return converted


def _convert_mapping(value: object, kind: Any) -> dict[Any, Any]:  # noqa: ANN401
    """Return a dict of converted keys and values."""
    if not isinstance(value, Mapping):
        raise MismatchError(noun_of(kind), value)
    table = finite_dict(value)
    keys, values = (itertools.repeat(each) for each in get_args(kind))
    names = [f"[{abbreviated(key)}]" for key in table]
    return dict(zip(_convert_all(table, keys, names), _convert_all(table.values(), values, names), strict=True))


def finite_dict(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """Return a mapping as a dict; a `MismatchError` where it yields more items than its length says."""
    if isinstance(value, MappingProxyType) and isinstance(copied := getattr(value, "copy", dict)(), dict):
        value = copied
    if type(value) is dict:
        return dict(value)
    most = dict.__len__(value) if isinstance(value, dict) else min(len(value), MAX_ITEMS)
    table = dict(itertools.islice(value.items(), most + 1))
    if len(table) > most:
        raise MismatchError(f"{noun_of(Mapping[str, Any])} with at most {most:,} keys", value)
    return table


def _convert_named_tuple(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a named tuple of converted fields; a plain tuple of as many is one."""
    if isinstance(value, tuple) and type(value) is kind and _holds_texts(kind) and {*map(type, value)} == {str}:
        return value  # an example, of which there may be millions
    names, kinds = kind._fields, _field_kinds(kind)
    needed = len(names) - len(kind._field_defaults)
    if not isinstance(value, tuple) or not needed <= len(value) <= len(names):
        raise MismatchError(f"{noun_of(kind)} ({', '.join(names)})", value)
    return kind(*_convert_all(value, (kinds[name] for name in names), [f".{name}" for name in names]))


@cache
def _holds_texts(kind: Any) -> bool:  # noqa: ANN401
    """Return whether all fields of a named tuple are texts."""
    return set(_field_kinds(kind).values()) == {str}


def _convert_path(value: object) -> Path:
    """Return a path that the system can be asked for."""
    try:
        text = os.fspath(cast(str, value))
        os.stat(text)
    except (TypeError, ValueError):  # no path; a NUL character or half a character in it
        raise MismatchError(noun_of(Path), value) from None
    except OSError as error:
        if error.errno == ENAMETOOLONG:
            raise MismatchError("a path that is not too long for the system", value) from None
    if isinstance(value, bytes) or not text:
        raise MismatchError(noun_of(Path), value)
    return Path(str.__str__(text))


def _convert_scalar(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a text, number, boolean or choice, with the bounds of the annotation; numbers are finite."""
    value = python_scalar(value)
    try:
        converted = msgspec.convert(value, kind)
    except (msgspec.ValidationError, UnicodeEncodeError) as error:
        choices = get_args(kind) if get_origin(kind) is Literal else ()
        hint = choice_hint(value, choices) if choices else ""
        raise MismatchError(_expectation(error, value, kind), value, hint) from None
    if isinstance(converted, float) and not isfinite(converted):
        raise MismatchError("a finite number", value)
    return converted


def _expectation(error: Exception, value: object, kind: Any) -> str:  # noqa: ANN401
    """Return in words what msgspec expected."""
    if get_origin(kind) is Literal:
        return listed(get_args(kind))
    if isinstance(error, UnicodeEncodeError):  # half a character where no text is expected
        return noun_of(kind)
    told = str(error)
    return expectation(told, value).removeprefix("expected ") if told.startswith("Expected") else "a finite number"
