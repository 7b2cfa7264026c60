"""Checks of one column: how often each symbol occurs, and warnings about new texts that may be typing errors."""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from pellucid.auditing.characters import (
    describe_look_alike,
    find_look_alikes,
    foreign_letters,
    is_single_word,
    look_alike_positions,
    quote_visibly,
    tied_letters,
)
from pellucid.auditing.rules import MAX_FRACTION, ROWS_PER_RARE, rare_limit
from pellucid.data.ipa_phones import TIE_BARS
from pellucid.data.tokenizers import UNSPLIT_KINDS, Tokenizer
from pellucid.errors import MAX_LISTED_LINES, count_noun

STRESS_MARKS = "ˈˌ'"
"""Stress marks, and the apostrophe that replaces one."""
_DOUBLED_STRESS = re.compile(f"[{STRESS_MARKS}]{{2,}}")


class SymbolCount(NamedTuple):
    """A symbol of a column, and where it occurs."""

    symbol: str
    num_rows: int
    lines: tuple[int, ...]
    """The first lines that have it."""


@dataclass(frozen=True)
class TextChecks:
    """Texts of one column, to which new texts are compared.

    Args:
        tokenizer: Tokenizer of the column.
        counts: Number of rows with each symbol.
        characters: Number of rows with each character.
        ties: Pairs of letters with a tie bar between them that occur.
        num_rows: Number of rows.
        rare_limit: Number of rows up to which a symbol is rare; 0 in a small file, or where many rows have such.
        usual: Kinds of findings of new texts that more than `MAX_FRACTION` of the rows have themselves.
    """

    tokenizer: Tokenizer
    counts: Counter[str]
    characters: Counter[str]
    ties: Counter[str]
    num_rows: int
    rare_limit: int
    usual: frozenset[str]

    @cached_property
    def look_alikes(self) -> dict[str, str]:
        """The proper character of each look-alike."""
        return find_look_alikes(self.characters)

    def warnings(self, text: str, replaced: str | None = None) -> Iterator[str]:
        """Yield why a new text may be a typing error, as phrases that follow "with": "a space at the end".

        Args:
            text: The new text.
            replaced: Text in its place, which does not count as another row; None, the default, if it is not a text of
                the column.
        """
        if text != text.strip():
            yield "a space at the beginning or the end"
        own = (
            (split_symbols(self.tokenizer, replaced), set(replaced), tied_letters(replaced)) if replaced else ((),) * 3
        )
        look_alikes = dict.fromkeys(text[position] for position in look_alike_positions(text, self.look_alikes))
        mixed = None if "scripts" in self.usual else foreign_letters(text, self.is_one_word)
        for character in (each for each in look_alikes if mixed is None or each not in mixed.letters):
            yield describe_look_alike(character, self.look_alikes[character])
        for symbol in sorted(set(split_symbols(self.tokenizer, text))) if self.num_rows else ():
            num_others = self.counts[symbol] - (symbol in own[0])
            if symbol not in look_alikes and num_others <= self.rare_limit:
                others = "no other row has" if not num_others else f"only {count_noun(num_others, 'other row')} have"
                yield f"{quote_visibly(symbol)}, a symbol that {others}"
        for tied in dict.fromkeys(tied_letters(text)) if self.num_rows else ():
            if self.ties[tied] - (tied in own[2]) <= 0:
                yield f"{quote_visibly(tied)}, letters that no other row ties"
        found = dict(shape_findings(text, self.is_one_word))
        yield from (phrase for kind, phrase in found.items() if kind not in self.usual)

    @property
    def is_one_word(self) -> bool:
        """True if white space separates the symbols of one word."""
        return is_single_word(self.tokenizer)


def check_column(texts: Sequence[str], tokenizer: Tokenizer) -> TextChecks:
    """Return the checks of a column.

    Args:
        texts: Its texts.
        tokenizer: Its tokenizer.
    """
    counts, characters, ties, shapes = Counter[str](), Counter[str](), Counter[str](), Counter[str]()
    split = [set(split_symbols(tokenizer, text)) for text in texts]
    for text, symbols in zip(texts, split, strict=True):
        counts.update(symbols)
        characters.update(set(text))
        ties.update(set(tied_letters(text)))
        shapes.update(kind for kind, _ in shape_findings(text, is_single_word(tokenizer)))
    usual = frozenset(kind for kind, number in shapes.items() if number > MAX_FRACTION * len(texts))
    rarest = [min((counts[symbol] for symbol in symbols), default=len(texts)) for symbols in split]
    limit = rare_limit(rarest) if len(texts) >= ROWS_PER_RARE else 0
    if sum(number <= limit for number in rarest) > MAX_FRACTION * len(texts):
        limit = 0
    return TextChecks(tokenizer, counts, characters, ties, len(texts), limit, usual)


def split_symbols(tokenizer: Tokenizer, text: str) -> list[str]:
    """Return the symbols of a text; the characters of one whose tokenizer does not split it.

    Args:
        tokenizer: Tokenizer of the column.
        text: The text.
    """
    return list(text) if tokenizer.kind in UNSPLIT_KINDS else tokenizer.split(text)


def count_symbols(rows: Iterable[tuple[int, str]], tokenizer: Tokenizer) -> list[SymbolCount]:
    """Return the symbols of a column, the rarest first.

    Args:
        rows: Line and text of each row.
        tokenizer: Tokenizer of the column.
    """
    counts, lines = Counter[str](), defaultdict[str, list[int]](list)
    for line, text in rows:
        for symbol in set(split_symbols(tokenizer, text)):
            counts[symbol] += 1
            if len(lines[symbol]) < MAX_LISTED_LINES:
                lines[symbol].append(line)
    ordered = sorted(counts, key=lambda symbol: (counts[symbol], symbol))
    return [SymbolCount(symbol, counts[symbol], tuple(lines[symbol])) for symbol in ordered]


def shape_findings(text: str, is_one_word: bool) -> Iterator[tuple[str, str]]:
    """Yield the kinds of errors that a text has by itself, with a phrase for each.

    Args:
        text: The text.
        is_one_word: True if white space separates the symbols of one word.
    """
    bare = text.strip()
    if bare and unicodedata.category(bare[0]) in ("Mn", "Mc", "Me"):
        yield "combining", "a combining mark at the beginning"
    if bare[-1:] and bare[-1] in TIE_BARS:
        yield "tie", "a loose tie bar at the end"
    if bare[-1:] and bare[-1] in "ˈˌ":
        yield "stress", "a stress mark at the end"
    if (match := _DOUBLED_STRESS.search(text)) and set(match.group()) & set("ˈˌ"):
        yield "doubled", f"doubled stress marks {quote_visibly(match.group())}"
    mixed = foreign_letters(text, is_one_word)
    if mixed is not None:
        yield "scripts", f"letters of two scripts: {mixed.text}"
