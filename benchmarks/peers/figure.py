"""The figure: rates of every system on a logarithmic axis."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.cases import BEAM, CASES, CELLS, Cell, Task
from benchmarks.peers.results import Results
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.table import SHEETS, numbers

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: dict[Task, str] = {"train": "training", "greedy": "greedy decoding", "beam": f"beam {BEAM}"}
COLOURS = ("#0b5fa5", "#8c8c8c", "#b58b4c", "#7a9a5b", "#a2688f")
MARKERS = ("o", "s", "^", "D", "v")


def write_figure(results: Results, path: Path) -> bool:
    """Write the figure as SVG; False if there is nothing to draw."""
    from matplotlib.figure import Figure

    places = [(case, cell) for case in CASES for cell in CELLS]
    known = {(record.case, record.cell) for record in results.records if record.rate}
    places = [place for place in places if place in known]
    if not places:
        return False
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharex=True)
    for panel, (task, title) in zip(axes, PANELS.items(), strict=True):
        draw(panel, results, task, places)
        panel.set_title(title, fontsize=10)
    axes[0].set_ylabel("samples or sentences a processor second")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SYSTEMS), frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def draw(panel: "Axes", results: Results, task: Task, places: Sequence[tuple[str, Cell]]) -> None:
    """One task: a mark for each system at each case."""
    sheet = next(sheet for sheet in SHEETS if sheet.tasks == (task,) and sheet.what == "rate")
    for at, (name, system) in enumerate(SYSTEMS.items()):
        told = [numbers(results, sheet, case, cell)[name] for case, cell in places]
        rates = [float("nan") if number is None else number for number in told]
        look = (COLOURS[at], MARKERS[at])
        panel.plot(range(len(places)), rates, linestyle="", color=look[0], marker=look[1], label=system.title)
    panel.set_yscale("log")
    panel.set_xticks(range(len(places)), [f"{case}\n{cell.upper()}" for case, cell in places], fontsize=7)
    panel.grid(axis="y", which="both", alpha=0.25)
