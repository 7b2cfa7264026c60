"""Validation split: a part of the sources or groups of a training set, held out if no validation set is given.

The split depends on the set and the order of the sources, or on the groups and their sizes, only. All members of an
ensemble and all trials of a search have the same one.
"""

import random
from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence, Set
from itertools import accumulate
from typing import NamedTuple, TypeVar

import msgspec

from pellucid.config.settings import DataConfig, reads_features
from pellucid.data.context import begins_sentence
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import DataError, count_noun, quote

VALIDATION_FRACTION = 0.1
"""Share of the different sources that are held out."""
MAX_VALIDATION_SOURCES = 2_000
"""Maximum number of sources that are held out: each validation decodes all of them."""
SPLIT_SEED = 1
"""Random seed of the choice."""
MIN_LARGE_OVERLAP = 0.1
"""Minimum fraction of the validation examples in the training set that makes scores too high for new data."""


GroupKey = TypeVar("GroupKey", bound=Hashable)
MAX_GROUP_FRACTION = 0.9
"""Share of the examples in one group from which a split by groups is reported."""


class ValidationSplit(NamedTuple):
    """Examples of a training set in two parts, both in its order. No source, or no group, is in both parts."""

    training_examples: list[Example]
    validation_examples: list[Example]


def normalize_sources(examples: Iterable[Example], config: DataConfig) -> Iterator[Example]:
    """Yield examples with their sources in the normal form in which the model reads them.

    Sources are compared in this form: composed and decomposed spellings of a word are one source, unless
    `data.source_normalization` is "none".

    Args:
        examples: Examples, whose sources are as they were read.
        config: Data settings.
    """
    normalize = build_tokenizers(config).source.normalize
    for example in examples:
        source = normalize(example.source)
        yield example if source == example.source else example._replace(source=source)


def split_by_source(examples: Sequence[Example], config: DataConfig, location: str) -> tuple[ValidationSplit, str]:
    """Hold out a tenth of the different sources, at least one and at most 2,000, with all their examples.

    Sources are compared as the model reads them: spellings with the same normal form are one source.

    Args:
        examples: Examples of the training set.
        config: Data settings.
        location: Name of the file or table, for errors.

    Returns:
        The examples of the other sources and of the sources that are held out, and a description of the latter.

    Raises:
        DataError: All examples have the same source.
    """
    keys = [example.source for example in normalize_sources(examples, config)]
    sources = list(dict.fromkeys(keys))
    if len(sources) < 2:
        raise single_source_error(location)
    count = min(MAX_VALIDATION_SOURCES, max(1, round(VALIDATION_FRACTION * len(sources))))
    held_out = frozenset(random.Random(SPLIT_SEED).sample(sources, count))
    split = _divide(examples, keys, held_out)
    return split, f"all examples of {count_noun(count, 'source')} chosen at random"


def single_source_error(location: str) -> DataError:
    """Return the error of a training set from which no source can be held out.

    Args:
        location: Name of the file or table.
    """
    return DataError(
        f"{location} has a single source: none can be held out as validation set; give a validation set (valid, "
        "--valid)"
    )


def split_by_group(
    examples: Sequence[Example], groups: Sequence[str], config: DataConfig, location: str
) -> tuple[ValidationSplit, str]:
    """Hold out groups chosen at random, at most a tenth of the examples and at most 2,000, with all their examples.

    The groups are taken in a random order; one that exceeds the limit is left out. If each group exceeds it, the
    smallest group is held out. A source may occur in groups of both parts, which the description reports.

    Args:
        examples: Examples of the training set.
        groups: Group of each example.
        config: Data settings, with the column of the groups.
        location: Name of the file or table, for errors.

    Returns:
        The examples of the other groups and of the groups that are held out, and a description of the latter.

    Raises:
        DataError: All examples have the same group.
    """
    sizes = Counter(groups)
    column = config.group_column
    if len(sizes) < 2:
        raise DataError(
            f"{location} has a single group, {quote(groups[0])}, in column {quote(column)} (data.group_column): none "
            "can be held out as validation set; give a validation set (valid, --valid), or leave out the column"
        )
    split, num_held_out = _hold_out_groups(examples, groups, sizes)
    return split, _describe_groups(split, sizes, num_held_out, config)


def split_by_sentence(examples: Sequence[Example], context_words: int, location: str) -> tuple[ValidationSplit, str]:
    """Hold out sentences of running text chosen at random, at most a tenth of the words and at most 2,000 words.

    Sources may occur in both parts: a text has the same words again, and words with several targets are to be scored.

    Args:
        examples: Examples of the training set, with their contexts, in the order of the text.
        context_words: Number of words of their contexts on either side.
        location: Name of the file or table, for errors.

    Returns:
        The examples of the other sentences and of the sentences that are held out, and a description of the latter.

    Raises:
        DataError: There is only one sentence.
    """
    begins = [begins_sentence(example.features, context_words) for example in examples]
    numbers = list(accumulate(map(int, begins)))
    sizes = Counter(numbers)
    if len(sizes) < 2:
        raise DataError(
            f"{location} has a single sentence: none can be held out as validation set; end sentences by blank lines, "
            "or give a validation set (valid, --valid)"
        )
    split, num_held_out = _hold_out_groups(examples, numbers, sizes)
    return split, f"{num_held_out:,} of {len(sizes):,} sentences chosen at random"


def _hold_out_groups(
    examples: Sequence[Example], groups: Sequence[GroupKey], sizes: Mapping[GroupKey, int]
) -> tuple[ValidationSplit, int]:
    """Return the examples of groups that are not and that are held out, and the number of the latter groups."""
    limit = min(MAX_VALIDATION_SOURCES, int(VALIDATION_FRACTION * len(examples)))
    held_out = choose_groups(sizes, limit, random.Random(SPLIT_SEED))
    return _divide(examples, groups, held_out), len(held_out)


def _divide(examples: Sequence[Example], keys: Sequence[GroupKey], held_out: Set[GroupKey]) -> ValidationSplit:
    """Return the examples whose keys are not held out, and those whose keys are."""
    split = ValidationSplit([], [])
    for example, key in zip(examples, keys, strict=True):
        (split.validation_examples if key in held_out else split.training_examples).append(example)
    return split


def choose_groups(
    sizes: Mapping[GroupKey, int], limit: int, generator: random.Random, max_groups: int | None = None
) -> set[GroupKey]:
    """Choose groups at random that have at most `limit` examples together; at least one group.

    Args:
        sizes: Number of examples of each group, at least one group.
        limit: Maximum number of examples. A group that exceeds it is left out; if each group does, the smallest is
            chosen.
        generator: Random number generator.
        max_groups: Maximum number of groups, at least 1; None, the default, for no maximum.
    """
    chosen = set[GroupKey]()
    num_examples = 0
    for group in generator.sample(list(sizes), len(sizes)):
        if len(chosen) == max_groups:
            break
        if num_examples + sizes[group] <= limit:
            chosen.add(group)
            num_examples += sizes[group]
    return chosen or {min(sizes, key=lambda group: sizes[group])}


def _describe_groups(
    parts: Sequence[Sequence[Example]], sizes: Counter[str], num_held_out: int, config: DataConfig
) -> str:
    """Return the description of a split by groups, with what makes its scores doubtful."""
    fraction = len(parts[1]) / sizes.total()
    column = config.group_column
    notes = [
        f"all examples of {num_held_out:,} of {len(sizes):,} groups (column {quote(column)}) chosen at random, "
        f"{100 * fraction:.1f} % of the examples"
    ]
    largest, size = sizes.most_common(1)[0]
    if size >= MAX_GROUP_FRACTION * sizes.total():
        notes.append(
            f"the group {quote(largest)} holds {100 * size / sizes.total():.1f} % of the examples, so the validation "
            "set does not represent the data: name a validation set, or choose another column"
        )
    elif fraction > 2 * VALIDATION_FRACTION:
        notes.append("no group has fewer examples, so a large part of the examples is not trained on")
    trained, held_out = ({example.source for example in normalize_sources(part, config)} for part in parts)
    num_shared = len(held_out & trained)
    if num_shared:
        notes.append(f"{num_shared:,} of its sources are also in other groups, which are trained on")
    return "; ".join(notes)


def has_large_overlap(num_shared: int, num_examples: int) -> bool:
    """Return whether a large part of the validation examples are training examples: scores are then too high.

    Args:
        num_shared: Number of validation examples that are training examples.
        num_examples: Number of validation examples.
    """
    return num_shared > 0 and num_shared >= MIN_LARGE_OVERLAP * num_examples


def describe_overlap(num_shared: int, num_examples: int, training_set: str) -> str:
    """Return how many validation examples are training examples, too, as a sentence; "" if there is none.

    Args:
        num_shared: Number of validation examples that are training examples.
        num_examples: Number of validation examples.
        training_set: Name of the training set.
    """
    if not num_shared:
        return ""
    verb = "is" if num_shared == 1 else "are"
    text = f"{num_shared:,} of {count_noun(num_examples, 'validation example')} {verb} also in {training_set}"
    is_large = has_large_overlap(num_shared, num_examples)
    return f"{text}: scores and confidence are too high for new data" if is_large else text


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
    features = "features" if reads_features(config) else ""
    return msgspec.structs.replace(
        config,
        input_format="jsonl",
        header="auto",
        source_column="source",
        target_column="target",
        features_column=features,
        class_column="",
        group_column="",
    )
