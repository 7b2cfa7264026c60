"""Lower bound of the time of a step: its operations divided by the measured rates of the machine.

B rows, N source positions of all rows, T target steps, E embedding, H hidden units, h hidden units of an encoder
direction, D memory, A attention size, G gates, V source symbols, W target symbols, K beam size.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

import msgspec
import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pellucid.config.settings import Precision
from pellucid.kernels.kernel_loader import load_kernels

FLOAT_BYTES = 4
"""Bytes of a float32 number."""
ADAM_TRAFFIC = 7
"""Numbers read or written to update one parameter: the gradient is read; the parameter and two moments are read and
written."""


class StepShape(msgspec.Struct, frozen=True):
    """Sizes of network and batch that determine the work of a step: one update, or the decoding of one batch."""

    rows: int
    """B, pairs of the batch."""
    positions: float
    """N, source positions of all rows without padding; a mean over batches."""
    steps: float
    """T, target symbols of a row, including EOS where it is written; a mean over rows."""
    embedding: int
    """E, size of an embedding."""
    hidden: int
    """H, hidden units of the decoder."""
    direction: int
    """h, hidden units of one of the two encoder directions."""
    units: int
    """A, attention units."""
    gates: int
    """G, gates of the cell: 3 for a GRU, 4 for an LSTM."""
    source_symbols: int
    """V, ids of the source vocabulary."""
    target_symbols: int
    """W, ids of the target vocabulary."""
    parameters: int
    """Number of parameters."""
    beam: int = 1
    """K, beam size; 1 for greedy search."""
    states: int = 1
    """State tensors of the cell: 1 for a GRU (hidden state), 2 for an LSTM (hidden state and cell state)."""

    @property
    def memory(self) -> int:
        """D, the size of an encoder state: both directions."""
        return 2 * self.direction

    @property
    def activations(self) -> int:
        """Number of tanh and σ evaluations per hidden unit of a cell: one per gate, and one for a new cell state."""
        return self.gates + self.states - 1


class StepWork(NamedTuple):
    """Number of operations and of bytes of one step."""

    multiply_adds: float
    """Multiply-adds of matrix products, without those of attention."""
    activations: float
    """Evaluations of tanh and σ in the cells and for the initial decoder state."""
    energies: float
    """Evaluations of tanh in additive attention."""
    exponentials: float
    """Evaluations of exp in the softmax of attention and of the output layer."""
    attention_multiply_adds: float
    """Multiply-adds of vᵀ tanh(…) and Σ α h, one query per product."""
    attention_bytes: float
    """Bytes of keys and memory, read at every step."""
    update_bytes: float
    """Bytes of parameters, gradients and moments."""

    @property
    def operations(self) -> float:
        """Number of multiplications, additions and function evaluations; a multiply-add counts as two."""
        product_operations = 2 * (self.multiply_adds + self.attention_multiply_adds)
        return product_operations + self.activations + self.energies + self.exponentials


def training_work(shape: StepShape) -> StepWork:
    """Return the work of one training update: forward pass, backward pass and Adam's update of the parameters.

    Each product of the forward pass has two in the backward pass, one per factor. Energies are computed twice; the
    backward pass of vᵀ tanh(…) has two products per unit, for v and for the argument. Keys and memory are read in both
    passes; the gradient of the keys is read and written in the second, that of the memory is one product after all
    steps.

    Args:
        shape: Sizes of the step.
    """
    attention_rows, decoder_rows = shape.steps * shape.positions, shape.rows * shape.steps
    return StepWork(
        multiply_adds=3 * (_encoder_products(shape) + decoder_rows * _step_products(shape)),
        activations=_encoder_activations(shape) + decoder_rows * shape.hidden * shape.activations,
        energies=2 * attention_rows * shape.units,
        exponentials=attention_rows + decoder_rows * shape.target_symbols,
        attention_multiply_adds=3 * attention_rows * (shape.units + shape.memory),
        attention_bytes=FLOAT_BYTES * attention_rows * (2 * (shape.units + shape.memory) + 2 * shape.units),
        update_bytes=FLOAT_BYTES * ADAM_TRAFFIC * shape.parameters,
    )


def search_work(shape: StepShape) -> StepWork:
    """Return the work of decoding one batch, greedily (K = 1) or with beam search.

    The first step has one hypothesis per row, later steps have K. Hypotheses of a row share keys and memory, which are
    read once per step.

    Args:
        shape: Sizes of the step.
    """
    hypotheses = 1 + shape.beam * (shape.steps - 1)
    attention_rows, decoder_rows = hypotheses * shape.positions, hypotheses * shape.rows
    return StepWork(
        multiply_adds=_encoder_products(shape) + decoder_rows * _step_products(shape),
        activations=_encoder_activations(shape) + decoder_rows * shape.hidden * shape.activations,
        energies=attention_rows * shape.units,
        exponentials=attention_rows + decoder_rows * shape.target_symbols,
        attention_multiply_adds=attention_rows * (shape.units + shape.memory),
        attention_bytes=FLOAT_BYTES * shape.steps * shape.positions * (shape.units + shape.memory),
        update_bytes=0.0,
    )


def _encoder_products(shape: StepShape) -> float:
    """Return the multiply-adds per source: projected embeddings, both directions, initial decoder state, keys.

    Embeddings are projected as a table, V E G h, since there are fewer symbols than positions. The first position of a
    row has no previous state, hence N − B.
    """
    cell = shape.gates * shape.direction
    directions = 2 * cell * (shape.source_symbols * shape.embedding + (shape.positions - shape.rows) * shape.direction)
    initial_state = shape.rows * shape.memory * shape.states * shape.hidden
    embedding_table = shape.target_symbols * shape.embedding * shape.gates * shape.hidden
    return directions + initial_state + embedding_table + shape.positions * shape.memory * shape.units


def _step_products(shape: StepShape) -> int:
    """Return the multiply-adds of a step of one row: query A H, gates G H (H + D), logits W (H + D)."""
    input_size = shape.hidden + shape.memory
    return shape.units * shape.hidden + shape.gates * shape.hidden * input_size + shape.target_symbols * input_size


def _encoder_activations(shape: StepShape) -> float:
    """Return the tanh and σ evaluations of both directions and of the initial decoder state."""
    return shape.positions * 2 * shape.direction * shape.activations + shape.rows * shape.hidden


MILLI = 1e3


class MachineRates(msgspec.Struct, frozen=True):
    """Measured rates of one thread: operations and bytes per second, seconds per function evaluation."""

    operations: float
    """Multiplications and additions per second in matrix products of the measured precision."""
    activation_seconds: float
    """Seconds of a tanh, also used for a σ, which a tanh computes."""
    energy_seconds: float
    """Seconds of a tanh of a sum with known exponentials of its summands, as in attention."""
    exponential_seconds: float
    """Seconds of an exp."""
    row_bytes: float
    """Bytes per second of repeated reads of the keys and memory of one row."""
    update_bytes: float
    """Bytes per second of repeated reads of parameters, gradients and moments."""


class TimeFloor(msgspec.Struct, frozen=True):
    """Lower bound of the CPU time of one step in milliseconds, by kind of operation."""

    products_ms: float
    """Matrix products, without those of attention."""
    activations_ms: float
    """Tanh and σ of the cells."""
    attention_ms: float
    """Energies and weighted sums of attention: the greater of computing them and of reading keys and memory."""
    softmax_ms: float
    """Exponentials of attention weights and of the output layer."""
    update_ms: float
    """Memory traffic of Adam."""

    @property
    def total_ms(self) -> float:
        """Sum of all kinds, in milliseconds."""
        return self.products_ms + self.activations_ms + self.attention_ms + self.softmax_ms + self.update_ms


def compute_floor(work: StepWork, rates: MachineRates) -> TimeFloor:
    """Return the lower bound of the time of a step: its numbers of operations divided by the rates of the machine.

    Args:
        work: Operations and bytes of the step.
        rates: Rates of one thread of the machine.
    """
    compute_seconds = work.energies * rates.energy_seconds + 2 * work.attention_multiply_adds / rates.operations
    return TimeFloor(
        products_ms=MILLI * 2 * work.multiply_adds / rates.operations,
        activations_ms=MILLI * work.activations * rates.activation_seconds,
        attention_ms=MILLI * max(compute_seconds, work.attention_bytes / rates.row_bytes),
        softmax_ms=MILLI * work.exponentials * rates.exponential_seconds,
        update_ms=MILLI * work.update_bytes / rates.update_bytes,
    )


NUM_TRIES = 10
"""Number of timings of which the best counts."""
LARGE_PRODUCT = (512, 512, 512)
"""Sizes of a product at which libraries reach their best rate."""
NUM_VALUES = 4096
"""Number of arguments of function evaluations, which fit into the first-level cache."""


def measure_rates(shape: StepShape, seconds: float, precision: Precision = "float32") -> MachineRates:
    """Measure the rates of this machine on one thread, with matrices and arrays of the sizes of a step.

    Args:
        shape: Sizes of the step.
        seconds: Duration of the benchmark that the rates belong to; measuring them takes about a third of it.
        precision: Precision of the products; default float32.

    Returns:
        Rates, each of the fastest implementation at hand.
    """
    seconds_per_rate = seconds / 40
    row_size = FLOAT_BYTES * shape.positions / shape.rows * (shape.units + shape.memory)
    with _single_thread():
        return MachineRates(
            operations=max(_product_rate(sizes, seconds_per_rate, precision) for sizes in _products(shape)),
            activation_seconds=_function_seconds(torch.tanh, "sum_tanh", seconds_per_rate),
            energy_seconds=min(
                _compiled_seconds(name, seconds_per_rate) for name in ("sum_energies", "sum_paired_energies")
            ),
            exponential_seconds=_function_seconds(torch.exp, "sum_exponential", seconds_per_rate),
            row_bytes=_reading_rate(row_size, seconds_per_rate),
            update_bytes=_reading_rate(4.0 * FLOAT_BYTES * shape.parameters, seconds_per_rate),
        )


@contextmanager
def _single_thread() -> Iterator[None]:
    """Run products and functions in one thread within the context."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(limits=1):
            yield
    finally:
        torch.set_num_threads(threads)


def _products(shape: StepShape) -> list[tuple[int, int, int]]:
    """Return rows, inner size and columns of the products of a step, and of a large one."""
    encoder = (shape.rows, shape.direction, shape.gates * shape.direction)
    decoder = (shape.rows, shape.hidden, shape.gates * shape.hidden)
    return [encoder, decoder, (math.ceil(shape.positions), shape.memory, shape.units), LARGE_PRODUCT]


def _product_rate(sizes: tuple[int, int, int], seconds: float, precision: Precision) -> float:
    """Return the operations per second of a product, the fastest of PyTorch, NumPy and the kernels."""
    rows, inner, columns = sizes
    left, right, result = torch.rand(rows, inner), torch.rand(inner, columns), torch.empty(rows, columns)
    arrays = left.numpy(), right.numpy(), result.numpy()
    implementations: list[Callable[[], object]] = [lambda: torch.mm(left, right, out=result), lambda: np.dot(*arrays)]
    if load_kernels():
        from pellucid.kernels.arithmetic import gemm_nt  # Numba takes a second to import

        transposed = np.ascontiguousarray(arrays[1].T)
        implementations.append(lambda: gemm_nt(arrays[0], transposed, arrays[2], precision == "bf16"))
    return (
        2.0
        * rows
        * inner
        * columns
        / min(_best_seconds(implementation, seconds / len(implementations)) for implementation in implementations)
    )


def _function_seconds(function: Callable[..., object], compiled: str, seconds: float) -> float:
    """Return the seconds of a function evaluation, the faster of PyTorch and a compiled loop."""
    values, results = torch.linspace(-2, 2, NUM_VALUES), torch.empty(NUM_VALUES)
    pytorch_seconds = _best_seconds(lambda: function(values, out=results), seconds) / NUM_VALUES
    return min(pytorch_seconds, _compiled_seconds(compiled, seconds))


def _compiled_seconds(name: str, seconds: float) -> float:
    """Return the seconds of an evaluation in a compiled loop; without a compiler, of PyTorch's tanh."""
    values, num_passes = torch.linspace(0.5, 1.5, NUM_VALUES), 16
    if not load_kernels():
        results = torch.empty(NUM_VALUES)
        return _best_seconds(lambda: torch.tanh(values, out=results), seconds) / NUM_VALUES
    from pellucid.bench import loops  # Numba takes a second to import

    return _best_seconds(lambda: getattr(loops, name)(values.numpy(), num_passes), seconds) / NUM_VALUES / num_passes


def _reading_rate(size: float, seconds: float) -> float:
    """Return the bytes per second of repeated reads."""
    values = torch.ones(max(64, round(size / FLOAT_BYTES)))
    if not load_kernels():
        return values.numel() * FLOAT_BYTES / _best_seconds(values.sum, seconds)
    from pellucid.bench import loops

    num_passes = max(1, 2**16 // values.numel())
    best = _best_seconds(lambda: loops.sum_values(values.numpy(), num_passes), seconds)
    return values.numel() * FLOAT_BYTES * num_passes / best


def _best_seconds(function: Callable[[], object], seconds: float) -> float:
    """Return the CPU seconds of a call: the best of several tries."""
    function()
    started = time.process_time()
    function()
    calls = max(1, round(seconds / NUM_TRIES / max(time.process_time() - started, 1e-7)))
    return min(_mean_seconds(function, calls) for _ in range(NUM_TRIES))


def _mean_seconds(function: Callable[[], object], calls: int) -> float:
    """Return the mean CPU seconds of a call."""
    started = time.process_time()
    for _ in range(calls):
        function()
    return (time.process_time() - started) / calls
