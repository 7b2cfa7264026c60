"""Synthetic training pairs: copies of targets, and pairs with random stems."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.config.settings import Config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers, build_tokenizers
from pellucid.errors import DataError
from pellucid.training.events import DataAugmented
from pellucid.training.training_data import TrainingData

COPY_TAG = "⟨copy⟩"
"""Features tag of a synthetic pair whose target equals its source."""
MIN_STEM_LENGTH = 3
"""Minimum length of a stem: symbols shared by source and target."""
AUGMENTATION_STREAM = 0x61756700
"""Random stream of augmentation."""


def augment_data(data: TrainingData, config: Config) -> tuple[TrainingData, DataAugmented]:
    """Return training data with synthetic pairs after its examples, and the numbers of both.

    For n examples, n · `augmentation_ratio` pairs are made; those whose source is empty or has more than
    `data.max_sequence_length` symbols are left out. Synthetic pairs are treated like others, also for the vocabularies.
    They depend on the seed of the configuration.

    Args:
        data: Training data as texts.
        config: Configuration, whose `augmentation` is not "none".

    Raises:
        DataError: The augmentation is "hallucinate", and no pair has a stem.
        ConfigError: A setting defines no tokenizer.
    """
    kind, examples = config.training.augmentation, data.training_examples
    assert kind != "none", "the settings request augmentation"
    generator = np.random.default_rng([config.seed, AUGMENTATION_STREAM])
    count = round(config.training.augmentation_ratio * len(examples))
    tokenizers, limit = build_tokenizers(config.data), config.data.max_sequence_length
    if kind == "copy":
        synthetic = copy_pairs(examples, tokenizers, count, generator)
    else:
        synthetic = hallucinate_pairs(examples, tokenizers, count, generator)
    synthetic = [
        example for example in synthetic if example.source and len(tokenizers.source.split(example.source)) <= limit
    ]
    return data._replace(training_examples=[*examples, *synthetic]), DataAugmented(kind, len(examples), len(synthetic))


def copy_pairs(
    examples: Sequence[Example], tokenizers: Tokenizers, count: int, generator: np.random.Generator
) -> list[Example]:
    """Return synthetic pairs whose source has the symbols of the target, with `COPY_TAG` as features.

    The targets are drawn from the examples without replacement; after all, they are drawn again. Symbols of the target
    are joined like those of a source: phones separated by spaces become a word.

    Args:
        examples: Training examples, at least one.
        tokenizers: Tokenizers of sources and targets.
        count: Number of pairs to return.
        generator: Random generator.

    References:
        Liu & Hulden 2022, "Can a Transformer Pass the Wug Test?", section 3.
    """
    texts = [tokenizers.source.join(tokenizers.target.split(example.target)) for example in examples]
    rounds = -(-count // len(examples))
    rows = [row for _ in range(rounds) for row in generator.permutation(len(examples)).tolist()]
    return [Example(texts[row], examples[row].target, COPY_TAG) for row in rows[:count]]


def hallucinate_pairs(
    examples: Sequence[Example], tokenizers: Tokenizers, count: int, generator: np.random.Generator
) -> list[Example]:
    """Return synthetic pairs: copies of examples in which every stem is replaced by random symbols.

    A stem is a run of at least `MIN_STEM_LENGTH` symbols shared by source and target, aligned by minimum edit distance;
    its replacement has its length and is equal in source and target. Random symbols are drawn uniformly from those that
    occur in sources as well as in targets. The examples are drawn with replacement from those with a stem; their
    features are kept.

    Args:
        examples: Training examples.
        tokenizers: Tokenizers of sources and targets.
        count: Number of pairs to return.
        generator: Random generator.

    Raises:
        DataError: No pair has a stem.

    References:
        Anastasopoulos & Neubig 2019, "Pushing the Limits of Low-Resource Morphological Inflection", section 3.2.
    """
    pairs = [tokenizers.split_pair(example.source, example.target) for example in examples]
    stems = [_stems(source, target) for source, target in pairs]
    rows = [row for row, shared in enumerate(stems) if shared]
    if not rows:
        raise DataError(
            f'training.augmentation = "hallucinate" needs pairs whose sides share {MIN_STEM_LENGTH} symbols in a row; '
            "no training pair has them"
        )
    source_symbols, target_symbols = ({symbol for pair in pairs for symbol in pair[side]} for side in (0, 1))
    alphabet, synthetic = sorted(source_symbols & target_symbols), list[Example]()
    for row in generator.choice(rows, count).tolist():
        source, target = (list(side) for side in pairs[row])
        for stem in stems[row]:
            drawn = [alphabet[index] for index in generator.integers(len(alphabet), size=stem.size).tolist()]
            source[stem.a : stem.a + stem.size] = target[stem.b : stem.b + stem.size] = drawn
        texts = Example(tokenizers.source.join(source), tokenizers.target.join(target), examples[row].features)
        synthetic.append(texts)
    return synthetic


def _stems(source: Sequence[str], target: Sequence[str]) -> list["_SharedStem"]:
    """Return the runs of at least `MIN_STEM_LENGTH` shared symbols."""
    blocks = Levenshtein.opcodes(source, target).as_matching_blocks()
    return [_SharedStem(*block) for block in blocks if block[2] >= MIN_STEM_LENGTH]


class _SharedStem(NamedTuple):
    """A shared run that starts at position a of the source and b of the target."""

    a: int
    b: int
    size: int
