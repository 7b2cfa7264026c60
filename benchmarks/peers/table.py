"""The tables, in Markdown."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from benchmarks.peers.cases import BEAM, CASES, CELLS, DECODING_BATCH, DIGITS, Cell, Task
from benchmarks.peers.results import Results, median
from benchmarks.peers.systems import SYSTEMS

OURS = "pellucid"


class Sheet(NamedTuple):
    """One table: a number of each system, and how ours compares with the best of the others."""

    title: str
    tasks: Sequence[Task]
    """The measurements that tell it."""
    what: str
    """The number of a record."""
    best: str
    """Whether the best is the highest or the lowest: max, min."""
    digits: int = 0


SHEETS = (
    Sheet("Training, samples a processor second", ("train",), "rate", "max"),
    Sheet("Greedy decoding, sentences a processor second", ("greedy",), "rate", "max"),
    Sheet(f"Beam {BEAM}, sentences a processor second", ("beam",), "rate", "max"),
    Sheet("Greatest memory in training, MiB", ("train",), "peak_mib", "min"),
    Sheet("Start, seconds on the clock to the first update", ("train", "start"), "start_wall", "min", 1),
    Sheet("Start, processor seconds to the first update", ("train", "start"), "start_cpu", "min", 1),
)


def table(results: Results) -> str:
    """All tables with what was done, and why cells are empty."""
    parts = [machine(results.machine), *(sheet_table(results, sheet) for sheet in SHEETS)]
    return "\n\n".join(filter(None, [*parts, parameters(results), notes(results), reasons(results)])) + "\n"


def machine(told: Mapping[str, object]) -> str:
    """Where, when and how."""
    lanes = "one after the other" if told["lanes"] == "1" else "GRU and LSTM at once, each on a core of its own"
    return (
        f"{told['processor']}, {told['cores']} cores, Python {told['python']}, {told['torch']}, {told['date']}; "
        f"one thread; {lanes}. Every system through its own command line, all systems in turn in one run. Spelled "
        f"digits, {DIGITS} a line, symbols are characters. Training: median over blocks of updates, all but the first. "
        f"Decoding: batches of {DECODING_BATCH}, {DIGITS} symbols an output, the difference between a long and a "
        f"short file. The last column is Pellucid over the best of the others."
    )


def sheet_table(results: Results, sheet: Sheet) -> str:
    """One table, without the rows that nothing is known of; empty if there is none."""
    rows = [
        _row([case, cell.upper(), *cells(numbers(results, sheet, case, cell), sheet)])
        for case in CASES
        for cell in CELLS
        if any(number is not None for number in numbers(results, sheet, case, cell).values())
    ]
    head = ["case", "cell", *(system.title for system in SYSTEMS.values()), "ratio"]
    rule = _row(["---", "---", *(["--:"] * (len(SYSTEMS) + 1))])
    return "\n".join([f"**{sheet.title}**", "", _row(head), rule, *rows]) if rows else ""


def numbers(results: Results, sheet: Sheet, case: str, cell: Cell) -> dict[str, float | None]:
    """The number of each system at one case: the median over repeats."""
    found = [record for record in results.records if (record.case, record.cell) == (case, cell)]
    found = [record for record in found if record.task in sheet.tasks]
    return {name: median([record for record in found if record.system == name], sheet.what) for name in SYSTEMS}


def ratio(told: Mapping[str, float | None], best: str) -> float | None:
    """Ours over the best of the others; None if one of the two is missing."""
    others = [number for name, number in told.items() if name != OURS and number is not None]
    ours = told.get(OURS)
    if ours is None or not others:
        return None
    return ours / (max(others) if best == "max" else min(others))


def cells(told: Mapping[str, float | None], sheet: Sheet) -> list[str]:
    """The numbers as they stand in a row, the best of the others in bold, the ratio last."""
    others = [number for name, number in told.items() if name != OURS and number is not None]
    best = (max(others) if sheet.best == "max" else min(others)) if others else None
    row = []
    for name, number in told.items():
        text = "–" if number is None else _number(number, sheet.digits)
        row.append(f"**{text}**" if name != OURS and number is not None and number == best else text)
    against = ratio(told, sheet.best)
    return [*row, "–" if against is None else f"{against:.2f}×"]


def parameters(results: Results) -> str:
    """How many parameters each system says it trains: the sizes match where these nearly do."""
    rows = []
    for case in CASES:
        for cell in CELLS:
            found = [next(_told(results, case, cell, name), None) for name in SYSTEMS]
            if any(found):
                rows.append(_row([case, cell.upper(), *("–" if number is None else f"{number:,}" for number in found)]))
    head = _row(["case", "cell", *(system.title for system in SYSTEMS.values())])
    rule = _row(["---", "---", *(["--:"] * len(SYSTEMS))])
    return "\n".join(["**Parameters, as each system tells**", "", head, rule, *rows]) if rows else ""


def notes(results: Results) -> str:
    """What a reader must know of each peer, and how long the outputs of its decoding were where not as asked."""
    lines = [f"* {system.title}: {system.notes}." for system in SYSTEMS.values() if system.notes]
    for record in results.records:
        symbols = record.raw.get("symbols_an_output", DIGITS)
        if symbols != DIGITS and record.rate:
            where = f"{record.case} {record.cell.upper()} {record.task}, {SYSTEMS[record.system].title}"
            lines.append(
                f"* {where}: {symbols:g} symbols printed an output on average (padding and other special ones are not)."
            )
    return "\n".join(lines)


def reasons(results: Results) -> str:
    """Why cells are empty."""
    lines = []
    for record in results.records:
        if record.reason:
            where = f"{record.case} {record.cell.upper()} {record.task}, {SYSTEMS[record.system].title}"
            lines.append(f"* {where}: {' / '.join(record.reason.splitlines()[-3:])}")
    return "\n".join(["Empty cells:", "", *lines]) if lines else ""


def _told(results: Results, case: str, cell: Cell, name: str) -> Iterator[int]:
    """The parameters that one system's trainings told of."""
    for record in results.records:
        if (record.case, record.cell, record.system) == (case, cell, name) and record.raw.get("parameters_told"):
            yield record.raw["parameters_told"]


def _number(number: float, digits: int) -> str:
    """A number with three digits at least, where it is not a count of seconds."""
    return f"{number:,.{digits}f}" if digits or number >= 100 else f"{number:.3g}"


def _row(texts: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(texts)} |"
