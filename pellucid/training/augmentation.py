"""Made-up pairs beside those of a small training file: a function of the file and the seed alone."""

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
from rapidfuzz.distance import Levenshtein

from pellucid.config import Config
from pellucid.data.examples import Example
from pellucid.data.symbols import Segmenters, segmenters
from pellucid.errors import DataError
from pellucid.training.reading import Data

TAG = "⟨copy⟩"
"""The tag beside a word that is to be written as it is read."""
STEM = 3
"""Symbols in a row that source and target share, from which on they count as a stem."""
STREAM = 0x61756700
"""What tells this use of the seed from the others."""


class Augmented(NamedTuple):
    """Pairs were made up."""

    kind: Literal["copy", "hallucinate"]
    examples: int
    """Those of the file."""
    made: int


def augmented(data: Data, config: Config) -> tuple[Data, Augmented]:
    """The training examples with made-up ones behind them; `DataError` where none can be made.

    They then pass through everything as the others do, the vocabularies included. A made-up text longer than
    `data.maximum_length` is left out, as a bad line would be.
    """
    kind, examples = config.training.augmentation, data.training
    assert kind != "none", "augmentation was asked for"
    generator = np.random.default_rng([config.seed, STREAM])
    wanted = round(config.training.augmentation_share * len(examples))
    cut, limit = segmenters(config.data), config.data.maximum_length
    if kind == "copy":
        made = copied(examples, cut, wanted, generator)
    else:
        made = hallucinated(examples, cut, wanted, generator)
    made = [each for each in made if each.source and len(cut.source.split(each.source)) <= limit]
    return data._replace(training=[*examples, *made]), Augmented(kind, len(examples), len(made))


def copied(examples: Sequence[Example], cut: Segmenters, wanted: int, generator: np.random.Generator) -> list[Example]:
    """Targets to be written as they are read, with `TAG` in place of features, each as often as any other.

    As Liu & Hulden 2022, section 3, do with the forms of a training set. The symbols of the target are joined as those
    of a source are: phones between spaces become a word.
    """
    texts = [cut.source.join(cut.target.split(example.target)) for example in examples]
    rounds = -(-wanted // len(examples))
    rows = [row for _ in range(rounds) for row in generator.permutation(len(examples)).tolist()]
    return [Example(texts[row], examples[row].target, TAG) for row in rows[:wanted]]


def hallucinated(
    examples: Sequence[Example], cut: Segmenters, wanted: int, generator: np.random.Generator
) -> list[Example]:
    """Examples whose stems, runs of `STEM` or more symbols that source and target share, are random symbols instead.

    The same ones on both sides, drawn from all symbols that stand on both. Anastasopoulos & Neubig 2019, section 3.2;
    aligned here by the fewest edits.
    """
    pairs = [(cut.source.split(example.source), cut.target.split(example.target)) for example in examples]
    stems = [_stems(*pair) for pair in pairs]
    rows = [row for row, found in enumerate(stems) if found]
    if not rows:
        raise DataError(
            f'training.augmentation = "hallucinate" needs pairs whose sides share {STEM} symbols in a row; none here do'
        )
    read, written = ({symbol for pair in pairs for symbol in pair[side]} for side in (0, 1))
    alphabet, made = sorted(read & written), list[Example]()
    for row in generator.choice(rows, wanted).tolist():
        source, target = (list(side) for side in pairs[row])
        for stem in stems[row]:
            drawn = [alphabet[at] for at in generator.integers(len(alphabet), size=stem.size).tolist()]
            source[stem.a : stem.a + stem.size] = target[stem.b : stem.b + stem.size] = drawn
        joined = cut.source.join(source), cut.target.join(target)
        made.append(Example(*joined, examples[row].features))
    return made


def _stems(source: Sequence[str], target: Sequence[str]) -> list["_Stem"]:
    """Where the two share `STEM` or more symbols in a row."""
    blocks = Levenshtein.opcodes(source, target).as_matching_blocks()
    return [_Stem(*block) for block in blocks if block[2] >= STEM]


class _Stem(NamedTuple):
    """A run of symbols from place a of the source and place b of the target."""

    a: int
    b: int
    size: int
