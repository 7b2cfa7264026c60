"""Arguments of public functions and fields of public structs, checked against their annotations.

`convert_argument` takes the annotation of a parameter and returns the value as that type, or raises one
`ArgumentError`: "top_p: expected a number above 0.0, got nan", "sources[2]: expected a text, got None". What a
signature documents is what is checked.
"""

import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set, Sized
from contextvars import ContextVar
from dataclasses import fields
from errno import ENAMETOOLONG
from functools import cache, wraps
from math import isfinite
from pathlib import Path
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

import msgspec
import numpy as np
from msgspec import Meta

from pellucid.errors import ArgumentError, ConfigError
from pellucid.wording import UNIONS, abbreviated, choice_hint, expectation, is_array_kind, listed, noun_of

SURROGATES = re.compile("[\ud800-\udfff]")
"""Halves of characters, which no file in UTF-8 holds."""
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
def _field_kinds(owner: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the annotations of a class's fields, or of a function's parameters."""
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
    if is_array_kind(kind):
        return _convert_array(value, kind)
    if origin is Annotated and is_array_kind(get_args(kind)[0]):
        return _convert_array(value, *get_args(kind))
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
    if origin in (Sequence, Iterable) and type(value) is list and _are_examples(value, kinds[0]):
        return list(value)
    if isinstance(value, Set):
        raise MismatchError(noun_of(kind), value, ": a set has no order")
    if getattr(value, "ndim", None) == 0:  # a scalar of NumPy, of which some can be iterated over
        raise MismatchError(noun_of(kind), value)
    try:
        items = _taken(value) if isinstance(value, Iterator) else iter(cast(Iterable[object], value))
    except TypeError:
        raise MismatchError(noun_of(kind), value) from None
    if origin is tuple and kinds[-1] is not Ellipsis:
        given = list(items)
        if len(given) != len(kinds):
            raise MismatchError(noun_of(kind), value)
        return tuple(_convert_all(given, kinds))
    fit = type(value) in (list, tuple) and _all_fit(cast(Sequence[Any], value), kinds[0])
    converted = list(items) if fit else _convert_all(items, itertools.repeat(kinds[0]))
    return tuple(converted) if origin is tuple else converted


def _all_fit(values: Sequence[Any], kind: Any) -> bool:  # noqa: ANN401
    """Return whether values are of a type as they stand; found for all of them together, without a step for each."""
    types = {*map(type, values)}
    if not types:
        return True
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return types == {tuple} and _all_fit([*itertools.chain.from_iterable(values)], get_args(kind)[0])
    if hasattr(kind, "_fields"):
        columns = zip(zip(*values, strict=False), _field_kinds(kind).values(), strict=False)
        return types == {kind} and all(_all_fit(column, own) for column, own in columns)
    number, bounds = get_args(kind)[:2] if get_origin(kind) is Annotated else (kind, None)
    if types != {number}:
        return False
    if number not in (int, float):
        return bounds is None
    if bounds is None:
        return number is int or all(map(isfinite, values))
    if bounds != Meta(ge=bounds.ge, le=bounds.le, title=bounds.title):
        return False  # it bounds in other ways, too
    if number is float and not all(map(isfinite, values)):
        return False
    return (bounds.ge is None or bounds.ge <= min(values)) and (bounds.le is None or max(values) <= bounds.le)


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
    keys, values = (itertools.repeat(each) for each in get_args(kind))
    names = [f"[{abbreviated(key)}]" for key in value]
    return dict(zip(_convert_all(value, keys, names), _convert_all(value.values(), values, names), strict=True))


def _convert_named_tuple(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a named tuple of converted fields; a plain tuple of as many is one."""
    if type(value) is kind and _are_examples([value], kind):
        return value
    names, kinds = kind._fields, _field_kinds(kind)
    needed = len(names) - len(kind._field_defaults)
    if not isinstance(value, tuple) or not needed <= len(value) <= len(names):
        raise MismatchError(f"{noun_of(kind)} ({', '.join(names)})", value)
    return kind(*_convert_all(value, (kinds[name] for name in names), [f".{name}" for name in names]))


def _are_examples(values: list[Any], kind: Any) -> bool:  # noqa: ANN401
    """Return whether all values are named tuples of this type and hold texts alone: examples, maybe millions."""
    if not (isinstance(kind, type) and hasattr(kind, "_fields") and _holds_texts(kind)):
        return False
    return {*map(type, values)} <= {kind} and {*map(type, itertools.chain.from_iterable(values))} <= {str}


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
    if isinstance(converted, float) and not isfinite(converted) and kind != LogProbability:
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


LARGEST = 1e100
"""Numbers of arrays are at most so large, so that the sum of their squares is finite."""
WHOLE = 2**63 - 1
"""Whole numbers of arrays are at most so large."""
ROUNDING = 1e-3
"""How far rounding may put a probability above 1, and a log-probability above 0."""
LOG_PROBABILITY = Meta(le=ROUNDING, title="log-probability")
"""Bounds of a log-probability, of which −∞ is one."""
LogProbability = Annotated[float, LOG_PROBABILITY]
PROBABILITY = Meta(ge=0.0, le=1 + ROUNDING)
"""Bounds of a probability or a weight of attention."""

Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
_within_checked: ContextVar[bool] = ContextVar("within_checked", default=False)


def check_arguments(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function whose arguments are converted and checked against their annotations when it is called.

    Sizes of arrays that have one name are equal: of `points: Float[np.ndarray, "n 2"]` and `onto: Float[np.ndarray,
    "n 2"]` as well. A function that a checked one calls gets its arguments as they are, so that no loop within the
    package checks anything twice.

    Args:
        function: A function or method whose parameters are annotated; `self` is not.

    Returns:
        The function. It raises an `ArgumentError` that names the first argument which is not what its annotation says.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        if _within_checked.get():
            return function(*args, **kwargs)
        given, kinds, sizes = signature.bind(*args, **kwargs), _field_kinds(function), dict[str, _Size]()
        for name, value in given.arguments.items():
            if name in kinds:
                given.arguments[name] = converted = convert_argument(name, value, kinds[name])
                _check_sizes(name, converted, kinds[name], sizes)
        token = _within_checked.set(True)
        try:
            return function(*given.args, **given.kwargs)
        finally:
            _within_checked.reset(token)

    return checked


def argument_error(name: str, expected: str, value: object) -> ArgumentError:
    """Return the error about an argument that its annotation allows and the function cannot use."""
    return ArgumentError(MismatchError(expected, value, _shape_hint(value)).told(name))


def check_lengths(**given: Sized) -> None:
    """Check that arguments are of one length.

    Raises:
        ArgumentError: One is longer or shorter than the first; the message names both.
    """
    (first, values), *others = given.items()
    for name, other in others:
        if len(other) != len(values):
            raise ArgumentError(f"{name}: expected as many as {first} has ({len(values)}), got {len(other)}")


def check_not_empty(name: str, values: Sized, item: str) -> None:
    """Check that an argument holds an item at least.

    Raises:
        ArgumentError: It is empty.
    """
    if not len(values):
        raise argument_error(name, f"at least one {item}", values)


class _Size(NamedTuple):
    """The size of a dimension that has a name, or the sizes of several."""

    sizes: tuple[int, ...]
    owner: str
    """The argument that has this size."""


def _check_sizes(name: str, value: object, kind: Any, sizes: dict[str, _Size]) -> None:  # noqa: ANN401
    """Check that dimensions of one name are equal in all arrays of a call, and note those that are new."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if hasattr(kind, "_fields"):
        for field, own in _field_kinds(kind).items():
            _check_sizes(f"{name}.{field}", getattr(value, field), own, sizes)
    if not is_array_kind(kind):
        return
    dims, shape = kind.dim_str.split(), tuple(cast(Any, value).shape)
    extra = len(shape) - len(dims) + 1
    at, expected, wrong = 0, list[str](), dict[str, _Size]()
    for dim in dims:
        count = extra if dim.startswith("*") else 1
        own = shape[at : at + count]
        known = sizes.setdefault(dim, _Size(own, name)) if dim.lstrip("*").isidentifier() and dim != "_" else None
        expected += map(str, known.sizes if known else own)
        if known and known.sizes != own:
            wrong[dim] = known
        at += count
    if wrong:
        owners = listed(list(dict.fromkeys(each.owner for each in wrong.values())))
        hint = f" of shape {_shape_text(map(str, shape))}" + ("" if owners == name else f"; see the shape of {owners}")
        raise ArgumentError(MismatchError(f"an array of shape {_shape_text(expected)}", value, hint).told(name))


def _shape_text(sizes: Iterable[str]) -> str:
    """Return a shape in words: "(3, n)"."""
    return f"({', '.join(sizes)})"


def _shape_hint(value: object) -> str:
    """Return what stands behind an array in a message: its shape."""
    shape = getattr(value, "shape", None)
    return f" of shape {_shape_text(map(str, shape))}" if isinstance(shape, tuple) and shape else ""


def _convert_array(value: object, kind: Any, bounds: Meta = Meta()) -> Any:  # noqa: ANN401, B008
    """Return numbers as an array of the annotation's type and number of dimensions, or raise `MismatchError`.

    Lists become arrays, and so do PyTorch's tensors. Whole numbers count as numbers, booleans do not.
    """
    values = _as_array(value) if kind.array_type is np.ndarray else value
    if not isinstance(values, kind.array_type) or np.ma.is_masked(values):
        raise MismatchError(noun_of(kind), value)
    dims, shape = kind.dim_str.split(), tuple(values.shape)
    variadic = kind.index_variadic is not None
    fits = len(shape) >= len(dims) - 1 if variadic else len(shape) == len(dims)
    if not fits or any(dim.isdigit() and int(dim) != own for dim, own in zip(dims[::-1], shape[::-1], strict=False)):
        raise MismatchError(noun_of(kind), value, _shape_hint(values))
    return _convert_numbers(values, kind, bounds) if kind.array_type is np.ndarray else values


def _as_array(value: object) -> object:
    """Return what holds numbers as an array of NumPy."""
    if isinstance(value, str | bytes | Mapping | Set):
        return value
    if callable(detach := getattr(value, "detach", None)):  # a tensor of PyTorch, which this module does not import
        return detach().cpu().numpy()
    return np.asanyarray(list(_taken(value)) if isinstance(value, Iterator) else value)


def _convert_numbers(values: Any, kind: Any, bounds: Meta) -> Any:  # noqa: ANN401
    """Return an array as booleans, 64-bit whole numbers, or 32- or 64-bit floats, whose numbers are within bounds."""
    values = np.asarray(values)
    if "bool" in kind.dtypes:
        if values.dtype != np.bool_ and values.size:
            raise MismatchError(noun_of(kind), values)
        return values.astype(np.bool_, copy=False)
    whole = "float64" not in kind.dtypes
    if values.dtype.kind not in ("iu" if whole else "iuf") and values.size:
        raise MismatchError(noun_of(kind), values)
    largest = WHOLE if whole else LARGEST
    # As numbers of NumPy's own 64 bits, for those of Python become as narrow as the array.
    exact = int if whole else np.float64
    low, high = exact(-largest if bounds.ge is None else bounds.ge), exact(largest if bounds.le is None else bounds.le)
    outside = ~((values >= low) & (values <= high))
    if bounds == LOG_PROBABILITY:
        outside &= values != -np.inf
    if outside.any():
        place = tuple(int(each[0]) for each in np.nonzero(outside))
        number = values[place].item()
        words = "a finite number" if not isfinite(number) else f"a number from {low:g} to {high:g}"
        raise MismatchError(words, number, path=f"[{', '.join(map(str, place))}]")
    if whole:
        return values.astype(np.int64, copy=False)
    return values if values.dtype in (np.float32, np.float64) and values.dtype.isnative else values.astype(np.float64)
