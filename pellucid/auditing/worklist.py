"""The worklist of an audit as CSV: one row per entry, the most suspicious first, with empty columns for decisions."""

from collections.abc import Sequence

from pellucid.auditing.characters import mark_invisible
from pellucid.auditing.types import AuditRecord, TargetDifference
from pellucid.config.settings import Delimiter
from pellucid.data.delimiters import format_csv
from pellucid.data.examples import OtherColumns

COLUMNS = (
    *("rank", "line", "id", "source", "features", "target", "output", "suspicion", "pair_ngram", "network"),
    *("position", "given", "expected", "source_position", "source_symbols", "kinds", "reasons", "neighbors"),
    *("decision", "new_target", "new_source"),
)
"""Columns of a worklist. Those of `DECISION_COLUMNS`, and `SOURCE_COLUMN`, make it a file of decisions."""
DECIMALS = 3


def worklist_csv(
    records: Sequence[AuditRecord],
    others: OtherColumns | None = None,
    delimiter: Delimiter = ",",
    line_end: str = "\n",
) -> str:
    """Return a worklist as CSV.

    Args:
        records: Records in their order.
        others: Other columns of the audited file, which follow those of the worklist; None if there is none. A name
            that the worklist has itself gets the prefix "input_".
        delimiter: Delimiter; the comma by default.
        line_end: Line end; that of Unix by default.
    """
    others = others or OtherColumns()
    empty = [""] * len(others.names)
    names = [*COLUMNS, *(f"input_{name}" if name.strip() in COLUMNS else name for name in others.names)]
    rows = [[*_cells(rank, record), *others.cells.get(record.line, empty)] for rank, record in enumerate(records, 1)]
    return format_csv([names, *rows], delimiter, line_end)


def _cells(rank: int, record: AuditRecord) -> list[str]:
    """Return the cells of a record, in the order of `COLUMNS`."""
    example, difference = record.example, record.difference
    scores = [format_nats(score.margin if score else None) for score in (record.pair_ngram, record.network)]
    return [
        *(str(rank), str(record.line), record.identifier, example.source, example.features, example.target),
        *(record.output, format_nats(record.suspicion), *scores),
        *([""] * 5 if difference is None else _difference_cells(difference)),
        *(" ".join(record.kinds), "; ".join(reason.text for reason in record.reasons)),
        *(
            " | ".join(
                f"{near.line}: {mark_invisible(near.source)} → {mark_invisible(near.target)}"
                for near in record.neighbors
            ),
            "",
            "",
            "",
        ),
    ]


def _difference_cells(difference: TargetDifference) -> list[str]:
    """Return the cells from "position" to "source_symbols"."""
    source_position = str(difference.source_position or "")
    given, expected = difference.given, difference.expected
    return [str(difference.position), given, expected, source_position, difference.source_symbols]


def format_nats(value: float | None) -> str:
    """Return a margin or a suspicion as text.

    Args:
        value: Number of nats; None, whose text is empty, if no model can score the target.
    """
    return "" if value is None else f"{value:.{DECIMALS}f}"
