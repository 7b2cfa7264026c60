"""What a search wrote: ids, and what was seen at each step, as arrays.

N outputs (of extensions: k·V), S source positions, T steps, V vocabulary, C candidates kept for inspection, R
hypotheses, b sources, k hypotheses of each before a step, K after it, M heads of attention.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from pellucid.data.vocabulary import BOS, EOS, PAD, UNK
from pellucid.kernels.backend import Request, parts_given
from pellucid.kernels.dispatch import use_kernel
from pellucid.kernels.types import InitialState, SearchLimits, SearchResult
from pellucid.model.memory import State
from pellucid.model.requests import request_of

CANDIDATES = 5
"""Symbols a step keeps beside the one it wrote."""
FIRST_STEPS = 32
"""Steps for which there is room before the length of the outputs is known."""
SHRINK = 0.75
"""Finished sources are dropped once the running ones are fewer than this share of the batch."""


class Limits(NamedTuple):
    """The shortest and the longest output, in symbols."""

    minimum: int
    maximum: int


class Spans(NamedTuple):
    """The same for each source of a batch."""

    minimum: Int[np.ndarray, " B"]
    maximum: Int[np.ndarray, " B"]


def spans_of(limits: Limits, sources: int) -> Spans:
    """The same limits for every source."""
    return Spans(np.full(sources, limits.minimum), np.full(sources, limits.maximum))


class Decoded(NamedTuple):
    """One output in ids, EOS included where it was reached."""

    ids: Int[np.ndarray, " T"]
    log_probabilities: Float[np.ndarray, " T"]
    weights: Float[np.ndarray, "T S"]
    top_ids: Int[np.ndarray, "T C"]
    top_log_probabilities: Float[np.ndarray, "T C"]
    heads: Float[np.ndarray, "M T S"] | None = None
    looks: Float[np.ndarray, "L S"] | None = None
    """Of an answer that takes several looks, the weights of each, the last of which are `weights`."""


class Written(NamedTuple):
    """All outputs of a batch side by side; what lies beyond an output's length means nothing."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    weights: Float[np.ndarray, "N T S"]
    top_ids: Int[np.ndarray, "N T C"]
    top_log_probabilities: Float[np.ndarray, "N T C"]
    heads: Float[np.ndarray, "N M T S"] | None = None

    def output(self, row: int, steps: int, positions: int) -> Decoded:
        """One output: its own steps, and its own source positions. A copy, which does not keep the batch in memory."""
        return Decoded(
            ids=self.ids[row, :steps].copy(),
            log_probabilities=self.log_probabilities[row, :steps].copy(),
            weights=self.weights[row, :steps, :positions].copy(),
            top_ids=self.top_ids[row, :steps].copy(),
            top_log_probabilities=self.top_log_probabilities[row, :steps].copy(),
            heads=None if self.heads is None else self.heads[row, :, :steps, :positions].copy(),
        )


def blank(outputs: int, steps: int, positions: int, candidates: int, heads: int = 0) -> Written:
    """Room for what a search will have written; with no heads, none for their weights."""
    return Written(
        ids=np.zeros((outputs, steps), np.int64),
        log_probabilities=np.zeros((outputs, steps), np.float32),
        weights=np.zeros((outputs, steps, positions), np.float32),
        top_ids=np.zeros((outputs, steps, candidates), np.int64),
        top_log_probabilities=np.zeros((outputs, steps, candidates), np.float32),
        heads=np.zeros((outputs, heads, steps, positions), np.float32) if heads else None,
    )


def outputs_of(searched: SearchResult, positions: Sequence[int]) -> list[Decoded]:
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

    def of(self, written: int, minimum: Int[np.ndarray, " b"], each: int) -> Bool[Tensor, "*shape V"]:
        """Those of `each` hypotheses of every source: one mask where sources agree, else a row a hypothesis."""
        early = written < minimum
        if early.all() or not early.any():
            return self.before_minimum if early.all() else self.after
        rows = torch.from_numpy(early.repeat(each)).to(self.after.device)
        return torch.where(rows[:, None], self.before_minimum, self.after)


def closed_symbols(vocabulary_size: int, device: torch.device | None = None) -> Closed:
    """The masks of a search."""
    after = torch.zeros(vocabulary_size, dtype=torch.bool, device=device)
    after[[PAD, BOS, UNK]] = True
    before_minimum = after.clone()
    before_minimum[EOS] = True
    return Closed(before_minimum, after)


def first_of(state: State) -> InitialState:
    """What a kernel begins with, of a decoder of one layer."""
    return InitialState(state.hidden[:, 0], None if state.cell is None else state.cell[:, 0], state.attention_state)


def rules_of(vocabulary_size: int, limits: Limits) -> SearchLimits:
    """What a kernel must know of a search."""
    closed = closed_symbols(vocabulary_size)
    return SearchLimits(closed.before_minimum.numpy(), closed.after.numpy(), *limits, candidates(vocabulary_size))


def symbol_log_probabilities(
    logits: Float[Tensor, "*shape V"], closed: Bool[Tensor, "*mask V"]
) -> Float[Tensor, "*shape V"]:
    """ln p over what can be written; closed symbols get zero probability."""
    return logits.masked_fill(closed, -torch.inf).log_softmax(dim=-1)


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


def likeliest(logits: Float[Tensor, "R V"], closed: Bool[Tensor, "*mask V"]) -> Likeliest:
    """The candidates, by a kernel where it can."""
    count = candidates(logits.shape[1])
    if use_kernel(_ranking(logits, Masks(closed))):
        from pellucid.kernels.topk import rank  # Numba takes a second to import

        return Likeliest(*rank(logits.numpy(), closed.numpy(), count))
    top = symbol_log_probabilities(logits, closed).topk(count)
    return Likeliest(array(top.indices), array(top.values))


class Masks(NamedTuple):
    """What cannot be written: `closed` symbols have no probability, `blocked` ones keep theirs and are not chosen."""

    closed: Bool[Tensor, "*mask V"]
    blocked: Bool[np.ndarray, "b k V"] | None = None


def _ranking(logits: Float[Tensor, "R V"], masks: Masks) -> Request:
    """Return the request for the best symbols of a step."""
    facts = (("masks.closed_rows", masks.closed.ndim > 1), *parts_given("masks", masks))
    return request_of("ranking", logits, facts)


def extend(logits: Float[Tensor, "R V"], masks: Masks, scores: Float[np.ndarray, "b k"], width: int) -> Extended:
    """The best `width` extensions of each source's hypotheses, by a kernel where it can."""
    vocabulary = logits.shape[1]
    width = min(width, scores.shape[1] * vocabulary)
    if use_kernel(_ranking(logits, masks)):
        from pellucid.kernels.topk import extend as extend_compiled  # Numba takes a second to import

        counts = (candidates(vocabulary), width)
        ids, values, numbers, *rest = extend_compiled(logits.numpy(), masks.closed.numpy(), scores, counts)
        return Extended(Likeliest(ids, values), numbers // vocabulary, numbers % vocabulary, *rest)
    return best_of(*summed(logits, masks, scores), width)


def summed(
    logits: Float[Tensor, "R V"], masks: Masks, scores: Float[np.ndarray, "b k"]
) -> tuple[Float[Tensor, "R V"], Float[Tensor, "b N"]]:
    """ln p of each symbol, and the scores of all extensions of a source's hypotheses, those of each in a row."""
    found = symbol_log_probabilities(logits, masks.closed)
    open_ = found if masks.blocked is None else found.masked_fill(flat_mask(masks.blocked, found.device), -torch.inf)
    return found, (torch.from_numpy(scores).to(found).flatten()[:, None] + open_).view(len(scores), -1)


def best_of(found: Float[Tensor, "R V"], sums: Float[Tensor, "b N"], width: int) -> Extended:
    """The extensions of the highest sums, with what their hypotheses could have written."""
    vocabulary = found.shape[1]
    best, top = sums.topk(width), found.topk(candidates(vocabulary))
    own, places = found.view(len(sums), -1).gather(1, best.indices), array(best.indices)
    candidates_of = Likeliest(array(top.indices), array(top.values))
    return Extended(candidates_of, places // vocabulary, places % vocabulary, array(own), array(best.values))


def flat_mask(mask: Bool[np.ndarray, "b k V"], device: torch.device) -> Bool[Tensor, "R V"]:
    """A mask of each source's hypotheses as one of all hypotheses."""
    return torch.from_numpy(mask.reshape(-1, mask.shape[2])).to(device)


class Recorded(NamedTuple):
    """One step that writes one symbol a row: the rows that ran, and what they wrote."""

    rows: Int[np.ndarray, " R"]
    ids: Int[np.ndarray, " R"]
    log_probabilities: Float[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top: Likeliest
    heads: Float[np.ndarray, "R M S"] | None = None


class Recorder:
    """The steps of all rows, side by side, in arrays that grow.

    Each step is copied at once. Arrays that are kept one a step would lie between what the steps compute and free, and
    long outputs of long sources would take several times the memory of what is recorded.
    """

    def __init__(self, rows: int, steps: int = FIRST_STEPS) -> None:
        """Nothing is recorded yet; `steps` is how many there are probably."""
        self.rows = rows
        self.steps = 0
        self.room = steps
        self.arrays: Written | None = None

    def add(self, record: Recorded) -> None:
        """Copy what one step wrote."""
        if self.arrays is None:
            self.arrays = self._blank(record, self.room)
        elif self.steps == self.room:
            self.room *= 2
            self.arrays = _copied(self.arrays, self._blank(record, self.room))
        written, at = self.arrays, (record.rows, self.steps)
        if written.heads is not None:
            written.heads[record.rows, :, self.steps] = record.heads
        written.ids[at], written.log_probabilities[at] = record.ids, record.log_probabilities
        written.weights[at] = record.weights
        written.top_ids[at], written.top_log_probabilities[at] = record.top
        self.steps += 1

    def output(self, row: int, steps: int, positions: int) -> Decoded:
        """Return one output as `Written.output` does."""
        assert self.arrays is not None, "a search takes one step at least"
        return self.arrays.output(row, steps, positions)

    def _blank(self, record: Recorded, steps: int) -> Written:
        """Return room for so many steps like this one."""
        heads = 0 if record.heads is None else record.heads.shape[1]
        return blank(self.rows, steps, record.weights.shape[1], record.top.ids.shape[1], heads)


def _copied(old: Written, new: Written) -> Written:
    """Return the new arrays, whose first steps are those of the old ones."""
    steps = old.ids.shape[1]
    for name in Written._fields:
        before, after = getattr(old, name), getattr(new, name)
        if name == "heads" and before is not None:
            after[:, :, :steps] = before
        elif before is not None:
            after[:, :steps] = before
    return new


def array(tensor: Tensor) -> np.ndarray:
    """A tensor of any device as an array; half precision as float32."""
    result: np.ndarray = (tensor.float() if tensor.is_floating_point() else tensor).cpu().numpy()
    return result


def array_or_none(tensor: Tensor | None) -> np.ndarray | None:
    """The same of what may not be there."""
    return None if tensor is None else array(tensor)


def candidates(vocabulary_size: int) -> int:
    """How many candidates a step keeps: no more than there are symbols to write."""
    return min(CANDIDATES, vocabulary_size - 3)
