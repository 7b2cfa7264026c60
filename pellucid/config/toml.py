"""Configurations as TOML: loading, validation, comparison, and saving with a comment for every key."""

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from threading import Lock
from typing import Any, Literal, cast, get_args, get_origin

import msgspec
import tomli_w

from pellucid.argument_checks import (
    TypeMismatchError,
    check_arguments,
    convert_argument,
    convert_setting,
    copy_bounded_mapping,
)
from pellucid.config.attention_types import ATTENTION_TYPES
from pellucid.config.cell_types import CELL_TYPES
from pellucid.config.extensions import ExtensionRegistry, is_valid_name
from pellucid.config.presets import AUTO_SIZE, PRESET_KEYS, PRESETS, SHARED_PRESET, default_size
from pellucid.config.renamed_settings import renaming_advice, with_current_names
from pellucid.config.settings import (
    DEFAULT_TASK,
    AttentionName,
    CallbackName,
    CellName,
    Config,
    Header,
    MetricName,
    OptimizerName,
    Settings,
    Size,
    SizeChoice,
    TaskName,
)
from pellucid.config.task_settings import TASKS, get_task_settings
from pellucid.config.training_types import CALLBACK_TYPES, METRIC_TYPES, OPTIMIZER_TYPES
from pellucid.config.validation import check_consistency
from pellucid.error_messages import describe_type, describe_value, join_choices, suggest_choice
from pellucid.errors import ConfigError, MissingExtensionError, abbreviate_reason, quote, suggest
from pellucid.files import MAX_SETTINGS_SIZE, NESTING_ERROR, read_bytes

MAX_DOTS = 1000
"""Maximum number of dots in a line of TOML: the parser is very slow for keys of many parts."""
MAX_ALL_DOTS = 10_000
"""Maximum number of dots in all lines: below a header of many parts, the parser stores all of them for each dot of a
key."""
MAX_DEPTH = 100
"""Maximum number of tables within each other; settings have two."""
HEADER_CHOICES = ("auto", "true", "false")
"""Values of `Header` in TOML and on the command line."""


def size_preset(size: Size) -> Config:
    """Return the complete default configuration of a size, for task "transduce".

    Args:
        size: "tiny", "small", "base" or "large".

    Raises:
        ArgumentError: There is no such size.
    """
    size = convert_argument("size", size, Size)
    return build_config({"size": size}, origin=f"size {size}")


def load_config(path: str | Path, overrides: Mapping[str, Any] | None = None, regular: bool = True) -> Config:
    """Load a configuration from a TOML file.

    Args:
        path: The file. Missing settings have the values of the presets of its size and task; without a size, or with
            "auto", the size is "base". Settings may have their former names (`config/renamed_settings.py`).
        overrides: Settings that replace those of the file, nested like the file; none by default.
        regular: Whether it must be a regular file, as in a run folder; False also accepts a pipe. True by default.

    Returns:
        The complete configuration.

    Raises:
        ConfigError: The file is missing, too large or not TOML, a key is unknown, a value is invalid, or settings
            contradict each other. The message contains the full name of the key.
        ArgumentError: An argument has the wrong type.
    """
    file: Path = convert_argument("path", path, str | Path)
    overrides = convert_argument("overrides", overrides, Mapping[str, Any] | None)
    return build_config(read_settings(file, overrides, convert_argument("regular", regular, bool)), origin=str(file))


def read_settings(path: Path, overrides: Mapping[str, Any] | None = None, regular: bool = True) -> dict[str, Any]:
    """Return the settings of a TOML file, nested, without those that it does not give.

    Args:
        path: The file.
        overrides: Settings that replace those of the file, nested like the file; none by default. A size also replaces
            the values of the presets (`PRESETS`) that the file gives as its own size has them, as the configuration of
            a run does; other values of the file stay.
        regular: Whether it must be a regular file; False also accepts a pipe. True by default.

    Raises:
        ConfigError: The file is missing, too large or not TOML, a key is unknown, or a setting has both its former and
            its current name.
    """
    settings = read_toml_settings(path, regular)
    try:
        if "size" in (overrides or {}):
            settings = _without_preset_values(settings)
        return overlay_settings(settings, overrides or {})
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


def _without_preset_values(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings without those that repeat a value of the preset of their size; without a size, all of them."""
    size = settings.get("size")
    if not (isinstance(size, str) and size in PRESETS):
        return dict(settings)
    preset = flatten_config(_overlay_preset({"size": size}))

    def is_repeated(section: str, name: str, value: object) -> bool:
        key = f"{section}.{name}"
        return key in PRESET_KEYS and value == preset[key]

    return {
        section: {name: value for name, value in values.items() if not is_repeated(section, name, value)}
        if isinstance(values, Mapping)
        else values
        for section, values in settings.items()
    }


RESTORE_ADVICE = "correct the file, or restore it from a copy of the run"
"""Advice of messages about the saved configuration of a run."""
ADDED_SETTINGS = frozenset(
    {
        "training.time_limit",
        "training.sampled_softmax",
        "data.group_column",
        *("data.delimiter", "data.class_column", "data.class_first", "data.context_words"),
        "training.callbacks",
        *("encoder.characters", "encoder.character_size", "encoder.word_dropout", "encoder.context_dropout"),
        *(f"training.{name}" for name in ("init_from", "init_from_digest", "freeze", "mix_in", "mix_in_fraction")),
    }
)
"""Settings that runs of earlier versions lack. Their defaults are what those versions did."""


@check_arguments
def load_saved_config(path: str | Path, base: Config | None = None) -> Config:
    """Load the configuration that a training saved, which holds every setting except `ADDED_SETTINGS`.

    Args:
        path: The file.
        base: Configuration with the values of missing settings; without it, a missing setting is an error.

    Raises:
        ConfigError: As in `load_config`, or a setting is missing. The message names the file, the setting and the
            expected value, and says that the file must be restored; or that the named task, attention or cell must be
            installed or registered. Names that only a training needs are not checked.
    """
    try:
        settings = read_toml_settings(path)
    except ConfigError as error:
        raise ConfigError(f"{error}; {RESTORE_ADVICE}") from error
    _require_extensions(path, settings)
    try:
        if base is not None:
            return override_settings(base, settings)
        config = _overlay_preset(settings)
        if not (missing := [key for key in _absent_keys(settings, config) if key not in ADDED_SETTINGS]):
            return _validated(config)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; {RESTORE_ADVICE}") from error
    others = f" and {len(missing) - 1:,} other settings" if len(missing) > 1 else ""
    raise ConfigError(f"{path} lacks {missing[0]}{others}: restore the file, or run the training command again")


def _require_extensions(path: str | Path, settings: Mapping[str, Any]) -> None:
    """Raise `MissingExtensionError` if saved settings name an extension that this process does not know."""
    for key, registry, name in named_extensions(settings):
        if not registry.is_training_only and is_valid_name(name) and name not in registry:
            raise MissingExtensionError(f"{path}: {registry.missing_message(key, name)}")


def named_extensions(settings: Mapping[str, Any]) -> Iterator[tuple[str, ExtensionRegistry[Any], str]]:
    """Yield the key, the registry and the name of each extension, built in or not, that settings name.

    Args:
        settings: Settings, nested like a configuration.
    """
    registries = _extension_settings()
    for key, value in _leaves(settings, ""):
        if key in registries:
            registry, takes_list = registries[key]
            items = value if takes_list and isinstance(value, list | tuple) else [value]
            yield from ((key, registry, name) for name in items if isinstance(name, str))


@cache
def _extension_settings() -> Mapping[str, tuple[ExtensionRegistry[Any], bool]]:
    """Return the registry of each setting that names extensions, by its full key, and whether it is a list of names."""
    sections = {field.name: field.type for field in msgspec.structs.fields(Config)}
    kinds = {f"{name}.{key}": kind for name in sections if is_section(sections[name])
             for key, kind in _field_types(sections[name]).items()}  # fmt: skip
    found = {key: (extension_registry(kind), get_origin(kind) is tuple) for key, kind in {**sections, **kinds}.items()}
    return {key: (registry, takes_list) for key, (registry, takes_list) in found.items() if registry is not None}


def unused_extension_notes(config: Config) -> list[str]:
    """Return a sentence for each built-in name of a configuration that an installed package declares too.

    Args:
        config: Configuration of a training.
    """
    named = named_extensions(msgspec.to_builtins(config))
    return list(dict.fromkeys(filter(None, (registry.unused_note(key, name) for key, registry, name in named))))


def _extension_advice(prefix: str, section: Mapping[Any, Any]) -> str:
    """Return what to do in place of an unknown key if a section names an extension; "" if it names none."""
    types = (str, list, tuple)  # of names; mappings may contain themselves
    texts = {key: value for key, value in section.items() if type(key) is str and issubclass(type(value), types)}
    for key, registry, name in named_extensions({prefix.rstrip("."): texts}):
        if name not in registry.built_in:
            return (
                f"; the {registry.kind} {quote(name)} cannot add settings: make the value a class attribute, and give "
                f"{key} the name of a subclass for each value"
                + (
                    ", or let the class read a setting of the section, such as attention.filter_radius"
                    * (prefix == "attention.")
                )
            )
    return ""


@check_arguments
def check_training_extensions(config: Config) -> None:
    """Check that the optimizer, the metric and the callbacks of a training are built in, registered or declared.

    A trained run can be used without them, so a saved configuration is not checked.

    Args:
        config: Configuration of a training.

    Raises:
        MissingExtensionError: One is unknown; the message suggests the nearest name.
        ConfigError: A callback is named twice.
    """
    for key, registry, name in named_extensions(msgspec.to_builtins(config)):
        if registry.is_training_only and name not in registry:
            known = registry.names()
            raise MissingExtensionError(
                f"{key}: expected {join_choices(known)}, or one that is installed (entry points "
                f"{quote(registry.group)}) or registered, got {quote(name)}{suggest_choice(name, known)}"
            )
    names = config.training.callbacks
    if repeated := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(f"training.callbacks: {quote(repeated)} is listed twice")


@check_arguments
def missing_settings(path: str | Path, config: Config) -> list[str]:
    """Return the full keys of a configuration that its file lacks.

    Args:
        path: The file.
        config: The complete configuration.

    Raises:
        ConfigError: The file is missing, too large or not TOML, or has a setting by both names.
    """
    return _absent_keys(read_toml_settings(path), config)


def _absent_keys(settings: Mapping[str, Any], config: Config) -> list[str]:
    """Return the full keys of a configuration that its TOML tables lack."""
    present = {key for key, _ in _leaves(settings, "")}
    return [key for key in flatten_config(config) if key not in present]


@check_arguments
def read_toml_settings(path: str | Path, regular: bool = True) -> dict[str, Any]:
    """Return the settings of a TOML file, nested, with their current names.

    Args:
        path: The file.
        regular: Whether it must be a regular file; False also accepts a pipe. True by default.

    Raises:
        ConfigError: As in `read_toml`, or a setting has both its former and its current name.
    """
    settings = read_toml(path, regular)
    try:
        return with_current_names(settings)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from error


@check_arguments
def read_toml(path: str | Path, regular: bool = True) -> dict[str, Any]:
    """Return the tables of a TOML file of at most `MAX_SETTINGS_SIZE` bytes.

    Args:
        path: The file.
        regular: Whether it must be a regular file; False also accepts a pipe. True by default.

    Raises:
        ConfigError: The file is missing, too large or not TOML, a line has more than `MAX_DOTS` dots or all of them
            more than `MAX_ALL_DOTS`, values are nested too deeply, or a whole number has more than 64 bits, which TOML
            does not allow.
    """
    path = Path(path)
    # Python's parser raises ValueError for numbers of more than 4,300 digits, RecursionError for deeply nested lists.
    content = read_bytes(path, ConfigError, MAX_SETTINGS_SIZE, regular)
    if max(line.count(b".") for line in content.split(b"\n")) > MAX_DOTS:
        raise ConfigError(f"{path} is not TOML: a line has more than {MAX_DOTS:,} dots")
    if content.count(b".") > MAX_ALL_DOTS:
        raise ConfigError(f"{path} has more than {MAX_ALL_DOTS:,} dots: this is not a file of settings")
    try:
        settings = tomllib.loads(content.decode("utf-8-sig"))  # editors of Windows write a byte order mark
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {abbreviate_reason(error)}") from error
    except ValueError as error:
        raise ConfigError(f"{path} is not TOML: it contains a number with thousands of digits") from error
    except RecursionError:
        raise ConfigError(f"{path} is not TOML: {NESTING_ERROR}") from None
    if _is_deep(settings):
        raise ConfigError(f"{path} is not TOML: {NESTING_ERROR}")
    for key, value in _leaves(settings, ""):
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, int) and not -(2**63) <= item < 2**63:
                raise ConfigError(f"{path}: {key}: expected a whole number of at most 64 bits, got {quote(item)}")
    return settings


def _is_deep(table: Mapping[str, Any]) -> bool:
    """Return whether more than `MAX_DEPTH` tables are within each other."""
    tables = [table]
    for _ in range(MAX_DEPTH):
        tables = [value for each in tables for value in each.values() if isinstance(value, Mapping)]
    return bool(tables)


def build_config(settings: Mapping[str, Any], origin: str) -> Config:
    """Return the complete configuration of some settings.

    Args:
        settings: Nested settings; missing ones have the values of the presets of size and task. Without a size, or
            with "auto", the size is "base".
        origin: Origin of the settings, such as a file name, with which messages begin.

    Raises:
        ConfigError: A key is unknown, a value is invalid, or settings contradict each other.
    """
    try:
        nested = _to_dict(settings, Config)
        choice: SizeChoice = convert_setting("size", nested.get("size", AUTO_SIZE), SizeChoice)
        config = _overlay_preset({**nested, "size": default_size() if choice == AUTO_SIZE else choice})
        check_training_extensions(config)
        return _validated(config)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error


def _overlay_preset(settings: Mapping[str, Any]) -> Config:
    """Return the preset overlaid by some settings; raise `ConfigError` for an unknown key or an invalid value."""
    nested = _to_dict(settings, Config)
    size: Size = convert_setting("size", nested.get("size", default_size()), Size)
    task: TaskName = convert_value("task", nested.get("task", DEFAULT_TASK), TaskName)
    preset_settings = _merge(_merge(SHARED_PRESET, PRESETS[size]), get_task_settings(task).presets)
    config: Config = _build_struct(_merge(preset_settings, nested), Config)
    return config


@check_arguments
def validate_config(config: Config) -> Config:
    """Return a configuration after checking it; values are converted to the types of their settings.

    Args:
        config: The configuration.

    Raises:
        ConfigError: A section or value has a wrong type, a value is out of range, or settings contradict each other.
    """
    return _validated(convert_settings(config))


@check_arguments
def convert_settings(config: Config) -> Config:
    """Return a configuration whose values are converted to the types of their settings, each by itself.

    Args:
        config: The configuration.

    Raises:
        ConfigError: A section or value has a wrong type, or a value is out of range.
    """
    converted: Config = _build_struct(_to_dict(config, Config), Config)
    return converted


@check_arguments
def check_settings(settings: Mapping[str, Any]) -> None:
    """Check the keys and values of some settings, each by itself.

    Args:
        settings: Settings, nested like a configuration; the others need not be there.

    Raises:
        ConfigError: A key is unknown, or a value has a wrong type or is out of range.
    """
    _overlay_preset(settings)


@check_arguments
def override_settings(config: Config, overrides: Mapping[str, Any]) -> Config:
    """Return a configuration with some settings replaced; the presets are not applied again.

    Args:
        config: Configuration.
        overrides: Settings that replace its own, nested like a configuration; a section is a dict or a struct.

    Raises:
        ConfigError: A key is unknown, a value is invalid, or settings contradict each other.
    """
    return _validated(_build_struct(_merge(_to_dict(config, Config), _to_dict(overrides, Config)), Config))


def _to_dict(settings: object, struct: type[Settings], prefix: str = "") -> dict[str, Any]:
    """Return settings as a dict, with sections as dicts.

    Args:
        settings: A struct or a mapping.
        struct: Type of the struct.
        prefix: Prefix of keys in messages.

    Raises:
        ConfigError: A section is not a table (in a struct: not a struct of its type), or a key does not exist.
    """
    fields = _field_types(struct)
    try:
        if isinstance(settings, struct):
            table = {name: getattr(settings, name) for name in fields}
        elif isinstance(settings, Mapping):
            table = copy_bounded_mapping(settings)
        else:
            location = f"{prefix.rstrip('.')}: " if prefix else ""
            raise ConfigError(f"{location}expected a table, got {describe_value(settings)}")
    except TypeMismatchError as error:
        raise ConfigError(error.message(prefix.rstrip(".")).removeprefix(": ")) from None
    except ConfigError:
        raise
    except Exception as error:  # methods of a mapping may raise anything
        message = f"expected a table, got {describe_value(settings)}, which raises {type(error).__name__}"
        raise ConfigError(f"{prefix.rstrip('.')}: {message}" if prefix else message) from error
    for key, value in table.items():
        is_text = issubclass(type(key), str)
        key_text = str.__str__(key) if is_text else describe_value(key)
        if not is_text or key_text not in fields:
            advice = renaming_advice(prefix + key_text) or suggest(key_text, fields, prefix)
            advice = advice or _extension_advice(prefix, table)
            raise ConfigError(f"unknown key {quote(f'{prefix}{key_text}')}{advice}")
        if is_section(fields[key_text]):
            if isinstance(settings, struct) and not issubclass(type(value), fields[key_text]):
                expected = describe_type(fields[key_text])
                raise ConfigError(f"{prefix}{key_text}: expected {expected}, got {describe_value(value)}")
            table[key] = _to_dict(value, fields[key_text], f"{prefix}{key_text}.")
    return table


@cache
def _field_types(struct: type[Settings]) -> dict[str, Any]:
    """Return the types of a struct's fields; cached, because msgspec reads the annotations again at each call."""
    return {field.name: field.type for field in msgspec.structs.fields(struct)}


def is_section(kind: Any) -> bool:  # noqa: ANN401 (any type)
    """Return whether a field of this type is a section, which is a table in TOML, such as [encoder].

    Args:
        kind: Type of the field.
    """
    return isinstance(kind, type) and issubclass(kind, Settings)


def _build_struct(settings: Mapping[str, Any], struct: type[Settings], prefix: str = "") -> Any:  # noqa: ANN401 (a struct)
    """Return complete settings as a struct; raise `ConfigError` for a value of the wrong type or out of range."""
    values = dict[str, Any]()
    for name, kind in _field_types(struct).items():
        key = f"{prefix}{name}"
        if name not in settings:
            continue  # the default applies
        value = settings[name]
        if is_section(kind):
            values[name] = _build_struct(value, kind, f"{key}.")
        elif (registry := extension_registry(kind)) is not None and registry.is_training_only:
            values[name] = _convert_names(key, value, kind)  # checked where a training begins
        else:
            values[name] = convert_value(key, value, kind)
    return struct(**values)


def _convert_names(key: str, value: object, kind: object) -> Any:  # noqa: ANN401 (text, or a tuple of texts)
    """Return the name or names of extensions that may be unknown here; raise `ConfigError` for other values."""
    converted = convert_setting(key, value, tuple[str, ...] if get_origin(kind) is tuple else str)
    names = converted if isinstance(converted, tuple) else (converted,)
    if invalid := next((name for name in names if not is_valid_name(name)), None):
        raise ConfigError(f"{key}: expected the name of an extension, got {quote(invalid)}")
    return converted


EXTENSION_TYPES: tuple[tuple[object, ExtensionRegistry[Any]], ...] = (
    (TaskName, TASKS),
    (AttentionName, ATTENTION_TYPES),
    (CellName, CELL_TYPES),
    (OptimizerName, OPTIMIZER_TYPES),
    (MetricName, METRIC_TYPES),
    (CallbackName, CALLBACK_TYPES),
)
"""Types of settings that are names of extensions, with all their values."""


def convert_value(key: str, value: object, kind: object) -> Any:  # noqa: ANN401 (a value of the annotated type)
    """Return the value of a setting as its type, as `convert_setting` does; a name must belong to an extension.

    Args:
        key: Full key of the setting.
        value: The value.
        kind: Type of the setting.

    Raises:
        MissingExtensionError: There is no extension of this name.
        ConfigError: The value has another type or is out of range.
    """
    registry = extension_registry(kind)
    if registry is None:
        return convert_setting(key, value, kind)
    is_tuple = get_origin(kind) is tuple
    if type(value) is str and value in registry and not is_tuple:
        return value
    choice: Any = Literal[registry.names()]
    try:
        return convert_setting(key, value, tuple[choice, ...] if is_tuple else choice)
    except ConfigError as error:
        if is_tuple:
            names: Sequence[object] = value if isinstance(value, list | tuple) else ()
            note = ""
        else:
            names = (value,)
            note = registry.absent_note(value)
        is_missing = any(isinstance(name, str) and name not in registry for name in names)
        raise (MissingExtensionError if is_missing else ConfigError)(f"{error}{note}") from None


def extension_registry(kind: object) -> ExtensionRegistry[Any] | None:
    """Return the registry of the names that a setting accepts; None for settings that are no such name or names.

    Args:
        kind: Type of the setting.
    """
    item = get_args(kind)[0] if get_origin(kind) is tuple else kind
    return next((registry for name_type, registry in EXTENSION_TYPES if item == name_type), None)


def _validated(config: Config) -> Config:
    """Return a configuration; raise `ConfigError` if settings contradict each other."""
    check_consistency(config)
    return config


@check_arguments
def flatten_config(config: Config) -> dict[str, Any]:
    """Return all settings by their full keys: {"size": "base", "encoder.num_layers": 1, ...}.

    Args:
        config: The configuration.
    """
    return dict(_leaves(msgspec.to_builtins(config), ""))


@check_arguments
def changed_settings(config: Config) -> dict[str, Any]:
    """Return the settings that differ from the defaults of the size and the task, by their full keys.

    Args:
        config: The configuration.
    """
    defaults = flatten_config(_overlay_preset({"size": config.size, "task": config.task}))
    return {key: value for key, value in flatten_config(config).items() if value != defaults[key]}


@check_arguments
def config_differences(saved: Config, current: Config) -> list[str]:
    """Return a line for each setting that differs: "training.patience: 0 (never) in the run, 2 now".

    Args:
        saved: Configuration of the run.
        current: Configuration of the present call.

    Returns:
        Lines in the order of the settings; none for equal configurations.
    """
    current_values = flatten_config(current)
    return [
        f"{key}: {_shown(key, value)} in the run, {_shown(key, current_values[key])} now"
        for key, value in flatten_config(saved).items()
        if value != current_values[key]
    ]


ZERO = re.compile(r"\b0 (?:=|is|uses|(?P<derives>derives it)) (?P<meaning>[^.;)]+)")
"""Meaning of the value 0 in the docstring of a setting."""


def _shown(key: str, value: object) -> str:
    """Return a value for a message; a 0 with a special meaning is followed by that meaning."""
    section, _, name = key.rpartition(".")
    struct = {field.name: field.type for field in msgspec.structs.fields(Config)}[section] if section else Config
    meaning = ZERO.search(_field_docstrings(struct)[name]) if value == 0 and not isinstance(value, bool) else None
    if meaning is None:
        return quote(value)
    return f"{quote(value)} ({'derived ' if meaning['derives'] else ''}{meaning['meaning']})"


@check_arguments
def to_toml(config: Config) -> str:
    """Return a configuration as TOML, with the meaning of each setting in a comment above it.

    Args:
        config: The configuration.
    """
    lines: list[str] = []
    nested = [(field.name, getattr(config, field.name)) for field in msgspec.structs.fields(config)]
    lines += _section_lines(config, [(name, value) for name, value in nested if not isinstance(value, Settings)])
    for name, value in nested:
        if isinstance(value, Settings):
            lines += ["", f"[{name}]"]
            lines += _section_lines(value, [(f.name, getattr(value, f.name)) for f in msgspec.structs.fields(value)])
    return "\n".join(lines) + "\n"


def _section_lines(settings: Settings, values: list[tuple[str, Any]]) -> list[str]:
    """Return the lines of the settings of one section, each with its comment."""
    about = _field_docstrings(type(settings))
    return [line for name, value in values for line in (f"# {about[name]}", _format_setting(name, value))]


def _format_setting(name: str, value: object) -> str:
    """Return a setting as a line of TOML."""
    if isinstance(value, tuple):
        return f"{name} = {list(value)}"
    return tomli_w.dumps({name: value}).strip()


_PARSER_LOCK = Lock()
"""Lock for parsing Python code: in Python 3.11, two threads that parse at the same time may raise SystemError."""


@cache
def _field_docstrings(struct: type[Settings]) -> dict[str, str]:
    """Return the string below each field of a struct in one line, by field name."""
    with _PARSER_LOCK:
        body = cast(ast.ClassDef, ast.parse(inspect.getsource(struct)).body[0]).body
    return {
        cast(ast.Name, field.target).id: " ".join(cast(str, cast(ast.Constant, text.value).value).split())
        for field, text in pairwise(body)
        if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr)
    }


def overlay_settings(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return some settings, nested like a configuration, in which others replace those of the same keys.

    Args:
        base: Settings; the others need not be there.
        overrides: Settings that take precedence.

    Raises:
        ConfigError: A key is unknown, or a section is not a table.
    """
    return _merge(_to_dict(base, Config), _to_dict(overrides, Config))


def _merge(base: Mapping[str, Any], overrides: Mapping[str, Any]) -> dict[str, Any]:
    """Return nested settings in which `overrides` replace those of `base`."""
    merged = dict(base)
    for key, value in overrides.items():
        section = merged.get(key)
        merged[key] = {**section, **value} if isinstance(section, Mapping) and isinstance(value, Mapping) else value
    return merged


def _leaves(table: Mapping[str, Any], prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield the values of nested settings with their full keys."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


def setting_choices(kind: Any) -> tuple[str, ...]:  # noqa: ANN401 (any type)
    """Return the choices of a setting, as TOML and flags spell them; empty if its values are not choices.

    Args:
        kind: Type of the setting.
    """
    if kind == Header:
        return HEADER_CHOICES
    registry = extension_registry(kind)
    if registry is not None and get_origin(kind) is not tuple:
        return registry.names()
    return get_args(kind) if get_origin(kind) is Literal else ()
