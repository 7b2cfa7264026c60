"""Worker processes run jobs in parallel, keep their order, report errors and stop."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from pellucid import worker_pool
from pellucid.errors import DataError, RunError
from pellucid.worker_pool import (
    JobFailure,
    JobResult,
    ProgressCallback,
    ProgressMessage,
    WorkerChannel,
    WorkerDiedError,
    WorkerError,
    WorkerPool,
    available_cores,
    parallel_map,
)

WAITING_PROGRAM = """
import sys, time
from pellucid.worker_pool import parallel_map
import test_worker_pool
if __name__ == "__main__":
    list(parallel_map(test_worker_pool.sleep_and_report, [60, 60]))
"""


def square_with_process(number: int, report: ProgressCallback) -> tuple[int, int]:
    """Return the square and the id of the process."""
    return number * number, os.getpid()


def sleep_and_report(seconds: float, report: ProgressCallback) -> float:
    """Print the id of the process and sleep."""
    os.write(1, f"{os.getpid()}\n".encode())  # one write; print would write the line end separately
    time.sleep(seconds)
    return seconds


def fail(name: str, report: ProgressCallback) -> None:
    """Fail in the way that the name says; other names sleep."""
    if name == "input":
        raise DataError("line 3 is wrong")
    if name == "mistake":
        raise KeyError("oh")
    if name == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(60)


def count_until_stopped(job: str, channel: WorkerChannel) -> str:
    """Report increasing numbers until a stop is requested."""
    number = 0
    while not channel.stop_requested:
        channel.send_progress(number)
        number += 1
        time.sleep(0.001)
    return f"{job} came to an end"


def test_results_are_in_job_order() -> None:
    results = list(parallel_map(square_with_process, range(7)))
    assert [result for result, _ in results] == [number * number for number in range(7)]
    assert os.getpid() not in {process for _, process in results}
    assert len({process for _, process in results}) <= available_cores()


def test_single_job_runs_in_this_process() -> None:
    assert list(parallel_map(square_with_process, [3])) == [(9, os.getpid())]
    assert list(parallel_map(square_with_process, [])) == []
    assert list(parallel_map(square_with_process, [2, 3], max_workers=1)) == [(4, os.getpid()), (9, os.getpid())]
    assert len({process for _, process in parallel_map(square_with_process, range(9), max_workers=2)}) <= 2


@pytest.mark.parametrize(
    ("name", "kind", "message"),
    [
        ("input", DataError, "^line 3 is wrong$"),
        ("mistake", WorkerError, "KeyError: 'oh'"),
        ("killed", WorkerDiedError, "killed by signal 9 .*memory"),
    ],
)
def test_error_of_a_job_ends_the_others(
    monkeypatch: pytest.MonkeyPatch, name: str, kind: type[Exception], message: str
) -> None:
    monkeypatch.setattr(worker_pool, "available_cores", lambda: 2)
    start = time.monotonic()
    with pytest.raises(kind, match=message):
        list(parallel_map(fail, ["wait", name]))
    assert time.monotonic() - start < 50


def test_worker_stops_a_job_on_request_and_runs_the_next() -> None:
    with WorkerPool[str](count_until_stopped, 1) as pool:
        for number, job in enumerate(("first", "second")):
            pool.submit(number, job)
            assert pool.free_workers == 0
            progress: list[object] = []
            while len(progress) < 3:
                progress += [event.content for event in pool.events() if isinstance(event, ProgressMessage)]
            assert progress[:3] == [0, 1, 2]
            pool.request_stop()
            pool.request_stop([number])
            events: list[object] = []
            while pool.busy:
                events += pool.events()
            assert events[-1] == JobResult(number, f"{job} came to an end")
        assert len(pool.idle) == 1


def test_killed_worker_is_reported_and_replaced() -> None:
    with WorkerPool[str](count_until_stopped, 1) as pool:
        pool.submit(0, "first")
        while not any(isinstance(event, ProgressMessage) for event in pool.events()):
            pass
        pool.busy[0].process.kill()
        events: list[object] = []
        while pool.busy:
            events += pool.events()
        assert isinstance(events[-1], JobFailure) and isinstance(events[-1].error, WorkerDiedError)
        pool.submit(1, "second")
        assert any(isinstance(event, ProgressMessage) for _ in range(100) for event in pool.events())


def is_alive(process: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
@pytest.mark.parametrize("stop_signal", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_no_worker_outlives_its_parent(tmp_path: Path, stop_signal: signal.Signals) -> None:
    (tmp_path / "waiting.py").write_text(WAITING_PROGRAM)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[1])])
    parent = subprocess.Popen(
        [sys.executable, "waiting.py"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with parent:
        assert parent.stdout is not None
        children = [int(parent.stdout.readline()) for _ in range(min(2, available_cores()))]
        parent.send_signal(stop_signal)
        parent.wait(20)
        for _ in range(1000):
            if not any(map(is_alive, children)):
                break
            time.sleep(0.01)
        assert not any(map(is_alive, children))


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no affinities")
def test_available_cores_respect_the_affinity() -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        assert available_cores() == 1
    finally:
        os.sched_setaffinity(0, allowed)
    assert available_cores() == len(allowed)


def test_a_daemonic_process_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker_pool, "current_process", lambda: SimpleNamespace(daemon=True))
    with pytest.raises(RunError, match=r"this process is daemonic, .*: start parallel trainings from another process"):
        WorkerPool(print, 1)
