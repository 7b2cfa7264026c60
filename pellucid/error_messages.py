"""Descriptions of types and values for error messages: "expected a list of strings, got 5"."""

import math
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pellucid.errors import quote, suggest

ACTIVE_CODE_POINTS = (*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ACTIVE_CODE_POINTS}
"""Escapes for characters that JSON allows but that control a terminal: controls, line separators, bidirectional marks.
"""
UNION_TYPES = (Union, types.UnionType)
"""Origins of union annotations."""
MSGSPEC_PHRASES: Mapping[str, str] = {
    **{"`int`": "a whole number", "`float`": "a number", "`bool`": "true or false", "`str`": "a string"},
    **{"`array`": "a list", "`object`": "a table"},
    **{" >= ": " of at least ", " <= ": " of at most ", " > ": " above ", " < ": " below "},
}
"""Phrases of msgspec, and their replacements."""
TYPE_NOUNS: Mapping[object, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "booleans"),
    str: ("a string", "strings"),
    bytes: ("bytes", "bytes"),
    Path: ("a path", "paths"),
    types.NoneType: ("None", "None"),
}
"""Description of one value of a type, and of several."""


def describe_value(value: object) -> str:
    """Return a value as error messages quote it, abbreviated: `quote`, or "an iterator (generator)".

    Args:
        value: Any value, even one whose methods raise exceptions; such a one is described by its type.
    """
    try:
        return f"an iterator ({type(value).__name__})" if isinstance(value, Iterator) else quote(value)
    except Exception:  # methods of the value may raise anything
        return f"a value of type {type(value).__name__}"


def describe_suffix(suffix: str) -> str:
    """Return the ending of a file name as error messages quote it: "'.pdf'", or "a name without an ending".

    Args:
        suffix: The suffix with its period; "" if there is none.
    """
    return quote(suffix) if suffix else "a name without an ending"


def escape_json(text: str) -> str:
    r"""Return JSON with escapes for characters that control a terminal or end a line: \x7f becomes \u007f.

    Args:
        text: JSON.
    """
    return text if text.isprintable() else text.translate(JSON_ESCAPES)


def translate_expectation(message: str) -> str:
    """Return the expectation in a msgspec message in plain words: "expected a whole number of at least 1".

    Args:
        message: Message of msgspec that begins with "Expected"; text from ", got" on is dropped.
    """
    expected = message.partition(", got ")[0]
    for phrase, replacement in MSGSPEC_PHRASES.items():
        expected = expected.replace(phrase, replacement)
    return f"{expected[0].lower()}{expected[1:]}"


def describe_expectation(message: str, value: object) -> str:
    """Return the expectation in a msgspec message in plain words; for an infinite value "expected a finite number".

    Args:
        message: Message of msgspec that begins with "Expected".
        value: The value that msgspec refused.
    """
    infinite = isinstance(value, float) and math.isinf(value)
    return "expected a finite number" if infinite else translate_expectation(message)


def choice_message(choices: Sequence[str], value: object) -> str:
    """Return the error message for an invalid choice: "expected gru or lstm, got 'gur'; did you mean 'gru'?".

    Args:
        choices: The valid values, at least one.
        value: The invalid value.
    """
    return f"expected {join_choices(choices)}, got {describe_value(value)}{suggest_choice(value, choices)}"


def join_choices(choices: Sequence[str]) -> str:
    """Return choices as text: "a, b or c".

    Args:
        choices: At least one choice.
    """
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def suggest_choice(value: object, choices: Sequence[str]) -> str:
    """Return a suggestion for a misspelled choice, "; did you mean 'gru'?", or "" if no choice is similar.

    Args:
        value: The invalid value; only a str has a suggestion.
        choices: The valid values.
    """
    return suggest(value, choices) if isinstance(value, str) else ""


def describe_type(kind: Any, plural: bool = False) -> str:  # noqa: ANN401
    """Return an annotation in words: "a list of strings".

    Args:
        kind: The annotation, of any form that `convert_argument` accepts.
        plural: Whether to describe several values, "lists of strings"; False by default.
    """
    origin, kinds = get_origin(kind), get_args(kind)
    if kind in TYPE_NOUNS:
        return TYPE_NOUNS[kind][plural]
    if origin in UNION_TYPES:
        members = [member for member in kinds if member is not str or Path not in kinds]
        return join_choices(list(dict.fromkeys(describe_type(member, plural) for member in members)))
    if origin is Annotated:
        return describe_type(kinds[0], plural)
    if is_array_kind(kind):
        return f"{'arrays' if plural else 'an array'} of {_noun_of_numbers(kind)} of shape {_shape_of(kind)}"
    if origin is Literal:
        return join_choices(kinds)
    if origin is Mapping:
        return "mappings" if plural else "a mapping (dict)"
    if origin is tuple and kinds[-1] is not Ellipsis:
        return f"{'tuples' if plural else 'a tuple'} of {len(kinds)} {describe_type(kinds[0], True)}"
    if origin is not None:
        return f"{'lists' if plural else 'a list'} of {describe_type(kinds[0], True)}"
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return f"{kind.__name__} objects" if plural else f"{article} {kind.__name__}"


def is_array_kind(kind: object) -> bool:
    """Return whether an annotation is an array type, such as `Float[np.ndarray, "n D"]`.

    Args:
        kind: The annotation.
    """
    return isinstance(kind, type) and hasattr(kind, "dim_str") and hasattr(kind, "array_type")


def _noun_of_numbers(kind: Any) -> str:  # noqa: ANN401
    """Describe the elements of an array type."""
    if "bool" in kind.dtypes:
        return "booleans"
    return "numbers" if "float64" in kind.dtypes else "whole numbers"


def _shape_of(kind: Any) -> str:  # noqa: ANN401
    """Describe the shape of an array type: "(n, D)", with "…" for sizes without a name."""
    dims = ["…" if dim == "_" or dim.startswith("*") else dim for dim in kind.dim_str.split()]
    return f"({', '.join(dims)})"
