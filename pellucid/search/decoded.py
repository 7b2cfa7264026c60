"""What a search wrote: ids, and what was seen at each step, as arrays.

N outputs, S source positions, T steps, V vocabulary, C candidates kept for inspection.
"""

from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS, PAD, UNK

CANDIDATES = 5
"""Symbols a step keeps beside the one it wrote."""
SHRINK = 0.75
"""Finished sources are dropped once the running ones are fewer than this share of the batch."""


class Limits(NamedTuple):
    """The shortest and the longest output, in symbols."""

    minimum: int
    maximum: int


class Decoded(NamedTuple):
    """One output in ids, EOS included where it was reached."""

    ids: Int[np.ndarray, " T"]
    log_probabilities: Float[np.ndarray, " T"]
    weights: Float[np.ndarray, "T S"]
    top_ids: Int[np.ndarray, "T C"]
    top_log_probabilities: Float[np.ndarray, "T C"]


class Written(NamedTuple):
    """All outputs of a batch side by side; what lies beyond an output's length means nothing."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    weights: Float[np.ndarray, "N T S"]
    top_ids: Int[np.ndarray, "N T C"]
    top_log_probabilities: Float[np.ndarray, "N T C"]

    def output(self, row: int, steps: int, positions: int) -> Decoded:
        """One output: its own steps, and its own source positions. A copy, which does not keep the batch in memory."""
        return Decoded(
            ids=self.ids[row, :steps].copy(),
            log_probabilities=self.log_probabilities[row, :steps].copy(),
            weights=self.weights[row, :steps, :positions].copy(),
            top_ids=self.top_ids[row, :steps].copy(),
            top_log_probabilities=self.top_log_probabilities[row, :steps].copy(),
        )


def blank(outputs: int, steps: int, positions: int, candidates: int) -> Written:
    """Room for what a search will have written."""
    return Written(
        ids=np.zeros((outputs, steps), np.int64),
        log_probabilities=np.zeros((outputs, steps), np.float32),
        weights=np.zeros((outputs, steps, positions), np.float32),
        top_ids=np.zeros((outputs, steps, candidates), np.int64),
        top_log_probabilities=np.zeros((outputs, steps, candidates), np.float32),
    )


class Closed(NamedTuple):
    """Which symbols cannot be written: PAD, BOS and UNK never; EOS not before the shortest output."""

    before_minimum: Bool[Tensor, " V"]
    after: Bool[Tensor, " V"]

    def at(self, written: int, limits: Limits) -> Bool[Tensor, " V"]:
        """Those closed when so many symbols stand already."""
        return self.before_minimum if written < limits.minimum else self.after


def closed_symbols(vocabulary_size: int, device: torch.device | None = None) -> Closed:
    """The masks of a search."""
    after = torch.zeros(vocabulary_size, dtype=torch.bool, device=device)
    after[[PAD, BOS, UNK]] = True
    before_minimum = after.clone()
    before_minimum[EOS] = True
    return Closed(before_minimum, after)


def symbol_log_probabilities(
    logits: Float[Tensor, "*shape V"], closed: Bool[Tensor, " V"]
) -> Float[Tensor, "*shape V"]:
    """ln p over what can be written; closed symbols get zero probability."""
    return logits.masked_fill(closed, -torch.inf).log_softmax(dim=-1)


def candidates(vocabulary_size: int) -> int:
    """How many candidates a step keeps: no more than there are symbols to write."""
    return min(CANDIDATES, vocabulary_size - 3)
