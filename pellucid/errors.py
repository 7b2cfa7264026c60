"""Errors of user input, and the functions that quote user input in error messages.

Every user mistake raises an `InputError` with one message that names the file, line, key, argument or symbol and says
what was expected. The command line prints the message without a traceback and exits with code 2.
"""

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import cast

CONTROL_CHARACTERS = re.compile(
    "[\x00-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
"""Characters that control the terminal or the surrounding text, or that cannot be encoded."""
CONTROL_PICTURES = {"\t": "⇥", "\n": "⏎", "\x7f": "␡"}
MAX_QUOTE_LENGTH = 80
"""Maximum length of quoted user input, in characters."""
MAX_REASON_LENGTH = 200
"""Maximum length of a quoted library message, in characters."""
MAX_MESSAGE_LENGTH = 10_000
"""Maximum length of a line of a message, in characters: more than two paths of maximum length and the text around them.
"""
MAX_PRINTABLE_BITS = 14_000
"""Maximum size of a whole number that Python prints, in bits (4,300 digits have 14,285)."""
MAX_LISTED_LINES = 5
"""Maximum number of line numbers in a message."""
MAX_DIGITS = 18
"""Maximum number of digits of a user's whole number; all such numbers fit into 64 bits."""


class InputError(ValueError):
    """Invalid user input: a file, a line, a setting, an argument. The base of all errors that a user can correct.

    The message is complete and written for the user. Each argument of the exception is one line of it. Line breaks
    within an argument, and other characters that control a terminal, are replaced by visible signs.
    """

    def __str__(self) -> str:
        """Return all lines of the message, each abbreviated to `MAX_MESSAGE_LENGTH` characters."""
        return "\n".join(replace_controls(abbreviate(str(line), MAX_MESSAGE_LENGTH)) for line in self.args)


class ConfigError(InputError):
    """A setting or flag that does not exist, is invalid, contradicts another, or does not suit the task or machine."""


class MissingExtensionError(ConfigError):
    """Settings name an extension that is neither built in nor registered, and that no installed package declares."""


class ArgumentError(InputError, TypeError):
    """An argument of a Python function with the wrong type or a value out of range.

    The message names the argument, the expected type and the value. The class is a `TypeError` as well as a
    `ValueError`.
    """


class DataError(InputError):
    """A file, a line or an example that cannot be read or used."""

    def __init__(self, *lines: object, missing_columns: tuple[str, ...] = ()) -> None:
        """Set the message.

        Args:
            *lines: Lines of the message.
            missing_columns: Roles of the columns that the first bad line lacks (`BadLine.missing_columns`).
        """
        super().__init__(*lines)
        self.missing_columns = missing_columns


class ConstraintError(InputError):
    """Constraints that no output can satisfy, such as a prefix with a symbol outside the vocabulary."""


class BadLineError(DataError):
    """A line of a file of pairs that cannot be used, where `data.on_bad_line` is "stop"."""


class RunError(InputError):
    """A run folder, or another file of the program, that is missing, incomplete or invalid, or cannot be written."""


class WorkerLostError(RunError):
    """Another worker of a data-parallel training has ended, or cannot be reached."""


class FolderInUseError(RunError):
    """A run folder whose lock another training holds; it may be free later."""


class NotFiniteError(RunError):
    """A network whose outputs are not finite, so that nothing can be decoded."""


class DivergenceError(RunError):
    """A training whose loss or parameters are no longer finite; other settings may help."""


class OutOfMemoryError(InputError):
    """A computation that needs more memory than there is; smaller batches or a smaller network may help."""


MEMORY_PHRASES = ("not enough memory", "can't allocate memory", "out of memory")
"""Texts by which the `RuntimeError` of PyTorch for a failed allocation is recognized."""
MAPPING_PHRASES = ("failed to map segment", "cannot allocate memory", "cannot map zero-fill pages")
"""Texts by which the error for a library that does not fit into the address space is recognized."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error is a failed allocation: of Python, NumPy or PyTorch, on a CPU or a GPU, or of a library
    that is loaded.

    Args:
        error: The error.
    """
    if isinstance(error, RuntimeError):
        return any(phrase in str(error) for phrase in MEMORY_PHRASES)
    if isinstance(error, ImportError | OSError):
        text = str(error).lower()
        return "static tls" not in text and any(phrase in text for phrase in MAPPING_PHRASES)
    return isinstance(error, MemoryError)


MAX_WORD_LENGTH = 1000
"""Maximum length of a word for which a suggestion is computed."""


MAX_CHOICES = 1000
"""Maximum number of words with which a misspelled one is compared, in some milliseconds."""


def suggest(word: object, choices: Iterable[str], prefix: str = "") -> str:
    """Return a suggestion for a misspelled word: "; did you mean 'hidden_size'?", or "" if no choice is similar.

    Args:
        word: The word; values that are not str, or longer than `MAX_WORD_LENGTH`, have no suggestion.
        choices: The valid words, of which the first `MAX_CHOICES` are compared: a file may name any number of columns.
        prefix: Text before the suggested word, such as the section of a key; none by default.
    """
    if not isinstance(word, str) or len(word := str.__str__(word)) > MAX_WORD_LENGTH:
        return ""
    similar = difflib.get_close_matches(word, list(islice(choices, MAX_CHOICES)), n=1, cutoff=0.6)
    return f"; did you mean {quote(prefix + similar[0])}?" if similar else ""


def replace_controls(text: str) -> str:
    """Return a text with visible signs for control characters: ⏎, ␛, or the code point, as ⟨U+202E⟩.

    Args:
        text: The text.
    """
    return CONTROL_CHARACTERS.sub(_control_picture, text)


def _control_picture(match: re.Match[str]) -> str:
    """Return the visible sign of a control character."""
    character = match[0]
    plain = chr(0x2400 + ord(character)) if character < " " else f"⟨U+{ord(character):04X}⟩"
    return CONTROL_PICTURES.get(character, plain)


def quote(value: object, max_length: int = MAX_QUOTE_LENGTH) -> str:
    """Return a value as error messages quote it: str in quotation marks, escaped and abbreviated.

    Every message that quotes user input calls this function, so the length of messages is bounded. Paths are quoted but
    not abbreviated. Other values are represented on one line.

    Args:
        value: A str, a path, or any other value, whose `__repr__` may raise an exception.
        max_length: Maximum length in characters, without quotation marks and before escaping; the rest is replaced by
            "…".
    """
    if isinstance(value, Path):
        return repr(str(value))
    if isinstance(value, str):
        return repr(abbreviate(str.__str__(value), max_length))
    try:
        text = repr(value)
    except Exception:  # __repr__ may raise anything
        return (
            "a number with thousands of digits" if _holds_long_number(value) else f"a value of type {_type_name(value)}"
        )
    return abbreviate(" ".join(line.strip() for line in text.splitlines()), max_length)


def _type_name(value: object) -> str:
    """Return the abbreviated name of the type of a value."""
    return abbreviate(type(value).__name__)


def _holds_long_number(value: object, depth: int = 3) -> bool:
    """Return whether a value is, or a container holds, a whole number of more than 4,300 digits, which Python does not
    print.
    """
    if type(value) is int:
        return value.bit_length() > MAX_PRINTABLE_BITS
    if type(value) is dict:
        value = [*value.keys(), *value.values()]
    if type(value) not in (list, tuple, set, frozenset) or not depth:
        return False
    return any(_holds_long_number(item, depth - 1) for item in cast(Iterable[object], value))


def abbreviate(text: str, max_length: int = MAX_QUOTE_LENGTH) -> str:
    """Return a text, abbreviated with "…" to a maximum length.

    Args:
        text: The text.
        max_length: Maximum length of the result, in characters.
    """
    return text if len(text) <= max_length else text[: max_length - 1] + "…"


def abbreviate_reason(error: Exception | SystemExit) -> str:
    """Return the first line of a library's error message, and the location " - at `...`" at its end, both abbreviated.

    Every message that quotes a library's message calls this function, because that message may quote a user's file.
    Control characters are replaced.

    Args:
        error: Error of a library; one without a message is described by the name of its class. `SystemExit` is the call
            of sys.exit by an extension.
    """
    message = f"it called sys.exit({quote(error.code)})" if isinstance(error, SystemExit) else str(error)
    start = message.rfind(" - at `")
    text, location = (message[:start], message[start:]) if start >= 0 else (message, "")
    first = next(filter(None, map(str.strip, text.split("\n"))), type(error).__name__)
    return replace_controls(abbreviate(first, MAX_REASON_LENGTH) + abbreviate(location, MAX_REASON_LENGTH))


def describe_failure(error: Exception | SystemExit, modules: Collection[str] = ()) -> str:
    """Return an error of other code with its type and its place: "KeyError: 'size' (/home/me/my_cell.py, line 12)".

    Args:
        error: The error.
        modules: Top-level modules of the code; the place is that of its last line in the traceback, and is left out
            without any. None by default.
    """
    kind, reason = type(error).__name__, abbreviate_reason(error)
    text = kind if reason == kind else f"{kind}: {reason}"
    place = find_place(error, modules)
    return f"{text} ({place})" if place else text


def find_place(error: BaseException, modules: Collection[str]) -> str:
    """Return the file and line where code has called what failed, or "" if the traceback has no line of it.

    Args:
        error: The error.
        modules: Top-level modules of the code.
    """
    place, traceback = "", error.__traceback__
    while traceback is not None:
        frame = traceback.tb_frame
        if str(frame.f_globals.get("__name__")).partition(".")[0] in modules:
            place = f"{frame.f_code.co_filename}, line {traceback.tb_lineno}"
        traceback = traceback.tb_next
    return replace_controls(place)


def count_noun(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: "1 output", "1,200 outputs".

    Args:
        number: Number of things.
        noun: Noun in the singular.
        plural: Plural of the noun; the noun and "s" by default.
    """
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def list_lines(lines: Sequence[int], number: int = 0, unit: str = "line") -> str:
    """Return line numbers as text: "line 3", "lines 3 and 5", "lines 1, 2, 3, 4, 5 and 7 more".

    Args:
        lines: Line numbers, at least one; the first `MAX_LISTED_LINES` suffice.
        number: Number of all lines; 0, the default, if all are given.
        unit: Noun of a line; "line" by default.
    """
    number = number or len(lines)
    listed = join_first([f"{line:,}" for line in lines[:MAX_LISTED_LINES]], number)
    return f"{unit}{'' if number == 1 else 's'} {listed}"


def join_first(shown: Sequence[str], number: int) -> str:
    """Return the first ones of a number of texts as one: "a", "a and b", "a, b and 7 more".

    Args:
        shown: The first texts, at least one.
        number: Number of all texts.
    """
    shown = [*shown, f"{number - len(shown):,} more"] if number > len(shown) else shown
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def parse_whole_number(text: str) -> int | None:
    """Return the number that the digits 0 to 9 spell; None for other texts and for more than `MAX_DIGITS` digits.

    `int` would raise its own error for more than 4,300 digits.

    Args:
        text: The text.
    """
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= MAX_DIGITS else None
