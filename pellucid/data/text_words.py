"""Words of running text: where each begins and ends."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import regex

from pellucid.errors import ConfigError, abbreviate_reason, quote

WORD_BOUNDARY = regex.compile(r"\b", regex.WORD | regex.VERSION1)
"""Default word boundaries of Unicode (Unicode Standard Annex 29, section 4)."""
LETTER = regex.compile(r"\p{Alphabetic}")
MATCH_SECONDS = 10.0
"""Maximum time to match a pattern in one line, in seconds: some patterns take time exponential in the length."""


class WordSpan(NamedTuple):
    """Position of a word in a text, in characters (Unicode code points)."""

    start: int
    """Index of the first character."""
    end: int
    """Index after the last character."""


class WordRule:
    """Rule that finds the words of a text.

    Without a pattern, words are the parts between the default word boundaries of Unicode that contain a letter: in
    "Don't stop, it's 3.14!", these are "Don't", "stop" and "it's". With a pattern, words are its matches.
    """

    def __init__(self, pattern: str | None = None) -> None:
        r"""Compile the pattern.

        Args:
            pattern: Regular expression of the package regex, such as r"\d+"; None for Unicode's word boundaries.

        Raises:
            ConfigError: The pattern is no regular expression.
        """
        self.pattern = pattern
        try:
            self._compiled = None if pattern is None else regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"the word pattern {quote(pattern)} is no regular expression: {abbreviate_reason(error)}"
            ) from None

    def find(self, text: str, limit: int | None = None) -> list[WordSpan]:
        """Return the positions of the words of a text, in order. They do not overlap, and none is empty.

        Args:
            text: One line of text.
            limit: Maximum number of words, the first ones; None, the default, for all.

        Raises:
            ConfigError: Matching the pattern takes longer than `MATCH_SECONDS`.
        """
        if self._compiled is None:
            return list(islice(_unicode_words(text), limit))
        try:
            matches = self._compiled.finditer(text, timeout=MATCH_SECONDS)
            spans = (WordSpan(*match.span()) for match in matches if match.end() > match.start())
            return list(islice(spans, limit))
        except TimeoutError:
            raise ConfigError(
                f"matching the word pattern {quote(self.pattern)} took longer than {MATCH_SECONDS:g} "
                "seconds: use a pattern without nested repetitions"
            ) from None


def _unicode_words(text: str) -> Iterator[WordSpan]:
    """Yield the parts between word boundaries that contain a letter."""
    start = 0
    for part in WORD_BOUNDARY.splititer(text):
        if LETTER.search(part):
            yield WordSpan(start, start + len(part))
        start += len(part)
