"""Jobs side by side, in processes of their own that end when their parent does, however it ends."""

import os
import signal
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from multiprocessing import Pipe, get_context, resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from types import TracebackType
from typing import Any, Generic, NamedTuple, TypeVar

from pellucid.errors import InputError

Job = TypeVar("Job")
Result = TypeVar("Result")

Tell = Callable[[object], None]
"""What a job says something with while it works."""
PATIENCE = 0.2
"""Seconds for which a parent listens before it looks after other things."""


class Told(NamedTuple):
    """A job under way says something."""

    job: int
    what: Any


class Done(NamedTuple):
    """A job is done, and this came out."""

    job: int
    result: Any


class Failed(NamedTuple):
    """A job has failed: an `InputError` is the user's to mend, a `ChildError` is not."""

    job: int
    error: Exception


Word = Told | Done | Failed


class ChildError(RuntimeError):
    """A mistake of the program in a process of its own, told with the traceback from there."""


class EndedError(InputError):
    """A process has ended in the middle of a job: somebody, or the system for want of memory, killed it."""


class Line:
    """What connects a job with the parent of its process."""

    def __init__(self, connection: "Connection[Any, Any]") -> None:
        """Nothing to do yet."""
        self.connection = connection
        self.jobs: SimpleQueue[Any] = SimpleQueue()
        self.stopping = False
        """Whether the parent wants the present job to come to an early end."""

    def tell(self, what: object) -> None:
        """Say something of the present job."""
        self.send(("told", what))

    def send(self, word: object) -> None:
        """Send to the parent; without one there is nothing left to do."""
        try:
            self.connection.send(word)
        except OSError:
            os._exit(1)

    def listen(self) -> None:
        """Hear, in a thread of its own, of jobs and of their early ends, until the parent is gone; then end at once."""
        try:
            while True:
                asked = self.connection.recv()
                # In the order in which they were sent: a job's early end is no word on the job after it.
                self.stopping = not asked
                if asked:
                    self.jobs.put(asked[0])
        except (EOFError, OSError):
            os._exit(1)


class Worker(NamedTuple):
    """A process, and the line to it."""

    process: BaseProcess
    connection: "Connection[Any, Any]"


class Workers(Generic[Job]):
    """Processes that do one kind of task, started when they are first needed; all end with the block.

    They do not hear Ctrl-C: the parent does, and decides.
    """

    def __init__(self, task: Callable[[Job, Line], Any], count: int) -> None:
        """At most `count` processes; `task` is a function of a module, and is given a job and its line."""
        self.task = task
        self.count = count
        self.idle: list[Worker] = []
        self.busy: dict[int, Worker] = {}

    def __enter__(self) -> "Workers[Job]":
        """No process is started yet."""
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        """End every process at once; who wants their jobs to end well has asked them to."""
        for worker in (*self.idle, *self.busy.values()):
            worker.process.kill()
        for worker in (*self.idle, *self.busy.values()):
            worker.process.join()
            worker.connection.close()

    @property
    def free(self) -> int:
        """How many more jobs can be begun now."""
        return self.count - len(self.busy)

    def give(self, number: int, job: Job) -> None:
        """Begin a job, under a number of its own."""
        worker = self.idle.pop() if self.idle else _start(self.task)
        self.busy[number] = worker
        try:
            worker.connection.send((job,))
        except OSError:
            return  # it is dead, which will be heard

    def stop(self, numbers: Iterable[int] | None = None) -> None:
        """Ask jobs, or all, to come to an early end; each says when it has."""
        for number in list(self.busy) if numbers is None else numbers:
            try:
                self.busy[number].connection.send(())
            except OSError:
                continue  # likewise

    def words(self) -> Iterator[Word]:
        """What is heard now, or within `PATIENCE`; nothing after that."""
        heard = wait([worker.connection for worker in self.busy.values()], PATIENCE)
        for number, worker in list(self.busy.items()):
            if worker.connection in heard:
                yield self._word(number, worker)

    def _word(self, number: int, worker: Worker) -> Word:
        """The next word of one process."""
        try:
            kind, what = worker.connection.recv()
        except (EOFError, OSError):
            del self.busy[number]
            worker.process.join()
            worker.connection.close()
            return Failed(number, EndedError(_ending(worker.process.exitcode)))
        if kind == "told":
            return Told(number, what)
        self.idle.append(self.busy.pop(number))
        return Done(number, what) if kind == "done" else Failed(number, what)


def cores() -> int:
    """How many cores this process may use: those that the scheduler allows it, where a system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def in_parallel(task: Callable[[Job], Result], jobs: Sequence[Job]) -> Iterator[Result]:
    """As `in_parallel_heard`, of a task that says nothing while it works."""
    return in_parallel_heard(partial(_silently, task), jobs, _unheard)


def in_parallel_heard(
    task: Callable[[Job, Tell], Result], jobs: Sequence[Job], heard: Callable[[int, Any], None]
) -> Iterator[Result]:
    """The results in the order of the jobs, as many at once as there are cores; a single job runs right here.

    What a job tells on its way is `heard` with its number. The first error of a job is raised here, and ends all
    others.
    """
    if len(jobs) == 1:
        yield task(jobs[0], partial(heard, 0))
        return
    results: dict[int, Result] = {}
    begun = given = 0
    with Workers[Job](partial(_along_a_line, task), cores()) as workers:
        while given < len(jobs):
            while workers.free and begun < len(jobs):
                workers.give(begun, jobs[begun])
                begun += 1
            for word in workers.words():
                if isinstance(word, Failed):
                    raise word.error
                if isinstance(word, Told):
                    heard(word.job, word.what)
                else:
                    results[word.job] = word.result
            while given in results:
                yield results.pop(given)
                given += 1


def _along_a_line(task: Callable[[Job, Tell], Result], job: Job, line: Line) -> Result:
    """A task that tells its parent."""
    return task(job, line.tell)


def _silently(task: Callable[[Job], Result], job: Job, tell: Tell) -> Result:
    """A task that says nothing while it works."""
    return task(job)


def _unheard(job: int, what: Any) -> None:  # noqa: ANN401 (a job may say anything)
    """Nothing is said."""


def _start(task: Callable[[Job, Line], Any]) -> Worker:
    """A process that waits for jobs. It is born deaf to Ctrl-C, which is held back from the parent meanwhile."""
    context = get_context("spawn")
    ours, theirs = Pipe()
    resource_tracker.ensure_running()  # starting it later would let signals through again
    former = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        process = context.Process(target=_work, args=(task, theirs), daemon=True)
        process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)
    theirs.close()  # so that the death of the process is heard
    return Worker(process, ours)


def _work(task: Callable[[Job, Line], Any], connection: "Connection[Any, Any]") -> None:
    """The life of a process: one job after the other, until its parent ends it or is gone."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    line = Line(connection)
    threading.Thread(target=line.listen, daemon=True).start()
    while True:
        job: Any = line.jobs.get()
        try:
            line.send(("done", task(job, line)))
        except InputError as error:
            line.send(("failed", error))
        except Exception:
            line.send(("failed", ChildError(f"in a process of its own:\n{traceback.format_exc()}")))


def _ending(code: int | None) -> str:
    """How a process ended, in words."""
    if code is not None and code < 0:
        memory = "; memory may have run out: fewer at once need less" if -code == signal.SIGKILL else ""
        return f"a process was ended by signal {-code} ({signal.strsignal(-code)}){memory}"
    return f"a process ended in the middle of its work (exit code {code})"
