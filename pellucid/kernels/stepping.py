"""One step of a search for all hypotheses: attend from the state before, then step; nothing is kept for a way back.

B sources, b of them that still run, R hypotheses (a multiple of b), S source positions, A units of the keys, D memory,
H hidden, V vocabulary, C as many as R for an LSTM and 0 for a GRU.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from pellucid.kernels.aligned_memory import contiguous
from pellucid.kernels.arithmetic import Flat
from pellucid.kernels.attention import Laid, Location, double_exponents, laid_out, weigh
from pellucid.kernels.cells import gru_forward, lstm_forward, planes_of
from pellucid.kernels.compiling import compiled
from pellucid.kernels.decoding import location_of, weights_of
from pellucid.kernels.gemm import add_product, product
from pellucid.kernels.location import weigh_located
from pellucid.kernels.parallel import end_to_end, for_each, parts_of, slices
from pellucid.kernels.types import NOTHING, Head, Looked, Parameters, Taken
from pellucid.kernels.unrolling import Weights, add_sums


class Sources(NamedTuple):
    """What is looked at. The memory stands as it comes, for the contexts of a source's hypotheses are one product."""

    keys: Laid
    """e^{2k} for the additive score, else k; the positions innermost."""
    memory: Float[np.ndarray, "B S D"]
    lengths: Int[np.ndarray, " B"]
    energy: Flat
    rows: Int[np.ndarray, " b"]
    """Which of the sources run; a search drops the finished ones by their numbers alone."""
    location: Location
    """The weights in it are those of the step before, of all hypotheses."""


class Output(NamedTuple):
    """W_h and W_c of the head, transposed; a part that is not read has no columns."""

    state: Float[np.ndarray, "H N"]
    context: Float[np.ndarray, "D M"]
    bias: Flat


class Ready(NamedTuple):
    """Weights and sources as the kernel reads them, laid out once for all steps, and the step itself."""

    weights: Weights
    output: Output
    sources: Sources

    def take(self, rows: Int[np.ndarray, " r"]) -> "Ready":
        """The chosen of the running sources, in their order; nothing but their numbers is copied."""
        return self._replace(sources=self.sources._replace(rows=self.sources.rows[rows]))

    def step(
        self,
        symbols: Int[np.ndarray, " R"],
        hidden: Float[np.ndarray, "R H"],
        cell: Float[np.ndarray, "R H"] | None,
        looked: Float[np.ndarray, "R S"] | None = None,
    ) -> Taken:
        """One step of all hypotheses, those of a source one after the other; by location, given the weights before."""
        before = contiguous(hidden)
        cells = before[:0] if cell is None else contiguous(cell)
        task = partial(_part, self._after(looked), symbols, before, cells)
        running = len(self.sources.rows)
        parts = for_each(task, slices(running, min(running, parts_of(len(before)))))
        return Taken(*(end_to_end(arrays) for arrays in zip(*parts, strict=True)))

    def _after(self, looked: Float[np.ndarray, "R S"] | None) -> "Ready":
        """The same, where the step before looked with these weights."""
        assert looked is not None or not len(self.sources.location.filters), "by location needs the weights before"
        if looked is None:
            return self
        location = self.sources.location._replace(looked=contiguous(looked))
        return self._replace(sources=self.sources._replace(location=location))


def prepare(parameters: Parameters, head: Head, looked: Looked) -> Ready:
    """Lay out what every step reads."""
    keys, memory, lengths = (contiguous(array) for array in looked)
    state, context, energy = contiguous(head.state.T), contiguous(head.context.T), parameters.energy
    location = location_of(parameters.location, parameters.filters, NOTHING)
    laid = laid_out(keys, lengths, len(energy) > 0 and not len(location.filters))
    sources = Sources(laid, memory, lengths, energy, np.arange(len(keys)), location)
    return Ready(weights_of(parameters), Output(state, context, head.bias), sources)


def _part(
    ready: Ready,
    symbols: Int[np.ndarray, " R"],
    hidden: Float[np.ndarray, "R H"],
    cell: Float[np.ndarray, "C H"],
    part: slice,
) -> tuple[np.ndarray, ...]:
    """One part's step."""
    sources, each = ready.sources, len(hidden) // len(ready.sources.rows)
    rows = slice(part.start * each, part.stop * each)
    location = sources.location._replace(looked=sources.location.looked[rows])
    sources = sources._replace(rows=sources.rows[part], location=location)
    return step(ready.weights, ready.output, sources, symbols[rows], hidden[rows], cell[rows])


@compiled
def step(
    weights: Weights,
    output: Output,
    sources: Sources,
    symbols: Int[np.ndarray, " R"],
    before: Float[np.ndarray, "R H"],
    cell: Float[np.ndarray, "C H"],
) -> tuple[
    Float[np.ndarray, "R H"],
    Float[np.ndarray, "C H"],
    Float[np.ndarray, "R D"],
    Float[np.ndarray, "R S"],
    Float[np.ndarray, "R V"],
]:
    """h', c', contexts, weights and logits from h and c."""
    rows, lstm = before.shape[0], weights.recurrent.shape[0] == 4
    after, cell_after = np.empty(before.shape, np.float32), np.empty(cell.shape, np.float32)
    contexts = np.empty((rows, sources.memory.shape[2]), np.float32)
    looks = np.zeros((rows, sources.memory.shape[1]), np.float32)
    if sources.energy.shape[0] > 0:
        queries = np.empty((rows, sources.energy.shape[0]), np.float32)
        product(before, weights.query_across, queries)
        if sources.location.filters.shape[0] == 0:
            double_exponents(queries.ravel())
        look(sources, queries, looks, contexts)
    else:
        look(sources, before, looks, contexts)
    planes = np.empty((planes_of(lstm), before.size), np.float32)
    add_sums(weights, symbols, contexts, before, planes, 0)
    if lstm:
        lstm_forward(planes, 0, cell.ravel(), cell_after.ravel(), after.ravel())
    else:
        gru_forward(planes, 0, before.ravel(), after.ravel())
    return after, cell_after, contexts, looks, logits_of(output, after, contexts)


@compiled
def look(
    sources: Sources,
    queries: Float[np.ndarray, "R A"],
    looks: Float[np.ndarray, "R S"],
    contexts: Float[np.ndarray, "R D"],
) -> None:
    """α of every hypothesis into `looks`, zero before, and Σ α h into `contexts`."""
    each = queries.shape[0] // sources.rows.shape[0]
    for place in range(sources.rows.shape[0]):
        row, first = sources.rows[place], place * each
        length = sources.lengths[row]
        for query in range(first, first + each):
            if sources.location.filters.shape[0] > 0:
                before, own = sources.location.looked[query, :length], looks[query, :length]
                weigh_located(sources.keys[row], queries[query], sources.energy, sources.location, before, own)
            else:
                weigh(sources.keys[row], queries[query], sources.energy, looks[query, :length])
        if each == 1:
            _mean(sources.memory[row], looks[first, :length], contexts[first])
        else:
            own = looks[first : first + each, :length]
            product(own, sources.memory[row, :length], contexts[first : first + each])


@compiled
def _mean(memory: Float[np.ndarray, "S D"], weights: Flat, context: Flat) -> None:
    """Σ α h of one hypothesis, four positions at once: where units are few, in half the time of a product."""
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


@compiled
def logits_of(
    output: Output, hidden: Float[np.ndarray, "R H"], contexts: Float[np.ndarray, "R D"]
) -> Float[np.ndarray, "R V"]:
    """W_h h + W_c c + b."""
    logits = np.empty((hidden.shape[0], output.bias.shape[0]), np.float32)
    for row in range(hidden.shape[0]):
        logits[row] = output.bias
    if output.state.shape[1] > 0:
        add_product(hidden, output.state, logits)
    if output.context.shape[1] > 0:
        add_product(contexts, output.context, logits)
    return logits


def warm_up() -> None:
    """Compile everything here by running the smallest example."""
    empty, square, one = np.zeros((3, 1), np.float32), np.zeros((1, 1), np.float32), np.ones(1, np.int64)
    parameters = Parameters(np.zeros((2, 3), np.float32), square[0], empty, empty, square, square[0])
    head, looked = Head(square, square, square[0]), Looked(square[None], square[None], one)
    prepare(parameters, head, looked).step(one, square, None)
