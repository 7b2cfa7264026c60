"""Rates of this machine, measured on one thread: products, elementary functions, reading of memory."""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pellucid.bench.roofline import FLOAT_BYTES, MachineRates, StepShape
from pellucid.config.settings import Precision
from pellucid.kernels.kernel_loader import load_kernels

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
