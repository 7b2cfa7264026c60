"""Validation across settings: requirements, unused settings, and sizes that must match.

A configuration that violates a requirement is refused everywhere. A setting that has no effect is refused where the
user sets it; saved configurations may contain it.
"""

import math
import re
import sys
from collections.abc import Callable, Collection, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from pellucid.argument_checks import check_arguments
from pellucid.config.attention_types import TYPE_OF_SETTING, has_weights, is_custom_attention
from pellucid.config.columns import check_columns
from pellucid.config.durations import parse_duration
from pellucid.config.settings import Config, SearchConfig, has_characters, memory_size
from pellucid.config.task_settings import (
    AUTOREGRESSIVE_REQUIREMENT,
    CLASS_AND_TAGS_REQUIREMENT,
    check_task,
    get_task_settings,
)
from pellucid.errors import ConfigError, quote

DIGEST = re.compile("[0-9a-f]{64}")
"""Syntax of a SHA-256 checksum."""
MAX_CONVOLUTIONS = 32
"""Maximum number of parallel convolutions."""


class Requirement(NamedTuple):
    """A setting with the condition that it requires."""

    key: str
    """Full name of the setting, such as "encoder.residual"."""
    needs: str
    """The condition in words."""
    condition: Callable[[Config], bool]
    """Function that returns whether the condition holds."""
    values: tuple[str, ...] = ()
    """Values that require it; empty for all values but the default."""

    def is_violated(self, config: Config) -> bool:
        """Return whether the setting has a value that requires the condition, and the condition does not hold.

        Args:
            config: The configuration.
        """
        value = _setting_value(config, self.key)
        applies = value in self.values if self.values else value != _default_value(self.key)
        return applies and not self.condition(config)

    def message(self, config: Config) -> str:
        """Return the message: "encoder.residual = true needs encoder.num_layers of 2 or more".

        Args:
            config: The configuration.
        """
        value = _setting_value(config, self.key)
        return f"{self.key} = {str(value).lower() if isinstance(value, bool) else quote(value)} needs {self.needs}"


def _has_attention(config: Config) -> bool:
    """Return whether the model has attention."""
    return has_weights(config.attention)


def _attention_requirement(name: str) -> Requirement:
    """Return the requirement of a setting of `TYPE_OF_SETTING`."""
    owner = TYPE_OF_SETTING[name]

    def is_met(config: Config) -> bool:
        return config.attention.type == owner or is_custom_attention(config.attention)

    return Requirement(f"attention.{name}", f"attention.type = {quote(owner)}", is_met)


def _may_use_gpu(config: Config) -> bool:
    """Return whether training may use a GPU."""
    return config.device != "cpu"


def _has_dropout(config: Config) -> bool:
    """Return whether two passes over a batch differ because of dropout."""
    sides = config.encoder, config.decoder
    return any(side.dropout or side.embedding_dropout or side.recurrent_dropout for side in sides)


FREE_SEARCH_SETTINGS = ("batch_size", "beam_size")
"""Search settings that other tasks support: the batch size, and beam size 1 (greedy search)."""
AUTOREGRESSIVE_SETTINGS = (
    *("data.context_words", "decoder.pointer_generator", "decoder.tie_embeddings", "decoder.pretrained"),
    "training.coverage_loss",
    *("training.scheduled_sampling", "training.sampled_softmax", "training.augmentation", "cuda_graphs"),
    *(
        f"search.{field.name}"
        for field in msgspec.structs.fields(SearchConfig)
        if field.name not in FREE_SEARCH_SETTINGS
    ),
)
"""Settings of autoregressive outputs, which no other task supports."""
UNSPLIT_SYMBOLS = ("whole", "position")
"""Values of data.source_symbols with which a source is one symbol."""
CHARACTERS_REQUIREMENT = "encoder.characters = 'convolution' or 'gru'"
ATTENTION_REQUIREMENT = "attention weights, which attention.type = 'none' does not have"
REQUIREMENTS: Sequence[Requirement] = (
    Requirement(
        "data.context_words",
        "encoder.feature_merge = 'prefix': a sum of words has no order",
        lambda c: c.encoder.feature_merge == "prefix",
    ),
    _attention_requirement("num_heads"),
    Requirement(
        "decoder.input_feeding",
        "decoder.order = 'step-then-attend': in the other order the context is an input anyway",
        lambda c: c.decoder.order == "step-then-attend",
    ),
    Requirement(
        "decoder.tie_embeddings",
        "an embedding to share: decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Requirement("decoder.pointer_generator", ATTENTION_REQUIREMENT, _has_attention),
    Requirement(
        "encoder.pretrained",
        "encoder.embedding = 'learned' or 'frozen'",
        lambda c: c.encoder.embedding in ("learned", "frozen"),
    ),
    Requirement(
        "encoder.characters",
        "sources that are cut into words: data.source_symbols = 'words', 'subwords', 'ipa' or a separator",
        lambda c: c.data.source_symbols not in ("characters", *UNSPLIT_SYMBOLS),
    ),
    Requirement(
        "encoder.characters",
        "encoder.embedding = 'learned' or 'frozen'",
        lambda c: c.encoder.embedding in ("learned", "frozen"),
    ),
    Requirement(
        "encoder.characters",
        "cuda_graphs = false: each batch has another number of words",
        lambda c: not c.cuda_graphs,
    ),
    Requirement(
        "decoder.pretrained",
        "decoder.embedding = 'learned' or 'frozen'",
        lambda c: c.decoder.embedding in ("learned", "frozen"),
    ),
    Requirement("training.coverage_loss", ATTENTION_REQUIREMENT, _has_attention),
    Requirement(
        "training.batch_type",
        "training.batch_size, the number of tokens per batch",
        lambda c: c.training.batch_size > 0,
    ),
    Requirement(
        "training.freeze",
        "training.init_from (--init-from RUN): parts of a new network are random",
        lambda c: bool(c.training.init_from),
    ),
    Requirement(
        "training.init_from_digest", "training.init_from (--init-from RUN)", lambda c: bool(c.training.init_from)
    ),
    Requirement("training.weight_decay", "training.optimizer = 'adamw'", lambda c: c.training.optimizer != "adam"),
    Requirement(
        "training.scheduled_sampling",
        "cuda_graphs = false: a recorded update cannot change its sampling probability",
        lambda c: not c.cuda_graphs,
    ),
    Requirement(
        "training.sampled_softmax",
        "decoder.pointer_generator = false: its mixture has the probabilities of all symbols",
        lambda c: not c.decoder.pointer_generator,
    ),
    Requirement(
        "training.sampled_softmax",
        "training.rdrop_alpha = 0: its divergence has the probabilities of all symbols",
        lambda c: not c.training.rdrop_alpha,
    ),
    Requirement(
        "training.sampled_softmax",
        "training.scheduled_sampling = 'none': its predictions need the logits of all symbols",
        lambda c: c.training.scheduled_sampling == "none",
    ),
    Requirement(
        "training.sampled_softmax",
        "cuda_graphs = false: each update samples another number of symbols",
        lambda c: not c.cuda_graphs,
    ),
    Requirement("cuda_graphs", "a GPU, but device is 'cpu'", _may_use_gpu),
    Requirement("data.class_first", CLASS_AND_TAGS_REQUIREMENT, lambda c: get_task_settings(c.task).class_first),
    Requirement("data.class_column", CLASS_AND_TAGS_REQUIREMENT, lambda c: get_task_settings(c.task).class_first),
    *(
        Requirement(key, AUTOREGRESSIVE_REQUIREMENT, lambda c: get_task_settings(c.task).autoregressive)
        for key in AUTOREGRESSIVE_SETTINGS
    ),
    Requirement(
        "search.beam_size",
        AUTOREGRESSIVE_REQUIREMENT,
        lambda c: c.search.beam_size == 1 or get_task_settings(c.task).autoregressive,
    ),
)
"""Requirements whose violation is an error."""

USE_CONDITIONS: Sequence[Requirement] = (
    Requirement("data.features_symbols", "data.features_column", lambda c: bool(c.data.features_column)),
    Requirement(
        "data.features_symbols",
        "data.context_words = 0: the features are then words between spaces",
        lambda c: not c.data.context_words,
    ),
    Requirement("encoder.feature_merge", "data.features_column", lambda c: bool(c.data.features_column)),
    Requirement("encoder.context_dropout", "data.context_words above 0", lambda c: c.data.context_words > 0),
    Requirement("encoder.character_size", CHARACTERS_REQUIREMENT, has_characters),
    Requirement("encoder.word_dropout", CHARACTERS_REQUIREMENT, has_characters),
    Requirement(
        "encoder.word_dropout",
        "data.min_count = 1: words that occur once are unknown anyway",
        lambda c: c.data.min_count == 1,
    ),
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
    _attention_requirement("filters"),
    _attention_requirement("filter_radius"),
    Requirement(
        "training.sampling_probability",
        "training.scheduled_sampling: linear, exponential or inverse-sigmoid",
        lambda c: c.training.scheduled_sampling != "none",
    ),
    Requirement(
        "training.scheduled_sampling",
        "feedback of target symbols, but decoder.embedding is 'none'",
        lambda c: c.decoder.embedding != "none",
    ),
    Requirement("training.rdrop_alpha", "a dropout above 0, so that two passes differ", _has_dropout),
    Requirement(
        "training.ema_decay", "training.weight_averaging = 'ema'", lambda c: c.training.weight_averaging == "ema"
    ),
    Requirement(
        "training.averaged_checkpoints",
        "training.weight_averaging = 'last'",
        lambda c: c.training.weight_averaging == "last",
    ),
    Requirement("training.mix_in_fraction", "training.mix_in, a file of pairs", lambda c: bool(c.training.mix_in)),
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
    Requirement("search.coverage_penalty", ATTENTION_REQUIREMENT, _has_attention),
)
"""Conditions without which a setting has no effect."""


@check_arguments
def check_consistency(config: Config) -> None:
    """Check that no setting contradicts the others.

    Args:
        config: The configuration.

    Raises:
        ConfigError: A requirement is violated, sizes do not fit together, a column is invalid, the task is unknown or
            does not support a setting, or length limits exclude every output; the message names the first such setting.
    """
    for requirement in REQUIREMENTS:
        if requirement.is_violated(config):
            raise ConfigError(requirement.message(config))
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
    training = config.training
    for key, path in (
        ("encoder.pretrained", config.encoder.pretrained),
        ("decoder.pretrained", config.decoder.pretrained),
        ("training.init_from", training.init_from),
        ("training.mix_in", training.mix_in),
    ):
        if "\0" in path:
            noun = "folder" if key == "training.init_from" else "file"
            raise ConfigError(f"{key}: expected the path of a {noun}, got {quote(path)}: no path holds U+0000")
    if training.init_from_digest and not DIGEST.fullmatch(training.init_from_digest):
        expected = "64 hexadecimal digits in lower case"
        raise ConfigError(f"training.init_from_digest: expected {expected}, got {quote(training.init_from_digest)}")
    check_columns(config.data)
    parse_duration("training.time_limit (--time)", config.training.time_limit)
    check_task(config)
    _check_length_limits(config.search, config.data.max_sequence_length)


@check_arguments
def unused_settings(config: Config) -> list[Requirement]:
    """Return the settings that have no effect in this configuration but are not at their defaults, with what they need.

    Args:
        config: The configuration.
    """
    return [requirement for requirement in USE_CONDITIONS if requirement.is_violated(config)]


def reject_unused(config: Config, keys: Collection[str] | None = None) -> None:
    """Check that no setting, except those at their defaults, is without effect in this configuration.

    Args:
        config: The configuration.
        keys: Full names of the settings to check; all by default.

    Raises:
        ConfigError: A setting has no effect; the message names the first one, and what it needs.
    """
    for requirement in unused_settings(config):
        if keys is None or requirement.key in keys:
            raise ConfigError(f"{requirement.message(config)}; otherwise it has no effect")


@check_arguments
def reset_unused(config: Config) -> Config:
    """Return a configuration with all settings that have no effect reset to their defaults.

    Args:
        config: The configuration.
    """
    for requirement in unused_settings(config):
        section, _, name = requirement.key.partition(".")
        part = msgspec.structs.replace(getattr(config, section), **{name: _default_value(requirement.key)})
        config = msgspec.structs.replace(config, **{section: part})
    return config


def _check_length_limits(search: SearchConfig, max_source_length: int) -> None:
    """Raise `ConfigError` if the minimum output length exceeds the maximum for all sources, or for all long ones.

    If the limits cross for some sources only, such as short ones, the maximum applies to them.
    """
    if 0 < search.max_length < search.min_length:
        raise ConfigError(
            f"search.min_length = {search.min_length} is greater than search.max_length = {search.max_length}"
        )
    if 0 < search.max_length_ratio < search.min_length_ratio:
        raise ConfigError(
            f"search.min_length_ratio = {search.min_length_ratio} is greater than "
            f"search.max_length_ratio = {search.max_length_ratio}"
        )
    limited = search.max_length or search.max_length_ratio
    if limited and all(
        minimum > maximum
        for minimum, maximum in (output_length_range(search, symbols) for symbols in range(1, max_source_length + 1))
    ):
        minimum, maximum = output_length_range(search, max_source_length)
        raise ConfigError(
            f"{_describe_limits(search, 'min')} require longer outputs than {_describe_limits(search, 'max')} allow, "
            f"for every source: for one of {max_source_length} symbols, at least {minimum} and at most {maximum}"
        )


def output_length_range(search: SearchConfig, symbols: int) -> tuple[int, int]:
    """Return the minimum and maximum length of the output for a source, in symbols without EOS.

    Products with a ratio are rounded to 9 digits first, so that 1.1 · 10 is 11. The maximum by ratio is at least 1.

    Args:
        search: Search settings.
        symbols: Number of source symbols without features.

    Returns:
        The limits that the settings name; `sys.maxsize` for no maximum. The minimum may exceed the maximum.
    """
    minimum, maximum = search.min_length, search.max_length or sys.maxsize
    if search.min_length_ratio:
        minimum = max(minimum, math.ceil(round(search.min_length_ratio * symbols, 9)) + search.min_length_offset)
    if search.max_length_ratio:
        maximum = min(
            maximum, max(math.floor(round(search.max_length_ratio * symbols, 9)) + search.max_length_offset, 1)
        )
    return minimum, maximum


def _describe_limits(search: SearchConfig, side: str) -> str:
    """Return the settings of one limit with their values."""
    names = [f"{side}_{kind}" for kind in ("length", "length_ratio", "length_offset")]
    return " and ".join(f"search.{name} = {getattr(search, name)}" for name in names if getattr(search, name))


def _setting_value(config: Config, key: str) -> Any:  # noqa: ANN401 (a setting is of any type)
    """Return a setting by its full name."""
    value: Any = config
    for name in key.split("."):
        value = getattr(value, name)
    return value


@cache
def _default_value(key: str) -> Any:  # noqa: ANN401
    """Return the default of a setting; presets define none of the settings that this is called for."""
    kind: Any = Config
    *sections, name = key.split(".")
    for section in sections:
        kind = {field.name: field.type for field in msgspec.structs.fields(kind)}[section]
    return {field.name: field.default for field in msgspec.structs.fields(kind)}[name]
