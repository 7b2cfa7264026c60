"""One job of several connected workers of a Ray cluster (Ray Train).

Ray Train starts the workers, connects them by torch.distributed, and starts all again if one of them dies. The job then
begins again in a run folder that all machines share, where a training continues from its checkpoint.
"""

import logging
import os
import shutil
import socket
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import fields
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import Any, NamedTuple

from pellucid.cluster.mailbox import DriverMailbox
from pellucid.cluster.network_interface import choose_interface
from pellucid.cluster.ray_connection import convert_ray_error, ray_errors_as_messages
from pellucid.cluster.ray_job import (
    DEATH_ADVICE,
    LOCK_PAUSE,
    MAX_JOB_STARTS,
    LockedProbe,
    Outbox,
    Submission,
    Task,
    prepare_process,
)
from pellucid.cluster.ray_pool import (
    MAX_SILENCE,
    STOP_SECONDS,
    JobResources,
    WaitWarning,
    count_slots,
    job_environment,
    locked_probe,
    storage_folder,
)
from pellucid.errors import ConfigError, FolderInUseError, InputError, WorkerLostError, abbreviate_reason, count_noun
from pellucid.files import wrap_os_errors
from pellucid.worker_pool import (
    EVENT_TIMEOUT,
    JobFailure,
    JobResult,
    WorkerChannel,
    WorkerDiedError,
    WorkerError,
    execute_job,
)

CONNECTION_SECONDS = 600
"""Seconds within which the workers must connect."""


class GroupTasks(NamedTuple):
    """Functions of the workers, at the top level of modules."""

    first: Task
    """Function of worker 0, called with the job and its channel."""
    others: Callable[[], None]
    """Function of each other worker; it takes part until worker 0 ends it."""


class GroupSettings(NamedTuple):
    """Argument of each worker."""

    tasks: GroupTasks
    submission: Submission
    mailbox: Any
    """Handle of the `Mailbox`."""


def run_in_group(
    tasks: GroupTasks, job: object, run: Path, num_workers: int, resources: JobResources
) -> Generator[Any]:
    """Run a job in connected workers of the Ray cluster of this process, and yield the messages of worker 0.

    Closing the generator asks worker 0 to stop, and waits until it has. After an error, workers that wait for others
    end with the connection of this process to the cluster.

    Args:
        tasks: Functions of the workers.
        job: Argument of worker 0, which must be picklable.
        run: Run folder, in a folder that all machines share.
        num_workers: Number of workers.
        resources: CPUs and GPUs of each worker.

    Yields:
        The messages, and None if none has arrived for a while.

    Raises:
        ConfigError: The cluster has not enough CPUs or GPUs.
        ClusterError: The connection to the cluster is lost.
        InputError: The first error of a worker, or the workers have died too often.
    """
    with ray_errors_as_messages():
        slots = count_slots(resources)
    if slots < num_workers:
        room = f"{count_noun(slots, 'process', 'processes')} of {resources}"
        raise ConfigError(f"--workers {num_workers}: the Ray cluster has room for {room}")
    with locked_probe(run) as shared, _storage(shared) as storage, DriverMailbox() as mailbox:
        submission = Submission(0, 0, job, os.getcwd(), shared, MAX_SILENCE)
        settings = GroupSettings(tasks, submission, mailbox.handle)
        training = TrainingThread(_build_trainer(settings, num_workers, resources, storage))
        wait_warning = WaitWarning()
        try:
            while training.is_running:
                wait_warning.check(mailbox)
                yield from _take_messages(mailbox)
                time.sleep(EVENT_TIMEOUT)
                yield None
            yield from _take_messages(mailbox)
            training.raise_error()
        except GeneratorExit:
            if _has_stopped(training, mailbox, submission.submission_number):
                training.raise_error()
            raise


class TrainingThread:
    """A training of Ray Train, which a thread of this process waits for; Ray 2.60 has no function that ends it."""

    def __init__(self, trainer: Any) -> None:  # noqa: ANN401 (an object of Ray)
        """Start the training.

        Args:
            trainer: The trainer.
        """
        self.trainer = trainer
        self.error: BaseException | None = None
        # The thread of an executor would keep the process from ending.
        self._thread = threading.Thread(target=self._fit, name="pellucid-training", daemon=True)
        self._thread.start()

    def _fit(self) -> None:
        """Wait for the end of the training."""
        try:
            self.trainer.fit()
        except BaseException as error:
            self.error = error

    @property
    def is_running(self) -> bool:
        """True until the training has ended."""
        return self._thread.is_alive()

    def raise_error(self) -> None:
        """Raise the error with which the training has ended, if any.

        Raises:
            WorkerDiedError: The workers could not be connected, or have died too often.
            ClusterError: The connection to the cluster is lost, or a machine lacks a package.
        """
        from ray.train.v2.api.exceptions import TrainingFailedError

        if self.error is None:
            return
        if not isinstance(self.error, TrainingFailedError):
            with ray_errors_as_messages():
                raise self.error
        cause = getattr(self.error, "controller_failure", None)  # such as a missing package
        raise convert_ray_error(cause or self.error) or WorkerDiedError(_describe_failure(self.error)) from self.error


@contextmanager
def _storage(shared: LockedProbe) -> Iterator[Path]:
    """Yield a folder for the files of Ray Train, beside the locked file; it is removed at the end of the block."""
    folder = storage_folder(shared.path)
    with wrap_os_errors("create", folder):
        folder.mkdir()
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)  # other machines may still have files open there


def _build_trainer(settings: GroupSettings, num_workers: int, resources: JobResources, storage: Path) -> Any:  # noqa: ANN401
    """Return the trainer of Ray Train, which starts nothing yet; `storage` is a folder for its files."""
    with ray_errors_as_messages():  # they need the packages of an extra of Ray
        from ray.train import FailureConfig, RunConfig, ScalingConfig
        from ray.train.torch import TorchTrainer
    if "worker_runtime_env" not in {field.name for field in fields(RunConfig)}:
        raise ConfigError(
            "--workers needs the second version of Ray Train: install Ray 2.53 or later, and unset the variable "
            "RAY_TRAIN_V2_ENABLED"
        )

    logging.getLogger("ray.train").setLevel(logging.ERROR)
    return TorchTrainer(
        _run_worker,
        train_loop_config={"settings": settings},
        torch_config=_connection_config(),
        scaling_config=ScalingConfig(
            num_workers=num_workers,
            use_gpu=bool(resources.gpus),
            resources_per_worker={"CPU": resources.cpus, **({"GPU": resources.gpus} if resources.gpus else {})},
        ),
        run_config=RunConfig(
            name="pellucid",
            storage_path=str(storage),
            failure_config=FailureConfig(max_failures=MAX_JOB_STARTS - 1),
            worker_runtime_env={"env_vars": job_environment()},
        ),
    )


def _connection_config() -> Any:  # noqa: ANN401 (an object of Ray)
    """Return the configuration of torch.distributed, with which each worker chooses its network interface first."""
    from ray.train.torch import TorchConfig

    backend_class = TorchConfig().backend_cls

    class _Backend(backend_class):  # type: ignore[misc, valid-type]
        """Connection of the workers."""

        def on_start(self, worker_group: Any, backend_config: Any) -> None:  # noqa: ANN401 (objects of Ray)
            """Connect the workers."""
            worker_group.execute(choose_interface)
            super().on_start(worker_group, backend_config)

    class _Config(TorchConfig):  # type: ignore[misc]
        """Configuration with this backend."""

        @property
        def backend_cls(self) -> type:
            """Class of the backend."""
            return _Backend

    return _Config(backend="gloo", timeout_s=CONNECTION_SECONDS)


def _run_worker(config: dict[str, GroupSettings]) -> None:
    """Run the part of this worker.

    A failure is sent to the mailbox, and the command raises it: Ray Train itself would wait for the other workers,
    which may wait for this one. An error that another attempt may not have is raised here: Ray Train then starts all
    workers again.
    """
    import ray
    from ray import train

    tasks, submission, mailbox = config["settings"]
    if rank := train.get_context().get_world_rank():
        event, attempt = _run_other(tasks, submission, rank), 0
    else:
        event, attempt = _run_first(tasks, submission, mailbox)
    if not isinstance(event, JobFailure):
        return
    is_locked = isinstance(event.error, FolderInUseError) and attempt < MAX_JOB_STARTS
    is_lost = isinstance(event.error, WorkerLostError) or (rank and isinstance(event.error, WorkerError))
    if is_locked or is_lost:  # another worker that has died is an unexpected error of a collective call
        time.sleep(LOCK_PAUSE)
        raise event.error
    ray.get(mailbox.report_failure.remote(bytes(ForkingPickler.dumps(event))))


def _run_first(tasks: GroupTasks, submission: Submission, mailbox: Any) -> tuple[JobResult | JobFailure, int]:  # noqa: ANN401
    """Run worker 0; return its last event, and the number of its attempt, from 1."""
    with Outbox(mailbox, submission.submission_number, submission.max_silence) as outbox:
        channel = WorkerChannel(outbox, submission.job_number, outbox.stop)
        try:
            prepare_process(submission)
        except InputError as error:
            event: JobResult | JobFailure = JobFailure(submission.job_number, error)
        else:
            event = execute_job(tasks.first, submission.job, channel)
        return event, outbox.attempt


def _run_other(tasks: GroupTasks, submission: Submission, rank: int) -> JobResult | JobFailure:
    """Run another worker than worker 0, and return its last event; an error names the worker."""

    def run(job: None, channel: WorkerChannel) -> None:
        prepare_process(submission)
        tasks.others()

    event = execute_job(run, None, WorkerChannel(_NoMessages(), submission.job_number, None))
    if isinstance(event, JobFailure) and isinstance(event.error, InputError):
        event.error.args = (*event.error.args, f"(worker {rank}, on the machine {socket.gethostname()})")
    return event


class _NoMessages:
    """Connection of a worker that sends no messages."""

    def send(self, message: object, /) -> None:
        """Do nothing."""


def _take_messages(mailbox: DriverMailbox) -> Generator[Any]:
    """Yield the messages of worker 0 that have arrived; raise the error of the first worker that has failed, if any."""
    content: bytes | None = mailbox.call("read_failure")
    for message in mailbox.take_messages():  # all those before the failure
        yield ForkingPickler.loads(message.content)
    if content is not None:
        failure: JobFailure = ForkingPickler.loads(content)
        raise failure.error


def _has_stopped(training: TrainingThread, mailbox: DriverMailbox, submission_number: int) -> bool:
    """Ask worker 0 to stop, and wait for the end of the training; return whether it has ended.

    Do not wait if worker 0 has not begun, or has sent nothing for `STOP_SECONDS`.
    """
    started = time.monotonic()
    has_begun = not mailbox.call("request_stop", [submission_number])
    while training.is_running:
        waited = time.monotonic() - started
        silence = min(waited, mailbox.call("list_silences").get(submission_number, waited))
        if not has_begun or silence > STOP_SECONDS:
            return False
        time.sleep(EVENT_TIMEOUT)
        list(_take_messages(mailbox))
    list(_take_messages(mailbox))
    return True


def _describe_failure(error: Exception) -> str:
    """Return the message for a training that Ray Train has given up."""
    cause = abbreviate_reason(_cause_of(error))
    if getattr(error, "worker_failures", None):
        return (
            f"a process of the training {DEATH_ADVICE} ({cause}); the same command continues from the last checkpoint"
        )
    return (
        f"the processes of the training cannot connect to each other ({cause}): check that the machines reach each "
        "other on all ports"
    )


def _cause_of(failure: Exception) -> Exception:
    """Return an error with the last line of the message of another one: in those of Ray Train, it states the cause."""
    lines = [line.strip() for line in str(failure).splitlines() if line.strip()]
    return RuntimeError(lines[-1] if lines else type(failure).__name__)
