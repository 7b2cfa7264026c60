"""Pair n-gram models over symbols: fitted to examples, they map sources to outputs."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.alignment.types import SymbolPairs
from pellucid.data.encoding import EncodedExamples, Ragged, encode_examples, encode_sources
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.data.vocabulary import NUM_SPECIAL, Vocabularies
from pellucid.pair_ngram.pair_ngram import PairNgram, drop_examples, fit_pair_ngram

COUNTED_EXAMPLES = 1 << 16
"""Number of examples whose cells are counted at once."""
MAX_CELLS = 200_000_000
"""Maximum sum of source length times target length over the examples of a model, which bounds time and memory."""


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
        symbols = self.vocabularies.target.symbols
        return self.tokenizers.target.join([symbols[identity - NUM_SPECIAL] for identity in ids])

    def nbest(self, examples: Sequence[Example], count: int) -> list[list[tuple[str, ...]]]:
        """Return the most probable outputs of each example, as symbols, the best first.

        Args:
            examples: Examples, whose targets are ignored.
            count: Maximum number of outputs of each, at least 1.

        Returns:
            One list for each example, of at most `count` outputs; an output is never repeated.
        """
        sources = encode_sources(examples, self.tokenizers, self.vocabularies)
        symbols = self.vocabularies.target.symbols
        return [
            [
                tuple(symbols[identity - NUM_SPECIAL] for identity in output.target)
                for output in self.model.search(sources.row(row), count)
            ]
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
    model, _ = fit_encoded_examples(encode_examples(examples, tokenizers, vocabularies), vocabularies)
    return PairNgramPredictor(tokenizers, vocabularies, model) if model is not None else None


def fit_encoded_examples(
    examples: EncodedExamples, vocabularies: Vocabularies, max_cells: int = MAX_CELLS, context_size: int = 0
) -> tuple[PairNgram | None, int]:
    """Fit a pair n-gram model to encoded training examples: to the first ones, if they exceed `max_cells`.

    Contexts are not read. Examples with other features are left out: the copied targets of augmentation have one.

    Args:
        examples: Source ids, and target ids that end with EOS.
        vocabularies: Vocabularies of the run.
        max_cells: Maximum sum of source length times target length; `MAX_CELLS` by default.
        context_size: Number of features of an example that are the words around its source; 0, the default, without
            contexts.

    Returns:
        The model, None if no model can be fitted (`fit_pair_ngram`); and the number of examples that it has seen.
    """
    if context_size:
        examples = examples._replace(source=_without_contexts(examples.source, context_size, len(vocabularies.source)))
    count = _count_examples(examples, max_cells)
    target = _without_ends(examples.target.first(count))
    # Copies: offsets may be read-only, for which Numba would compile the functions of the alignment once more.
    source_offsets, target_offsets = examples.source.offsets[: count + 1].copy(), target.offsets[: count + 1].copy()
    pairs = SymbolPairs(
        examples.source.values[: source_offsets[-1]].astype(np.int64),
        source_offsets,
        target.values[: target_offsets[-1]].astype(np.int64),
        target_offsets,
    )
    pairs = drop_examples(pairs, pairs.source >= len(vocabularies.source), pairs.source_offsets)
    model = fit_pair_ngram(pairs, len(vocabularies.source), len(vocabularies.target))
    return model, len(pairs.source_offsets) - 1


def _without_contexts(sources: Ragged, context_size: int, num_symbols: int) -> Ragged:
    """Return sources without the features of those that have `context_size` of them; features have the greater ids."""
    is_feature = sources.values >= num_symbols
    counts = np.diff(np.concatenate([[0], np.cumsum(is_feature)])[sources.offsets])
    has_context = counts == context_size
    kept = ~(is_feature & np.repeat(has_context, sources.lengths))
    lengths = sources.lengths - np.where(has_context, context_size, 0)
    return Ragged(sources.values[kept], np.concatenate([[0], np.cumsum(lengths)]))


def _count_examples(examples: EncodedExamples, max_cells: int) -> int:
    """Return the number of first examples that do not exceed `max_cells`; later ones, which may be many, are not read.

    Each has at least one cell: its source is not empty.
    """
    source, target = (column.first(max_cells).offsets for column in (examples.source, examples.target))
    total = 0
    for start in range(0, len(source) - 1, COUNTED_EXAMPLES):
        block = slice(start, start + COUNTED_EXAMPLES + 1)
        cells = total + np.cumsum(np.diff(source[block]) * np.maximum(np.diff(target[block]) - 1, 1))
        total = int(cells[-1])
        if total > max_cells:
            return start + int(np.searchsorted(cells, max_cells, side="right"))
    return len(source) - 1


def _without_ends(target: Ragged) -> Ragged:
    """Return targets without their last symbol, EOS."""
    kept = np.ones(len(target.values), bool)
    kept[target.offsets[1:] - 1] = False
    return Ragged(target.values[kept], target.offsets - np.arange(len(target.offsets)))
