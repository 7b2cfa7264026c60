"""Subcommand bench: pellucid bench train|greedy|beam|all [--case NAME ...] [--cell NAME ...] [--json] [--profile]"""

import json
import math
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, cast, get_args

import msgspec
import tyro
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table

from pellucid.bench.cases import CASES, BenchRequest, BenchSelection, select_cases
from pellucid.bench.child import run_measurement, run_profile
from pellucid.bench.machine import describe_machine
from pellucid.bench.results import BenchResult, ScalingPoint, StageTime
from pellucid.cli.arguments import parse_arguments
from pellucid.cli.output_files import check_output_files
from pellucid.cli.sources import print_result
from pellucid.config.settings import Precision, Threads
from pellucid.error_messages import describe_suffix, escape_json
from pellucid.errors import InputError, quote
from pellucid.files import follow_links, write_atomic, write_text
from pellucid.kernels.dispatch import are_kernels_disabled
from pellucid.reporting.terminal_width import environment_with_width, terminal_width

MIN_TABLE_WIDTH = 124
"""Minimum width of a table in columns. A narrower terminal wraps its lines."""
FIGURE_SUFFIXES = (".png", ".svg")
LEGEND = """\
/CPU s        samples (training pairs or sources) per CPU-second; least affected by other load
/s, tokens/s  samples and target symbols per second of wall-clock time
step          CPU time of one update or one decoded batch; median over the repeats
floor         lower bound of the step time: operations counted from the shapes, at rates measured on this machine
× floor       step / floor
peak          maximum memory of the process
first call    additional wall-clock time of the first step; kernels (c)ompiled, (l)oaded, or (p)lain PyTorch
start         wall-clock time from process start to the first update, with 2,000 pairs read from a file"""
MAX_THREADS = get_args(Threads)[1].le


@dataclass(frozen=True)
class BenchArguments:
    """Measure speed and memory on the CPU, and compare the time with a computed lower bound.

    The networks have additive attention and read spelled-out numbers of 20 digits; they are untrained.
    """

    task: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="TASK")]
    """train (updates), greedy (greedy search), beam (beam search, size 5), or all."""
    case: tuple[str, ...] = ()
    """Sizes of network and batch: tiny, small, medium, large. Default: all."""
    cell: tuple[str, ...] = ()
    """Recurrent cells: gru, lstm. Default: both."""
    threads: int = 1
    """Number of CPU threads, 0 to 1,024; 0: one per core."""
    repeats: int = 5
    """Number of parts, 1 or more, into which the measured steps are divided. Times are medians of their means."""
    seconds: float = 5.0
    """Minimum duration of a measurement in seconds, above 0, for all repeats together and after the warm-up."""
    plain: bool = False
    """Also measure with plain PyTorch, without the compiled kernels."""
    precision: tuple[str, ...] = ()
    """Precision of the matrix products of training: float32, bf16 (with the kernels only). Default: float32."""
    profile: bool = False
    """Also print the time of each stage of a training: reading, encoding, batches, forward and backward passes, update.
    For train and all."""
    scaling: Path | None = None
    """Measure one case with 1/4 to 4 times its source length, batch size or hidden size, and plot time and memory to
    this file (.png, .svg). Requires one task; default: small, gru. Excludes --plain and --profile."""
    json: bool = False
    """Print JSON instead of tables: one object, or a list of several measurements."""


def main(arguments: list[str]) -> int:
    """Measure and print the results; with --scaling, write the figure.

    Args:
        arguments: Command line of the subcommand.

    Returns:
        Exit code 0.

    Raises:
        InputError: An argument is invalid, a file cannot be written, or a measurement fails.
    """
    args = parse_arguments(BenchArguments, "bench", arguments)
    requests = _plan_measurements(args)
    if args.scaling is not None:
        _measure_scaling(args, requests, args.scaling)
        return 0
    machine = msgspec.to_builtins(describe_machine())
    records = [{**_measure_record(args, request), "machine": machine} for request in requests]
    if args.json:
        _print_json(records[0] if len(records) == 1 else records)
    else:
        _print_results(args, records)
    return 0


def _print_json(value: object) -> None:
    """Print plain values as indented JSON."""
    print("\n".join(map(escape_json, json.dumps(value, indent=1, ensure_ascii=False).split("\n"))))


def _plan_measurements(args: BenchArguments) -> list[BenchRequest]:
    """Return all requested measurements; `InputError` for invalid names and numbers."""
    if args.threads > MAX_THREADS:
        raise InputError(f"--threads: expected at most {MAX_THREADS}, got {args.threads}")
    for name, value, minimum in (("threads", args.threads, 0), ("repeats", args.repeats, 1)):
        if value < minimum:
            raise InputError(f"--{name}: expected {minimum} or more, got {value}")
    if not (args.seconds > 0 and math.isfinite(args.seconds)):
        raise InputError(f"--seconds: expected a number above 0, got {args.seconds:g}")
    selection = select_cases(args.task, args.case, args.cell)
    if args.profile and "train" not in selection.tasks:
        raise InputError("--profile requires training: pellucid bench train --profile")
    if args.scaling is not None:
        selection = _plan_scaling(args, args.scaling, selection)
    precisions = _select_precisions(args)
    options = (args.threads or os.cpu_count() or 1, args.repeats, args.seconds)
    return [
        BenchRequest(
            task,
            case,
            CASES[case],
            cell,
            threads=options[0],
            repeats=options[1],
            seconds=options[2],
            plain=plain,
            precision=precision,
        )
        for task in selection.tasks
        for case in selection.cases
        for cell in selection.cells
        for plain in _backends(args)
        for precision in (precisions if task == "train" and not plain else ("float32",))
    ]


def _select_precisions(args: BenchArguments) -> tuple[Precision, ...]:
    """Return the precisions of training; `InputError` for unknown names, and for bf16 if this machine lacks it."""
    for name in args.precision:
        if name not in get_args(Precision):
            raise InputError(f"there is no precision {quote(name)} ({', '.join(get_args(Precision))})")
    precisions = cast(tuple[Precision, ...], tuple(dict.fromkeys(args.precision)) or ("float32",))
    if "bf16" in precisions:
        from pellucid.model.device import check_precision, find_device  # PyTorch takes a second to import

        check_precision(find_device("cpu"), "bf16")
    return precisions


def _backends(args: BenchArguments) -> tuple[bool, ...]:
    """Return whether to measure with kernels, in plain PyTorch, or both."""
    if are_kernels_disabled():
        return (True,)
    return (False, True) if args.plain else (False,)


def _plan_scaling(args: BenchArguments, path: Path, selection: BenchSelection) -> BenchSelection:
    """Return the one measurement around which curves are plotted; default: small GRU."""
    if path.suffix not in FIGURE_SUFFIXES:
        raise InputError(f"--scaling takes a file that ends with .png or .svg, got {describe_suffix(path.suffix)}")
    check_output_files(args, {"scaling": ""})
    if len(selection.tasks) > 1 or len(args.case) > 1 or len(args.cell) > 1 or args.plain or args.profile:
        raise InputError("--scaling requires one task, one case and one cell, and excludes --plain and --profile")
    return BenchSelection(selection.tasks, args.case or ("small",), selection.cells if args.cell else ("gru",))


def _measure_record(args: BenchArguments, request: BenchRequest) -> dict[str, Any]:
    """Run one measurement and return it as plain values."""
    with _show_status(request):
        result = run_measurement(request)
        stages = run_profile(request) if args.profile and request.task == "train" else None
    record: dict[str, Any] = msgspec.to_builtins(result)
    return record if stages is None else {**record, "profile": msgspec.to_builtins(stages)}


@contextmanager
def _show_status(request: BenchRequest, suffix: str = "") -> Iterator[None]:
    """Show the current measurement if standard error is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    description = f"{request.task} {request.name} {request.cell}{_variant(request)}{suffix}"
    with Console(stderr=True, _environ=environment_with_width()).status(f"measuring {description}"):
        yield


def _variant(measured: BenchRequest | BenchResult) -> str:
    """Return what distinguishes a measurement from the default: plain PyTorch, or another precision than float32."""
    return f"{' plain' if measured.plain else ''}{' bf16' if measured.precision == 'bf16' else ''}"


def _print_results(args: BenchArguments, records: Sequence[dict[str, Any]]) -> None:
    """Print the table, its legend, the machine and the profiles."""
    results = [msgspec.convert(record, BenchResult) for record in records]
    _print_table(_result_table(results))
    print(LEGEND, "", sep="\n")
    for record in records:
        if "profile" in record:
            title = f"{record['case']} {record['cell']}{_variant(msgspec.convert(record, BenchResult))}"
            _print_table(_stage_table(title, msgspec.convert(record["profile"], list[StageTime])))
    if args.profile:
        print("Milliseconds per batch in the first epoch; later epochs start at the stage batching.\n")
    _print_machine(records[0]["machine"], results[0].threads)


def _print_machine(machine: dict[str, Any], threads: int) -> None:
    """Print the machine, the versions and the date."""
    versions = ", ".join(f"{name} {number}" for name, number in machine["versions"].items())
    print(
        f"machine   {machine['processor']}, {machine['cores']} cores, {machine['system']}, load {machine['load']:.1f}"
    )
    print(f"versions  {versions}", f"threads   {threads}", f"date      {machine['date']}", sep="\n")


def _result_table(results: Sequence[BenchResult]) -> Table:
    """Return a table with one row per measurement."""
    table = _empty_table(("task", "case", "cell"))
    headings = ("/CPU s", "/s", "tokens/s", "step ms", "floor ms", "× floor", "peak MiB", "first call s", "start s")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        start_text = "" if result.start_seconds is None else f"{result.start_seconds:.1f}"
        table.add_row(
            f"{result.task}{_variant(result)}",
            result.case,
            result.cell,
            *(f"{value:,.0f}" for value in (result.samples_per_cpu_second, result.samples_per_second)),
            f"{result.tokens_per_second:,.0f}",
            *(f"{value:,.1f}" for value in (result.step_cpu_ms, result.floor_ms)),
            f"{result.floor_ratio:.2f}",
            f"{result.peak_mib:,.0f}",
            f"{result.first_call_seconds:.1f} {result.first_call[0]}",
            start_text,
        )
    return table


def _stage_table(title: str, stages: Sequence[StageTime]) -> Table:
    """Return a table with one row per stage."""
    table = _empty_table((f"{title}: stage",))
    for heading in ("wall ms", "share", "CPU ms", "share"):
        table.add_column(heading, justify="right", no_wrap=True)
    for stage in stages:
        wall, cpu = (
            (f"{stage.wall_ms:,.2f}", f"{stage.wall_share:.1%}"),
            (f"{stage.cpu_ms:,.2f}", f"{stage.cpu_share:.1%}"),
        )
        table.add_row(stage.name, *wall, *cpu)
    return table


def _empty_table(headings: Sequence[str]) -> Table:
    """Return a table without boxes."""
    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for heading in headings:
        table.add_column(heading, no_wrap=True)
    return table


def _print_table(table: Table) -> None:
    """Print a table at sufficient width, without syntax highlighting."""
    Console(width=max(MIN_TABLE_WIDTH, terminal_width()), highlight=False).print(table)


def _measure_scaling(args: BenchArguments, requests: Sequence[BenchRequest], path: Path) -> None:
    """Plot the curves, and print their points as a table or JSON."""
    from pellucid.bench.scaling import measure_scaling, scaling_figure
    from pellucid.reporting.figures import to_png, to_svg

    machine = msgspec.to_builtins(describe_machine())
    with _show_status(requests[0], ", larger and smaller"):
        curves = list(measure_scaling(requests[0]))
    figure = scaling_figure(curves)
    if path.suffix == ".png":
        write_atomic(follow_links(path), to_png(figure))
    else:
        write_text(follow_links(path), to_svg(figure))
    if args.json:
        points = [
            {"varied": parameter, "value": value, **msgspec.to_builtins(result)} for parameter, value, result in curves
        ]
        _print_json(points)
    else:
        _print_table(_curve_table(curves))
        _print_machine(machine, requests[0].threads)
        print_result(str(path))


def _curve_table(curves: Sequence[ScalingPoint]) -> Table:
    """Return a table with one row per point."""
    table = _empty_table(("varied",))
    for heading in ("value", "10⁹ operations", "step ms", "floor ms", "× floor", "peak MiB"):
        table.add_column(heading, justify="right", no_wrap=True)
    for parameter, value, result in curves:
        times = (f"{result.step_cpu_ms:,.1f}", f"{result.floor_ms:,.1f}", f"{result.floor_ratio:.2f}")
        table.add_row(parameter, str(value), f"{result.operations / 1e9:.3f}", *times, f"{result.peak_mib:,.0f}")
    return table
