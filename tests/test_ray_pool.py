"""Jobs as tasks of a Ray cluster, of one node in this test: results, errors, stops, killed workers, shared folders."""

import os
import re
import signal
import socket
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid.cli.serve import TOKEN_VARIABLE
from pellucid.cluster import ray_job, ray_pool
from pellucid.cluster.mailbox import DriverMailbox, JobMessage, Mailbox
from pellucid.cluster.ray_connection import ClusterError, ray_connection
from pellucid.cluster.ray_job import (
    LockedProbe,
    Outbox,
    RemoteStopFlag,
    Submission,
    check_shared,
    enter_folder,
    execute_when_unlocked,
    run_ray_job,
)
from pellucid.cluster.ray_pool import (
    JobResources,
    RayPool,
    SubmittedJob,
    WaitWarning,
    _last_event,
    job_environment,
    locked_probe,
    use_ray_pool,
)
from pellucid.errors import ConfigError, DataError, FolderInUseError, InputError, RunError
from pellucid.file_lock import try_lock
from pellucid.worker_pool import (
    JobEvent,
    JobFailure,
    JobPool,
    JobResult,
    ProgressCallback,
    ProgressMessage,
    WorkerChannel,
    WorkerError,
    WorkerPool,
    open_pool,
    parallel_map,
    use_pool,
    uses_local_pool,
)


def test_an_old_attempt_of_a_job_is_refused_and_its_messages_are_dropped() -> None:
    mailbox = Mailbox()
    assert (mailbox.begin(7, "a"), mailbox.exchange(7, 1, 0, [b"a"])) == (1, "continue")
    assert mailbox.begin(7, "b") == 2 and mailbox.list_machines() == {7: "b"}
    assert (mailbox.exchange(7, 1, 1, [b"b"]), mailbox.exchange(7, 2, 0, [b"c"])) == ("superseded", "continue")
    assert mailbox.take_messages(0) == [JobMessage(7, b"a"), JobMessage(7, b"c")] and mailbox.take_messages(2) == []
    assert mailbox.request_stop([7, 8]) == [8]
    assert mailbox.exchange(7, 2, 1, []) == "stop"


def test_calls_that_ray_repeats_neither_lose_nor_double_messages() -> None:
    mailbox = Mailbox()
    mailbox.begin(7, "a")
    for _ in range(2):
        mailbox.exchange(7, 1, 0, [b"a", b"b"])
    mailbox.exchange(7, 1, 2, [b"c"])
    for _ in range(2):
        assert mailbox.take_messages(0) == [JobMessage(7, content) for content in (b"a", b"b", b"c")]
    for _ in range(2):
        mailbox.exchange(7, 1, 3, [b"d"])
    assert mailbox.take_messages(3) == [JobMessage(7, b"d")]
    mailbox.report_failure(b"first")
    mailbox.report_failure(b"second")
    assert mailbox.read_failure() == mailbox.read_failure() == b"first"


def fail_while_locked(job: list[int], channel: WorkerChannel) -> str:
    """Fail as a training does in a locked folder, as often as the job says."""
    job[0] -= 1
    if job[0] >= 0:
        raise FolderInUseError("runs/a is in use: another training is writing to it")
    return "trained"


def test_a_job_waits_for_the_lock_of_its_run_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_job, "LOCK_PAUSE", 0.01)
    channel = WorkerChannel(_Sender(), 4, RemoteStopFlag())
    assert execute_when_unlocked(fail_while_locked, [3], channel) == JobResult(4, "trained")
    monkeypatch.setattr(ray_job, "MAX_LOCK_SECONDS", 0.05)
    event = execute_when_unlocked(fail_while_locked, [10**6], channel)
    assert isinstance(event, JobFailure) and isinstance(event.error, FolderInUseError)


class _Sender:
    """Connection that drops all messages."""

    def send(self, message: object, /) -> None:
        """Do nothing."""


def test_a_folder_that_is_not_shared_or_has_no_common_locks_is_refused(tmp_path: Path) -> None:
    shared, here = LockedProbe(tmp_path / "probe", tmp_path / "run", "head"), socket.gethostname()
    with pytest.raises(
        RunError, match=rf"run: the machine {here} does not see the files of the machine head \(no such"
    ):
        check_shared(shared)
    shared.path.touch()
    with pytest.raises(RunError, match=rf"locks on the file .* not shared between the machines head and {here}, so"):
        check_shared(shared)
    with open(shared.path, "r+b") as file:
        assert try_lock(file)
        check_shared(shared)
    with pytest.raises(RunError, match=rf"the machine {here} has no folder .*missing, the current folder of the com"):
        enter_folder(str(tmp_path / "missing"))


class _MailboxActor:
    """Mailbox in this process, with the interface of a handle of Ray."""

    def __init__(self) -> None:
        """Initialize with an empty mailbox."""
        self.mailbox = Mailbox()

    def __getattr__(self, name: str) -> object:
        """Return a method with the call `remote`."""
        return SimpleNamespace(remote=getattr(self.mailbox, name))


def test_a_machine_with_another_version_runs_no_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Outbox, "_get", lambda self, value, seconds: value)
    monkeypatch.setattr(ray_job, "_node_id", lambda: "node")
    submission = Submission(1, 4, None, str(tmp_path), None, 9.0)
    assert run_ray_job(lambda job, channel: "done", submission, _MailboxActor()) == JobResult(4, "done")
    event = run_ray_job(lambda job, channel: "done", submission._replace(version="0.0.1"), _MailboxActor())
    assert isinstance(event, JobFailure)
    assert re.fullmatch(r"the machine .* of Pellucid, and this command has 0\.0\.1: install .*", str(event.error))


def test_two_commands_with_one_run_leave_the_files_of_each_other(tmp_path: Path) -> None:
    stale = tmp_path / ".run-on-ray.00000000.tmp"
    stale.touch()
    with locked_probe(tmp_path / "run") as first:
        assert not stale.exists()
        with locked_probe(tmp_path / "run") as second:
            check_shared(first)
            check_shared(second)
        assert list(tmp_path.iterdir()) == [first.path]
    assert list(tmp_path.iterdir()) == []


def test_errors_of_a_command_are_not_taken_for_those_of_its_file(tmp_path: Path) -> None:
    with pytest.raises(BrokenPipeError), locked_probe(tmp_path / "run"):
        raise BrokenPipeError
    with pytest.raises(RunError, match=r"^cannot write .*\.x{240}-on-ray"), locked_probe(tmp_path / ("x" * 240)):
        pass


def test_the_token_of_serve_is_not_given_to_a_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Regression test: Ray stores the variables of a job, and shows them."""
    monkeypatch.setenv("PELLUCID_PLAIN", "1")
    monkeypatch.setenv(TOKEN_VARIABLE, "secret")
    assert job_environment()["PELLUCID_PLAIN"] == "1" and "secret" not in job_environment().values()


def test_no_worker_is_free_if_fewer_than_the_running_jobs_are_left() -> None:
    pool = RayPool.__new__(RayPool)
    pool.max_workers, pool._slots = 0, (time.monotonic(), 1)
    pool.busy = {number: SubmittedJob(number, number, None, None) for number in range(2)}
    assert pool.free_workers == 0
    local = WorkerPool[int](print, 1)
    local.busy = dict.fromkeys(range(2))  # type: ignore[assignment]
    assert local.free_workers == 0


class _LocalMailbox(DriverMailbox):
    """Mailbox without an actor."""

    def __init__(self, mailbox: Mailbox) -> None:
        """Use a mailbox of this process."""
        self.mailbox = mailbox

    def call(self, method: str, *arguments: object) -> object:
        """Return the answer of a method."""
        return getattr(self.mailbox, method)(*arguments)


@pytest.fixture
def stopping(monkeypatch: pytest.MonkeyPatch) -> tuple[RayPool, Mailbox, list[int]]:
    """Return a pool of four jobs, its mailbox, and a list of started ones; 1 to 3 have begun, 1 and 2 are stopping."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cancel=lambda reference, force=False: None))
    pool, mailbox, started = RayPool.__new__(RayPool), Mailbox(), list[int]()
    pool._mailbox = _LocalMailbox(mailbox)
    monkeypatch.setattr(pool, "_start_task", lambda number, submission_number, job: started.append(number))
    pool._stopping = dict[int, float]()
    pool.busy = {number: SubmittedJob(number, 10 + number, None, None) for number in (1, 2, 3, 4)}
    for number in (1, 2, 3):
        mailbox.begin(10 + number, "dead")
    pool.request_stop([1, 2])
    return pool, mailbox, started


def test_a_stopping_job_that_has_lost_its_process_is_ended(stopping: tuple[RayPool, Mailbox, list[int]]) -> None:
    pool, mailbox, _ = stopping
    later = time.monotonic() + 100
    assert pool._end_silent_jobs(time.monotonic()) == []
    mailbox.last_call_at[11] -= 100
    mailbox.last_call_at[13] -= 100  # it is not stopping
    assert pool._end_silent_jobs(later) == [JobResult(1, None)] and set(pool.busy) == {2, 3, 4}
    pool.request_stop()
    pool.request_stop()
    assert pool._end_silent_jobs(time.monotonic()) == []
    assert pool._end_silent_jobs(later) == [JobResult(3, None), JobResult(4, None)]


def test_a_command_whose_jobs_do_not_begin_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    mailbox = Mailbox()
    monkeypatch.setattr(ray_pool, "WAIT_SECONDS", 0.0)
    warning, later = WaitWarning(), WaitWarning()
    with pytest.warns(UserWarning, match="no process has begun on the Ray cluster for 0 seconds"):
        warning.check(_LocalMailbox(mailbox))
    warning.check(_LocalMailbox(mailbox))
    mailbox.begin(1, "node")
    later.check(_LocalMailbox(mailbox))


def test_a_stopping_job_of_a_dead_machine_is_not_started_again(stopping: tuple[RayPool, Mailbox, list[int]]) -> None:
    pool, _, started = stopping
    pool._restart_lost_jobs(["dead"])
    assert started == [3, 4]


def test_the_pool_is_chosen_in_one_place() -> None:
    class _OtherPool(WorkerPool[int]):
        """Another pool."""

    assert uses_local_pool() and isinstance(open_pool(print, 1), WorkerPool)
    with use_pool(_OtherPool):
        assert not uses_local_pool() and isinstance(open_pool(print, 1), _OtherPool)
    assert uses_local_pool() and isinstance(_OtherPool(print, 1), JobPool)


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    """Connect to a cluster of this machine alone, whose workers can import this module."""
    pytest.importorskip("ray")
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", path)
        with ray_connection("test", "local"):
            yield


def square(number: int, report: ProgressCallback) -> int:
    """Report and return the square of a number."""
    report(f"{number} begins")
    return number * number


def fail(name: str, report: ProgressCallback) -> None:
    """Fail in the way that the name says."""
    if name == "input":
        raise DataError("line 3 is wrong")
    raise KeyError("oh")


def count_until_stopped(folder: Path, channel: WorkerChannel) -> str:
    """Write a file, and report increasing numbers until a stop is requested; kill the process in its first attempt."""
    first = not (folder / "begun").exists()
    (folder / "begun").touch()
    number = 0
    while not channel.stop_requested:
        channel.send_progress(number)
        number += 1
        time.sleep(0.05)
        if first and number == 20:
            os.kill(os.getpid(), signal.SIGKILL)
    return f"stopped in the {'first' if first else 'second'} attempt"


def sleep(seconds: float, channel: WorkerChannel) -> float:
    """Report and sleep."""
    channel.send_progress("begun")
    time.sleep(seconds)
    return seconds


@pytest.mark.usefixtures("cluster")
def test_results_are_in_order_with_their_messages(tmp_path: Path) -> None:
    messages = list[tuple[int, object]]()
    with use_ray_pool(JobResources(), tmp_path / "new" / "run"):
        results = list(parallel_map(square, [3, 1, 2], lambda job, content: messages.append((job, content))))
        assert [path.name[:12] for path in tmp_path.iterdir()] == [".run-on-ray."]
    assert results == [9, 1, 4] and sorted(messages) == [(0, "3 begins"), (1, "1 begins"), (2, "2 begins")]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("cluster")
@pytest.mark.parametrize(("name", "kind", "message"), [("input", DataError, "^line 3"), ("bug", WorkerError, "oh")])
def test_errors_of_jobs_are_raised(name: str, kind: type[InputError], message: str) -> None:
    with use_ray_pool(JobResources(), None), pytest.raises(kind, match=message):
        list(parallel_map(fail, [name]))


def test_a_machine_without_a_package_is_no_bug(monkeypatch: pytest.MonkeyPatch) -> None:
    ray = pytest.importorskip("ray")
    text = "Traceback (most recent call last):\nModuleNotFoundError: No module named 'pellucid'"
    missing = ray.exceptions.RayTaskError("run_ray_job", text, RuntimeError(), "ray::job", 5, "10.0.0.3")

    def get(reference: object) -> None:
        raise missing

    monkeypatch.setattr(ray, "get", get)
    event = _last_event(SubmittedJob(3, 1, None, None))
    assert isinstance(event, JobFailure) and isinstance(event.error, ClusterError)
    assert "ModuleNotFoundError: No module named 'pellucid'" in str(event.error)


@pytest.mark.usefixtures("cluster")
def test_a_killed_worker_is_replaced_and_stops_on_request(tmp_path: Path) -> None:
    with RayPool(count_until_stopped, 1, JobResources()) as pool:
        pool.submit(5, tmp_path)
        assert pool.free_workers == 0
        events = list[JobEvent]()
        while pool.busy and [event.content for event in events if isinstance(event, ProgressMessage)].count(3) < 2:
            events += pool.events()
        pool.request_stop()
        while pool.busy:
            events += pool.events()
    assert events[-1] == JobResult(5, "stopped in the second attempt")


@pytest.mark.usefixtures("cluster")
def test_a_job_that_has_not_begun_is_canceled(monkeypatch: pytest.MonkeyPatch) -> None:
    import ray

    cpus = int(ray.cluster_resources()["CPU"])
    with RayPool(sleep, cpus + 1, JobResources()) as pool:
        for number in range(cpus + 1):
            pool.submit(number, 600)
        events = list[JobEvent]()
        while len(events) < cpus:
            events += pool.events()
        begun = {event.job for event in events if isinstance(event, ProgressMessage)}
        (waiting,) = {*range(cpus + 1)} - begun
        pool.request_stop([waiting])
        while len(events) <= cpus:
            events += pool.events()
        assert events[-1] == JobResult(waiting, None) and set(pool.busy) == begun


@pytest.mark.usefixtures("cluster")
def test_a_job_too_large_for_every_machine_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"the Ray cluster has 1,000 CPUs, which each job needs \(--threads 1000\)"):
        RayPool(sleep, 0, JobResources(1000))
    with pytest.raises(ConfigError, match=r"has 1 CPU and 1,000 GPUs, .* \(--threads 1 --device cuda\)"):
        RayPool(sleep, 0, JobResources(1, 1000))
    factory = partial(RayPool, resources=JobResources(), shared=None)
    with use_pool(factory):
        assert isinstance(open_pool(sleep, 2), JobPool)
    assert ray_pool.count_slots(JobResources()) >= 1
