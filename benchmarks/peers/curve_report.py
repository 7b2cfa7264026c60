"""Results of the curves of error against minutes: records, table in Markdown, and figure."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.peers.figure import COLORS, MARKERS
from benchmarks.peers.pronunciations import format_error_rate
from benchmarks.peers.results import RecordFile
from pellucid.errors import count_noun
from pellucid.evaluation.metrics import wilson_interval

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass
class CurveRecord:
    """Word error rate of one system after one budget, or the reason of its failure."""

    system: str
    minutes: float | None
    """Budget of the training; None for a system without one."""
    num_words: int
    num_wrong: int | None = None
    seconds: float | None = None
    """Seconds of the training by the clock, from the start of its process."""
    note: str = ""
    """Remark on a training that ended before its budget."""
    reason: str = ""
    """Reason of a failure; empty for a successful measurement."""
    versions: str = ""
    """Versions and date of the measurement; empty in results of earlier versions, which do not record them."""
    raw: dict[str, Any] = field(default_factory=dict)
    """Raw values."""

    @property
    def key(self) -> tuple[object, ...]:
        """Return system and budget, which identify the measurement."""
        return self.system, self.minutes

    @property
    def is_measured(self) -> bool:
        """Return True if there is a word error rate."""
        return self.num_wrong is not None and not self.reason


class CurveResults(RecordFile[CurveRecord]):
    """Records of the curves."""

    def __init__(self, path: Path) -> None:
        """Read the file if it exists.

        Args:
            path: The JSON file.
        """
        super().__init__(path, CurveRecord)

    def find(self, system: str) -> list[CurveRecord]:
        """Return the records of a system in the order of their budgets.

        Args:
            system: Name of the system.
        """
        records = [record for record in self.records if record.system == system]
        return sorted(records, key=lambda record: record.minutes or 0.0)

    def budgets(self) -> list[float]:
        """Return all budgets in minutes, in ascending order."""
        return sorted({record.minutes for record in self.records if record.minutes is not None})


def format_curves(results: CurveResults, titles: Mapping[str, str]) -> str:
    """Return the description, the tables, the versions, the remarks and the reasons of empty cells.

    Args:
        results: Results of the benchmark.
        titles: Title of each system, in the order of the rows.
    """
    parts = [_format_description(results), _format_budgets(results, titles), _format_points(results, titles)]
    notes = _format_remarks(results.records, titles, "note")
    failures = _format_remarks(results.records, titles, "reason")
    parts.append("\n".join(["Versions:", "", *_format_versions(results.records)]))
    parts += ["\n".join(notes), "\n".join(["Empty cells:", "", *failures]) if failures else ""]
    return "\n\n".join(filter(None, parts)) + "\n"


def write_curve_figure(results: CurveResults, titles: Mapping[str, str], path: Path) -> bool:
    """Write the figure as SVG: word error rate against minutes of training, on a logarithmic axis.

    Args:
        results: Results of the benchmark.
        titles: Title of each system, in the order of the legend.
        path: The file.

    Returns:
        False if there is nothing to draw.
    """
    from matplotlib.figure import Figure

    if not any(record.is_measured for record in results.records):
        return False
    figure = Figure(figsize=(7.0, 4.4), layout="constrained")
    axes = figure.subplots()
    for (name, title), color, marker in zip(titles.items(), COLORS, MARKERS, strict=False):
        _draw_curve(axes, [record for record in results.find(name) if record.is_measured], title, (color, marker))
    _label_axes(axes, results.budgets())
    figure.legend(loc="outside lower center", ncols=3, frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def _draw_curve(axes: "Axes", records: Sequence[CurveRecord], title: str, style: tuple[str, str]) -> None:
    """Draw the error rates of a system with their 95 % intervals; a system without budgets is one point."""
    if not records:
        return
    minutes = [record.minutes or (record.seconds or 0.0) / 60 for record in records]
    rates = [100 * (record.num_wrong or 0) / record.num_words for record in records]
    bounds = [wilson_interval(record.num_wrong or 0, record.num_words) for record in records]
    lower = [rate - 100 * low for rate, (low, _) in zip(rates, bounds, strict=True)]
    upper = [100 * high - rate for rate, (_, high) in zip(rates, bounds, strict=True)]
    color, marker = style
    axes.errorbar(minutes, rates, (lower, upper), color=color, marker=marker, capsize=2, linewidth=1.2, label=title)


def _label_axes(axes: "Axes", budgets: Sequence[float]) -> None:
    """Set the scales and labels of the axes."""
    axes.set_xscale("log")
    shortest, _ = axes.get_xlim()
    decades = [minutes for minutes in (0.001, 0.01, 0.1) if shortest < minutes < min(budgets, default=1.0)]
    ticks = [*decades, *budgets]
    axes.set_xticks(ticks, [f"{minutes:g}" for minutes in ticks])
    axes.minorticks_off()
    axes.set_xlabel("minutes of training")
    axes.set_ylabel("word error rate of the test words, %")
    axes.grid(alpha=0.25)


def _format_description(results: CurveResults) -> str:
    """Return the description of machine and data."""
    machine = results.machine
    return (
        f"{machine['processor']}, {machine['cores']} cores, one thread{machine['pinned']}. "
        f"{machine['num_pairs']:,} training pairs, {machine['num_words']:,} test words, seed {machine['seed']}. Word "
        "error rates in percent with 95 % intervals; a word is correct if its output equals one of its pronunciations. "
        f"Validations of yoyodyne and JoeyNMT per epoch: {machine['validations']}."
    )


def _format_budgets(results: CurveResults, titles: Mapping[str, str]) -> str:
    """Return the table of the systems with budgets."""
    budgets = results.budgets()
    rows = []
    for name, title in titles.items():
        cells = {record.minutes: record for record in results.find(name) if record.minutes is not None}
        if cells:
            rows.append(_row([title, *(_format_cell(cells.get(minutes)) for minutes in budgets)]))
    head = _row(["system", *(f"{minutes:g} min" for minutes in budgets)])
    return "\n".join([head, _row(["---", *["--:"] * len(budgets)]), *rows]) if rows else ""


def _format_points(results: CurveResults, titles: Mapping[str, str]) -> str:
    """Return the table of the systems without budgets."""
    rows = []
    for name, title in titles.items():
        for record in results.find(name):
            if record.minutes is None:
                seconds = "–" if record.seconds is None else f"{record.seconds:,.1f}"
                rows.append(_row([title, _format_cell(record), seconds]))
    return (
        "\n".join([_row(["system", "word error rate", "seconds of training"]), "| --- | --: | --: |", *rows])
        if rows
        else ""
    )


def _format_versions(records: Iterable[CurveRecord]) -> list[str]:
    """Return a line per combination of versions and date, with the number of its measurements."""
    counts = Counter(record.versions or "not recorded" for record in records if record.is_measured)
    return [f"* {versions}: {count_noun(count, 'measurement')}" for versions, count in sorted(counts.items())]


def _format_cell(record: CurveRecord | None) -> str:
    """Return the error rate with its interval; a dash without one."""
    if record is None or not record.is_measured:
        return "–"
    rate, interval = format_error_rate(record.num_wrong or 0, record.num_words)
    return f"{rate} ({interval})"


def _format_remarks(records: Iterable[CurveRecord], titles: Mapping[str, str], field_name: str) -> list[str]:
    """Return a line per record with a note or a reason."""
    lines = []
    for record in sorted(records, key=lambda record: (list(titles).index(record.system), record.minutes or 0.0)):
        if text := getattr(record, field_name):
            budget = "" if record.minutes is None else f", {record.minutes:g} min"
            lines.append(f"* {titles[record.system]}{budget}: {' / '.join(text.splitlines()[-3:])}")
    return lines


def _row(texts: Sequence[str]) -> str:
    """Return a row of a Markdown table."""
    return f"| {' | '.join(texts)} |"
