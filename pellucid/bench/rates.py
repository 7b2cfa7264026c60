"""How fast one thread of this machine multiplies matrices, takes functions, and reads: measured, the best of many.

Each rate is the best of several ways to do the thing and of several tries, in seconds of the processor: what else the
machine does can only lower it, and a rate that is too low would make the floor too high.
"""

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import torch
from threadpoolctl import threadpool_limits

from pellucid.bench.floor import Rates
from pellucid.bench.work import FLOAT, Shape
from pellucid.kernels.numba_backend import is_numba_available

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
