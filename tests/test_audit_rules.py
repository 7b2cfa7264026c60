"""auditing/rules.py: reasons that need no model."""

import time

import pytest
from audited_pairs import make_entries, spelled_pairs, word_config
from hypothesis import given
from hypothesis import strategies as st

from pellucid.auditing.characters import script_of
from pellucid.auditing.rules import apply_rules, other_file_reasons
from pellucid.auditing.types import Reason
from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers
from pellucid.errors import list_lines

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
        (Example("abab", "A B A B "), ("surrounding_space", "target")),
        (Example(" abab", "A B A B"), ("surrounding_space", "source")),
        (Example("é\u0065\u0301b", "A B"), ("normalization", "source")),
        (Example("abq", "A B"), ("rare_symbol", "source")),
        (Example('ab"', "A B"), ("rare_character", "source")),
        (Example("ab7", "A B"), ("rare_character", "source")),
        (Example("aBb", "A B"), ("rare_character", "source")),
        (Example("abb", "A B, B"), ("rare_character", "target")),
        (Example("abab", "A B Q B"), ("rare_symbol", "target")),
        (Example("abbb", "abbb"), ("copied", "")),
        (Example("abcabc", "A"), ("length", "")),
    ],
)
def test_a_finding_is_a_reason_with_its_column(example: Example, expected: tuple[str, str]) -> None:
    assert expected in kinds_of(example)


def test_texts_of_the_rarer_normal_form_are_named_if_there_are_both() -> None:
    """Regression test: a file with decomposed texts only had a reason in each of them."""
    composed, decomposed = Example("ab\u00e9", "A"), Example("abe\u0301", "A")
    for examples, expected in (
        ([decomposed] * 5, []),
        ([composed] * 5, []),
        ([*[composed] * 5, decomposed], [5]),
        ([*[decomposed] * 5, composed], [5]),
    ):
        reasons = reasons_of(*examples)
        assert expected == [
            row for row, found in enumerate(reasons) if "normalization" in {reason.kind for reason in found}
        ]


def test_positions_and_lines_are_named() -> None:
    first, second, third = reasons_of(Example("abq", "A B Q"), Example("abx", "A B"), Example("abx", "A B"))
    assert Reason("rare_symbol", "the source symbol 'q' is in no other row", "source", 3) in first
    assert Reason("duplicate", "the same pair is in line 103", lines=(103,)) in second
    assert Reason("duplicate", "the same pair is in line 102", lines=(102,)) in third
    (mixed,) = [reason for reason in reasons_of(Example("ab\u0430", "A B A"))[0] if reason.kind == "mixed_scripts"]
    assert mixed.position == 3 and mixed.text.endswith(": '\u0430' (U+0430, Cyrillic) among Latin letters")
    (mixed,) = [
        reason for reason in reasons_of(Example("abc", "ac\u0435b\u0430\u0435"))[0] if reason.kind == "mixed_scripts"
    ]
    assert mixed.text.endswith("'\u0435' (U+0435, Cyrillic) and '\u0430' (U+0430, Cyrillic) among Latin letters")
    # Regression test: the position was that of the first Cyrillic о, which is among Cyrillic letters.
    text = "\u0441\u043b\u043e\u0432\u043e w\u043erd"
    (mixed,) = [reason for reason in reasons_of(Example(text, "A"))[0] if reason.kind == "mixed_scripts"]
    assert mixed.position == 8
    phones = DataConfig(source_symbols="ipa", target_symbols="ipa")
    (mixed,) = [reason for reason in reasons_of(Example(text, "A"), config=phones)[0] if reason.kind == "mixed_scripts"]
    assert mixed.position == 8
    (mixed,) = [reason for reason in reasons_of(Example("ab", "A \u0430 B"))[0] if reason.kind == "mixed_scripts"]
    assert mixed.position == 3


def test_symbols_are_rare_in_one_of_2000_rows_and_characters_in_one_of_1000() -> None:
    regular, rare = [Example("ab-c", "A B C")] * 4_000, [Example("aq", "A"), Example('a"', "A"), Example("a1", "A")]
    reasons = apply_rules(make_entries([*regular, *rare, *rare]), TOKENIZERS).reasons[4_000:4_003]
    found = [reason for row in reasons for reason in row if reason.kind.startswith("rare")]
    assert found == [
        Reason("rare_symbol", "the source symbol 'q' is in 2 of 4,006 rows", "source", 2),
        Reason("rare_character", "the source has the character '\"', which is in 2 of 4,006 rows", "source", 2),
        Reason("rare_character", "the source has the digit '1'; digits are in 2 of 4,006 rows", "source", 2),
    ]
    for number, kinds in ((3, {"rare_character"}), (4, {"rare_character"}), (5, set[str]())):
        more = apply_rules(make_entries([*regular, *(rare * number)]), TOKENIZERS).reasons
        assert {reason.kind for row in more for reason in row if reason.kind.startswith("rare")} == kinds


def test_a_large_alphabet_has_a_lower_limit() -> None:
    """Symbols of two rows each are no reason if there are many, but those of a single row are."""
    letters = [chr(0x4E00 + number) for number in range(600)]
    examples = [Example(letters[min(row // 2, 599)], "A") for row in range(5_999)] + [Example("x", "A")]
    reasons = apply_rules(make_entries(examples), TOKENIZERS).reasons
    rare = [row for row, found in enumerate(reasons) if "rare_symbol" in {reason.kind for reason in found}]
    assert rare == [5_999]


def test_upper_case_letters_and_digits_are_not_rare_where_they_are_usual() -> None:
    examples = [Example(f"{number}a", "A") for number in range(10, 60)]
    assert not [reason for row in reasons_of(*examples) for reason in row if reason.kind == "rare_character"]


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


TEXTS = st.sampled_from(["a", "b", "c"])


@given(st.lists(st.builds(Example, st.sampled_from(["a", "b"]), TEXTS, st.sampled_from(["", "N"])), max_size=30))
def test_duplicates_and_conflicts_are_those_of_a_comparison_of_all_rows(examples: list[Example]) -> None:
    entries = make_entries(examples)
    for entry, reasons in zip(entries, apply_rules(entries, TOKENIZERS).reasons, strict=True):
        same = [other for other in entries if other.line != entry.line and other.example[::2] == entry.example[::2]]
        expected = []
        if equal := [other.line for other in same if other.example == entry.example]:
            text = f"the same pair is in {list_lines(equal)}"
            expected.append(Reason("duplicate", text, lines=tuple(equal[:5])))
        if others := [other for other in same if other.example.target != entry.example.target]:
            lines = [other.line for other in others]
            text = f"the same source has another target, {others[0].example.target!r}, in {list_lines(lines)}"
            expected.append(Reason("conflict", text, lines=tuple(lines[:5])))
        found = [reason for reason in reasons if reason.kind in ("duplicate", "conflict")]
        assert sorted(found) == sorted(expected)


def test_many_rows_of_one_source_take_linear_time_and_memory() -> None:
    """Regression test: 50,000 equal rows had 50,000 lists of 49,999 lines."""
    entries = make_entries([Example("a", "b")] * 20_000 + [Example("a", "c")] * 10)
    start = time.process_time()
    reasons = apply_rules(entries, TOKENIZERS).reasons
    others = other_file_reasons(entries, {"other.tsv": entries})
    assert time.process_time() - start < 30.0
    assert max(len(reason.lines) for found in (*reasons, *others) for reason in found) == 5
    assert "the same pair is in lines 1, 2, 3, 4, 5 and 19,994 more" in [reason.text for reason in reasons[9_999]]
    assert "lines 1, 2, 3, 4, 5 and 20,005 more, with the same target" in others[0][0].text


@pytest.mark.parametrize(
    ("text", "position"),
    [
        ("\u0645\u06cc\u200c\u0631\u0648\u062f", 0),  # Persian: he goes
        ("\u0915\u094d\u200d\u0937", 0),  # Hindi: a half form
        ("\u09a4\u09cd\u200d", 0),  # Bengali: a final letter without a vowel
        ("\u0645\u06cc\u200c", 3),  # nothing to join in Arabic
        ("\u200c\u0645\u06cc", 1),
        ("ab\u200cc", 3),
        ("\u0645\u06cc\u200ca", 3),
        ("\u0645\u06cc\u200c\u0631\u200b", 5),
    ],
)
def test_joiners_of_an_orthography_are_no_error(text: str, position: int) -> None:
    """Regression test: words of Persian and of Indic languages with a joiner were above all other rows."""
    rows = make_entries([*spelled_pairs(30), Example(text, "A")])
    reasons = [reason for reason in apply_rules(rows, TOKENIZERS).reasons[-1] if reason.kind == "invisible"]
    assert [reason.position for reason in reasons] == ([position] if position else [])


def test_exchanged_columns_are_found_by_their_characters() -> None:
    assert kinds_of(Example("A B C A", "abca")) >= {("exchanged", "")}
    assert not {kind for kind, _ in kinds_of(Example("ABCA", "A B C A"))} & {"exchanged"}  # the source alone is odd
    assert not {kind for kind, _ in kinds_of(Example("A", "a"))} & {"exchanged"}  # too short to tell
    same = [Example(pair.source, pair.source[::-1]) for pair in PAIRS]
    findings = apply_rules(make_entries(same), build_tokenizers(DataConfig()))
    assert not any(reason.kind == "exchanged" for reasons in findings.reasons for reason in reasons)


def test_letters_without_their_usual_tie_bar_are_look_alikes() -> None:
    texts = ["at\u0361\u0283a", "d\u0361\u0292ib"] * 60
    pairs = [Example("word", text) for text in [*texts, "at\u0283a", "ad\u0292"]]
    config = DataConfig(target_symbols="ipa")
    findings = apply_rules(make_entries(pairs), build_tokenizers(config)).reasons
    reasons = [[reason for reason in found if reason.kind == "look_alike"] for found in findings]
    assert not any(reasons[:-2]) and [found[0].position for found in reasons[-2:]] == [2, 2]
    assert reasons[-2][0].text == "the target has 't\u0283'; far more rows have 't\u0361\u0283', with a tie bar"
    many = [*pairs, *[Example("word", "at\u0283")] * 10]  # the letters also occur as two sounds
    findings = apply_rules(make_entries(many), build_tokenizers(config)).reasons
    kinds = [[reason.text for reason in found if reason.kind == "look_alike"] for found in findings[-12:]]
    assert kinds[0] == [] and kinds[1] and not any(kinds[2:])


def test_characters_with_a_known_correction_have_it() -> None:
    for example, column, expected in (
        (Example("ab\u0430", "A B A"), "source", (("\u0430", "a"),)),
        (Example("ab\u200b", "A B"), "source", (("\u200b", ""),)),
        (Example("ab\u00a0c", "A B C"), "source", (("\u00a0", " "),)),
        (Example("ab\u0436", "A B"), "source", ()),  # no Latin letter looks like it
    ):
        (found,) = reasons_of(example)
        assert [each.replacements for each in found if each.column == column][:1] == [expected]


def test_the_absence_of_a_character_that_nearly_all_rows_have_is_a_reason() -> None:
    regular = [Example("ab", "A' B")] * 1_000
    added = [Example("ab", "A B"), Example("ab", "B")]
    findings = apply_rules(make_entries([*regular, *added]), TOKENIZERS).reasons
    texts = [[reason.text for reason in found if reason.kind == "missing_character"] for found in findings]
    assert not any(texts[:1_000])
    assert texts[1_000:] == [
        ['the target lacks "\'" (U+0027), which 1,000 of 1,002 rows have'],
        ["the target lacks 'A' (U+0041), which 1,001 of 1,002 rows have"],
    ]
    short = apply_rules(make_entries([*regular[:900], *added]), TOKENIZERS).reasons  # too few rows to tell
    assert not any(reason.kind == "missing_character" for found in short for reason in found)


def test_an_html_code_is_named_with_its_character() -> None:
    (found,) = reasons_of(Example("ab", "&#601; B &amp; &nocode;"))
    (reason,) = [each for each in found if each.kind == "rare_character"]
    assert reason.text == "the target has the HTML code '&#601;' of 'ə'" and reason.position == 1
    assert reason.replacements == (("&#601;", "ə"), ("&amp;", "&"))
