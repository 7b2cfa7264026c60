"""Measurements in a worker process: request and entry point."""

import os
import subprocess
import sys
import time
from typing import Literal

import msgspec

from pellucid.bench.cases import BenchRequest
from pellucid.bench.results import BenchResult, StageTime, StartupTime
from pellucid.errors import RunError

MeasurementKind = Literal["measure", "start", "profile"]
"""Time of a step ("measure"), time to the first update ("start"), or stages of a training ("profile")."""


class ChildRequest(msgspec.Struct, frozen=True):
    """Request to the worker process, which it receives as JSON on its command line."""

    kind: MeasurementKind
    request: BenchRequest
    started: float
    """Start of the process, in seconds since the epoch."""


def run_measurement(request: BenchRequest) -> BenchResult:
    """Measure a case in a worker process; for training, a second process measures the time to the first update.

    Args:
        request: The measurement.

    Returns:
        Times, memory and lower bound; for training, `start_seconds` and `start_cpu_seconds` are set.

    Raises:
        RunError: A worker process failed; the message is the last line of its standard error.
    """
    result = run_step_measurement(request)
    if request.task != "train":
        return result
    start = msgspec.json.decode(_run_child("start", request), type=StartupTime)
    return msgspec.structs.replace(result, start_seconds=start.seconds, start_cpu_seconds=start.cpu_seconds)


def run_step_measurement(request: BenchRequest) -> BenchResult:
    """Measure a case in a worker process, without the time to the first update.

    Args:
        request: The measurement.

    Returns:
        Times, memory and lower bound; `start_seconds` and `start_cpu_seconds` are None.

    Raises:
        RunError: The worker process failed; the message is the last line of its standard error.
    """
    return msgspec.json.decode(_run_child("measure", request), type=BenchResult)


def run_profile(request: BenchRequest) -> list[StageTime]:
    """Measure the stages of a training in a worker process.

    Args:
        request: The measurement; its task is not used.

    Returns:
        The time of each stage, in the order of `measurement.STAGES`.

    Raises:
        RunError: The worker process failed; the message is the last line of its standard error.
    """
    return msgspec.json.decode(_run_child("profile", request), type=list[StageTime])


def _run_child(kind: MeasurementKind, request: BenchRequest) -> bytes:
    """Run a worker process and return its output; an interrupt ends the process, too.

    Raises:
        RunError: The process fails; the message is its last line.
    """
    message = msgspec.json.encode(ChildRequest(kind, request, time.time()))
    process = subprocess.run(
        [sys.executable, "-m", __name__, message.decode()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if process.returncode:
        lines = process.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {process.returncode}"]
        raise RunError(f"measuring {request.task} {request.name} {request.cell} failed: {lines[-1]}")
    return process.stdout


def main(arguments: list[str]) -> int:
    """Run the requested measurement in this process, and write its result to standard output as JSON.

    Args:
        arguments: The request as JSON.

    Returns:
        The exit status, 0.
    """
    request = msgspec.json.decode(arguments[0], type=ChildRequest)
    # These imports take seconds, which are part of the startup time.
    from pellucid.bench.measurement import measure_case, measure_startup, profile_training

    match request.kind:
        case "measure":
            result: object = measure_case(request.request)
        case "start":
            result = measure_startup(request.request, request.started)
        case "profile":
            result = profile_training(request.request)
    sys.stdout.buffer.write(msgspec.json.encode(result))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        os._exit(130)
