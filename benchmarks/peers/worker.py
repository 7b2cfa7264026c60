"""The measurements of one system at one network: a training, and decoding greedily or with a beam."""

import math
import os
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.cases import BEAM, DECODING_BATCH, DIGITS, Task
from benchmarks.peers.measure import FailedError, Outcome, median_rate, rates, run_command
from benchmarks.peers.results import Record
from benchmarks.peers.systems.system import Job, System

TRIES = 3
"""How often a measurement is made longer that turned out too short."""
ENOUGH = 0.6
"""Share of the wanted processor seconds that is enough."""
LONGER = 16.0
"""Most times longer than the one before."""
LEAST = 0.75
"""Share of the symbols asked for that outputs must have for the work to be the same."""
START_UPDATES = 2


class Terms(NamedTuple):
    """How every command is run."""

    seconds: float
    """Processor seconds of steady state that a measurement should take, about."""
    limit: float
    """Longest time of one command, in seconds."""
    core: int | None
    """The one core it runs on, or None for any."""


class Worker:
    """Runs the commands of one system at one network."""

    def __init__(self, job: Job, system: System, terms: Terms) -> None:
        """Nothing has run yet."""
        self.job = job
        self.system = system
        self.terms = terms
        self.mark = job.folder / "trained"
        """Tells how many updates the network in the job's folder has had, if there is one."""

    def measure(self, record: Record) -> None:
        """Fill in a record. `FailedError` says why it cannot be."""
        match record.task:
            case "start":
                self._note_training(record, self.train(START_UPDATES))
            case "train":
                self._measure_training(record)
            case "greedy" | "beam":
                self._measure_decoding(record)

    def train(self, updates: int) -> Outcome:
        """Train a new network. `FailedError` if not every update was seen."""
        folder = self.job.folder
        folder.mkdir(parents=True, exist_ok=True)
        self.mark.unlink(missing_ok=True)
        ready = folder / "prepared"
        if not ready.exists():
            for command in self.system.prepare(self.job):
                run_command(command, folder / "prepare.log", self.terms.limit, self.terms.core)
            ready.touch()
        command = self.system.train(self.job, updates)
        outcome = run_command(command, folder / "train.log", self.terms.limit, self.terms.core)
        if len(outcome.ticks) != updates:
            raise FailedError(f"{len(outcome.ticks)} of {updates} updates were seen")
        self.mark.write_text(str(updates), "utf-8")
        return outcome

    def decode(self, task: Task, count: int) -> Outcome:
        """Decode a file with the last network. `FailedError` if there is not one output for each source."""
        output = self._output(task)
        output.unlink(missing_ok=True)
        command = self.system.decode(self.job, count, BEAM if task == "beam" else 1, output)
        outcome = run_command(command, self.job.folder / f"{task}.log", self.terms.limit, self.terms.core)
        found = len(self.system.outputs(output)) if output.exists() else 0
        if found != count:
            raise FailedError(f"{found} outputs for {count} sources")
        return outcome

    def _measure_training(self, record: Record) -> None:
        """Rate, start and memory of a training; a longer one if it was too short."""
        case, wanted = self.job.case, self.terms.seconds
        guess = wanted * case.usual["train"] * self.system.pace.get("train", 1.0) / case.batch
        for _ in range(TRIES):
            outcome = self.train(whole_blocks(guess, case.block))
            seconds = outcome.ticks[-1].cpu - outcome.ticks[case.block - 1].cpu
            if seconds > ENOUGH * wanted:
                break
            guess = len(outcome.ticks) * longer(wanted, seconds)
        record.rate = median_rate(rates(outcome.ticks, case.block, case.batch))
        self._note_training(record, outcome)

    def _note_training(self, record: Record, outcome: Outcome) -> None:
        """What every training tells."""
        case, first = self.job.case, outcome.ticks[0]
        record.start_wall, record.start_cpu = first.wall - outcome.began, first.cpu
        record.peak_mib = outcome.peak_mib
        record.raw = {
            "updates": len(outcome.ticks),
            "updates_told": self.system.updates(outcome.log),
            "parameters_told": self.system.parameters(outcome.log),
            "samples_an_update": case.batch,
            "updates_a_block": case.block,
            "rates_of_blocks": [round(rate, 2) for rate in rates(outcome.ticks, case.block, case.batch)],
            "wall_and_cpu_of_updates": [[round(wall - outcome.began, 4), round(cpu, 4)] for wall, cpu in outcome.ticks],
            **_whole([outcome]),
        }

    def _measure_decoding(self, record: Record) -> None:
        """Sentences a processor second: those that a long file has more than a short one, over what it takes more.

        The short one is decoded before and after the long one, and its mean counts: a start differs from the next by
        more than a batch.
        """
        short = self.system.short_file
        task, wanted, case = record.task, self.terms.seconds, self.job.case
        if not self.mark.exists():
            self.train(whole_blocks(0, case.block))
        count = whole_batches(wanted * case.usual[task] * self.system.pace.get(task, 1.0))
        before = self.decode(task, short)
        for _ in range(TRIES):
            long, more = self.decode(task, short + count), count
            if long.cpu - before.cpu > ENOUGH * wanted:
                break
            count = whole_batches(count * longer(wanted, long.cpu - before.cpu))
        outputs = self.system.outputs(self._output(task))
        after = self.decode(task, short)
        seconds = long.cpu - (before.cpu + after.cpu) / 2
        if seconds <= 0:
            raise FailedError(f"{more} more sentences took no more processor time")
        record.rate, record.peak_mib = more / seconds, long.peak_mib
        record.raw = {
            "sentences": [short, short + more, short],
            "model_updates": int(self.mark.read_text("utf-8")),
            "symbols_an_output": round(sum(map(len, outputs)) / len(outputs), 3),
            "first_outputs": outputs[:3],
            **_whole([before, long, after]),
        }
        if not LEAST * DIGITS <= record.raw["symbols_an_output"] <= DIGITS:
            raise FailedError(f"outputs of {record.raw['symbols_an_output']:g} symbols instead of {DIGITS}")

    def _output(self, task: Task) -> Path:
        """Where the system writes what it decodes."""
        return self.job.folder / f"{task}.txt"


def whole_blocks(updates: float, block: int) -> int:
    """At least two whole blocks of updates after the first, which is warming up."""
    return block * (1 + max(2, math.ceil(updates / block)))


def whole_batches(sentences: float) -> int:
    """Whole batches of sentences, at least one."""
    return DECODING_BATCH * max(1, math.ceil(sentences / DECODING_BATCH))


def longer(wanted: float, seconds: float) -> float:
    """How many times longer a measurement must be that took so many seconds."""
    return min(LONGER, wanted / max(seconds, 0.01))


def _whole(outcomes: Sequence[Outcome]) -> dict[str, object]:
    """Whole processes, from start to end, and how busy the machine was after them."""
    return {
        "process_cpu_seconds": [round(outcome.cpu, 3) for outcome in outcomes],
        "process_wall_seconds": [round(outcome.wall, 3) for outcome in outcomes],
        "load": round(os.getloadavg()[0], 2),
    }
