"""Least time of a step: its operations, and how fast this processor does them."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pellucid.kernels.numba_backend import is_numba_available

FLOAT = 4
"""Bytes of a number."""
ADAM = 7
"""Numbers read or written to update one parameter: its gradient, itself and two moments, the last three both ways."""


class Shape(msgspec.Struct, frozen=True):
    """All sizes that the work of a step follows from."""

    rows: int
    positions: float
    """N, source positions of all rows, padding left out."""
    steps: float
    """T, symbols to write, the end's included where it is written."""
    embedding: int
    hidden: int
    direction: int
    """H of one direction of the encoder; there are two."""
    units: int
    gates: int
    """Q of the cell: 3 for a GRU, 4 for an LSTM."""
    source_symbols: int
    target_symbols: int
    parameters: int
    beam: int = 1
    states: int = 1
    """Vectors that a cell carries on: h, and c where it has a cell state."""

    @property
    def memory(self) -> int:
        """D."""
        return 2 * self.direction

    @property
    def bends(self) -> int:
        """Return the number of tanh and σ of one unit of a cell: one a gate, and that of a new cell state."""
        return self.gates + self.states - 1


class Work(NamedTuple):
    """What one step has to do."""

    multiply_adds: float
    """Of products of matrices."""
    bends: float
    """Tanh and σ of the cells."""
    energies: float
    """Tanh of additive attention."""
    exponentials: float
    """Of attention's softmax and that over symbols."""
    look_multiply_adds: float
    """Of vᵀ tanh(…) and Σ α h, one query a product."""
    look_bytes: float
    """Of keys and memory, which every step passes over."""
    update_bytes: float
    """Of parameters, gradients and moments."""

    @property
    def operations(self) -> float:
        """Multiplications, additions, and functions taken as one operation each."""
        products = 2 * (self.multiply_adds + self.look_multiply_adds)
        return products + self.bends + self.energies + self.exponentials


def training_work(shape: Shape) -> Work:
    """The work of one update: forward, backward, clip, step.

    Every product of a forward pass calls for two on the way back, one for either factor's gradient. An energy is
    computed twice; of vᵀ tanh(…) the way back has two products a unit, for v and for the argument. Keys and memory are
    read in both passes and the keys' gradient is read and written in the second, while the memory's is one product
    after all steps.
    """
    looks, taken = shape.steps * shape.positions, shape.rows * shape.steps
    return Work(
        multiply_adds=3 * (_encoder_products(shape) + taken * _step_products(shape)),
        bends=_encoder_bends(shape) + taken * shape.hidden * shape.bends,
        energies=2 * looks * shape.units,
        exponentials=looks + taken * shape.target_symbols,
        look_multiply_adds=3 * looks * (shape.units + shape.memory),
        look_bytes=FLOAT * looks * (2 * (shape.units + shape.memory) + 2 * shape.units),
        update_bytes=FLOAT * ADAM * shape.parameters,
    )


def search_work(shape: Shape) -> Work:
    """The work of decoding one batch, greedily (K = 1) or by beam search.

    The first step has one hypothesis a row, the others K. Hypotheses of a row look at the same keys and memory, which
    therefore have to be passed over once a step.
    """
    hypotheses = 1 + shape.beam * (shape.steps - 1)
    looks, taken = hypotheses * shape.positions, hypotheses * shape.rows
    return Work(
        multiply_adds=_encoder_products(shape) + taken * _step_products(shape),
        bends=_encoder_bends(shape) + taken * shape.hidden * shape.bends,
        energies=looks * shape.units,
        exponentials=looks + taken * shape.target_symbols,
        look_multiply_adds=looks * (shape.units + shape.memory),
        look_bytes=FLOAT * shape.steps * shape.positions * (shape.units + shape.memory),
        update_bytes=0.0,
    )


def _encoder_products(shape: Shape) -> float:
    """Multiply-adds once a source: both tables projected, both directions, the decoder's first state, the keys.

    Symbols are projected as a table, V E G h, because there are fewer of them than positions. The first position of a
    row has no state before it, hence N − B.
    """
    cell = shape.gates * shape.direction
    directions = 2 * cell * (shape.source_symbols * shape.embedding + (shape.positions - shape.rows) * shape.direction)
    start = shape.rows * shape.memory * shape.states * shape.hidden
    table = shape.target_symbols * shape.embedding * shape.gates * shape.hidden
    return directions + start + table + shape.positions * shape.memory * shape.units


def _step_products(shape: Shape) -> int:
    """Multiply-adds of one row's step: the query A H, the gates G H (H + D), the logits W (H + D)."""
    read = shape.hidden + shape.memory
    return shape.units * shape.hidden + shape.gates * shape.hidden * read + shape.target_symbols * read


def _encoder_bends(shape: Shape) -> float:
    """Tanh and σ of both directions, and the tanh of the decoder's first state."""
    return shape.positions * 2 * shape.direction * shape.bends + shape.rows * shape.hidden


MILLI = 1e3


class Rates(msgspec.Struct, frozen=True):
    """What one thread does in a second, or how long one of them takes."""

    operations: float
    """Multiplications and additions of float32 products, a second."""
    bend_seconds: float
    """Of one tanh, which a σ is made of."""
    energy_seconds: float
    """Of one tanh of a sum whose summands' exponentials are known, as attention has them."""
    exponential_seconds: float
    row_bytes: float
    """Read a second, again and again as many as one row's keys and memory have."""
    update_bytes: float
    """Read a second, again and again as many as parameters, gradients and moments have."""


class Floor(msgspec.Struct, frozen=True):
    """The parts of the floor of one step, in milliseconds."""

    products_ms: float
    bends_ms: float
    look_ms: float
    softmax_ms: float
    update_ms: float

    @property
    def total_ms(self) -> float:
        """All of it."""
        return self.products_ms + self.bends_ms + self.look_ms + self.softmax_ms + self.update_ms


def floor_of(work: Work, rates: Rates) -> Floor:
    """The floor of a step's work."""
    computing = work.energies * rates.energy_seconds + 2 * work.look_multiply_adds / rates.operations
    return Floor(
        products_ms=MILLI * 2 * work.multiply_adds / rates.operations,
        bends_ms=MILLI * work.bends * rates.bend_seconds,
        look_ms=MILLI * max(computing, work.look_bytes / rates.row_bytes),
        softmax_ms=MILLI * work.exponentials * rates.exponential_seconds,
        update_ms=MILLI * work.update_bytes / rates.update_bytes,
    )


TRIES = 10
LARGE = (512, 512, 512)
"""A product that is large enough for any library's best."""
VALUES = 4096
"""Numbers that functions are taken of: they stay in the nearest cache."""


def measure_rates(shape: Shape, seconds: float) -> Rates:
    """All rates that the floor of a shape needs, in about so many seconds together."""
    each = seconds / 40
    row = FLOAT * shape.positions / shape.rows * (shape.units + shape.memory)
    with _one_thread():
        return Rates(
            operations=max(_product_rate(sizes, each) for sizes in _products(shape)),
            bend_seconds=_function_seconds(torch.tanh, "tangent_over", each),
            energy_seconds=min(_compiled_seconds(name, each) for name in ("energies_over", "paired_energies_over")),
            exponential_seconds=_function_seconds(torch.exp, "exponential_over", each),
            row_bytes=_reading_rate(row, each),
            update_bytes=_reading_rate(4.0 * FLOAT * shape.parameters, each),
        )


@contextmanager
def _one_thread() -> Iterator[None]:
    """Within, products and functions run in one thread."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


def _products(shape: Shape) -> list[tuple[int, int, int]]:
    """Rows, inner size and columns of the products that a step is made of, and of a large one."""
    encoder = (shape.rows, shape.direction, shape.gates * shape.direction)
    decoder = (shape.rows, shape.hidden, shape.gates * shape.hidden)
    return [encoder, decoder, (math.ceil(shape.positions), shape.memory, shape.units), LARGE]


def _product_rate(sizes: tuple[int, int, int], seconds: float) -> float:
    """Operations a second of one product, by PyTorch's library or NumPy's."""
    rows, inner, columns = sizes
    left, right, result = torch.rand(rows, inner), torch.rand(inner, columns), torch.empty(rows, columns)
    arrays = left.numpy(), right.numpy(), result.numpy()
    ways: list[Callable[[], object]] = [lambda: torch.mm(left, right, out=result), lambda: np.dot(*arrays)]
    return 2.0 * rows * inner * columns / min(_best(way, seconds / 2) for way in ways)


def _function_seconds(function: Callable[..., object], compiled: str, seconds: float) -> float:
    """How long a function of one number takes: PyTorch's, or one that fills the vectors."""
    values, results = torch.linspace(-2, 2, VALUES), torch.empty(VALUES)
    ours = _best(lambda: function(values, out=results), seconds) / VALUES
    return min(ours, _compiled_seconds(compiled, seconds))


def _compiled_seconds(name: str, seconds: float) -> float:
    """How long one evaluation in a compiled loop takes; where nothing can be compiled, one of PyTorch's tanh."""
    values, times = torch.linspace(0.5, 1.5, VALUES), 16
    if not is_numba_available():
        results = torch.empty(VALUES)
        return _best(lambda: torch.tanh(values, out=results), seconds) / VALUES
    from pellucid.bench import loops  # Numba takes a second to import

    return _best(lambda: getattr(loops, name)(values.numpy(), times), seconds) / VALUES / times


def _reading_rate(size: float, seconds: float) -> float:
    """Bytes read a second when as many are read again and again."""
    values = torch.ones(max(64, round(size / FLOAT)))
    if not is_numba_available():
        return values.numel() * FLOAT / _best(values.sum, seconds)
    from pellucid.bench import loops

    times = max(1, 2**16 // values.numel())
    return values.numel() * FLOAT * times / _best(lambda: loops.sum_over(values.numpy(), times), seconds)


def _best(run: Callable[[], object], seconds: float) -> float:
    """Processor seconds of one run: the best of several tries that together take about so long."""
    run()
    began = time.process_time()
    run()
    rounds = max(1, round(seconds / TRIES / max(time.process_time() - began, 1e-7)))
    return min(_mean(run, rounds) for _ in range(TRIES))


def _mean(run: Callable[[], object], rounds: int) -> float:
    """Processor seconds of one of some runs."""
    began = time.process_time()
    for _ in range(rounds):
        run()
    return (time.process_time() - began) / rounds
