"""Measurement of a command in a child process: CPU seconds, wall seconds, memory and updates."""

import contextlib
import itertools
import os
import resource
import signal
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

CLOCK = Path(__file__).parent / "clock"
THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "NUMBA_NUM_THREADS")
OFFLINE = {"CUDA_VISIBLE_DEVICES": "", "WANDB_MODE": "disabled", "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
POLL_SECONDS = 0.05
NUM_LAST_LINES = 12
"""Number of last lines of the output of a failed command in its error message."""


class Command(NamedTuple):
    """A command with its environment and files."""

    arguments: Sequence[str]
    folder: Path
    """Working directory."""
    environment: Mapping[str, str] = {}
    stdin: Path | None = None
    stdout: Path | None = None
    """File of standard output; None writes it to the log, with standard error."""


class UpdateTime(NamedTuple):
    """Time of an update: monotonic clock, and CPU seconds since the start of the process."""

    wall: float
    cpu: float


class CommandResult(NamedTuple):
    """Time and memory of a command, including all processes that it starts."""

    cpu: float
    """CPU seconds, user and system."""
    wall: float
    peak_mib: float
    """Maximum resident set size of one of its processes."""
    started: float
    """Monotonic clock at the start."""
    log: str
    """Standard error, and standard output unless it is written to a file."""
    updates: Sequence[UpdateTime]


class MeasurementError(Exception):
    """A command failed; the message is the reason in the table."""


class TimeLimitError(MeasurementError):
    """A command was stopped at its maximum duration."""


class BenchmarkStoppedError(Exception):
    """The benchmark was stopped."""


class ChildProcesses:
    """Running child processes, so that they can be ended with the benchmark."""

    def __init__(self) -> None:
        """Start without child processes."""
        self.running: set[int] = set()
        self.stopped = False

    def stop(self) -> None:
        """Kill all child processes and refuse to start further ones."""
        self.stopped = True
        for child in list(self.running):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(child, signal.SIGKILL)


CHILDREN = ChildProcesses()


def run_command(
    command: Command,
    log: Path,
    limit: float,
    core: int | None = None,
    watch: Callable[[float], None] = lambda seconds: None,
) -> CommandResult:
    """Run a command and measure it.

    Args:
        command: The command.
        log: File of its output.
        limit: Maximum duration in seconds.
        core: Core to which the process is pinned; None for any.
        watch: Function that receives the seconds since the start, every `POLL_SECONDS` while the command runs.

    Returns:
        Time, memory, output and updates of the command.

    Raises:
        MeasurementError: The command fails; the message has the last lines of the output.
        TimeLimitError: The command takes too long.
        BenchmarkStoppedError: The benchmark was stopped.
    """
    if CHILDREN.stopped:
        raise BenchmarkStoppedError
    log.parent.mkdir(parents=True, exist_ok=True)
    updates = log.with_suffix(".updates")
    updates.unlink(missing_ok=True)
    started = time.monotonic()
    process = _start(command, log, updates)
    if core is not None:
        os.sched_setaffinity(process.pid, {core})
    CHILDREN.running.add(process.pid)
    status, usage = _wait(process, started, limit, watch)
    CHILDREN.running.discard(process.pid)
    if CHILDREN.stopped:
        raise BenchmarkStoppedError
    wall = time.monotonic() - started
    text = log.read_text("utf-8", errors="replace")
    if status is None:
        raise TimeLimitError(f"stopped after {limit:.0f} s; {last_lines(text)}")
    if code := os.waitstatus_to_exitcode(status):
        raise MeasurementError(f"exit code {code}; {last_lines(text)}")
    cpu = usage.ru_utime + usage.ru_stime
    return CommandResult(cpu, wall, usage.ru_maxrss / 1024, started, text, read_update_times(updates))


def last_lines(text: str) -> str:
    """Return the last non-empty lines of an output.

    Args:
        text: The output.
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "\n".join(line[:300] for line in lines[-NUM_LAST_LINES:])


def child_environment(command: Command, updates: Path) -> dict[str, str]:
    """Return the environment of a child process: one thread, no network access of libraries, the clock of updates.

    Args:
        command: The command.
        updates: File of the times of the updates.
    """
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "PYTHONHOME")}
    environment |= dict.fromkeys(THREADS, "1") | OFFLINE | {"PEERS_TICKS": str(updates)} | dict(command.environment)
    paths = [str(CLOCK), *filter(None, [command.environment.get("PYTHONPATH")])]
    return environment | {"PYTHONPATH": os.pathsep.join(paths)}


def read_update_times(path: Path) -> list[UpdateTime]:
    """Return the times of the updates of a child process; none without a file.

    Args:
        path: File that the clock has written.
    """
    if not path.exists():
        return []
    return [UpdateTime(*map(float, line.split())) for line in path.read_text().splitlines()]


def block_rates(updates: Sequence[UpdateTime], block: int, batch: int) -> list[float]:
    """Return the samples per CPU second of each complete block of updates after the first, which is the warm-up.

    Args:
        updates: Times of the updates.
        block: Updates of a block.
        batch: Samples of an update.
    """
    block_ends = [update.cpu for update in updates[max(block, 2) - 1 :: block]]
    return [block * batch / (end - start) for start, end in itertools.pairwise(block_ends) if end > start]


def median_rate(rates: Sequence[float]) -> float:
    """Return the median rate.

    Args:
        rates: Rates of the blocks.

    Raises:
        MeasurementError: There is no rate.
    """
    if not rates:
        raise MeasurementError("too few updates for a rate: expected at least two blocks after the first")
    return statistics.median(rates)


def _start(command: Command, log: Path, updates: Path) -> subprocess.Popen[bytes]:
    """Start a child process in a new session, which has the priority of the session of this process."""
    with (
        open(log, "wb") as errors,
        open(command.stdin or os.devnull, "rb") as source,
        open(command.stdout or os.devnull, "wb") as output,
    ):
        process = subprocess.Popen(
            list(command.arguments),
            cwd=command.folder,
            env=child_environment(command, updates),
            stdin=source,
            stdout=output if command.stdout else errors,
            stderr=errors,
            start_new_session=True,
        )
    copy_priority("self", str(process.pid))
    return process


def copy_priority(source: str, target: str) -> None:
    """Give the session of a process the priority of another one, where Linux shares processors between sessions.

    A new session has the priority 0 there, whatever that of the session that has started it.

    Args:
        source: Number of the process whose session has the priority, or "self".
        target: Number of the other process.
    """
    with contextlib.suppress(OSError):  # a system without such groups, or the process has ended
        group = Path(f"/proc/{source}/autogroup").read_text("ascii").split()
        if group and group[-1] != "0":  # the file is empty for processes of the session of the system
            Path(f"/proc/{target}/autogroup").write_text(group[-1], "ascii")


def _wait(
    process: subprocess.Popen[bytes], started: float, limit: float, watch: Callable[[float], None]
) -> tuple[int | None, "resource.struct_rusage"]:
    """Wait for a child process and its children; after the limit kill its session and return the status None."""
    is_late = False
    while True:
        pid, status, usage = os.wait4(process.pid, os.WNOHANG)
        if pid:
            process.returncode = os.waitstatus_to_exitcode(status)
            return (None if is_late else status), usage
        seconds = time.monotonic() - started
        if not is_late:
            watch(seconds)
        if seconds > limit and not is_late:
            is_late = True
            os.killpg(process.pid, signal.SIGKILL)
        time.sleep(POLL_SECONDS)
