"""Symbols, texts and numbers as they are safe and clear to show: all of it visible, none of it acting."""

import math
import unicodedata
from collections.abc import Sequence

from rich.cells import cell_len

_SIGNS = {" ": "␣", "\t": "⇥", "\n": "⏎", "\x7f": "␡", "\u00a0": "⍽"}
_ASCII_SIGNS = {" ": "_", "_": "\\_", "\\": "\\\\", "⟨": "<", "⟩": ">"}
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Hangul fillers and the empty Braille cell: letters by category, blank to the eye."""
_JOINERS = ("\u200c", "\u200d")


def visible_symbol(symbol: str) -> str:
    """A symbol in which every character can be seen and none acts on what stands around it.

    A space is ␣, a tab ⇥, an escape ␛; what has no sign of its own (bidirectional controls, zero-width characters,
    unpaired surrogates) is its code point, as ⟨U+202E⟩; a combining mark without a base stands on a dotted circle; a
    symbol of no characters is ⟨empty⟩. Joiners inside a word, which shape its letters, stay.
    """
    parts: list[str] = []
    for index, character in enumerate(symbol):
        before, after = symbol[:index][-1:], symbol[index + 1 :][:1]
        if character in _JOINERS and _is_shaped(before) and _is_shaped(after):
            parts.append(character)
        elif _is_mark(character):
            parts.append(character if _is_drawn(before) or before in _JOINERS else "◌" + character)
        else:
            parts.append(_visible_character(character))
    return "".join(parts) or "⟨empty⟩"


def visible_text(text: str) -> str:
    """A running text made visible: like `visible_symbol`, but single spaces between words stay spaces."""
    return "".join(visible_pieces(grapheme_clusters(text))) or "⟨empty⟩"


def visible_pieces(pieces: Sequence[str]) -> list[str]:
    """`visible_text` piece by piece, for a text cut by `grapheme_clusters`."""
    padded = [" ", *pieces, " "]
    return [
        " " if piece == " " and padded[index] != " " != padded[index + 2] else visible_symbol(piece)
        for index, piece in enumerate(pieces)
    ]


def visible_message(line: str) -> str:
    """Return a line of a message with every character visible, as `visible_symbol` has it, and every space as it is."""
    return "".join(" " if piece == " " else visible_symbol(piece) for piece in grapheme_clusters(line))


def ascii_symbol(symbol: str) -> str:
    """A symbol in ASCII alone: a space is _, an underscore \\_, ⟨ and ⟩ are < and >, any other sign is its escape."""
    return "".join(_ascii_character(character) for character in symbol) or "<empty>"


def grapheme_clusters(text: str) -> list[str]:
    """A text in pieces that are drawn as one: each base character with the marks and joiners that follow it."""
    pieces: list[str] = []
    for character in text:
        joined = bool(pieces) and (pieces[-1][-1] in _JOINERS or character in _JOINERS or _is_mark(character))
        if joined:
            pieces[-1] += character
        else:
            pieces.append(character)
    return pieces


def wrap_columns(shown: str, width: int) -> list[str]:
    """A visible text cut into lines of at most `width` columns as displayed, never between a letter and its marks."""
    lines, used = [""], 0
    for piece in grapheme_clusters(shown):
        size = cell_len(piece)
        if used + size > width:
            lines.append("")
            used = 0
        lines[-1] += piece
        used += size
    return lines


def truncate_columns(shown: str, max_width: int, cut: str = "…") -> str:
    """A visible text of at most `longest` columns as displayed, its cut shown."""
    return shown if cell_len(shown) <= max_width else wrap_columns(shown, max_width - cell_len(cut))[0] + cut


def format_fraction(value: float) -> str:
    """A part of 1: "0.93", and "0.9990" or ">0.9999" where two decimals would make it look like all of it."""
    digits = 4 if 0.995 <= value < 1 else 2
    shown = f"{value:.{digits}f}"
    return ">0.9999" if shown == "1.0000" else shown


def format_probability(log_probability: float) -> str:
    """A probability from its logarithm: "0.93", or "3e-04" where two decimals would say too little, however small.

    One near 1 is told as by `format_fraction`.
    """
    if math.isnan(log_probability):
        return "unknown"
    if log_probability >= math.log(0.01):
        return format_fraction(math.exp(log_probability))
    if log_probability < -1e9:  # what a trace holds for probability 0, and what no double can tell apart from it
        return "0"
    exponent = math.floor(log_probability / math.log(10))
    leading = round(math.exp(log_probability - exponent * math.log(10)))
    if leading == 10:
        leading, exponent = 1, exponent + 1
    return f"{leading}e-{-exponent:02d}"


def _visible_character(character: str) -> str:
    """One character that is no mark, made visible."""
    if character in _SIGNS:
        return _SIGNS[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    return character if _is_drawn(character) else f"⟨U+{ord(character):04X}⟩"


def _ascii_character(character: str) -> str:
    """One character in ASCII."""
    if character in _ASCII_SIGNS:
        return _ASCII_SIGNS[character]
    if " " < character <= "~":
        return character
    return character.encode("unicode_escape").decode("ascii")


def _is_mark(character: str) -> bool:
    """Whether a character is drawn on, or around, the one before it."""
    return unicodedata.category(character)[0] == "M"


def _is_drawn(character: str) -> bool:
    """Whether a character leaves ink of its own (an empty string leaves none)."""
    return character != "" and unicodedata.category(character)[0] not in "CZ" and character not in _BLANK_LETTERS


def _is_shaped(character: str) -> bool:
    """Whether a joiner beside the character can change its form: letters, marks and emoji."""
    return character != "" and unicodedata.category(character) in ("Lo", "Lm", "Ll", "Lu", "Mn", "Mc", "So", "Sk")
