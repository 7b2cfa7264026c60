"""A verb's arguments from a dataclass by tyro; mistakes and defaults are told in words of our own."""

import re
from collections.abc import Sequence
from contextlib import redirect_stderr
from dataclasses import is_dataclass, replace
from io import StringIO
from typing import Annotated, Any, Literal, TypeVar, get_args, get_origin

import msgspec
import tyro
from tyro.constructors import (
    ConstructorRegistry,
    PrimitiveConstructorSpec,
    PrimitiveTypeInfo,
    StructConstructorSpec,
    StructFieldSpec,
    StructTypeInfo,
)

from pellucid.cli.mistakes import (
    KINDS,
    converted,
    inner,
    lacking_value,
    mistake,
    out_of_bounds,
    with_header_values,
)
from pellucid.config import Header, Task
from pellucid.errors import InputError, abbreviate
from pellucid.toml import HEADERS, choices_of

Arguments = TypeVar("Arguments")
SHOWN = {"None": "", "''": "", "": "", "True": "(default: on)", "False": "(default: off)"}
"""How a default is shown in help, where it is not as it stands: what is not given needs no word."""


def parsed(kind: type[Arguments], verb: str, arguments: Sequence[str], default: Arguments | None = None) -> Arguments:
    """The arguments of a verb; help leaves with exit code 0, a mistake is an `InputError`."""
    asks_help, see = bool({"-h", "--help"} & set(arguments)), f"(pellucid {verb} --help)"
    arguments = with_header_values(kind, arguments)
    if not asks_help and (wrong := lacking_value(kind, arguments)):
        raise InputError(f"{wrong} {see}")
    start: Any = tyro.MISSING_NONPROP if default is None else default
    try:
        with redirect_stderr(StringIO()) as said:
            given: Arguments = tyro.cli(
                kind, prog=f"pellucid {verb}", args=arguments, default=start, registry=_registry()
            )
    except SystemExit as left:
        if not left.code:
            raise
        raise InputError(f"{mistake(kind, arguments, default) or _unboxed(said.getvalue())} {see}") from None
    if wrong := out_of_bounds(given):
        raise InputError(f"{wrong} {see}")
    return given


def _unboxed(told: str) -> str:
    """tyro's words without the box around them, as far as its first rule."""
    lines = [line.strip("│ ") for line in told.splitlines() if line.startswith("│")]
    ends = [at for at, line in enumerate(lines) if set(line) == {"─"}]
    return abbreviate(re.sub(r"\s+", " ", " ".join(lines[: ends[0]] if ends else lines)).strip(), 500)


def _registry() -> ConstructorRegistry:
    """Numbers and paths, each also where it may be left out, told without Python's words; and so are defaults."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def _(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        """One of `KINDS`, alone or beside None, or a `Header`."""
        own = inner(info.type)
        if own == Header:
            return _header_spec()
        return _spec(own) if own in KINDS else None

    asked = list[Any]()

    @registry.struct_rule
    def _(info: StructTypeInfo) -> StructConstructorSpec | None:
        """As by tyro's own rule, which it asks for, but for how defaults are shown."""
        own: Any = info.type
        if own in asked or not (isinstance(own, type) and (is_dataclass(own) or issubclass(own, msgspec.Struct))):
            return None
        asked.append(own)
        spec = ConstructorRegistry.get_struct_spec(info)
        asked.pop()
        return replace(spec, fields=tuple(map(_told, spec.fields))) if isinstance(spec, StructConstructorSpec) else None

    return registry


def _told(field: StructFieldSpec) -> StructFieldSpec:
    """A field whose default is shown by `_default`; what is annotated to it stays, and counts for more."""
    own, *notes = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    own = Literal[choices_of(Task)] if field.type == Task else own
    told: Any = Annotated[(own, tyro.conf.arg(help_behavior_hint=_default), *notes)]
    return replace(field, type=told)


def _default(label: str) -> str:
    """A default as help shows it."""
    return SHOWN.get(label, f"(default: {label})")


def _spec(kind: type) -> PrimitiveConstructorSpec[Any]:
    """How a value of one of `KINDS` is read and shown."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=KINDS[kind][0],
        instance_from_str=lambda texts: converted(kind, texts[0]),
        is_instance=lambda value: value is None or isinstance(value, (kind, int) if kind is float else kind),
        str_from_instance=lambda value: [str(value)],
    )


def _header_spec() -> PrimitiveConstructorSpec[Any]:
    """How a `Header` is read and shown."""
    values: dict[str, Header] = {"auto": "auto", "true": True, "false": False}
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(HEADERS)}}}",
        instance_from_str=lambda texts: values[texts[0]],
        is_instance=lambda value: value in (True, False, "auto"),
        str_from_instance=lambda value: [str(value).lower()],
        choices=HEADERS,
    )
