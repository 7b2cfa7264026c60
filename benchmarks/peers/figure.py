"""Figure of the rates of every system on a logarithmic axis."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.peers.cases import BEAM_SIZE, CASES, CELLS, Cell, Task
from benchmarks.peers.results import Results
from benchmarks.peers.systems import SYSTEMS
from benchmarks.peers.table import TABLES, median_values

if TYPE_CHECKING:
    from matplotlib.axes import Axes

PANELS: dict[Task, str] = {"train": "training", "greedy": "greedy decoding", "beam": f"beam {BEAM_SIZE}"}
COLORS = ("#0b5fa5", "#8c8c8c", "#b58b4c", "#7a9a5b", "#a2688f")
MARKERS = ("o", "s", "^", "D", "v")


def write_figure(results: Results, path: Path) -> bool:
    """Write the figure as SVG.

    Args:
        results: Results of the benchmark.
        path: The file.

    Returns:
        False if there is no rate to draw.
    """
    from matplotlib.figure import Figure

    measured = {(record.case, record.cell) for record in results.records if record.rate}
    networks = [(case, cell) for case in CASES for cell in CELLS if (case, cell) in measured]
    if not networks:
        return False
    figure = Figure(figsize=(10.5, 4.2), layout="constrained")
    axes = figure.subplots(1, len(PANELS), sharex=True)
    for panel, (task, title) in zip(axes, PANELS.items(), strict=True):
        draw_task(panel, results, task, networks)
        panel.set_title(title, fontsize=10)
    axes[0].set_ylabel("samples or sentences per CPU second")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(SYSTEMS), frameon=False)
    figure.savefig(path, format="svg", metadata={"Date": None})
    return True


def draw_task(panel: "Axes", results: Results, task: Task, networks: Sequence[tuple[str, Cell]]) -> None:
    """Draw a marker for each system and network.

    Args:
        panel: Axes of the task.
        results: Results of the benchmark.
        task: The task.
        networks: Case and cell of each network.
    """
    spec = next(spec for spec in TABLES if spec.tasks == (task,) and spec.field == "rate")
    for (name, system), color, marker in zip(SYSTEMS.items(), COLORS, MARKERS, strict=True):
        values = [median_values(results, spec, case, cell)[name] for case, cell in networks]
        rates = [float("nan") if value is None else value for value in values]
        panel.plot(range(len(networks)), rates, linestyle="", color=color, marker=marker, label=system.title)
    panel.set_yscale("log")
    panel.set_xticks(range(len(networks)), [f"{case}\n{cell.upper()}" for case, cell in networks], fontsize=7)
    panel.grid(axis="y", which="both", alpha=0.25)
