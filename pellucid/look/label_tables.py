"""Tags, classes and positions in the terminal: their scores, and what was answered for what."""

from rich.table import Table
from rich.text import Text

from pellucid.evaluation.intervals import Interval
from pellucid.evaluation.labels import FIRST, Labelled
from pellucid.evaluation.metrics import Evaluation
from pellucid.look.visible import visible

MOST = 16
"""Labels that a table has room for, as rows and columns."""


def label_rows(labelled: Labelled, evaluation: Evaluation) -> list[tuple[str, str, str]]:
    """The scores: name, value, and its interval or what it is."""
    accuracy, about = f"{labelled.accuracy:.2f} %", _ci(labelled.accuracy_ci95)
    rows = [("accuracy", accuracy, about)]
    if labelled.per_position:
        exact = f"{evaluation.exact_match:.2f} %", f"{_ci(evaluation.exact_match_ci95)} (whole sequences)"
        rows = [("tags right", accuracy, about), ("all tags right", *exact)]
        rows += [("Q3", accuracy, "the same, of H, E and C")] if labelled.q3 is not None else []
    if labelled.first is not None and labelled.first_ci95 is not None:
        rows.append((f"among the first {FIRST}", f"{labelled.first:.2f} %", _ci(labelled.first_ci95)))
    if labelled.macro_f1 is not None:
        rows.append(("macro F1", f"{labelled.macro_f1:.2f} %", "mean over labels"))
    if labelled.mcc is not None:
        rows.append(("correlation", f"{labelled.mcc:.4f}", "MCC of many classes (Gorodkin 2004)"))
    if labelled.spans is not None:
        spans = labelled.spans
        rows.append(("span F1", f"{spans.f1:.2f} %", _ci(spans.f1_ci95)))
        counts = f"{spans.right:,} right of {spans.found:,} found, {spans.wanted:,} wanted"
        rows.append(("span precision, recall", f"{spans.precision:.2f} %, {spans.recall:.2f} %", counts))
    return rows


def label_table(labelled: Labelled) -> Table | None:
    """Labels wanted down, answered across; None where there are none, or too many."""
    if not 1 < len(labelled.labels) <= MOST:
        return None
    table = Table(title="labels wanted (down) and answered (across)", title_justify="left")
    for head in ("", *map(visible, labelled.labels)):
        table.add_column(Text(head), justify="right")
    for label, counts in zip(labelled.labels, labelled.confusion, strict=True):
        table.add_row(Text(visible(label)), *(f"{count:,}" for count in counts))
    return table


def _ci(interval: Interval) -> str:
    """An interval in words."""
    return f"95 %: {interval.low:.2f} to {interval.high:.2f}"
