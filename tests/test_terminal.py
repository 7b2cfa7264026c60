import math
import re
import time
import unicodedata
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from sample_traces import HOSTILE_SYMBOLS, make_diagonal_trace, make_trace

from pellucid.decoding.trace import END, Trace
from pellucid.reporting.display_text import (
    ascii_symbol,
    format_probability,
    grapheme_clusters,
    truncate_columns,
    visible_pieces,
    visible_symbol,
    visible_text,
    wrap_columns,
)
from pellucid.reporting.terminal import NO_ATTENTION, render_trace, shade_legend
from pellucid.tasks.task import ATTENTION_CAPTION

COLOR = re.compile(r"\x1b\[48;2;(\d+);(\d+);(\d+)m( +)\x1b\[0m")


def make_trace_with_end() -> Trace:
    return make_trace("abc", ["A", "B", END], [[0.8, 0.2, 0.0], [0.3, 0.6, 0.1], [0.0, 0.02, 0.98]], [0.93, 0.5, 0.001])


def symbol_at_column(line: str, column: int) -> str:
    """Return the symbol at a display column of a line."""
    for piece in grapheme_clusters(line):
        if column < cell_len(piece):
            return piece
        column -= cell_len(piece)
    return ""


def test_attention_matrix_is_rendered() -> None:
    assert render_trace(make_trace_with_end()).splitlines() == [
        "abc → AB   p = 5e-04",
        "",
        "          source →",
        "output ↓  a b c       p",
        "       A  ██░░     0.93",
        "       B  ▒▒▓▓░░   0.50",
        "   ⟨end⟩    ··██  1e-03",
    ]


def test_the_alignment_is_a_line_below_the_weights() -> None:
    trace = make_trace_with_end()
    plain = render_trace(trace).splitlines()
    assert render_trace(trace, alignment=True).splitlines() == [*plain, "alignment: a→A b→B c→_"]
    assert render_trace(trace, ascii_only=True, alignment=True).splitlines()[-1] == "alignment: a->A b->B c->_"
    assert "alignment" not in render_trace(make_trace("ab", ["A"], [[0.0, 0.0]], [0.9]), alignment=True)


def test_ascii_only_uses_ascii() -> None:
    picture = render_trace(make_trace_with_end(), ascii_only=True)
    assert picture.isascii()
    assert "abc -> AB   p = 5e-04" in picture
    assert "output v  a b c       p" in picture
    assert "       A  %%--     0.93" in picture
    assert "   <end>    ..@@  1e-03" in picture


def test_color_shades_the_same_cells() -> None:
    lines = render_trace(make_trace_with_end(), color=True).splitlines()
    cells = COLOR.findall(lines[4])
    brightness = [sum(map(int, cell[:3])) for cell in cells]
    assert [cell[3] for cell in cells] == ["  ", "  ", "  "]
    assert brightness[0] > brightness[1] > brightness[2]
    plain = [COLOR.sub(lambda match: match[4], line) for line in lines]
    assert [len(line) for line in plain[3:]] == [
        len(line) for line in render_trace(make_trace_with_end()).splitlines()[3:]
    ]
    assert not set("░▒▓█·") & set("".join(lines))


def test_columns_align_with_wide_and_combining_symbols() -> None:
    source = ["한", "e\u0301", "\u0301", "t\u0361\u0283", "x"]
    lines = render_trace(make_trace(source, ["국", "a\u0303", "b", "c", END], np.eye(5).tolist())).splitlines()
    header, rows = lines[3], lines[4:]
    assert cell_len(header) == cell_len(rows[0]) > len("output ↓")
    assert len({cell_len(row) for row in rows}) == 1
    for row, symbol in zip(rows, source, strict=True):
        column = cell_len(row[: row.index("█")])
        assert symbol_at_column(header, column) == grapheme_clusters(visible_symbol(symbol))[0]
        assert symbol_at_column(header, column - 1) in ("", " ", "한")
    assert [symbol_at_column(header, cell_len(rows[0][: rows[0].index("█")]) + index) for index in range(4)] == [
        "한",
        "한",
        " ",
        "e\u0301",
    ]


@given(
    source=st.lists(st.text(max_size=6), max_size=30),
    target=st.lists(st.text(max_size=6), max_size=5),
    width=st.integers(40, 130),
    ascii_only=st.booleans(),
)
def test_lines_respect_the_width_and_controls_are_escaped(
    source: list[str], target: list[str], width: int, ascii_only: bool
) -> None:
    picture = render_trace(
        make_diagonal_trace(source, target) if source else make_trace([], target, []), width, ascii_only=ascii_only
    )
    for line in picture.split("\n"):
        assert cell_len(line) <= width
        assert not any(unicodedata.category(character) in ("Cc", "Cs", "Zl", "Zp") for character in line)
        joiners = {"\u200c", "\u200d"}
        assert not any(unicodedata.category(character) == "Cf" for character in set(line) - joiners)
    assert picture.isascii() or not ascii_only


def test_control_characters_are_visible() -> None:
    picture = render_trace(make_diagonal_trace(HOSTILE_SYMBOLS, [*HOSTILE_SYMBOLS, END]), 200)
    assert "\x1b" not in picture and "\t" not in picture and "\u202e" not in picture
    for shown in ("</script><b>", "⟨U+202E⟩", "⇥", "␛[31m", "␣", "$x$", "⟨U+D800⟩"):
        assert shown in picture
    picture.encode("utf-8")


def test_long_source_is_split_into_panels_after_spaces() -> None:
    text = "six six zero four eight seven six four seven five nine three eight two four two one nine four eight"
    trace = make_diagonal_trace(list(text), [*"66048764759382421948", END])
    lines = render_trace(trace, 80).splitlines()
    headers = [line for line in lines if line.endswith(" p")]
    shown = [line[10:].removesuffix("p").strip() for line in headers]
    assert "".join(shown) == text.replace(" ", "␣")
    assert len(shown) == 2 and shown[0].endswith("␣")
    assert sum("█" in line for line in lines) == 21
    assert max(map(cell_len, lines)) <= 80
    wide_lines = render_trace(trace, 120).splitlines()
    assert sum(line.endswith(" p") for line in wide_lines) == 1


def test_words_are_separated_and_truncated() -> None:
    lines = render_trace(make_diagonal_trace(["the", "old", "railway-station-yard"], ["x", END])).splitlines()
    assert "the old railway-stati…" in lines[3]


def test_unknown_symbols_are_marked() -> None:
    lines = render_trace(make_trace("aжb", ["A"], [[0, 1, 0]], unknown=(1,))).splitlines()
    assert "? not in the vocabulary: ж" in lines
    header = next(line for line in lines if line.startswith("output"))
    assert lines[lines.index(header) + 1].index("?") == header.index("ж")


def test_tags_are_listed_beside_their_symbols() -> None:
    trace = replace(
        make_trace(["in", "kazoo"], ["O", "MUSIC"], [[1, 0], [0, 1]], [0.93, 0.5], unknown=(1,)), task="tag"
    )
    assert render_trace(trace).splitlines()[-3:] == [
        "source ↓    tag ↓  p",
        "in          O      0.93",
        "kazoo    ?  MUSIC  0.50",
    ]
    assert render_trace(trace, ascii_only=True).isascii() and "█" not in render_trace(trace)


def test_features_are_separated_by_a_bar() -> None:
    lines = render_trace(
        make_trace(["V", "PST", "g", "o"], ["w", END], [[0, 0, 1, 0], [0, 1, 0, 0]], features=2)
    ).splitlines()
    assert "V PST │ g o" in lines[3]
    assert lines[3].index("│") == lines[4].index("│") == lines[5].index("│")
    assert lines[4].index("█") == lines[3].index("g")
    assert lines[0].startswith("go → w")


def test_missing_attention_is_reported_once() -> None:
    picture = render_trace(make_trace("cat", ["k", "æ", END], [[0.0] * 3] * 3, [0.9, 0.8, 0.7]))
    assert picture.count(NO_ATTENTION) == 1
    assert "reads" not in picture
    assert re.search(r"æ +0\.80$", picture, re.MULTILINE)


def test_empty_and_truncated_outputs_are_reported() -> None:
    assert "The source is empty." in render_trace(make_trace([], [END], []))
    assert NO_ATTENTION not in render_trace(make_trace([], [END], []))
    assert "⟨empty⟩ → ⟨empty⟩" in render_trace(make_trace([], [END], []))
    picture = render_trace(make_trace("abc", [], []))
    assert "The output is empty." in picture and "truncated at the maximum length" in picture
    assert "truncated at the maximum length" not in render_trace(make_trace_with_end())


def test_nan_is_rendered() -> None:
    trace = make_trace("ab", ["A"], [[np.nan, np.nan]], [np.nan])
    assert "unknown" in render_trace(trace)
    assert "█" not in render_trace(trace)


def test_legend_and_caption_have_one_line_each() -> None:
    assert shade_legend() == "weight · 0.02  ░ 0.10  ▒ 0.25  ▓ 0.50  █ 0.75 and more"
    assert shade_legend(ascii_only=True).isascii()
    assert len(COLOR.findall(shade_legend(color=True))) == 21
    assert "\n" not in ATTENTION_CAPTION


@pytest.mark.parametrize(
    ("weight", "shade"),
    [(0.0, " "), (0.019, " "), (0.02, "·"), (0.1, "░"), (0.25, "▒"), (0.5, "▓"), (0.749, "▓"), (0.75, "█"), (1.0, "█")],
)
def test_shades_start_at_the_bounds_of_the_legend(weight: float, shade: str) -> None:
    trace = make_trace("ab", ["A"], [[weight, 0.9]])
    row = render_trace(trace).splitlines()[-1]
    assert row[10:12] == shade * 2


@pytest.mark.parametrize(
    ("symbol", "shown", "in_ascii"),
    [
        ("a", "a", "a"),
        (" ", "␣", "_"),
        ("_", "_", "\\_"),
        ("\\", "\\", "\\\\"),
        ("\t", "⇥", "\\t"),
        ("\n", "⏎", "\\n"),
        ("\x1b[0m", "␛[0m", "\\x1b[0m"),
        ("\x9b", "⟨U+009B⟩", "\\x9b"),
        ("\u202e", "⟨U+202E⟩", "\\u202e"),
        ("\u200d", "⟨U+200D⟩", "\\u200d"),
        ("\u00ad", "⟨U+00AD⟩", "\\xad"),
        ("\u3164", "⟨U+3164⟩", "\\u3164"),
        ("\ud800", "⟨U+D800⟩", "\\ud800"),
        ("\u0301", "◌\u0301", "\\u0301"),
        ("ि", "◌ि", "\\u093f"),
        (" \u0301", "␣◌\u0301", "_\\u0301"),
        ("t͡ʃ", "t͡ʃ", "t\\u0361\\u0283"),
        ("می\u200cخواهم", "می\u200cخواهم", "\\u0645\\u06cc\\u200c\\u062e\\u0648\\u0627\\u0647\\u0645"),
        ("", "⟨empty⟩", "<empty>"),
        (END, "⟨end⟩", "<end>"),
    ],
)
def test_visible_symbol_escapes_invisible_characters(symbol: str, shown: str, in_ascii: str) -> None:
    assert visible_symbol(symbol) == shown
    assert ascii_symbol(symbol) == in_ascii


def test_visible_text_keeps_single_inner_spaces_only() -> None:
    assert visible_text("nine eight") == "nine eight"
    assert visible_text(" a  b ") == "␣a␣␣b␣"
    assert visible_text("a\tb") == "a⇥b"
    assert visible_text("") == "⟨empty⟩"


@given(st.text(max_size=30))
def test_visible_pieces_join_to_the_visible_text(text: str) -> None:
    pieces = grapheme_clusters(text)
    assert "".join(pieces) == text
    assert len(visible_pieces(pieces)) == len(pieces)
    assert "".join(visible_pieces(pieces)) == (visible_text(text) if text else "")


@given(st.text(max_size=60), st.integers(4, 20))
def test_wrapping_keeps_all_text(text: str, width: int) -> None:
    shown = visible_symbol(text)
    assert "".join(wrap_columns(shown, width)) == shown
    assert cell_len(truncate_columns(shown, width)) <= width
    assert truncate_columns(shown, width) == (
        shown if cell_len(shown) <= width else wrap_columns(shown, width - 1)[0] + "…"
    )


@pytest.mark.parametrize(
    ("probability", "shown"),
    [
        (1.0, "1.00"),
        (0.9949, "0.99"),
        (0.9951, "0.9951"),
        (0.99999, ">0.9999"),
        (0.934, "0.93"),
        (0.01, "0.01"),
        (0.0096, "1e-02"),
        (0.00034, "3e-04"),
        (0.00099, "1e-03"),
    ],
)
def test_probabilities_are_formatted(probability: float, shown: str) -> None:
    assert format_probability(float(np.log(probability))) == shown


def test_probabilities_below_the_float_range_are_formatted() -> None:
    assert format_probability(-1000.0) == "5e-435"
    assert format_probability(-1e30) == format_probability(-math.inf) == "0"
    assert format_probability(float("-inf")) == "0"
    assert format_probability(float("nan")) == "unknown"


@pytest.mark.slow
def test_a_cluster_of_very_many_marks_takes_linear_time() -> None:
    text = "a" + "\u0301" * 500_000
    start = time.process_time()
    assert grapheme_clusters(text) == [text] and len(visible_symbol(text)) == len(text)
    assert time.process_time() - start < 10.0
