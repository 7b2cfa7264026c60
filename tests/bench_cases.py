"""Small requests and results for the tests of the benchmark."""

from pellucid.bench.cases import BenchCase, BenchRequest, BenchTask
from pellucid.bench.results import BenchResult
from pellucid.bench.roofline import MachineRates, StepShape, TimeFloor
from pellucid.config.settings import Cell

GRU_SHAPE = StepShape(
    rows=2,
    positions=6.0,
    steps=3.0,
    embedding=1,
    hidden=2,
    direction=1,
    units=1,
    gates=3,
    source_symbols=4,
    target_symbols=5,
    parameters=10,
)
"""A step whose operations are easy to count by hand."""
MACHINE_RATES = MachineRates(2e9, 1e-6, 1e-6, 1e-6, 1e6, 1e6)


def make_small_request(task: BenchTask = "train", cell: Cell = "gru", seconds: float = 0.05) -> BenchRequest:
    """Return a request for a small network on short numbers."""
    return BenchRequest(task, "tiny", BenchCase(6, 4, 5, 4), cell, digits=3, repeats=2, seconds=seconds)


def make_fake_result(
    operations: float, milliseconds: float, peak_mib: float, shape: StepShape = GRU_SHAPE
) -> BenchResult:
    """Return a result with this number of operations, time and memory, without a measurement."""
    return BenchResult(
        task="train",
        case="tiny",
        cell="gru",
        threads=1,
        plain=False,
        precision="float32",
        samples_per_cpu_second=1.0,
        samples_per_second=1.0,
        tokens_per_second=1.0,
        peak_mib=peak_mib,
        floor_ratio=2.0,
        floor_ms=milliseconds / 2,
        step_ms=milliseconds,
        step_cpu_ms=milliseconds,
        fastest_cpu_ms=milliseconds,
        slowest_cpu_ms=milliseconds,
        steps=5,
        first_call_seconds=1.0,
        first_call="loaded",
        start_seconds=2.0,
        start_cpu_seconds=2.0,
        operations=operations,
        floor=TimeFloor(1.0, 0.0, 0.0, 0.0, 0.0),
        rates=MACHINE_RATES,
        shape=shape,
    )
