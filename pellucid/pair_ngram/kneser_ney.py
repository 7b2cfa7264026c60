"""Interpolated n-gram models with modified Kneser-Ney smoothing.

c(g) is the count of an n-gram g, h the n − 1 tokens before the token w, h′ the history h without its first token, and
h• all n-grams that continue h:

    p(w | h) = (c(hw) − D(c(hw))) / c(h•) + γ(h) p(w | h′),
    γ(h) = (D₁ N₁(h•) + D₂ N₂(h•) + D₃ N₃₊(h•)) / c(h•),

where N_k(h•) is the number of tokens that follow h exactly k times. Below the highest order, the count of an n-gram is
the number of tokens that precede it, unless it begins a sequence. Unigrams are interpolated with the uniform
distribution.

A model of more than `MAX_NODES` n-grams is pruned: n-grams of three tokens or more that occur once are left out. The
discount of each is its whole count, so that probabilities sum to one as before.
"""

from typing import NamedTuple

import numpy as np

from pellucid.shapes import Bool, Float, Int

MIN_PROBABILITY = 1e-30
"""Probabilities are at least this, so that logarithms are finite."""
MAX_NODES = 4_000_000
"""Maximum number of n-grams without pruning; each takes 20 bytes."""
MAX_UNPRUNED_ORDER = 2
"""Highest order of which no n-gram is pruned."""


class NgramModel(NamedTuple):
    """Trie of n-grams in arrays.

    A node is an n-gram; node 0 is empty. The nodes of an order follow those of the order below, and the children of a
    node, which are the n-grams that continue it, follow each other in the order of their tokens.
    """

    token: Int[np.ndarray, " nodes"]
    """Last token of each n-gram."""
    log_probability: Float[np.ndarray, " nodes"]
    """Natural logarithm of p(last token | tokens before it)."""
    backoff: Float[np.ndarray, " nodes"]
    """Natural logarithm of γ, the weight of the shorter history."""
    suffix: Int[np.ndarray, " nodes"]
    """Node of the n-gram without its first token."""
    first_child: Int[np.ndarray, " nodes+1"]
    """First child of each node, and the number of nodes."""


class _NgramCounts(NamedTuple):
    """The distinct n-grams of one order."""

    parent: Int[np.ndarray, " n"]
    """Number of the n-gram without its last token, among those of the order below."""
    token: Int[np.ndarray, " n"]
    """Last token."""
    suffix: Int[np.ndarray, " n"]
    """Number of the n-gram without its first token, among those of the order below."""
    frequency: Int[np.ndarray, " n"]
    """Number of its occurrences."""
    is_first: Bool[np.ndarray, " n"]
    """True for an n-gram that begins a sequence."""


def fit_ngram_model(
    tokens: Int[np.ndarray, " tokens"], begins: Bool[np.ndarray, " tokens"], num_tokens: int, order: int
) -> NgramModel:
    """Fit the model to sequences.

    Args:
        tokens: Tokens of all sequences, one after the other. Each sequence begins with a token that occurs nowhere
            else, and is never predicted.
        begins: True for the first token of each sequence.
        num_tokens: Number of different tokens, which are 0 to num_tokens − 1; some may occur nowhere.
        order: Highest order, at least 1.

    Returns:
        The model. Its unigrams are the tokens that occur. That of the first token of the sequences, which is never
        predicted, has the probability of a token that occurs nowhere: γ / (num_tokens − 1) with the γ of the empty
        history.

    References:
        Chen and Goodman 1999, An empirical study of smoothing techniques for language modeling, sections 3 and 4.
    """
    counts_by_order = _count_all_orders(tokens, begins, num_tokens, order)
    # An n-gram occurs at most as often as its prefix and its suffix, so these are kept with it.
    prunes = sum(len(counted.token) for counted in counts_by_order) > MAX_NODES
    kept = [np.ones(1, bool)]
    kept += [
        counted.frequency > 1 if prunes and n > MAX_UNPRUNED_ORDER else counted.frequency > 0
        for n, counted in enumerate(counts_by_order, 1)
    ]
    numbers = [np.cumsum(mask, dtype=np.int32) - 1 for mask in kept]
    offsets = np.cumsum([0, *(mask.sum() for mask in kept)])
    model = NgramModel(
        np.zeros(offsets[-1], np.int32),
        np.zeros(offsets[-1], np.float32),
        np.zeros(offsets[-1], np.float32),
        np.zeros(offsets[-1], np.int32),
        np.full(offsets[-1] + 1, offsets[-1], np.int32),
    )
    lower = np.array([1 / max(num_tokens - 1, 1)])
    for n, counted in enumerate(counts_by_order, 1):
        counts = _adjusted_counts(counts_by_order, n)
        if n == 1:
            counts[counted.is_first] = 0
        probabilities, weights = _smooth(counted, counts, kept[n], lower[counted.suffix], len(kept[n - 1]))
        nodes, parent_nodes = slice(offsets[n], offsets[n + 1]), slice(offsets[n - 1], offsets[n])
        model.token[nodes] = counted.token[kept[n]]
        model.log_probability[nodes] = np.log(np.maximum(probabilities[kept[n]], MIN_PROBABILITY))
        model.suffix[nodes] = offsets[n - 1] + numbers[n - 1][counted.suffix[kept[n]]]
        model.backoff[parent_nodes] = np.log(np.maximum(weights[kept[n - 1]], MIN_PROBABILITY))
        parents = np.flatnonzero(kept[n - 1])
        model.first_child[parent_nodes] = offsets[n] + np.searchsorted(counted.parent[kept[n]], parents)
        lower = probabilities
    return model


def _count_all_orders(
    tokens: Int[np.ndarray, " tokens"], begins: Bool[np.ndarray, " tokens"], num_tokens: int, order: int
) -> list[_NgramCounts]:
    """Count the n-grams of each order up to the highest that occurs.

    Memory is proportional to the number of tokens, with a part for each order: only the distinct n-grams of an order
    are kept when the next one has been counted, with numbers of 32 bits.
    """
    positions = np.arange(len(tokens))
    lengths = positions - np.maximum.accumulate(np.where(begins, positions, 0)) + 1
    counts_by_order = list[_NgramCounts]()
    shorter = np.zeros(len(tokens), np.int32)
    for n in range(1, order + 1):
        counted, shorter = _count_ngrams(tokens, lengths, n, num_tokens, shorter)
        if not len(counted.token):
            break
        counts_by_order.append(counted)
    return counts_by_order


def _count_ngrams(
    tokens: Int[np.ndarray, " tokens"],
    lengths: Int[np.ndarray, " tokens"],
    n: int,
    num_tokens: int,
    shorter: Int[np.ndarray, " tokens"],
) -> tuple[_NgramCounts, Int[np.ndarray, " tokens"]]:
    """Count the n-grams of one order; return them, and the number of the n-gram that ends at each token, else −1.

    `lengths` are the numbers of tokens from the first one of a sequence; `shorter` numbers the n-grams of the order
    below, as the second result those of this one.
    """
    positions = np.flatnonzero(lengths >= n)
    parents = shorter[positions - 1].astype(np.int64) if n > 1 else np.zeros(len(positions), np.int64)
    keys, first, numbers, counts = np.unique(
        parents * num_tokens + tokens[positions], return_index=True, return_inverse=True, return_counts=True
    )
    numbers_by_position = np.full(len(tokens), -1, np.int32)
    numbers_by_position[positions] = numbers
    ends = positions[first]
    parent, token = (column.astype(np.int32) for column in (keys // num_tokens, keys % num_tokens))
    return _NgramCounts(parent, token, shorter[ends], counts.astype(np.int32), lengths[ends] == n), numbers_by_position


def _adjusted_counts(counts_by_order: list[_NgramCounts], n: int) -> Int[np.ndarray, " n"]:
    """Return the count of each n-gram of an order as smoothing uses it.

    It is the number of occurrences at the highest order and at the start of a sequence, else of preceding tokens.
    """
    counted = counts_by_order[n - 1]
    if n == len(counts_by_order):
        return counted.frequency.copy()
    preceding = np.bincount(counts_by_order[n].suffix, minlength=len(counted.token))
    return np.where(counted.is_first, counted.frequency, preceding)


def _smooth(
    counted: _NgramCounts,
    counts: Int[np.ndarray, " n"],
    kept: Bool[np.ndarray, " n"],
    lower: Float[np.ndarray, " n"],
    num_parents: int,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " parents"]]:
    """Return the interpolated probabilities of one order, and the weight γ of each history."""
    discounts = np.where(kept, _discounts(counts)[np.minimum(counts, 3)], counts)
    totals = np.bincount(counted.parent, counts, num_parents)
    has_counts = totals > 0
    totals = np.where(has_counts, totals, 1.0)
    removed = np.bincount(counted.parent, discounts, num_parents)
    weights = np.where(has_counts, removed / totals, 1.0)
    probabilities = (counts - discounts) / totals[counted.parent] + weights[counted.parent] * lower
    return probabilities, weights


def _discounts(counts: Int[np.ndarray, " n"]) -> Float[np.ndarray, "4"]:
    """Return the discounts of counts of 0, 1, 2, and 3 or more (Chen and Goodman 1999, equation 26).

    Few n-grams may give a discount outside the possible range; then half of it is used.
    """
    one, two, three, four = (max(int((counts == count).sum()), 1) for count in (1, 2, 3, 4))
    share = one / (one + 2 * two)
    estimates = (1 - 2 * share * two / one, 2 - 3 * share * three / two, 3 - 4 * share * four / three)
    kept = [value if 0 < value < count else count / 2 for count, value in enumerate(estimates, 1)]
    return np.array([0.0, *kept])
