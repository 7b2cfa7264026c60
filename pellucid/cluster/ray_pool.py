"""Pool of jobs that run as tasks of a Ray cluster, with the methods of `pellucid.worker_pool.WorkerPool`.

Ray starts a job on a machine with free CPUs, and again on another one if its worker process or its machine dies. The
run folders are in a file system that all machines share, and a training continues there from its last checkpoint.

    driver (RayPool) ── submits ──► task of Ray (run_ray_job) ── messages ──► Mailbox ──► driver
"""

import glob
import os
import shutil
import time
import traceback
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any, NamedTuple

from pellucid import worker_pool
from pellucid.cluster.mailbox import DriverMailbox
from pellucid.cluster.ray_connection import convert_ray_error, ray_errors_as_messages
from pellucid.cluster.ray_job import DEATH_ADVICE, MAX_JOB_STARTS, LockedProbe, Submission, Task, run_ray_job
from pellucid.errors import ConfigError, abbreviate_reason, count_noun
from pellucid.file_lock import try_lock
from pellucid.files import file_exists, temporary_path, wrap_os_errors
from pellucid.worker_pool import (
    JobEvent,
    JobFailure,
    JobResult,
    ProgressMessage,
    WorkerDiedError,
    WorkerError,
    use_pool,
)

CHECK_SECONDS = 5.0
"""Seconds between two checks of the machines of a cluster."""
DEAD_SECONDS = 10.0
"""Seconds for which a machine is dead before its jobs are submitted again."""
MAX_SILENCE = 30.0
"""A job ends its process if it gets no answer from this machine for this number of seconds. Ray starts the jobs of a
machine that does not answer on another one, after about a minute (five checks of health); the first attempt has ended
then."""
STOP_SECONDS = 60.0
"""A job that was asked to stop is killed if it has sent nothing for this number of seconds: its process has died, and
Ray may wait for free CPUs to start it again, only to stop."""
WAIT_SECONDS = 60.0
"""Seconds without the start of a job after which a command says that it waits."""
ENVIRONMENT_PREFIX = "PELLUCID_"
"""Start of the names of the environment variables that the jobs take over."""
SECRET_VARIABLES = ("PELLUCID_TOKEN",)
"""Variables that they do not take over: Ray stores the others, and shows them on its dashboard and in its logs."""


class JobResources(NamedTuple):
    """CPUs and GPUs that a job needs on its machine."""

    cpus: int = 1
    """Number of CPUs, 1 or more: that of the threads of a training."""
    gpus: int = 0
    """Number of GPUs."""

    def __str__(self) -> str:
        """Return the resources as text: "4 CPUs and 1 GPU"."""
        cpus = count_noun(self.cpus, "CPU")
        return f"{cpus} and {count_noun(self.gpus, 'GPU')}" if self.gpus else cpus


class SubmittedJob(NamedTuple):
    """A submitted job that has not ended."""

    job_number: int
    """Number of the job."""
    submission_number: int
    """Number of the submission."""
    job: Any
    """Argument of the task."""
    reference: Any
    """Reference of Ray to its last event."""


class WaitWarning:
    """Warning of a command whose jobs do not begin, given once."""

    def __init__(self) -> None:
        """Begin to wait."""
        self._deadline = time.monotonic() + WAIT_SECONDS

    def check(self, mailbox: DriverMailbox) -> None:
        """Warn if no job has begun for `WAIT_SECONDS`.

        Args:
            mailbox: Mailbox of the jobs.
        """
        if time.monotonic() < self._deadline:
            return
        self._deadline = float("inf")
        if not mailbox.call("list_machines"):
            warnings.warn(
                f"no process has begun on the Ray cluster for {WAIT_SECONDS:g} seconds: others may use its CPUs; this "
                "command waits for them",
                stacklevel=2,
            )


class RayPool:
    """Jobs of one kind on the Ray cluster to which this process is connected; killed at the end of the block."""

    def __init__(
        self, task: Task, max_workers: int, resources: JobResources, shared: LockedProbe | None = None
    ) -> None:
        """Initialize without starting anything.

        Args:
            task: Function at the top level of a module, called with a job and a channel.
            max_workers: Maximum number of parallel jobs; 0 for as many as the cluster has CPUs for, also later.
            resources: CPUs and GPUs of each job.
            shared: Locked file in the folder that all machines share; None for jobs without run folders.

        Raises:
            ConfigError: No machine of the cluster has the CPUs or GPUs that a job needs.
        """
        self.task = task
        self.max_workers = max_workers
        self.resources = resources
        self.shared = shared
        self.busy = dict[int, SubmittedJob]()
        self._mailbox = DriverMailbox()
        self._remote_function: Any = None
        """Function `run_ray_job` as a task of Ray, which each machine loads once."""
        self._num_submissions = 0
        self._stopping = dict[int, float]()
        """Time of the first request to stop, by submission."""
        self._slots = (0.0, 0)
        """Time and result of the last count of slots."""
        self._checked_at = time.monotonic()
        self._wait_warning = WaitWarning()
        with ray_errors_as_messages():
            self._dead_since = {node: float("-inf") for node in _dead_nodes()}
            """Time when a node of Ray was first found dead."""
            num_slots = count_slots(resources)
        if not num_slots:
            flags = f"--threads {resources.cpus}{' --device cuda' if resources.gpus else ''}"
            raise ConfigError(f"no machine of the Ray cluster has {resources}, which each job needs ({flags})")

    def __enter__(self) -> "RayPool":
        """Start the mailbox on this machine and return the pool."""
        import ray

        self._mailbox.__enter__()
        self._remote_function = ray.remote(run_ray_job)
        return self

    def __exit__(self, *_: object) -> None:
        """Kill the jobs and the mailbox."""
        for submitted in self.busy.values():
            _kill(submitted)
        self._mailbox.__exit__()

    @property
    def free_workers(self) -> int:
        """Number of jobs that can be submitted now; 0 if more are submitted than the cluster has CPUs for, after a
        machine has died.
        """
        return max(0, (self.max_workers or self._count_slots()) - len(self.busy))

    def submit(self, number: int, job: object) -> None:
        """Submit a job. Ray starts it as soon as a machine has free CPUs.

        Args:
            number: Number of the job, unique among the running ones.
            job: Argument of the task, which must be picklable.
        """
        self._num_submissions += 1
        with ray_errors_as_messages():
            reference = self._start_task(number, self._num_submissions, job)
        self.busy[number] = SubmittedJob(number, self._num_submissions, job, reference)

    def _start_task(self, number: int, submission_number: int, job: object) -> Any:  # noqa: ANN401 (a reference of Ray)
        """Start a task of Ray for a job."""
        submission = Submission(submission_number, number, job, os.getcwd(), self.shared, MAX_SILENCE)
        remote = self._remote_function.options(
            num_cpus=self.resources.cpus,
            num_gpus=self.resources.gpus,
            max_retries=MAX_JOB_STARTS - 1,
            runtime_env={"env_vars": job_environment()},
            name=f"pellucid job {number}",
        )
        return remote.remote(self.task, submission, self._mailbox.handle)

    def request_stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs to stop early. Those that have not begun are canceled; their result is None.

        Args:
            numbers: Numbers of running jobs; all of them by default.
        """
        import ray

        jobs = {
            self.busy[number].submission_number: self.busy[number]
            for number in (self.busy if numbers is None else numbers)
        }
        self._stopping = dict.fromkeys(jobs, time.monotonic()) | self._stopping
        for submission_number in self._mailbox.call("request_stop", list(jobs)):
            with ray_errors_as_messages():
                ray.cancel(jobs[submission_number].reference)

    def events(self) -> Iterator[JobEvent]:
        """Wait up to `EVENT_TIMEOUT` for the end of a job, and yield the events that have arrived.

        A job that Ray has started again reports again from its checkpoint.
        """
        with ray_errors_as_messages():
            events = self._wait_for_events()
        yield from events

    def _wait_for_events(self) -> list[JobEvent]:
        """Wait up to `EVENT_TIMEOUT` for the end of a job, and return the events that have arrived."""
        import ray

        ended_jobs = self._check_jobs()
        ended = set[Any]()
        if self.busy:
            references = [submitted.reference for submitted in self.busy.values()]
            ended = set(ray.wait(references, num_returns=1, timeout=worker_pool.EVENT_TIMEOUT)[0])
        else:
            time.sleep(worker_pool.EVENT_TIMEOUT)
        # A job sends its last message before it ends, so that these messages contain all messages of the ended ones.
        numbers = {submitted.submission_number: submitted.job_number for submitted in self.busy.values()}
        events: list[JobEvent] = [
            ProgressMessage(numbers[message.submission_number], ForkingPickler.loads(message.content))
            for message in self._mailbox.take_messages()
            if message.submission_number in numbers
        ]
        for submitted in list(self.busy.values()):
            if submitted.reference in ended:
                del self.busy[submitted.job_number]
                events.append(_last_event(submitted))
        return [*events, *ended_jobs]

    def _check_jobs(self) -> list[JobEvent]:
        """Look for jobs of dead machines every `CHECK_SECONDS`; return the last events of jobs that are ended here."""
        now = time.monotonic()
        if now - self._checked_at < CHECK_SECONDS:
            return []
        if self.busy:
            self._wait_warning.check(self._mailbox)
        for node in _dead_nodes() - self._dead_since.keys():
            self._dead_since[node] = now
        lost = [node for node, since in self._dead_since.items() if self._checked_at < since + DEAD_SECONDS <= now]
        self._checked_at = now
        if lost:
            self._restart_lost_jobs(lost)
        return self._end_silent_jobs(now) if self._stopping else []

    def _restart_lost_jobs(self, lost: Sequence[str]) -> None:
        """Submit the jobs of dead machines again, except those that are asked to stop.

        Ray does so itself if a machine dies that closes its connections. If a machine has lost its power or its
        network, Ray notices that it is dead after about a minute, but waits for its tasks about seven minutes. Jobs
        that have begun nowhere may be among these tasks.
        """
        machines = self._mailbox.call("list_machines")
        for number, submitted in list(self.busy.items()):
            submission_number = submitted.submission_number
            if machines.get(submission_number) in (None, *lost) and submission_number not in self._stopping:
                _kill(submitted)
                self._mailbox.call("clear_machine", submission_number)
                reference = self._start_task(number, submission_number, submitted.job)
                self.busy[number] = submitted._replace(reference=reference)

    def _end_silent_jobs(self, now: float) -> list[JobEvent]:
        """Kill the jobs that were asked to stop and have sent nothing for `STOP_SECONDS`; return their events."""
        silences = self._mailbox.call("list_silences")
        events = list[JobEvent]()
        for number, submitted in list(self.busy.items()):
            waited = now - self._stopping.get(submitted.submission_number, now)
            if min(waited, silences.get(submitted.submission_number, waited)) > STOP_SECONDS:
                _kill(submitted)
                del self.busy[number]
                events.append(JobResult(number, None))
        return events

    def _count_slots(self) -> int:
        """Return how many jobs the cluster can run in parallel now; at least 1, because a machine may return."""
        counted_at, slots = self._slots
        if not slots or time.monotonic() - counted_at > CHECK_SECONDS:
            with ray_errors_as_messages():
                slots = max(1, count_slots(self.resources))
            self._slots = time.monotonic(), slots
        return slots


def _kill(submitted: SubmittedJob) -> None:
    """Kill a job; no answer is expected."""
    import ray

    with suppress(Exception):  # the cluster may be gone
        ray.cancel(submitted.reference, force=True)


def _dead_nodes() -> set[str]:
    """Return the nodes of Ray that are dead."""
    import ray

    return {node["NodeID"] for node in ray.nodes() if not node["Alive"]}


def count_slots(resources: JobResources) -> int:
    """Return how many jobs the cluster could run in parallel if it did nothing else.

    Args:
        resources: CPUs and GPUs of each job.
    """
    import ray

    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    by_cpus = [int(machine.get("CPU", 0)) // resources.cpus for machine in machines]
    if not resources.gpus:
        return sum(by_cpus)
    by_gpus = [int(machine.get("GPU", 0)) // resources.gpus for machine in machines]
    return sum(map(min, by_cpus, by_gpus))


@contextmanager
def use_ray_pool(resources: JobResources, run: Path | None) -> Iterator[None]:
    """Run the jobs of pools that are opened in the block as tasks of the Ray cluster of this process.

    Args:
        resources: CPUs and GPUs of each job.
        run: Folder that the jobs write to, which all machines must share; it need not exist. None for jobs that write
            no files.

    Raises:
        RunError: No file can be written beside or in the folder.
    """
    with ExitStack() as stack:
        shared = None if run is None else stack.enter_context(locked_probe(run))
        stack.enter_context(use_pool(partial(RayPool, resources=resources, shared=shared)))
        yield


@contextmanager
def locked_probe(run: Path) -> Iterator[LockedProbe]:
    """Yield a locked temporary file in a run folder, or in the nearest folder above it that exists.

    Args:
        run: Folder that the jobs write to; it need not exist.

    Raises:
        RunError: The file cannot be written.
    """
    folder = next(path for path in (run.resolve(), *run.resolve().parents) if path.is_dir())
    path = folder / f"{run.name}-on-ray"
    _remove_unlocked_files(path)
    file = _open_locked(path)
    try:
        with file:
            yield LockedProbe(Path(file.name), run)
    finally:
        with suppress(OSError):
            Path(file.name).unlink(missing_ok=True)


def _open_locked(path: Path) -> IO[bytes]:
    """Create a temporary file for a path, and lock it; another process may remove it before it is locked."""
    while True:
        temporary = temporary_path(path)
        with wrap_os_errors("write", temporary):
            file = open(temporary, "xb")  # noqa: SIM115 (the caller closes it)
            if try_lock(file) and file_exists(temporary):
                return file
            file.close()


def _remove_unlocked_files(path: Path) -> None:
    """Remove the temporary files for a path that no process has locked: those of killed processes."""
    for temporary in path.parent.glob(f".{glob.escape(path.name)}.*.tmp"):
        with suppress(OSError), open(temporary, "r+b") as file:  # NFS locks only a file that is open for writing
            if try_lock(file):
                shutil.rmtree(storage_folder(temporary), ignore_errors=True)
                temporary.unlink()


def storage_folder(locked: Path) -> Path:
    """Return the path of a folder that belongs to a locked file, and is removed with it.

    Args:
        locked: Path of the file.
    """
    return locked.with_name(f"{locked.name}.files")


def job_environment() -> dict[str, str]:
    """Return the environment variables that a job takes over from this process: no secrets."""
    names = [name for name in os.environ if name.startswith(ENVIRONMENT_PREFIX) and name not in SECRET_VARIABLES]
    own = {name: os.environ[name] for name in names}
    return {**own, "OMP_WAIT_POLICY": os.environ.get("OMP_WAIT_POLICY", "passive")}


def _last_event(submitted: SubmittedJob) -> JobEvent:
    """Return the last event of an ended job."""
    import ray

    number = submitted.job_number
    try:
        event: JobEvent = ray.get(submitted.reference)
    except ray.exceptions.TaskCancelledError:
        return JobResult(number, None)
    except ray.exceptions.RayTaskError as error:  # the task itself catches all errors of a job
        bug = WorkerError(f"error in a worker process of Ray:\n{traceback.format_exc()}")
        return JobFailure(number, convert_ray_error(error) or bug)
    except ray.exceptions.RayError as error:
        return JobFailure(number, WorkerDiedError(f"the process of a job {DEATH_ADVICE}: {abbreviate_reason(error)}"))
    return event
