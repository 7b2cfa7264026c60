"""What is wrong with a verb's arguments, in one line: the flag, what was given, what was expected."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

import msgspec
import tyro

from pellucid.config import Header, Task
from pellucid.errors import MOST_DIGITS, abbreviate, nearest, quote
from pellucid.toml import HEADERS, choices_of
from pellucid.wording import in_words

KINDS: Mapping[type, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
}
"""How a type of value is shown in help, and what is expected of it in words."""


NUMBER = re.compile(r"\s*[+-]?([0-9.]+([eE][+-]?[0-9]+)?|inf|infinity|nan)\s*", re.IGNORECASE)
"""What may spell a number: the digits 0 to 9 alone, and no underscores."""


class Flag(NamedTuple):
    """A flag, or an argument without one."""

    name: str
    """With its hyphens; of an argument without a flag, what help calls it."""
    kind: Any
    """The type of a value."""
    values: Literal["none", "one", "any", "repeated"]
    """How many it takes: a switch has none; "repeated" is one each time it is given."""
    flagged: bool
    required: bool


def mistake(kind: type, arguments: Sequence[str], default: object = None) -> str:
    """The first mistake, in the order of the arguments, then what lacks; empty where there is none to see.

    `default` stands for what is not given, where that does not come from the fields of `kind` alone.
    """
    flags = {flag.name: flag for flag in _flags(kind, "--", default)}
    switches = {f"--no-{name[2:]}": flag for name, flag in flags.items() if flag.values == "none"}
    given, free, left = set[str](), list[str](), list(arguments)
    while left:
        argument = left.pop(0)
        if not argument.startswith("--") or argument == "--":
            free.append(argument)
            continue
        written, equals, value = argument.partition("=")
        name = written.replace("_", "-")
        flag = flags.get(name, switches.get(name))
        if flag is None or not flag.flagged:
            return f"there is no flag {abbreviate(written)}{_hint(name, flags)}"
        wrong = _misgiven(flag, written, value if equals else None, left)
        if wrong:
            return wrong
        given.add(flag.name)
    return _misplaced(list(flags.values()), free) or _lacking(flags.values(), given, free)


def with_header_values(kind: type, arguments: Sequence[str]) -> list[str]:
    """Return the arguments with a value for each flag of type `Header` that is given as a switch is.

    --header alone stands for --header true, and --no-header for --header false.
    """
    names = {flag.name for flag in _flags(kind, "--", None) if flag.kind == Header}
    spelled = list[str]()
    for at, argument in enumerate(arguments):
        if argument in names:
            given = at + 1 < len(arguments) and arguments[at + 1] in HEADERS
            spelled += [argument] if given else [argument, "true"]
        elif argument.startswith("--no-") and f"--{argument[5:]}" in names:
            spelled += [f"--{argument[5:]}", "false"]
        else:
            spelled.append(argument)
    return spelled


def lacking_value(kind: type, arguments: Sequence[str]) -> str:
    """What to say of a flag that takes a value and is followed by another flag, or by nothing; empty for none."""
    valued = {flag.name for flag in _flags(kind, "--", None) if flag.flagged and flag.values in ("one", "repeated")}
    for at, argument in enumerate(arguments):
        if argument.replace("_", "-") in valued:
            wrong = _without_value(argument, arguments[at + 1 :])
            if wrong:
                return wrong
    return ""


def out_of_bounds(given: object) -> str:
    """The first value of a verb's own that its type's bounds forbid; empty where there is none. Settings have checks of
    their own.
    """
    for name, annotated in get_type_hints(type(given), include_extras=True).items():
        value = getattr(given, name)
        if inner(annotated) in (int, float) and value is not None:
            try:
                msgspec.convert(value, annotated)
            except msgspec.ValidationError as error:
                return f"--{name.replace('_', '-')}: {in_words(str(error))}, got {quote(value)}"
    return ""


def converted(kind: type, text: str) -> Any:  # noqa: ANN401 (a value of the kind)
    """A value of one of `KINDS`; `ValueError` says what was got instead.

    A whole number of more digits than any setting takes is refused here, so that nothing else meets one.
    """
    convert: Callable[[str], Any] = kind
    try:
        value = None if kind is not Path and not NUMBER.fullmatch(text) else convert(text)
    except ValueError:
        value = None
    if kind is float and value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError(f"expected a number that a float can hold, got {quote(text)}")
    if value is None or (kind is int and abs(value) >= 10**MOST_DIGITS):
        digits = f" of at most {MOST_DIGITS} digits" if kind is int and len(text) > MOST_DIGITS else ""
        raise ValueError(f"expected {KINDS[kind][1]}{digits}, got {quote(text)}")
    return value


def inner(kind: Any) -> Any:  # noqa: ANN401 (any type)
    """A type without what is annotated to it, and without None beside it. `Task` stays as it is."""
    if kind == Task:
        return kind
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        others = [each for each in get_args(kind) if each is not NoneType]
        return inner(others[0]) if len(others) == 1 else kind
    return kind


def _misgiven(flag: Flag, written: str, value: str | None, left: list[str]) -> str:
    """What is wrong with what a flag is given; its values are taken from what is left."""
    if flag.values == "none":
        return f"{written} is a switch: it takes no value, got {quote(value)}" if value is not None else ""
    if value is not None:
        values = [value]
    elif flag.values == "any":
        values = []
        while left and not left[0].startswith("--"):
            values.append(left.pop(0))
    else:
        wrong = _without_value(written, left)
        if wrong:
            return wrong
        values = [left.pop(0)]
    return next(filter(None, (_misread(flag, written, each) for each in values)), "")


def _without_value(written: str, after: Sequence[str]) -> str:
    """What to say of a flag without the value it takes."""
    if after and not after[0].startswith("--"):
        return ""
    return f"{written}: expected a value, got {f'the flag {abbreviate(after[0])}' if after else 'nothing'}"


def _misread(flag: Flag, written: str, text: str) -> str:
    """What is wrong with one value."""
    choices = [str(each) for each in choices_of(flag.kind)]
    if choices:
        if text in choices:
            return ""
        return f"{written}: expected {_listed(choices, 'or')}, got {quote(text)}{nearest(text, choices)}"
    if flag.kind in KINDS:
        try:
            converted(flag.kind, text)
        except ValueError as error:
            return f"{written}: {error}"
    return ""


def _misplaced(flags: Sequence[Flag], free: Sequence[str]) -> str:
    """What is wrong with the arguments without a flag."""
    places = [flag for flag in flags if not flag.flagged]
    short = next((argument for argument in free if argument.startswith("-") and argument not in ("-", "--")), None)
    if short is not None:
        return f"there is no flag {abbreviate(short)}{_hint(short, [flag.name for flag in flags])}"
    if len(free) > len(places) and all(place.values == "one" for place in places):
        wanted = " ".join([*(place.name for place in places), "and flags"])
        return f"{quote(free[len(places)])} is one argument too many: expected {wanted}"
    for place, argument in zip(places, free, strict=False):
        wrong = _misread(place, place.name, argument)
        if wrong:
            return wrong
    return ""


def _lacking(flags: Iterable[Flag], given: set[str], free: Sequence[str]) -> str:
    """What must be given and is not."""
    wanted = [flag for flag in flags if flag.required]
    places = [flag.name for flag in wanted if not flag.flagged][len(free) :]
    names = [*places, *(flag.name for flag in wanted if flag.flagged and flag.name not in given)]
    return f"{_listed(names, 'and')} {'is' if len(names) == 1 else 'are'} required" if names else ""


def _flags(kind: Any, prefix: str, default: object) -> Iterator[Flag]:  # noqa: ANN401 (a dataclass or a struct)
    """Every argument; settings stand below the name of their stage, but those of data."""
    needed = {each.name for each in fields(kind) if each.default is MISSING} if is_dataclass(kind) else set()
    names = [field.name for field in (fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind))]
    hints = get_type_hints(kind, include_extras=True)
    for name in names:
        annotated, own = hints[name], inner(hints[name])
        if isinstance(own, type) and issubclass(own, msgspec.Struct):
            yield from _flags(own, prefix if name == "data" else f"{prefix}{name}.", None)
            continue
        required = name in needed if default is None else getattr(default, name) is tyro.MISSING
        yield _flag(name, annotated, prefix, required)


def _flag(name: str, annotated: Any, prefix: str, required: bool) -> Flag:  # noqa: ANN401 (any type)
    """One argument from its name and its annotated type."""
    own, notes = inner(annotated), _notes(annotated)
    flagged = tyro.conf.Positional not in notes
    shown = f"{prefix}{name}".replace("_", "-") if flagged else _metavar(notes) or name.upper()
    if get_origin(own) is tuple:
        repeated = tyro.conf.UseAppendAction in notes
        return Flag(shown, inner(get_args(own)[0]), "repeated" if repeated else "any", flagged, required)
    return Flag(shown, own, "none" if own is bool and flagged else "one", flagged, required)


def _notes(kind: Any) -> list[Any]:  # noqa: ANN401 (any type)
    """All that is annotated to a type, at any depth."""
    return [*_notes(get_args(kind)[0]), *kind.__metadata__] if get_origin(kind) is Annotated else []


def _metavar(notes: Sequence[Any]) -> str:
    """What help calls an argument, where that is said."""
    return next((note.metavar for note in notes if getattr(note, "metavar", None)), "")


def _hint(written: str, names: Iterable[str]) -> str:
    """The flag that was meant, as it seems: by its whole name, else by its last part."""
    known = [name for name in names if name.startswith("--")]
    ends = {name.rpartition(".")[2].lstrip("-"): name for name in reversed(known)}
    return nearest(written, known) or nearest(written.lstrip("-"), ends)


def _listed(names: Sequence[str], word: str) -> str:
    """One, one or two, one, two or three."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
