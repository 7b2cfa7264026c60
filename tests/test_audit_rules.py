"""auditing/rules.py: reasons that need no model."""

import pytest
from audited_pairs import make_entries, spelled_pairs, word_config

from pellucid.auditing.rules import apply_rules, list_lines, other_file_reasons, script_of
from pellucid.auditing.types import Reason
from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers

PAIRS = spelled_pairs(100)
TOKENIZERS = build_tokenizers(word_config().data)


def reasons_of(*added: Example, config: DataConfig | None = None) -> list[list[Reason]]:
    """Return the reasons of examples that follow regular ones."""
    tokenizers = TOKENIZERS if config is None else build_tokenizers(config)
    return apply_rules(make_entries([*PAIRS, *added]), tokenizers).reasons[len(PAIRS) :]


def kinds_of(example: Example) -> set[tuple[str, str]]:
    """Return kind and column of the reasons of one added example."""
    return {(reason.kind, reason.column) for reason in reasons_of(example)[0]}


def test_regular_pairs_have_no_reason() -> None:
    assert apply_rules(make_entries(PAIRS), TOKENIZERS) == ([[] for _ in PAIRS], [])


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (Example("ab\u0430", "A B A"), ("mixed_scripts", "source")),
        (Example("abaa", "A B \u0410 A"), ("mixed_scripts", "target")),
        (Example("ab\u200b", "A B"), ("invisible", "source")),
        (Example("ab\u00a0c", "A B C"), ("invisible", "source")),
        (Example("abab", "A B A B "), ("outer_space", "target")),
        (Example(" abab", "A B A B"), ("outer_space", "source")),
        (Example("abe\u0301", "A B E"), ("normalization", "source")),
        (Example("é\u0065\u0301b", "A B"), ("normalization", "source")),
        (Example("abq", "A B"), ("single_symbol", "source")),
        (Example("abab", "A B Q B"), ("single_symbol", "target")),
        (Example("abbb", "abbb"), ("copied", "")),
        (Example("abcabc", "A"), ("length", "")),
    ],
)
def test_a_finding_is_a_reason_with_its_column(example: Example, expected: tuple[str, str]) -> None:
    assert expected in kinds_of(example)


def test_positions_and_lines_are_named() -> None:
    first, second, third = reasons_of(Example("abq", "A B Q"), Example("abx", "A B"), Example("abx", "A B"))
    assert Reason("single_symbol", "the source symbol 'q' occurs nowhere else", "source", 3) in first
    assert Reason("duplicate", "the same pair is in line 103", lines=(103,)) in second
    assert Reason("duplicate", "the same pair is in line 102", lines=(102,)) in third
    (mixed,) = [reason for reason in reasons_of(Example("ab\u0430", "A B A"))[0] if reason.kind == "mixed_scripts"]
    assert mixed.position == 3 and "'\u0430' (U+0430) is Cyrillic among Latin" in mixed.text
    assert list_lines(range(1, 8)) == "lines 1, 2, 3, 4, 5 and 2 more" and list_lines([7]) == "line 7"


def test_one_source_with_two_targets_is_a_conflict_unless_the_features_differ() -> None:
    first, second = reasons_of(Example("aba", "A B A"), Example("aba", "B B A"))
    assert [reason.kind for reason in first] == [reason.kind for reason in second] == ["conflict"]
    assert first[0].lines == (102,) and "'B B A', in line 102" in first[0].text
    assert reasons_of(Example("aba", "A B A", "V"), Example("aba", "B B A", "N")) == [[], []]


def test_greek_letters_of_phonetics_and_japanese_are_no_mixture() -> None:
    assert ("mixed_scripts", "target") not in kinds_of(Example("abab", "A θ B β"))
    assert script_of("の") == script_of("漢") == script_of("3") == "" and script_of("ж") == "CYRILLIC"


def test_a_finding_of_many_rows_is_a_note() -> None:
    examples = [example._replace(target=example.target + "\u200d") for example in PAIRS]
    findings = apply_rules(make_entries(examples), TOKENIZERS)
    assert (
        not any(findings.reasons) and "100 of 100 rows have the finding 'invisible' in the target" in findings.notes[0]
    )


def test_sources_of_other_files_are_named_with_their_targets() -> None:
    entries = make_entries(PAIRS[:3])
    others = {"test.tsv": make_entries([PAIRS[1], PAIRS[2]._replace(target="X")])}
    assert other_file_reasons(entries, others) == [
        [],
        [Reason("other_file", "the source is also in test.tsv, line 1, with the same target", lines=(1,))],
        [Reason("other_file", "the source is also in test.tsv, line 2, with the target 'X'", lines=(2,))],
    ]
