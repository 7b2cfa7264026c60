"""Speed of one training in several processes, and time of the sum of their gradients, on this machine.

    python benchmarks/data_parallel.py train --train FILE --valid FILE --run FOLDER [--workers 1 2 4] [--batch-sizes 64]
    python benchmarks/data_parallel.py sum [--workers 2 4] [--parameters 18000 240000 920000 2700000]

The files have pairs whose targets are symbols between spaces, such as pronunciations. `train` measures `pellucid train
--workers N`. A batch has as many pairs for each N. The speed is that of the updates after the first record of the log.
`sum` measures `WorkerGroup.sum_gradients`; with one worker, the time of its copies in memory. Processes have one
thread, or `--threads`. Each measurement is printed as a line of JSON; `--repeats` repeats all of them, so that medians
can be taken where other programs run.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

SIZES = ("tiny", "small", "base", "large")
PARAMETERS = (18_000, 240_000, 920_000, 2_700_000)
"""Numbers of parameters of networks of these sizes that pronounce English words."""
NUM_SUMS = 60
"""Number of measured sums; a tenth as many come before."""
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}


class TrainingCase(NamedTuple):
    """A training whose speed is measured."""

    size: str
    workers: int
    batch_size: int
    """Number of pairs of a batch, of all processes together."""


def measure_training(options: argparse.Namespace, case: TrainingCase) -> dict[str, object]:
    """Return the speed of a training.

    Args:
        options: Files, run folder and number of updates.
        case: Size of the network, number of processes and batch size.

    Raises:
        subprocess.CalledProcessError: The training fails.
    """
    run = options.run / f"{'-'.join(map(str, case))}-{time.time_ns()}"
    with options.train.open(encoding="utf-8") as file:
        num_pairs = sum(1 for _ in file)
    epochs = options.updates * case.batch_size / num_pairs
    command = [sys.executable, "-m", "pellucid", "train", options.train, "--valid", options.valid, "--run", run]
    command += ["--size", case.size, "--batch-size", case.batch_size, "--epochs", epochs, "--no-pair-ngram"]
    command += ["--target-symbols", "words", "--threads", options.threads, "--workers", case.workers]
    command += ["--eval-interval", epochs]
    subprocess.run([str(each) for each in command], env=ENVIRONMENT, check=True, stderr=subprocess.DEVNULL)
    records = [json.loads(line) for line in (run / "log.jsonl").read_text("utf-8").splitlines()]
    first, *_, last = [record for record in records if record["event"] == "stepped"]
    updates, seconds = last["update"] - first["update"], last["seconds"] - first["seconds"]
    return {
        **case._asdict(),
        "threads": options.threads,
        "pairs_per_second": round((last["samples"] - first["samples"]) / seconds, 1),
        "milliseconds": round(1000 * seconds / updates, 3),
    }


def measure_trainings(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the speeds of all cases.

    The numbers of processes are measured one after another for each size, so that they meet the same load.

    Args:
        options: Parsed arguments.
    """
    for _ in range(options.repeats):
        for size in options.sizes:
            for batch_size in options.batch_sizes:
                for workers in options.workers:
                    yield measure_training(options, TrainingCase(size, workers, batch_size))


def measure_sums(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield the times of the sums of gradients.

    Args:
        options: Parsed arguments.

    Raises:
        subprocess.CalledProcessError: A process fails.
    """
    for workers in options.workers * options.repeats:
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(workers), "--", __file__]
        command = [sys.executable, *launcher, "worker", "--parameters", *map(str, options.parameters)]
        result = subprocess.run(command, env=ENVIRONMENT, check=True, stdout=subprocess.PIPE, text=True)
        yield from map(json.loads, result.stdout.splitlines())


def time_sums(options: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Sum gradients in one of several processes of torchrun; the first one yields the median times.

    Args:
        options: Parsed arguments, with the numbers of parameters.
    """
    import torch
    from torch import distributed

    from pellucid.training.worker_group import WeightedGradients, WorkerGroup

    distributed.init_process_group("gloo")
    workers = WorkerGroup(distributed.new_group())
    for count in options.parameters:
        parameters = [torch.zeros(count)]
        part = WeightedGradients(torch.tensor(1.0), [torch.ones(count)], 1000)
        times = list[float]()
        for _ in range(NUM_SUMS + NUM_SUMS // 10):
            start_time = time.perf_counter()
            workers.sum_gradients(part, parameters)
            times.append(time.perf_counter() - start_time)
        if workers.rank == 0:
            milliseconds = 1000 * sorted(times[-NUM_SUMS:])[NUM_SUMS // 2]
            yield {"parameters": count, "workers": workers.size, "milliseconds": round(milliseconds, 3)}
    distributed.destroy_process_group()


def main(arguments: Sequence[str]) -> None:
    """Print one line of JSON per measurement.

    Args:
        arguments: Command-line arguments.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    train, gradient_sum, worker = (commands.add_parser(name) for name in ("train", "sum", "worker"))
    for name in ("train", "valid", "run"):
        train.add_argument(f"--{name}", type=Path, required=True)
    train.add_argument("--sizes", nargs="+", choices=SIZES, default=SIZES)
    train.add_argument("--batch-sizes", nargs="+", type=int, default=[64])
    train.add_argument("--threads", type=int, default=1, help="threads of each process")
    train.add_argument("--updates", type=int, default=600, help="number of updates of each training")
    for each in (gradient_sum, worker):
        each.add_argument("--parameters", nargs="+", type=int, default=PARAMETERS)
    for each in (train, gradient_sum):
        each.add_argument("--workers", nargs="+", type=int, default=[1, 2, 4])
        each.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args(arguments)
    measure = {"train": measure_trainings, "sum": measure_sums, "worker": time_sums}[options.command]
    for result in measure(options):
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
