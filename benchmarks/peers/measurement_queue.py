"""Order of the measurements: one after the other, for each case all systems in turn, for every repeat."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import CASES, Case, Cell, Task
from benchmarks.peers.data import BenchmarkData
from benchmarks.peers.measure import BenchmarkStoppedError, MeasurementError
from benchmarks.peers.results import Record, Results
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.systems.system import Job
from benchmarks.peers.worker import START_UPDATES, MeasurementOptions, Worker

TASK_ORDER: tuple[Task, ...] = ("train", "start", "greedy", "beam")


class BenchmarkPlan(NamedTuple):
    """Selected measurements, their data and the output folder."""

    cases: Sequence[str]
    systems: Sequence[str]
    tasks: Sequence[Task]
    repeats: int
    out: Path
    data: BenchmarkData
    pythons: Mapping[str, Path | str]
    """Python interpreter of each system, or the reason why the system is not installed."""

    @property
    def ordered_tasks(self) -> list[Task]:
        """Return the tasks in order: a training also measures its start, and decoding requires a trained network."""
        return [task for task in TASK_ORDER if task in self.tasks and not (task == "start" and "train" in self.tasks)]


class MeasurementQueue:
    """Measurements of some cells, one command at a time."""

    def __init__(
        self, plan: BenchmarkPlan, cells: Sequence[Cell], options: MeasurementOptions, results: Results
    ) -> None:
        """Create the queue without running any command.

        Args:
            plan: Selected measurements.
            cells: Cells of this queue.
            options: Duration, time limit and core of the commands.
            results: Results, which receive the records.
        """
        self.plan = plan
        self.cells = cells
        self.options = options
        self.results = results
        self.workers: dict[Path, Worker] = {}

    def run(self, log: Callable[[str], None]) -> None:
        """Make all missing measurements until the benchmark is stopped.

        Args:
            log: Function that shows a message.
        """
        with contextlib.suppress(BenchmarkStoppedError):
            self.measure_all(log)

    def measure_all(self, log: Callable[[str], None]) -> None:
        """Run every command once without a measurement, then make the missing measurements.

        Args:
            log: Function that shows a message.
        """
        for cell in self.cells:
            missing = [record for record in self.planned_records(cell) if not self.results.is_measured(record.key)]
            for name in dict.fromkeys(record.system for record in missing):
                self.warm_up(cell, name, log)
            for record in missing:
                self.measure(record)
                self.results.add(record)
                log(format_record(record))

    def planned_records(self, cell: Cell) -> list[Record]:
        """Return empty records of all measurements of a cell in their order; the systems alternate.

        Args:
            cell: The cell.
        """
        plan = self.plan
        return [
            Record(case, cell, name, task, repeat)
            for case in plan.cases
            for repeat in range(plan.repeats)
            for task in plan.ordered_tasks
            for name in plan.systems
        ]

    def warm_up(self, cell: Cell, name: str, log: Callable[[str], None]) -> None:
        """Run every command of a system once, so that files are in memory and compiled kernels are cached.

        Args:
            cell: The cell.
            name: Name of the system.
            log: Function that shows an error.
        """
        try:
            worker = self.find_worker(CASES["tiny"], cell, name, "-warm-up")
            worker.train(START_UPDATES)
            for task in self.plan.ordered_tasks:
                if task in ("greedy", "beam"):
                    worker.decode(task, worker.system.short_file)
        except MeasurementError as error:
            log(f"warm-up of {cell} {name}: {error}")

    def measure(self, record: Record) -> None:
        """Make one measurement; a failure is recorded as its reason.

        Args:
            record: Empty record, which receives the numbers.
        """
        try:
            self.find_worker(CASES[record.case], record.cell, record.system).measure(record)
        except MeasurementError as error:
            record.reason, record.rate = str(error), None
        except (OSError, ValueError, IndexError) as error:  # an output file is missing or malformed
            record.reason = f"{type(error).__name__}: {error}"

    def find_worker(self, case: Case, cell: Cell, name: str, suffix: str = "") -> Worker:
        """Return the worker of a network of a system, which is created at the first call.

        Args:
            case: Sizes of the network.
            cell: The cell.
            name: Name of the system.
            suffix: Suffix of the folder.

        Raises:
            MeasurementError: The system is not installed.
        """
        python = self.plan.pythons[name]
        if isinstance(python, str):
            raise MeasurementError(python)
        folder = self.plan.out / "work" / f"{case.name}-{cell}{suffix}" / name
        job = Job(case, cell, self.plan.data, folder, python)
        return self.workers.setdefault(folder, Worker(job, SYSTEMS[name], self.options))


def format_record(record: Record) -> str:
    """Return the line of a measurement.

    Args:
        record: The measurement.
    """
    rate = f"{record.rate:,.1f} per CPU second" if record.rate else "no rate"
    start = f", first update after {record.start_wall:.1f} s" if record.start_wall else ""
    name = f"{record.case} {record.cell} {record.task} {SYSTEMS[record.system].title}"
    return f"{name}: {record.reason or rate + start}"
