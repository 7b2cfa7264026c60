"""Types and values in words, for messages: "expected a list of texts, got 5"."""

import math
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pellucid.errors import nearest, quote

ACTIVE = (*range(0x7F, 0xA0), *range(0x2028, 0x202F), *range(0x2066, 0x206A))
JSON_ESCAPES = {code: f"\\u{code:04x}" for code in ACTIVE}
"""What JSON may hold as it stands, and acts on a terminal: controls, ends of lines, marks of direction."""
UNIONS = (Union, types.UnionType)
"""What an annotation of several types is made of."""
WORDS: Mapping[str, str] = {
    **{"`int`": "a whole number", "`float`": "a number", "`bool`": "true or false", "`str`": "a text"},
    **{"`array`": "a list", "`object`": "a table"},
    **{" >= ": " of at least ", " <= ": " of at most ", " > ": " above ", " < ": " below "},
}
"""What msgspec says of a value, and what is said instead."""
NOUNS: Mapping[object, tuple[str, str]] = {
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("True or False", "booleans"),
    str: ("a text", "texts"),
    bytes: ("bytes", "bytes"),
    Path: ("a path", "paths"),
    types.NoneType: ("None", "None"),
}
"""One value of a type, and several, in words."""


def abbreviated(value: object) -> str:
    """Return what a message shows of a value: its representation, cut where it is long."""
    try:
        return f"an iterator ({type(value).__name__})" if isinstance(value, Iterator) else quote(value)
    except Exception:  # whatever an object's own class or length may raise
        return f"a value of type {type(value).__name__}"


def escape_json(text: str) -> str:
    r"""Return JSON in which no character acts on a terminal or ends a line: \x7f becomes \u007f."""
    return text if text.isprintable() else text.translate(JSON_ESCAPES)


def in_words(told: str) -> str:
    """Return what msgspec expects, without Python's words: "expected a whole number of at least 1"."""
    expected = told.partition(", got ")[0]
    for theirs, ours in WORDS.items():
        expected = expected.replace(theirs, ours)
    return f"{expected[0].lower()}{expected[1:]}"


def expectation(told: str, value: object) -> str:
    """Return what msgspec expects of a value, in words; of infinity, that a number is finite."""
    infinite = isinstance(value, float) and math.isinf(value)
    return "expected a finite number" if infinite else in_words(told)


def expected_choice(choices: Sequence[str], value: object) -> str:
    """Return what a choice takes: "expected gru or lstm, got 'gur'; did you mean 'gru'?"."""
    return f"expected {listed(choices)}, got {abbreviated(value)}{choice_hint(value, choices)}"


def listed(choices: Sequence[str]) -> str:
    """Return choices in words."""
    return " or ".join([", ".join(choices[:-1]), choices[-1]] if len(choices) > 1 else choices)


def choice_hint(value: object, choices: Sequence[str]) -> str:
    """Return a hint at the choice that was meant, if one is near."""
    return nearest(value, choices) if isinstance(value, str) else ""


def noun_of(kind: Any, plural: bool = False) -> str:  # noqa: ANN401
    """Return an annotation in words: "a list of texts"."""
    origin, kinds = get_origin(kind), get_args(kind)
    if kind in NOUNS:
        return NOUNS[kind][plural]
    if origin in UNIONS:
        members = [each for each in kinds if each is not str or Path not in kinds]
        return listed(list(dict.fromkeys(noun_of(each, plural) for each in members)))
    if origin is Annotated:
        return noun_of(kinds[0], plural)
    if is_array_kind(kind):
        return f"{'arrays' if plural else 'an array'} of {_noun_of_numbers(kind)} of shape {_shape_of(kind)}"
    if origin is Literal:
        return listed(kinds)
    if origin is Mapping:
        return "mappings" if plural else "a mapping (dict)"
    if origin is tuple and kinds[-1] is not Ellipsis:
        return f"{'tuples' if plural else 'a tuple'} of {len(kinds)} {noun_of(kinds[0], True)}"
    if origin is not None:
        return f"{'lists' if plural else 'a list'} of {noun_of(kinds[0], True)}"
    article = "an" if kind.__name__[0] in "AEIOU" else "a"
    return f"{kind.__name__} objects" if plural else f"{article} {kind.__name__}"


def is_array_kind(kind: object) -> bool:
    """Return whether an annotation is that of an array: `Float[np.ndarray, "n D"]`."""
    return isinstance(kind, type) and hasattr(kind, "dim_str") and hasattr(kind, "array_type")


def _noun_of_numbers(kind: Any) -> str:  # noqa: ANN401
    """Return in words what an array holds."""
    if "bool" in kind.dtypes:
        return "booleans"
    return "numbers" if "float64" in kind.dtypes else "whole numbers"


def _shape_of(kind: Any) -> str:  # noqa: ANN401
    """Return the shape of an array in words: "(n, D)"; "…" stands for any sizes."""
    dims = ["…" if dim == "_" or dim.startswith("*") else dim for dim in kind.dim_str.split()]
    return f"({', '.join(dims)})"
