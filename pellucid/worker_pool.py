"""Worker pool: parallel jobs in processes that end when their parent ends, even if it is killed.

`concurrent.futures.ProcessPoolExecutor` and `multiprocessing.Pool` are not suitable for trainings: a killed process
fails the other jobs of an executor and blocks a pool forever; an error is reported only after the running jobs;
processes survive a killed parent; and they receive Ctrl-C. This pool uses plain `multiprocessing` processes, each with
a pipe.

Trainings, recipes, audits and searches open a pool with `open_pool`. Within a block of `use_pool` this is another one,
such as that of a Ray cluster (`pellucid.cluster.ray_pool`).
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from ctypes import c_bool
from functools import partial
from multiprocessing import current_process, get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, NamedTuple, Protocol, TypeVar, runtime_checkable

from pellucid.errors import InputError, RunError
from pellucid.launched_workers import refuse_launched_workers

Job = TypeVar("Job")
"""Type of the argument with which a worker calls its task; a job is identified by a number."""
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
    """A message of a running job about its progress."""

    job: int
    """Number of the job."""
    content: Any
    """The message, as the job sent it."""


class JobResult(NamedTuple):
    """The return value of a finished job, its last event."""

    job: int
    """Number of the job."""
    value: Any


class JobFailure(NamedTuple):
    """The error of a failed job, its last event."""

    job: int
    """Number of the job."""
    error: Exception
    """`InputError` for a user's mistake, `WorkerDiedError` for a killed process, `WorkerError` for a bug."""


JobEvent = ProgressMessage | JobResult | JobFailure


class WorkerError(RuntimeError):
    """An unexpected exception in a worker process, which is a bug; the message holds its traceback."""


class WorkerDiedError(InputError):
    """A worker process that was killed during a job, by a user or by the system for lack of memory."""


@runtime_checkable
class MessageSender(Protocol):
    """Connection that sends messages, such as that of a pipe."""

    def send(self, message: Any, /) -> None:  # noqa: ANN401 (any picklable object)
        """Send a message."""


@runtime_checkable
class StopFlag(Protocol):
    """Flag that is set from outside the job, such as a value in shared memory."""

    value: Any
    """True if the job should stop."""


class WorkerChannel(NamedTuple):
    """Connection of a running job to the parent process, as the task receives it."""

    connection: MessageSender
    number: int
    """Number of the job."""
    stop: StopFlag | None
    """Flag without a lock that a killed process could hold; None for a job that is never stopped."""

    @property
    def stop_requested(self) -> bool:
        """True after the parent has asked the job to stop early; the job should check it regularly."""
        return self.stop is not None and bool(self.stop.value)

    def send_progress(self, content: object) -> None:
        """Send a message about the job to the parent.

        Args:
            content: The message, which must be picklable.
        """
        self.connection.send(ProgressMessage(self.number, content))


@runtime_checkable
class JobPool(Protocol):
    """Pool of workers, in processes of this machine or elsewhere, that run jobs of one kind in parallel.

    It is a context manager; at the end of the block, running jobs are killed.
    """

    max_workers: int
    """Maximum number of parallel jobs; 0 for as many as there are cores, here or in a cluster."""

    @property
    def busy(self) -> Mapping[int, Any]:
        """Workers of the jobs that are submitted and have not ended, by the numbers of the jobs."""

    @property
    def free_workers(self) -> int:
        """Number of jobs that can be submitted now."""

    def __enter__(self) -> "JobPool":
        """Return the pool."""

    def __exit__(self, *exception: object) -> None:
        """Kill running jobs."""

    def submit(self, number: int, job: Any) -> None:  # noqa: ANN401 (the argument of the task)
        """Start a job."""

    def request_stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs to stop early; each still has a last event. The result of a job that has not begun is None."""

    def events(self) -> Iterator[JobEvent]:
        """Wait up to `EVENT_TIMEOUT` for events, and yield those that have arrived."""


PoolFactory = Callable[[Callable[[Any, WorkerChannel], Any], int], JobPool]
"""Function that opens a pool for a task, with a maximum number of parallel jobs; 0 for as many as it has workers."""
_POOL_FACTORY: ContextVar[PoolFactory | None] = ContextVar("pool_factory", default=None)


@contextmanager
def use_pool(factory: PoolFactory) -> Iterator[None]:
    """Open other pools than those of this machine in the block: `open_pool` calls a function.

    Args:
        factory: The function.
    """
    token = _POOL_FACTORY.set(factory)
    try:
        yield
    finally:
        _POOL_FACTORY.reset(token)


def uses_local_pool() -> bool:
    """Return whether `open_pool` starts processes of this machine."""
    return _POOL_FACTORY.get() is None


def open_pool(task: Callable[[Any, WorkerChannel], Any], max_workers: int) -> JobPool:
    """Return a pool for one kind of task: worker processes of this machine, except within a block of `use_pool`.

    Args:
        task: Function at the top level of a module, called with a job and the channel of the worker.
        max_workers: Maximum number of parallel jobs; 0 for as many as there are cores, here or in a cluster.

    Raises:
        RunError: As in `WorkerPool`, or in the function of `use_pool`.
    """
    return (_POOL_FACTORY.get() or WorkerPool)(task, max_workers)


class Worker:
    """A worker process, as its parent sees it. It runs one job at a time."""

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
        """Send a job to the process. If the process is dead, `receive` returns a failure.

        Args:
            number: Number of the job.
            job: Argument of the task, which must be picklable.
        """
        self.stop.value = False
        with suppress(OSError):
            self.connection.send((number, job))

    def receive(self, number: int) -> JobEvent:
        """Wait for the next event of the current job and return it; if the process has died, return a failure.

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
        """Kill the process and wait for its end."""
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
            max_workers: Maximum number of processes, and so of parallel jobs; it may be changed later. 0 for one per
                core.

        Raises:
            RunError: This process is daemonic, such as a worker of `multiprocessing.Pool`: it may start no process.
            ConfigError: torchrun has started this process as one of several workers.
        """
        refuse_launched_workers()
        if current_process().daemon:
            raise RunError(
                "this process is daemonic, such as a worker of multiprocessing.Pool, and may start no process: start "
                "parallel trainings from another process, or train one run after the other"
            )
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
        return max(0, (self.max_workers or available_cores()) - len(self.busy))

    def submit(self, number: int, job: Job) -> None:
        """Start a job, in an idle process or a new one. The caller checks `free_workers` first.

        Args:
            number: Number of the job, unique among the running ones.
            job: Argument of the task, which must be picklable.
        """
        self.busy[number] = self.idle.pop() if self.idle else Worker(self.task)
        self.busy[number].submit(number, job)

    def request_stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs to stop early (`WorkerChannel.stop_requested`); each still has a last event.

        Args:
            numbers: Numbers of running jobs; all of them by default.
        """
        for number in list(self.busy) if numbers is None else numbers:
            self.busy[number].stop.value = True

    def events(self) -> Iterator[JobEvent]:
        """Wait up to `EVENT_TIMEOUT` for an event, and yield those that have arrived, at most one for each job.

        After the last event of a job, its process is idle, or closed if it has died.
        """
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
    max_workers: int = 0,
) -> Iterator[Result]:
    """Yield the results of jobs in order; by default, as many jobs run in parallel processes as there are cores.

    A single job, and all jobs of a single worker, run in this process, except within a block of `use_pool`.

    Args:
        task: Function at the top level of a module, called with a job and a callback for its progress.
        jobs: Arguments of the task, one for each job; jobs, messages and results must be picklable.
        on_progress: Function that is called with the number of a job, from 0, and each message about its progress; None
            for none.
        max_workers: Maximum number of processes; 0, the default, for one per core.

    Yields:
        One result for each job.

    Raises:
        Exception: The first error of a job, which kills all others: an `InputError` as the job raised it,
            `WorkerDiedError` for a killed process, `WorkerError` for any other exception. An exception of a job in this
            process is raised as it is.
    """
    report = on_progress or (lambda job, content: None)
    if uses_local_pool() and (len(jobs) == 1 or max_workers == 1):
        for index, only_job in enumerate(jobs):
            yield task(only_job, partial(report, index))
        return
    results: dict[int, Result] = {}
    waiting = iter(enumerate(jobs))
    with open_pool(partial(_run_with_callback, task), max_workers) as pool:
        for number in range(len(jobs)):
            while number not in results:
                for _, (index, job) in zip(range(pool.free_workers), waiting, strict=False):
                    pool.submit(index, job)
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


def execute_job(task: Callable[[Job, WorkerChannel], Any], job: Job, channel: WorkerChannel) -> JobResult | JobFailure:
    """Call a task with a job in a worker, and return the last event of the job.

    Args:
        task: Function that is called with the job and the channel.
        job: The job.
        channel: Channel of the worker, with the number of the job.
    """
    try:
        return JobResult(channel.number, task(job, channel))
    except InputError as error:
        return JobFailure(channel.number, error)
    except Exception:
        return JobFailure(channel.number, WorkerError(f"error in a worker process:\n{traceback.format_exc()}"))


def _run_worker(task: Callable[[Job, WorkerChannel], Any], connection: "Connection[Any, Any]", stop: StopFlag) -> None:
    """Run jobs one after another until the parent kills this process or ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)  # a forked process has the handler of its parent
    if hasattr(signal, "SIGHUP"):  # Windows has none. A terminal sends it to all: the parent stops this process
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent has ended
        while True:
            number, job = connection.recv()
            connection.send(execute_job(task, job, WorkerChannel(connection, number, stop)))


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
    guard = "a script that starts it needs if __name__ == '__main__', and cannot be standard input"
    return f"a worker process ended during a job (exit code {code}){f'; {guard}' if code == 1 else ''}"
