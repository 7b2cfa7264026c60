"""Validation split: a part of the sources of a training file, held out if no validation file is given.

The split depends on the set and the order of the sources only. All members of an ensemble and all trials of a search
have the same one.
"""

import random
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.errors import DataError

VALIDATION_SHARE = 0.1
"""Share of the different sources that are held out."""
MAX_VALIDATION_SOURCES = 2_000
"""Maximum number of sources that are held out: each validation decodes all of them."""
SPLIT_SEED = 1
"""Random seed of the choice."""


class ValidationSplit(NamedTuple):
    """Examples of a training file in two parts, both in the order of the file. No source is in both parts."""

    training_examples: list[Example]
    validation_examples: list[Example]


def split_by_source(examples: Sequence[Example], location: str) -> ValidationSplit:
    """Hold out a tenth of the different sources, at least one and at most 2,000, with all their examples.

    Args:
        examples: Examples of the training file.
        location: Name of the file, for errors.

    Returns:
        The examples of the other sources, and of the sources that are held out.

    Raises:
        DataError: All examples have the same source.
    """
    sources = list(dict.fromkeys(example.source for example in examples))
    if len(sources) < 2:
        raise DataError(
            f"{location} has a single source: none can be held out as validation set; name a validation file (--valid)"
        )
    count = min(MAX_VALIDATION_SOURCES, max(1, round(VALIDATION_SHARE * len(sources))))
    held_out = frozenset(random.Random(SPLIT_SEED).sample(sources, count))
    return ValidationSplit(
        [example for example in examples if example.source not in held_out],
        [example for example in examples if example.source in held_out],
    )


def format_validation_file(examples: Sequence[Example]) -> bytes:
    """Return the file of a run folder that holds the validation examples: JSON lines with a key for each field.

    Args:
        examples: Validation examples.
    """
    return b"".join(msgspec.json.encode(example._asdict()) + b"\n" for example in examples)


def validation_file_config(config: DataConfig) -> DataConfig:
    """Return the data settings with which the file of `format_validation_file` is read.

    Args:
        config: Data settings of the run.
    """
    features = "features" if config.features_column else ""
    return msgspec.structs.replace(
        config,
        input_format="jsonl",
        header="auto",
        source_column="source",
        target_column="target",
        features_column=features,
    )
