"""Measurements of the curves of error against minutes: trainings, their checkpoints, and decoding of the test words."""

import contextlib
import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers.curve_report import CurveRecord, CurveResults
from benchmarks.peers.install import install
from benchmarks.peers.measure import Command, MeasurementError, TimeLimitError, run_command
from benchmarks.peers.pronunciations import (
    LIMIT_SECONDS,
    PAIR_NGRAM_TITLE,
    PHONETISAURUS,
    SystemResult,
    count_errors,
    read_pairs,
    run_pair_ngram,
    run_phonetisaurus,
)
from benchmarks.peers.snapshots import CheckpointSnapshots, KeptCheckpoint
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.trainers import (
    TRAINERS,
    PeerTrainer,
    PronunciationFiles,
    TrainingJob,
    peer_network,
    pellucid_decode_command,
    pellucid_stop_reason,
    pellucid_train_command,
    read_lines,
)

PELLUCID, PAIR_NGRAM = "pellucid", "pair-ngram"
TITLES: Mapping[str, str] = {
    PELLUCID: SYSTEMS[PELLUCID].title,
    **{name: trainer.system.title for name, trainer in TRAINERS.items()},
    PHONETISAURUS.name: PHONETISAURUS.title,
    PAIR_NGRAM: PAIR_NGRAM_TITLE,
}
"""Titles of the systems by name, in the order of the table."""
WARM_UP_MINUTES = 0.25
"""Time limit of the training of Pellucid that compiles the kernels."""
MARGIN_SECONDS = 600.0
"""Additional time after which a training of Pellucid that exceeds its budget is stopped."""

FAILURES = (MeasurementError, OSError, ValueError)
"""A command fails, or a file of outputs is missing or malformed."""


class CurvePlan(NamedTuple):
    """Data, budgets and folders of the measurements."""

    files: PronunciationFiles
    references: Mapping[str, set[str]]
    """Pronunciations of each test word."""
    minutes: Sequence[float]
    """Budgets in ascending order."""
    out: Path
    environments: Path
    """Folder of the virtual environments."""
    seed: int
    core: int | None
    """Core to which the processes are pinned; None for any."""
    validations: int = 1
    """Validations of a peer per epoch."""
    versions: str = ""
    """Versions and date, which each record has."""

    def job(self, name: str, python: Path) -> TrainingJob:
        """Return the training of a system.

        Args:
            name: Name of the folder of its files.
            python: Python interpreter of its environment.
        """
        network = peer_network(self.files.num_pairs)
        return TrainingJob(network, self.files, self.out / "work" / name, python, self.seed, self.validations)


class PeerTraining(NamedTuple):
    """Checkpoints of the training of a peer at the ends of the budgets."""

    kept: Mapping[str, KeptCheckpoint | None]
    """Checkpoint by the budget, such as "2" or "0.5"; None for a budget before the first checkpoint."""
    seconds: float | None
    """Seconds after which the training ended by itself; None if it was stopped after the longest budget."""
    reason: str = ""
    """Reason of a failure."""
    validations: int = 1
    """Validations per epoch."""


def measure_system(name: str, plan: CurvePlan, results: CurveResults, log: Callable[[str], None]) -> None:
    """Make the missing measurements of a system, each of which is stored as soon as it is complete.

    Args:
        name: Name of the system.
        plan: Data, budgets and folders.
        results: Results, which receive the records.
        log: Function that shows a message.
    """
    budgets = plan.minutes if name == PELLUCID or name in TRAINERS else [None]
    missing = [CurveRecord(name, minutes, len(plan.references)) for minutes in budgets]
    missing = [record for record in missing if not results.is_measured(record.key)]
    if not missing:
        return
    log(f"{TITLES[name]}: {len(missing)} measurements")
    for record in measure_records(name, plan, missing):
        record.versions = plan.versions
        results.add(record)
        budget = "" if record.minutes is None else f"{record.minutes:g} min, "
        log(f"{TITLES[name]}: {budget}{record.reason or f'{record.num_wrong} of {record.num_words} words wrong'}")


def measure_records(name: str, plan: CurvePlan, records: Sequence[CurveRecord]) -> Iterator[CurveRecord]:
    """Yield each record with its numbers; if the system fails as a whole, with the reason.

    Args:
        name: Name of the system.
        plan: Data, budgets and folders.
        records: Empty records of the missing measurements.
    """
    num_yielded = 0
    try:
        for record in _choose_measurement(name)(plan, records):
            num_yielded += 1
            yield record
    except FAILURES as error:
        for record in records[num_yielded:]:
            record.reason = str(error)
            yield record


def measure_pellucid(plan: CurvePlan, records: Sequence[CurveRecord]) -> Iterator[CurveRecord]:
    """Train Pellucid once per budget, decode the test words, and yield the record.

    Args:
        plan: Data, budgets and folders.
        records: Empty records of the missing measurements.

    Raises:
        MeasurementError: The training that compiles the kernels fails.
    """
    warm_up = plan.job("pellucid-warm-up", Path(sys.executable))
    _train_pellucid(plan, warm_up, CurveRecord(PELLUCID, WARM_UP_MINUTES, 0))
    for record in records:
        job = plan.job(f"pellucid-{record.minutes:g}", Path(sys.executable))
        try:
            _train_pellucid(plan, job, record)
            _decode(plan, record, job, pellucid_decode_command(job), read_lines)
        except FAILURES as error:
            record.reason = str(error)
        yield record


def measure_peer(trainer: PeerTrainer, plan: CurvePlan, records: Sequence[CurveRecord]) -> Iterator[CurveRecord]:
    """Train a peer once, decode the test words with the checkpoint of each budget, and yield the record.

    Args:
        trainer: Training of the peer.
        plan: Data, budgets and folders.
        records: Empty records of the missing measurements.

    Raises:
        MeasurementError: The peer is not installed.
    """
    job = plan.job(trainer.system.name, install(trainer.system, plan.environments))
    training = _find_training(job.folder, plan) or train_peer(trainer, job, plan)
    decoder = SnapshotDecoder(trainer, job, training, plan)
    for record in records:
        try:
            decoder.decode(record)
        except FAILURES as error:
            record.reason = str(error)
        yield record


class SnapshotDecoder:
    """Decoding of the test words with the checkpoints of a peer; each checkpoint decodes them once."""

    def __init__(self, trainer: PeerTrainer, job: TrainingJob, training: PeerTraining, plan: CurvePlan) -> None:
        """Create the decoder without running any command.

        Args:
            trainer: Training of the peer.
            job: The training.
            training: The kept checkpoints.
            plan: Data, budgets and folders.
        """
        self.trainer = trainer
        self.job = job
        self.training = training
        self.plan = plan
        self.num_wrong = dict[str, int]()
        """Number of wrong words by the name of the checkpoint."""

    def decode(self, record: CurveRecord) -> None:
        """Decode the test words with the checkpoint of a budget.

        Args:
            record: Empty record of the budget, which receives the numbers.

        Raises:
            MeasurementError: There is no checkpoint, or decoding fails.
        """
        budget, kept = f"{record.minutes:g}", self._find_checkpoint(record)
        log = (self.job.folder / "train.log").read_text("utf-8", errors="replace")
        record.raw |= {**kept, "parameters": self.trainer.system.parse_parameters(log)}
        if kept["checkpoint"] not in self.num_wrong:
            command = self.trainer.decode_command(self.job, self.job.folder / "snapshots" / f"{budget}.ckpt")
            _decode(self.plan, record, self.job, command, self.trainer.read_outputs)
            self.num_wrong[kept["checkpoint"]] = record.num_wrong or 0
        record.num_wrong = self.num_wrong[kept["checkpoint"]]

    def _find_checkpoint(self, record: CurveRecord) -> KeptCheckpoint:
        """Return the checkpoint of a budget; the record receives the duration of its training, and a remark."""
        assert record.minutes is not None
        budget, training = f"{record.minutes:g}", self.training
        if budget not in training.kept:
            raise MeasurementError(training.reason)
        kept = training.kept[budget]
        if kept is None:
            raise MeasurementError("there was no checkpoint: the first validation had not ended")
        record.seconds = min(60 * record.minutes, training.seconds or math.inf)
        if record.seconds < 60 * record.minutes:
            record.note = f"the training ended by itself after {record.seconds / 60:.1f} min"
        return kept


def train_peer(trainer: PeerTrainer, job: TrainingJob, plan: CurvePlan) -> PeerTraining:
    """Train a peer until the longest budget or its own end, and keep the best checkpoint at the end of each budget.

    Args:
        trainer: Training of the peer.
        job: The training.
        plan: Data, budgets and folders.

    Returns:
        The kept checkpoints, which are also stored in the folder of the job unless the training has failed.
    """
    stored = job.folder / "training.json"
    stored.unlink(missing_ok=True)
    job.folder.mkdir(parents=True, exist_ok=True)
    probe = Command(trainer.system.probe_command(job.python), job.folder)  # loads its files into memory
    run_command(probe, job.folder / "probe.log", LIMIT_SECONDS, plan.core)
    command = trainer.train_command(job)
    snapshots = CheckpointSnapshots(lambda: trainer.find_best(job), job.folder / "snapshots", plan.minutes)
    training = PeerTraining(snapshots.kept, None, validations=plan.validations)
    try:
        result = run_command(command, job.folder / "train.log", 60 * plan.minutes[-1], plan.core, snapshots.update)
        snapshots.finish(result.wall)
        training = training._replace(seconds=result.wall)
    except TimeLimitError:
        pass
    except MeasurementError as error:
        return training._replace(reason=str(error))
    stored.write_text(json.dumps(training._asdict()), "utf-8")
    return training


def measure_point(plan: CurvePlan, records: Sequence[CurveRecord]) -> Iterator[CurveRecord]:
    """Train a system without budgets, decode the test words, and yield the record.

    Args:
        plan: Data, budgets and folders.
        records: The empty record.

    Raises:
        MeasurementError: Phonetisaurus is not installed, or one of its commands fails.
    """
    for record in records:
        result = _run_phonetisaurus(plan) if record.system == PHONETISAURUS.name else _run_pair_ngram(plan)
        record.seconds = result.training_wall
        record.num_wrong = count_errors(result.outputs, plan.references)
        record.raw = {"training_cpu_seconds": result.training_seconds}
        yield record


def _choose_measurement(name: str) -> Callable[[CurvePlan, Sequence[CurveRecord]], Iterator[CurveRecord]]:
    """Return the function that measures a system."""
    if name == PELLUCID:
        return measure_pellucid
    if name in TRAINERS:
        return lambda plan, records: measure_peer(TRAINERS[name], plan, records)
    return measure_point


def _train_pellucid(plan: CurvePlan, job: TrainingJob, record: CurveRecord) -> None:
    """Train Pellucid with the budget of a record, which receives the duration and the remark."""
    assert record.minutes is not None
    limit = 60 * record.minutes + MARGIN_SECONDS
    command = pellucid_train_command(job, record.minutes)
    result = run_command(command, job.folder / "train.log", limit, plan.core)
    record.seconds = result.wall
    record.raw |= {"training_cpu_seconds": result.cpu, "parameters": SYSTEMS[PELLUCID].parse_parameters(result.log)}
    if reason := pellucid_stop_reason(result.log):
        record.note = f"the training ended after {result.wall / 60:.1f} min: {reason}"


def _find_training(folder: Path, plan: CurvePlan) -> PeerTraining | None:
    """Return the stored training of a peer; None without one that has all budgets and as many validations per epoch."""
    path = folder / "training.json"
    if not path.exists():
        return None
    training = PeerTraining(**json.loads(path.read_text("utf-8")))
    has_budgets = all(f"{budget:g}" in training.kept for budget in plan.minutes)
    return training if has_budgets and training.validations == plan.validations else None


def _decode(
    plan: CurvePlan,
    record: CurveRecord,
    job: TrainingJob,
    command: Command,
    read_outputs: Callable[[Path], Sequence[str]],
) -> None:
    """Decode the test words into the file "outputs" of the job, and count the wrong words of a record."""
    job.outputs.unlink(missing_ok=True)
    result = run_command(command, job.folder / "decode.log", LIMIT_SECONDS, plan.core)
    outputs = read_outputs(job.outputs)
    if len(outputs) != len(plan.references):
        raise MeasurementError(f"{len(outputs)} outputs for {len(plan.references)} words")
    record.num_wrong = count_errors(dict(zip(plan.references, outputs, strict=True)), plan.references)
    record.raw |= {"decoding_cpu_seconds": result.cpu, "first_outputs": list(outputs[:3])}


def _run_phonetisaurus(plan: CurvePlan) -> SystemResult:
    """Train Phonetisaurus and decode the test words."""
    python = install(PHONETISAURUS, plan.environments)
    folder = plan.out / "work" / PHONETISAURUS.name
    return run_phonetisaurus(python, read_pairs(plan.files.train), list(plan.references), folder, plan.core)


def _run_pair_ngram(plan: CurvePlan) -> SystemResult:
    """Fit the pair n-gram model of Pellucid in this process, and decode the test words."""
    with _pinned(plan.core):
        return run_pair_ngram(plan.files.train, list(plan.references))


@contextlib.contextmanager
def _pinned(core: int | None) -> Iterator[None]:
    """Pin this process to a core."""
    cores = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, cores if core is None else {core})
        yield
    finally:
        os.sched_setaffinity(0, cores)
