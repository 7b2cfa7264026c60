"""pellucid bench train|greedy|beam|all [--case NAME ...] [--cell NAME ...] [--json] [--profile] [--scaling FILE]"""

import json
import math
import os
import shutil
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, get_args

import msgspec
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pellucid.bench.cases import CASES, BenchRequest, BenchSelection, select_cases
from pellucid.bench.child import run_measurement, run_profile
from pellucid.bench.machine import describe_machine
from pellucid.bench.results import BenchResult, StageTime
from pellucid.bench.scaling import ScalingPoint, measure_scaling
from pellucid.cli.arguments import parse_arguments
from pellucid.config.settings import Threads
from pellucid.error_messages import escape_json
from pellucid.errors import InputError, quote
from pellucid.files import write_atomic, write_text
from pellucid.kernels.dispatch import are_kernels_disabled

MIN_TABLE_WIDTH = 124
"""Columns of the table at least: a narrow terminal wraps it rather than losing figures."""
FIGURE_SUFFIXES = (".png", ".svg")
LEGEND = """\
/CPU s        samples a second of processor time, pairs learned or sources decoded; a busy machine changes it least
/s, tokens/s  samples, and target symbols, a second on the wall
step          processor time of one update, or of one batch decoded; median of the repeats
floor         least time of that step: operations counted from its shapes, at rates this machine has just shown
× floor       step / floor
peak          the most memory its process had
first call    what the first step took on the wall beyond the others; kernels (c)ompiled, (l)oaded, or (p)lain PyTorch
start         from the start of a process to its first update, on the wall, with 2,000 pairs read from a file"""
MAX_THREADS = get_args(Threads)[1].le


@dataclass(frozen=True)
class BenchArguments:
    """Measure speed and memory beside the least time the work can take."""

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """train, greedy, beam (five hypotheses), or all."""
    case: tuple[str, ...] = ()
    """tiny, small, medium, large: sizes of network and batch. All, where none is named."""
    cell: tuple[str, ...] = ()
    """gru, lstm. Both, where none is named."""
    threads: int = 1
    """Threads of computation; 0 takes one for each core."""
    repeats: int = 5
    """Parts of each measurement, whose median counts."""
    seconds: float = 5.0
    """How long the steady state is measured, each time."""
    plain: bool = False
    """Measure plain PyTorch as well, without kernels."""
    profile: bool = False
    """Show where the time of a training goes, stage by stage."""
    scaling: Path | None = None
    """Instead, draw time and memory over length, batch and hidden size around one case (.png, .svg)."""
    json: bool = False
    """Write JSON: one object a case, or a list of them."""


def main(arguments: list[str]) -> int:
    """Measure and tell."""
    given = parse_arguments(BenchArguments, "bench", arguments)
    asked = _plan_measurements(given)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # an exit that ends the measuring child, too
    if given.scaling is not None:
        _measure_scaling(given, asked, given.scaling)
        return 0
    machine = msgspec.to_builtins(describe_machine())
    records = [{**_measure_record(given, one), "machine": machine} for one in asked]
    if given.json:
        _print_json(records[0] if len(records) == 1 else records)
    else:
        _print_results(given, records)
    return 0


def _print_json(value: object) -> None:
    """Print plain values as JSON of several lines."""
    print("\n".join(map(escape_json, json.dumps(value, indent=1, ensure_ascii=False).split("\n"))))


def _plan_measurements(given: BenchArguments) -> list[BenchRequest]:
    """All measurements that are asked for; `InputError` for words and numbers that make no sense."""
    if given.threads > MAX_THREADS:
        raise InputError(f"--threads: expected {MAX_THREADS} at most, got {given.threads}")
    for name, value, least in (("threads", given.threads, 0), ("repeats", given.repeats, 1)):
        if value < least:
            raise InputError(f"--{name}: expected {least} or more, got {value}")
    if not (given.seconds > 0 and math.isfinite(given.seconds)):
        raise InputError(f"--seconds: expected a number above 0, got {given.seconds:g}")
    what = select_cases(given.task, given.case, given.cell)
    if given.profile and "train" not in what.tasks:
        raise InputError("--profile is of training: pellucid bench train --profile")
    if given.scaling is not None:
        what = _plan_scaling(given, given.scaling, what)
    options = (given.threads or os.cpu_count() or 1, given.repeats, given.seconds)
    return [
        BenchRequest(
            task, case, CASES[case], cell, threads=options[0], repeats=options[1], seconds=options[2], plain=plain
        )
        for task in what.tasks
        for case in what.cases
        for cell in what.cells
        for plain in _backends(given)
    ]


def _backends(given: BenchArguments) -> tuple[bool, ...]:
    """With kernels, in plain PyTorch, or both."""
    if are_kernels_disabled():
        return (True,)
    return (False, True) if given.plain else (False,)


def _plan_scaling(given: BenchArguments, path: Path, what: BenchSelection) -> BenchSelection:
    """One measurement to draw curves around: small GRU, where nothing else is said."""
    if path.suffix not in FIGURE_SUFFIXES:
        raise InputError(f"--scaling takes a file that ends with .png or .svg, got {quote(path.suffix or 'no ending')}")
    if not path.absolute().parent.is_dir():
        raise InputError(f"cannot write {path}: no such folder")
    if len(what.tasks) > 1 or len(given.case) > 1 or len(given.cell) > 1 or given.plain or given.profile:
        raise InputError("--scaling takes one task, one case and one cell, and neither --plain nor --profile")
    return BenchSelection(what.tasks, given.case or ("small",), what.cells if given.cell else ("gru",))


def _measure_record(given: BenchArguments, asked: BenchRequest) -> dict[str, Any]:
    """One measurement as JSON has it."""
    with _show_status(asked):
        result = run_measurement(asked)
        stages = run_profile(asked) if given.profile and asked.task == "train" else None
    record: dict[str, Any] = msgspec.to_builtins(result)
    return record if stages is None else {**record, "profile": msgspec.to_builtins(stages)}


@contextmanager
def _show_status(asked: BenchRequest, more: str = "") -> Iterator[None]:
    """Say what is measured meanwhile, where a person watches."""
    if not sys.stderr.isatty():
        yield
        return
    words = f"{asked.task} {asked.name} {asked.cell}{' plain' if asked.plain else ''}{more}"
    with Console(stderr=True).status(f"measuring {words}"):
        yield


def _print_results(given: BenchArguments, records: Sequence[dict[str, Any]]) -> None:
    """The table, what its columns mean, the machine, and the profiles."""
    results = [msgspec.convert(record, BenchResult) for record in records]
    _print_table(_result_table(results))
    print(LEGEND, "", sep="\n")
    for record in records:
        if "profile" in record:
            way = " plain" if record["plain"] else ""
            _print_table(
                _stage_table(
                    f"{record['case']} {record['cell']}{way}", msgspec.convert(record["profile"], list[StageTime])
                )
            )
    if given.profile:
        print("Milliseconds of a batch in a training that sees each pair once: further passes begin with batching.\n")
    _print_machine(records[0]["machine"], results[0].threads)


def _print_machine(machine: dict[str, Any], threads: int) -> None:
    """Where and when."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    print(
        f"machine   {machine['processor']}, {machine['cores']} cores, {machine['system']}, load {machine['load']:.1f}"
    )
    print(f"versions  {versions}", f"threads   {threads}", f"date      {machine['date']}", sep="\n")


def _result_table(results: Sequence[BenchResult]) -> Table:
    """One line a measurement."""
    table = _empty_table(("task", "case", "cell"))
    heads = ("/CPU s", "/s", "tokens/s", "step ms", "floor ms", "× floor", "peak MiB", "first call s", "start s")
    for head in heads:
        table.add_column(head, justify="right", no_wrap=True)
    for result in results:
        start = "" if result.start_seconds is None else f"{result.start_seconds:.1f}"
        table.add_row(
            f"{result.task}{' plain' if result.plain else ''}",
            result.case,
            result.cell,
            *(f"{value:,.0f}" for value in (result.samples_per_cpu_second, result.samples_per_second)),
            f"{result.tokens_per_second:,.0f}",
            *(f"{value:,.1f}" for value in (result.step_cpu_ms, result.floor_ms)),
            f"{result.floor_ratio:.2f}",
            f"{result.peak_mib:,.0f}",
            f"{result.first_call_seconds:.1f} {result.first_call[0]}",
            start,
        )
    return table


def _stage_table(title: str, stages: Sequence[StageTime]) -> Table:
    """One line a stage."""
    table = _empty_table((f"{title}: stage",))
    for head in ("wall ms", "share", "CPU ms", "share"):
        table.add_column(head, justify="right", no_wrap=True)
    for stage in stages:
        wall, cpu = (
            (f"{stage.wall_ms:,.2f}", f"{stage.wall_share:.1%}"),
            (f"{stage.cpu_ms:,.2f}", f"{stage.cpu_share:.1%}"),
        )
        table.add_row(stage.name, *wall, *cpu)
    return table


def _empty_table(heads: Sequence[str]) -> Table:
    """A table without boxes."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        table.add_column(head, no_wrap=True)
    return table


def _print_table(table: Table) -> None:
    """A table, wide enough, without colours where nobody sees them."""
    Console(width=max(MIN_TABLE_WIDTH, shutil.get_terminal_size().columns), highlight=False).print(table)


def _measure_scaling(given: BenchArguments, asked: Sequence[BenchRequest], path: Path) -> None:
    """Curves as a figure, and their points as a table or JSON."""
    from pellucid.bench.scaling import scaling_figure
    from pellucid.reporting.figures import to_png, to_svg

    machine = msgspec.to_builtins(describe_machine())
    with _show_status(asked[0], ", larger and smaller"):
        curves = list(measure_scaling(asked[0]))
    figure = scaling_figure(curves)
    if path.suffix == ".png":
        write_atomic(path, to_png(figure))
    else:
        write_text(path, to_svg(figure))
    if given.json:
        listed = [{"varied": varied, "value": value, **msgspec.to_builtins(one)} for varied, value, one in curves]
        _print_json(listed)
    else:
        _print_table(_curve_table(curves))
        _print_machine(machine, asked[0].threads)
        print(path)


def _curve_table(curves: Sequence[ScalingPoint]) -> Table:
    """One line a point."""
    table = _empty_table(("varied",))
    for head in ("value", "10⁹ operations", "step ms", "floor ms", "× floor", "peak MiB"):
        table.add_column(head, justify="right", no_wrap=True)
    for varied, value, one in curves:
        times = (f"{one.step_cpu_ms:,.1f}", f"{one.floor_ms:,.1f}", f"{one.floor_ratio:.2f}")
        table.add_row(varied, str(value), f"{one.operations / 1e9:.3f}", *times, f"{one.peak_mib:,.0f}")
    return table
