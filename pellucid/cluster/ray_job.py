"""A job in a worker process of a Ray cluster: its messages, its stop flag, and the checks of its machine."""

import os
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.reduction import ForkingPickler
from pathlib import Path
from typing import IO, Any, NamedTuple

from pellucid.cluster.mailbox import Reply
from pellucid.cluster.ray_connection import ClusterError
from pellucid.errors import FolderInUseError, InputError, RunError
from pellucid.file_lock import try_lock
from pellucid.files import os_error_text
from pellucid.version import __version__
from pellucid.worker_pool import (
    JobFailure,
    JobResult,
    ProgressMessage,
    WorkerChannel,
    WorkerDiedError,
    execute_job,
)

EXCHANGE_SECONDS = 0.25
"""Seconds between two exchanges of messages."""
BEGIN_SECONDS = 120.0
"""Seconds within which the mailbox must answer for the first time; the job holds no lock before."""
MAX_LOCK_SECONDS = 180.0
"""Seconds for which a job waits for the lock of its run folder. A server of NFS 4 releases the locks of a machine that
has died after 90 seconds, unless it is set up otherwise."""
LOCK_PAUSE = 3.0
"""Seconds between two attempts to take the lock."""
MAX_JOB_STARTS = 10
"""Maximum number of starts of a job whose process is killed or whose machine fails."""
DEATH_ADVICE = (
    f"was killed {MAX_JOB_STARTS} times, perhaps for lack of memory, or its machines failed; if memory is short, start "
    "Ray with fewer CPUs per machine (ray start --num-cpus N)"
)
"""End of the message for a process that is not started again."""
Task = Callable[[Any, WorkerChannel], Any]


class LockedProbe(NamedTuple):
    """A file that the process which starts the jobs holds locked, to check that machines share its folder."""

    path: Path
    run: Path
    """Run folder, for messages."""
    machine: str = socket.gethostname()
    """Machine of that process, for messages."""


class Submission(NamedTuple):
    """A job as it is sent to a cluster."""

    submission_number: int
    """Number of the submission."""
    job_number: int
    """Number of the job."""
    job: Any
    """Argument of the task."""
    folder: str
    """Current folder of the process that submits the job, to which relative paths refer."""
    shared: LockedProbe | None
    """File to check; None for jobs without run folders."""
    max_silence: float
    """Seconds without an answer of the mailbox after which the worker process ends."""
    version: str = __version__
    """Version of Pellucid of the process that submits the job."""


class RemoteStopFlag:
    """Stop flag of a job, which its outbox sets."""

    value = False
    """True if the job should stop."""


class Outbox:
    """Sends the messages of a job in a thread, and receives the request to stop. It is a context manager.

    A worker that gets no answer for some time ends its process at once: its machine is cut off, or the process that has
    started the job has died, and its run folder may be given to another worker.
    """

    def __init__(self, mailbox: Any, submission_number: int, max_silence: float) -> None:  # noqa: ANN401 (a handle of Ray)
        """Initialize without sending anything.

        Args:
            mailbox: Handle of the `Mailbox`.
            submission_number: Number of the submission.
            max_silence: Seconds without an answer after which the process ends.
        """
        self.mailbox = mailbox
        self.submission_number = submission_number
        self.max_silence = max_silence
        self.stop = RemoteStopFlag()
        self.attempt = 0
        """Number of the attempt, from 1, within the block."""
        self._contents = list[bytes]()
        self._num_sent = 0
        self._lock = threading.Lock()
        self._begun, self._ended = threading.Event(), threading.Event()
        # Calls of Ray in the main thread would give the CPUs of the job to others while they wait.
        self._thread = threading.Thread(target=self._exchange_messages, name="pellucid-outbox", daemon=True)

    def __enter__(self) -> "Outbox":
        """Begin the attempt, and return the outbox."""
        self._thread.start()
        self._begun.wait()
        return self

    def __exit__(self, *_: object) -> None:
        """Send the last messages."""
        self._ended.set()
        self._thread.join()

    def send(self, message: ProgressMessage, /) -> None:
        """Send a message with the next exchange.

        Args:
            message: The message, of which the content must be picklable.
        """
        content = bytes(ForkingPickler.dumps(message.content))
        with self._lock:
            self._contents.append(content)

    def _exchange_messages(self) -> None:
        """Exchange messages until the block ends; end the process if the mailbox cannot be reached."""
        try:
            self.attempt = self._get(self.mailbox.begin.remote(self.submission_number, _node_id()), BEGIN_SECONDS)
            self._begun.set()
            while not self._ended.wait(EXCHANGE_SECONDS):
                self._exchange()
            self._exchange()
        except Exception:  # errors of Ray; the process that started the job is gone, or the network is
            os._exit(1)

    def _exchange(self) -> None:
        """Send the messages, and act on the reply."""
        with self._lock:
            contents, self._contents = self._contents, []
        exchanged = self.mailbox.exchange.remote(self.submission_number, self.attempt, self._num_sent, contents)
        reply: Reply = self._get(exchanged, self.max_silence)
        self._num_sent += len(contents)
        if reply == "superseded":
            os._exit(1)
        self.stop.value = reply == "stop"

    def _get(self, reference: Any, seconds: float) -> Any:  # noqa: ANN401 (a reference of Ray and its value)
        """Return the answer of the mailbox, which must come within a number of seconds."""
        import ray

        return ray.get(reference, timeout=seconds)


def _node_id() -> str:
    """Return the node of Ray where this process runs."""
    import ray

    node: str = ray.get_runtime_context().get_node_id()
    return node


def run_ray_job(task: Task, submission: Submission, mailbox: Any) -> JobResult | JobFailure:  # noqa: ANN401
    """Run a job in this worker process, in the folder of the process that has submitted it.

    Args:
        task: Function at the top level of a module, called with the job and a channel.
        submission: The job.
        mailbox: Handle of the `Mailbox`.

    Returns:
        Last event of the job.
    """
    with Outbox(mailbox, submission.submission_number, submission.max_silence) as outbox:
        channel = WorkerChannel(outbox, submission.job_number, outbox.stop)
        try:
            if outbox.attempt > MAX_JOB_STARTS:
                raise WorkerDiedError(f"the process of a job {DEATH_ADVICE}")
            prepare_process(submission)
        except InputError as error:
            return JobFailure(submission.job_number, error)
        return execute_when_unlocked(task, submission.job, channel)


def execute_when_unlocked(task: Task, job: object, channel: WorkerChannel) -> JobResult | JobFailure:
    """Run a job; as long as another process holds the lock of its run folder, wait and try again.

    An earlier attempt may still be ending, or its machine may have died without releasing the lock.

    Args:
        task: Function that is called with the job and the channel.
        job: The job.
        channel: Channel of the job.

    Returns:
        Last event of the job: a failure if the lock is not free after `MAX_LOCK_SECONDS`, or after a request to stop.
    """
    deadline = time.monotonic() + MAX_LOCK_SECONDS
    while True:
        event = execute_job(task, job, channel)
        if not (isinstance(event, JobFailure) and isinstance(event.error, FolderInUseError)):
            return event
        if time.monotonic() > deadline or channel.stop_requested:
            return event
        time.sleep(LOCK_PAUSE)


def prepare_process(submission: Submission) -> None:
    """Check that this machine suits a job, and enter its folder.

    Args:
        submission: The job.

    Raises:
        ClusterError: This machine has another version of Pellucid.
        RunError: It does not share the current folder or the run folder of the process that has submitted the job.
    """
    check_version(submission.version)
    enter_folder(submission.folder)
    if submission.shared is not None:
        check_shared(submission.shared)


def check_version(version: str) -> None:
    """Check that this machine has the version of Pellucid of the process that has submitted a job.

    Args:
        version: That version.

    Raises:
        ClusterError: This machine has another one.
    """
    if version != __version__:
        raise ClusterError(
            f"the machine {socket.gethostname()} has version {__version__} of Pellucid, and this command has "
            f"{version}: install the same version on all machines"
        )


def enter_folder(folder: str) -> None:
    """Make a folder the current one, to which relative paths refer.

    Args:
        folder: The folder.

    Raises:
        RunError: This machine does not have it.
    """
    try:
        os.chdir(folder)
    except OSError as error:
        raise RunError(
            f"the machine {socket.gethostname()} has no folder {folder}, the current folder of the command "
            f"({os_error_text(error)}): all machines need it at the same path"
        ) from error


def check_shared(shared: LockedProbe) -> None:
    """Check that this machine sees the folder of a run as the process that started the job does, with its locks.

    Args:
        shared: File of that process.

    Raises:
        RunError: The file is missing, or its lock is not seen.
    """
    here = socket.gethostname()
    try:
        file = open(shared.path, "r+b")  # noqa: SIM115 (closed below)
    except OSError as error:
        raise RunError(
            f"{shared.run}: the machine {here} does not see the files of the machine {shared.machine} "
            f"({os_error_text(error)}); --on ray needs a folder on a file system that all machines share, at the same "
            "path"
        ) from error
    with file:
        if _is_lock_granted(file):
            raise RunError(
                f"locks on the file system of {shared.run} are not shared between the machines {shared.machine} and "
                f"{here}, so that two commands could write to it: mount it with NFS version 4, without the "
                "options nolock and local_lock"
            )


def _is_lock_granted(file: IO[bytes]) -> bool:
    """Return whether a lock that another machine holds is granted here, too; True if the file system has no locks."""
    try:
        return try_lock(file)
    except OSError:
        return True
