"""A measurement in a worker process: request and entry point."""

import os
import subprocess
import sys
import time
from typing import Literal

import msgspec

from pellucid.bench.cases import BenchRequest
from pellucid.bench.results import BenchResult, StageTime, StartupTime
from pellucid.errors import RunError


class ChildRequest(msgspec.Struct, frozen=True):
    """Request to the worker process."""

    what: Literal["measure", "start", "profile"]
    request: BenchRequest
    began: float
    """Start of the process, in seconds of the epoch."""


def run_measurement(request: BenchRequest) -> BenchResult:
    """Return one measurement; for training, a further process measures the time to the first update."""
    result = run_step_measurement(request)
    if request.task != "train":
        return result
    start = msgspec.json.decode(_run_child("start", request), type=StartupTime)
    return msgspec.structs.replace(result, start_seconds=start.seconds, start_cpu_seconds=start.cpu_seconds)


def run_step_measurement(request: BenchRequest) -> BenchResult:
    """Return one measurement without the time to the first update."""
    return msgspec.json.decode(_run_child("measure", request), type=BenchResult)


def run_profile(request: BenchRequest) -> list[StageTime]:
    """Return the stages of a training."""
    return msgspec.json.decode(_run_child("profile", request), type=list[StageTime])


def _run_child(what: Literal["measure", "start", "profile"], request: BenchRequest) -> bytes:
    """Run a worker process and return its answer; an interrupt ends it, too.

    Raises:
        RunError: The process fails; the message is its last line.
    """
    message = msgspec.json.encode(ChildRequest(what, request, time.time()))
    done = subprocess.run(
        [sys.executable, "-m", __name__, message.decode()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise RunError(f"measuring {request.task} {request.name} {request.cell} failed: {words[-1]}")
    return done.stdout


def main(words: list[str]) -> int:
    """Handle the request and write the answer as JSON."""
    request = msgspec.json.decode(words[0], type=ChildRequest)
    # Imported here, since these imports take seconds and count for the start.
    from pellucid.bench.measurement import measure_case, measure_startup, profile_training

    match request.what:
        case "measure":
            answer: object = measure_case(request.request)
        case "start":
            answer = measure_startup(request.request, request.began)
        case "profile":
            answer = profile_training(request.request)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        os._exit(130)
