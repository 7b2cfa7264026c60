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
    asked: BenchRequest
    began: float
    """Start of the process, in seconds of the epoch."""


def run_measurement(asked: BenchRequest) -> BenchResult:
    """Return one measurement; for training, a further process measures the time to the first update."""
    result = run_step_measurement(asked)
    if asked.task != "train":
        return result
    start = msgspec.json.decode(_run_child("start", asked), type=StartupTime)
    return msgspec.structs.replace(result, start_seconds=start.seconds, start_cpu_seconds=start.cpu_seconds)


def run_step_measurement(asked: BenchRequest) -> BenchResult:
    """Return one measurement without the time to the first update."""
    return msgspec.json.decode(_run_child("measure", asked), type=BenchResult)


def run_profile(asked: BenchRequest) -> list[StageTime]:
    """Return the stages of a training."""
    return msgspec.json.decode(_run_child("profile", asked), type=list[StageTime])


def _run_child(what: Literal["measure", "start", "profile"], asked: BenchRequest) -> bytes:
    """Run a worker process and return its answer; an interrupt ends it, too.

    Raises:
        RunError: The process fails; the message is its last line.
    """
    request = msgspec.json.encode(ChildRequest(what, asked, time.time()))
    done = subprocess.run(
        [sys.executable, "-m", __name__, request.decode()],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    if done.returncode:
        words = done.stderr.decode("utf-8", "replace").strip().splitlines() or [f"exit code {done.returncode}"]
        raise RunError(f"measuring {asked.task} {asked.name} {asked.cell} failed: {words[-1]}")
    return done.stdout


def main(words: list[str]) -> int:
    """Handle the request and write the answer as JSON."""
    request = msgspec.json.decode(words[0], type=ChildRequest)
    # Only now, what takes seconds to import.
    from pellucid.bench.measurement import measure_case, measure_startup, profile_training

    match request.what:
        case "measure":
            answer: object = measure_case(request.asked)
        case "start":
            answer = measure_startup(request.asked, request.began)
        case "profile":
            answer = profile_training(request.asked)
    sys.stdout.buffer.write(msgspec.json.encode(answer))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        os._exit(130)
