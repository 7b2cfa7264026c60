"""Characters that are easily mistaken: invisible ones, letters of another script, and look-alikes."""

import re
import unicodedata
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from typing import NamedTuple

from pellucid.data.ipa_phones import TIE_BARS
from pellucid.data.tokenizers import Tokenizer
from pellucid.errors import join_first, quote

MAX_LISTED_LETTERS = 5
"""Maximum number of different letters of another script in a text."""
MIN_PROPER_ROWS = 20
"""Minimum number of rows with the proper character of a look-alike."""
MIN_PROPER_RATIO = 20
"""Minimum number of rows with the proper character for each row with its look-alike."""
MIN_TIED_RATIO = 10
"""Minimum number of rows with two letters that a tie bar joins for each row that has them without."""
_TIED = re.compile(f"(?=(.[{TIE_BARS}].))", re.DOTALL)
SCRIPTS = {
    *("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "ETHIOPIC", "CHEROKEE"),
    *("DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA"),
    *("THAI", "LAO", "TIBETAN", "MYANMAR", "KHMER", "MONGOLIAN", "HANGUL"),
}
"""First words of the names of the letters of a script. Japanese writes with several scripts, which are left out."""
JOINERS = frozenset("\u200c\u200d")
"""Zero-width non-joiner and joiner."""
JOINED_SCRIPTS = frozenset(
    {
        *("ARABIC", "SYRIAC", "MONGOLIAN", "DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "ORIYA", "TAMIL", "TELUGU"),
        *("KANNADA", "MALAYALAM", "SINHALA"),
    }
)
"""Scripts whose orthography has `JOINERS`, such as those of Persian and Hindi (Unicode Standard, section 23.2)."""
PHONETIC_LETTERS = frozenset("βθχΒΘΧ")
"""Greek letters of the International Phonetic Alphabet, which belong to Latin letters as well."""
_SYMMETRIC = (
    *("аa", "еe", "оo", "рp", "сc", "уy", "хx", "іi", "јj", "ѕs", "һh", "ԁd", "ԛq", "ԝw"),
    *("АA", "ВB", "ЕE", "КK", "МM", "НH", "ОO", "РP", "СC", "ТT", "ХX", "ІI", "ЈJ", "ЅS"),
    *("οo", "νv", "ρp", "κk", "υu", "αa", "ιi", "ΑA", "ΒB", "ΕE", "ΖZ", "ΗH", "ΙI", "ΚK", "ΜM", "ΝN", "ΟO"),
    *("ΡP", "ΤT", "ΥY", "ΧX", "оο", "αа", "gɡ", "ǝə", "әə", "εɛ", "γɣ", "αɑ", "φɸ", "βß", "υʊ", "ιɪ", "'’"),
)
"""Pairs of characters of which the rarer one of a column may be a mistake for the other."""
_IMPROPER = {
    **dict.fromkeys("'’‘`´′ʹ＇", "ˈʼ"),
    **dict.fromkeys(",‚", "ˌ"),
    **dict.fromkeys(":：꞉", "ː"),
    **dict.fromkeys("‐‑−", "-"),
    **{"?": "ʔ", "!": "ǃ", "|": "ǀ", "∫": "ʃ", "ı": "ɪi"},
}
"""Characters that may be mistakes for others, which are never mistakes for them."""


def _look_alikes() -> dict[str, str]:
    """Return the characters for which each character may be a mistake."""
    found = dict(_IMPROPER)
    for pair in _SYMMETRIC:
        for character, proper in zip(pair, reversed(pair), strict=True):
            found[character] = found.get(character, "") + proper
    return found


LOOK_ALIKES: Mapping[str, str] = _look_alikes()
"""For each character that may be a mistake for another one, the others, the most probable first."""


def is_invisible(character: str) -> bool:
    """Return whether a character is not visible and is not a plain space or tab.

    Args:
        character: One character.
    """
    return character not in " \t" and unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp")


def invisible_position(text: str) -> int:
    """Return the position, from 1, of the first invisible character that is not a joiner of the orthography; else 0.

    A joiner belongs to the orthography after a letter of a script of `JOINED_SCRIPTS`, or after its sign, such as a
    virama or a vowel point, and before another letter of these scripts. An Indic word may also end with one.

    Args:
        text: The text.
    """
    for position, character in enumerate(text, 1):
        if not is_invisible(character):
            continue
        before, after = _joined_script(text[position - 2 : position - 1]), _joined_script(text[position : position + 1])
        is_final = position == len(text) or text[position].isspace()
        if character not in JOINERS or not before or not (after or (is_final and before != "ARABIC")):
            return position
    return 0


def _joined_script(character: str) -> str:
    """Return the script of a letter or sign if it is one of `JOINED_SCRIPTS`; "" otherwise, and for no character."""
    script = unicodedata.name(character, "").partition(" ")[0] if character else ""
    return script if script in JOINED_SCRIPTS and unicodedata.category(character)[0] in "LM" else ""


def quote_visibly(text: str) -> str:
    """Return a text in quotation marks, abbreviated, with the code point of each invisible character in its place.

    Args:
        text: The text.
    """
    return quote(mark_invisible(text))


def mark_invisible(text: str) -> str:
    """Return a text with the code point of each invisible character in its place: "a⟨U+00A0⟩b".

    Args:
        text: The text.
    """
    return "".join(f"⟨{code_point(each)}⟩" if is_invisible(each) else each for each in text)


def code_point(character: str) -> str:
    """Return the code point of a character as text: "U+00A0".

    Args:
        character: One character.
    """
    return f"U+{ord(character):04X}"


def find_look_alikes(counts: Mapping[str, int]) -> dict[str, str]:
    """Return the characters that seem to be mistakes for another one, with the proper one.

    The proper character is in at least `MIN_PROPER_ROWS` rows, and `MIN_PROPER_RATIO` times as many as the look-alike.

    Args:
        counts: Number of rows of a column that have each character.

    Returns:
        The proper character of each look-alike, including those that no row has.
    """
    found: dict[str, str] = {}
    for character, candidates in LOOK_ALIKES.items():
        min_rows = max(MIN_PROPER_ROWS, MIN_PROPER_RATIO * counts.get(character, 0))
        proper = next((each for each in candidates if counts.get(each, 0) >= min_rows), "")
        if proper:
            found[character] = proper
    return found


def look_alike_positions(text: str, look_alikes: Mapping[str, str]) -> list[int]:
    """Return the positions of the look-alikes of a text, from 0.

    A letter of another script counts only if all letters of that script in the text are look-alikes: otherwise the
    text has a word of another language.

    Args:
        text: The text.
        look_alikes: Look-alikes of its column (`find_look_alikes`).
    """
    positions = [position for position, character in enumerate(text) if character in look_alikes]
    if not positions:
        return positions
    others = {script_of(character) for character in text if character not in look_alikes}
    return [
        position
        for position in positions
        if script_of(text[position]) not in others
        or script_of(text[position]) in ("", script_of(look_alikes[text[position]]))
    ]


def describe_look_alike(character: str, proper: str) -> str:
    """Return a look-alike and the proper character in words.

    Args:
        character: The look-alike.
        proper: The proper character.
    """
    return f"{quote(character)} ({code_point(character)}), a look-alike of {quote(proper)} ({code_point(proper)})"


def find_tied_letters(texts: Sequence[str]) -> dict[str, str]:
    """Return the pairs of letters that are nearly always joined by a tie bar, with their usual form, such as tʃ: t͡ʃ.

    Args:
        texts: The texts of a column.
    """
    tied = Counter(form for text in texts for form in set(tied_letters(text)))
    usual = {form[0] + form[2]: form for form, number in reversed(tied.most_common()) if number >= MIN_PROPER_ROWS}
    return {
        pair: form for pair, form in usual.items() if tied[form] >= MIN_TIED_RATIO * sum(pair in text for text in texts)
    }


def tied_letters(text: str) -> list[str]:
    """Return the pairs of letters of a text with a tie bar between them.

    Args:
        text: The text.
    """
    return [match.group(1) for match in _TIED.finditer(text)]


def is_single_word(tokenizer: Tokenizer) -> bool:
    """Return whether white space in a text separates the symbols of one word, and not words.

    Args:
        tokenizer: Tokenizer of the column.
    """
    return tokenizer.kind not in ("characters", "ipa")


class ForeignLetters(NamedTuple):
    """Letters of another script than most letters of their word."""

    position: int
    """Position of the first one in its text, from 1."""
    text: str
    """The different letters with their scripts, and the script of most letters."""
    letters: str
    """The different letters."""
    replacements: tuple[tuple[str, str], ...]
    """Letters that look like one of the script of most letters, and that one."""


def foreign_letters(text: str, is_one_word: bool) -> ForeignLetters | None:
    """Return the letters of the first word with letters of several scripts; None if each word has one script.

    Args:
        text: The text.
        is_one_word: True if white space separates the symbols of one word.
    """
    if text.isascii():
        return None
    for start, stop in [(0, len(text))] if is_one_word else (match.span() for match in re.finditer(r"\S+", text)):
        scripts = [(position, script_of(text[position])) for position in range(start, stop)]
        counts = Counter(script for _, script in scripts if script)
        if len(counts) > 1:
            main = counts.most_common(1)[0][0]
            foreign = [(position, script) for position, script in scripts if script and script != main]
            letters = dict.fromkeys((text[position], script) for position, script in foreign)
            listed = [f"{quote(letter)} ({code_point(letter)}, {script.capitalize()})" for letter, script in letters]
            described = f"{join_first(listed[:MAX_LISTED_LETTERS], len(listed))} among {main.capitalize()} letters"
            candidates = [(letter, LOOK_ALIKES.get(letter, "")) for letter, _ in letters]
            own = [(letter, [each for each in similar if script_of(each) == main]) for letter, similar in candidates]
            replacements = tuple((letter, similar[0]) for letter, similar in own if similar)
            return ForeignLetters(foreign[0][0] + 1, described, "".join(letter for letter, _ in letters), replacements)
    return None


@cache
def script_of(character: str) -> str:
    """Return the script of a letter, one of `SCRIPTS`; empty for other characters and `PHONETIC_LETTERS`.

    Args:
        character: One character.
    """
    if character in PHONETIC_LETTERS or not unicodedata.category(character).startswith("L"):
        return ""
    script = unicodedata.name(character, "").partition(" ")[0]
    return script if script in SCRIPTS else ""
