"""Pair n-gram models over symbols: fitted to examples, they map sources to outputs.

N sources.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.alignment.types import SymbolPairs
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples, encode_sources
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import UNK, Vocabularies
from pellucid.pair_ngram.model import PairNgram, fit_pair_ngram
from pellucid.pair_ngram.types import chunk_limits
from pellucid.shapes import Bool, Int

COUNTED_EXAMPLES = 1 << 16
"""Number of examples whose cells are counted at once."""
MAX_CELLS = 200_000_000
"""Maximum sum of source length times target length over the examples of a model, which bounds the time of the
alignment; that of one example is bounded by `MAX_PAIR_EDGES` of alignment/types.py. Memory grows with the graphones,
the pairs of source and target symbols: counting their n-grams took 140 bytes for each of 1 million in random sequences
of 10, and 85 in sequences of 5."""


class PairNgramPredictor(NamedTuple):
    """A pair n-gram model with the tokenizers and vocabularies of a run."""

    tokenizers: Tokenizers
    vocabularies: Vocabularies
    model: PairNgram

    def target_text(self, ids: Sequence[int]) -> str:
        """Return the text of target ids.

        Args:
            ids: Ids of symbols, none of them special.
        """
        return self.tokenizers.target.join(self.vocabularies.target.decode(ids))

    def nbest(self, examples: Sequence[Example], count: int) -> list[list[tuple[str, ...]]]:
        """Return the most probable outputs of each example, as symbols, the best first.

        Args:
            examples: Examples, whose targets are ignored.
            count: Maximum number of outputs of each, at least 1.

        Returns:
            One list for each example, of at most `count` outputs; an output is never repeated.
        """
        sources = encode_sources(examples, self.tokenizers, self.vocabularies)
        decode = self.vocabularies.target.decode
        return [
            [decode(output.target) for output in self.model.search(sources.row(row), count)]
            for row in range(sources.num_sequences)
        ]


def fit_pair_ngram_predictor(
    examples: Sequence[Example], tokenizers: Tokenizers, vocabularies: Vocabularies
) -> PairNgramPredictor | None:
    """Fit a pair n-gram model to training examples whose targets are sequences.

    Args:
        examples: Training examples.
        tokenizers: Tokenizers of the run.
        vocabularies: Vocabularies of the run.

    Returns:
        The predictor; None if no model can be fitted (`fit_pair_ngram`).
    """
    model = fit_encoded_examples(encode_examples(examples, tokenizers, vocabularies), vocabularies).model
    return PairNgramPredictor(tokenizers, vocabularies, model) if model is not None else None


class PairNgramFitResult(NamedTuple):
    """Result of fitting a pair n-gram model to encoded examples."""

    model: PairNgram | None
    """None if no model can be fitted (`fit_pair_ngram`)."""
    num_fitted: int
    """Number of examples to which it was fitted, without those that have no alignment; 0 without a model."""
    num_chosen: int
    """Number of examples within the limit of cells, with those that have no alignment."""


def fit_encoded_examples(
    examples: EncodedExamples, vocabularies: Vocabularies, max_cells: int = MAX_CELLS, context_size: int = 0
) -> PairNgramFitResult:
    """Fit a pair n-gram model to encoded training examples: to evenly spaced ones, if all exceed `max_cells`.

    Contexts are not read. Examples with other features are left out: the copied targets of augmentation have one. So
    are those with an unknown target symbol.

    Args:
        examples: Source ids, and target ids that end with EOS.
        vocabularies: Vocabularies of the run.
        max_cells: Maximum sum of source length times target length; `MAX_CELLS` by default.
        context_size: Number of features of an example that are the words around its source; 0, the default, without
            contexts.
    """
    from pellucid.alignment.lattice import alignable_rows  # Numba takes a second to import

    if context_size:
        examples = examples._replace(source=_without_contexts(examples.source, context_size, len(vocabularies.source)))
    rows = _choose_rows(examples, max_cells)
    source = examples.source
    target = examples.target
    if len(rows) < source.num_sequences:
        source, target = source.take(rows), target.take(rows)
    target = _without_ends(target)
    # Copies: offsets may be read-only, for which Numba would compile the functions of the alignment once more.
    pairs = SymbolPairs(
        source.values.astype(np.int64), source.offsets.copy(), target.values.astype(np.int64), target.offsets.copy()
    )
    pairs = _drop_examples(pairs, pairs.source >= len(vocabularies.source), pairs.source_offsets)
    pairs = _drop_examples(pairs, pairs.target == UNK, pairs.target_offsets)
    model = fit_pair_ngram(pairs, len(vocabularies.source), len(vocabularies.target))
    if model is None:
        return PairNgramFitResult(None, 0, len(rows))
    return PairNgramFitResult(model, len(alignable_rows(pairs, chunk_limits(model.numbering.target_chunk))), len(rows))


def count_plain_examples(examples: EncodedExamples, vocabularies: Vocabularies, context_size: int = 0) -> int:
    """Return the number of examples without other features, to which `fit_encoded_examples` may fit a model.

    Args:
        examples: Examples in ids.
        vocabularies: Vocabularies of the run.
        context_size: As for `fit_encoded_examples`; 0, the default, without contexts.
    """
    sources = examples.source
    total = 0
    for start in range(0, sources.num_sequences, COUNTED_EXAMPLES):  # prepared data exceeds the memory
        offsets = sources.offsets[start : start + COUNTED_EXAMPLES + 1]
        block = Ragged(sources.values[offsets[0] : offsets[-1]], offsets - offsets[0])
        _, counts = _find_features(block, len(vocabularies.source))
        total += int(np.count_nonzero((counts == 0) | (counts == context_size)))
    return total


def _without_contexts(sources: Ragged, context_size: int, num_symbols: int) -> Ragged:
    """Return sources without the features of those that have `context_size` of them."""
    is_feature, counts = _find_features(sources, num_symbols)
    has_context = counts == context_size
    kept = ~(is_feature & np.repeat(has_context, sources.lengths))
    lengths = sources.lengths - np.where(has_context, context_size, 0)
    return Ragged(sources.values[kept], np.concatenate([[0], np.cumsum(lengths)]))


def _drop_examples(
    pairs: SymbolPairs, marks: Bool[np.ndarray, " n"], offsets: Int[np.ndarray, " offsets"]
) -> SymbolPairs:
    """Return the examples without a marked symbol; the pairs themselves if no symbol is marked.

    `marks` are those of all source ids or of all target ids, in which `offsets` are the offsets of the examples.
    """
    if not marks.any():
        return pairs
    kept = np.diff(np.concatenate([[0], np.cumsum(marks)])[offsets]) == 0
    source_lengths, target_lengths = np.diff(pairs.source_offsets), np.diff(pairs.target_offsets)
    return SymbolPairs(
        source=pairs.source[np.repeat(kept, source_lengths)],
        source_offsets=np.concatenate([[0], np.cumsum(source_lengths[kept])]),
        target=pairs.target[np.repeat(kept, target_lengths)],
        target_offsets=np.concatenate([[0], np.cumsum(target_lengths[kept])]),
    )


def _find_features(sources: Ragged, num_symbols: int) -> tuple[Bool[np.ndarray, " ids"], Int[np.ndarray, " N"]]:
    """Return which ids are features, which have ids from the number of symbols on, and their number in each source."""
    is_feature = sources.values >= num_symbols
    return is_feature, np.diff(np.concatenate([[0], np.cumsum(is_feature)])[sources.offsets])


def _choose_rows(examples: EncodedExamples, max_cells: int) -> Int[np.ndarray, " n"]:
    """Return the numbers of evenly spaced examples, in order, that have at most `max_cells`; of all, if these fit.

    A file may be sorted, so the first examples are not like all. An example of more than `max_cells` is never chosen.
    """
    count = total_count = examples.source.num_sequences
    blocks = (range(start, min(start + COUNTED_EXAMPLES, count)) for start in range(0, count, COUNTED_EXAMPLES))
    total = sum(_rows_within(examples, np.array(block), max_cells)[1] for block in blocks)
    while total > max_cells:
        count = min(count - 1, count * max_cells // total)
        rows = (2 * np.arange(count) + 1) * total_count // max(1, 2 * count)
        rows, total = _rows_within(examples, rows, max_cells)
        if total <= max_cells:
            return rows
    return _rows_within(examples, np.arange(count), max_cells)[0]


def _rows_within(
    examples: EncodedExamples, rows: Int[np.ndarray, " n"], max_cells: int
) -> tuple[Int[np.ndarray, " m"], int]:
    """Return the rows of the examples with at most `max_cells`, and the number of their cells, at least one each."""
    source, target = (column.offsets[rows + 1] - column.offsets[rows] for column in (examples.source, examples.target))
    cells = np.maximum(source, 1) * np.maximum(target - 1, 1)  # without EOS
    fits = cells <= max_cells
    return rows[fits], int(cells[fits].sum())


def _without_ends(target: Ragged) -> Ragged:
    """Return targets without their last symbol, EOS."""
    kept = np.ones(len(target.values), bool)
    kept[target.offsets[1:] - 1] = False
    return Ragged(target.values[kept], target.offsets - np.arange(len(target.offsets)))
