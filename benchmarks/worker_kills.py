"""Trainings in two processes of torchrun, one of which is killed: whether torchrun recovers, and to the same bits.

    python benchmarks/worker_kills.py --train FILE --valid FILE --run FOLDER [--trials 20] [--seed 1]

Each trial starts `torchrun --standalone --nproc-per-node 2 --max-restarts 3`, kills one of its processes by SIGKILL at
a random moment after the first checkpoint, and waits. A trial has recovered if the training then ends with success by
itself. It is equal if model and parameters have the bits of an uninterrupted training. Trials alternate between the
defaults of torchrun and TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1. Linux only. One line of JSON is printed per trial, and a
summary.
"""

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from safetensors.numpy import load_file

STORE_VARIABLE = "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"
MAX_SECONDS = 120.0
"""Time limit of a trial."""
TIME_LIMIT = "time limit"


def start_training(options: argparse.Namespace, run: Path, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    """Start a training in two processes of torchrun.

    Args:
        options: Files of the training, and its number of epochs.
        run: Run folder.
        environment: Additional environment variables.
    """
    launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--max-restarts", "3"]
    command = [sys.executable, *launcher, "-m", "--", "pellucid", "train", str(options.train)]
    command += ["--valid", str(options.valid), "--run", str(run), "--size", "tiny", "--target-symbols", "words"]
    command += ["--no-pair-ngram", "--epochs", str(options.epochs), "--patience", "0"]
    return subprocess.Popen(
        command,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
        stderr=open(f"{run}.log", "wb"),
    )


def wait_for_end(training: subprocess.Popen[bytes]) -> str:
    """Wait for the end of a training; kill it after the time limit.

    Args:
        training: Process of torchrun.

    Returns:
        "" if it ended by itself with success, else its exit code or `TIME_LIMIT`.
    """
    try:
        code = training.wait(MAX_SECONDS)
    except subprocess.TimeoutExpired:
        for pid in child_processes(training.pid):
            os.kill(pid, signal.SIGKILL)
        training.kill()
        training.wait()
        return TIME_LIMIT
    return "" if code == 0 else f"exit code {code}"


def child_processes(pid: int) -> list[int]:
    """Return the processes that a process has started and that run.

    Args:
        pid: The process.
    """
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text("ascii").split()]


def has_equal_parameters(run: Path, expected: Path) -> bool:
    """Return whether two runs have the same model and the same state of their training, bit for bit.

    Args:
        run: Run folder.
        expected: Run folder of the uninterrupted training.
    """
    if not (run / "card.md").exists():  # written at the end
        return False
    ours, theirs = (load_file(each / "training.safetensors") for each in (run, expected))
    same_state = ours.keys() == theirs.keys() and all((ours[name] == theirs[name]).all() for name in ours)
    return same_state and (run / "model.safetensors").read_bytes() == (expected / "model.safetensors").read_bytes()


def run_trial(options: argparse.Namespace, trial: int, generator: random.Random) -> dict[str, object]:
    """Kill a process of a training at a random moment, and return its outcome.

    Args:
        options: Files and options.
        trial: Number of the trial.
        generator: Source of the victim and the moment.
    """
    environment = {STORE_VARIABLE: "1"} if trial % 2 else {}
    run = options.run / f"trial-{trial}"
    training = start_training(options, run, environment)
    while not (run / "training.safetensors").exists() and training.poll() is None:
        time.sleep(0.02)
    delay, victim = generator.uniform(0, options.max_delay), generator.randrange(2)
    time.sleep(delay)
    was_killed = training.poll() is None and len(workers := child_processes(training.pid)) == 2
    if was_killed:
        os.kill(workers[victim], signal.SIGKILL)
    start_time = time.monotonic()
    failure = wait_for_end(training)
    return {
        "trial": trial,
        "variable": bool(environment),
        "delay": round(delay, 2),
        "victim": victim,
        "killed": was_killed,
        "failure": failure,
        "equal": not failure and has_equal_parameters(run, options.run / "uninterrupted"),
        "seconds": round(time.monotonic() - start_time, 1),
    }


def main(arguments: Sequence[str]) -> int:
    """Run the trials and print them.

    Args:
        arguments: Command-line arguments.

    Returns:
        Exit code: 1 if a training that has recovered has other bits.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("train", "valid", "run"):
        parser.add_argument(f"--{name}", type=Path, required=True)
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--epochs", type=float, default=20)
    parser.add_argument(
        "--max-delay", type=float, default=5.0, help="maximum seconds from the first checkpoint to the kill"
    )
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args(arguments)
    options.run.mkdir(parents=True)
    if failure := wait_for_end(start_training(options, options.run / "uninterrupted", {})):
        parser.error(f"the uninterrupted training failed ({failure}): see {options.run / 'uninterrupted'}.log")
    generator, results = random.Random(options.seed), []
    for trial in range(options.trials):
        results.append(run_trial(options, trial, generator))
        print(json.dumps(results[-1]), flush=True)
    for variable in (False, True):
        killed = [each for each in results if each["killed"] and each["variable"] == variable]
        recovered = [each for each in killed if not each["failure"]]
        equal = sum(bool(each["equal"]) for each in recovered)
        name = f"{STORE_VARIABLE}=1" if variable else "defaults"
        print(f"{name}: {len(killed)} kills, {len(recovered)} recovered, {equal} of them to the same bits")
    return int(any(each["killed"] and not each["failure"] and not each["equal"] for each in results))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
