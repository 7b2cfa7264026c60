"""One step of a search for all hypotheses: attend from the state before, then step; nothing is kept for a way back.

B sources, b of them that still run, R hypotheses (a multiple of b), S source positions, A units of the keys, D memory,
H hidden, C as many as R for an LSTM and 0 for a GRU.
"""

from functools import partial
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from pellucid.kernels.attention import Source, double_exponents, laid_out, look
from pellucid.kernels.cells import gru_forward, lstm_forward, planes_of
from pellucid.kernels.compiling import compiled
from pellucid.kernels.decoding import weights_of
from pellucid.kernels.operands import Looked, Parameters, Taken
from pellucid.kernels.parallel import end_to_end, for_each, parts_of
from pellucid.kernels.products import product
from pellucid.kernels.unrolling import Weights, add_sums


class Ready(NamedTuple):
    """Weights and sources as the kernel reads them: a `Prepared`."""

    weights: Weights
    source: Source

    def take(self, rows: Int[Tensor, " r"]) -> "Ready":
        """The chosen of the running sources, in their order; nothing but their numbers is copied."""
        return self._replace(source=self.source._replace(rows=self.source.rows[rows.numpy()]))

    def running(self) -> Int[Tensor, " b"]:
        """The numbers of the running sources."""
        return torch.from_numpy(self.source.rows)

    def step(
        self, symbols: Int[Tensor, " R"], hidden: Float[Tensor, "R H"], cell: Float[Tensor, "R H"] | None
    ) -> Taken:
        """One step of all hypotheses, those of a source one after the other."""
        before = hidden.contiguous().numpy()
        cells = before[:0] if cell is None else cell.contiguous().numpy()
        task = partial(_part, self, symbols.numpy(), before, cells)
        parts = for_each(task, _slices(len(self.source.rows), len(before)))
        return Taken(*(end_to_end(arrays) for arrays in zip(*parts, strict=True)))


def prepare(parameters: Parameters, looked: Looked) -> Ready:
    """Lay out what every step reads."""
    keys, memory, lengths = (tensor.detach().contiguous().numpy() for tensor in looked)
    energy = parameters.energy.detach().numpy()
    source = Source(
        laid_out(keys, lengths, len(energy) > 0),
        laid_out(memory, lengths, False),
        lengths,
        energy,
        np.arange(len(keys)),
    )
    return Ready(weights_of(parameters), source)


def _slices(sources: int, hypotheses: int) -> list[slice]:
    """The running sources in as many parts as there are threads, if there are hypotheses enough."""
    count = min(sources, parts_of(hypotheses))
    return [slice(start, end) for start, end in pairwise(sources * part // count for part in range(count + 1))]


def _part(
    prepared: Ready,
    symbols: Int[np.ndarray, " R"],
    hidden: Float[np.ndarray, "R H"],
    cell: Float[np.ndarray, "C H"],
    sources: slice,
) -> tuple[np.ndarray, ...]:
    """One part's step."""
    source, each = prepared.source, len(hidden) // len(prepared.source.rows)
    rows = slice(sources.start * each, sources.stop * each)
    return step(prepared.weights, symbols[rows], source._replace(rows=source.rows[sources]), hidden[rows], cell[rows])


@compiled
def step(
    weights: Weights,
    symbols: Int[np.ndarray, " R"],
    source: Source,
    before: Float[np.ndarray, "R H"],
    cell: Float[np.ndarray, "C H"],
) -> tuple[Float[np.ndarray, "R H"], Float[np.ndarray, "C H"], Float[np.ndarray, "R D"], Float[np.ndarray, "R S"]]:
    """h', c', contexts and weights from h and c."""
    rows, lstm = before.shape[0], weights.recurrent.shape[0] == 4
    after, cell_after = np.empty(before.shape, np.float32), np.empty(cell.shape, np.float32)
    contexts = np.empty((rows, source.memory.shape[1]), np.float32)
    looks = np.zeros((rows, 1, source.memory.shape[2]), np.float32)
    planes = np.empty((planes_of(lstm), before.size), np.float32)
    if source.energy.shape[0] > 0:
        queries = np.empty((rows, source.energy.shape[0]), np.float32)
        product(before, weights.query_across, queries)
        double_exponents(queries.ravel())
        look(source, queries, 0, looks, contexts)
    else:
        look(source, before, 0, looks, contexts)
    add_sums(weights, symbols, contexts, before, planes, 0)
    if lstm:
        lstm_forward(planes, 0, cell.ravel(), cell_after.ravel(), after.ravel())
    else:
        gru_forward(planes, 0, before.ravel(), after.ravel())
    return after, cell_after, contexts, looks[:, 0]


def rehearse() -> None:
    """Compile everything here by running the smallest example."""
    empty, square, one = torch.zeros(3, 1), torch.zeros(1, 1), torch.ones(1, dtype=torch.int64)
    parameters = Parameters(torch.zeros(2, 3), torch.zeros(1), empty, empty, square, torch.zeros(1))
    ready = prepare(parameters, Looked(torch.zeros(1, 1, 1), torch.zeros(1, 1, 1), one))
    ready.step(one, square, None)
