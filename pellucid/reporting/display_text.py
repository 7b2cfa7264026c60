"""Symbols, texts and numbers for display: every character is visible, and none controls the terminal."""

import math
import unicodedata
from collections.abc import Sequence
from itertools import pairwise

from rich.cells import cell_len

from pellucid.argument_checks import argument_error, check_arguments, python_scalar

_SIGNS = {" ": "␣", "\t": "⇥", "\n": "⏎", "\x7f": "␡", "\u00a0": "⍽"}
_ASCII_SIGNS = {" ": "_", "_": "\\_", "\\": "\\\\", "⟨": "<", "⟩": ">"}
_BLANK_LETTERS = "\u115f\u1160\u3164\uffa0\u2800"
"""Hangul fillers and the empty Braille cell: letters by category, but blank."""
_JOINERS = ("\u200c", "\u200d")


@check_arguments
def visible_symbol(symbol: str) -> str:
    """Return a symbol with every character visible.

    A space becomes ␣, a tab ⇥, an escape ␛. Characters without a sign (bidirectional controls, zero-width characters,
    unpaired surrogates) become their code points, such as ⟨U+202E⟩. A combining mark without a base is placed on a
    dotted circle. An empty symbol becomes ⟨empty⟩. Joiners within a word stay, because they shape its letters.

    Args:
        symbol: The symbol.
    """
    parts: list[str] = []
    for index, character in enumerate(symbol):
        before, after = symbol[max(index - 1, 0) : index], symbol[index + 1 : index + 2]
        if character in _JOINERS and _is_shaped(before) and _is_shaped(after):
            parts.append(character)
        elif _is_mark(character):
            parts.append(character if _is_drawn(before) or before in _JOINERS else "◌" + character)
        else:
            parts.append(_visible_character(character))
    return "".join(parts) or "⟨empty⟩"


@check_arguments
def visible_text(text: str) -> str:
    """Return a text with every character visible, as `visible_symbol` does, but single spaces between words unchanged.

    Args:
        text: The text; an empty one becomes ⟨empty⟩.
    """
    return "".join(visible_pieces(grapheme_clusters(text))) or "⟨empty⟩"


@check_arguments
def visible_pieces(pieces: Sequence[str]) -> list[str]:
    """Return the grapheme clusters of a text, each made visible as in `visible_text`.

    Args:
        pieces: All grapheme clusters of the text, from `grapheme_clusters`.

    Returns:
        One text per cluster; none for an empty text.
    """
    padded = [" ", *pieces, " "]
    return [
        " " if piece == " " and padded[index] != " " != padded[index + 2] else visible_symbol(piece)
        for index, piece in enumerate(pieces)
    ]


@check_arguments
def visible_message(line: str) -> str:
    """Return a line of a message with every character visible, as `visible_symbol` does, but with all spaces unchanged.

    Args:
        line: One line of the message; an empty one stays empty.
    """
    return "".join(" " if piece == " " else visible_symbol(piece) for piece in grapheme_clusters(line))


@check_arguments
def ascii_symbol(symbol: str) -> str:
    r"""Return a symbol in ASCII: a space becomes `_`, an underscore `\_`, a backslash `\\`, ⟨ and ⟩ become `<` and `>`.

    Other characters outside printable ASCII become Python escapes, such as \xe9. An empty symbol becomes `<empty>`.

    Args:
        symbol: The symbol.
    """
    return "".join(_ascii_character(character) for character in symbol) or "<empty>"


@check_arguments
def grapheme_clusters(text: str) -> list[str]:
    """Return the grapheme clusters of a text: each base character with the combining marks that follow it.

    Zero-width joiners connect the characters beside them. Other rules of Unicode, such as those for flags, do not
    apply.

    Args:
        text: The text.

    Returns:
        The clusters, which joined are the text; none for an empty text.
    """
    starts, before = list[int](), ""
    for index, character in enumerate(text):
        if not (before and (before in _JOINERS or character in _JOINERS or _is_mark(character))):
            starts.append(index)
        before = character
    return [text[start:stop] for start, stop in pairwise([*starts, len(text)])]


@check_arguments
def wrap_columns(text: str, width: int) -> list[str]:
    """Split a visible text into lines of a maximum display width, anywhere except within a grapheme cluster.

    Args:
        text: A visible text.
        width: Maximum display width of a line, in terminal columns. A wider cluster has a line of its own.

    Returns:
        At least one line, which is empty for an empty text.
    """
    lines, line_width = [""], 0
    for cluster in grapheme_clusters(text):
        size = cell_len(cluster)
        if line_width + size > width:
            lines.append("")
            line_width = 0
        lines[-1] += cluster
        line_width += size
    return lines


@check_arguments
def truncate_columns(text: str, max_width: int, ellipsis: str = "…") -> str:
    """Return a visible text, truncated at its end with an ellipsis if it is wider than a maximum.

    Args:
        text: A visible text.
        max_width: Maximum display width, including the ellipsis, in terminal columns.
        ellipsis: The text at the end of a truncated text.
    """
    return text if cell_len(text) <= max_width else wrap_columns(text, max_width - cell_len(ellipsis))[0] + ellipsis


@check_arguments
def format_fraction(value: float) -> str:
    """Return a fraction as text: "0.93" or "1.00", with four decimals from 0.995 to below 1.

    A fraction below 1 that would be rounded to "1.0000" becomes ">0.9999".

    Args:
        value: Number from 0 to 1.
    """
    digits = 4 if 0.995 <= value < 1 else 2
    text = f"{value:.{digits}f}"
    return ">0.9999" if text == "1.0000" else text


def format_probability(log_probability: float) -> str:
    """Return a probability as text: "0.93" as in `format_fraction`, or "3e-04" below 0.01.

    Args:
        log_probability: Natural logarithm of the probability; NaN becomes "unknown", and less than −10⁹ "0".
    """
    try:  # NaN would be refused as a checked argument; methods of a value may raise anything
        number = python_scalar(log_probability)
        log_probability = float(number if type(number) in (int, float) else "")  # type: ignore[arg-type]
    except Exception:
        raise argument_error("log_probability", "a number", log_probability) from None
    if math.isnan(log_probability):
        return "unknown"
    if log_probability >= math.log(0.01):
        return format_fraction(math.exp(min(log_probability, 0.0)))
    if log_probability < -1e9:  # probability 0 in a trace, and values that a float cannot distinguish from it
        return "0"
    exponent = math.floor(log_probability / math.log(10))
    leading = round(math.exp(log_probability - exponent * math.log(10)))
    if leading == 10:
        leading, exponent = 1, exponent + 1
    return f"{leading}e-{-exponent:02d}"


def _visible_character(character: str) -> str:
    """Return a character that is not a combining mark, made visible."""
    if character in _SIGNS:
        return _SIGNS[character]
    if ord(character) < 0x20:
        return chr(0x2400 + ord(character))
    return character if _is_drawn(character) else f"⟨U+{ord(character):04X}⟩"


def _ascii_character(character: str) -> str:
    """Return one character in ASCII."""
    if character in _ASCII_SIGNS:
        return _ASCII_SIGNS[character]
    if " " < character <= "~":
        return character
    return character.encode("unicode_escape").decode("ascii")


def _is_mark(character: str) -> bool:
    """Return whether a character is a combining mark."""
    return unicodedata.category(character)[0] == "M"


def _is_drawn(character: str) -> bool:
    """Return whether a character has a visible glyph; False for the empty string."""
    return character != "" and unicodedata.category(character)[0] not in "CZ" and character not in _BLANK_LETTERS


def _is_shaped(character: str) -> bool:
    """Return whether an adjacent joiner can change the form of a character: letters, marks and emoji."""
    return character != "" and unicodedata.category(character) in ("Lo", "Lm", "Ll", "Lu", "Mn", "Mc", "So", "Sk")
