"""Tables of the results in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

from benchmarks.peers.cases import BEAM_SIZE, CASES, CELLS, DECODING_BATCH_SIZE, NUM_DIGITS, Cell, Task
from benchmarks.peers.results import Results, median_field
from benchmarks.peers.systems import SYSTEMS

PELLUCID = "pellucid"


class TableSpec(NamedTuple):
    """One table: a value of each system, and the ratio of Pellucid to the best of the others."""

    title: str
    tasks: Sequence[Task]
    """Tasks whose records have the value."""
    field: str
    """Field of the record."""
    best: Literal["max", "min"]
    """The best value is the maximum or the minimum."""
    digits: int = 0
    """Number of decimals."""


TABLES = (
    TableSpec("Training, samples per CPU second", ("train",), "rate", "max"),
    TableSpec("Greedy decoding, sentences per CPU second", ("greedy",), "rate", "max"),
    TableSpec(f"Beam size {BEAM_SIZE}, sentences per CPU second", ("beam",), "rate", "max"),
    TableSpec("Peak memory of training, MiB", ("train",), "peak_mib", "min"),
    TableSpec("Start, wall seconds to the first update", ("train", "start"), "start_wall", "min", 1),
    TableSpec("Start, CPU seconds to the first update", ("train", "start"), "start_cpu", "min", 1),
)


def format_tables(results: Results) -> str:
    """Return all tables with a description of the measurements and the reasons of empty cells.

    Args:
        results: Results of the benchmark.
    """
    parts = [format_machine(results.machine), *(format_table(results, spec) for spec in TABLES)]
    parts += [parameters_table(results), format_notes(results), format_failures(results)]
    return "\n\n".join(filter(None, parts)) + "\n"


def format_machine(machine: Mapping[str, object]) -> str:
    """Return the description of machine and measurements.

    Args:
        machine: Description of the machine, as in results.json.
    """
    order = "one after the other" if machine["jobs"] == "1" else "GRU and LSTM in parallel, each pinned to a core"
    return (
        f"{machine['processor']}, {machine['cores']} cores, Python {machine['python']}, {machine['torch']}, "
        f"{machine['date']}; one thread; {order}. Every system runs through its command line; the systems "
        f"alternate in one run. Data: {NUM_DIGITS} spelled digits per line, symbols are characters. Training: median "
        f"over blocks of updates except the first. Decoding: batches of {DECODING_BATCH_SIZE}, {NUM_DIGITS} symbols "
        "per output, difference between a long and a short file. The last column is the ratio of Pellucid to the best "
        "of the others."
    )


def format_table(results: Results, spec: TableSpec) -> str:
    """Return one table without empty rows; the empty string without any row.

    Args:
        results: Results of the benchmark.
        spec: The table.
    """
    rows = [
        _row([case, cell.upper(), *row_cells(median_values(results, spec, case, cell), spec)])
        for case in CASES
        for cell in CELLS
        if any(value is not None for value in median_values(results, spec, case, cell).values())
    ]
    head = ["case", "cell", *(system.title for system in SYSTEMS.values()), "ratio"]
    rule = _row(["---", "---", *(["--:"] * (len(SYSTEMS) + 1))])
    return "\n".join([f"**{spec.title}**", "", _row(head), rule, *rows]) if rows else ""


def median_values(results: Results, spec: TableSpec, case: str, cell: Cell) -> dict[str, float | None]:
    """Return the value of each system for one network: the median over repeats.

    Args:
        results: Results of the benchmark.
        spec: The table.
        case: Name of the case.
        cell: The cell.
    """
    records = [
        record for record in results.records if (record.case, record.cell) == (case, cell) and record.task in spec.tasks
    ]
    return {name: median_field([record for record in records if record.system == name], spec.field) for name in SYSTEMS}


def compute_ratio(values: Mapping[str, float | None], best: Literal["max", "min"]) -> float | None:
    """Return the ratio of Pellucid to the best of the others; None if one of them is missing.

    Args:
        values: Value of each system.
        best: The best value is the maximum or the minimum.
    """
    best_other, own_value = _best_other(values, best), values.get(PELLUCID)
    return None if own_value is None or best_other is None else own_value / best_other


def row_cells(values: Mapping[str, float | None], spec: TableSpec) -> list[str]:
    """Return the cells of a row: the values, the best of the others in bold, and the ratio.

    Args:
        values: Value of each system.
        spec: The table.
    """
    best = _best_other(values, spec.best)
    row = []
    for name, value in values.items():
        text = "–" if value is None else _format_number(value, spec.digits)
        row.append(f"**{text}**" if name != PELLUCID and value is not None and value == best else text)
    ratio = compute_ratio(values, spec.best)
    return [*row, "–" if ratio is None else f"{ratio:.2f}×"]


def _best_other(values: Mapping[str, float | None], best: Literal["max", "min"]) -> float | None:
    """Return the best value of the other systems, or None."""
    others = [value for name, value in values.items() if name != PELLUCID and value is not None]
    if not others:
        return None
    return max(others) if best == "max" else min(others)


def parameters_table(results: Results) -> str:
    """Return a table of the number of parameters that each system reports.

    Args:
        results: Results of the benchmark.
    """
    rows = []
    for case in CASES:
        for cell in CELLS:
            counts = [next(_reported_parameters(results, case, cell, name), None) for name in SYSTEMS]
            if any(counts):
                rows.append(_row([case, cell.upper(), *("–" if count is None else f"{count:,}" for count in counts)]))
    head = _row(["case", "cell", *(system.title for system in SYSTEMS.values())])
    rule = _row(["---", "---", *(["--:"] * len(SYSTEMS))])
    return "\n".join(["**Parameters, as reported by each system**", "", head, rule, *rows]) if rows else ""


def format_notes(results: Results) -> str:
    """Return the notes on each system, and the length of its outputs where it differs from the requested one.

    Args:
        results: Results of the benchmark.
    """
    lines = [f"* {system.title}: {system.notes}." for system in SYSTEMS.values() if system.notes]
    for record in results.records:
        symbols = record.raw.get("symbols_per_output", NUM_DIGITS)
        if symbols != NUM_DIGITS and record.rate:
            name = f"{record.case} {record.cell.upper()} {record.task}, {SYSTEMS[record.system].title}"
            lines.append(
                f"* {name}: {symbols:g} printed symbols per output on average, without special symbols such as padding."
            )
    return "\n".join(lines)


def format_failures(results: Results) -> str:
    """Return the reasons of empty cells.

    Args:
        results: Results of the benchmark.
    """
    lines = []
    for record in results.records:
        if record.reason:
            name = f"{record.case} {record.cell.upper()} {record.task}, {SYSTEMS[record.system].title}"
            lines.append(f"* {name}: {' / '.join(record.reason.splitlines()[-3:])}")
    return "\n".join(["Empty cells:", "", *lines]) if lines else ""


def _reported_parameters(results: Results, case: str, cell: Cell, name: str) -> Iterator[int]:
    """Yield the numbers of parameters that the trainings of a system report."""
    for record in results.records:
        if (record.case, record.cell, record.system) == (case, cell, name) and record.raw.get("reported_parameters"):
            yield record.raw["reported_parameters"]


def _format_number(number: float, digits: int) -> str:
    """Return a number with the given decimals, or else with at least three digits."""
    return f"{number:,.{digits}f}" if digits or number >= 100 else f"{number:.3g}"


def _row(texts: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(texts)} |"
