"""The search space: for each setting its choices, its range, or a link to another setting; read from TOML."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from pellucid.argument_checks import check_arguments
from pellucid.config.renamed_settings import current_key
from pellucid.config.settings import Config, Settings
from pellucid.config.toml import build_config, convert_value, extension_registry, flatten_config, read_toml_settings
from pellucid.config.validation import reset_unused
from pellucid.errors import ConfigError, abbreviate_reason, quote, suggest

Value = bool | int | float | str
"""Value of a searched setting."""
Multiple = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
MAX_STEPS = 10**6
"""Maximum number of steps of a range."""
FORMS = '{choices = [...]}, {from = ..., to = ...}, {times = [...]} or {like = "another.key"}'


class ChoiceDimension(NamedTuple):
    """Searched setting with a list of values."""

    key: str
    """Full key of the setting, such as "encoder.cell"."""
    values: tuple[Value, ...]


class RangeDimension(NamedTuple):
    """Searched setting with a range of values from low to high, both included; integers if both are integers."""

    key: str
    """Full key of the setting."""
    low: float
    high: float
    step: float | None
    """Distance between values, counted from `low`; None for a continuous range, or for all integers."""
    log: bool
    """Whether values are sampled uniformly on a logarithmic scale."""


class LinkedSetting(NamedTuple):
    """A setting whose value is a multiple of another setting's value."""

    key: str
    """Full key of the setting."""
    other: str
    """Full key of the other setting."""
    times: float
    """Factor; 1 also for values that are no numbers."""


class SearchSpace(NamedTuple):
    """Settings that a search varies, and settings that follow them."""

    searched: tuple[ChoiceDimension | RangeDimension, ...]
    linked: tuple[LinkedSetting, ...]


class _ChoicesForm(Settings, frozen=True, kw_only=True):
    choices: tuple[Value, ...]


class _RangeForm(Settings, frozen=True, kw_only=True):
    low: int | float = msgspec.field(name="from")
    high: int | float = msgspec.field(name="to")
    step: int | float | None = None
    scale: Literal["linear", "log"] = "linear"


class _MultiplesForm(Settings, frozen=True, kw_only=True):
    times: tuple[Multiple, ...]


class _LinkForm(Settings, frozen=True, kw_only=True):
    like: str
    times: Multiple = 1.0


_DimensionForm = _ChoicesForm | _RangeForm | _MultiplesForm | _LinkForm


@check_arguments
def load_space(path: str | Path, base: Config) -> SearchSpace:
    """Read a search space from a TOML file.

    Args:
        path: The file, which may be a pipe.
        base: Configuration to which multiples ({times = [...]}) refer, and which gives the types of values.

    Raises:
        ConfigError: The file is missing or not TOML, a key is unknown or `training.metric`, a setting has another form
            than those of `FORMS`, a value is not allowed, a link is circular, or the space is empty. The message names
            file, key and what was expected.
    """
    path = Path(path)
    return _parse_space(read_toml_settings(path, regular=False), base, str(path))


def default_space(base: Config, explicit: Collection[str]) -> SearchSpace:
    """Return the search space of the package's `space.toml`, without the settings that the user has set.

    A setting that is linked to such a setting takes its value from it.

    Args:
        base: Configuration to which multiples refer.
        explicit: Full keys of the settings that the user has set, which are not searched.

    Raises:
        ConfigError: No setting is left to search, or a multiple is not allowed for its setting.
    """
    text = resources.files("pellucid.tuning").joinpath("space.toml").read_text("utf-8")
    tables = {
        section: {name: form for name, form in forms.items() if f"{section}.{name}" not in explicit}
        for section, forms in tomllib.loads(text).items()
    }
    return _parse_space(tables, base, "the default space")


def apply_values(base: Config, space: SearchSpace, values: Mapping[str, Value], origin: str) -> Config:
    """Return a configuration with the values of a trial, and with the settings linked to them.

    Settings that become unused are reset to their defaults, so that the configuration is valid.

    Args:
        base: Configuration of the other settings.
        space: The search space, for its links.
        values: Values of searched settings, by full key.
        origin: Name of the values in error messages.

    Raises:
        ConfigError: A value is out of range, or settings contradict each other.
    """
    settings: dict[str, Any] = msgspec.to_builtins(base)
    for key, value in values.items():
        _set_setting(settings, key, value)
    for linked in _order_links(space.linked):
        _set_setting(settings, linked.key, _scale_value(_get_setting(settings, linked.other), linked.times))
    return reset_unused(build_config(settings, origin))


def initial_values(base: Config, space: SearchSpace) -> dict[str, Value]:
    """Return the values of a configuration that lie within the space, by full key; the first trial has them.

    Args:
        base: Configuration at which the search starts.
        space: The search space; settings whose current value is outside are left out.
    """
    current = flatten_config(base)
    return {
        dimension.key: current[dimension.key]
        for dimension in space.searched
        if _contains(dimension, current[dimension.key])
    }


def describe_space(space: SearchSpace) -> list[str]:
    """Return one line per setting: "training.learning_rate: 0.0003 to 0.01, log".

    Args:
        space: The search space.
    """
    lines = []
    for item in space.searched:
        if isinstance(item, ChoiceDimension):
            lines.append(f"{item.key}: {', '.join(map(str, item.values))}")
        else:
            step = f", by {item.step:g}" if item.step else ", log" if item.log else ""
            lines.append(f"{item.key}: {item.low:g} to {item.high:g}{step}")
    return lines + [f"{item.key}: {item.times:g} × {item.other}" for item in space.linked]


def _parse_space(tables: Mapping[str, Any], base: Config, origin: str) -> SearchSpace:
    """Return the search space of nested tables."""
    current, searched, linked = flatten_config(base), list[ChoiceDimension | RangeDimension](), list[LinkedSetting]()
    for section, forms in tables.items():
        if not isinstance(forms, Mapping):
            raise ConfigError(f"{origin}: {section}: only settings of a section can be searched, such as [encoder]")
        for name, form_table in forms.items():
            key = f"{section}.{name}"
            if key not in current or key == "training.metric":
                reason = (
                    "it is the objective of the search" if key in current else f"unknown key{suggest(key, current)}"
                )
                raise ConfigError(f"{origin}: {quote(key)} cannot be searched: {reason}")
            form = _parse_form(form_table, f"{origin}: {key}")
            if isinstance(form, _LinkForm):
                linked.append(_parse_link(key, form, current, origin))
            else:
                searched.append(_parse_dimension(key, form, current[key], origin))
    if not searched:
        raise ConfigError(f"{origin}: the search space is empty")
    space = SearchSpace(tuple(searched), tuple(linked))
    _order_links(space.linked)
    return space


def _parse_form(table: object, origin: str) -> _DimensionForm:
    """Return the parsed table of a setting."""
    kinds: Sequence[tuple[str, type[_DimensionForm]]] = (
        ("like", _LinkForm),
        ("choices", _ChoicesForm),
        ("from", _RangeForm),
        ("times", _MultiplesForm),
    )
    for keyword, kind in kinds:
        if isinstance(table, Mapping) and keyword in table:
            try:
                return msgspec.convert(table, kind)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{origin}: {abbreviate_reason(error).replace('`', '')}") from error
    raise ConfigError(f"{origin}: expected {FORMS}, got {quote(table)}")


def _parse_dimension(
    key: str, form: _ChoicesForm | _RangeForm | _MultiplesForm, current: Value | tuple[int, ...], origin: str
) -> ChoiceDimension | RangeDimension:
    """Return the dimension of a setting; its values have the setting's type and range."""
    if isinstance(form, _RangeForm):
        span = RangeDimension(key, form.low, form.high, form.step, form.scale == "log")
        if not -inf < form.low < form.high < inf or (span.log and (form.low <= 0 or span.step)):
            raise ConfigError(f'{origin}: {key}: expected from < to; scale = "log" requires from > 0 and no step')
        if form.step is not None:
            _check_step(form, type(current) is int, f"{origin}: {key}")
        if isinstance(current, bool | str) or (isinstance(current, int) and not isinstance(form.low * form.high, int)):
            raise ConfigError(f"{origin}: {key}: expected {'whole numbers' if type(current) is int else 'choices'}")
        values: Sequence[Value] = (form.low, form.high)
    elif isinstance(form, _MultiplesForm):
        if not _is_number(current):
            raise ConfigError(f"{origin}: {key}: {quote(current)} has no multiples; expected choices")
        values = tuple(dict.fromkeys(_scale_value(current, times) for times in form.times))
    else:
        values = tuple(dict.fromkeys(form.choices))
    if not values:
        raise ConfigError(f"{origin}: {key}: expected at least one value")
    for value in values:
        _check_value(key, value, origin)
    return span if isinstance(form, _RangeForm) else ChoiceDimension(key, tuple(values))


def _check_step(form: _RangeForm, has_whole_numbers: bool, origin: str) -> None:
    """Raise `ConfigError` for a step that does not fit in its range; not-a-number fails both comparisons."""
    step, width = form.step, form.high - form.low
    assert step is not None
    if not 0 < step <= width or width > MAX_STEPS * step:
        raise ConfigError(
            f"{origin}: step: expected a number above 0, at most to - from = {width:g}, and at most {MAX_STEPS:,} "
            f"steps, got {step:g}"
        )
    if has_whole_numbers and not isinstance(step, int):
        raise ConfigError(f"{origin}: step: expected a whole number, got {quote(step)}")


def _check_value(key: str, value: Value, origin: str) -> None:
    """Raise `ConfigError` for a value that the setting does not allow."""
    section, _, name = key.partition(".")
    kinds = {field.name: field.type for field in msgspec.structs.fields(Config)}
    kind = {field.name: field.type for field in msgspec.structs.fields(kinds[section])}[name]
    if extension_registry(kind) is not None:
        try:
            convert_value(key, value, kind)
        except ConfigError as error:
            raise ConfigError(f"{origin}: {error}") from error
        return
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        reason = abbreviate_reason(error).replace("`", "")
        raise ConfigError(f"{origin}: {key}: {reason}, got {quote(value)}") from error


def _parse_link(key: str, form: _LinkForm, current: Mapping[str, Any], origin: str) -> LinkedSetting:
    """Return the link of a setting to another of the same kind."""
    other = current_key(form.like)
    if other not in current:
        raise ConfigError(f"{origin}: {key}: like: unknown key {quote(other)}{suggest(other, current)}")
    if form.times != 1 and not all(_is_number(current[name]) for name in (key, other)):
        raise ConfigError(f"{origin}: {key}: {other} has no multiples")
    return LinkedSetting(key, other, form.times)


def _order_links(linked: Sequence[LinkedSetting]) -> list[LinkedSetting]:
    """Return the links so that each follows the link that sets its source; raise `ConfigError` for a cycle."""
    pending, ordered = list(linked), list[LinkedSetting]()
    while pending:
        pending_keys = {link.key for link in pending}
        resolved = [link for link in pending if link.other not in pending_keys]
        if not resolved:
            raise ConfigError(f"{pending[0].key} is linked to itself through {pending[0].other}")
        ordered += resolved
        pending = [link for link in pending if link not in resolved]
    return ordered


def _scale_value(value: Any, times: float) -> Any:  # noqa: ANN401 (as in a configuration)
    """Return a multiple of a value; an integer is rounded and at least 1."""
    if not _is_number(value):
        return value
    return max(1, round(value * times)) if isinstance(value, int) else round(value * times, 10)


def _is_number(value: object) -> bool:
    """Return True for a number, but not for a bool."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _contains(dimension: ChoiceDimension | RangeDimension, value: Value) -> bool:
    """Return True if a dimension contains a value."""
    if isinstance(dimension, ChoiceDimension):
        return value in dimension.values
    if isinstance(value, bool | str) or not dimension.low <= value <= dimension.high:
        return False
    steps = (value - dimension.low) / dimension.step if dimension.step else 0.0
    return abs(steps - round(steps)) < 1e-9


def _get_setting(settings: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401
    """Return a setting of nested tables by its full key."""
    section, _, name = key.partition(".")
    return settings[section][name] if name else settings[section]


def _set_setting(settings: dict[str, Any], key: str, value: Value) -> None:
    """Set a setting of nested tables by its full key."""
    section, _, name = key.partition(".")
    settings[section][name] = value
