"""Reasons that need no model: duplicates, conflicts, and errors of writing.

A finding that more than `MAX_SHARE` of the rows have is a property of the file, such as Greek letters in phonetic
transcriptions: it is one note, and no reason of a row.
"""

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple

import numpy as np

from pellucid.auditing.folds import source_key
from pellucid.auditing.types import Column, DictionaryEntry, Reason, ReasonKind
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.errors import quote

MAX_SHARE = 0.05
"""Maximum share of the rows with a finding of one kind and column for which it is a reason of these rows."""
MIN_ROWS = 20
"""Up to this number of rows with a finding, it is a reason in any file."""
MAX_COPIED_SHARE = 0.01
"""Maximum share of targets that equal their sources for which this is a reason."""
MAX_DEVIATION = 6.0
"""Deviation of the logarithm of a length ratio, in robust standard deviations, above which the pair is an outlier."""
MIN_SPREAD = 0.1
"""Minimum robust standard deviation, so that pairs of equal lengths make no outlier of a small difference."""
MAX_LISTED_LINES = 5
"""Maximum number of lines in the text of a reason."""
SCRIPTS = {
    *("LATIN", "CYRILLIC", "GREEK", "COPTIC", "ARMENIAN", "GEORGIAN", "HEBREW", "ARABIC", "ETHIOPIC", "CHEROKEE"),
    *("DEVANAGARI", "BENGALI", "GURMUKHI", "GUJARATI", "TAMIL", "TELUGU", "KANNADA", "MALAYALAM", "SINHALA"),
    *("THAI", "LAO", "TIBETAN", "MYANMAR", "KHMER", "MONGOLIAN", "HANGUL"),
}
"""First words of the names of the letters of a script. Japanese writes with several scripts, which are left out."""
PHONETIC_LETTERS = frozenset("βθχΒΘΧ")
"""Greek letters of the International Phonetic Alphabet, which belong to Latin letters as well."""
SOURCE: Column = "source"
TARGET: Column = "target"
Form = Literal["composed", "decomposed", "mixed", "neutral"]
"""Normal form of a text: changed by NFD alone, by NFC alone, by both, or by none."""


class RuleFindings(NamedTuple):
    """Reasons of each entry, and notes on the file."""

    reasons: list[list[Reason]]
    notes: list[str]


def apply_rules(entries: Sequence[DictionaryEntry], tokenizers: Tokenizers) -> RuleFindings:
    """Return the reasons of entries that need no model.

    Args:
        entries: All entries of a file.
        tokenizers: Tokenizers of source and target.
    """
    found: dict[tuple[ReasonKind, Column], dict[int, Reason]] = defaultdict(dict)
    for row, reason in _all_findings(entries, tokenizers):
        found[reason.kind, reason.column].setdefault(row, reason)
    reasons, notes = [list[Reason]() for _ in entries], list[str]()
    for (kind, column), rows in found.items():
        if kind not in ("conflict", "duplicate") and len(rows) > max(MIN_ROWS, MAX_SHARE * len(entries)):
            notes.append(_common_finding(kind, column, rows, len(entries)))
            continue
        for row, reason in rows.items():
            reasons[row].append(reason)
    return RuleFindings(reasons, notes)


def _common_finding(kind: ReasonKind, column: Column, rows: Mapping[int, Reason], num_entries: int) -> str:
    """Return the note on a finding that many rows have."""
    place = f" in the {column}" if column else ""
    first = next(iter(rows.values())).text
    return (
        f"{len(rows):,} of {num_entries:,} rows have the finding {quote(kind)}{place}, which is therefore no reason of "
        f"a row; the first: {first}"
    )


def _all_findings(entries: Sequence[DictionaryEntry], tokenizers: Tokenizers) -> Iterator[tuple[int, Reason]]:
    """Yield the row and the reason of every finding."""
    examples = [entry.example for entry in entries]
    yield from _equal_sources(entries)
    for column, texts, tokenizer in (
        (SOURCE, [example.source for example in examples], tokenizers.source),
        (TARGET, [example.target for example in examples], tokenizers.target),
    ):
        yield from _odd_characters(texts, column)
        yield from _mixed_scripts(texts, column, tokenizer)
        yield from _odd_normal_forms(texts, column)
        yield from _single_symbols(texts, column, tokenizer)
    yield from _copied_targets(examples)
    yield from _length_outliers(examples, tokenizers)


def list_lines(lines: Sequence[int]) -> str:
    """Return line numbers as text: "line 3", "lines 3, 5 and 9", at most `MAX_LISTED_LINES` of them.

    Args:
        lines: Line numbers, at least one.
    """
    shown = [f"{line:,}" for line in lines[:MAX_LISTED_LINES]]
    if len(lines) > len(shown):
        shown.append(f"{len(lines) - len(shown):,} more")
    listed = " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))
    return f"line{'' if len(lines) == 1 else 's'} {listed}"


def _equal_sources(entries: Sequence[DictionaryEntry]) -> Iterator[tuple[int, Reason]]:
    """Yield exact duplicates, and entries of one source (and features) with different targets."""
    rows_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        rows_of[source_key(entry.example), entry.example.features].append(row)
    for rows in rows_of.values():
        for row in rows if len(rows) > 1 else ():
            yield from ((row, reason) for reason in _reasons_of_equal_source(entries, row, rows))


def _reasons_of_equal_source(entries: Sequence[DictionaryEntry], row: int, rows: Sequence[int]) -> Iterator[Reason]:
    """Yield the reasons of a row whose source other rows have as well."""
    example = entries[row].example
    equal = tuple(entries[other].line for other in rows if other != row and entries[other].example == example)
    if equal:
        yield Reason("duplicate", f"the same pair is in {list_lines(equal)}", lines=equal)
    others = [other for other in rows if entries[other].example.target != example.target]
    if others:
        lines = tuple(entries[other].line for other in others)
        text = f"the same source has another target, {quote(entries[others[0]].example.target)}, in "
        yield Reason("conflict", text + list_lines(lines), lines=lines)


def _odd_characters(texts: Sequence[str], column: Column) -> Iterator[tuple[int, Reason]]:
    """Yield texts that begin or end with a space, and texts with an invisible character."""
    for row, text in enumerate(texts):
        if text[:1].isspace() or text[-1:].isspace():
            place, position = ("begins", 1) if text[:1].isspace() else ("ends", len(text))
            yield row, Reason("outer_space", f"the {column} {place} with a space", column, position)
        position = next((place for place, character in enumerate(text, 1) if _is_invisible(character)), 0)
        if position:
            character = text[position - 1]
            name = unicodedata.name(character, "a control character").lower()
            yield row, Reason("invisible", f"the {column} has {name} (U+{ord(character):04X})", column, position)


def _mixed_scripts(texts: Sequence[str], column: Column, tokenizer: Tokenizer) -> Iterator[tuple[int, Reason]]:
    """Yield texts in which a word has letters of two scripts; where symbols are words, the text is one word."""
    for row, text in enumerate(texts):
        mixed = _foreign_letter(text if tokenizer.kind == "characters" else "".join(text.split()))
        if mixed is not None:
            reason = f"the {column} mixes scripts: {mixed.text}"
            yield row, Reason("mixed_scripts", reason, column, text.index(mixed.letter) + 1)


def _odd_normal_forms(texts: Sequence[str], column: Column) -> Iterator[tuple[int, Reason]]:
    """Yield texts with composed and decomposed characters, and texts of the rarer of both normal forms."""
    forms = [_normal_form(text) for text in texts]
    counts = Counter(forms)
    is_rare = counts["decomposed"] <= max(counts["composed"], MIN_ROWS)
    rare: Form = "decomposed" if is_rare else "composed"
    for row, form in enumerate(forms):
        if form == "mixed":
            yield row, Reason("normalization", f"the {column} mixes composed and decomposed characters", column)
        elif form == rare:
            text = f"the {column} is {form}, unlike other rows (Unicode normal form)"
            yield row, Reason("normalization", text, column)


def _is_invisible(character: str) -> bool:
    """Return whether a character is not visible and is no plain space or tab."""
    return character not in " \t" and unicodedata.category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp")


def _normal_form(text: str) -> Form:
    """Return the Unicode normal form of a text."""
    if text.isascii():
        return "neutral"
    composed, decomposed = unicodedata.is_normalized("NFC", text), unicodedata.is_normalized("NFD", text)
    if composed and decomposed:
        return "neutral"
    return "composed" if composed else "decomposed" if decomposed else "mixed"


class _ForeignLetter(NamedTuple):
    """A letter of another script than most letters of its word."""

    letter: str
    text: str


def _foreign_letter(text: str) -> _ForeignLetter | None:
    """Return the first letter of another script than most of its word; None if each word has one script."""
    for word in [] if text.isascii() else text.split():
        scripts = [(letter, script_of(letter)) for letter in word]
        counts = Counter(script for _, script in scripts if script)
        if len(counts) > 1:
            main = counts.most_common(1)[0][0]
            letter, script = next((letter, script) for letter, script in scripts if script and script != main)
            described = f"{quote(letter)} (U+{ord(letter):04X}) is {script.capitalize()} among {main.capitalize()}"
            return _ForeignLetter(letter, described)
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


def _single_symbols(texts: Sequence[str], column: Column, tokenizer: Tokenizer) -> Iterator[tuple[int, Reason]]:
    """Yield the texts with a symbol that occurs only once in the column."""
    split = [tokenizer.split(text) for text in texts]
    counts = Counter(symbol for symbols in split for symbol in symbols)
    for row, symbols in enumerate(split):
        single = next(((place, symbol) for place, symbol in enumerate(symbols, 1) if counts[symbol] == 1), None)
        if single is not None:
            text = f"the {column} symbol {quote(single[1])} occurs nowhere else"
            yield row, Reason("single_symbol", text, column, single[0])


def _copied_targets(examples: Sequence[Example]) -> Iterator[tuple[int, Reason]]:
    """Yield the targets that equal their sources, where hardly any other does."""
    copied = [row for row, example in enumerate(examples) if example.source == example.target]
    if len(copied) <= MAX_COPIED_SHARE * len(examples):
        for row in copied:
            yield row, Reason("copied", "the target equals the source, unlike nearly all others")


def _length_outliers(examples: Sequence[Example], tokenizers: Tokenizers) -> Iterator[tuple[int, Reason]]:
    """Yield pairs whose ratio of lengths is far from that of the others."""
    lengths = [
        (len(tokenizers.source.split(example.source)), len(tokenizers.target.split(example.target)))
        for example in examples
    ]
    if not lengths:
        return
    ratios = np.log([(target + 1) / (source + 1) for source, target in lengths])
    median = float(np.median(ratios))
    spread = max(1.4826 * float(np.median(np.abs(ratios - median))), MIN_SPREAD)
    for row in np.nonzero(np.abs(ratios - median) > MAX_DEVIATION * spread)[0].tolist():
        source, target = lengths[row]
        text = f"the target has {target:,} symbols for {source:,} of the source, an unusual ratio"
        yield row, Reason("length", text)


def other_file_reasons(
    entries: Sequence[DictionaryEntry], others: Mapping[str, Sequence[DictionaryEntry]]
) -> list[list[Reason]]:
    """Return, for each entry, one reason per other file that has its source.

    Args:
        entries: Entries of the audited file.
        others: Entries of the other files, by the name of the file.
    """
    reasons = [list[Reason]() for _ in entries]
    for name, other_entries in others.items():
        found: dict[str, list[DictionaryEntry]] = defaultdict(list)
        for entry in other_entries:
            found[source_key(entry.example)].append(entry)
        for row, entry in enumerate(entries):
            if same := found.get(source_key(entry.example)):
                reasons[row].append(_other_file_reason(name, entry, same))
    return reasons


def _other_file_reason(name: str, entry: DictionaryEntry, same: Sequence[DictionaryEntry]) -> Reason:
    """Return the reason that another file has the source of an entry."""
    targets = {other.example.target for other in same}
    relation = "the same target" if entry.example.target in targets else f"the target {quote(min(targets))}"
    lines = tuple(other.line for other in same)
    return Reason("other_file", f"the source is also in {name}, {list_lines(lines)}, with {relation}", lines=lines)
