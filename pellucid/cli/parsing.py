"""A verb's arguments: numbers and paths with messages for people, and a flag that lacks its value."""

import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Annotated, Any, TypeVar, Union, get_args, get_origin, get_type_hints

import msgspec
import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from pellucid.errors import InputError

Arguments = TypeVar("Arguments")
KINDS: dict[type, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
}
"""How a type of value is shown in help, and what is expected of it in words."""


def parsed(kind: type[Arguments], verb: str, arguments: Sequence[str], default: Arguments | None = None) -> Arguments:
    """The arguments of a verb; help and mistakes leave with tyro's own words and exit code 0 or 2."""
    if not {"-h", "--help"} & set(arguments):
        _check_values(kind, verb, arguments)
    given: Any = {} if default is None else {"default": default}
    return tyro.cli(kind, prog=f"pellucid {verb}", args=arguments, registry=_registry(), **given)


def _check_values(kind: type, verb: str, arguments: Sequence[str]) -> None:
    """`InputError` for a flag that takes a value and is followed by another flag, or by nothing."""
    valued = {name for name, takes in _flags(kind, "--") if takes}
    for at, argument in enumerate(arguments):
        after = arguments[at + 1 : at + 2]
        if argument.replace("_", "-") in valued and (not after or after[0].startswith("--")):
            got = f"the flag {after[0]}" if after else "nothing"
            raise InputError(f"{argument}: expected a value, got {got} (pellucid {verb} --help)")


def _flags(kind: Any, prefix: str) -> Iterator[tuple[str, bool]]:  # noqa: ANN401 (a dataclass or a struct)
    """Every flag, and whether it takes a value; settings stand below the name of their stage, but those of data."""
    names = [field.name for field in (fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind))]
    hints = get_type_hints(kind, include_extras=False)
    for name in names:
        own = hints[name]
        if isinstance(own, type) and issubclass(own, msgspec.Struct):
            yield from _flags(own, prefix if name == "data" else f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}".replace("_", "-"), own is not bool


def _registry() -> ConstructorRegistry:
    """Numbers and paths, each also where it may be left out: told without Python's words."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def _(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        """One of `KINDS`, alone or beside None."""
        own: Any = info.type
        if get_origin(own) in (Union, types.UnionType):
            others = [each for each in get_args(own) if each is not type(None)]
            own = others[0] if len(others) == 1 else own
        while get_origin(own) is Annotated:
            own = get_args(own)[0]
        return _spec(own) if own in KINDS else None

    return registry


def _spec(kind: type) -> PrimitiveConstructorSpec[Any]:
    """How a value of one of `KINDS` is read and shown."""
    metavar, wanted = KINDS[kind]

    def read(texts: list[str]) -> Any:  # noqa: ANN401 (a value of the kind)
        """The value; `ValueError` says what was got instead."""
        convert: Callable[[str], Any] = kind
        try:
            return convert(texts[0])
        except ValueError:
            raise ValueError(f"expected {wanted}, got {texts[0]!r}") from None

    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=metavar,
        instance_from_str=read,
        is_instance=lambda value: value is None or isinstance(value, (kind, int) if kind is float else kind),
        str_from_instance=lambda value: [str(value)],
    )
