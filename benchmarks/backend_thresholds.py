"""CPU time of `pellucid predict` and `score` without and with PyTorch, by the number of sources.

    taskset -c 1 python benchmarks/backend_thresholds.py RUN FILE --run FOLDER [--counts 1 10 100 300 1000 3000]

RUN is a run of words of FILE, a table with a header whose first two columns are source and target. Each measurement is
a process of its own, from its start to its end, and decodes the first sources of the file. The thresholds of
pellucid/cli/backend.py and pellucid/pair_ngram/model.py are set so that it uses one backend for all sources:

numpy           NumPy; the pair n-gram model is searched in Python
numpy, numba    NumPy; Numba is loaded for the pair n-gram model
pytorch         PyTorch with its kernels

One line of JSON is printed for each measurement: seconds of user and system time, and of wall time.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

BACKENDS = {"numpy": (10**9, 10**9), "numpy, numba": (10**9, 0), "pytorch": (1, 10**9)}
"""Number of sources from which PyTorch is loaded, and number of searches after which Numba is, of each backend."""
PROGRAM = """
import sys
import pellucid.cli.backend, pellucid.pair_ngram.model
from pellucid.cli import main
pellucid.cli.backend.MIN_SOURCES_TO_LOAD = int(sys.argv[1])
pellucid.pair_ngram.model.MAX_PYTHON_WORK = int(sys.argv[2]) * 8**2
sys.exit(main(sys.argv[3:]))
"""
COMMANDS = {
    "beam": ["predict"],
    "greedy": ["predict", "--beam-size", "1"],
    "beam, no pair n-gram model": ["predict", "--no-pair-ngram"],
    "greedy, no pair n-gram model": ["predict", "--no-pair-ngram", "--beam-size", "1"],
    "score": ["score"],
}


def measure(arguments: list[str]) -> tuple[float, float]:
    """Run a process, and return its seconds of processor time and of wall time."""
    before, start = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-c", PROGRAM, *arguments], env=environment, stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, time.perf_counter() - start


def measurements(args: argparse.Namespace) -> Iterator[dict[str, object]]:
    """Yield each measurement: the median of the repetitions by their processor time."""
    args.run.mkdir(parents=True, exist_ok=True)
    header, *lines = args.file.read_text("utf-8").splitlines(keepends=True)
    for count in args.counts:
        file = args.run / f"{count}{args.file.suffix}"
        file.write_text(header + "".join(lines[:count]), "utf-8")
        for name, (subcommand, *flags) in COMMANDS.items():
            for backend in args.backends:
                if (backend == "numpy, numba" and (subcommand == "score" or "--no-pair-ngram" in flags)) or (
                    args.only and name not in args.only
                ):
                    continue
                arguments = [*map(str, BACKENDS[backend]), subcommand, str(args.model), str(file), *flags]
                times = sorted(measure(arguments) for _ in range(args.repeats))
                cpu, wall = times[len(times) // 2]
                result = {"command": name, "backend": backend, "sources": min(count, len(lines))}
                yield {**result, "cpu": round(cpu, 2), "wall": round(wall, 2)}


def main() -> None:
    """Parse the arguments, and print a line for each measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, metavar="RUN")
    parser.add_argument("file", type=Path)
    parser.add_argument("--run", type=Path, required=True)
    parser.add_argument("--counts", type=int, nargs="+", default=[1, 10, 100, 300, 1000, 3000])
    parser.add_argument("--repeats", type=int, default=1)
    parser.add_argument("--backends", choices=BACKENDS, nargs="+", default=list(BACKENDS))
    parser.add_argument("--only", choices=COMMANDS, nargs="+", default=[])
    for result in measurements(parser.parse_args()):
        print(json.dumps(result), flush=True)


if __name__ == "__main__":
    main()
