"""Unicode normalization in time linear in the length of a text.

Python sorts the combining marks after a character by insertion, so that the time of its normalization grows with the
square of their number: a line of some megabytes in an untrusted file could take hours.
"""

import re
import unicodedata
from collections import defaultdict
from functools import lru_cache
from itertools import groupby
from typing import Literal

NormalForm = Literal["NFC", "NFD"]
MAX_PLAIN_LENGTH = 1_000
"""Length up to which a text is normalized by Python alone, in at most a millisecond."""
MIN_LONG_RUN = 64
"""Number of combining marks in a row from which they are sorted before normalization. Words have one to three."""
SORTED_BLOCK = 4_096
"""Number of characters that are sorted at once."""


def normalize_text(form: NormalForm, text: str) -> str:
    """Return a text in a Unicode normal form, exactly as `unicodedata.normalize` does, but in linear time.

    Args:
        form: The normal form.
        text: The text.
    """
    if len(text) > MAX_PLAIN_LENGTH and not text.isascii():
        text = _sort_marks(text)
    return unicodedata.normalize(form, text)


def is_normalized(form: NormalForm, text: str) -> bool:
    """Return whether a text is in a Unicode normal form, in linear time.

    Args:
        form: The normal form.
        text: The text.
    """
    if len(text) <= MAX_PLAIN_LENGTH:
        return unicodedata.is_normalized(form, text)
    return normalize_text(form, text) == text


def _sort_marks(text: str) -> str:
    """Return a canonically equivalent text, in which long runs of combining marks are in canonical order."""
    marks = "".join(sorted(filter(_is_mark, set(text))))
    if not marks:
        return text
    return re.sub(f"[{re.escape(marks)}]{{{MIN_LONG_RUN},}}", lambda match: _sort_run(match[0]), text)


@lru_cache(2**14)
def _is_mark(character: str) -> bool:
    """Return whether a character is a combining mark that is sorted, or decomposes into such marks, as U+0F73 does."""
    return unicodedata.combining(unicodedata.normalize("NFD", character)[0]) > 0


def _sort_run(run: str) -> str:
    """Return combining marks, decomposed and in the stable order of their classes.

    Blocks are sorted one by one, and the marks of each class joined: a list of all characters would take 70 times the
    memory of the text.
    """
    decomposed = run.translate({ord(mark): unicodedata.normalize("NFD", mark) for mark in set(run)})
    parts: dict[int, list[str]] = defaultdict(list)
    for start in range(0, len(decomposed), SORTED_BLOCK):
        block = sorted(decomposed[start : start + SORTED_BLOCK], key=unicodedata.combining)
        for mark_class, marks in groupby(block, unicodedata.combining):
            parts[mark_class].append("".join(marks))
    return "".join("".join(parts[mark_class]) for mark_class in sorted(parts))
