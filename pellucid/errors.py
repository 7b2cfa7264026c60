"""What went wrong, told to the person who can mend it.

Every mistake a user can make ends in an `InputError`: one message that names the file, the line, the key or the
symbol and says what was expected. The command line prints it without a traceback and leaves with exit code 2.
"""

import difflib
import re
from collections.abc import Iterable
from pathlib import Path
from typing import cast

CONTROLS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that act on a terminal or on the text around them, or that cannot be written."""
SIGNS = {"\t": "⇥", "\n": "⏎", "\x7f": "␡"}
QUOTED = 80
"""Characters of a user's text that a message quotes."""
LONGEST_REASON = 200
"""Characters of a library's words that a message repeats."""
LONGEST_MESSAGE = 10_000
"""Characters of a line of a message: more than two paths of the greatest length, and what is said of them."""
LONG_NUMBER = 14_000
"""Bits of a whole number that Python writes, at most (4,300 digits have 14,285)."""
MOST_DIGITS = 18
"""Digits of a whole number that a user gives, at most: every number of so many fits into 64 bits."""


class InputError(ValueError):
    """A mistake in what the user gave: a file, a line, a setting. The message is complete and meant for them.

    Each argument is one line of the message. A line break within one is part of a name, and is shown as a sign, as are
    all characters that act on a terminal.
    """

    def __str__(self) -> str:
        """Return all lines."""
        return "\n".join(show_controls(abbreviate(str(each), LONGEST_MESSAGE)) for each in self.args)


class ConfigError(InputError):
    """A setting that does not exist, has the wrong type, or contradicts another."""


class ArgumentError(InputError, TypeError):
    """An argument of a Python function that has the wrong type or a value out of range.

    The message names the argument, what was expected and what was given. It is a `TypeError` as well as a `ValueError`.
    """


class DataError(InputError):
    """A file or a line that cannot be read as examples."""


class RunError(InputError):
    """A run folder that is missing, incomplete, foreign, or cannot be written."""


class NotFiniteError(RunError):
    """A network whose outputs are not finite numbers."""


class DivergenceError(RunError):
    """A training whose numbers have left the finite: other settings may help."""


LONGEST_WORD = 1000
"""Letters of a word beyond which nobody has misspelt it."""


def nearest(word: object, choices: Iterable[str], prefix: str = "") -> str:
    """A hint for a misspelt word: "; did you mean 'hidden_size'?", or nothing where no choice is near.

    `prefix` stands before the choice in the hint: the table of a key, say. What is no word is near nothing.
    """
    if not isinstance(word, str) or len(word := str.__str__(word)) > LONGEST_WORD:
        return ""
    near = difflib.get_close_matches(word, list(choices), n=1, cutoff=0.6)
    return f"; did you mean {quote(prefix + near[0])}?" if near else ""


def show_controls(text: str) -> str:
    """Return a text with a sign for each character that acts: ⏎, ␛, or its code point, as ⟨U+202E⟩."""
    return CONTROLS.sub(_sign, text)


def _sign(match: re.Match[str]) -> str:
    """Return the sign of a character."""
    character = match[0]
    plain = chr(0x2400 + ord(character)) if character < " " else f"⟨U+{ord(character):04X}⟩"
    return SIGNS.get(character, plain)


def quote(value: object, longest: int = QUOTED) -> str:
    """Return a value as a message shows it: a text in quotation marks, its control characters escaped, abbreviated.

    Every message that quotes what a user gave calls this function, so that no message is as long as a user's file.
    A path is never abbreviated.

    Args:
        value: A text, a path, or any other value of a setting.
        longest: Characters shown of a text, and of another value's representation; "…" stands for the rest.
    """
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, str):
        return repr(abbreviate(str.__str__(value), longest))
    try:
        shown = repr(value)
    except Exception:  # whatever an object's own representation may raise
        return "a number of thousands of digits" if _holds_long_number(value) else f"a value of type {_kind(value)}"
    return abbreviate(" ".join(line.strip() for line in shown.splitlines()), longest)


def _kind(value: object) -> str:
    """Return the name of a value's type, abbreviated."""
    return abbreviate(type(value).__name__)


def _holds_long_number(value: object, depth: int = 3) -> bool:
    """Return whether a value is a whole number that Python does not write, or a container of one.

    Python writes no whole number of more than 4,300 digits.
    """
    if type(value) is int:
        return value.bit_length() > LONG_NUMBER
    if type(value) is dict:
        value = [*value.keys(), *value.values()]
    if type(value) not in (list, tuple, set, frozenset) or not depth:
        return False
    return any(_holds_long_number(each, depth - 1) for each in cast(Iterable[object], value))


def abbreviate(text: str, longest: int = QUOTED) -> str:
    """Return a text, or the beginning of one that is longer, with "…" for the rest."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def abbreviate_reason(error: Exception) -> str:
    """Return the first line of a library's words about a user's value, abbreviated; the place, at their end, stays.

    Every message that repeats what another library says calls this function, for its words may quote a user's file.
    """
    told = str(error)
    at = told.rfind(" - at `")
    words, place = (told[:at], told[at:]) if at >= 0 else (told, "")
    first = next(filter(None, map(str.strip, words.split("\n"))), type(error).__name__)
    return show_controls(abbreviate(first, LONGEST_REASON) + abbreviate(place, LONGEST_REASON))


def parse_whole_number(text: str) -> int | None:
    """Return the number that the digits 0 to 9 spell; None for any other text, and for more than `MOST_DIGITS`.

    `int` alone raises an error of its own for texts of more than 4,300 digits.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS else None
