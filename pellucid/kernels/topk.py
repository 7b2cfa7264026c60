"""The most probable symbols from logits, and the best extensions of hypotheses.

R hypotheses, b sources, k hypotheses of each (R = b·k), V vocabulary, C candidates recorded for inspection, K
extensions of each source.
"""

import numpy as np
from jaxtyping import Bool, Float, Int

from pellucid.data.vocabulary import EOS
from pellucid.kernels.arithmetic import ZERO, Flat, exp
from pellucid.kernels.attention import highest
from pellucid.kernels.jit import njit

IMPOSSIBLE = np.float32(-np.inf)


@njit
def rank(
    logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, " V"], count: int
) -> tuple[Int[np.ndarray, "R C"], Float[np.ndarray, "R C"]]:
    """Return the most probable symbols of each hypothesis in descending order, and their log-probabilities.

    Args:
        logits: Logits of each hypothesis.
        suppressed: Symbols that have probability zero.
        count: C.
    """
    ids, values = np.zeros((logits.shape[0], count), np.int64), np.empty((logits.shape[0], count), np.float32)
    log_probabilities = _log_probabilities(logits, suppressed)
    for row in range(logits.shape[0]):
        _keep_best(log_probabilities[row], ids[row], values[row])
    return ids, values


@njit
def extend(
    logits: Float[np.ndarray, "R V"],
    suppressed: Bool[np.ndarray, " V"],
    scores: Float[np.ndarray, "b k"],
    counts: tuple[int, int],
    is_early: bool,
) -> tuple[
    Int[np.ndarray, "R C"],
    Float[np.ndarray, "R C"],
    Int[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
    Float[np.ndarray, "b K"],
]:
    """Return the results of `rank`, and the best K of the k·V extensions of each source.

    An extension's number is its hypothesis's index within the source, times V, plus its symbol. None of the best K
    extends a hypothesis by a symbol that is not among that hypothesis's own best K, or K + 1 if EOS is too early.

    Args:
        logits: Logits of each hypothesis.
        suppressed: Symbols that have probability zero.
        scores: Score of each hypothesis: the sum of its log-probabilities.
        counts: C and K.
        is_early: True before the minimum length: EOS keeps its probability, but an extension by it has the score −∞.

    Returns:
        Candidate ids and their log-probabilities; numbers of the extensions, log-probabilities of their symbols, and
        their scores.
    """
    (sources, beam_size), vocabulary, (num_recorded, width) = scores.shape, logits.shape[1], counts
    num_extensions = min(width + 1 if is_early else width, vocabulary)
    ids, values = rank(logits, suppressed, max(num_recorded, num_extensions))
    numbers, log_probabilities = np.zeros((sources, width), np.int64), np.empty((sources, width), np.float32)
    total_scores, indices = np.empty((sources, width), np.float32), np.empty(width, np.int64)
    candidate_scores = np.empty(beam_size * num_extensions, np.float32)
    for source in range(sources):
        first = source * beam_size
        for hypothesis in range(beam_size):
            for candidate in range(num_extensions):
                too_early = is_early and ids[first + hypothesis, candidate] == EOS
                candidate_scores[hypothesis * num_extensions + candidate] = (
                    IMPOSSIBLE if too_early else values[first + hypothesis, candidate] + scores[source, hypothesis]
                )
        _keep_best(candidate_scores, indices, total_scores[source])
        for slot in range(width):
            hypothesis, candidate_rank = indices[slot] // num_extensions, indices[slot] % num_extensions
            numbers[source, slot] = hypothesis * vocabulary + ids[first + hypothesis, candidate_rank]
            log_probabilities[source, slot] = values[first + hypothesis, candidate_rank]
    return ids[:, :num_recorded].copy(), values[:, :num_recorded].copy(), numbers, log_probabilities, total_scores


@njit
def _log_probabilities(
    logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, " V"]
) -> Float[np.ndarray, "R V"]:
    """Return the log-softmax over the symbols that are not suppressed; −∞ for suppressed ones.

    All exponentials are in one loop, which fills the vectors even if there are few symbols.
    """
    log_probabilities = logits.copy()
    for symbol in range(suppressed.shape[0]):
        if suppressed[symbol]:
            log_probabilities[:, symbol] = IMPOSSIBLE
    for row in range(logits.shape[0]):
        log_probabilities[row] -= highest(log_probabilities[row])
    exponentials, flat = np.empty(log_probabilities.size, np.float32), log_probabilities.ravel()
    for i in range(flat.shape[0]):
        exponentials[i] = exp(flat[i])
    row_exponentials = exponentials.reshape(log_probabilities.shape)
    for row in range(logits.shape[0]):
        total = ZERO
        for symbol in range(suppressed.shape[0]):
            total += ZERO if suppressed[symbol] else row_exponentials[row, symbol]
        norm = np.log(total)
        for symbol in range(suppressed.shape[0]):
            log_probabilities[row, symbol] -= norm
    return log_probabilities


@njit
def _keep_best(values: Flat, ids: Int[np.ndarray, " C"], best: Flat) -> None:
    """Write the greatest values in descending order, and their indices; equal values keep their order."""
    count, size = best.shape[0], 0
    for index in range(values.shape[0]):
        value = values[index]
        if size == count and value <= best[count - 1]:
            continue
        slot = min(size, count - 1)
        while slot > 0 and best[slot - 1] < value:
            best[slot], ids[slot] = best[slot - 1], ids[slot - 1]
            slot -= 1
        best[slot], ids[slot] = value, index
        size = min(size + 1, count)


def warm_up() -> None:
    """Compile every kernel of this module by running the smallest example."""
    logits, suppressed = np.zeros((1, 4), np.float32), np.zeros(4, np.bool_)
    rank(logits, suppressed, 1)
    extend(logits, suppressed, np.zeros((1, 1), np.float32), (1, 1), False)
