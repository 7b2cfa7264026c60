"""Parsing of command lines with tyro: settings as flags, over a TOML file, over the presets of size and task."""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import MISSING, dataclass, fields, is_dataclass, replace
from functools import cache, partial
from io import StringIO
from itertools import takewhile
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    Generic,
    Literal,
    NamedTuple,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

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

from pellucid.cli.flag_names import SETTING_FLAGS, SHORT_FLAGS, other_names
from pellucid.cli.flag_suggestions import UnknownFlagError
from pellucid.cli.messages import StreamWrapper
from pellucid.config.presets import AUTO_SIZE, default_size, gives_size
from pellucid.config.settings import (
    AttentionConfig,
    Config,
    DataConfig,
    DecoderConfig,
    Delimiter,
    Device,
    EncoderConfig,
    Header,
    Precision,
    SearchConfig,
    Seed,
    Size,
    SizeChoice,
    TaskName,
    Threads,
    TrainingConfig,
)
from pellucid.config.toml import (
    HEADER_CHOICES,
    build_config,
    extension_registry,
    overlay_settings,
    read_settings,
    setting_choices,
    validate_config,
)
from pellucid.data.prepared_data import is_prepared, settings_over_prepared
from pellucid.data.size_choice import size_for_file
from pellucid.error_messages import translate_expectation
from pellucid.errors import MAX_DIGITS, ConfigError, InputError, abbreviate, abbreviate_reason, quote, suggest
from pellucid.reporting.terminal_width import usable_terminal_width

if TYPE_CHECKING:
    from pellucid.training.training_data import TrainingFiles

VALUE_TYPES: Mapping[type, tuple[str, str]] = {
    int: ("INT", "a whole number"),
    float: ("FLOAT", "a number"),
    Path: ("PATH", "a path"),
}
"""Metavariable in help, and description in messages, of each type of value."""


INITIAL_RUN_FLAG = "--training.init-from"
"""Flag of the initial run of a fine-tuning; --init-from stands for it."""
ATTENTION_TYPE_FLAG = "--attention.type"
"""Flag of the type of the attention, for which --attention stands."""
NUMBER = re.compile(r"\s*[+-]?([0-9.]+([eE][+-]?[0-9]+)?|inf|infinity|nan)\s*", re.IGNORECASE)
"""Syntax of numbers: ASCII digits only, no underscores."""


class ArgumentSpec(NamedTuple):
    """Specification of a flag or a positional argument."""

    name: str
    """Flag with its hyphens; for a positional argument, its metavariable."""
    kind: Any
    """Type of a value, without annotations."""
    values: Literal["none", "one", "any", "repeated"]
    """Number of values: "none" for a switch, "any" for a list, "repeated" for one per occurrence of the flag."""
    flagged: bool
    """True for a flag, False for a positional argument."""
    required: bool
    targets: tuple[str, ...] = ()
    """Flags that a flag without its section stands for; empty for all others."""
    optional: bool = False
    """True if the default is None, the setting of the run."""


def command_line_error(kind: type, verb: str, arguments: Sequence[str], default: object = None) -> str:
    """Return the first error of a command line.

    Args:
        kind: Dataclass of the arguments.
        verb: Name of the subcommand.
        arguments: Command line of the subcommand.
        default: Instance with the defaults, if they are not those of the fields of `kind`.

    Returns:
        Message about the first wrong argument, else about missing arguments; "" if there is no error.

    Raises:
        UnknownFlagError: The first wrong argument is a flag that the subcommand does not have.
    """
    flags = known_flags(kind)
    given_flags, positionals, remaining = set[str](), list[str](), list(arguments)
    while remaining:
        argument = remaining.pop(0)
        flag_text, value = _split_argument(argument, flags)
        flag, _ = _find_flag(flag_text, flags)
        if flag is None and (not argument.startswith("--") or argument == "--"):
            if argument != "--":
                positionals.append(argument)
            continue
        if flag is None:
            raise UnknownFlagError(flag_text, verb, flags)
        error = _flag_error(flag, flag_text, value, remaining, flags)
        if error:
            return error
        given_flags |= {flag.name, *flag.targets}
    specs = list(_argument_specs(kind, "--", default))
    unknown_flag = next((word for word in positionals if word.startswith("-") and word != "-"), None)
    if unknown_flag is not None:
        raise UnknownFlagError(unknown_flag.partition("=")[0], verb, flags)
    return _positional_error(specs, positionals) or _required_error(specs, given_flags, positionals)


@cache
def known_flags(kind: type) -> Mapping[str, ArgumentSpec]:
    """Return the specification of every flag of a subcommand by its name, also of those without their section.

    Args:
        kind: Dataclass of the arguments.
    """
    flags = {flag.name: flag for flag in _argument_specs(kind, "--", None) if flag.flagged}
    shorter = {
        name: flags[targets[0]]._replace(name=name, targets=targets)
        for name, targets in SETTING_FLAGS.items()
        if targets[0] in flags and name not in flags
    }
    return {**flags, **shorter}


def expand_arguments(kind: type, arguments: Sequence[str]) -> list[str]:
    """Return the command line in the form that tyro reads.

    A letter becomes its flag (-e becomes --training.epochs), and a flag without section the flag or flags with it.
    --header and --no-header get an explicit value, and so does a switch whose default is the setting of the run.
    Positional arguments come first, because tyro does not accept flags between them. If one flag sets both encoder and
    decoder, its two flags come before the other flags, so that --encoder.* and --decoder.* override them. The separator
    -- is left out.

    Args:
        kind: Dataclass of the arguments.
        arguments: Command line of the subcommand.
    """
    flags, expanded, shared, remaining = known_flags(kind), list[str](), list[str](), list(arguments)
    positionals = list[str]()
    while remaining:
        argument = remaining.pop(0)
        flag_text, value = _split_argument(argument, flags)
        flag, negated = _find_flag(flag_text, flags)
        if flag is None:
            if argument != "--":
                (expanded if argument.startswith("--") else positionals).append(argument)
            continue
        names = flag.targets or (flag.name,)
        if flag.kind == Header and value is None:
            has_value = bool(remaining) and remaining[0] in HEADER_CHOICES and not negated
            value = remaining.pop(0) if has_value else str(not negated).lower()
        is_optional_switch = flag.kind is bool and flag.optional
        if is_optional_switch and value is None:
            value = str(not negated)
        values = _take_values(flag, remaining, flags) if value is None else []
        for name in names:
            written = negated_flag(name) if negated and flag.kind != Header and not is_optional_switch else name
            (shared if len(names) > 1 else expanded).extend(
                [written if value is None else f"{written}={value}", *values]
            )
    return [*positionals, *shared, *expanded]


def negated_flag(name: str) -> str:
    """Return the flag that switches another one off: --encoder.no-residual for --encoder.residual.

    Args:
        name: The flag.
    """
    section, dot, last = name[2:].rpartition(".")
    return f"--{section}{dot}no-{last}"


def _split_argument(argument: str, flags: Mapping[str, ArgumentSpec]) -> tuple[str, str | None]:
    """Return the flag of an argument as it is written, and the value after "=" or after a letter (-n5), or None."""
    flag_text, equals, value = argument.partition("=")
    if equals and (flag_text.startswith("--") or _is_letter(flag_text, flags)):
        return flag_text, value
    flag, _ = _find_flag(argument[:2], flags)
    if (
        not argument.startswith("--")
        and flag is not None
        and flag.kind in (int, float)
        and NUMBER.fullmatch(argument[2:])
    ):
        return argument[:2], argument[2:]
    return (flag_text if argument.startswith("--") else argument), None


def _find_flag(flag_text: str, flags: Mapping[str, ArgumentSpec]) -> tuple[ArgumentSpec | None, bool]:
    """Return the specification of a written flag, or None, and whether it is the negation of a switch."""
    name = flag_text.replace("_", "-")
    if not flag_text.startswith("--"):
        letter = flag_text[1:] if flag_text.startswith("-") else ""
        return flags.get(SHORT_FLAGS.get(letter, "")), False
    if name in flags:
        return flags[name], False
    section, dot, last = name[2:].rpartition(".")
    positive = f"--{section}{dot}{last.removeprefix('no-')}"
    flag = flags.get(positive) if last.startswith("no-") else None
    return (flag, True) if flag is not None and (flag.values == "none" or flag.kind == Header) else (None, False)


def _is_letter(text: str, flags: Mapping[str, ArgumentSpec]) -> bool:
    """Return whether a text is the letter of a flag of the subcommand, such as "-e"."""
    return not text.startswith("--") and _find_flag(text, flags)[0] is not None


def _is_flag(text: str, flags: Mapping[str, ArgumentSpec]) -> bool:
    """Return whether an argument begins a flag, so that it is not a value."""
    return text.startswith("--") or _is_letter(text, flags)


def _take_values(flag: ArgumentSpec, remaining: list[str], flags: Mapping[str, ArgumentSpec]) -> list[str]:
    """Remove the values of a flag from the remaining arguments and return them."""
    count = {"none": 0, "any": len(remaining)}.get(flag.values, 1)
    values = list(takewhile(lambda text: not _is_flag(text, flags), remaining[:count]))
    del remaining[: len(values)]
    return values


def bounds_error(args: object) -> str:
    """Return the message about the first number outside the bounds of its annotation; "" if there is none.

    Settings within sections are not checked here, but by `config_from_flags`.

    Args:
        args: Instance of a dataclass of arguments.
    """
    for name, annotated in get_type_hints(type(args), include_extras=True).items():
        value = getattr(args, name)
        if unwrap_type(annotated) in (int, float) and value is not None:
            try:
                msgspec.convert(value, annotated)
            except msgspec.ValidationError as error:
                return (
                    f"--{name.replace('_', '-')}: {translate_expectation(abbreviate_reason(error))}, got {quote(value)}"
                )
    return ""


def convert_value(kind: type, text: str) -> Any:  # noqa: ANN401 (a value of the kind)
    """Return the value of a text of the command line.

    Args:
        kind: int, float or Path, the keys of `VALUE_TYPES`.
        text: Text of the value; numbers have ASCII digits only.

    Returns:
        Value of that type.

    Raises:
        ValueError: The text is no such value, a whole number of more than `MAX_DIGITS` digits, or a float that rounds
            to zero; the message quotes it.
    """
    convert: Callable[[str], Any] = kind
    try:
        value = None if kind is not Path and not NUMBER.fullmatch(text) else convert(text)
    except ValueError:
        value = None
    if kind is float and value == 0 and re.search("[1-9]", re.split("[eE]", text)[0]):
        raise ValueError(f"expected a number that a float can hold, got {quote(text)}")
    if value is None or (kind is int and abs(value) >= 10**MAX_DIGITS):
        digits = f" of at most {MAX_DIGITS} digits" if kind is int and len(text) > MAX_DIGITS else ""
        raise ValueError(f"expected {VALUE_TYPES[kind][1]}{digits}, got {quote(text)}")
    return value


def unwrap_type(kind: Any) -> Any:  # noqa: ANN401 (any type)
    """Return a type without annotations and without an optional None: int for `Annotated[int | None, ...]`.

    Args:
        kind: Type annotation. Names of extensions and unions of several types are returned as they are.
    """
    if extension_registry(kind) is not None:
        return kind
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    if get_origin(kind) in (Union, UnionType):
        members = [member for member in get_args(kind) if member is not NoneType]
        return unwrap_type(members[0]) if len(members) == 1 else kind
    return kind


def _flag_error(
    flag: ArgumentSpec, flag_text: str, value: str | None, remaining: list[str], flags: Mapping[str, ArgumentSpec]
) -> str:
    """Return the error of one flag; its values are removed from `remaining`."""
    if flag.kind == Header and value is None:
        del remaining[: int(remaining[:1] in [[choice] for choice in HEADER_CHOICES])]
        return ""
    if flag.values == "none":
        return f"{flag_text} is a switch and takes no value, got {quote(value)}" if value is not None else ""
    if value is None and flag.values != "any":
        error = _missing_value(flag_text, remaining, flags)
        if error:
            return error
    values = _take_values(flag, remaining, flags) if value is None else [value]
    return next(filter(None, (_value_error(flag, flag_text, text) for text in values)), "")


def _missing_value(flag_text: str, following: Sequence[str], flags: Mapping[str, ArgumentSpec]) -> str:
    """Return the error of a flag without its value; empty if a value follows."""
    if following and not _is_flag(following[0], flags):
        return ""
    return f"{flag_text}: expected a value, got {f'the flag {abbreviate(following[0])}' if following else 'nothing'}"


def _value_error(flag: ArgumentSpec, flag_text: str, text: str) -> str:
    """Return the error of one value; empty if it is valid."""
    choices = [str(choice) for choice in setting_choices(flag.kind)]
    if choices:
        if text in choices:
            return ""
        registry = extension_registry(flag.kind)
        note = suggest(text, choices) or ("" if registry is None else registry.absent_note(text))
        return f"{flag_text}: expected {_join_words(choices, 'or')}, got {quote(text)}{note}"
    if flag.kind in VALUE_TYPES:
        try:
            convert_value(flag.kind, text)
        except ValueError as error:
            return f"{flag_text}: {abbreviate_reason(error)}"
    return ""


def _positional_error(flags: Sequence[ArgumentSpec], positionals: Sequence[str]) -> str:
    """Return the error of the positional arguments; empty if they are valid."""
    specs = [flag for flag in flags if not flag.flagged]
    if len(positionals) > len(specs) and all(spec.values == "one" for spec in specs):
        expected = " ".join([*(spec.name for spec in specs), "and flags"])
        return f"unexpected argument {quote(positionals[len(specs)])}: expected {expected}"
    for spec, argument in zip(specs, positionals, strict=False):
        error = _value_error(spec, spec.name, argument)
        if error:
            return error
    return ""


def _required_error(flags: Iterable[ArgumentSpec], given_flags: set[str], positionals: Sequence[str]) -> str:
    """Return the error of missing required arguments; empty if there are none."""
    required = [flag for flag in flags if flag.required and flag.values != "any"]  # the subcommand checks empty lists
    missing_positionals = [flag.name for flag in required if not flag.flagged][len(positionals) :]
    names = [*missing_positionals, *(flag.name for flag in required if flag.flagged and flag.name not in given_flags)]
    return f"{_join_words(names, 'and')} {'is' if len(names) == 1 else 'are'} required" if names else ""


def _argument_specs(kind: Any, prefix: str, default: object) -> Iterator[ArgumentSpec]:  # noqa: ANN401 (a dataclass or a struct)
    """Yield the specification of every argument; settings are nested under their section, except those of data."""
    needed = {field.name for field in fields(kind) if field.default is MISSING} if is_dataclass(kind) else set()
    names = [field.name for field in (fields(kind) if is_dataclass(kind) else msgspec.structs.fields(kind))]
    hints = get_type_hints(kind, include_extras=True)
    for name in names:
        annotated, value_type = hints[name], unwrap_type(hints[name])
        if isinstance(value_type, type) and issubclass(value_type, msgspec.Struct):
            yield from _argument_specs(value_type, prefix if name == "data" else f"{prefix}{name}.", None)
            continue
        required = name in needed if default is None else getattr(default, name) is tyro.MISSING
        yield _argument_spec(name, annotated, prefix, required)


def _argument_spec(name: str, annotated: Any, prefix: str, required: bool) -> ArgumentSpec:  # noqa: ANN401 (any type)
    """Return the specification of one field."""
    value_type, annotations = unwrap_type(annotated), _annotations(annotated)
    flagged = tyro.conf.Positional not in annotations
    display_name = f"{prefix}{name}".replace("_", "-") if flagged else _metavar(annotations) or name.upper()
    if get_origin(value_type) is tuple:
        repeated = tyro.conf.UseAppendAction in annotations
        return ArgumentSpec(
            display_name, unwrap_type(get_args(value_type)[0]), "repeated" if repeated else "any", flagged, required
        )
    values: Literal["none", "one"] = "none" if value_type is bool and flagged else "one"
    return ArgumentSpec(display_name, value_type, values, flagged, required, optional=_is_optional(annotated))


def _is_optional(kind: Any) -> bool:  # noqa: ANN401 (any type)
    """Return whether None is a value of a type."""
    while get_origin(kind) is Annotated:
        kind = get_args(kind)[0]
    return get_origin(kind) in (Union, UnionType) and NoneType in get_args(kind)


def _annotations(kind: Any) -> list[Any]:  # noqa: ANN401 (any type)
    """Return all annotations of a type, at any depth."""
    return [*_annotations(get_args(kind)[0]), *kind.__metadata__] if get_origin(kind) is Annotated else []


def _metavar(notes: Sequence[Any]) -> str:
    """Return the name of an argument in help, if it is annotated."""
    return next((note.metavar for note in notes if getattr(note, "metavar", None)), "")


def _join_words(names: Sequence[str], word: str) -> str:
    """Return words joined by commas, with `word` before the last."""
    return f" {word} ".join(filter(None, [", ".join(names[:-1]), names[-1]]))


ArgumentsT = TypeVar("ArgumentsT")
DEFAULT_TEXTS = {"None": "", "''": "", "": "", "True": "default: on", "False": "default: off"}
"""Texts of special defaults in help, by their representation."""


DIGIT_COMMA = re.compile(r"(?<=[0-9]),(?=[0-9])")
PROTECTED_COMMA = "\ue000"
"""Private character in place of a comma between digits while tyro wraps the lines of help, which it does at commas."""


class HelpStream(StreamWrapper):
    """Wrapper of standard output that writes commas in place of `PROTECTED_COMMA`."""

    def write(self, text: str) -> int:
        """Write a text.

        Args:
            text: The text.

        Returns:
            Number of characters written.
        """
        return self._stream.write(text.replace(PROTECTED_COMMA, ","))


HELP_ALL = "--help-all"
"""Flag that prints all arguments of a subcommand. The page of --help is in cli/help_pages.py."""


def parse_arguments(
    kind: type[ArgumentsT], verb: str, arguments: Sequence[str], default: ArgumentsT | None = None
) -> ArgumentsT:
    """Parse the command line of a subcommand.

    Args:
        kind: Dataclass of the arguments.
        verb: Name of the subcommand, for messages and help.
        arguments: Command line of the subcommand.
        default: Instance with the defaults, if they are not those of the fields of `kind`.

    Returns:
        Instance of `kind`.

    Raises:
        UnknownFlagError: The subcommand has no such flag.
        InputError: An argument is wrong or missing.
        SystemExit: With code 0, after all arguments have been printed for --help-all.
    """
    wants_help, help_hint = HELP_ALL in arguments, f"(pellucid {verb} --help)"
    # Checked here first: tyro's messages are less specific, and it takes ten times as long.
    if not wants_help and (error := command_line_error(kind, verb, arguments, default)):
        raise InputError(f"{error} {help_hint}")
    if default is None and (positional := _parse_positional(kind, arguments)) is not None:
        return positional
    expanded = ["--help"] if wants_help else expand_arguments(kind, arguments)
    defaults: Any = tyro.MISSING_NONPROP if default is None else default
    try:
        help_stream: Any = HelpStream(sys.stdout)
        with redirect_stderr(StringIO()) as stderr, redirect_stdout(help_stream), usable_terminal_width():
            args: ArgumentsT = tyro.cli(
                kind, prog=f"pellucid {verb}", args=expanded, default=defaults, registry=_constructor_registry()
            )
    except SystemExit as exit_request:
        if not exit_request.code:
            raise
        raise InputError(f"{_strip_box(stderr.getvalue())} {help_hint}") from None
    if error := bounds_error(args):
        raise InputError(f"{error} {help_hint}")
    return args


def _parse_positional(kind: type[ArgumentsT], arguments: Sequence[str]) -> ArgumentsT | None:
    """Return the arguments of a checked command line of run folders and a file alone; None for any other.

    It has no flags, and needs no parser: tyro takes a tenth of a second.
    """
    names = {member.name for member in fields(cast(Any, kind))}
    has_flags = any(argument.startswith("-") and argument != "-" for argument in arguments)
    if has_flags or not arguments or not {"run", "more"} <= names or "file" in names:
        return None
    first, *others = map(Path, arguments)
    return cast(Callable[..., ArgumentsT], kind)(run=first, more=tuple(others))


def _strip_box(message: str) -> str:
    """Return the text of a tyro message without the box around it, up to its first rule."""
    lines = [line.strip("│ ") for line in message.splitlines() if line.startswith("│")]
    rules = [index for index, line in enumerate(lines) if set(line) == {"─"}]
    return abbreviate(re.sub(r"\s+", " ", " ".join(lines[: rules[0]] if rules else lines)).strip(), 500)


def _constructor_registry() -> ConstructorRegistry:
    """Return tyro rules for numbers and paths, with error messages and defaults in plain words."""
    registry = ConstructorRegistry()

    @registry.primitive_rule
    def _(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
        """One of `VALUE_TYPES`, alone or beside None, or a `Header`."""
        value_type = unwrap_type(info.type)
        if value_type == Header:
            return _header_spec()
        return _value_spec(value_type) if value_type in VALUE_TYPES else None

    visited = list[Any]()

    @registry.struct_rule
    def _(info: StructTypeInfo) -> StructConstructorSpec | None:
        """As tyro's own rule, except for the display of defaults."""
        value_type: Any = info.type
        if value_type in visited or not (
            isinstance(value_type, type) and (is_dataclass(value_type) or issubclass(value_type, msgspec.Struct))
        ):
            return None
        visited.append(value_type)
        spec = ConstructorRegistry.get_struct_spec(info)
        visited.pop()
        return (
            replace(spec, fields=tuple(_with_default_hint(field, _section(value_type)) for field in spec.fields))
            if isinstance(spec, StructConstructorSpec)
            else None
        )

    return registry


def _section(kind: type) -> str:
    """Return the section of the settings of a struct with a dot, such as "training."; "" for all other arguments."""
    sections = [name for name, section in get_type_hints(Config).items() if section is kind and name != "data"]
    return f"{sections[0]}." if sections else ""


def _with_default_hint(field: StructFieldSpec, section: str) -> StructFieldSpec:
    """Return a field whose help is one paragraph, with its range, default and other names, as `_default_text` displays
    them.

    The field's own annotations take precedence.
    """
    base_type, *annotations = get_args(field.type) if get_origin(field.type) is Annotated else (field.type,)
    registry = extension_registry(field.type)
    if registry is not None:
        choice: Any = Literal[registry.names()]
        base_type = tuple[choice, ...] if get_origin(field.type) is tuple else choice
    is_positional = tyro.conf.Positional in annotations
    names = [] if is_positional else other_names(f"--{section}{field.name.replace('_', '-')}")
    if base_type is bool:
        names = [spelling for name in names for spelling in (name, negated_flag(name))]
    hint = partial(_default_text, value_range=_value_range(field.type), names=names)
    metavar = "CHAR" if base_type == Delimiter else None  # the choices are punctuation, which cannot be read in a list
    argument = tyro.conf.arg(help_behavior_hint=hint, metavar=metavar)
    annotated_type: Any = Annotated[(base_type, argument, *annotations)]
    # tyro displays "(required)" in place of the hint.
    is_required = field.default in (tyro.MISSING, tyro.MISSING_NONPROP)
    helptext = partial(_help_paragraph, field.helptext, names if is_required else ())
    return replace(field, type=annotated_type, helptext=helptext)


def _help_paragraph(text: str | Callable[[], str | None] | None, names: Sequence[str]) -> str | None:
    """Return the help of a flag without the line breaks of the code, with other names of the flag."""
    text = text() if callable(text) else text
    also = f"({_also(names)})" if names else ""
    return None if text is None else _protect_numbers(" ".join([*text.split(), also]).strip())


def _also(names: Sequence[str]) -> str:
    """Return the text of the other names of a flag; "" if it has none."""
    return f"also {', '.join(names)}" if names else ""


def _protect_numbers(text: str) -> str:
    """Return a text of help in which tyro cannot break a line within a number, such as 1,024."""
    return DIGIT_COMMA.sub(PROTECTED_COMMA, text)


def _default_text(label: str, value_range: str = "", names: Sequence[str] = ()) -> str:
    """Return the text of the range, the default and the other names of a flag in help."""
    default = DEFAULT_TEXTS.get(label, f"default: {label}")
    parts = [*filter(None, (value_range, default, _also(names)))]
    return _protect_numbers(f"({'; '.join(parts)})") if parts else ""


def _value_range(kind: Any) -> str:  # noqa: ANN401 (any type)
    """Return the range of a number, or of the items of a tuple of numbers, in words; "" if the type has no bounds."""
    item_type = get_args(kind)[0] if get_origin(kind) is tuple else kind
    bounds = next((note for note in _annotations(item_type) if isinstance(note, msgspec.Meta)), msgspec.Meta())
    minimum = next(
        (
            f"{word}{_format_number(value)}"
            for word, value in (("", bounds.ge), ("above ", bounds.gt))
            if value is not None
        ),
        "",
    )
    if bounds.le is not None:
        return f"{minimum} to {_format_number(bounds.le)}"
    if bounds.lt is not None:
        return f"{minimum} to below {_format_number(bounds.lt)}"
    return f"{minimum} or more" if minimum else ""


def _format_number(value: int | float) -> str:
    """Return a bound as text: 1,024, 0, 3.4e+38."""
    return f"{int(value):,}" if value == int(value) and abs(value) < 10**MAX_DIGITS else f"{value:g}"


def _value_spec(kind: type) -> PrimitiveConstructorSpec[Any]:
    """Return the parsing and display of a value of one of `VALUE_TYPES`."""
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=VALUE_TYPES[kind][0],
        instance_from_str=lambda texts: convert_value(kind, texts[0]),
        is_instance=lambda value: value is None or isinstance(value, (kind, int) if kind is float else kind),
        str_from_instance=lambda value: [str(value)],
    )


def _header_spec() -> PrimitiveConstructorSpec[Any]:
    """Return the parsing and display of a `Header`."""
    values: dict[str, Header] = {"auto": "auto", "true": True, "false": False}
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar=f"{{{','.join(HEADER_CHOICES)}}}",
        instance_from_str=lambda texts: values[texts[0]],
        is_instance=lambda value: value in (True, False, "auto"),
        str_from_instance=lambda value: [str(value).lower()],
        choices=HEADER_CHOICES,
    )


@dataclass(frozen=True, kw_only=True)
class SettingFlags:
    """Base of the arguments of train and tune: one flag for each setting, and --config."""

    size: SizeChoice
    """Model size preset: tiny, small, base or large. It sets layers, hidden, embedding and attention sizes, dropout and
    the learning rate, unless these are set explicitly. auto: by the number of training pairs; train with --time
    also measures the speed of a few updates."""
    task: TaskName
    """Task: transduce (a sequence), tag (a tag per source symbol), classify (a class), point (a source position), or
    tag-and-classify (a class, then a tag per source symbol)."""
    seed: Seed
    """Random seed of initial parameters, batch order, dropout, scheduled sampling and augmentation."""
    threads: Threads
    """CPU threads for training, and for later commands with the run; 0 uses all cores. Results are bit-for-bit
    reproducible for the same number of threads."""
    device: Device
    """Device for training: cpu, cuda (one GPU), or auto (a GPU if there is one). Later commands have their own flag."""
    precision: Precision
    """Precision of training: float32, or bf16 for matrix products in bfloat16, with sums in float32 (needs a GPU, or a
    CPU with avx512_bf16)."""
    deterministic: bool
    """Use only deterministic algorithms on a GPU; an operation without one is an error. The CPU is always
    deterministic."""
    cuda_graphs: bool
    """Record an update once per batch shape as a CUDA graph and replay it (GPU only; task = "transduce")."""
    data: Annotated[DataConfig, tyro.conf.arg(name="")]
    encoder: EncoderConfig
    attention: AttentionConfig
    decoder: DecoderConfig
    training: TrainingConfig
    search: SearchConfig
    config: Path | None = None
    """TOML file of settings. It overrides the presets of --size and --task; other flags override it."""


@dataclass(frozen=True, kw_only=True)
class TrainingFlags(SettingFlags):
    """Arguments of both train and tune: the settings, the data files and the folder."""

    train: Annotated[tyro.conf.Positional[Path], tyro.conf.arg(metavar="TRAIN")]
    """Training set: TSV, CSV, JSON lines or Parquet (also .gz), or the sources of two parallel files."""
    valid: Path | None = None
    """Validation set, in the form of TRAIN; it selects the saved model and decides early stopping. Default: a tenth of
    the sources of TRAIN, at most 2,000, chosen at random, which are not trained on."""
    run: Path
    """Run folder, which receives the model, the settings and the log; created, or resumed."""
    train_target: Path | None = None
    """Targets of TRAIN, one per line, if TRAIN holds sources only."""
    valid_target: Path | None = None
    """Targets of the validation set, one per line, if --valid holds sources only."""

    def training_files(self) -> "TrainingFiles":
        """Return the data files. The first call imports torch, which takes seconds."""
        from pellucid.training.training_data import TrainingFiles

        return TrainingFiles(self.train, self.valid, self.train_target, self.valid_target)


def config_from_flags(args: SettingFlags) -> Config:
    """Return the validated configuration of the flags.

    Args:
        args: Parsed flags, with a size that is not "auto".

    Raises:
        ConfigError: A setting is out of range, or settings contradict each other.
    """
    names = [field.name for field in fields(SettingFlags) if field.name != "config"]
    return validate_config(Config(**{name: getattr(args, name) for name in names}))


def given_settings(arguments: Sequence[str]) -> tuple[dict[str, Any], str]:
    """Return the settings of the file of --config, overridden by --size and --task, and their origin for messages.

    Args:
        arguments: Command line of the subcommand. An invalid --size or --task is ignored here and refused later.

    Raises:
        ConfigError: The file of --config is missing or not TOML, or a key is unknown.
    """
    arguments = expand_arguments(SettingFlags, arguments)
    file = _flag_value(arguments, "--config")
    values = {name: _flag_value(arguments, f"--{name}") for name in ("size", "task")}
    # Invalid sizes and tasks are reported when the flags are parsed.
    overrides = {
        name: values[name]
        for name, kind in (("size", SizeChoice), ("task", TaskName))
        if values[name] in setting_choices(kind)
    }
    # A pipe can be read only once.
    return (overrides, "flags") if file is None else (read_settings(Path(file), overrides, regular=False), file)


def default_settings(settings: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """Return the defaults of the settings' flags: some settings over the presets of their size and task.

    Args:
        settings: Settings, nested like a configuration.
        origin: Their origin, with which messages begin.

    Returns:
        Default of each field of `SettingFlags` except `config`. The size is "auto" if it is not given.

    Raises:
        ConfigError: A value is invalid, or settings contradict each other.
    """
    base = build_config(settings, origin)
    defaults = {field.name: getattr(base, field.name) for field in fields(SettingFlags) if field.name != "config"}
    return {**defaults, "size": settings.get("size", AUTO_SIZE)}


TrainingFlagsT = TypeVar("TrainingFlagsT", bound="TrainingFlags")


class TrainingFlagParser(Generic[TrainingFlagsT]):
    """Parser of a command line of train or tune: flags over the file of --config over the presets of size and task.

    With an initial run, its settings that a fine-tuning inherits are over the presets.
    """

    def __init__(
        self, kind: type[TrainingFlagsT], verb: str, arguments: Sequence[str], measures_size: bool = False
    ) -> None:
        """Read the file of --config.

        Args:
            kind: Dataclass of the arguments.
            verb: Name of the subcommand.
            arguments: Command line of the subcommand.
            measures_size: Whether the subcommand chooses the size for a time limit by a measured speed, so that pairs
                need not be counted for it. By default, the pairs are counted.

        Raises:
            ConfigError: The file of --config is missing or not TOML, or a key is unknown; or the configuration of the
                initial run is not valid.
            RunError: The initial run (`--init-from`) is missing or damaged.
        """
        self.kind = kind
        self.verb = verb
        self.arguments = arguments
        self.measures_size = measures_size
        self.settings, self.origin = given_settings(arguments)
        self.expanded = expanded = expand_arguments(SettingFlags, arguments)
        initial = _flag_value(expanded, INITIAL_RUN_FLAG) or _initial_run(self.settings)
        run = _flag_value(expand_arguments(kind, arguments), "--run")
        self.runs = (initial, run) if initial and run and HELP_ALL not in arguments else None
        if self.runs is not None:
            from pellucid.run_folder.initial_run import settings_over_initial_run  # imports torch, which takes seconds

            attention_type = _flag_value(expanded, ATTENTION_TYPE_FLAG) or ""
            self.settings = settings_over_initial_run(self.settings, *self.runs, attention_type)

    @property
    def is_size_given(self) -> bool:
        """Return whether the command line or the file of --config gives a size other than "auto"."""
        return gives_size(self.settings)

    def is_flag_given(self, flag: str) -> bool:
        """Return whether the command line holds the flag of a setting.

        Args:
            flag: The flag with its section, such as "--training.epochs".
        """
        return flag in self.expanded

    def parse(self, size: Size | None = None) -> TrainingFlagsT:
        """Parse the command line.

        Args:
            size: Size if none is given; None: the training file determines it (`size_for_file`), or it is any size if
                it is measured later.

        Raises:
            InputError: An argument is unknown, missing or invalid, or the file of --config is.
        """
        if self.is_size_given:
            args = self._with_initial_columns(self._parse_training_set())
            return args if args.size != AUTO_SIZE else replace(args, size=self.settings["size"])
        if size is None:
            args = self._parse_training_set()
            is_measured = self.measures_size and args.training.time_limit
            size = default_size() if is_measured else size_for_file(args.train, args.data, args.task, args.train_target)
            if size == default_size():
                return replace(args, size=size)
        return replace(self._parse({**self.settings, "size": size}), size=size)

    def _parse_training_set(self) -> TrainingFlagsT:
        """Parse the command line; prepared data has its settings as defaults."""
        args = self._parse(self.settings)
        if not is_prepared(args.train):
            return args
        self.settings = settings_over_prepared(self.settings, args.train)
        return self._parse(self.settings)

    def _with_initial_columns(self, args: TrainingFlagsT) -> TrainingFlagsT:
        """Return arguments with the columns of the initial run, if there is one and the new file has its columns."""
        if self.runs is None:
            return args
        from pellucid.run_folder.initial_run import columns_of_initial_run

        columns = columns_of_initial_run(*self.runs, args.train, args.data)
        return self._parse(overlay_settings(self.settings, columns)) if columns else args

    def _parse(self, settings: Mapping[str, Any]) -> TrainingFlagsT:
        """Parse the command line with defaults from some settings."""
        required: Any = tyro.MISSING
        defaults = self.kind(train=required, run=required, **default_settings(settings, self.origin))
        args = parse_arguments(self.kind, self.verb, self.arguments, defaults)
        mix_in = Path(args.training.mix_in) if args.training.mix_in else None
        files = (args.train, args.valid, args.train_target, args.valid_target, mix_in)
        if any(path == Path("-") and not path.exists() for path in files):
            raise ConfigError(f"{self.verb} reads no file named -: give /dev/stdin for the standard input")
        return args


def _initial_run(settings: Mapping[str, Any]) -> str:
    """Return the setting `training.init_from` of nested settings; "" if it is not given or no text."""
    training = settings.get("training")
    initial = training.get("init_from", "") if isinstance(training, Mapping) else ""
    return initial if isinstance(initial, str) else ""


def _flag_value(arguments: Sequence[str], flag: str) -> str | None:
    """Return the value of a flag that determines the defaults of other flags, before the command line is parsed."""
    for index, argument in enumerate(arguments):
        if argument == flag and index + 1 < len(arguments):
            return arguments[index + 1]
        if argument.startswith(f"{flag}="):
            return argument.removeprefix(f"{flag}=")
    return None
