"""Length limits of outputs: their checks, and the limits of each source of a batch. B sources of a batch."""

import inspect
import math
import warnings
from collections.abc import Sequence
from types import FrameType

import numpy as np

from pellucid.config.settings import MAX_SEQUENCE_LENGTH, SearchConfig
from pellucid.config.validation import output_length_range
from pellucid.data.vocabulary import Vocabularies, Vocabulary
from pellucid.decoding.constraints import Constraints
from pellucid.decoding.outputs import BatchLengthLimits
from pellucid.decoding.preprocessing import TokenizedSource
from pellucid.errors import ConfigError, ConstraintError
from pellucid.shapes import Int

MAX_LENGTH_FACTOR = 10
"""A length limit is at most this many times the longest training target, or `MIN_LENGTH_BOUND` symbols if greater."""
MIN_LENGTH_BOUND = 1000
"""Number of symbols up to which every model accepts a length limit."""


def max_output_length(search: SearchConfig, vocabularies: Vocabularies) -> int:
    """Return the maximum output length in symbols without EOS: search.max_length, or if that is 0 a derived length.

    The derived length is 1.5 times the longest training target, rounded up, plus 10, and at most `MAX_SEQUENCE_LENGTH`.

    Args:
        search: Search settings.
        vocabularies: Vocabularies of the model, with the length of the longest training target.

    Raises:
        ConfigError: As in `check_length_limits`.
    """
    check_length_limits(search, vocabularies)
    return search.max_length or _derived_max_length(vocabularies)


def _derived_max_length(vocabularies: Vocabularies) -> int:
    """Return the maximum output length of a model whose search.max_length is 0."""
    return min(math.ceil(1.5 * vocabularies.longest_target) + 10, MAX_SEQUENCE_LENGTH)


def check_length_limits(search: SearchConfig, vocabularies: Vocabularies) -> None:
    """Check the length limits of a search.

    Args:
        search: Search settings.
        vocabularies: Vocabularies of the model, with the length of the longest training target.

    Raises:
        ConfigError: search.max_length is 0, and search.min_length exceeds the derived length; or search.min_length or
            search.max_length exceeds both `MIN_LENGTH_BOUND` and `MAX_LENGTH_FACTOR` times the longest training target.
    """
    derived = _derived_max_length(vocabularies)
    if not search.max_length and search.min_length > derived:
        raise ConfigError(
            f"search.min_length = {search.min_length} exceeds the maximum length, {derived} (1.5 times the longest "
            f"training target plus 10): set search.max_length too"
        )
    bound = max(MIN_LENGTH_BOUND, MAX_LENGTH_FACTOR * vocabularies.longest_target)
    for name in ("min_length", "max_length"):
        if getattr(search, name) > bound:
            raise ConfigError(
                f"search.{name}: expected at most {bound} ({MAX_LENGTH_FACTOR} times the longest training target, "
                f"which has {vocabularies.longest_target} symbols, or {MIN_LENGTH_BOUND} where that is more), got "
                f"{getattr(search, name)}"
            )


def output_length_limits(
    sources: Sequence[TokenizedSource], search: SearchConfig, max_length: int, constraints: Constraints
) -> BatchLengthLimits:
    """Return the minimum and maximum output length of each source, in symbols without EOS.

    Limits by ratio multiply the number of source symbols without features. The maximum by ratio is at least 1, and is
    raised to what the constraints need. If the two limits of a source cross, the maximum holds, with a `UserWarning`.

    Args:
        sources: Sources of a batch.
        search: Search settings.
        max_length: Maximum output length of the model, as `max_output_length` returns it.
        constraints: Constraints of the batch.

    Raises:
        ConstraintError: The prefix and the required symbols of a source are more than `max_length` symbols.
    """
    ranges = [output_length_range(search, len(source.source) - source.num_features) for source in sources]
    minimum, maximum = np.array(ranges, np.int64).reshape(-1, 2).T
    maximum = np.minimum(maximum, max_length)
    needed = np.zeros(len(sources), np.int64)
    if constraints.any:
        needed = np.array([constraints.min_length(row) for row in range(len(sources))])
    check_room(int(needed.max(initial=0)), max_length)
    maximum = np.maximum(maximum, needed)
    if (minimum > maximum).any():
        message = "the minimum output length of some sources exceeds the maximum: the maximum is used"
        warnings.warn(message, stacklevel=_caller_level(inspect.currentframe()))
    return BatchLengthLimits(np.minimum(minimum, maximum), maximum)


def check_room(needed: int, max_length: int) -> None:
    """Check that the maximum length has room for the prefix and the required symbols.

    Args:
        needed: Number of symbols that an output needs.
        max_length: Maximum output length of the model.

    Raises:
        ConstraintError: It has not.
    """
    if needed > max_length:
        raise ConstraintError(
            f"the prefix and the required symbols take {needed} symbols, but search.max_length is {max_length}"
        )


def _caller_level(frame: FrameType | None) -> int:
    """Return the `stacklevel` of a warning that is raised in a frame, for the first line outside this package."""
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").split(".")[0] == "pellucid":
        level, frame = level + 1, frame.f_back
    return level


def check_minimum(
    sources: Sequence[TokenizedSource],
    limits: BatchLengthLimits,
    numbers: Int[np.ndarray, " B"],
    vocabulary: Vocabulary,
    copies: bool,
) -> None:
    """Check that outputs of the minimum length are possible where every symbol of the vocabulary is forbidden.

    The caller has found that every symbol is.

    Args:
        sources: Sources of a batch.
        limits: Length limits of each source.
        numbers: Number of each source, from 0, among all given ones.
        vocabulary: Target vocabulary.
        copies: True if the model also copies source symbols outside the vocabulary.

    Raises:
        ConstraintError: A source has a minimum length above 0, and no symbol that the model can copy.
    """
    for source, minimum, number in zip(sources, limits.minimum.tolist(), numbers.tolist(), strict=True):
        copyable = copies and any(symbol not in vocabulary.ids for symbol in source.source[source.num_features :])
        if minimum > 0 and not copyable:
            raise ConstraintError(forbids_all_message(vocabulary, f"the output of source {number + 1} has", minimum))


def forbids_all_message(vocabulary: Vocabulary, outputs: str, minimum: int) -> str:
    """Return the message for a minimum length without a symbol that an output may contain.

    Args:
        vocabulary: Target vocabulary.
        outputs: Outputs that have the minimum length, with a verb: "outputs have".
        minimum: Minimum length.
    """
    return (
        f"forbidden: all {len(vocabulary.symbols)} symbols that the model writes are forbidden, but {outputs} at least "
        f"{minimum} (search.min_length, search.min_length_ratio)"
    )
