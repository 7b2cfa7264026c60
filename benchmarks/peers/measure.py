"""Running a command as a child and measuring it: processor seconds, wall seconds, memory, updates."""

import contextlib
import itertools
import os
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CLOCK = Path(__file__).parent / "clock"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
OFFLINE = {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
POLL_SECONDS = 0.05
TAIL = 12
"""Last lines of a failed command's output that are kept."""


class Command(NamedTuple):
    """What is run."""

    arguments: Sequence[str]
    folder: Path
    environment: Mapping[str, str] = {}
    stdin: Path | None = None
    stdout: Path | None = None
    """Where standard output goes; to the log, with standard error, if it is None."""


class Tick(NamedTuple):
    """An update: the monotonic clock and the processor seconds when it was made."""

    wall: float
    cpu: float


class Outcome(NamedTuple):
    """What a command cost: all processes that it started are counted in."""

    cpu: float
    """Processor seconds, user and system."""
    wall: float
    peak_mib: float
    """Largest resident set of one of its processes."""
    began: float
    """The monotonic clock at its start."""
    log: str
    ticks: Sequence[Tick]


class FailedError(Exception):
    """A command did not do what it should: the reason, for the table."""


class StoppedError(Exception):
    """The whole benchmark was told to stop."""


class Children:
    """The children that are running, so that none outlives the benchmark."""

    def __init__(self) -> None:
        """None yet."""
        self.running: set[int] = set()
        self.stopped = False

    def stop(self) -> None:
        """End all of them, and start no more."""
        self.stopped = True
        for child in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


CHILDREN = Children()


def run_command(command: Command, log: Path, limit: float, core: int | None = None) -> Outcome:
    """Run to the end and measure. `FailedError` with the last lines of the output if it fails or takes too long."""
    if CHILDREN.stopped:
        raise StoppedError
    log.parent.mkdir(parents=True, exist_ok=True)
    ticks = log.with_suffix(".ticks")
    ticks.unlink(missing_ok=True)
    began = time.monotonic()
    process = _start(command, log, ticks)
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    CHILDREN.running.add(process.pid)
    status, usage = _wait(process, began + limit)
    CHILDREN.running.discard(process.pid)
    if CHILDREN.stopped:
        raise StoppedError
    wall = time.monotonic() - began
    text = log.read_text("utf-8", errors="replace")
    if status is None:
        raise FailedError(f"stopped after {limit:.0f} s; {tail(text)}")
    if code := os.waitstatus_to_exitcode(status):
        raise FailedError(f"exit code {code}; {tail(text)}")
    cpu = usage.ru_utime + usage.ru_stime
    return Outcome(cpu, wall, usage.ru_maxrss / 1024, began, text, read_ticks(ticks))


def tail(text: str) -> str:
    """The last lines of an output, blank ones left out."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(line[:300] for line in lines[-TAIL:])


def environment(command: Command, ticks: Path) -> dict[str, str]:
    """The environment of a child: one thread, nothing from outside, the clock of updates."""
    own = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    own |= dict.fromkeys(THREADS, "1") | OFFLINE | {"PEERS_TICKS": str(ticks)} | dict(command.environment)
    paths = [str(CLOCK), *filter(None, [command.environment.get("PYTHONPATH")])]
    return own | {"PYTHONPATH": os.pathsep.join(paths)}


def read_ticks(path: Path) -> list[Tick]:
    """The updates that a child has written down; none if it made none."""
    if not path.exists():
        return []
    return [Tick(*map(float, line.split())) for line in path.read_text().splitlines()]


def rates(ticks: Sequence[Tick], block: int, batch: int) -> list[float]:
    """Samples a processor second of each whole block of updates after the first block, which is warming up."""
    marks = [tick.cpu for tick in ticks[max(block, 2) - 1 :: block]]
    return [block * batch / (end - start) for start, end in itertools.pairwise(marks) if end > start]


def median_rate(found: Sequence[float]) -> float:
    """The rate that counts. `FailedError` if there is none."""
    if not found:
        raise FailedError("too few updates were seen for a rate")
    return statistics.median(found)


def _start(command: Command, log: Path, ticks: Path) -> subprocess.Popen[bytes]:
    """Start the child, in a session of its own."""
    with (
        open(log, "wb") as errors,
        open(command.stdin or os.devnull, "rb") as given,
        open(command.stdout or os.devnull, "wb") as output,
    ):
        return subprocess.Popen(
            list(command.arguments),
            cwd=command.folder,
            env=environment(command, ticks),
            stdin=given,
            stdout=output if command.stdout else errors,
            stderr=errors,
            start_new_session=True,
        )


def _wait(process: subprocess.Popen[bytes], deadline: float) -> tuple[int | None, "resource.struct_rusage"]:
    """Wait for the child and all it waited for; past the deadline, end its session. None tells of that."""
    late = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return (None if late else status), usage
        if time.monotonic() > deadline and not late:
            late = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
