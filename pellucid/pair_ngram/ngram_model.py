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

LOWEST = 1e-30
"""Probabilities are at least this, so that logarithms are finite."""
MAX_NODES = 4_000_000
"""Maximum number of n-grams without pruning; each takes 20 bytes."""
NEVER_PRUNED = 2
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


class _Order(NamedTuple):
    """The distinct n-grams of one order."""

    parent: Int[np.ndarray, " n"]
    """Number of the n-gram without its last token, among those of the order below."""
    token: Int[np.ndarray, " n"]
    """Last token."""
    place: Int[np.ndarray, " n"]
    """A position in the text at which it ends."""
    frequency: Int[np.ndarray, " n"]
    """Number of its occurrences."""
    numbers: Int[np.ndarray, " tokens"]
    """Number of the n-gram that ends at each position; −1 where none does."""


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

    References:
        Chen and Goodman 1999, An empirical study of smoothing techniques for language modeling, sections 3 and 4.
    """
    lengths = np.arange(len(tokens)) - np.maximum.accumulate(np.where(begins, np.arange(len(tokens)), 0)) + 1
    orders = list[_Order]()
    for n in range(1, order + 1):
        found = _count_ngrams(tokens, lengths, n, num_tokens, orders[-1].numbers if orders else None)
        if not len(found.token):
            break
        orders.append(found)
    # An n-gram occurs at most as often as its prefix and its suffix, so these are kept with it.
    prunes = sum(len(found.token) for found in orders) > MAX_NODES
    kept = [np.ones(1, bool)]
    kept += [
        found.frequency > 1 if prunes and n > NEVER_PRUNED else found.frequency > 0 for n, found in enumerate(orders, 1)
    ]
    numbers = [np.cumsum(mask) - 1 for mask in kept]
    offsets = np.cumsum([0, *(mask.sum() for mask in kept)])
    model = NgramModel(
        np.zeros(offsets[-1], np.int32),
        np.zeros(offsets[-1], np.float32),
        np.zeros(offsets[-1], np.float32),
        np.zeros(offsets[-1], np.int32),
        np.full(offsets[-1] + 1, offsets[-1], np.int32),
    )
    lower = np.array([1 / max(num_tokens - 1, 1)])
    for n, found in enumerate(orders, 1):
        suffixes = orders[n - 2].numbers[found.place] if n > 1 else np.zeros(len(found.token), np.int64)
        counts = _adjusted_counts(orders, n, lengths)
        if n == 1:
            counts[found.numbers[begins]] = 0
        probabilities, weights = _smooth(found, counts, kept[n], lower[suffixes], len(kept[n - 1]))
        here, below = slice(offsets[n], offsets[n + 1]), slice(offsets[n - 1], offsets[n])
        model.token[here] = found.token[kept[n]]
        model.log_probability[here] = np.log(np.maximum(probabilities[kept[n]], LOWEST))
        model.suffix[here] = offsets[n - 1] + numbers[n - 1][suffixes[kept[n]]]
        model.backoff[below] = np.log(np.maximum(weights[kept[n - 1]], LOWEST))
        parents = np.flatnonzero(kept[n - 1])
        model.first_child[below] = offsets[n] + np.searchsorted(found.parent[kept[n]], parents)
        lower = probabilities
    return model


def _count_ngrams(
    tokens: Int[np.ndarray, " tokens"],
    lengths: Int[np.ndarray, " tokens"],
    n: int,
    num_tokens: int,
    shorter: Int[np.ndarray, " tokens"] | None,
) -> _Order:
    """Count the n-grams of one order; `shorter` numbers those of the order below."""
    places = np.flatnonzero(lengths >= n)
    parents = np.zeros(len(places), np.int64) if shorter is None else shorter[places - 1]
    keys, first, numbers, counts = np.unique(
        parents * num_tokens + tokens[places], return_index=True, return_inverse=True, return_counts=True
    )
    at_position = np.full(len(tokens), -1, np.int64)
    at_position[places] = numbers
    return _Order(keys // num_tokens, keys % num_tokens, places[first], counts, at_position)


def _adjusted_counts(orders: list[_Order], n: int, lengths: Int[np.ndarray, " tokens"]) -> Int[np.ndarray, " n"]:
    """Return the count of each n-gram of an order as smoothing uses it.

    It is the number of occurrences at the highest order and at the begin of a sequence, else of preceding tokens.
    """
    found = orders[n - 1]
    if n == len(orders):
        return found.frequency.copy()
    preceding = np.bincount(found.numbers[orders[n].place], minlength=len(found.token))
    return np.where(lengths[found.place] == n, found.frequency, preceding)


def _smooth(
    found: _Order,
    counts: Int[np.ndarray, " n"],
    kept: Bool[np.ndarray, " n"],
    lower: Float[np.ndarray, " n"],
    num_parents: int,
) -> tuple[Float[np.ndarray, " n"], Float[np.ndarray, " parents"]]:
    """Return the interpolated probabilities of one order, and the weight γ of each history."""
    discounts = np.where(kept, _discounts(counts)[np.minimum(counts, 3)], counts)
    totals = np.maximum(np.bincount(found.parent, counts, num_parents), LOWEST)
    removed = np.bincount(found.parent, discounts, num_parents)
    weights = np.where(totals > LOWEST, removed / totals, 1.0)
    probabilities = (counts - discounts) / totals[found.parent] + weights[found.parent] * lower
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
