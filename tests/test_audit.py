"""auditing/audit.py and neighbors.py: ranked records with reasons; pellucid.audit."""

from pathlib import Path

import msgspec
import pytest
from audited_pairs import ERRORS, audited_errors, make_entries, spelled_pairs, word_config
from trained_runs import write_pairs

import pellucid
from pellucid.auditing.audit import audit_entries, first_difference
from pellucid.auditing.neighbors import conflicting_neighbors
from pellucid.auditing.types import AuditOptions, TargetDifference
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers

TOKENIZER = build_tokenizers(word_config().data).target


def test_wrong_targets_come_first_and_every_row_occurs_once() -> None:
    records = audited_errors().records
    assert sorted(record.line for record in records) == list(range(1, 301))
    assert {record.line for record in records[:2]} == {row + 1 for row in ERRORS}
    suspicions = [record.suspicion for record in records]
    assert suspicions == sorted(suspicions, reverse=True) and suspicions[-1] == 0


def test_a_wrong_target_has_prediction_difference_and_neighbors() -> None:
    (record,) = [record for record in audited_errors().records if record.line == 101]
    word = record.example.source
    assert record.output == " ".join(word.upper()) and record.network is None and record.identifier == ""
    assert record.kinds[:2] == ("prediction", "neighbors")
    assert record.difference is not None and record.difference.position == 1
    assert record.difference.source_symbols == word[record.difference.source_position - 1]
    assert "the models write" in record.reasons[0].text and "nats by the pair n-gram model" in record.reasons[0].text
    assert record.neighbors and all(near.target == " ".join(near.source.upper()) for near in record.neighbors)


def test_errors_of_writing_come_before_suspicious_targets() -> None:
    examples = spelled_pairs(100)
    examples[3], examples[50] = examples[3]._replace(target="G G"), examples[50]._replace(target="A B ")
    examples[80] = Example("ab\u0430", "A B A")
    records = audit_entries(make_entries(examples), word_config(), AuditOptions()).records
    assert {record.line for record in records[:2]} == {51, 81} and records[2].line == 4


@pytest.mark.parametrize(
    ("target", "output", "expected"),
    [
        ("A B", "A C", TargetDifference(2, 2, "B", "C", 2, "b")),
        ("A", "A B", TargetDifference(2, 1, "", "B", 2, "b")),
        ("A B C", "A C", TargetDifference(2, 2, "B", "", 2, "b")),
    ],
)
def test_the_first_difference_has_its_place_in_target_and_source(
    target: str, output: str, expected: TargetDifference
) -> None:
    chunks = ((0, 1, 0, 1), (1, 2, 1, 2))
    assert first_difference(TOKENIZER, Example("ab", target), output, chunks) == expected
    found = first_difference(TOKENIZER, Example("ab", target), output, ())
    assert found is not None and found.source_position == 0


def test_equal_outputs_have_no_difference_and_empty_ones_have() -> None:
    assert first_difference(TOKENIZER, Example("ab", "A  B"), "A B", ()) is None
    assert first_difference(TOKENIZER, Example("ab", "A B"), "", ()) == TargetDifference(1, 0, "A B", "")


def test_a_suspicious_row_has_a_reason_also_where_a_network_writes_nothing() -> None:
    config = word_config()
    config = msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, epochs=0.5))
    options = AuditOptions(models="network", folds=2)
    for record in audit_entries(make_entries(spelled_pairs(20)), config, options).records:
        assert record.pair_ngram is None and record.network is not None
        assert (record.suspicion > 0) == ("prediction" in record.kinds)


def test_neighbors_agree_with_the_output_and_have_another_source() -> None:
    entries = make_entries(
        [Example("abcd", "A X"), Example("abce", "A Y"), Example("abcd", "A Y"), Example("abcf", "A X")]
    )
    (near,) = conflicting_neighbors(entries, [0], ["A Y"], TOKENIZER)
    assert [neighbor.line for neighbor in near] == [2]


def test_the_function_takes_files_and_lists_and_skips_bad_rows(tmp_path: Path) -> None:
    examples = spelled_pairs(60)
    examples[7] = examples[7]._replace(target="G G")
    path, settings = write_pairs(tmp_path / "words.tsv", examples), {"data": {"target_symbols": "words"}}
    records = pellucid.audit(path, pellucid.AuditOptions(folds=3), settings)
    rows = [(example.source, example.target) for example in examples]
    assert records == pellucid.audit(rows, pellucid.AuditOptions(folds=3), settings)
    assert records[0].line == 8 and isinstance(records[0], pellucid.AuditRecord)
    path.write_text("word\n" + path.read_text("utf-8"), "utf-8")
    assert len(pellucid.audit([*rows, ("a", "")], config=settings)) == 60
