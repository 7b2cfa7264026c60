"""Cross-validation folds of entries: all entries of a source are in one fold."""

import random
from collections.abc import Sequence

from pellucid.data.examples import Example
from pellucid.data.normalization import normalize_text
from pellucid.errors import DataError


def source_key(example: Example) -> str:
    """Return the text by which sources are compared: the source in normal form C.

    Args:
        example: Example.
    """
    return normalize_text("NFC", example.source)


def assign_folds(examples: Sequence[Example], num_folds: int, seed: int) -> list[int]:
    """Return the fold of each example, from 0. Sources are assigned at random, with all their examples.

    Args:
        examples: Examples.
        num_folds: Number of folds, at least 2; fewer if there are fewer sources.
        seed: Random seed. The folds depend on it and on the order of the sources only.

    Raises:
        DataError: There is a single source.
    """
    sources = list(dict.fromkeys(map(source_key, examples)))
    if len(sources) < 2:
        raise DataError("an audit needs two different sources or more: a model is trained without those that it scores")
    random.Random(seed).shuffle(sources)
    fold_of = {source: number % num_folds for number, source in enumerate(sources)}
    return [fold_of[source_key(example)] for example in examples]
