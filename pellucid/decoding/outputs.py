"""Outputs of searches as arrays: ids, log-probabilities, attention weights and candidates; masks of symbols.

PyTorch is not needed to import this module. N outputs, S source positions, T steps, V vocabulary, C candidates kept for
inspection, R hypotheses, b sources, k hypotheses of each before a step, K after it, M attention heads, L attention
hops.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from pellucid.data.vocabulary import BOS, EOS, NUM_SPECIAL, PAD, UNK
from pellucid.errors import RunError
from pellucid.kernels.types import Array, KernelSearchOutput
from pellucid.shapes import Bool, Float, Int

CANDIDATES = 5
"""Number of candidates kept per step."""
INITIAL_CAPACITY = 32
"""Steps for which arrays are allocated before the length of the outputs is known."""
MIN_ACTIVE_FRACTION = 0.75
"""Finished sources are removed from the batch when the active ones are fewer than this fraction."""


class LengthLimits(NamedTuple):
    """Minimum and maximum output length, in symbols without EOS."""

    minimum: int
    maximum: int


class BatchLengthLimits(NamedTuple):
    """Minimum and maximum output length of each source of a batch, in symbols without EOS."""

    minimum: Int[np.ndarray, " B"]
    maximum: Int[np.ndarray, " B"]

    def of_source(self, row: int) -> LengthLimits:
        """Return the limits of one source.

        Args:
            row: Row of the source in the batch.
        """
        return LengthLimits(int(self.minimum[row]), int(self.maximum[row]))


def batch_length_limits(limits: LengthLimits, num_sources: int) -> BatchLengthLimits:
    """Return the same limits for every source.

    Args:
        limits: Minimum and maximum output length.
        num_sources: Number of sources in the batch.
    """
    return BatchLengthLimits(np.full(num_sources, limits.minimum), np.full(num_sources, limits.maximum))


class DecodedOutput(NamedTuple):
    """One decoded output in ids, including EOS if it was reached."""

    ids: Int[np.ndarray, " T"]
    log_probabilities: Float[np.ndarray, " T"]
    """Log-probability of each symbol."""
    weights: Float[np.ndarray, "T S"]
    """Attention weights of each step."""
    top_ids: Int[np.ndarray, "T C"]
    """Most probable symbols of each step, the most probable first."""
    top_log_probabilities: Float[np.ndarray, "T C"]
    """Their log-probabilities."""
    heads: Float[np.ndarray, "M T S"] | None = None
    """Attention weights of each of M heads; None for one head, and for ensembles."""
    hop_weights: Float[np.ndarray, "L S"] | None = None
    """Attention weights of each hop of a classifier with several; the last are `weights`."""

    @property
    def is_finished(self) -> bool:
        """True if the output ends with EOS; otherwise it is empty, truncated at the maximum length, or has labels."""
        return bool(len(self.ids)) and int(self.ids[-1]) == EOS


def empty_output() -> DecodedOutput:
    """Return the output of an empty source, for which no decoder runs: no steps, and no source positions."""
    return DecodedOutput(
        ids=np.zeros(0, dtype=np.int64),
        log_probabilities=np.zeros(0, dtype=np.float32),
        weights=np.zeros((0, 0), dtype=np.float32),
        top_ids=np.zeros((0, 0), dtype=np.int64),
        top_log_probabilities=np.zeros((0, 0), dtype=np.float32),
    )


class BatchOutputs(NamedTuple):
    """Outputs of a batch, padded; fields as in `DecodedOutput`. Entries beyond an output's length are undefined."""

    ids: Int[np.ndarray, "N T"]
    log_probabilities: Float[np.ndarray, "N T"]
    weights: Float[np.ndarray, "N T S"]
    top_ids: Int[np.ndarray, "N T C"]
    top_log_probabilities: Float[np.ndarray, "N T C"]
    heads: Float[np.ndarray, "N M T S"] | None = None

    def output(self, row: int, steps: int, positions: int) -> DecodedOutput:
        """Return a copy of one output, cut to its steps and source positions.

        Args:
            row: Row of the output.
            steps: Number of its steps, including EOS.
            positions: Number of its source positions.
        """
        return DecodedOutput(
            ids=self.ids[row, :steps].copy(),
            log_probabilities=self.log_probabilities[row, :steps].copy(),
            weights=self.weights[row, :steps, :positions].copy(),
            top_ids=self.top_ids[row, :steps].copy(),
            top_log_probabilities=self.top_log_probabilities[row, :steps].copy(),
            heads=None if self.heads is None else self.heads[row, :, :steps, :positions].copy(),
        )


def empty_outputs(outputs: int, steps: int, positions: int, candidates: int, heads: int = 0) -> BatchOutputs:
    """Return arrays of zeros for the outputs of a search.

    Args:
        outputs: Number of outputs.
        steps: Maximum number of steps.
        positions: Maximum number of source positions.
        candidates: Number of candidates per step.
        heads: Number of attention heads; 0 for none.
    """
    return BatchOutputs(
        ids=np.zeros((outputs, steps), np.int64),
        log_probabilities=np.zeros((outputs, steps), np.float32),
        weights=np.zeros((outputs, steps, positions), np.float32),
        top_ids=np.zeros((outputs, steps, candidates), np.int64),
        top_log_probabilities=np.zeros((outputs, steps, candidates), np.float32),
        heads=np.zeros((outputs, heads, steps, positions), np.float32) if heads else None,
    )


def split_outputs(result: KernelSearchOutput, positions: Sequence[int]) -> list[DecodedOutput]:
    """Return the outputs of a kernel's search, cut to the given numbers of source positions.

    Args:
        result: Padded outputs.
        positions: Number of source positions of each output.
    """
    outputs = BatchOutputs(
        ids=result.ids,
        log_probabilities=result.log_probabilities,
        weights=result.weights,
        top_ids=result.top_ids,
        top_log_probabilities=result.top_log_probabilities,
    )
    sizes = zip(result.steps.tolist(), positions, strict=True)
    return [outputs.output(row, num_steps, length) for row, (num_steps, length) in enumerate(sizes)]


def suppressed_mask(vocabulary_size: int) -> Bool[np.ndarray, " V"]:
    """Return the mask of the symbols that are never written: PAD, BOS and UNK.

    Args:
        vocabulary_size: V, the number of target ids.
    """
    suppressed = np.zeros(vocabulary_size, np.bool_)
    suppressed[[PAD, BOS, UNK]] = True
    return suppressed


def mixed_copying_error() -> RunError:
    """Return the error of an ensemble of which only some members copy from the source, so that their symbols differ."""
    return RunError(
        "some members of the ensemble copy from the source (decoder.pointer_generator), others do not: give models of "
        "one kind"
    )


class TopSymbols(NamedTuple):
    """Candidates of each hypothesis, the most probable first."""

    ids: Int[np.ndarray, "R C"]
    log_probabilities: Float[np.ndarray, "R C"]


class BeamExtensions(NamedTuple):
    """Best extensions of each source's hypotheses, the most probable first, and the candidates of each hypothesis."""

    top: TopSymbols
    """Candidates of each hypothesis, whether they are among the extensions or not."""
    parents: Int[np.ndarray, "b K"]
    """Hypothesis, 0 to k − 1, that each extension continues."""
    ids: Int[np.ndarray, "b K"]
    """Symbol of each extension."""
    log_probabilities: Float[np.ndarray, "b K"]
    """Log-probability of that symbol."""
    cumulative_log_probs: Float[np.ndarray, "b K"]
    """Log-probability of the extended hypothesis; −∞ if a mask excludes the symbol."""


def choose_symbols(top: TopSymbols, is_early: bool) -> tuple[Int[np.ndarray, " R"], Float[np.ndarray, " R"]]:
    """Return the most probable symbol of each hypothesis and its log-probability.

    Args:
        top: Candidates of each hypothesis.
        is_early: True before the minimum length: the second candidate replaces EOS, unless EOS is the only one.
    """
    rows = np.arange(len(top.ids))
    columns = ((top.ids[:, 0] == EOS) & (is_early and top.ids.shape[1] > 1)).astype(np.int64)
    return top.ids[rows, columns], top.log_probabilities[rows, columns]


class SymbolMasks(NamedTuple):
    """Masks of a step: `suppressed` symbols have probability zero; `blocked` ones keep theirs but are not chosen."""

    suppressed: Bool[Array, " V"]
    """Symbols that are never written, at any step."""
    blocked: Bool[np.ndarray, "b k V"] | None = None
    """Symbols that cannot follow each hypothesis now; None if all can."""
    is_early: bool = False
    """True before the minimum length of all sources: EOS keeps its probability but is not chosen."""


def with_early_end(
    blocked: Bool[np.ndarray, "b k V"] | None, early: Bool[np.ndarray, " b"], shape: tuple[int, int]
) -> Bool[np.ndarray, "b k V"] | None:
    """Return a mask of blocked symbols that also blocks EOS for the sources before their minimum length.

    Args:
        blocked: Symbols that constraints exclude; None if there is none.
        early: Sources before their minimum length.
        shape: k, the number of hypotheses of each source, and V, the number of target ids.

    Returns:
        A new mask; `blocked` itself if no source is before its minimum length.
    """
    if not early.any():
        return blocked
    mask = np.zeros((len(early), *shape), np.bool_) if blocked is None else blocked.copy()
    mask[early, :, EOS] = True
    return mask


class StepRecord(NamedTuple):
    """One step of a search that writes one symbol per row; other fields as in `DecodedOutput`, one row per output."""

    rows: Int[np.ndarray, " R"]
    """Rows of the outputs that took the step."""
    ids: Int[np.ndarray, " R"]
    log_probabilities: Float[np.ndarray, " R"]
    weights: Float[np.ndarray, "R S"]
    top: TopSymbols
    heads: Float[np.ndarray, "R M S"] | None = None


class Recorder:
    """Steps of a search, copied into padded arrays that grow.

    Each step is copied at once. Separate arrays per step would fragment the memory that the steps allocate and free,
    and long outputs of long sources would need several times the memory.
    """

    def __init__(self, rows: int, capacity: int = INITIAL_CAPACITY) -> None:
        """Record no step yet.

        Args:
            rows: Number of outputs.
            capacity: Number of steps to allocate at first; the arrays grow when they are full.
        """
        self.rows = rows
        self.steps = 0
        self.capacity = capacity
        self.arrays: BatchOutputs | None = None

    def add(self, record: StepRecord) -> None:
        """Copy the outputs of one step; rows that are not active keep undefined entries for it.

        Args:
            record: Active rows and their outputs.
        """
        if self.arrays is None:
            self.arrays = self._blank(record, self.capacity)
        elif self.steps == self.capacity:
            self.capacity *= 2
            self.arrays = _copy_steps(self.arrays, self._blank(record, self.capacity))
        arrays = self.arrays
        index = (record.rows, self.steps)
        if arrays.heads is not None:
            arrays.heads[record.rows, :, self.steps] = record.heads
        arrays.ids[index], arrays.log_probabilities[index] = record.ids, record.log_probabilities
        arrays.weights[index] = record.weights
        arrays.top_ids[index], arrays.top_log_probabilities[index] = record.top
        self.steps += 1

    def output(self, row: int, steps: int, positions: int) -> DecodedOutput:
        """Return one output, as `BatchOutputs.output` does.

        Args:
            row: Row of the output.
            steps: Number of its steps, including EOS.
            positions: Number of its source positions.
        """
        assert self.arrays is not None, "a search takes one step at least"
        return self.arrays.output(row, steps, positions)

    def _blank(self, record: StepRecord, steps: int) -> BatchOutputs:
        """Allocate arrays for a number of steps like this one."""
        heads = 0 if record.heads is None else record.heads.shape[1]
        return empty_outputs(self.rows, steps, record.weights.shape[1], record.top.ids.shape[1], heads)


def _copy_steps(old: BatchOutputs, new: BatchOutputs) -> BatchOutputs:
    """Copy the steps of the old arrays to the new ones, and return these."""
    steps = old.ids.shape[1]
    for name in BatchOutputs._fields:
        before, after = getattr(old, name), getattr(new, name)
        if name == "heads" and before is not None:
            after[:, :, :steps] = before
        elif before is not None:
            after[:, :steps] = before
    return new


def num_candidates(vocabulary_size: int) -> int:
    """Return the number of candidates kept per step: `CANDIDATES`, or the number of writable symbols if smaller.

    Args:
        vocabulary_size: V, the number of target ids.
    """
    # No output contains PAD, BOS or UNK (`suppressed_mask`).
    return min(CANDIDATES, vocabulary_size - (NUM_SPECIAL - 1))
