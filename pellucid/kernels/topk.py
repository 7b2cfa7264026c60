"""The most probable symbols from logits, and the best extensions of hypotheses.

R hypotheses, b sources, k hypotheses of each (R = b·k), V vocabulary, C candidates kept for inspection, K extensions
kept.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.kernels.arithmetic import ZERO, Flat, exp
from pellucid.kernels.attention import highest
from pellucid.kernels.jit import njit

IMPOSSIBLE = np.float32(-np.inf)


@njit
def rank(
    logits: Float[np.ndarray, "R V"], closed: Bool[np.ndarray, " V"], count: int
) -> tuple[Int[np.ndarray, "R C"], Float[np.ndarray, "R C"]]:
    """Return the most probable symbols of each hypothesis in falling order, and their log-probabilities.

    Closed symbols have probability zero.
    """
    ids, values = np.zeros((logits.shape[0], count), np.int64), np.empty((logits.shape[0], count), np.float32)
    likely = _log_probabilities(logits, closed)
    for row in range(logits.shape[0]):
        _keep_best(likely[row], ids[row], values[row])
    return ids, values


@njit
def extend(
    logits: Float[np.ndarray, "R V"],
    closed: Bool[np.ndarray, " V"],
    scores: Float[np.ndarray, "b k"],
    counts: tuple[int, int],
) -> tuple[
    Int[np.ndarray, "R C"],
    Float[np.ndarray, "R C"],
    Int[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
]:
    """Return the results of `rank`, and the best K of the k·V extensions of each source.

    Of the extensions: their numbers, the log-probabilities of their symbols, and their scores.

    An extension's number is that of its hypothesis within the source, times V, plus its symbol. None of the best K
    extends a hypothesis by a symbol that is not among its own best K.
    """
    (sources, each), vocabulary, (count, width) = scores.shape, logits.shape[1], counts
    entering = min(width, vocabulary)
    ids, values = rank(logits, closed, max(count, entering))
    numbers, own = np.zeros((sources, width), np.int64), np.empty((sources, width), np.float32)
    totals, summed = np.empty((sources, width), np.float32), np.empty(each * entering, np.float32)
    places = np.empty(width, np.int64)
    for source in range(sources):
        first = source * each
        for place in range(each):
            for rank_ in range(entering):
                summed[place * entering + rank_] = values[first + place, rank_] + scores[source, place]
        _keep_best(summed, places, totals[source])
        for kept in range(width):
            place, chosen = places[kept] // entering, places[kept] % entering
            numbers[source, kept] = place * vocabulary + ids[first + place, chosen]
            own[source, kept] = values[first + place, chosen]
    return ids[:, :count].copy(), values[:, :count].copy(), numbers, own, totals


@njit
def _log_probabilities(logits: Float[np.ndarray, "R V"], closed: Bool[np.ndarray, " V"]) -> Float[np.ndarray, "R V"]:
    """Return the log-softmax over the symbols that are not closed; −∞ for the rest.

    All exponentials are in one loop, which fills the vectors however few the symbols are.
    """
    likely = logits.copy()
    for symbol in range(closed.shape[0]):
        if closed[symbol]:
            likely[:, symbol] = IMPOSSIBLE
    for row in range(logits.shape[0]):
        likely[row] -= highest(likely[row])
    powers, flat = np.empty(likely.size, np.float32), likely.ravel()
    for at in range(flat.shape[0]):
        powers[at] = exp(flat[at])
    shares = powers.reshape(likely.shape)
    for row in range(logits.shape[0]):
        total = ZERO
        for symbol in range(closed.shape[0]):
            total += ZERO if closed[symbol] else shares[row, symbol]
        norm = np.log(total)
        for symbol in range(closed.shape[0]):
            likely[row, symbol] -= norm
    return likely


@njit
def _keep_best(values: Flat, ids: Int[np.ndarray, " C"], best: Flat) -> None:
    """Keep the greatest values in falling order, and their positions; of equal ones the first comes first."""
    count, kept = best.shape[0], 0
    for at in range(values.shape[0]):
        value = values[at]
        if kept == count and value <= best[count - 1]:
            continue
        place = min(kept, count - 1)
        while place > 0 and best[place - 1] < value:
            best[place], ids[place] = best[place - 1], ids[place - 1]
            place -= 1
        best[place], ids[place] = value, at
        kept = min(kept + 1, count)


def warm_up() -> None:
    """Compile everything here."""
    logits, closed = np.zeros((1, 4), np.float32), np.zeros(4, np.bool_)
    rank(logits, closed, 1)
    extend(logits, closed, np.zeros((1, 1), np.float32), (1, 1))
