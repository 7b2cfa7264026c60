"""Worker pool: parallel jobs in processes that end when their parent ends, even if it is killed.

`concurrent.futures.ProcessPoolExecutor` and `multiprocessing.Pool` are not suitable for trainings: a killed process
fails the other jobs of an executor and blocks a pool forever; an error is reported only after the running jobs;
processes survive a killed parent; and they receive Ctrl-C. This pool uses plain `multiprocessing` processes, each with
a pipe.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import c_bool
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pellucid.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

ProgressCallback = Callable[[object], None]
"""Function that a job calls with messages about its progress."""
START_METHOD: Literal["spawn", "fork"] = "spawn"
"""Start method of `multiprocessing`. Threads and GPU contexts do not survive a fork; processes without them may fork.
"""
SIGKILL = 9
"""Number of the signal that the system sends if memory runs out. Windows has none."""
EVENT_TIMEOUT = 0.2
"""Seconds for which a parent waits for events before it returns to its other work."""


class ProgressMessage(NamedTuple):
    """A message of a running job."""

    job: int
    content: Any


class JobResult(NamedTuple):
    """The return value of a finished job."""

    job: int
    value: Any


class JobFailure(NamedTuple):
    """The error of a job: an `InputError` is a user's mistake, a `WorkerError` a bug."""

    job: int
    error: Exception


JobEvent = ProgressMessage | JobResult | JobFailure


class WorkerError(RuntimeError):
    """A bug in a worker process, with its traceback."""


class WorkerDiedError(InputError):
    """A worker process that was killed during a job, by a user or by the system for lack of memory."""


class WorkerChannel(NamedTuple):
    """Connection between a job and the parent of its process."""

    connection: "Connection[Any, Any]"
    number: int
    stop: Any
    """Flag in shared memory, without a lock that a killed process could hold."""

    @property
    def stop_requested(self) -> bool:
        """True if the parent asks the job to stop early."""
        return bool(self.stop.value)

    def send_progress(self, content: object) -> None:
        """Send a message about the job to the parent.

        Args:
            content: The message, which must be picklable.
        """
        self.connection.send(ProgressMessage(self.number, content))


class Worker:
    """A worker process, from the side of its parent."""

    def __init__(self, task: Callable[[Any, WorkerChannel], Any]) -> None:
        """Start the process. SIGINT is blocked meanwhile; the process inherits the mask and then ignores the signal.

        Args:
            task: Function at the top level of a module, called with a job and the channel of the worker.
        """
        context = get_context("fork") if START_METHOD == "fork" else get_context("spawn")
        self.connection, child_connection = context.Pipe()
        self.stop = context.RawValue(c_bool)
        with _block_sigint():
            self.process = context.Process(target=_run_worker, args=(task, child_connection, self.stop), daemon=True)
            self.process.start()
        child_connection.close()  # otherwise the connection would outlive the process

    def submit(self, number: int, job: object) -> None:
        """Send a job. If the process is dead, the job fails with an event.

        Args:
            number: Number of the job.
            job: Argument of the task.
        """
        self.stop.value = False
        with suppress(OSError):
            self.connection.send((number, job))

    def receive(self, number: int) -> JobEvent:
        """Return the next event of the job; a failure if the process has died.

        Args:
            number: Number of the job.
        """
        try:
            event: JobEvent = self.connection.recv()
        except (EOFError, OSError):
            self.close()
            return JobFailure(number, WorkerDiedError(_exit_message(self.process.exitcode)))
        return event

    def close(self) -> None:
        """Kill the process."""
        self.process.kill()
        self.process.join()
        self.connection.close()


class WorkerPool(Generic[Job]):
    """Worker processes for one kind of task, started on demand and killed at the end of the block.

    They ignore Ctrl-C, which the parent handles.
    """

    def __init__(self, task: Callable[[Job, WorkerChannel], Any], max_workers: int) -> None:
        """Initialize without starting a process.

        Args:
            task: Function at the top level of a module, called with a job and the channel of the worker.
            max_workers: Maximum number of processes.
        """
        self.task = task
        self.max_workers = max_workers
        self.idle: list[Worker] = []
        self.busy: dict[int, Worker] = {}

    def __enter__(self) -> "WorkerPool[Job]":
        """Return the pool."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill every process. To let jobs finish, call `request_stop` and wait for their last events first."""
        for worker in (*self.idle, *self.busy.values()):
            worker.close()

    @property
    def free_workers(self) -> int:
        """Number of jobs that can be submitted now."""
        return self.max_workers - len(self.busy)

    def submit(self, number: int, job: Job) -> None:
        """Start a job under a unique number.

        Args:
            number: Number of the job.
            job: Argument of the task.
        """
        self.busy[number] = self.idle.pop() if self.idle else Worker(self.task)
        self.busy[number].submit(number, job)

    def request_stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs to stop early; each then has a last event.

        Args:
            numbers: Numbers of the jobs; all by default.
        """
        for number in list(self.busy) if numbers is None else numbers:
            self.busy[number].stop.value = True

    def events(self) -> Iterator[JobEvent]:
        """Yield the events that arrive within `EVENT_TIMEOUT`, at most one for each job."""
        ready = wait([worker.connection for worker in self.busy.values()], EVENT_TIMEOUT)
        for number, worker in list(self.busy.items()):
            if worker.connection in ready:
                event = worker.receive(number)
                if not isinstance(event, ProgressMessage):
                    del self.busy[number]
                    self.idle += [] if worker.connection.closed else [worker]
                yield event


def available_cores() -> int:
    """Return the number of cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel_map(
    task: Callable[[Job, ProgressCallback], Result],
    jobs: Sequence[Job],
    on_progress: Callable[[int, Any], None] | None = None,
) -> Iterator[Result]:
    """Yield the results of jobs in order; as many jobs run in parallel as there are cores.

    A single job runs in this process. The first error of a job is raised and kills all others.

    Args:
        task: Function at the top level of a module, called with a job and a callback for its progress.
        jobs: Arguments of the task, one for each job.
        on_progress: Called with the number of a job and each message about its progress.

    Yields:
        One result for each job.
    """
    report = on_progress or (lambda job, content: None)
    if len(jobs) == 1:
        yield task(jobs[0], partial(report, 0))
        return
    results: dict[int, Result] = {}
    waiting = iter(enumerate(jobs))
    with WorkerPool[Job](partial(_run_with_callback, task), available_cores()) as pool:
        for number in range(len(jobs)):
            while number not in results:
                for _, job in zip(range(pool.free_workers), waiting, strict=False):
                    pool.submit(*job)
                for event in pool.events():
                    match event:
                        case JobFailure(_, error):
                            raise error
                        case ProgressMessage(job_number, content):
                            report(job_number, content)
                        case JobResult(job_number, value):
                            results[job_number] = value
            yield results.pop(number)


def ignore_progress(task: Callable[[Job], Result], job: Job, report: ProgressCallback) -> Result:
    """Call a task that reports no progress; for `parallel_map`, use `partial(ignore_progress, task)`.

    Args:
        task: Function that is called with the job.
        job: The job.
        report: Callback for progress, which is not called.

    Returns:
        Result of the task.
    """
    return task(job)


def _run_with_callback(task: Callable[[Job, ProgressCallback], Result], job: Job, channel: WorkerChannel) -> Result:
    """Call a task of `parallel_map` in a worker."""
    return task(job, channel.send_progress)


def _run_worker(task: Callable[[Job, WorkerChannel], Any], connection: "Connection[Any, Any]", stop: object) -> None:
    """Run jobs one after another until the parent kills this process or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            number, job = connection.recv()
            try:
                event: JobEvent = JobResult(number, task(job, WorkerChannel(connection, number, stop)))
            except InputError as error:
                event = JobFailure(number, error)
            except Exception:
                event = JobFailure(number, WorkerError(f"error in a worker process:\n{traceback.format_exc()}"))
            connection.send(event)


def _exit_with_parent() -> None:
    """End this process as soon as its parent has ended, even during a job."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


@contextmanager
def _block_sigint() -> Iterator[None]:
    """Block SIGINT in the block, and in processes started there, on systems that can."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows, where the tracker of shared memory is missing, too
        yield
        return
    resource_tracker.ensure_running()  # starting it later would unblock the signal
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _exit_message(code: int | None) -> str:
    """Return the error message for a process that ended during a job."""
    if code is not None and code < 0:
        memory = "; memory may have run out: run fewer jobs in parallel" if -code == SIGKILL else ""
        return f"a worker process was killed by signal {-code} ({signal.strsignal(-code)}){memory}"
    return f"a worker process ended during a job (exit code {code})"
