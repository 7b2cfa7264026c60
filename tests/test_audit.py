"""auditing/audit.py and neighbors.py: ranked records with reasons; pellucid.audit."""

from pathlib import Path
from typing import Any

import msgspec
import pytest
from audited_pairs import ERRORS, audited_errors, make_entries, spelled_pairs, word_config
from trained_runs import write_pairs

import pellucid
from pellucid.auditing.audit import _rank_key, audit_entries, first_difference, prediction_reason
from pellucid.auditing.neighbors import conflicting_neighbors
from pellucid.auditing.types import (
    AuditOptions,
    AuditRecord,
    ModelScore,
    Reason,
    TargetDifference,
    reject_unused_settings,
)
from pellucid.config.settings import DataConfig, Device
from pellucid.config.toml import build_config
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import ConfigError, DataError, InputError

TOKENIZERS = build_tokenizers(word_config().data)


def test_wrong_targets_come_first_and_every_row_occurs_once() -> None:
    records = audited_errors().records
    assert sorted(record.line for record in records) == list(range(1, 301))
    assert {record.line for record in records[:2]} == {row + 1 for row in ERRORS}
    suspicions = [record.suspicion for record in records if record.suspicion is not None]
    assert suspicions == sorted(suspicions, reverse=True) and suspicions[-1] == 0 and len(suspicions) == 300


def test_a_wrong_target_has_prediction_difference_and_neighbors() -> None:
    (record,) = [record for record in audited_errors().records if record.line == 101]
    word = record.example.source
    assert record.output == " ".join(word.upper()) and record.network is None and record.identifier == ""
    assert record.kinds[:2] == ("prediction", "neighbors")
    assert record.difference is not None and record.difference.position == 1
    assert record.difference.source_symbols == word[record.difference.source_position - 1]
    assert record.suspicion is not None
    assert f"the pair n-gram model writes {record.output!r}: " in record.reasons[0].text
    assert f"(more probable by {record.suspicion:.1f} nats)" in record.reasons[0].text
    assert record.neighbors and all(near.target == " ".join(near.source.upper()) for near in record.neighbors)


def test_character_level_errors_come_before_suspicious_targets() -> None:
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
    assert first_difference(TOKENIZERS, Example("ab", target), output, chunks) == expected
    found = first_difference(TOKENIZERS, Example("ab", target), output, ())
    assert found is not None and found.source_position == 0


def test_equal_outputs_have_no_difference_and_empty_ones_have() -> None:
    assert first_difference(TOKENIZERS, Example("ab", "A  B"), "A B", ()) is None
    assert first_difference(TOKENIZERS, Example("ab", "A B"), "", ()) == TargetDifference(1, 0, "A B", "")


def test_a_suspicious_row_has_a_reason_also_where_a_network_writes_nothing() -> None:
    config = word_config()
    config = msgspec.structs.replace(config, training=msgspec.structs.replace(config.training, epochs=0.5))
    options = AuditOptions(models="network", folds=2)
    for record in audit_entries(make_entries(spelled_pairs(20)), config, options).records:
        assert record.pair_ngram is None and record.network is not None
        assert record.suspicion is not None and (record.suspicion > 0) == ("prediction" in record.kinds)


def test_neighbors_agree_with_the_output_and_have_another_source() -> None:
    entries = make_entries(
        [Example("abcd", "A X"), Example("abce", "A Y"), Example("abcd", "A Y"), Example("abcf", "A X")]
    )
    (near,) = conflicting_neighbors(entries, [0], ["A Y"], TOKENIZERS.target)
    assert [neighbor.line for neighbor in near] == [2]


def test_neighbors_are_searched_among_other_sources_with_the_same_features() -> None:
    """Regression test: the forms of one lemma left no place for others, and were compared with other forms."""
    forms = [Example("abcd", f"A {number}", f"F{number}") for number in range(30)]
    entries = make_entries(
        [Example("abcd", "A X", "P"), *forms, Example("abce", "A Y", "P"), Example("abcf", "A Y", "Q")]
    )
    (near,) = conflicting_neighbors(entries, [0], ["A Y"], TOKENIZERS.target)
    assert [neighbor.line for neighbor in near] == [entries[31].line]
    contexts = make_entries([Example("abcd", "A X", "the dog"), Example("abce", "A Y", "a cat")])
    (near,) = conflicting_neighbors(contexts, [0], ["A Y"], TOKENIZERS.target, has_contexts=True)
    assert [neighbor.line for neighbor in near] == [contexts[1].line]


def test_the_function_takes_files_and_lists_and_skips_bad_rows(tmp_path: Path) -> None:
    examples = spelled_pairs(60)
    examples[7] = examples[7]._replace(target="G G")
    path, settings = write_pairs(tmp_path / "words.tsv", examples), {"data": {"target_symbols": "words"}}
    records = pellucid.audit(path, pellucid.AuditOptions(folds=3), settings)
    rows = [(example.source, example.target) for example in examples]
    assert records == pellucid.audit(rows, pellucid.AuditOptions(folds=3), settings)
    assert records[0].line == 8 and isinstance(records[0], pellucid.AuditRecord)
    path.write_text(path.read_text("utf-8") + "abc\n", "utf-8")
    with pytest.warns(UserWarning, match=r"bad rows of .*words\.tsv that are skipped: 1; the first: .*words\.tsv:61: "):
        assert pellucid.audit(path, pellucid.AuditOptions(folds=3), settings) == records
    with pytest.warns(UserWarning, match="rows of .* without a target, which are not audited: 1; the first is pair 61"):
        assert pellucid.audit([*rows, ("a", "")], pellucid.AuditOptions(folds=3), settings) == records
    write_pairs(path, [*examples, Example("abc", "")])
    with pytest.warns(UserWarning, match="without a target, which are not audited: 1; the first is in line 61"):
        assert pellucid.audit(path, pellucid.AuditOptions(folds=3), settings) == records


def test_notes_and_files_that_are_read_in_a_wrong_way_are_reported_in_python(tmp_path: Path) -> None:
    """Regression test: half of the rows were left out, and notes were lost, without a message."""
    settings = {"data": {"target_symbols": "words"}}
    pairs = [(pair.source, f"{pair.target} ") for pair in spelled_pairs(60)]
    with pytest.warns(UserWarning, match="60 of 60 rows have the finding"):
        pellucid.audit(pairs, pellucid.AuditOptions(folds=2), settings)
    path = tmp_path / "words.tsv"
    path.write_text("".join(f"{pair.source}\t{pair.target}\n" for pair in spelled_pairs(60)) + "a,b\n" * 70)
    with pytest.raises(DataError, match="70 of 130 lines are bad"):
        pellucid.audit(path, None, settings)


@pytest.mark.parametrize(
    ("options", "config", "device", "message"),
    [
        (None, {"data": {"group_column": "3"}}, "cpu", r"data\.group_column \(.*\) has no effect in an audit"),
        (None, {"task": "classify"}, "cpu", "task = 'classify' is not possible in an audit"),
        (None, {"task": "tag", "data": {"ignored_tag": "O"}}, "cpu", "task = 'tag' is not possible in an audit"),
        (AuditOptions(run=Path("runs")), None, "cpu", "options.run is for networks"),
        (None, None, "cuda", "device is for networks"),
    ],
)
def test_arguments_without_effect_are_refused(
    options: AuditOptions | None, config: dict[str, Any] | None, device: Device, message: str
) -> None:
    """Regression test: they were ignored."""
    with pytest.raises(InputError, match=message):
        pellucid.audit([("a", "A"), ("b", "B")], options, config, device)


def test_source_symbols_that_are_words_are_named_whole() -> None:
    """Regression test: positions of symbols were taken for those of characters."""
    config = build_config({"size": "tiny", "data": {"source_symbols": "words", "target_symbols": "words"}}, "test")
    examples = [Example(" ".join(f"{letter}o" for letter in pair.source), pair.target) for pair in spelled_pairs(100)]
    examples[30] = examples[30]._replace(target="G " + examples[30].target.partition(" ")[2])
    records = audit_entries(make_entries(examples), config, AuditOptions()).records
    (record,) = [record for record in records if record.line == 31]
    assert record.difference is not None and record.difference.source_symbols == examples[30].source.split()[0]


def test_a_source_that_no_model_knows_is_not_ranked_as_correct() -> None:
    """Regression test: it had suspicion 0, and its target was the output."""
    examples = [*spelled_pairs(60), Example("q", "Q Q")]
    examples[7] = examples[7]._replace(target="G G")
    report = audit_entries(make_entries(examples), word_config(), AuditOptions())
    ranks = {record.line: rank for rank, record in enumerate(report.records)}
    record = report.records[ranks[61]]
    assert record.suspicion is None and record.pair_ngram is None and record.output == "" and record.difference is None
    reason = "no model can score this target: the rows of the other folds lack the source symbol 'q'"
    assert Reason("not_scored", reason, "source", 1) in record.reasons
    assert ranks[8] < ranks[61] < min(ranks[each.line] for each in report.records if each.suspicion == 0)


@pytest.mark.parametrize(
    ("ngram", "network", "expected"),
    [
        (
            ModelScore("A C", 2.0),
            ModelScore("A C", 5.0),
            "by 5.0 nats; the pair n-gram model prefers another output by 2.0 nats)",
        ),
        (ModelScore("A B", 0.0), ModelScore("A C", 5.0), "by 5.0 nats; the pair n-gram model writes the target)"),
        (None, ModelScore("A C", 5.0), "by 5.0 nats; the pair n-gram model cannot score this target)"),
        (ModelScore("A C", 2.0), None, "by 2.0 nats; the network cannot score this target)"),
    ],
)
def test_the_reason_says_what_each_model_holds(
    ngram: ModelScore | None, network: ModelScore | None, expected: str
) -> None:
    difference = TargetDifference(2, 2, "B", "C", 2, "b")
    reason = prediction_reason(difference, {"pair n-gram model": ngram, "network": network})
    assert reason.text.endswith(expected) and "writes 'A C': 'C' for 'b' in place of 'B'" in reason.text


@pytest.mark.parametrize("kind", ["rows", "dicts", "frame", "arrow"])
def test_rows_of_a_table_without_a_target_are_left_out(kind: str) -> None:
    """Regression test: they were bad rows, and an audit with many of them was refused."""
    settings = {"data": {"target_symbols": "words", "source_column": "1", "target_column": "2"}}
    rows: list[tuple[str, Any]] = [(pair.source, pair.target) for pair in spelled_pairs(30)]
    rows += [(f"new{number}", None) for number in range(40)]
    table: Any = rows
    if kind != "rows":
        settings["data"] |= {"source_column": "word", "target_column": "ipa"}
        table = [{"word": source, "ipa": target} for source, target in rows]
    if kind == "frame":
        table = pytest.importorskip("pandas").DataFrame(table)
    if kind == "arrow":
        table = pytest.importorskip("pyarrow").Table.from_pylist(table)
    with pytest.warns(UserWarning, match="without a target, which are not audited: 40; the first is (pair|row) 31"):
        records = pellucid.audit(table, AuditOptions(folds=2), settings)
    assert sorted(record.line for record in records) == list(range(1, 31))


@pytest.mark.parametrize("name", ["group_column", "ignored_tag", "class_column"])
def test_settings_without_effect_are_refused_by_the_command_and_the_function(name: str) -> None:
    """Regression test: the function refused one of them only."""
    with pytest.raises(ConfigError, match=rf"data\.{name} \(--{name.replace('_', '-')}\) has no effect in an audit"):
        reject_unused_settings(msgspec.structs.replace(DataConfig(), **{name: "3"}))


def test_targets_without_any_probability_are_sorted_by_their_distance_from_the_output() -> None:
    """Regression test: they all have the greatest suspicion, and were in the order of their lines."""
    tokenizer = build_tokenizers(DataConfig()).target
    records = [
        AuditRecord(line, "", Example("abc", target), margin, ModelScore("ABC", margin), None, None, (), ())
        for line, (target, margin) in enumerate([("ABX", 100.0), ("XYZ", 100.0), ("AXY", 100.0), ("XYZ", 7.0)], 1)
    ]
    assert [record.line for record in sorted(records, key=lambda each: _rank_key(each, tokenizer))] == [2, 3, 1, 4]
