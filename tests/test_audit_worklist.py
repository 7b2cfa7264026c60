"""auditing/worklist.py: the worklist as CSV."""

import csv
import io

from audited_pairs import ERRORS, audited_errors

from pellucid.auditing.decisions import DECISION_COLUMNS
from pellucid.auditing.worklist import COLUMNS, worklist_csv


def test_a_worklist_has_a_row_per_record_and_empty_columns_for_decisions() -> None:
    records = audited_errors().records
    rows = list(csv.DictReader(io.StringIO(worklist_csv(records))))
    assert [row["line"] for row in rows] == [str(record.line) for record in records]
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, len(records) + 1)]
    assert tuple(rows[0]) == COLUMNS and set(DECISION_COLUMNS) <= set(COLUMNS)
    assert {(row["decision"], row["new_target"]) for row in rows} == {("", "")}
    first = rows[0]
    assert int(first["line"]) - 1 in ERRORS and float(first["suspicion"]) == float(first["pair_ngram"]) > 1
    assert first["network"] == "" and first["kinds"].startswith("prediction") and first["output"] in first["reasons"]
    assert rows[-1]["position"] == rows[-1]["reasons"] == "" and rows[-1]["suspicion"] == "0.000"
