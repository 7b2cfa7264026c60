"""The settings of a training as flags: over a TOML file, over the preset of a size."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from io import StringIO
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

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

from pellucid.config.settings import (
    AttentionConfig,
    Config,
    DataConfig,
    DecoderConfig,
    Device,
    EncoderConfig,
    Header,
    Precision,
    SearchConfig,
    Seed,
    Size,
    Task,
    Threads,
    TrainingConfig,
)
from pellucid.config.toml import HEADERS, checked, choices_of, from_settings, load_config
from pellucid.errors import MOST_DIGITS, InputError, abbreviate, abbreviate_reason, nearest, quote
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
                return f"--{name.replace('_', '-')}: {in_words(abbreviate_reason(error))}, got {quote(value)}"
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
            return f"{written}: {abbreviate_reason(error)}"
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


@dataclass(frozen=True, kw_only=True)
class SettingFlags:
    """A flag for each setting."""

    size: Size
    """Model size preset: tiny, small, base or large. It sets every size that is not set explicitly."""
    task: Task
    """Task: transduce (a sequence), tag (a tag per source symbol), classify (a class), or point (a source position)."""
    seed: Seed
    """Random seed of initial parameters, batch order and dropout."""
    threads: Threads
    """CPU threads; 0 uses all cores. Results are bit-for-bit reproducible for the same number of threads."""
    device: Device
    """Device for training: cpu, cuda (one GPU), or auto (a GPU if there is one)."""
    precision: Precision
    """Precision of training: float32, or bf16 for matrix products (GPU only)."""
    deterministic: bool
    """Use only deterministic algorithms on a GPU; the CPU is always deterministic."""
    cuda_graphs: bool
    """Record an update once per batch shape as a CUDA graph and replay it (GPU only)."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig
    config: Path | None = None
    """TOML file of settings."""


def config_of(given: SettingFlags) -> Config:
    """The configuration that the flags describe; `ConfigError` where they contradict each other."""
    names = [field.name for field in fields(SettingFlags) if field.name != "config"]
    return checked(Config(**{name: getattr(given, name) for name in names}))


def defaults_of(arguments: Sequence[str]) -> dict[str, Any]:
    """What the flags start from: the file of --config over the preset of --size and what --task sets."""
    file, told = _value(arguments, "--config"), {name: _value(arguments, f"--{name}") for name in ("size", "task")}
    # What is no size and no task is told of when the flags are read.
    overrides = {name: told[name] for name, kind in (("size", Size), ("task", Task)) if told[name] in choices_of(kind)}
    base = (
        load_config(Path(file), overrides, regular=False)
        if file is not None
        else from_settings(overrides, origin="flags")
    )
    return {field.name: getattr(base, field.name) for field in fields(SettingFlags) if field.name != "config"}


def _value(arguments: Sequence[str], flag: str) -> str | None:
    """The value of a flag that decides the defaults of all others, found before they are parsed."""
    for at, argument in enumerate(arguments):
        if argument == flag and at + 1 < len(arguments):
            return arguments[at + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
