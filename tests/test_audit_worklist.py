"""auditing/worklist.py: the worklist as CSV."""

import csv
import io

from audited_pairs import ERRORS, audited_errors

from pellucid.auditing.decisions import DECISION_COLUMNS, SOURCE_COLUMN
from pellucid.auditing.worklist import COLUMNS, worklist_csv
from pellucid.data.examples import OtherColumns


def test_a_worklist_has_a_row_per_record_and_empty_columns_for_decisions() -> None:
    records = audited_errors().records
    rows = list(csv.DictReader(io.StringIO(worklist_csv(records))))
    assert [row["line"] for row in rows] == [str(record.line) for record in records]
    assert [row["rank"] for row in rows] == [str(rank) for rank in range(1, len(records) + 1)]
    assert tuple(rows[0]) == COLUMNS and {*DECISION_COLUMNS, SOURCE_COLUMN} <= set(COLUMNS)
    assert {(row["decision"], row["new_target"], row["new_source"]) for row in rows} == {("", "", "")}
    first = rows[0]
    assert int(first["line"]) - 1 in ERRORS and float(first["suspicion"]) == float(first["pair_ngram"]) > 1
    assert first["network"] == "" and first["kinds"].startswith("prediction") and first["output"] in first["reasons"]
    assert rows[-1]["position"] == rows[-1]["reasons"] == "" and rows[-1]["suspicion"] == "0.000"


def test_other_columns_follow_and_the_delimiter_is_that_of_the_file() -> None:
    records = audited_errors().records
    others = OtherColumns(["source", "note"], {records[0].line: ["a;b", 'say "x"']})
    rows = list(csv.DictReader(io.StringIO(worklist_csv(records, others, ";")), delimiter=";"))
    assert tuple(rows[0]) == (*COLUMNS, "input_source", "note")
    assert (rows[0]["input_source"], rows[0]["note"]) == ("a;b", 'say "x"')
    assert (rows[1]["input_source"], rows[1]["note"]) == ("", "") and rows[0]["source"] == records[0].example.source
