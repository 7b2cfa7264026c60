"""Run jobs side by side, each in a process of its own that ends when its parent does, however it ends.

`concurrent.futures.ProcessPoolExecutor` and `multiprocessing.Pool` do not do what trainings need. A killed process
fails the other jobs of an executor too, and a pool waits for it for ever. The first error waits for the jobs that run.
Processes survive a killed parent, and Ctrl-C reaches them. So the processes here are plain ones of `multiprocessing`,
each with a pipe.
"""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from ctypes import c_bool
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.connection import Connection, wait
from typing import Any, Generic, Literal, NamedTuple, TypeVar

from pellucid.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

ProgressCallback = Callable[[object], None]
"""What a job calls with a message about its progress."""
START_METHOD: Literal["spawn", "fork"] = "spawn"
"""How `multiprocessing` starts a worker. Threads and a GPU do not survive a fork; a process without both may fork."""
EVENT_TIMEOUT = 0.2
"""Seconds for which a parent waits for events before it looks after other things."""


class ProgressMessage(NamedTuple):
    """A message of a job that is running."""

    job: int
    content: Any


class JobResult(NamedTuple):
    """The return value of a job that has ended."""

    job: int
    value: Any


class JobFailure(NamedTuple):
    """The error of a job: an `InputError` is the user's to mend, a `WorkerError` is not."""

    job: int
    error: Exception


JobEvent = ProgressMessage | JobResult | JobFailure


class WorkerError(RuntimeError):
    """A mistake of the program in a worker process, with the traceback from there."""


class WorkerDiedError(InputError):
    """A worker process ended in the middle of a job: somebody, or the system for want of memory, killed it."""


class WorkerChannel(NamedTuple):
    """What connects a job with the parent of its process."""

    connection: "Connection[Any, Any]"
    number: int
    stop: Any
    """A flag in memory that parent and worker share, without a lock that a killed process could hold for ever."""

    @property
    def stop_requested(self) -> bool:
        """Whether the parent asks the job to end early."""
        return bool(self.stop.value)

    def send_progress(self, content: object) -> None:
        """Send a message about the job."""
        self.connection.send(ProgressMessage(self.number, content))


class Worker:
    """A worker process, as its parent sees it."""

    def __init__(self, task: Callable[[Any, WorkerChannel], Any]) -> None:
        """Start the process. SIGINT is blocked meanwhile: the process inherits that, and then ignores the signal."""
        context = get_context("fork") if START_METHOD == "fork" else get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.stop = context.RawValue(c_bool)
        resource_tracker.ensure_running()  # starting it later would unblock the signal
        former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            self.process = context.Process(target=_run_worker, args=(task, theirs, self.stop), daemon=True)
            self.process.start()
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, former)
        theirs.close()  # so that the death of the process ends the connection

    def submit(self, number: int, job: object) -> None:
        """Send a job; that the process is dead is an event of the job."""
        self.stop.value = False
        with suppress(OSError):
            self.connection.send((number, job))

    def receive(self, number: int) -> JobEvent:
        """Return the next event of its job."""
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
    """Worker processes for one kind of task, started when they are first needed; leaving the block kills them.

    They ignore Ctrl-C: the parent gets it, and decides.
    """

    def __init__(self, task: Callable[[Job, WorkerChannel], Any], max_workers: int) -> None:
        """`task` is a function of a module; it is called with a job and the worker's channel."""
        self.task = task
        self.max_workers = max_workers
        self.idle: list[Worker] = []
        self.busy: dict[int, Worker] = {}

    def __enter__(self) -> "WorkerPool[Job]":
        """Start no process yet."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill every process. To let jobs end by themselves, request it and wait for their last events before."""
        for worker in (*self.idle, *self.busy.values()):
            worker.close()

    @property
    def free_workers(self) -> int:
        """How many more jobs can be submitted now."""
        return self.max_workers - len(self.busy)

    def submit(self, number: int, job: Job) -> None:
        """Start a job under a number of its own."""
        self.busy[number] = self.idle.pop() if self.idle else Worker(self.task)
        self.busy[number].submit(number, job)

    def request_stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs, or all, to end early; each has a last event when it does."""
        for number in list(self.busy) if numbers is None else numbers:
            self.busy[number].stop.value = True

    def events(self) -> Iterator[JobEvent]:
        """Yield the events that are there now or within `EVENT_TIMEOUT`, one of each job at most."""
        ready = wait([worker.connection for worker in self.busy.values()], EVENT_TIMEOUT)
        for number, worker in list(self.busy.items()):
            if worker.connection in ready:
                event = worker.receive(number)
                if not isinstance(event, ProgressMessage):
                    del self.busy[number]
                    self.idle += [] if worker.connection.closed else [worker]
                yield event


def available_cores() -> int:
    """Return how many cores this process may use: those that the scheduler allows it, where a system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def parallel_map(
    task: Callable[[Job, ProgressCallback], Result],
    jobs: Sequence[Job],
    on_progress: Callable[[int, Any], None] | None = None,
) -> Iterator[Result]:
    """Yield the results in the order of the jobs, as many of which run at once as there are cores.

    A single job runs in this process. The first error of a job is raised, and kills all others.

    Args:
        task: A function of a module; it is called with a job and a callback for its progress.
        jobs: What the task is called with.
        on_progress: Called with the number of a job and each message about its progress.
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
    """Call a task that reports no progress; `partial(ignore_progress, task)` is one for `parallel_map`."""
    return task(job)


def _run_with_callback(task: Callable[[Job, ProgressCallback], Result], job: Job, channel: WorkerChannel) -> Result:
    """Call a task of `parallel_map` in a worker."""
    return task(job, channel.send_progress)


def _run_worker(task: Callable[[Job, WorkerChannel], Any], connection: "Connection[Any, Any]", stop: object) -> None:
    """Do one job after the other, until the parent kills this process or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_exit_with_parent, daemon=True).start()
    with suppress(EOFError, OSError):  # the parent is gone
        while True:
            number, job = connection.recv()
            try:
                event: JobEvent = JobResult(number, task(job, WorkerChannel(connection, number, stop)))
            except InputError as error:
                event = JobFailure(number, error)
            except Exception:
                event = JobFailure(number, WorkerError(f"in a process of its own:\n{traceback.format_exc()}"))
            connection.send(event)


def _exit_with_parent() -> None:
    """End this process at once when its parent has ended, also in the middle of a job."""
    parent = parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _exit_message(code: int | None) -> str:
    """Return how a process ended, in words."""
    if code is not None and code < 0:
        memory = "; memory may have run out: fewer at once need less" if -code == signal.SIGKILL else ""
        return f"a process was ended by signal {-code} ({signal.strsignal(-code)}){memory}"
    return f"a process ended in the middle of its work (exit code {code})"
