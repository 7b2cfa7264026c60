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
from pellucid.tasks.task_settings import AUTOREGRESSIVE_NEED, check_task, settings_of

MAX_CONVOLUTIONS = 32
"""Widths of convolutions side by side."""


class Need(NamedTuple):
    """A setting, and what it needs."""

    key: str
    needs: str
    met: Callable[[Config], bool]
    values: tuple[str, ...] = ()
    """The values that need it; empty for all but the default."""

    def unmet(self, config: Config) -> bool:
        """Whether the setting has such a value, and lacks what that needs."""
        value = _value(config, self.key)
        asked = value in self.values if self.values else value != _default(self.key)
        return asked and not self.met(config)

    def told(self, config: Config) -> str:
        """encoder.residual = true needs encoder.num_layers of 2 or more."""
        value = _value(config, self.key)
        return f"{self.key} = {str(value).lower() if isinstance(value, bool) else quote(value)} needs {self.needs}"


def _attends(config: Config) -> bool:
    """Whether there is attention."""
    return config.attention.type != "none"


def _on_gpu(config: Config) -> bool:
    """Whether training may find a GPU."""
    return config.device != "cpu"


def _drops(config: Config) -> bool:
    """Whether two passes over a batch differ."""
    sides = config.encoder, config.decoder
    return any(side.dropout or side.embedding_dropout or side.recurrent_dropout for side in sides)


WRITTEN = (
    *("decoder.pointer_generator", "decoder.tie_embeddings", "decoder.pretrained", "training.coverage_loss"),
    *("training.scheduled_sampling", "training.augmentation", "cuda_graphs"),
    *(f"search.{field.name}" for field in msgspec.structs.fields(SearchConfig) if field.name != "batch_size"),
)
"""Settings of outputs that are written symbol by symbol, which no other task can have."""
CONTRADICTIONS: Sequence[Need] = (
    Need("attention.num_heads", "attention.type = 'additive'", lambda c: c.attention.type == "additive"),
    Need(
        "decoder.input_feeding",
        "decoder.order = 'step-then-attend': the other order feeds the context anyway",
        lambda c: c.decoder.order == "step-then-attend",
    ),
    Need(
        "decoder.tie_embeddings",
        "vectors to share: decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Need("decoder.pointer_generator", "attention, but attention.type is 'none'", _attends),
    Need(
        "encoder.pretrained",
        "encoder.embedding = 'learned' or 'frozen'",
        lambda c: c.encoder.embedding in ("learned", "frozen"),
    ),
    Need(
        "decoder.pretrained",
        "decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Need("training.coverage_loss", "attention, but attention.type is 'none'", _attends),
    Need(
        "training.batch_type",
        "training.batch_size: how many tokens a batch has",
        lambda c: c.training.batch_size > 0,
    ),
    Need("training.weight_decay", "training.optimizer = 'adamw'", lambda c: c.training.optimizer == "adamw"),
    Need(
        "training.scheduled_sampling",
        "cuda_graphs = false: it changes with every update, and a recorded update cannot",
        lambda c: not c.cuda_graphs,
    ),
    Need("precision", "a GPU, but device is 'cpu'", _on_gpu),
    Need("cuda_graphs", "a GPU, but device is 'cpu'", _on_gpu),
    *(Need(key, AUTOREGRESSIVE_NEED, lambda c: settings_of(c.task).autoregressive) for key in WRITTEN),
)
"""What cannot be."""

IDLE: Sequence[Need] = (
    Need("data.features_symbols", "data.features_column", lambda c: bool(c.data.features_column)),
    Need("encoder.features", "data.features_column", lambda c: bool(c.data.features_column)),
    Need("encoder.merge", "encoder.bidirectional = true", lambda c: c.encoder.bidirectional),
    Need("encoder.residual", "encoder.num_layers of 2 or more", lambda c: c.encoder.num_layers > 1),
    Need("decoder.residual", "decoder.num_layers of 2 or more", lambda c: c.decoder.num_layers > 1),
    Need("encoder.dropout_mask", "encoder.dropout above 0", lambda c: c.encoder.dropout > 0),
    Need("decoder.dropout_mask", "decoder.dropout above 0", lambda c: c.decoder.dropout > 0),
    Need(
        "encoder.recurrent_dropout_on",
        "encoder.recurrent_dropout above 0",
        lambda c: c.encoder.recurrent_dropout > 0,
    ),
    Need(
        "decoder.recurrent_dropout_on",
        "decoder.recurrent_dropout above 0",
        lambda c: c.decoder.recurrent_dropout > 0,
    ),
    Need("attention.filters", "attention.type = 'location'", lambda c: c.attention.type == "location"),
    Need("attention.filter_radius", "attention.type = 'location'", lambda c: c.attention.type == "location"),
    Need(
        "training.sampling_probability",
        "training.scheduled_sampling: linear, exponential or inverse-sigmoid",
        lambda c: c.training.scheduled_sampling != "none",
    ),
    Need(
        "training.scheduled_sampling",
        "symbols that are fed back, but decoder.embedding is 'none'",
        lambda c: c.decoder.embedding != "none",
    ),
    Need("training.rdrop_alpha", "two passes that differ: a dropout above 0", _drops),
    Need("training.ema_decay", "training.weight_averaging = 'ema'", lambda c: c.training.weight_averaging == "ema"),
    Need(
        "training.averaged_checkpoints",
        "training.weight_averaging = 'last'",
        lambda c: c.training.weight_averaging == "last",
    ),
    Need(
        "training.augmentation_ratio",
        "training.augmentation = 'copy' or 'hallucinate'",
        lambda c: c.training.augmentation != "none",
    ),
    Need("search.max_length_offset", "search.max_length_ratio above 0", lambda c: c.search.max_length_ratio > 0),
    Need("search.min_length_offset", "search.min_length_ratio above 0", lambda c: c.search.min_length_ratio > 0),
    Need(
        "search.length_penalty_alpha",
        "search.length_normalization = 'gnmt'",
        lambda c: c.search.length_normalization == "gnmt",
    ),
    Need("search.coverage_penalty", "attention, but attention.type is 'none'", _attends),
)
"""What changes nothing unless another setting is there."""


def check_agreement(config: Config) -> None:
    """`ConfigError` for the first setting that cannot be beside the others."""
    for need in CONTRADICTIONS:
        if need.unmet(config):
            raise ConfigError(need.told(config))
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
    _check_lengths(config.search, config.data.max_length)


def idle(config: Config) -> list[Need]:
    """The settings that change nothing as the others stand."""
    return [need for need in IDLE if need.unmet(config)]


def refuse_idle(config: Config, keys: Collection[str] | None = None) -> None:
    """`ConfigError` for the first setting that changes nothing as the others stand; of `keys`, where these are told."""
    for need in idle(config):
        if keys is None or need.key in keys:
            raise ConfigError(f"{need.told(config)}, or it changes nothing")


def without_idle(config: Config) -> Config:
    """The same, every idle setting as it is by default: for a configuration that a program has put together."""
    for need in idle(config):
        section, _, name = need.key.partition(".")
        part = msgspec.structs.replace(getattr(config, section), **{name: _default(need.key)})
        config = msgspec.structs.replace(config, **{section: part})
    return config


def _check_lengths(search: SearchConfig, longest_source: int) -> None:
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
        least > most for least, most in (_span(search, symbols) for symbols in range(1, longest_source + 1))
    ):
        least, most = _span(search, longest_source)
        raise ConfigError(
            f"{_limits(search, 'min')} ask for more symbols than {_limits(search, 'max')} allow, of every "
            f"source: of one of {longest_source} symbols {least} at least and {most} at most"
        )


def _span(search: SearchConfig, symbols: int) -> tuple[int, int]:
    """The least and the greatest length of the output of a source of so many symbols."""
    least, most = search.min_length, search.max_length or sys.maxsize
    if search.min_length_ratio:
        least = max(least, math.ceil(round(search.min_length_ratio * symbols, 9)) + search.min_length_offset)
    if search.max_length_ratio:
        most = min(most, max(math.floor(round(search.max_length_ratio * symbols, 9)) + search.max_length_offset, 1))
    return least, most


def _limits(search: SearchConfig, side: str) -> str:
    """The settings of one limit, as they are given."""
    names = [f"{side}_{kind}" for kind in ("length", "length_ratio", "length_offset")]
    return " and ".join(f"search.{name} = {getattr(search, name)}" for name in names if getattr(search, name))


def _value(config: Config, key: str) -> Any:  # noqa: ANN401 (a setting is of any type)
    """A setting by its full name."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


@cache
def _default(key: str) -> Any:  # noqa: ANN401
    """What a setting is where nobody sets it; those whose default is the size's need no other."""
    kind: Any = Config
    *sections, name = key.split(".")
    for section in sections:
        kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[section]
    return {field.name: field.default for field in msgspec.structs.fields(kind)}[name]
