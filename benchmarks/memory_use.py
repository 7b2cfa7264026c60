"""Memory of a command over time: its own (anonymous) memory, and files mapped into it, whose pages can be dropped.

    python benchmarks/memory_use.py --out DIR COMMAND ...

DIR/memory.jsonl receives a line for each measurement: seconds since the start, anonymous and mapped MiB of the command
and of all its child processes together. Reads /proc of Linux. At the end it prints the maxima, and the anonymous memory
at a tenth of the time and at its end. With --plot TITLE=DIR ..., it draws the logs of several commands instead:

    python benchmarks/memory_use.py --out figure.svg --plot prepare=DIR train=DIR
"""

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

FIELDS = {"RssAnon": "anonymous", "RssFile": "mapped"}
"""Fields of /proc/PID/status, and their names in the log."""


class MemoryUse(NamedTuple):
    """Memory of all processes of a command at one time."""

    seconds: float
    """Seconds since the start."""
    anonymous: float
    """Memory of its own, in MiB."""
    mapped: float
    """Pages of files that are mapped, in MiB: programs, libraries and data."""


def main(arguments: Sequence[str]) -> int:
    """Run a command and write its log, or draw logs.

    Args:
        arguments: Command-line arguments.

    Returns:
        The exit status of the command; 0 for a figure.
    """
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of the log, or SVG file of the figure")
    parser.add_argument("--interval", type=float, default=1.0, help="seconds between two measurements")
    parser.add_argument("--plot", nargs="+", default=[], metavar="TITLE=DIR")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args(arguments)
    if options.plot:
        logs = {title: read_log(Path(folder)) for title, _, folder in (text.partition("=") for text in options.plot)}
        draw_logs(logs, options.out)
        return 0
    if not options.command:
        parser.error("COMMAND is required")
    options.out.mkdir(parents=True, exist_ok=True)
    return run_measured(options.command, options.out, options.interval)


def run_measured(command: Sequence[str], out: Path, interval: float) -> int:
    """Run a command, write its log, and print a summary.

    Args:
        command: The command.
        out: Folder of the log.
        interval: Seconds between two measurements.

    Returns:
        The exit status of the command.
    """
    started_at, process = time.monotonic(), subprocess.Popen(command)
    uses = list[MemoryUse]()
    with (out / "memory.jsonl").open("w", encoding="utf-8") as log:
        while process.poll() is None:
            use = measure(process.pid, time.monotonic() - started_at)
            uses.append(use)
            log.write(json.dumps(use._asdict()) + "\n")
            log.flush()
            time.sleep(interval)
    sys.stderr.write(f"{describe(uses)}\n")
    return process.returncode


def measure(process: int, seconds: float) -> MemoryUse:
    """Return the memory of a process and all its descendants.

    Args:
        process: Number of the process.
        seconds: Time of the measurement.
    """
    totals = dict.fromkeys(FIELDS.values(), 0.0)
    for number in descendants(process):
        for name, kib in read_status(number):
            totals[name] += kib / 1024
    return MemoryUse(round(seconds, 2), *(round(value, 2) for value in totals.values()))


def descendants(process: int) -> Iterator[int]:
    """Yield a process and all processes that it started, directly or not.

    Args:
        process: Number of the process.
    """
    yield process
    for thread in Path(f"/proc/{process}/task").glob("*"):
        try:
            children = (thread / "children").read_text("utf-8").split()
        except OSError:  # the thread or the process has ended
            continue
        for child in children:
            yield from descendants(int(child))


def read_status(process: int) -> Iterator[tuple[str, float]]:
    """Yield the memory of a process in KiB, by its name in the log; nothing for one that has ended.

    Args:
        process: Number of the process.
    """
    try:
        lines = Path(f"/proc/{process}/status").read_text("utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        name, _, value = line.partition(":")
        if name in FIELDS:
            yield FIELDS[name], float(value.split()[0])


def describe(uses: Sequence[MemoryUse]) -> str:
    """Return the maxima of a log, and the anonymous memory at a tenth of the time and at its end.

    Args:
        uses: The measurements.
    """
    if not uses:
        return "no measurement"
    early, last = uses[len(uses) // 10], uses[-1]
    anonymous, mapped = max(use.anonymous for use in uses), max(use.mapped for use in uses)
    return (
        f"memory in MiB: at most {anonymous:,.0f} anonymous and {mapped:,.0f} mapped; anonymous {early.anonymous:,.0f} "
        f"after {early.seconds:,.0f} s, {last.anonymous:,.0f} after {last.seconds:,.0f} s"
    )


def read_log(folder: Path) -> list[MemoryUse]:
    """Return the measurements of a log.

    Args:
        folder: Folder of the log.
    """
    lines = (folder / "memory.jsonl").read_text("utf-8").splitlines()
    return [MemoryUse(**json.loads(line)) for line in lines]


def draw_logs(logs: dict[str, list[MemoryUse]], path: Path) -> None:
    """Draw anonymous and mapped memory against minutes, one panel for each command.

    Args:
        logs: Measurements by title.
        path: SVG file.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(logs), 3.0), layout="constrained")
    panels = figure.subplots(1, len(logs), squeeze=False)[0]
    for panel, (title, uses) in zip(panels, logs.items(), strict=True):
        minutes = [use.seconds / 60 for use in uses]
        panel.plot(minutes, [use.anonymous for use in uses], color="#0b5fa5", label="anonymous")
        panel.plot(minutes, [use.mapped for use in uses], color="#8c8c8c", label="mapped files")
        panel.set_title(title, fontsize=10)
        panel.set_xlabel("minutes")
        panel.set_ylim(bottom=0)
    panels[0].set_ylabel("MiB")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", ncols=2, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
