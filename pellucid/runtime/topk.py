"""Selection of the best symbols and extensions from logits, in NumPy; as `pellucid.decoding.topk` selects them.

R hypotheses, b sources, k hypotheses of each before a step, K after it, V vocabulary, C candidates kept for inspection,
N numbers of a row.
"""

from typing import NamedTuple

import numpy as np

from pellucid.data.vocabulary import EOS
from pellucid.decoding.beam_steps import ExtensionCounts, RequiredSymbols
from pellucid.decoding.outputs import BeamExtensions, SymbolMasks, TopSymbols, num_candidates
from pellucid.runtime.support import UnsupportedError
from pellucid.shapes import Bool, Float, Int

MIN_PARTITIONED = 256
"""Number of values in a row from which the greatest are found by a partition before they are sorted."""


def log_softmax(logits: Float[np.ndarray, "R V"], suppressed: Bool[np.ndarray, "*rows V"]) -> Float[np.ndarray, "R V"]:
    """Return log-probabilities; suppressed symbols have probability zero.

    Args:
        logits: Logits of the next symbols.
        suppressed: Mask of the symbols that are never written, for all hypotheses or for each.
    """
    masked = np.where(suppressed, np.float32(-np.inf), logits)
    return np.asarray(masked - log_sum_exp(masked))


def log_sum_exp(values: Float[np.ndarray, "R V"]) -> Float[np.ndarray, "R 1"]:
    """Return the logarithm of the sum of the exponentials of each row.

    Args:
        values: Numbers of each row.
    """
    greatest = values.max(axis=1, keepdims=True)
    return np.asarray(np.log(np.exp(values - greatest).sum(axis=1, keepdims=True)) + greatest)


def top_values(values: Float[np.ndarray, "R N"], count: int) -> tuple[Int[np.ndarray, "R C"], Float[np.ndarray, "R C"]]:
    """Return the indices of the greatest numbers of each row, in descending order, and the numbers.

    Args:
        values: Numbers of each row.
        count: C, at most N.
    """
    candidates = None
    if values.shape[1] >= MIN_PARTITIONED and count < values.shape[1]:
        candidates = np.argpartition(-values, count, axis=1)[:, :count]
    considered = values if candidates is None else np.take_along_axis(values, candidates, axis=1)
    order = np.argsort(-considered, axis=1, kind="stable")[:, :count]
    indices = order if candidates is None else np.take_along_axis(candidates, order, axis=1)
    return indices, np.take_along_axis(values, indices, axis=1)


def top_symbols(log_probabilities: Float[np.ndarray, "R V"]) -> TopSymbols:
    """Return the C most probable symbols of each hypothesis.

    Args:
        log_probabilities: Log-probabilities of the next symbols.
    """
    return TopSymbols(*top_values(log_probabilities, num_candidates(log_probabilities.shape[1])))


class ArrayScores(NamedTuple):
    """Logits of the next symbols of R hypotheses (see `SymbolScores`)."""

    logits: Float[np.ndarray, "R V"]

    @property
    def num_symbols(self) -> int:
        """V, the number of symbols that can be written."""
        return int(self.logits.shape[1])

    def extend(self, masks: SymbolMasks, cumulative_log_probs: Float[np.ndarray, "b k"], count: int) -> BeamExtensions:
        """Return the best extensions of each source's hypotheses.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            count: Number of extensions of each source; at most all of them are returned.
        """
        log_probabilities = log_softmax(self.logits, masks.suppressed)
        allowed = log_probabilities
        if masks.blocked is not None:
            allowed = np.where(masks.blocked.reshape(allowed.shape), np.float32(-np.inf), allowed)
        if masks.is_early:
            allowed = np.where(np.arange(self.num_symbols) == EOS, np.float32(-np.inf), allowed)
        sources = len(cumulative_log_probs)
        extended = (cumulative_log_probs.reshape(-1, 1) + allowed).reshape(sources, -1)
        indices, cumulative = top_values(extended, min(count, extended.shape[1]))
        symbol_log_probs = np.take_along_axis(log_probabilities.reshape(sources, -1), indices, axis=1)
        parents, ids = np.divmod(indices, self.num_symbols)
        return BeamExtensions(top_symbols(log_probabilities), parents, ids, symbol_log_probs, cumulative)

    def extend_constrained(
        self,
        masks: SymbolMasks,
        cumulative_log_probs: Float[np.ndarray, "b k"],
        required: RequiredSymbols,
        counts: ExtensionCounts,
    ) -> tuple[BeamExtensions, Bool[np.ndarray, "b E"]]:
        """Raise `UnsupportedError`: required symbols need PyTorch.

        Args:
            masks: Symbols that cannot follow.
            cumulative_log_probs: Log-probability of each hypothesis.
            required: Required symbols.
            counts: Numbers of best extensions.

        Raises:
            UnsupportedError: Always.
        """
        raise UnsupportedError("the runtime without PyTorch does not support required symbols")
