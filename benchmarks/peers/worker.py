"""Measurements of one network of one system: training, greedy decoding and beam search."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import BEAM_SIZE, DECODING_BATCH_SIZE, NUM_DIGITS, Task
from benchmarks.peers.measure import CommandResult, MeasurementError, block_rates, median_rate, run_command
from benchmarks.peers.results import Record
from benchmarks.peers.systems.system import Job, System

MAX_TRIES = 3
"""Maximum number of attempts; each is longer than the last one."""
MIN_FRACTION_SECONDS = 0.6
"""Minimum duration of an attempt, as a fraction of the requested CPU seconds."""
MAX_GROWTH = 16.0
"""Maximum factor by which an attempt is longer than the last one."""
MIN_FRACTION_SYMBOLS = 0.75
"""Minimum length of the outputs, as a fraction of the requested symbols."""
START_UPDATES = 2
"""Updates of a training that measures the start."""


class MeasurementOptions(NamedTuple):
    """Duration, time limit and core of every command."""

    seconds: float
    """Approximate CPU seconds of the steady state of a measurement."""
    limit: float
    """Maximum duration of one command in seconds."""
    core: int | None
    """Core to which the commands are pinned; None for any."""


class Worker:
    """Worker that runs the commands of one network of one system."""

    def __init__(self, job: Job, system: System, options: MeasurementOptions) -> None:
        """Create the worker without running any command.

        Args:
            job: The network.
            system: The system.
            options: Duration, time limit and core of the commands.
        """
        self.job = job
        self.system = system
        self.options = options
        self.trained_file = job.folder / "trained"
        """File with the number of updates of the trained network, if there is one."""

    def measure(self, record: Record) -> None:
        """Make a measurement.

        Args:
            record: Empty record, which receives the numbers.

        Raises:
            MeasurementError: The measurement fails.
        """
        match record.task:
            case "start":
                self._record_training(record, self.train(START_UPDATES))
            case "train":
                self._measure_training(record)
            case "greedy" | "beam":
                self._measure_decoding(record)

    def train(self, updates: int) -> CommandResult:
        """Train a new network.

        Args:
            updates: Number of updates.

        Returns:
            Time, memory and updates of the training.

        Raises:
            MeasurementError: The training fails, or the clock has not seen every update.
        """
        folder = self.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.trained_file.unlink(missing_ok=True)
        prepared_file = folder / "prepared"
        if not prepared_file.exists():
            for command in self.system.prepare_commands(self.job):
                run_command(command, folder / "prepare.log", self.options.limit, self.options.core)
            prepared_file.touch()
        command = self.system.train_command(self.job, updates)
        result = run_command(command, folder / "train.log", self.options.limit, self.options.core)
        if len(result.updates) != updates:
            raise MeasurementError(f"{len(result.updates)} of {updates} updates were seen")
        self.trained_file.write_text(str(updates), "utf-8")
        return result

    def decode(self, task: Task, count: int) -> CommandResult:
        """Decode a file with the trained network.

        Args:
            task: "greedy" or "beam".
            count: Number of sources.

        Returns:
            Time and memory of decoding.

        Raises:
            MeasurementError: Decoding fails, or the number of outputs differs from that of the sources.
        """
        output = self._output(task)
        output.unlink(missing_ok=True)
        command = self.system.decode_command(self.job, count, BEAM_SIZE if task == "beam" else 1, output)
        result = run_command(command, self.job.folder / f"{task}.log", self.options.limit, self.options.core)
        num_outputs = len(self.system.read_outputs(output)) if output.exists() else 0
        if num_outputs != count:
            raise MeasurementError(f"{num_outputs} outputs for {count} sources")
        return result

    def _measure_training(self, record: Record) -> None:
        """Measure rate, start and memory of a training; repeat it with more updates if it is too short."""
        case, requested = self.job.case, self.options.seconds
        updates = (
            requested * case.typical_rates["train"] * self.system.relative_speed.get("train", 1.0) / case.batch_size
        )
        for _ in range(MAX_TRIES):
            result = self.train(round_to_blocks(updates, case.updates_per_block))
            seconds = result.updates[-1].cpu - result.updates[case.updates_per_block - 1].cpu
            if seconds > MIN_FRACTION_SECONDS * requested:
                break
            updates = len(result.updates) * growth_factor(requested, seconds)
        record.rate = median_rate(block_rates(result.updates, case.updates_per_block, case.batch_size))
        self._record_training(record, result)

    def _record_training(self, record: Record, result: CommandResult) -> None:
        """Record start, memory and raw values of a training."""
        case, first = self.job.case, result.updates[0]
        record.start_wall, record.start_cpu = first.wall - result.started, first.cpu
        record.peak_mib = result.peak_mib
        record.raw = {
            "updates": len(result.updates),
            "reported_updates": self.system.parse_updates(result.log),
            "reported_parameters": self.system.parse_parameters(result.log),
            "samples_per_update": case.batch_size,
            "updates_per_block": case.updates_per_block,
            "block_rates": [
                round(rate, 2) for rate in block_rates(result.updates, case.updates_per_block, case.batch_size)
            ],
            "update_times": [[round(wall - result.started, 4), round(cpu, 4)] for wall, cpu in result.updates],
            **_process_totals([result]),
        }

    def _measure_decoding(self, record: Record) -> None:
        """Measure sentences per CPU second from the difference between a long and a short file.

        The short file is decoded before and after the long one, and the mean of both counts: the times of two starts
        differ by more than the time of a batch.
        """
        short = self.system.short_file
        task, requested, case = record.task, self.options.seconds, self.job.case
        if not self.trained_file.exists():
            self.train(round_to_blocks(0, case.updates_per_block))
        count = round_to_batches(requested * case.typical_rates[task] * self.system.relative_speed.get(task, 1.0))
        before = self.decode(task, short)
        for _ in range(MAX_TRIES):
            long, num_sentences = self.decode(task, short + count), count
            if long.cpu - before.cpu > MIN_FRACTION_SECONDS * requested:
                break
            count = round_to_batches(count * growth_factor(requested, long.cpu - before.cpu))
        outputs = self.system.read_outputs(self._output(task))
        after = self.decode(task, short)
        seconds = long.cpu - (before.cpu + after.cpu) / 2
        if seconds <= 0:
            raise MeasurementError(f"{num_sentences} additional sentences took no additional CPU time")
        record.rate, record.peak_mib = num_sentences / seconds, long.peak_mib
        record.raw = {
            "sentences": [short, short + num_sentences, short],
            "model_updates": int(self.trained_file.read_text("utf-8")),
            "symbols_per_output": round(sum(map(len, outputs)) / len(outputs), 3),
            "first_outputs": outputs[:3],
            **_process_totals([before, long, after]),
        }
        if not MIN_FRACTION_SYMBOLS * NUM_DIGITS <= record.raw["symbols_per_output"] <= NUM_DIGITS:
            raise MeasurementError(f"outputs of {record.raw['symbols_per_output']:g} symbols instead of {NUM_DIGITS}")

    def _output(self, task: Task) -> Path:
        """Return the file of the outputs of a task."""
        return self.job.folder / f"{task}.txt"


def round_to_blocks(updates: float, block: int) -> int:
    """Return a number of updates in complete blocks: the warm-up block and at least two more.

    Args:
        updates: Number of updates after the first block.
        block: Updates of a block.
    """
    return block * (1 + max(2, math.ceil(updates / block)))


def round_to_batches(sentences: float) -> int:
    """Return a number of sentences in complete batches, at least one batch.

    Args:
        sentences: Number of sentences.
    """
    return DECODING_BATCH_SIZE * max(1, math.ceil(sentences / DECODING_BATCH_SIZE))


def growth_factor(requested: float, seconds: float) -> float:
    """Return the factor by which the next attempt must be longer.

    Args:
        requested: Requested CPU seconds.
        seconds: CPU seconds of the last attempt.
    """
    return min(MAX_GROWTH, requested / max(seconds, 0.01))


def _process_totals(results: Sequence[CommandResult]) -> dict[str, object]:
    """Return the total times of processes, and the load of the machine after them."""
    return {
        "process_cpu_seconds": [round(result.cpu, 3) for result in results],
        "process_wall_seconds": [round(result.wall, 3) for result in results],
        "load": round(os.getloadavg()[0], 2),
    }
