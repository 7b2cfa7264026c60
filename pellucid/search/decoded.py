"""What a search wrote: ids, and what was seen at each step, as arrays.

N outputs, S source positions, T steps, V vocabulary, W = V, or V + S where symbols are copied, C candidates kept for
inspection, R hypotheses, b sources, k hypotheses of each before a step, K after it.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.kernels.choice import chosen
from pellucid.kernels.operands import First, Rules, Searched
from pellucid.model.memory import State

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


def outputs_of(searched: Searched, positions: Sequence[int]) -> list[Decoded]:
    """The outputs that a kernel found, each with so many source positions."""
    *arrays, steps = searched
    written = Written(*arrays)
    return [written.output(row, *size) for row, size in enumerate(zip(steps.tolist(), positions, strict=True))]


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


def first_of(state: State) -> First:
    """What a kernel begins with, of a decoder of one layer."""
    return First(state.hidden[:, 0], None if state.cell is None else state.cell[:, 0], state.looked)


def rules_of(vocabulary_size: int, limits: Limits) -> Rules:
    """What a kernel must know of a search."""
    closed = closed_symbols(vocabulary_size)
    return Rules(closed.before_minimum.numpy(), closed.after.numpy(), *limits, candidates(vocabulary_size))


def symbol_log_probabilities(
    logits: Float[Tensor, "*shape V"], closed: Bool[Tensor, " V"]
) -> Float[Tensor, "*shape V"]:
    """ln p over what can be written; closed symbols get zero probability."""
    return logits.masked_fill(closed, -torch.inf).log_softmax(dim=-1)


def widened(closed: Bool[Tensor, " V"], logits: Float[Tensor, "R W"]) -> Bool[Tensor, " W"]:
    """Which symbols cannot be written, none of those that are copied from the source: V + p at position p."""
    if logits.shape[1] == len(closed):
        return closed
    return torch.nn.functional.pad(closed, (0, logits.shape[1] - len(closed)))


class Likeliest(NamedTuple):
    """The candidates of each hypothesis, likeliest first."""

    ids: Int[np.ndarray, "R C"]
    log_probabilities: Float[np.ndarray, "R C"]


class Extended(NamedTuple):
    """The best extensions of each source's hypotheses, by falling score, with the candidates of each hypothesis."""

    top: Likeliest
    parents: Int[np.ndarray, "b K"]
    ids: Int[np.ndarray, "b K"]
    log_probabilities: Float[np.ndarray, "b K"]
    scores: Float[np.ndarray, "b K"]


def likeliest(logits: Float[Tensor, "R W"], closed: Bool[Tensor, " V"]) -> Likeliest:
    """The candidates, by a kernel where it can."""
    count, closed = candidates(len(closed)), widened(closed, logits)
    if chosen(logits):
        from pellucid.kernels.ranking import rank  # Numba takes a second to import

        return Likeliest(*rank(logits.numpy(), closed.numpy(), count))
    top = symbol_log_probabilities(logits, closed).topk(count)
    return Likeliest(array(top.indices), array(top.values))


def extend(
    logits: Float[Tensor, "R W"], closed: Bool[Tensor, " V"], scores: Float[np.ndarray, "b k"], width: int
) -> Extended:
    """The best `width` extensions of each source's hypotheses, by a kernel where it can."""
    vocabulary, kept, closed = logits.shape[1], candidates(len(closed)), widened(closed, logits)
    width = min(width, scores.shape[1] * vocabulary)
    if chosen(logits):
        from pellucid.kernels.ranking import extend as extend_compiled  # Numba takes a second to import

        counts = (kept, width)
        ids, values, numbers, *rest = extend_compiled(logits.numpy(), closed.numpy(), scores, counts)
        return Extended(Likeliest(ids, values), numbers // vocabulary, numbers % vocabulary, *rest)
    found = symbol_log_probabilities(logits, closed)
    summed = (torch.from_numpy(scores).to(found).flatten()[:, None] + found).view(len(scores), -1)
    best, top = summed.topk(width), found.topk(kept)
    own, places = found.view(len(scores), -1).gather(1, best.indices), array(best.indices)
    candidates_of = Likeliest(array(top.indices), array(top.values))
    return Extended(candidates_of, places // vocabulary, places % vocabulary, array(own), array(best.values))


def array(tensor: Tensor) -> np.ndarray:
    """A tensor of any device as an array; half precision as float32."""
    result: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return result


def candidates(vocabulary_size: int) -> int:
    """How many candidates a step keeps: no more than there are symbols to write."""
    return min(CANDIDATES, vocabulary_size - 3)
