"""What is searched: for each setting its choices, its range, or the setting that it goes along with; from TOML."""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from pellucid.config.settings import Config, Settings
from pellucid.config.toml import flattened, from_settings, read_toml
from pellucid.config.validation import without_idle
from pellucid.errors import ConfigError, abbreviate_reason, nearest, quote

Value = bool | int | float | str
Multiple = Annotated[float, msgspec.Meta(gt=0.0, le=1e6)]
FORMS = '{choices = [...]}, {from = ..., to = ...}, {times = [...]} or {like = "another.key"}'


class Choice(NamedTuple):
    """One of these values."""

    key: str
    values: tuple[Value, ...]


class Range(NamedTuple):
    """Any value from the lowest to the highest, both included, whole where both are."""

    key: str
    low: float
    high: float
    step: float | None
    log: bool


class Linked(NamedTuple):
    """So many times the value of another setting."""

    key: str
    other: str
    times: float


class Space(NamedTuple):
    """All that is searched, and what goes along with it."""

    searched: tuple[Choice | Range, ...]
    linked: tuple[Linked, ...]


class _Choices(Settings, frozen=True, kw_only=True):
    choices: tuple[Value, ...]


class _Span(Settings, frozen=True, kw_only=True):
    low: int | float = msgspec.field(name="from")
    high: int | float = msgspec.field(name="to")
    step: int | float | None = None
    scale: Literal["linear", "log"] = "linear"


class _Times(Settings, frozen=True, kw_only=True):
    times: tuple[Multiple, ...]


class _Like(Settings, frozen=True, kw_only=True):
    like: str
    times: Multiple = 1.0


_Form = _Choices | _Span | _Times | _Like


def load_space(path: Path, base: Config) -> Space:
    """The space of a TOML file; multiples are of `base`. `ConfigError` names file, key and what was expected."""
    return _space(read_toml(path, regular=False), base, str(path))


def default_space(base: Config, given: Collection[str]) -> Space:
    """The space that is searched where nothing else is said, without the settings that were given by themselves.

    What goes along with a setting that was given goes along with its value.
    """
    text = resources.files("pellucid.tuning").joinpath("space.toml").read_text("utf-8")
    tables = {
        section: {name: form for name, form in forms.items() if f"{section}.{name}" not in given}
        for section, forms in tomllib.loads(text).items()
    }
    return _space(tables, base, "the default space")


def configured(base: Config, space: Space, values: Mapping[str, Value], origin: str) -> Config:
    """`base` with these values, and with what goes along with them; `ConfigError` where they contradict each other.

    What the values leave idle is as it is by default, so that the best configuration can be trained with.
    """
    settings: dict[str, Any] = msgspec.to_builtins(base)
    for key, value in values.items():
        _put(settings, key, value)
    for linked in _in_order(space.linked):
        _put(settings, linked.key, _multiple(_get(settings, linked.other), linked.times))
    return without_idle(from_settings(settings, origin))


def start(base: Config, space: Space) -> dict[str, Value]:
    """The values of `base` that lie within the space: where a search begins."""
    now = flattened(base)
    return {each.key: now[each.key] for each in space.searched if _holds(each, now[each.key])}


def described(space: Space) -> list[str]:
    """One line a setting: "training.learning_rate: 0.0003 to 0.01, log"."""
    lines = []
    for each in space.searched:
        if isinstance(each, Choice):
            lines.append(f"{each.key}: {', '.join(map(str, each.values))}")
        else:
            step = f", by {each.step:g}" if each.step else ", log" if each.log else ""
            lines.append(f"{each.key}: {each.low:g} to {each.high:g}{step}")
    return lines + [f"{each.key}: {each.times:g} × {each.other}" for each in space.linked]


def _space(tables: Mapping[str, Any], base: Config, origin: str) -> Space:
    """A space from nested tables."""
    now, searched, linked = flattened(base), list[Choice | Range](), list[Linked]()
    for section, forms in tables.items():
        if not isinstance(forms, Mapping):
            raise ConfigError(f"{origin}: {section}: only settings of a section can be searched, such as [encoder]")
        for name, given in forms.items():
            key = f"{section}.{name}"
            if key not in now or key == "training.metric":
                why = "it is what the search goes by" if key in now else f"unknown key{nearest(key, now)}"
                raise ConfigError(f"{origin}: {quote(key)} cannot be searched: {why}")
            form = _form(given, f"{origin}: {key}")
            if isinstance(form, _Like):
                linked.append(_linked(key, form, now, origin))
            else:
                searched.append(_dimension(key, form, now[key], origin))
    if not searched:
        raise ConfigError(f"{origin}: there is nothing to search")
    space = Space(tuple(searched), tuple(linked))
    _in_order(space.linked)
    return space


def _form(given: object, origin: str) -> _Form:
    """What a setting's table says."""
    kinds: Sequence[tuple[str, type[_Form]]] = (
        ("like", _Like),
        ("choices", _Choices),
        ("from", _Span),
        ("times", _Times),
    )
    for mark, kind in kinds:
        if isinstance(given, Mapping) and mark in given:
            try:
                return msgspec.convert(given, kind)
            except msgspec.ValidationError as error:
                raise ConfigError(f"{origin}: {abbreviate_reason(error).replace('`', '')}") from error
    raise ConfigError(f"{origin}: expected {FORMS}, got {quote(given)}")


def _dimension(key: str, form: _Choices | _Span | _Times, now: Value | tuple[int, ...], origin: str) -> Choice | Range:
    """The values of one setting, each of the type and in the range that the setting has."""
    if isinstance(form, _Span):
        span = Range(key, form.low, form.high, form.step, form.scale == "log")
        if not form.low < form.high or (span.log and (form.low <= 0 or span.step)) or (span.step or 1) <= 0:
            raise ConfigError(f"{origin}: {key}: expected from < to; log wants from > 0 and no step")
        if isinstance(now, bool | str) or (isinstance(now, int) and not isinstance(form.low * form.high, int)):
            raise ConfigError(f"{origin}: {key}: expected {'whole numbers' if type(now) is int else 'choices'}")
        values: Sequence[Value] = (form.low, form.high)
    elif isinstance(form, _Times):
        if not _has_multiples(now):
            raise ConfigError(f"{origin}: {key}: {quote(now)} has no multiples; expected choices")
        values = tuple(dict.fromkeys(_multiple(now, times) for times in form.times))
    else:
        values = tuple(dict.fromkeys(form.choices))
    if not values:
        raise ConfigError(f"{origin}: {key}: there is nothing to choose from")
    for value in values:
        _check(key, value, origin)
    return span if isinstance(form, _Span) else Choice(key, tuple(values))


def _check(key: str, value: Value, origin: str) -> None:
    """Refuse a value that the setting cannot have."""
    section, _, name = key.partition(".")
    kinds = {field.name: field.type for field in msgspec.structs.fields(Config)}
    kind = {field.name: field.type for field in msgspec.structs.fields(kinds[section])}[name]
    try:
        msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        told = abbreviate_reason(error).replace("`", "")
        raise ConfigError(f"{origin}: {key}: {told}, got {quote(value)}") from error


def _linked(key: str, form: _Like, now: Mapping[str, Any], origin: str) -> Linked:
    """The link of one setting to another of the same kind."""
    if form.like not in now:
        raise ConfigError(f"{origin}: {key}: like: unknown key {quote(form.like)}{nearest(form.like, now)}")
    if form.times != 1 and not all(_has_multiples(now[each]) for each in (key, form.like)):
        raise ConfigError(f"{origin}: {key}: {form.like} has no multiples")
    return Linked(key, form.like, form.times)


def _in_order(linked: Sequence[Linked]) -> list[Linked]:
    """Each link after the one that sets what it goes along with; `ConfigError` for links in a circle."""
    waiting, ordered = list(linked), list[Linked]()
    while waiting:
        unset = {each.key for each in waiting}
        ready = [each for each in waiting if each.other not in unset]
        if not ready:
            raise ConfigError(f"{waiting[0].key} goes along with itself by way of {waiting[0].other}")
        ordered += ready
        waiting = [each for each in waiting if each not in ready]
    return ordered


def _multiple(value: Any, times: float) -> Any:  # noqa: ANN401 (as in a configuration)
    """So many times a value, whole and at least 1 where the value is whole."""
    if not _has_multiples(value):
        return value
    return max(1, round(value * times)) if isinstance(value, int) else round(value * times, 10)


def _has_multiples(value: object) -> bool:
    """Whether a value is a number."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds(dimension: Choice | Range, value: Value) -> bool:
    """Whether a search could come to a value."""
    if isinstance(dimension, Choice):
        return value in dimension.values
    if isinstance(value, bool | str) or not dimension.low <= value <= dimension.high:
        return False
    steps = (value - dimension.low) / dimension.step if dimension.step else 0.0
    return abs(steps - round(steps)) < 1e-9


def _get(settings: Mapping[str, Any], key: str) -> Any:  # noqa: ANN401
    """A setting of nested tables by its full key."""
    section, _, name = key.partition(".")
    return settings[section][name] if name else settings[section]


def _put(settings: dict[str, Any], key: str, value: Value) -> None:
    """Set a setting of nested tables by its full key."""
    section, _, name = key.partition(".")
    settings[section][name] = value
