"""One step of a search for all hypotheses: attend from the state before, then step; nothing is kept for gradients.

B sources, b of them that still run, R hypotheses (a multiple of b), S source positions, A units of the keys, D memory,
H hidden, V vocabulary, C as many as R where the cell has a cell state, else 0.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.aligned_memory import contiguous
from pellucid.kernels.arithmetic import Flat
from pellucid.kernels.attention import (
    KeyMatrix,
    Scorer,
    attention_weights,
    location_buffers,
    prepare_keys,
    project_queries,
    scorer_of,
)
from pellucid.kernels.cells import cell_forward
from pellucid.kernels.gemm import gemm, gemm_add
from pellucid.kernels.jit import njit
from pellucid.kernels.parallel import concat_rows, for_each, parts_of, slices
from pellucid.kernels.types import (
    DOT_PRODUCT,
    GRU,
    LOCATION_SENSITIVE,
    NO_ROWS,
    AttentionInputs,
    DecoderWeights,
    Head,
    InitialState,
    RawStepOutput,
)
from pellucid.kernels.unroll import StepWeights, add_sums, step_weights


class Sources(NamedTuple):
    """Keys and memory of a search. The memory keeps its order: contexts of one source are one product."""

    scorer: Scorer
    keys: KeyMatrix
    """Keys as `prepare_keys` returns them."""
    memory: Float[np.ndarray, "B S D"]
    lengths: Int[np.ndarray, " B"]
    rows: Int[np.ndarray, " b"]
    """Numbers of the sources that run; a search drops the finished ones by their numbers alone."""


class SearchState(NamedTuple):
    """The state before a step, as arrays."""

    hidden: Float[np.ndarray, "R H"]
    cell: Float[np.ndarray, "C H"]
    attention_state: Float[np.ndarray, "L S"]
    """The weights of the step before; without rows where no score reads them."""

    def part(self, rows: slice) -> "SearchState":
        """Return the state of some rows."""
        return SearchState(self.hidden[rows], self.cell[rows], self.attention_state[rows])


class OutputWeights(NamedTuple):
    """W_h and W_c of the head, transposed; a part that is not read has no columns."""

    state: Float[np.ndarray, "H N"]
    context: Float[np.ndarray, "D M"]
    bias: Flat


class PreparedDecoder(NamedTuple):
    """Weights and sources as the kernel reads them, laid out once for all steps, and the step itself."""

    weights: StepWeights
    output: OutputWeights
    sources: Sources

    def index_select(self, rows: Int[np.ndarray, " r"]) -> "PreparedDecoder":
        """Return the decoder with the chosen of the running sources; only their numbers are copied."""
        return self._replace(sources=self.sources._replace(rows=self.sources.rows[rows]))

    def step(
        self,
        symbols: Int[np.ndarray, " R"],
        hidden: Float[np.ndarray, "R H"],
        cell: Float[np.ndarray, "R H"] | None,
        attention_state: Float[np.ndarray, "R S"] | None = None,
    ) -> RawStepOutput:
        """Take one step of all hypotheses, those of a source one after the other.

        The location-sensitive score reads the weights of the step before, `attention_state`.
        """
        given = self.sources.scorer.score != LOCATION_SENSITIVE or attention_state is not None
        assert given, "a location-sensitive score needs the weights before"
        state = search_state(InitialState(hidden, cell, attention_state))
        task = partial(_step_part, self, contiguous(symbols), state)
        running = len(self.sources.rows)
        parts = for_each(task, slices(running, min(running, parts_of(len(hidden)))))
        return RawStepOutput(*(concat_rows(arrays) for arrays in zip(*parts, strict=True)))


def prepare(parameters: DecoderWeights, head: Head, inputs: AttentionInputs) -> PreparedDecoder:
    """Lay out the arrays that every step reads."""
    _, memory, lengths = (contiguous(array) for array in inputs)
    state, context = contiguous(head.state.T), contiguous(head.context.T)
    keys = prepare_keys(inputs.keys, lengths, parameters.score)
    sources = Sources(scorer_of(parameters), keys, memory, lengths, np.arange(len(keys)))
    return PreparedDecoder(step_weights(parameters), OutputWeights(state, context, head.bias), sources)


def search_state(first: InitialState) -> SearchState:
    """Return a state as contiguous arrays."""
    hidden, weights = contiguous(first.hidden), first.attention_state
    cell = hidden[:0] if first.cell is None else contiguous(first.cell)
    return SearchState(hidden, cell, NO_ROWS if weights is None else contiguous(weights))


def _step_part(
    decoder: PreparedDecoder, symbols: Int[np.ndarray, " R"], state: SearchState, part: slice
) -> tuple[np.ndarray, ...]:
    """Take one part's step."""
    sources, each = decoder.sources, len(state.hidden) // len(decoder.sources.rows)
    rows = slice(part.start * each, part.stop * each)
    own = sources._replace(rows=sources.rows[part])
    return step(decoder.weights, decoder.output, own, symbols[rows], state.part(rows))


@njit
def step(
    weights: StepWeights,
    output: OutputWeights,
    sources: Sources,
    symbols: Int[np.ndarray, " R"],
    state: SearchState,
) -> tuple[
    Float[np.ndarray, "R H"],
    Float[np.ndarray, "C H"],
    Float[np.ndarray, "R D"],
    Float[np.ndarray, "R S"],
    Float[np.ndarray, "R V"],
]:
    """Return h', c', contexts, weights and logits from h and c."""
    (before, cell, attention_state), scorer = state, sources.scorer
    rows = before.shape[0]
    after, cell_after = np.empty(before.shape, np.float32), np.empty(cell.shape, np.float32)
    contexts = np.empty((rows, sources.memory.shape[2]), np.float32)
    looks = np.zeros((rows, sources.memory.shape[1]), np.float32)
    if scorer.score != DOT_PRODUCT:
        queries = np.empty((rows, scorer.energy.shape[0]), np.float32)
        project_queries(scorer, before, queries)
        attend(sources, queries, attention_state, looks, contexts)
    else:
        attend(sources, before, attention_state, looks, contexts)
    buffers = np.empty((weights.layout.buffers, before.size), np.float32)
    add_sums(weights, symbols, contexts, before, buffers, 0)
    cell_forward(weights.layout, buffers, 0, (before.ravel(), cell.ravel()), (after.ravel(), cell_after.ravel()))
    return after, cell_after, contexts, looks, logits_of(output, after, contexts)


@njit
def attend(
    sources: Sources,
    queries: Float[np.ndarray, "R A"],
    attention_state: Float[np.ndarray, "L S"],
    looks: Float[np.ndarray, "R S"],
    contexts: Float[np.ndarray, "R D"],
) -> None:
    """Compute α of every hypothesis into `looks`, zero before, and Σ α h into `contexts`."""
    each, scorer = queries.shape[0] // sources.rows.shape[0], sources.scorer
    buffers = location_buffers(scorer, sources.memory.shape[1])
    for place in range(sources.rows.shape[0]):
        row, first = sources.rows[place], place * each
        length = sources.lengths[row]
        for query in range(first, first + each):
            own = looks[query, :length]
            before = attention_state[query, :length] if scorer.score == LOCATION_SENSITIVE else own
            attention_weights(scorer, sources.keys[row], queries[query], before, buffers, own)
        if each == 1:
            _mean(sources.memory[row], looks[first, :length], contexts[first])
        else:
            own_rows = looks[first : first + each, :length]
            gemm(own_rows, sources.memory[row, :length], contexts[first : first + each])


@njit
def _mean(memory: Float[np.ndarray, "S D"], weights: Flat, context: Flat) -> None:
    """Compute Σ α h of one hypothesis, four positions at once: where units are few, in half the time of a product."""
    context[:] = 0
    fours = weights.shape[0] // 4 * 4
    for at in range(0, fours, 4):
        first, second, third, fourth = memory[at], memory[at + 1], memory[at + 2], memory[at + 3]
        a, b, c, d = weights[at], weights[at + 1], weights[at + 2], weights[at + 3]
        for unit in range(context.shape[0]):
            context[unit] += a * first[unit] + b * second[unit] + c * third[unit] + d * fourth[unit]
    for at in range(fours, weights.shape[0]):
        state, share = memory[at], weights[at]
        for unit in range(context.shape[0]):
            context[unit] += share * state[unit]


@njit
def logits_of(
    output: OutputWeights, hidden: Float[np.ndarray, "R H"], contexts: Float[np.ndarray, "R D"]
) -> Float[np.ndarray, "R V"]:
    """Return W_h h + W_c c + b."""
    logits = np.empty((hidden.shape[0], output.bias.shape[0]), np.float32)
    for row in range(hidden.shape[0]):
        logits[row] = output.bias
    if output.state.shape[1] > 0:
        gemm_add(hidden, output.state, logits)
    if output.context.shape[1] > 0:
        gemm_add(contexts, output.context, logits)
    return logits


def warm_up() -> None:
    """Compile everything here by running the smallest example."""
    empty, square, one = np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32), np.ones(1, np.int64)
    parameters = DecoderWeights(GRU, 0, np.zeros((2, 3), np.float32), square[0], empty, empty)
    head, inputs = Head(square, square, square[0]), AttentionInputs(square[None], square[None], one)
    prepare(parameters, head, inputs).step(one, square, None)
