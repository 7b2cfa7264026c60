"""Pellucid and its peers, trained and decoding side by side: python benchmarks/peers/run.py --out DIR."""

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
from benchmarks.peers.install import install, torch_version  # noqa: E402
from benchmarks.peers.lane import Lane, Plan  # noqa: E402
from benchmarks.peers.measure import CHILDREN, FailedError  # noqa: E402
from benchmarks.peers.results import Results  # noqa: E402
from benchmarks.peers.systems import SYSTEMS  # noqa: E402
from benchmarks.peers.table import table  # noqa: E402
from benchmarks.peers.worker import Terms  # noqa: E402


def main(arguments: Sequence[str]) -> int:
    """Install, measure, write. An interrupted run goes on where it was with the same --out."""
    given = parser().parse_args(arguments)
    out = given.out.resolve()
    pythons = {name: environment(name, given.environments.resolve()) for name in given.system}
    if given.install:
        return int(any(isinstance(python, str) for python in pythons.values()))
    out.mkdir(parents=True, exist_ok=True)
    results = Results(out / "results.json")
    results.machine = machine(given)
    plan = Plan(given.case, given.system, given.task, given.repeats, out, write_data(out / "data"), pythons)
    measure(given, plan, results)
    results.write()
    (given.table or out / "table.md").write_text(table(results), "utf-8")
    write_figure(results, out / "figure.svg")
    sys.stdout.write(table(results))
    return 0


def environment(name: str, folder: Path) -> Path | str:
    """The interpreter of a system, or the reason why there is none."""
    say(f"environment of {name}")
    try:
        return install(SYSTEMS[name], folder)
    except FailedError as error:
        say(f"{name}: {error}")
        return str(error)


def measure(given: argparse.Namespace, plan: Plan, results: Results) -> None:
    """Run the lanes, each in a thread that mostly waits for its child."""
    cores = sorted(os.sched_getaffinity(0))
    alone = given.lanes == 1
    lanes = [
        Lane(plan, cells, Terms(given.seconds, given.limit, None if alone else cores[at % len(cores)]), results)
        for at, cells in enumerate([given.cell] if alone else [[cell] for cell in given.cell])
    ]
    threads = [threading.Thread(target=lane.run, args=(say,), daemon=True) for lane in lanes]
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        CHILDREN.stop()


def parser() -> argparse.ArgumentParser:
    """The flags."""
    made = argparse.ArgumentParser(description=__doc__)
    folder = ROOT / "runs" / "peers"
    made.add_argument("--environments", type=Path, default=folder / "environments", help="where the peers live")
    made.add_argument("--out", type=Path, default=folder / "results", help="results; an interrupted run goes on")
    made.add_argument("--case", nargs="+", choices=CASES, default=list(CASES))
    made.add_argument("--cell", nargs="+", choices=CELLS, default=list(CELLS))
    made.add_argument("--system", nargs="+", choices=SYSTEMS, default=list(SYSTEMS))
    made.add_argument("--task", nargs="+", choices=TASKS, default=list(TASKS))
    made.add_argument("--repeats", type=int, default=1, help="how many times around")
    made.add_argument("--seconds", type=float, default=10.0, help="processor seconds of each measurement, about")
    made.add_argument("--limit", type=float, default=900.0, help="longest time of one command, in seconds")
    made.add_argument("--lanes", type=int, choices=(1, 2), default=1, help="2: GRU and LSTM at once, each on its core")
    made.add_argument("--table", type=Path, help="where the table goes (default: table.md of --out)")
    made.add_argument("--install", action="store_true", help="make the environments and stop")
    return made


def machine(given: argparse.Namespace) -> dict[str, str]:
    """Where and how it was measured."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    model = next((line.partition(":")[2].strip() for line in info.splitlines() if "model name" in line), "")
    return {
        "processor": model or platform.processor(),
        "cores": str(os.cpu_count()),
        "python": platform.python_version(),
        "torch": torch_version(),
        "date": time.strftime("%Y-%m-%d"),
        "lanes": str(given.lanes),
        "seconds": f"{given.seconds:g}",
    }


def say(text: str) -> None:
    """Tell how it goes."""
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {text}\n")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
