"""One after the other: for each case every system in turn, then around again."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import CASES, Case, Cell, Task
from benchmarks.peers.data import Data
from benchmarks.peers.measure import FailedError, StoppedError
from benchmarks.peers.results import Record, Results
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.systems.system import Job
from benchmarks.peers.worker import START_UPDATES, Terms, Worker

ORDER: tuple[Task, ...] = ("train", "start", "greedy", "beam")


class Plan(NamedTuple):
    """What is measured, and where."""

    cases: Sequence[str]
    systems: Sequence[str]
    tasks: Sequence[Task]
    repeats: int
    out: Path
    data: Data
    pythons: Mapping[str, Path | str]
    """The interpreter of each system, or the reason why there is none."""

    @property
    def ordered(self) -> list[Task]:
        """The tasks in turn: every training tells its start as well, and decoding needs a network."""
        return [task for task in ORDER if task in self.tasks and not (task == "start" and "train" in self.tasks)]


class Lane:
    """The measurements of some cells, one command at a time."""

    def __init__(self, plan: Plan, cells: Sequence[Cell], terms: Terms, results: Results) -> None:
        """Nothing has run yet."""
        self.plan = plan
        self.cells = cells
        self.terms = terms
        self.results = results
        self.workers: dict[Path, Worker] = {}

    def run(self, say: Callable[[str], None]) -> None:
        """Measure everything that was not measured before, until told to stop."""
        with contextlib.suppress(StoppedError):
            self.measure_all(say)

    def measure_all(self, say: Callable[[str], None]) -> None:
        """Warm up, then one measurement after the other."""
        for cell in self.cells:
            due = [record for record in self.records(cell) if not self.results.has(record.key)]
            for name in dict.fromkeys(record.system for record in due):
                self.warm(cell, name, say)
            for record in due:
                self.measure(record)
                self.results.add(record)
                say(told(record))

    def records(self, cell: Cell) -> list[Record]:
        """All measurements of a cell, still empty, in their order: the systems take turns."""
        plan = self.plan
        return [
            Record(case, cell, name, task, repeat)
            for case in plan.cases
            for repeat in range(plan.repeats)
            for task in plan.ordered
            for name in plan.systems
        ]

    def warm(self, cell: Cell, name: str, say: Callable[[str], None]) -> None:
        """Run every command once, unmeasured: files get into memory, kernels get compiled and cached."""
        try:
            worker = self.worker(CASES["tiny"], cell, name, "-warm")
            worker.train(START_UPDATES)
            for task in self.plan.ordered:
                if task in ("greedy", "beam"):
                    worker.decode(task, worker.system.short_file)
        except FailedError as error:
            say(f"warming up {cell} {name}: {error}")

    def measure(self, record: Record) -> None:
        """Make one measurement; the reason is written down where it fails."""
        try:
            self.worker(CASES[record.case], record.cell, record.system).measure(record)
        except FailedError as error:
            record.reason, record.rate = str(error), None
        except (OSError, ValueError, IndexError) as error:  # of a system that did not leave what it should
            record.reason = f"{type(error).__name__}: {error}"

    def worker(self, case: Case, cell: Cell, name: str, kind: str = "") -> Worker:
        """The one worker of a network of a system. `FailedError` if the system is not installed."""
        python = self.plan.pythons[name]
        if isinstance(python, str):
            raise FailedError(python)
        folder = self.plan.out / "work" / f"{case.name}-{cell}{kind}" / name
        job = Job(case, cell, self.plan.data, folder, python)
        return self.workers.setdefault(folder, Worker(job, SYSTEMS[name], self.terms))


def told(record: Record) -> str:
    """One line of a measurement."""
    number = f"{record.rate:,.1f} a second" if record.rate else "no rate"
    start = f", first update after {record.start_wall:.1f} s" if record.start_wall else ""
    what = f"{record.case} {record.cell} {record.task} {SYSTEMS[record.system].title}"
    return f"{what}: {record.reason or number + start}"
