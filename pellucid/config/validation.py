"""Which settings need which others: what cannot be, and what would stand idle. A table each, and checks of sizes.

A setting that needs another one is refused in a training and in a search. One that is merely idle without it is refused
where a person gives it; a saved configuration may hold it, and so may the default.
"""

import math
import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from pellucid.config.settings import Config, SearchConfig, memory_size
from pellucid.errors import ConfigError, quote
from pellucid.tasks.task_settings import AUTOREGRESSIVE_REQUIREMENT, check_task, get_task_settings

MAX_CONVOLUTIONS = 32
"""Widths of convolutions side by side."""


class Requirement(NamedTuple):
    """A setting, and what it needs."""

    key: str
    needs: str
    met: Callable[[Config], bool]
    values: tuple[str, ...] = ()
    """The values that need it; empty for all but the default."""

    def is_violated(self, config: Config) -> bool:
        """Whether the setting has such a value, and lacks what that needs."""
        value = _setting_value(config, self.key)
        asked = value in self.values if self.values else value != _default_value(self.key)
        return asked and not self.met(config)

    def message(self, config: Config) -> str:
        """encoder.residual = true needs encoder.num_layers of 2 or more."""
        value = _setting_value(config, self.key)
        return f"{self.key} = {str(value).lower() if isinstance(value, bool) else quote(value)} needs {self.needs}"


def _has_attention(config: Config) -> bool:
    """Whether there is attention."""
    return config.attention.type != "none"


def _may_use_gpu(config: Config) -> bool:
    """Whether training may find a GPU."""
    return config.device != "cpu"


def _has_dropout(config: Config) -> bool:
    """Whether two passes over a batch differ."""
    sides = config.encoder, config.decoder
    return any(side.dropout or side.embedding_dropout or side.recurrent_dropout for side in sides)


AUTOREGRESSIVE_SETTINGS = (
    *("decoder.pointer_generator", "decoder.tie_embeddings", "decoder.pretrained", "training.coverage_loss"),
    *("training.scheduled_sampling", "training.augmentation", "cuda_graphs"),
    *(f"search.{field.name}" for field in msgspec.structs.fields(SearchConfig) if field.name != "batch_size"),
)
"""Settings of outputs that are written symbol by symbol, which no other task can have."""
REQUIREMENTS: Sequence[Requirement] = (
    Requirement("attention.num_heads", "attention.type = 'additive'", lambda c: c.attention.type == "additive"),
    Requirement(
        "decoder.input_feeding",
        "decoder.order = 'step-then-attend': the other order feeds the context anyway",
        lambda c: c.decoder.order == "step-then-attend",
    ),
    Requirement(
        "decoder.tie_embeddings",
        "vectors to share: decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Requirement("decoder.pointer_generator", "attention, but attention.type is 'none'", _has_attention),
    Requirement(
        "encoder.pretrained",
        "encoder.embedding = 'learned' or 'frozen'",
        lambda c: c.encoder.embedding in ("learned", "frozen"),
    ),
    Requirement(
        "decoder.pretrained",
        "decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Requirement("training.coverage_loss", "attention, but attention.type is 'none'", _has_attention),
    Requirement(
        "training.batch_type",
        "training.batch_size: how many tokens a batch has",
        lambda c: c.training.batch_size > 0,
    ),
    Requirement("training.weight_decay", "training.optimizer = 'adamw'", lambda c: c.training.optimizer == "adamw"),
    Requirement(
        "training.scheduled_sampling",
        "cuda_graphs = false: it changes with every update, and a recorded update cannot",
        lambda c: not c.cuda_graphs,
    ),
    Requirement("precision", "a GPU, but device is 'cpu'", _may_use_gpu),
    Requirement("cuda_graphs", "a GPU, but device is 'cpu'", _may_use_gpu),
    *(
        Requirement(key, AUTOREGRESSIVE_REQUIREMENT, lambda c: get_task_settings(c.task).autoregressive)
        for key in AUTOREGRESSIVE_SETTINGS
    ),
)
"""What cannot be."""

USE_CONDITIONS: Sequence[Requirement] = (
    Requirement("data.features_symbols", "data.features_column", lambda c: bool(c.data.features_column)),
    Requirement("encoder.features", "data.features_column", lambda c: bool(c.data.features_column)),
    Requirement("encoder.merge", "encoder.bidirectional = true", lambda c: c.encoder.bidirectional),
    Requirement("encoder.residual", "encoder.num_layers of 2 or more", lambda c: c.encoder.num_layers > 1),
    Requirement("decoder.residual", "decoder.num_layers of 2 or more", lambda c: c.decoder.num_layers > 1),
    Requirement("encoder.dropout_mask", "encoder.dropout above 0", lambda c: c.encoder.dropout > 0),
    Requirement("decoder.dropout_mask", "decoder.dropout above 0", lambda c: c.decoder.dropout > 0),
    Requirement(
        "encoder.recurrent_dropout_on",
        "encoder.recurrent_dropout above 0",
        lambda c: c.encoder.recurrent_dropout > 0,
    ),
    Requirement(
        "decoder.recurrent_dropout_on",
        "decoder.recurrent_dropout above 0",
        lambda c: c.decoder.recurrent_dropout > 0,
    ),
    Requirement("attention.filters", "attention.type = 'location'", lambda c: c.attention.type == "location"),
    Requirement("attention.filter_radius", "attention.type = 'location'", lambda c: c.attention.type == "location"),
    Requirement(
        "training.sampling_probability",
        "training.scheduled_sampling: linear, exponential or inverse-sigmoid",
        lambda c: c.training.scheduled_sampling != "none",
    ),
    Requirement(
        "training.scheduled_sampling",
        "symbols that are fed back, but decoder.embedding is 'none'",
        lambda c: c.decoder.embedding != "none",
    ),
    Requirement("training.rdrop_alpha", "two passes that differ: a dropout above 0", _has_dropout),
    Requirement(
        "training.ema_decay", "training.weight_averaging = 'ema'", lambda c: c.training.weight_averaging == "ema"
    ),
    Requirement(
        "training.averaged_checkpoints",
        "training.weight_averaging = 'last'",
        lambda c: c.training.weight_averaging == "last",
    ),
    Requirement(
        "training.augmentation_ratio",
        "training.augmentation = 'copy' or 'hallucinate'",
        lambda c: c.training.augmentation != "none",
    ),
    Requirement("search.max_length_offset", "search.max_length_ratio above 0", lambda c: c.search.max_length_ratio > 0),
    Requirement("search.min_length_offset", "search.min_length_ratio above 0", lambda c: c.search.min_length_ratio > 0),
    Requirement(
        "search.length_penalty_alpha",
        "search.length_normalization = 'gnmt'",
        lambda c: c.search.length_normalization == "gnmt",
    ),
    Requirement("search.coverage_penalty", "attention, but attention.type is 'none'", _has_attention),
)
"""What changes nothing unless another setting is there."""


def check_consistency(config: Config) -> None:
    """`ConfigError` for the first setting that cannot be beside the others."""
    for need in REQUIREMENTS:
        if need.is_violated(config):
            raise ConfigError(need.message(config))
    if config.attention.type in ("dot", "scaled-dot") and memory_size(config.encoder) != config.decoder.hidden_size:
        raise ConfigError(
            f"attention.type = {quote(config.attention.type)} compares states of equal size, but "
            f"decoder.hidden_size is {config.decoder.hidden_size} and the encoder's states have "
            f"{memory_size(config.encoder)} units (encoder.hidden_size, twice that where two directions are "
            f"concatenated)"
        )
    heads, units = config.attention.num_heads, config.attention.size
    if units % heads:
        raise ConfigError(f"attention.num_heads = {heads} does not divide attention.size = {units}")
    if len(config.encoder.convolutions) > MAX_CONVOLUTIONS:
        raise ConfigError(
            f"encoder.convolutions: expected at most {MAX_CONVOLUTIONS} widths, got {len(config.encoder.convolutions)}"
        )
    for key, path in (("encoder", config.encoder.pretrained), ("decoder", config.decoder.pretrained)):
        if "\0" in path:
            raise ConfigError(f"{key}.pretrained: expected the path of a file, got {quote(path)}: no path holds U+0000")
    check_task(config)
    _check_length_limits(config.search, config.data.max_length)


def unused_settings(config: Config) -> list[Requirement]:
    """The settings that change nothing as the others stand."""
    return [need for need in USE_CONDITIONS if need.is_violated(config)]


def reject_unused(config: Config, keys: Collection[str] | None = None) -> None:
    """`ConfigError` for the first setting that changes nothing as the others stand; of `keys`, where these are told."""
    for need in unused_settings(config):
        if keys is None or need.key in keys:
            raise ConfigError(f"{need.message(config)}, or it changes nothing")


def reset_unused(config: Config) -> Config:
    """The same, every idle setting as it is by default: for a configuration that a program has put together."""
    for need in unused_settings(config):
        section, _, name = need.key.partition(".")
        part = msgspec.structs.replace(getattr(config, section), **{name: _default_value(need.key)})
        config = msgspec.structs.replace(config, **{section: part})
    return config


def _check_length_limits(search: SearchConfig, max_source_length: int) -> None:
    """`ConfigError` for a shortest output that is longer than the longest, for every source or for all long ones.

    Where limits cross for some sources only, short ones say, the greatest length holds for these.
    """
    if 0 < search.max_length < search.min_length:
        raise ConfigError(f"search.min_length = {search.min_length} is beyond search.max_length = {search.max_length}")
    if 0 < search.max_length_ratio < search.min_length_ratio:
        raise ConfigError(
            f"search.min_length_ratio = {search.min_length_ratio} is beyond "
            f"search.max_length_ratio = {search.max_length_ratio}"
        )
    limited = search.max_length or search.max_length_ratio
    if limited and all(
        minimum > maximum
        for minimum, maximum in (_length_limits(search, symbols) for symbols in range(1, max_source_length + 1))
    ):
        minimum, maximum = _length_limits(search, max_source_length)
        raise ConfigError(
            f"{_describe_limits(search, 'min')} ask for more symbols than {_describe_limits(search, 'max')} allow, of every "
            f"source: of one of {max_source_length} symbols {minimum} at least and {maximum} at most"
        )


def _length_limits(search: SearchConfig, symbols: int) -> tuple[int, int]:
    """The least and the greatest length of the output of a source of so many symbols."""
    minimum, maximum = search.min_length, search.max_length or sys.maxsize
    if search.min_length_ratio:
        minimum = max(minimum, math.ceil(round(search.min_length_ratio * symbols, 9)) + search.min_length_offset)
    if search.max_length_ratio:
        maximum = min(
            maximum, max(math.floor(round(search.max_length_ratio * symbols, 9)) + search.max_length_offset, 1)
        )
    return minimum, maximum


def _describe_limits(search: SearchConfig, side: str) -> str:
    """The settings of one limit, as they are given."""
    names = [f"{side}_{kind}" for kind in ("length", "length_ratio", "length_offset")]
    return " and ".join(f"search.{name} = {getattr(search, name)}" for name in names if getattr(search, name))


def _setting_value(config: Config, key: str) -> Any:  # noqa: ANN401 (a setting is of any type)
    """A setting by its full name."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


@cache
def _default_value(key: str) -> Any:  # noqa: ANN401
    """What a setting is where nobody sets it; those whose default is the size's need no other."""
    kind: Any = Config
    *sections, name = key.split(".")
    for section in sections:
        kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[section]
    return {field.name: field.default for field in msgspec.structs.fields(kind)}[name]
