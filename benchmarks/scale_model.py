"""Training and prediction on many machines: formulas with measured constants, and a simulation that checks them.

    python benchmarks/scale_model.py [--updates 300] [--seed 1]

Nothing is measured here: the constants below are derived from measurements by `benchmarks/data_parallel.py` and of
`pellucid predict`, and some are assumed (docs/scale.md). Three tables in Markdown are printed.

Training: W machines of one process each. An update of B pairs takes t(W) = c + d ⌈B / W⌉ + s(W), the sum of n bytes of
gradients in a ring s(W) = 2 (W − 1) (λ + n / (W β)) + m, with latency λ and bandwidth β of a link, and the time m of
the copies in memory. The simulation passes each part of the ring from machine to machine. The times of the gradients
vary from machine to machine and from update to update, and the slowest machine delays its neighbors.

Prediction: N lines in blocks of L on W processes. Each loads the model once, a seconds, and takes b + L / r seconds per
block, with r lines per second: T = a + ⌈N / (L W)⌉ (b + L / r). The simulation gives each block to the first free
process. Blocks vary, and processes die at random, so that a block is computed again.
"""

import argparse
import heapq
import math
import sys
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np


class TrainingConstants(NamedTuple):
    """Measured times of an update of one process, in milliseconds."""

    name: str
    parameters: int
    fixed: float
    """c: part that does not depend on the number of pairs."""
    per_pair: float
    """d."""
    copies: float
    """m: copies of the gradients in memory, without any transfer."""


class Link(NamedTuple):
    """Network between machines."""

    name: str
    bytes_per_ms: float
    """β."""
    latency_ms: float
    """λ."""


class PredictionConstants(NamedTuple):
    """Measured times of a prediction, in seconds."""

    name: str
    lines_per_second: float
    """r, of one process with one thread."""
    load_seconds: float
    """a."""
    block_seconds: float
    """b."""


NETWORKS = (
    TrainingConstants("base", 920_000, 11.0, 0.55, 0.6),
    TrainingConstants("large", 2_700_000, 22.6, 1.5, 1.7),
)
LINKS = (Link("1 Gb/s", 125_000.0, 0.5), Link("25 Gb/s", 630_000.0, 0.5))
"""The second link is limited by gloo, which sends 630,000 bytes per ms (5 Gb/s) between two processes of one machine:
10.8 MB of gradients are summed in 18.4 ms, that is half of them in 9.2 ms, of which 0.6 are latency.
"""
PREDICTIONS = (PredictionConstants("small", 539.0, 5.0, 0.05), PredictionConstants("base", 352.0, 5.0, 0.05))
MAX_SIMULATED_BLOCKS = 200_000
MACHINES = (1, 8, 64)
VARIATION = 0.1
"""Standard deviation of the logarithm of the time of a part, in the simulation: lengths of a batch, other programs."""
BLOCK_LINES = 1024
"""Lines of a block of `pellucid predict --on ray`."""
DEATHS_PER_HOUR = 0.01
"""Deaths of a process per hour, in the simulation: one in four days."""
BYTES = 4
"""Bytes of a gradient."""


def sum_milliseconds(network: TrainingConstants, link: Link, machines: int) -> float:
    """Return s(W), the time of the sum of the gradients of all machines in a ring, in milliseconds.

    Args:
        network: Network that is trained.
        link: Network between the machines.
        machines: W.
    """
    if machines == 1:
        return 0.0
    part = BYTES * network.parameters / machines
    return 2 * (machines - 1) * (link.latency_ms + part / link.bytes_per_ms) + network.copies


def update_milliseconds(network: TrainingConstants, link: Link, machines: int, batch_size: int) -> float:
    """Return t(W), the time of an update, in milliseconds.

    Args:
        network: Network that is trained.
        link: Network between the machines.
        machines: W.
        batch_size: B, the number of pairs of all machines together.
    """
    local_batch_size = math.ceil(batch_size / machines)
    return network.fixed + network.per_pair * local_batch_size + sum_milliseconds(network, link, machines)


def simulate_update(
    network: TrainingConstants, link: Link, machines: int, batch_size: int, generator: np.random.Generator
) -> float:
    """Return the simulated time of an update, in milliseconds, until the slowest machine has all sums.

    Args:
        network: Network that is trained.
        link: Network between the machines.
        machines: W.
        batch_size: B.
        generator: Source of the variation.
    """
    local_batch_size = math.ceil(batch_size / machines)
    mean = network.fixed + network.per_pair * local_batch_size
    ready = mean * generator.lognormal(-(VARIATION**2) / 2, VARIATION, machines)
    if machines == 1:
        return float(ready[0])
    transfer = link.latency_ms + BYTES * network.parameters / machines / link.bytes_per_ms
    for _ in range(2 * (machines - 1)):
        # A machine sends its part when it has the part of its predecessor and has sent its last one.
        ready = np.maximum(ready, np.roll(ready, 1)) + transfer
    return float(ready.max()) + network.copies


def prediction_seconds(prediction: PredictionConstants, lines: int, processes: int) -> float:
    """Return the time of a prediction, in seconds.

    Args:
        prediction: Measured times.
        lines: N.
        processes: W.
    """
    block = prediction.block_seconds + BLOCK_LINES / prediction.lines_per_second
    return prediction.load_seconds + math.ceil(lines / (BLOCK_LINES * processes)) * block


def simulate_prediction(
    prediction: PredictionConstants, lines: int, processes: int, generator: np.random.Generator
) -> float:
    """Return the simulated time of a prediction, in seconds, until the last block is complete.

    Args:
        prediction: Measured times.
        lines: N.
        processes: W.
        generator: Source of the variation and of the deaths.
    """
    mean = prediction.block_seconds + BLOCK_LINES / prediction.lines_per_second
    free_times = [prediction.load_seconds] * processes
    heapq.heapify(free_times)
    blocks, end = math.ceil(lines / BLOCK_LINES), 0.0
    while blocks:
        start = heapq.heappop(free_times)
        seconds = mean * float(generator.lognormal(-(VARIATION**2) / 2, VARIATION))
        death = float(generator.exponential(3600 / DEATHS_PER_HOUR))
        if death < seconds:  # the block is computed again; the process that takes its place loads the model
            heapq.heappush(free_times, start + death + prediction.load_seconds)
            continue
        blocks -= 1
        end = max(end, start + seconds)
        heapq.heappush(free_times, start + seconds)
    return end


def training_rows(batch_size: int, per_machine: bool, updates: int, seed: int) -> Iterator[list[str]]:
    """Yield the rows of a table of trainings.

    Args:
        batch_size: Number of pairs, of all machines together or of each.
        per_machine: Whether each machine has as many.
        updates: Number of simulated updates.
        seed: Seed of the simulation.
    """
    for network in NETWORKS:
        for link in LINKS:
            one_machine_ms = update_milliseconds(network, link, 1, batch_size)
            row = [network.name, link.name]
            for machines in MACHINES:
                size = batch_size * machines if per_machine else batch_size
                time = update_milliseconds(network, link, machines, size)
                generator = np.random.default_rng(seed)
                simulated = np.mean([simulate_update(network, link, machines, size, generator) for _ in range(updates)])
                speedup = one_machine_ms / time * (machines if per_machine else 1)
                row += [f"{time:.1f}", f"{simulated:.1f}", f"{speedup:.1f}"]
            yield row


def prediction_rows(seed: int) -> Iterator[list[str]]:
    """Yield the rows of the table of predictions.

    Args:
        seed: Seed of the simulation.
    """
    for prediction in PREDICTIONS:
        for lines, processes in ((10**8, 16), (10**8, 1024), (10**10, 1024)):
            seconds = prediction_seconds(prediction, lines, processes)
            simulated = ""
            if lines // BLOCK_LINES < MAX_SIMULATED_BLOCKS:
                generator = np.random.default_rng(seed)
                simulated = f"{simulate_prediction(prediction, lines, processes, generator) / 3600:.2f}"
            yield [
                *(prediction.name, f"{lines:,}", f"{processes:,}"),
                *(f"{seconds / 3600:.2f}", simulated, f"{seconds * processes / 3600:,.0f}"),
            ]


def format_table(header: Sequence[str], rows: Iterator[list[str]]) -> str:
    """Return a table in Markdown.

    Args:
        header: Titles of the columns.
        rows: Cells of each row.
    """
    lines = [list(header), ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: Sequence[str]) -> None:
    """Print the tables.

    Args:
        arguments: Command-line arguments.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=300, help="number of simulated updates")
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    columns = [f"{title}, {machines}" for machines in MACHINES for title in ("ms", "simulated", "speed")]
    for per_machine, batch_size in ((False, 64), (True, 64)):
        rows = training_rows(batch_size, per_machine, options.updates, options.seed)
        sys.stdout.write(format_table(["network", "link", *columns], rows) + "\n")
    header = ["network", "lines", "processes", "hours", "simulated", "core-hours"]
    sys.stdout.write(format_table(header, prediction_rows(options.seed)))


if __name__ == "__main__":
    main(sys.argv[1:])
