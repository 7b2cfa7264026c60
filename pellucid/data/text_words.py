"""Words of running text: where each begins and ends."""

from collections.abc import Iterator
from itertools import islice
from typing import NamedTuple

import regex

from pellucid.argument_checks import check_arguments
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

    @check_arguments
    def __init__(self, pattern: str | None = None) -> None:
        r"""Compile the pattern.

        Args:
            pattern: Regular expression of the package regex, such as r"\d+"; None for Unicode's word boundaries.

        Raises:
            ArgumentError: The pattern is not a string.
            ConfigError: The pattern is not a regular expression, or matches from right to left, with the flag (?r).
        """
        self.pattern = pattern
        try:
            self._compiled = None if pattern is None else regex.compile(pattern)
        except (regex.error, OverflowError, RecursionError) as error:
            raise ConfigError(
                f"the word pattern {quote(pattern)} is not a regular expression: {abbreviate_reason(error)}"
            ) from None
        if self._compiled is not None and self._compiled.flags & regex.REVERSE:
            raise ConfigError(
                f"the word pattern {quote(pattern)} has the flag r, with which matches come from right to left: leave "
                "the flag out"
            )

    def find(self, text: str, limit: int | None = None) -> list[WordSpan]:
        """Return the positions of the words of a text, in order. They do not overlap, and none is empty.

        Args:
            text: One line of text.
            limit: Maximum number of words, the first ones; None, the default, for all.

        Raises:
            ConfigError: Matching the pattern takes longer than `MATCH_SECONDS`, or its matches overlap.
        """
        if self._compiled is None:
            return list(islice(_unicode_words(text), limit))
        try:
            return list(islice(self._matches(text, self._compiled), limit))
        except TimeoutError:
            raise ConfigError(
                f"matching the word pattern {quote(self.pattern)} took longer than {MATCH_SECONDS:g} "
                "seconds: use a pattern without nested repetitions"
            ) from None

    def _matches(self, text: str, compiled: "regex.Pattern[str]") -> Iterator[WordSpan]:
        """Yield the matches that are not empty. With \\K in a lookaround, one may begin before the end of another."""
        end = 0
        for match in compiled.finditer(text, timeout=MATCH_SECONDS):
            if match.start() < end or match.end() < match.start():
                raise ConfigError(
                    f"the matches of the word pattern {quote(self.pattern)} overlap: use a pattern without \\K"
                )
            end = match.end()
            if end > match.start():
                yield WordSpan(match.start(), end)


def _unicode_words(text: str) -> Iterator[WordSpan]:
    """Yield the parts between word boundaries that contain a letter."""
    start = 0
    for part in WORD_BOUNDARY.splititer(text):
        if LETTER.search(part):
            yield WordSpan(start, start + len(part))
        start += len(part)
