"""Validation of the arguments of public functions and the fields of public structs, by their annotations.

`convert_argument` returns a value as the annotated type or raises an `ArgumentError`: "top_p: expected a number above
0.0, got nan", "sources[2]: expected a string, got None".
"""

import inspect
import itertools
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, MappingView, Sequence, Set, Sized
from contextvars import ContextVar
from dataclasses import fields
from errno import ENAMETOOLONG
from functools import cache, wraps
from math import isfinite
from pathlib import Path
from types import MappingProxyType
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
from msgspec.structs import force_setattr

from pellucid.error_messages import (
    UNION_TYPES,
    describe_expectation,
    describe_type,
    describe_value,
    is_array_kind,
    join_choices,
    suggest_choice,
)
from pellucid.errors import ArgumentError, ConfigError

SURROGATES = re.compile("[\ud800-\udfff]")
"""Unpaired surrogates, which UTF-8 cannot encode. Python has them in file names that are not UTF-8."""
SCALAR_TYPES = (str, bytes, bytearray, memoryview, Mapping)
"""Iterable types that count as a single value."""
MAX_ITEMS = 2**20
"""Maximum number of items of an iterable without length, and of a mapping other than a dict."""
MAX_PATHS = 2**12
"""Maximum number of paths in such an iterable; each is looked up in the file system."""


def replace_surrogates(text: str) -> str:
    """Return a text with U+FFFD in place of unpaired surrogates, so that UTF-8 can encode it.

    Args:
        text: Any text, such as the name of a file.
    """
    return SURROGATES.sub("\ufffd", text)


class TypeMismatchError(Exception):
    """A value that does not match its annotation. Callers of this module get an `ArgumentError` or a `ConfigError`."""

    def __init__(self, expected: str, value: object, hint: str = "", path: str = "") -> None:
        """Store the mismatch.

        Args:
            expected: Description of the expected value, which follows "expected " in the message.
            value: The value.
            hint: Further text for the end of the message; none by default.
            path: Location of the value within the argument, such as "[2].target"; "" for the argument itself.
        """
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.hint = hint
        self.path = path

    def message(self, name: str) -> str:
        """Return the error message for an argument: "sources[2]: expected a string, got None".

        Args:
            name: Name of the argument.
        """
        return f"{name}{self.path}: expected {self.expected}, got {describe_value(self.value)}{self.hint}"

    def nested_in(self, location: str) -> "TypeMismatchError":
        """Return the mismatch with its location within the containing value.

        Args:
            location: Item or field of the containing value: "[2]" or ".target".
        """
        return TypeMismatchError(self.expected, self.value, self.hint, location + self.path)


class ArgumentIteratorError(Exception):
    """Wrapper of an exception that an iterator argument raised; its cause is that exception.

    `convert_argument` and `convert_setting` raise the cause itself.
    """


class CheckedFields:
    """Base class of frozen dataclasses whose fields are validated, and converted, on construction.

    Raises:
        ArgumentError: A field does not match its annotation.
    """

    def __post_init__(self) -> None:
        """Convert each field to its annotated type; raise `ArgumentError` for the first that does not match."""
        kinds = _field_types(cast(Any, type(self)))
        for field in fields(cast(Any, self)):
            value = convert_argument(field.name, getattr(self, field.name), kinds[field.name])
            object.__setattr__(self, field.name, value)


def convert_struct_fields(struct: msgspec.Struct) -> None:
    """Convert the fields of a new struct to their annotated types, in place; for its `__post_init__`.

    Args:
        struct: The struct, which may be frozen.

    Raises:
        ArgumentError: A field does not match its annotation; the message names the first such field.
    """
    kinds = _field_types(type(struct))
    for name in struct.__struct_fields__:
        force_setattr(struct, name, convert_argument(name, getattr(struct, name), kinds[name]))


def convert_argument(name: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return an argument as the type of its annotation.

    NumPy and PyTorch scalars, and subclasses of str, int and float, become the built-in types. A str is accepted as a
    path, and a tuple as a named tuple. A list, tuple or sequence may be any iterable except str, bytes, mappings and
    sets, of at most `MAX_ITEMS` items if it has no length. An iterator passed as `Iterable` stays an iterator, whose
    items are checked as they are consumed. Numbers must be finite. Exceptions that an iterator raises are passed on;
    exceptions of other methods of a value are mismatches.

    Args:
        name: Name of the argument, for the message.
        value: The value.
        kind: The annotation: a class, an array type, `Literal`, `Annotated` with bounds, or containers and unions of
            these.

    Returns:
        The converted value; for an iterator passed as `Iterable`, an iterator over converted items.

    Raises:
        ArgumentError: The value has another type or is out of range.
    """
    try:
        if _is_iterator(value):
            for alternative in get_args(kind) if get_origin(kind) in UNION_TYPES else (kind,):
                if get_origin(alternative) is Iterable:
                    _check_iterable(value, kind)
                    return _convert_items(name, cast(Iterator[object], value), get_args(alternative)[0])
        return _convert(value, kind)
    except TypeMismatchError as error:
        raise ArgumentError(error.message(name)) from None
    except ArgumentIteratorError as error:
        raise cast(BaseException, error.__cause__) from None


def convert_setting(key: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return a setting as the type of its annotation, as `convert_argument` does; a path is accepted for a str.

    Settings are written to files, so a str with unpaired surrogates, which UTF-8 cannot encode, is refused.

    Args:
        key: Full name of the setting, for the message.
        value: The value.
        kind: The annotation.

    Returns:
        The converted value.

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

    Args:
        value: Any value; others, such as a masked NumPy constant or a tensor without data, are returned unchanged.
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
def _field_types(owner: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return the annotations of the fields of a class or of the parameters of a function."""
    return get_type_hints(owner, include_extras=True)


def _convert_items(name: str, items: Iterator[object], kind: object) -> Iterator[Any]:
    """Yield the items of an iterator, each converted when it is consumed.

    The iterator runs code of the caller, whose own calls of checked functions are checked.
    """
    for index in itertools.count():
        token = _within_checked.set(False)
        try:
            item = next(items)
        except StopIteration:
            return
        finally:
            _within_checked.reset(token)
        yield convert_argument(f"{name}[{index}]", item, kind)


def _is_iterator(value: object) -> bool:
    """Return whether a value is an iterator, even if its `__class__` raises an exception."""
    try:
        return isinstance(value, Iterator)
    except Exception:
        return False


def _check_iterable(items: object, kind: Any) -> None:  # noqa: ANN401
    """Raise `TypeMismatchError` for an iterator that cannot be read at all, such as a closed file."""
    try:
        iter(cast(Iterable[object], items))
    except Exception as error:
        hint = (
            ", which is closed" if getattr(items, "closed", None) is True else f", which raises {type(error).__name__}"
        )
        raise TypeMismatchError(describe_type(kind), items, hint) from None


def _iterate(items: Iterator[object]) -> Iterator[object]:
    """Yield the items of an iterator; wrap its exceptions in an `ArgumentIteratorError`.

    Unlike `yield from`, the loop leaves a file or generator open when it ends early.
    """
    try:
        for item in items:  # noqa: UP028
            yield item
    except Exception as error:
        raise ArgumentIteratorError from error


def _items(values: object) -> Iterator[object]:
    """Return an iterator over a list-like value; raise `TypeError` if it is not iterable.

    Without `__iter__`, as many items are read as the value has by its length, because its `__getitem__` may never end.
    """
    items = iter(cast(Iterable[object], values))
    return items if hasattr(type(values), "__iter__") else itertools.islice(items, len(cast(Sequence[object], values)))


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
    if is_array_kind(kind):
        return _convert_array(value, kind)
    if origin is Annotated and is_array_kind(get_args(kind)[0]):
        return _convert_array(value, *get_args(kind))
    if kind in (int, float, bool, str) or origin in (Literal, Annotated):
        return _convert_scalar(value, kind)
    if hasattr(kind, "_fields"):
        return _convert_named_tuple(value, kind)
    if not isinstance(value, Callable if origin is Callable else kind):
        raise TypeMismatchError("a function" if origin is Callable else describe_type(kind), value)
    return value


def _convert_union(value: object, kinds: tuple[Any, ...]) -> Any:  # noqa: ANN401
    """Return a value as the first matching type of a union; raise the mismatch that is nested most deeply."""
    if value is None and type(None) in kinds:
        return None
    mismatches = list[TypeMismatchError]()
    for kind in kinds:
        if kind is str and Path in kinds:
            continue  # a str is converted as a path
        try:
            converted = _convert(value, kind)
        except TypeMismatchError as error:
            mismatches.append(error)
        else:
            mismatches.clear()  # a reference cycle: each holds the frames, and so the variables, of all callers
            return converted
    deepest = max(mismatches, key=lambda member: len(member.path))
    if deepest.path:
        raise deepest
    if all(member is bool or get_origin(member) is Literal for member in kinds):
        choices = [word for member in kinds for word in get_args(member)]
        raise TypeMismatchError(join_choices([*choices, "true", "false"]), value, suggest_choice(value, choices))
    hint = "" if Path in kinds and len(mismatches) > 1 else "".join(dict.fromkeys(member.hint for member in mismatches))
    raise TypeMismatchError(join_choices([member.expected for member in mismatches]), value, hint)


def _convert_list(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a list or tuple with converted items."""
    origin, kinds = get_origin(kind), get_args(kind)
    if isinstance(value, SCALAR_TYPES) or hasattr(value, "_fields"):
        fits = isinstance(value, str) and str in (kinds[0], *get_args(kinds[0]))
        hint = f"; put a single string into a list: [{describe_value(value)}]" if fits else ""
        raise TypeMismatchError(describe_type(kind), value, hint)
    if origin in (Sequence, Iterable) and type(value) is list and _are_examples(value, kinds[0]):
        return list(value)
    if isinstance(value, Set) and not isinstance(value, MappingView):  # views of a dict have its order
        raise TypeMismatchError(describe_type(kind), value, ": a set has no order")
    if getattr(value, "ndim", None) == 0:  # a NumPy scalar, some of which are iterable
        raise TypeMismatchError(describe_type(kind), value)
    try:
        items = _bounded(value, kind)
    except TypeError:
        raise TypeMismatchError(describe_type(kind), value) from None
    if origin is tuple and kinds[-1] is not Ellipsis:
        values = list(itertools.islice(items, len(kinds) + 1))
        if len(values) != len(kinds):
            raise TypeMismatchError(describe_type(kind), value)
        return tuple(_convert_sequence(values, kinds))
    fit = type(value) in (list, tuple) and _all_fit(cast(Sequence[Any], value), kinds[0])
    converted = list(items) if fit else _convert_sequence(items, itertools.repeat(kinds[0]))
    return tuple(converted) if origin is tuple else converted


def _all_fit(values: Sequence[Any], kind: Any) -> bool:  # noqa: ANN401
    """Return whether all values already have a type, checked for all of them at once."""
    types = {*map(type, values)}
    if not types:
        return True
    if get_origin(kind) is tuple and get_args(kind)[-1] is Ellipsis:
        return types == {tuple} and _all_fit([*itertools.chain.from_iterable(values)], get_args(kind)[0])
    if hasattr(kind, "_fields"):
        if types != {kind}:
            return False
        columns = zip(zip(*values, strict=False), _field_types(kind).values(), strict=False)
        return all(_all_fit(column, field_type) for column, field_type in columns)
    number, bounds = get_args(kind)[:2] if get_origin(kind) is Annotated else (kind, None)
    if types != {number}:
        return False
    if number not in (int, float):
        return bounds is None
    if bounds is None:
        return number is int or all(map(isfinite, values))
    if bounds != Meta(ge=bounds.ge, le=bounds.le, title=bounds.title):
        return False  # it has other bounds, too
    if number is float and not all(map(isfinite, values)):
        return False
    return (bounds.ge is None or bounds.ge <= min(values)) and (bounds.le is None or max(values) <= bounds.le)


def _bounded(value: object, kind: Any) -> Iterator[object]:  # noqa: ANN401
    """Return the items of an iterable; raise `TypeMismatchError` after the maximum number of them."""
    items = _iterate(value) if isinstance(value, Iterator) else _items(value)
    if type(value) in (list, tuple):
        return items
    if isinstance(value, Iterator):
        _check_iterable(value, kind)
    paths = any(item_type is Path or Path in get_args(item_type) for item_type in get_args(kind))
    maximum = max(MAX_PATHS if paths else MAX_ITEMS, len(value) if isinstance(value, Sized) else 0)
    error = TypeMismatchError(f"{describe_type(kind)} with at most {maximum:,} items", value)
    return itertools.chain(itertools.islice(items, maximum), _refused(items, error))


def _refused(items: Iterator[object], error: TypeMismatchError) -> Iterator[object]:
    """Raise the error if there is an item left."""
    for _ in items:
        raise error
    yield from ()


def _convert_sequence(values: Iterable[object], kinds: Iterable[object], locations: Iterable[Any] = ()) -> list[Any]:
    """Return converted items or fields.

    Args:
        values: The items or fields.
        kinds: Annotation of each.
        locations: Location of each in error messages; "[0]", "[1]", … by default.
    """
    converted = list[Any]()
    for value, kind in zip(values, kinds, strict=False):
        try:
            converted.append(_convert(value, kind))
        except TypeMismatchError as error:
            index = len(converted)
            raise error.nested_in(next(itertools.islice(locations, index, None), f"[{index}]")) from None
    return converted


def _convert_mapping(value: object, kind: Any) -> dict[Any, Any]:  # noqa: ANN401
    """Return a dict with converted keys and values."""
    if not isinstance(value, Mapping):
        raise TypeMismatchError(describe_type(kind), value)
    table = copy_bounded_mapping(value)
    keys, values = (itertools.repeat(item_type) for item_type in get_args(kind))
    names = [f"[{describe_value(key)}]" for key in table]
    return dict(
        zip(_convert_sequence(table, keys, names), _convert_sequence(table.values(), values, names), strict=True)
    )


def copy_bounded_mapping(value: Mapping[Any, Any]) -> dict[Any, Any]:
    """Copy a mapping to a dict, without endless iteration over a mapping that is wrong about its length.

    Args:
        value: The mapping.

    Raises:
        TypeMismatchError: A mapping that is not a dict yields more items than its length or `MAX_ITEMS`, or a subclass
            of dict yields more than it holds.
    """
    if isinstance(value, MappingProxyType):
        copied: object = value.copy()
        value = copied if isinstance(copied, dict) else value
    if type(value) is dict:
        return dict(value)
    maximum = dict.__len__(value) if isinstance(value, dict) else min(len(value), MAX_ITEMS)
    table = dict(itertools.islice(value.items(), maximum + 1))
    if len(table) > maximum:
        raise TypeMismatchError(f"{describe_type(Mapping[str, Any])} with at most {maximum:,} keys", value)
    return table


def _convert_named_tuple(value: object, kind: Any) -> Any:  # noqa: ANN401
    """Return a named tuple with converted fields; a tuple of the same length is accepted."""
    if type(value) is kind and _are_examples([value], kind):
        return value
    names, kinds = kind._fields, _field_types(kind)
    needed = len(names) - len(kind._field_defaults)
    if not isinstance(value, tuple) or not needed <= len(value) <= len(names):
        raise TypeMismatchError(f"{describe_type(kind)} ({', '.join(names)})", value)
    return kind(*_convert_sequence(value, (kinds[name] for name in names), [f".{name}" for name in names]))


def _are_examples(values: list[Any], kind: Any) -> bool:  # noqa: ANN401
    """Return whether all values are named tuples of this type with string fields, as examples are (fast path)."""
    if not (isinstance(kind, type) and hasattr(kind, "_fields") and _holds_only_strings(kind)):
        return False
    return {*map(type, values)} <= {kind} and {*map(type, itertools.chain.from_iterable(values))} <= {str}


@cache
def _holds_only_strings(kind: Any) -> bool:  # noqa: ANN401
    """Return whether all fields of a named tuple are str."""
    return set(_field_types(kind).values()) == {str}


def _convert_path(value: object) -> Path:
    """Return a path that the system accepts."""
    try:
        text = os.fspath(cast(str, value))
        os.stat(text)
    except TypeError:
        raise TypeMismatchError(describe_type(Path), value) from None
    except UnicodeEncodeError:
        raise TypeMismatchError(describe_type(Path), value, ", which has an unpaired surrogate") from None
    except ValueError:
        raise TypeMismatchError(describe_type(Path), value, ", which has a NUL character") from None
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
    if isinstance(converted, float) and not isfinite(converted) and kind != LogProbability:
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


MAX_ARRAY_VALUE = 1e100
"""Maximum absolute value of array elements; the sum of their squares is then finite."""
MAX_ARRAY_DEPTH = 64
"""Maximum number of dimensions of a NumPy array."""
NUMBER_TYPES = (int, float, np.generic, np.ndarray)
"""Types that NumPy does not read item by item."""
MAX_ARRAY_INTEGER = 2**63 - 1
"""Maximum absolute value of whole numbers in arrays."""
ROUNDING = 1e-3
"""Tolerance for rounding, by which a probability may exceed 1 and a log-probability 0."""
LOG_PROBABILITY = Meta(le=ROUNDING, title="log-probability")
"""Bounds of a log-probability, which may be −∞."""
LogProbability = Annotated[float, LOG_PROBABILITY]
Count = Annotated[int, Meta(ge=0, le=2**31)]
"""A number of examples or symbols; the bound keeps the sum over all examples within 64 bits."""
PROBABILITY = Meta(ge=0.0, le=1 + ROUNDING)
"""Bounds of a probability or an attention weight."""

UNCHECKED = Meta(title="unchecked")
"""Mark of a parameter that `check_arguments` passes on: `Annotated[Iterable[bytes], UNCHECKED]`."""
Parameters = ParamSpec("Parameters")
Returned = TypeVar("Returned")
_within_checked: ContextVar[bool] = ContextVar("within_checked", default=False)


def check_arguments(function: Callable[Parameters, Returned]) -> Callable[Parameters, Returned]:
    """Return a function that converts its arguments by their annotations, as `convert_argument` does; a decorator.

    Array dimensions with the same name must be equal: for `points: Float[np.ndarray, "n 2"]` and `onto:
    Float[np.ndarray, "n 2"]`, both n. Arguments without annotation are not checked, and a parameter marked as
    `UNCHECKED` is passed on: its items are checked as they are read. Calls from within a checked function are not
    checked again.

    Args:
        function: A function or method with annotated parameters; `self` needs no annotation.

    Returns:
        The function, which raises an `ArgumentError` for the first argument that does not match its annotation, and
        Python's `TypeError` for a missing or unexpected one.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def checked(*args: Parameters.args, **kwargs: Parameters.kwargs) -> Returned:
        if _within_checked.get():
            return function(*args, **kwargs)
        bound, kinds, sizes = signature.bind(*args, **kwargs), _field_types(function), dict[str, _Size]()
        for name, value in bound.arguments.items():
            if name in kinds and UNCHECKED not in getattr(kinds[name], "__metadata__", ()):
                bound.arguments[name] = converted = convert_argument(name, value, kinds[name])
                _check_sizes(name, converted, kinds[name], sizes)
        try:
            _within_checked.set(True)  # within the block: an interruption after it must not turn off later checks
            return function(*bound.args, **bound.kwargs)
        finally:
            _within_checked.set(False)

    return checked


def argument_error(name: str, expected: str, value: object) -> ArgumentError:
    """Return the error for an argument that matches its annotation but cannot be used.

    Args:
        name: Name of the argument.
        expected: Description of the expected value, which follows "expected " in the message.
        value: The value; the message includes the shape of an array.
    """
    return ArgumentError(TypeMismatchError(expected, value, _shape_hint(value)).message(name))


def check_lengths(arguments: Mapping[str, Sized]) -> None:
    """Check that arguments have equal lengths.

    Args:
        arguments: The arguments by their names, at least one.

    Raises:
        ArgumentError: An argument has another length than the first; the message names both.
    """
    (first, values), *others = arguments.items()
    for name, other in others:
        if len(other) != len(values):
            raise ArgumentError(f"{name}: expected as many as {first} has ({len(values)}), got {len(other)}")


def check_not_empty(name: str, values: Sized, item: str) -> None:
    """Check that an argument has at least one item.

    Args:
        name: Name of the argument.
        values: The value.
        item: Name of an item, for the message.

    Raises:
        ArgumentError: The value is empty.
    """
    if not len(values):
        raise argument_error(name, f"at least one {item}", values)


class _Size(NamedTuple):
    """Size of a named dimension, or the sizes of several."""

    sizes: tuple[int, ...]
    owner: str
    """Argument that has this size."""


def _check_sizes(name: str, value: object, kind: Any, sizes: dict[str, _Size]) -> None:  # noqa: ANN401
    """Check that dimensions of equal names are equal in all arrays of a call, and add new ones to `sizes`."""
    kind = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if hasattr(kind, "_fields"):
        for field, actual in _field_types(kind).items():
            _check_sizes(f"{name}.{field}", getattr(value, field), actual, sizes)
    if not is_array_kind(kind):
        return
    dims, shape = kind.dim_str.split(), tuple(cast(Any, value).shape)
    extra = len(shape) - len(dims) + 1
    axis, expected, wrong = 0, list[str](), dict[str, _Size]()
    for dim in dims:
        count = extra if dim.startswith("*") else 1
        actual = shape[axis : axis + count]
        known = sizes.setdefault(dim, _Size(actual, name)) if dim.lstrip("*").isidentifier() and dim != "_" else None
        expected += map(str, known.sizes if known else actual)
        if known and known.sizes != actual:
            wrong[dim] = known
        axis += count
    if wrong:
        owners = join_choices(list(dict.fromkeys(size.owner for size in wrong.values())))
        hint = f" of shape {_shape_text(map(str, shape))}" + ("" if owners == name else f"; see the shape of {owners}")
        raise ArgumentError(TypeMismatchError(f"an array of shape {_shape_text(expected)}", value, hint).message(name))


def _shape_text(sizes: Iterable[str]) -> str:
    """Return a shape as text: "(3, n)"."""
    return f"({', '.join(sizes)})"


def _shape_hint(value: object) -> str:
    """Return the shape of an array for the end of a message."""
    try:
        shape = getattr(value, "shape", None)
    except Exception:  # methods of the value may raise anything
        return ""
    return f" of shape {_shape_text(map(str, shape))}" if isinstance(shape, tuple) and shape else ""


def _convert_array(value: object, kind: Any, bounds: Meta = Meta()) -> Any:  # noqa: ANN401, B008
    """Return numbers as an array of the annotated type and number of dimensions, or raise `TypeMismatchError`.

    Lists and PyTorch tensors become arrays. Whole numbers count as numbers, booleans do not.
    """
    values = _as_array(value, kind) if kind.array_type is np.ndarray else value
    is_array = hasattr(values, "shape") if kind.array_type is Any else isinstance(values, kind.array_type)
    if not is_array or np.ma.is_masked(values):
        raise TypeMismatchError(describe_type(kind), value)
    dims, shape = kind.dim_str.split(), tuple(cast(Any, values).shape)
    variadic = kind.index_variadic is not None
    fits = len(shape) >= len(dims) - 1 if variadic else len(shape) == len(dims)
    if not fits or any(
        dim.isdigit() and int(dim) != actual for dim, actual in zip(dims[::-1], shape[::-1], strict=False)
    ):
        raise TypeMismatchError(describe_type(kind), value, _shape_hint(values))
    return _convert_numbers(values, kind, bounds) if kind.array_type is np.ndarray else values


def _as_array(value: object, kind: Any) -> object:  # noqa: ANN401
    """Return an array-like value as a NumPy array."""
    if isinstance(value, str | bytes | Mapping | Set):
        return value
    if callable(detach := getattr(value, "detach", None)):  # a tensor of PyTorch, which this module does not import
        return detach().cpu().numpy()
    return np.asanyarray(_bounded_rows(list(_bounded(value, kind)) if isinstance(value, Iterator) else value, kind))


def _bounded_rows(value: object, kind: Any, depth: int = 0) -> object:  # noqa: ANN401
    """Return nested sequences as lists of at most `MAX_ITEMS` items or their length; NumPy would read without end.

    Numbers, arrays, tensors and buffers are returned unchanged, and so are sequences nested too deeply for an array.
    """
    if depth > MAX_ARRAY_DEPTH:
        return value
    if type(value) not in (list, tuple):
        if not _is_read_by_items(value):
            return value
        value = list(_bounded(value, kind))
    rows = cast(Sequence[object], value)
    if all(issubclass(row_type, NUMBER_TYPES) for row_type in {*map(type, rows)}):
        return rows
    return [_bounded_rows(row, kind, depth + 1) for row in rows]


def _is_read_by_items(value: object) -> bool:
    """Return whether NumPy reads a value item by item: a sequence that is not a text, buffer or array."""
    kind = type(value)
    if not (hasattr(kind, "__len__") and hasattr(kind, "__getitem__")) or isinstance(value, SCALAR_TYPES):
        return False
    if any(hasattr(value, name) for name in ("__array__", "__array_interface__", "__array_struct__")):
        return False
    try:
        memoryview(cast(bytes, value))
    except TypeError:
        return True
    return False


def _convert_numbers(values: Any, kind: Any, bounds: Meta) -> Any:  # noqa: ANN401
    """Return an array as booleans, 64-bit whole numbers, or 32- or 64-bit floats within bounds."""
    values = np.asarray(values)
    if "bool" in kind.dtypes:
        if values.dtype != np.bool_ and values.size:
            raise TypeMismatchError(describe_type(kind), values)
        return values.astype(np.bool_, copy=False)
    integers = "float64" not in kind.dtypes
    if values.dtype.kind not in ("iu" if integers else "iuf") and values.size:
        raise TypeMismatchError(describe_type(kind), values)
    largest = MAX_ARRAY_INTEGER if integers else MAX_ARRAY_VALUE
    # As 64-bit NumPy numbers, because Python numbers are converted to the type of the array.
    exact = int if integers else np.float64
    low, high = exact(-largest if bounds.ge is None else bounds.ge), exact(largest if bounds.le is None else bounds.le)
    outside = ~((values >= low) & (values <= high))
    if bounds == LOG_PROBABILITY:
        outside &= values != -np.inf
    if outside.any():
        index = tuple(int(axis[0]) for axis in np.nonzero(outside))
        number = values[index].item()
        expected = "a finite number" if not isfinite(number) else f"a number from {low:g} to {high:g}"
        raise TypeMismatchError(expected, number, path=f"[{', '.join(map(str, index))}]")
    if integers:
        return values.astype(np.int64, copy=False)
    return values if values.dtype in (np.float32, np.float64) and values.dtype.isnative else values.astype(np.float64)
