"""One after the other: every system of a case, then around again."""

import argparse
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks.peers.cases import BEAM, CASES, DECODING_BATCH, DIGITS, Case, Cell, Task
from benchmarks.peers.data import Data
from benchmarks.peers.measure import FailedError, Outcome, median_rate, rates, run_command
from benchmarks.peers.results import Record, Results
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.systems.system import Job, System

TRIES = 3
"""How often a measurement is made longer that turned out too short."""
LONG_ENOUGH = 0.4
"""Share of the wanted processor seconds that is enough."""
LONGER = 16.0
"""Most times longer than the one before."""
START_UPDATES = 2
SHORT = DECODING_BATCH
"""Sentences of the short file: their time, start included, is taken off that of the long one."""


class Lane:
    """The measurements of some cells, one at a time, on one core or on any."""

    def __init__(
        self,
        given: argparse.Namespace,
        cells: Sequence[Cell],
        core: int | None,
        results: Results,
        data: Data,
        pythons: Mapping[str, Path | str],
    ) -> None:
        """Nothing has run yet. `pythons` has the interpreter of a system, or the reason why there is none."""
        self.given = given
        self.cells = cells
        self.core = core
        self.results = results
        self.data = data
        self.pythons = pythons
        self.trained: dict[str, int] = {}
        """Updates of the model that is in a job's folder."""

    def run(self, say: Callable[[str], None]) -> None:
        """Measure everything that was not measured before."""
        tasks: list[Task] = [task for task in ("train", "start", "greedy", "beam") if task in self.given.task]
        if "train" in tasks and "start" in tasks:
            tasks.remove("start")  # every training tells its start
        for cell in self.cells:
            self.warm(cell, tasks, say)
            for case in (CASES[name] for name in self.given.case):
                for repeat in range(self.given.repeats):
                    for task in tasks:
                        for name in self.given.system:
                            record = Record(case.name, cell, name, task, repeat)
                            if not self.results.has(record.key):
                                self.keep(record, case, say)

    def warm(self, cell: Cell, tasks: Sequence[Task], say: Callable[[str], None]) -> None:
        """Run every command once, unmeasured: files get into memory, kernels get compiled and cached."""
        for name in self.given.system:
            keys = [(case, cell, name, task, at) for case in self.given.case for task in tasks
                    for at in range(self.given.repeats)]  # fmt: skip
            if isinstance(self.pythons[name], str) or all(map(self.results.has, keys)):
                continue
            job = self.job(CASES["tiny"], cell, SYSTEMS[name], "warm")
            try:
                self.train(job, SYSTEMS[name], START_UPDATES)
                for task in set(tasks) & {"greedy", "beam"}:
                    self.decode(job, SYSTEMS[name], SHORT, task)
            except FailedError as error:
                say(f"warming up {cell} {name}: {error}")

    def keep(self, record: Record, case: Case, say: Callable[[str], None]) -> None:
        """Make one measurement and write it down, whatever comes of it."""
        python, system = self.pythons[record.system], SYSTEMS[record.system]
        try:
            if isinstance(python, str):
                raise FailedError(python)
            job = self.job(case, record.cell, system)
            if record.task in ("train", "start"):
                self.measure_training(record, job, system)
            else:
                self.measure_decoding(record, job, system)
        except (FailedError, OSError, ValueError) as error:
            record.reason = f"{type(error).__name__}: {error}" if not isinstance(error, FailedError) else str(error)
        told = f"{record.rate:,.1f} a second" if record.rate else record.reason or f"start {record.start_wall:.1f} s"
        say(f"{case.name} {record.cell} {record.task} {system.title}: {told}")
        self.results.add(record)

    def job(self, case: Case, cell: Cell, system: System, kind: str = "") -> Job:
        """The job of a system in its folder."""
        folder = (self.given.out / "work" / f"{case.name}-{cell}{kind and '-' + kind}" / system.name).resolve()
        return Job(case, cell, self.data, folder, Path(self.pythons[system.name]))

    def measure_training(self, record: Record, job: Job, system: System) -> None:
        """Rate, start and memory of a training."""
        case, wanted = job.case, self.given.seconds
        guess = wanted * case.usual["train"] * system.pace.get("train", 1.0) / case.batch
        updates = START_UPDATES if record.task == "start" else warm_and_whole(guess, case.block)
        for _ in range(TRIES):
            outcome = self.train(job, system, updates)
            found = rates(outcome.ticks, case.block, case.batch)
            seconds = outcome.ticks[-1].cpu - outcome.ticks[0].cpu
            if record.task == "start" or seconds > LONG_ENOUGH * wanted:
                break
            updates = warm_and_whole(updates * min(LONGER, wanted / max(seconds, 0.01)), case.block)
        if record.task == "train":
            record.rate = median_rate(found)
        record.start_wall = outcome.ticks[0].wall - outcome.began
        record.start_cpu = outcome.ticks[0].cpu
        record.peak_mib = outcome.peak_mib
        record.raw = {
            "updates": len(outcome.ticks),
            "updates_told": system.updates(outcome.log),
            "parameters_told": system.parameters(outcome.log),
            "batch": case.batch,
            "block": case.block,
            "rates": [round(rate, 2) for rate in found],
            "ticks": [[round(tick.wall - outcome.began, 4), round(tick.cpu, 4)] for tick in outcome.ticks],
            "process_cpu": outcome.cpu,
            "process_wall": outcome.wall,
        }

    def train(self, job: Job, system: System, updates: int) -> Outcome:
        """Train a new network. `FailedError` if not every update was seen."""
        job.folder.mkdir(parents=True, exist_ok=True)
        self.trained.pop(str(job.folder), None)
        ready = job.folder / "prepared"
        if not ready.exists():
            for command in system.prepare(job):
                run_command(command, job.folder / "prepare.log", self.given.limit, self.core)
            ready.touch()
        outcome = run_command(system.train(job, updates), job.folder / "train.log", self.given.limit, self.core)
        if len(outcome.ticks) != updates:
            raise FailedError(f"{len(outcome.ticks)} of {updates} updates were seen")
        self.trained[str(job.folder)] = updates
        return outcome

    def measure_decoding(self, record: Record, job: Job, system: System) -> None:
        """Sentences a processor second: those that a long file has more than a short one, over what it takes more."""
        if str(job.folder) not in self.trained:
            self.train(job, system, START_UPDATES)
        task, wanted = record.task, self.given.seconds
        count = batches(wanted * job.case.usual[task] * system.pace.get(task, 1.0))
        short = self.decode(job, system, SHORT, task)
        for _ in range(TRIES):
            long = self.decode(job, system, SHORT + count, task)
            seconds = long.cpu - short.cpu
            if seconds > LONG_ENOUGH * wanted:
                break
            count = batches(count * min(LONGER, wanted / max(seconds, 0.01)))
        if seconds <= 0:
            raise FailedError(f"{count} more sentences took no more processor time")
        record.rate = count / seconds
        record.peak_mib = long.peak_mib
        outputs = system.outputs(self.output(job, task))
        record.raw = {
            "sentences": [SHORT, SHORT + count],
            "process_cpu": [short.cpu, long.cpu],
            "process_wall": [short.wall, long.wall],
            "model_updates": self.trained[str(job.folder)],
            "output_symbols": sum(map(len, outputs)) / len(outputs),
            "first_outputs": outputs[:3],
        }

    def decode(self, job: Job, system: System, count: int, task: Task) -> Outcome:
        """Decode a file. `FailedError` if there is not one output for each source."""
        output = self.output(job, task)
        output.unlink(missing_ok=True)
        command = system.decode(job, count, BEAM if task == "beam" else 1, output)
        outcome = run_command(command, job.folder / f"{task}.log", self.given.limit, self.core)
        if not output.exists() or len(outputs := system.outputs(output)) != count:
            raise FailedError(f"not {count} outputs; {outcome.log[-300:]}")
        if max(map(len, outputs)) > DIGITS:
            raise FailedError(f"outputs of up to {max(map(len, outputs))} symbols")
        return outcome

    def output(self, job: Job, task: Task) -> Path:
        """Where a system writes what it decodes."""
        return job.folder / f"{task}.txt"


def warm_and_whole(updates: float, block: int) -> int:
    """At least two whole blocks of updates after the first, which is warming up."""
    return block * (1 + max(2, math.ceil(updates / block)))


def batches(sentences: float) -> int:
    """Whole batches of sentences."""
    return DECODING_BATCH * max(1, math.ceil(sentences / DECODING_BATCH))
