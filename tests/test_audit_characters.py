"""auditing/characters.py, text_checks.py and symbol_list.py: look-alikes, warnings, lists of symbols."""

import csv
import io

import pytest
from audited_pairs import make_entries

from pellucid.auditing.characters import (
    find_look_alikes,
    foreign_letters,
    look_alike_positions,
    mark_invisible,
    quote_visibly,
)
from pellucid.auditing.rules import apply_rules
from pellucid.auditing.symbol_list import list_symbols, symbols_csv
from pellucid.auditing.text_checks import check_column, count_symbols
from pellucid.config.settings import DataConfig
from pellucid.data.examples import Example
from pellucid.data.tokenizers import build_tokenizers

DATA = DataConfig()
TOKENIZERS = build_tokenizers(DATA)
TARGETS = ["ˈat͡ʃɡ", "ˈdɪd͡ʒˌɡ"] * 2_000


def test_look_alikes_are_reasons_where_the_proper_character_is_far_more_frequent() -> None:
    """Regression test: 24 rows of 19,598 with an ASCII apostrophe had no reason, because they were not rare enough."""
    examples = [Example("chag", target) for target in TARGETS]
    examples[:30] = [Example("chag", "'at͡ʃɡ")] * 30
    examples[50] = Example("chаg", "ˈat͡ʃg")
    reasons = apply_rules(make_entries(examples), TOKENIZERS).reasons
    kinds = [{reason.kind for reason in found} - {"conflict", "duplicate"} for found in reasons]
    assert kinds[0] == kinds[29] == {"look_alike"} and kinds[30] == set()
    assert kinds[50] == {"mixed_scripts", "look_alike", "rare_symbol"}
    (reason,) = [reason for reason in reasons[0] if reason.kind == "look_alike"]
    assert (reason.column, reason.position, reason.characters) == ("target", 1, "'")
    assert reason.text == ("the target has \"'\" (U+0027), a look-alike of 'ˈ' (U+02C8); far more rows have the latter")
    mixed, other = (next(each for each in reasons[50] if each.kind == kind) for kind in ("mixed_scripts", "look_alike"))
    assert (mixed.position, mixed.characters, other.characters) == (3, "а", "g")
    assert "from character 3 on" in mixed.text


@pytest.mark.parametrize(
    ("counts", "expected"),
    [
        ({"g": 30, "ɡ": 600}, {"g": "ɡ"}),
        ({"g": 31, "ɡ": 600}, {}),
        ({"ɡ": 1, "g": 600}, {"ɡ": "g"}),
        ({"ɡ": 19}, {}),
        ({":": 1, "ː": 100}, {":": "ː"}),
        ({"е": 3, "e": 90}, {"е": "e"}),
        ({"'": 500, "’": 3}, {"’": "'"}),
        ({"?": 5, "ʔ": 4}, {}),
    ],
)
def test_the_proper_character_has_twenty_times_as_many_rows(counts: dict[str, int], expected: dict[str, str]) -> None:
    found = find_look_alikes(counts)
    assert {character: proper for character, proper in found.items() if character in counts} == expected


def test_a_word_of_another_script_has_no_look_alikes() -> None:
    look_alikes = find_look_alikes(dict.fromkeys("aeopcyx", 100))
    assert look_alike_positions("сор", look_alikes) == [0, 1, 2] and look_alike_positions("привет", look_alikes) == []


def test_invisible_characters_are_shown_by_their_code_points() -> None:
    assert quote_visibly("alteration\xa0") == "'alteration⟨U+00A0⟩'"
    assert mark_invisible("a b\u200dc") == "a b⟨U+200D⟩c"
    mixed = foreign_letters("altеration", is_one_word=False)
    assert mixed is not None and (mixed.position, mixed.letters) == (4, "е")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("ˈat͡ʃ", []),
        ("ˈQt͡ʃ", ["'Q', a symbol that no other row has"]),
        ("'at͡ʃ", ["\"'\" (U+0027), a look-alike of 'ˈ' (U+02C8)"]),
        ("͡ʃa", ["a combining mark at the beginning"]),
        ("at͡", ["a loose tie bar at the end"]),
        ("d͡aɡ", ["'d͡a', letters that no other row ties"]),
        ("ɡˈˈˌɪ", ["doubled stress marks 'ˈˈˌ'"]),
        ("aˈ", ["a stress mark at the end"]),
        (" a", ["a space at the beginning or the end", "' ', a symbol that no other row has"]),
        ("zat͡ʃ", ["'z', a symbol that only 2 other rows have"]),
    ],
)
def test_new_texts_with_typing_errors_are_described(text: str, expected: list[str]) -> None:
    assert list(check_column([*TARGETS, "z", "z"], TOKENIZERS.target).warnings(text)) == expected


def test_a_new_source_that_mixes_scripts_is_described() -> None:
    checks = check_column(["altar", "rest", "cops"] * 100, TOKENIZERS.source)
    assert list(checks.warnings("сор")) == [
        *("'с' (U+0441), a look-alike of 'c' (U+0063)", "'о' (U+043E), a look-alike of 'o' (U+006F)"),
        "'р' (U+0440), a look-alike of 'p' (U+0070)",
    ]
    assert list(checks.warnings("altаr")) == [
        "letters of two scripts: 'а' (U+0430, Cyrillic) among Latin letters",
    ]


def test_the_row_that_is_replaced_is_no_other_row_and_usual_findings_are_no_warnings() -> None:
    checks = check_column(["ab", "abQ", "t͡ʃ"], TOKENIZERS.target)
    assert list(checks.warnings("aQ")) == [] and list(checks.warnings("aQ", "abQ")) == [
        "'Q', a symbol that no other row has"
    ]
    doubled = check_column(["ˈˈa"] * 10, TOKENIZERS.target)
    assert list(doubled.warnings("ˈˈa")) == [] and list(check_column([], TOKENIZERS.target).warnings("x")) == []


def test_symbols_are_listed_the_rarest_first() -> None:
    examples = [Example("ab", "ˈa")] * 30 + [Example("b", "'a")]
    symbols = list_symbols(make_entries(examples), DATA)
    assert [(each.column, each.counted.symbol, each.counted.num_rows) for each in symbols] == [
        *(("source", "a", 30), ("source", "b", 31)),
        *(("target", "'", 1), ("target", "ˈ", 30), ("target", "a", 31)),
    ]
    rows = list(csv.DictReader(io.StringIO(symbols_csv(symbols, ";", "\r\n")), delimiter=";"))
    assert rows[2] == {
        **{"column": "target", "symbol": "'", "code_points": "U+0027", "names": "apostrophe", "rows": "1"},
        **{"lines": "31", "look_alike_of": "ˈ"},
    }
    assert rows[0]["lines"] == "1 2 3 4 5" and "\r\n" in symbols_csv(symbols, line_end="\r\n")
    (only,) = count_symbols([(7, "xx")], TOKENIZERS.source)
    assert only == ("x", 1, (7,))


@pytest.mark.parametrize("kind", ["characters", "ipa"])
def test_spaces_separate_words_where_symbols_are_parts_of_words(kind: str) -> None:
    """Regression test: with symbols of kind ipa, words of two scripts were one word with letters of two."""
    tokenizer = build_tokenizers(DataConfig(target_symbols=kind)).target
    checks = check_column(["a", "b", "\u0436", " "] * 30, tokenizer)
    assert list(checks.warnings("ab \u0436\u0436")) == []
    assert any("letters of two scripts" in warning for warning in checks.warnings("ab\u0436"))
