"""Pairs per CPU-second of training and decoding, start and memory of Pellucid and its peers.

    python benchmarks/peers/run.py --out DIR [--case tiny medium] [--system pellucid joeynmt]

All systems train and decode the same spelled digits with networks of the same sizes, which the script generates. A
virtual environment for each peer is installed in the folder --environments, unless it is there. DIR gets results.json
with every measurement, the tables table.md, figure.svg, and the files of every command below work/.
benchmarks/peers/README.md explains the measurements.
"""

import argparse
import os
import platform
import signal
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from benchmarks.peers.cases import CASES, CELLS, TASKS  # noqa: E402
from benchmarks.peers.data import write_data  # noqa: E402
from benchmarks.peers.figure import write_figure  # noqa: E402
from benchmarks.peers.install import InstallableSystem, install, torch_version  # noqa: E402
from benchmarks.peers.measure import CHILDREN, MeasurementError  # noqa: E402
from benchmarks.peers.measurement_queue import BenchmarkPlan, MeasurementQueue  # noqa: E402
from benchmarks.peers.results import Results  # noqa: E402
from benchmarks.peers.systems import SYSTEMS  # noqa: E402
from benchmarks.peers.table import format_tables  # noqa: E402
from benchmarks.peers.worker import MeasurementOptions  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Install the systems, make the missing measurements and write the results.

    Args:
        arguments: Command-line arguments; an interrupted run is continued with the same --out.

    Returns:
        The exit status.
    """
    options = build_parser().parse_args(arguments)
    out = options.out.resolve()
    pythons = {name: install_system(SYSTEMS[name], options.environments.resolve()) for name in options.system}
    if options.install:
        return int(any(isinstance(python, str) for python in pythons.values()))
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out / "results.json")
    results.machine = describe_machine(options)
    data = write_data(out / "data")
    plan = BenchmarkPlan(options.case, options.system, options.task, options.repeats, out, data, pythons)
    run_queues(options, plan, results)
    results.write()
    (options.table or out / "table.md").write_text(format_tables(results), "utf-8")
    write_figure(results, out / "figure.svg")
    sys.stdout.write(format_tables(results))
    return 0


def install_system(system: InstallableSystem, folder: Path) -> Path | str:
    """Install a system.

    Args:
        system: The system.
        folder: Folder of all environments.

    Returns:
        Python interpreter of the system, or the reason of a failure.
    """
    log(f"environment of {system.name}")
    try:
        return install(system, folder)
    except MeasurementError as error:
        log(f"{system.name}: {error}")
        return str(error)


def run_queues(options: argparse.Namespace, plan: BenchmarkPlan, results: Results) -> None:
    """Run the queues, each in a thread that waits for its child process.

    Args:
        options: Parsed arguments.
        plan: Selected measurements.
        results: Results, which receive the records.
    """
    cores = sorted(os.sched_getaffinity(0))
    queues = []
    for number, cells in enumerate([options.cell] if options.jobs == 1 else [[cell] for cell in options.cell]):
        core = None if options.jobs == 1 else cores[number % len(cores)]
        queues.append(MeasurementQueue(plan, cells, MeasurementOptions(options.seconds, options.limit, core), results))
    threads = [threading.Thread(target=queue.run, args=(log,), daemon=True) for queue in queues]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        CHILDREN.stop()


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    folder = ROOT / "runs" / "peers"
    parser.add_argument(
        "--environments", type=Path, default=folder / "environments", help="folder of the virtual environments"
    )
    parser.add_argument(
        "--out", type=Path, default=folder / "results", help="folder of the results; an interrupted run continues"
    )
    parser.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--cell", nargs="+", choices=CELLS, default=list(CELLS))
    parser.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    parser.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--repeats", type=int, default=1, help="number of repeats of all measurements")
    parser.add_argument("--seconds", type=float, default=10.0, help="approximate CPU seconds of each measurement")
    parser.add_argument("--limit", type=float, default=900.0, help="maximum duration of one command in seconds")
    parser.add_argument(
        "--jobs", type=int, choices=(1, 2), default=1, help="2: GRU and LSTM in parallel, each pinned to a core"
    )
    parser.add_argument("--table", type=Path, help="file of the table (default: table.md of --out)")
    parser.add_argument("--install", action="store_true", help="only install the environments")
    return parser


def describe_machine(options: argparse.Namespace) -> dict[str, str]:
    """Return hardware, versions, date and options of the measurements.

    Args:
        options: Parsed arguments.
    """
    return {**describe_hardware(), "jobs": str(options.jobs), "seconds": f"{options.seconds:g}"}


def describe_hardware() -> dict[str, str]:
    """Return processor, versions and date."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line), "")
    return {
        "processor": model or platform.processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": torch_version(),
        "date": time.strftime("%Y-%m-%d"),
    }


def log(text: str) -> None:
    """Write a message with the time to standard error.

    Args:
        text: The message.
    """
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
