"""The pair n-gram model of a training set: outputs with their probabilities, without a network.

The joint probability of a source x and an output y is the sum, over their alignments, of the probability that an n-gram
model gives the sequence of graphones. Training takes seconds for 100,000 short pairs.

References:
    Bisani and Ney 2008, Joint-sequence models for grapheme-to-phoneme conversion; Novak, Minematsu and Hirose 2016,
    Phonetisaurus.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pellucid.data.vocabulary import UNK
from pellucid.pair_ngram.alignment import (
    GraphoneKeys,
    SymbolPairs,
    align_pairs,
    alignable_rows,
    estimate_graphones,
)
from pellucid.pair_ngram.ngram_model import NgramModel, fit_ngram_model
from pellucid.pair_ngram.search import GraphoneTable, SearchSettings, search_outputs

ORDER = 8
"""Default order of the n-gram model, in graphones."""
TARGET_CHUNKS = (2, 3, 4)
"""Candidates for the maximum number of target symbols of a graphone."""
MIN_ALIGNED = 0.99
"""Share of the examples that must have an alignment for a candidate to be chosen, unless it is the last."""
BEAM_SIZE, MARGIN = 64, 10.0
"""Hypotheses per source position, and the greatest difference to the best log-probability there."""


class PairOutput(NamedTuple):
    """One output."""

    target: tuple[int, ...]
    """Target ids, without the end symbol."""
    score: float
    """Natural logarithm of its joint probability with the source."""


@dataclass(frozen=True)
class PairNgram:
    """A pair n-gram model.

    Attributes:
        numbering: Numbering of the graphones.
        graphones: Keys of the graphones in ascending order. Token g of `model` is graphone g; the two tokens after them
            are begin and end.
        model: N-gram model over graphones.
    """

    numbering: GraphoneKeys
    graphones: Int[np.ndarray, " G"]
    model: NgramModel

    @cached_property
    def table(self) -> GraphoneTable:
        """The graphones, as the search reads them."""
        size, factor = len(self.graphones), (self.numbering.target_size + 1) ** self.numbering.target_chunk
        chunks, first = np.unique(self.graphones // factor, return_index=True)
        target, lengths = _split_keys(self.graphones % factor, self.numbering)
        unigrams = self.model.token[1 : self.model.first_child[1]]
        begin = 1 + int(np.searchsorted(unigrams, size))
        lowest = float(self.model.log_probability[1 : 1 + len(unigrams)].min())
        return GraphoneTable(
            chunks, np.append(first, size), target, lengths, self.numbering.source_size, begin, size + 1, lowest
        )

    def nbest(self, source: Sequence[int], count: int, beam_size: int = BEAM_SIZE) -> list[PairOutput]:
        """Return the most probable outputs of a source, the best first; fewer than `count` if the beam holds fewer.

        Args:
            source: Source ids.
            count: Maximum number of outputs, at least 1.
            beam_size: Hypotheses per source position.
        """
        ids, nothing = np.array(source, np.int64), np.zeros(0, np.int64)
        settings = SearchSettings(max(beam_size, count), MARGIN, count)
        outputs, scores = search_outputs(self.model, self.table, ids, nothing, True, settings)
        return [
            PairOutput(self._target_ids(output), float(score)) for output, score in zip(outputs, scores, strict=True)
        ]

    def score(self, source: Sequence[int], target: Sequence[int]) -> float:
        """Return the log-probability of a source with a target; −∞ if they have no alignment.

        Args:
            source: Source ids.
            target: Target ids, without the end symbol.
        """
        ids, given = np.array(source, np.int64), np.array(target, np.int64)
        settings = SearchSettings(BEAM_SIZE, MARGIN, 1)
        _, scores = search_outputs(self.model, self.table, ids, given, False, settings)
        return float(scores[0]) if len(scores) else -np.inf

    def _target_ids(self, output: Int[np.ndarray, " steps"]) -> tuple[int, ...]:
        """Return the target ids of graphones, which are given from the last to the first."""
        table = self.table
        return tuple(
            int(symbol)
            for graphone in output[::-1]
            if graphone >= 0
            for symbol in table.target[graphone, : table.target_length[graphone]]
        )


def fit_pair_ngram(pairs: SymbolPairs, source_size: int, target_size: int, order: int = ORDER) -> PairNgram | None:
    """Fit a model to examples; examples without an alignment, or with an unknown target symbol, are left out.

    Args:
        pairs: Sources and targets, without end symbols.
        source_size: Number of source ids.
        target_size: Number of target ids.
        order: Order of the n-gram model.

    Returns:
        The model; None if no example has an alignment, or the vocabularies are too large.
    """
    pairs = _without_unknown(pairs)
    examples = len(pairs.source_offsets) - 1
    fitting = [GraphoneKeys(source_size, target_size, chunk) for chunk in TARGET_CHUNKS]
    fitting = [numbering for numbering in fitting if numbering.fits]
    enough = [
        numbering
        for numbering in fitting
        if len(alignable_rows(pairs, numbering.target_chunk)) >= MIN_ALIGNED * examples
    ]
    chosen = (enough[:1] or fitting[-1:])[0] if fitting else None
    if chosen is None or not len(alignable_rows(pairs, chosen.target_chunk)):
        return None
    alignments = align_pairs(pairs, chosen, estimate_graphones(pairs, chosen))
    graphones, tokens = np.unique(alignments.graphones, return_inverse=True)
    size, count = len(graphones), len(alignments.offsets) - 1
    begins, ends = alignments.offsets[:-1] + 2 * np.arange(count), alignments.offsets[1:] + 2 * np.arange(count) + 1
    sequence = np.empty(len(tokens) + 2 * count, np.int64)
    is_graphone = np.ones(len(sequence), bool)
    is_graphone[begins] = is_graphone[ends] = False
    sequence[is_graphone], sequence[begins], sequence[ends] = tokens, size, size + 1
    is_begin = np.zeros(len(sequence), bool)
    is_begin[begins] = True
    return PairNgram(chosen, graphones, fit_ngram_model(sequence, is_begin, size + 2, order))


def _without_unknown(pairs: SymbolPairs) -> SymbolPairs:
    """Return the examples whose targets have no unknown symbol."""
    unknown = np.concatenate([[0], np.cumsum(pairs.target == UNK)])[pairs.target_offsets]
    if unknown[-1] == 0:
        return pairs
    kept = np.diff(unknown) == 0
    columns = list[Int[np.ndarray, " n"]]()
    for ids, offsets in ((pairs.source, pairs.source_offsets), (pairs.target, pairs.target_offsets)):
        lengths = np.diff(offsets)
        columns += [ids[np.repeat(kept, lengths)], np.concatenate([[0], np.cumsum(lengths[kept])])]
    return SymbolPairs(*columns)


def _split_keys(
    keys: Int[np.ndarray, " G"], numbering: GraphoneKeys
) -> tuple[Int[np.ndarray, "G M"], Int[np.ndarray, " G"]]:
    """Return the target ids of each key, from the left, and their number."""
    base, width = numbering.target_size + 1, numbering.target_chunk
    digits = np.stack([keys // base**place % base for place in range(width - 1, -1, -1)], axis=1)
    lengths = (digits > 0).sum(axis=1)
    target = np.zeros(digits.shape, np.int64)
    for column in range(width):  # digits are to the right
        has_column = column < lengths
        target[has_column, column] = digits[has_column, width - lengths[has_column] + column] - 1
    return target, lengths
