"""Reasons that need no model: duplicates, conflicts, and character-level errors.

A finding that more than `MAX_FRACTION` of the rows have is a property of the file, such as Greek letters in phonetic
transcriptions: it is one note, and no reason of a row.
"""

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import unescape
from itertools import islice
from math import log
from typing import Literal, NamedTuple

import numpy as np

from pellucid.auditing.characters import (
    LOOK_ALIKES,
    code_point,
    describe_look_alike,
    find_look_alikes,
    find_tied_letters,
    foreign_letters,
    invisible_position,
    is_single_word,
    look_alike_positions,
    quote_visibly,
)
from pellucid.auditing.folds import source_key
from pellucid.auditing.types import AuditEntry, Column, Reason, ReasonKind
from pellucid.data.examples import Example
from pellucid.data.normalization import is_normalized
from pellucid.data.tokenizers import Tokenizer, Tokenizers
from pellucid.errors import MAX_LISTED_LINES, join_first, list_lines, quote

MAX_FRACTION = 0.05
"""Maximum share of the rows with a finding of one kind and column for which it is a reason of these rows."""
MIN_ROWS = 20
"""Up to this number of rows with a finding, it is a reason in any file."""
ROWS_PER_RARE = 2_000
"""A symbol is rare if at most one row in this number has it; in a smaller file, if a single row has it."""
ROWS_PER_RARE_CHARACTER = 1_000
"""The same number for a character that is not a letter, a digit or an upper-case letter."""
MAX_FRACTION_WITHOUT = 0.01
"""Maximum share of the rows that lack a character for which its absence is a reason."""
MIN_ROWS_FOR_ABSENCE = 1_000
"""Minimum number of rows for which the absence of a character is a reason."""
MIN_EXCHANGE_GAIN = 10.0
"""Minimum gain in log-probability, in nats, if source and target are exchanged, for which they seem to be."""
MAX_COPIED_FRACTION = 0.01
"""Maximum share of targets that equal their sources for which this is a reason."""
MAX_DEVIATION = 6.0
"""Deviation of the logarithm of a length ratio, in robust standard deviations, above which the pair is an outlier."""
MIN_SPREAD = 0.1
"""Minimum robust standard deviation, so that pairs of equal lengths make no outlier of a small difference."""
MAX_LISTED_LOOK_ALIKES = 3
"""Maximum number of different look-alikes in the text of a reason."""
HTML_CODE = re.compile(r"&(?:#\d{1,7}|#x[0-9a-fA-F]{1,6}|[A-Za-z][A-Za-z0-9]{1,30});")
"""A character as HTML writes it."""
SOURCE: Column = "source"
TARGET: Column = "target"
Form = Literal["composed", "decomposed", "mixed", "neutral"]
"""Normal form of a text: changed by NFD alone, by NFC alone, by both, or by none."""


class RuleFindings(NamedTuple):
    """Reasons of each entry, and notes on the file."""

    reasons: list[list[Reason]]
    notes: list[str]


def apply_rules(entries: Sequence[AuditEntry], tokenizers: Tokenizers) -> RuleFindings:
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
        if kind not in ("conflict", "duplicate") and len(rows) > max(MIN_ROWS, MAX_FRACTION * len(entries)):
            notes.append(_common_finding(kind, column, rows, len(entries)))
            continue
        for row, reason in rows.items():
            reasons[row].append(reason)
    return RuleFindings(reasons, notes)


def _common_finding(kind: ReasonKind, column: Column, rows: Mapping[int, Reason], num_entries: int) -> str:
    """Return the note on a finding that many rows have."""
    location = f" in the {column}" if column else ""
    first = next(iter(rows.values())).text
    return (
        f"{len(rows):,} of {num_entries:,} rows have the finding {quote(kind)}{location}, so it is not reported for "
        f"single rows; the first: {first}"
    )


def _all_findings(entries: Sequence[AuditEntry], tokenizers: Tokenizers) -> Iterator[tuple[int, Reason]]:
    """Yield the row and the reason of every finding."""
    examples = [entry.example for entry in entries]
    yield from _equal_sources(entries)
    for column, texts, tokenizer in (
        (SOURCE, [example.source for example in examples], tokenizers.source),
        (TARGET, [example.target for example in examples], tokenizers.target),
    ):
        yield from _odd_characters(texts, column)
        num_rows = Counter(character for text in texts for character in set(text))
        yield from _mistaken_characters(texts, column, tokenizer, num_rows)
        yield from _odd_normal_forms(texts, column)
        yield from _missing_characters(texts, column, num_rows)
        yield from _rare_symbols(texts, column, tokenizer)
    yield from _exchanged_texts(examples)
    yield from _copied_targets(examples)
    yield from _length_outliers(examples, tokenizers)


def _equal_sources(entries: Sequence[AuditEntry]) -> Iterator[tuple[int, Reason]]:
    """Yield exact duplicates, and entries of one source (and features) with different targets."""
    rows_of: dict[tuple[str, str], list[int]] = defaultdict(list)
    for row, entry in enumerate(entries):
        rows_of[source_key(entry.example), entry.example.features].append(row)
    for rows in rows_of.values():
        if len(rows) > 1:
            yield from _reasons_of_group([entries[row] for row in rows], rows)


def _reasons_of_group(group: Sequence[AuditEntry], rows: Sequence[int]) -> Iterator[tuple[int, Reason]]:
    """Yield the rows and reasons of entries of one source, in time linear in their number.

    The first entries with another target are searched for once per target, not once per entry: this skips the entries
    of each target at most once.

    Args:
        group: The entries, at least two.
        rows: Their rows.
    """
    lines_of: dict[Example, list[int]] = defaultdict(list)
    for entry in group:
        lines_of[entry.example].append(entry.line)
    num_rows = Counter(entry.example.target for entry in group)
    others_of: dict[str, list[AuditEntry]] = {}
    for row, entry in zip(rows, group, strict=True):
        target, same = entry.example.target, lines_of[entry.example]
        if len(same) > 1:
            equal = tuple(line for line in same[: MAX_LISTED_LINES + 1] if line != entry.line)[:MAX_LISTED_LINES]
            text = f"the same pair is in {list_lines(equal, len(same) - 1)}"
            yield row, Reason("duplicate", text, lines=equal)
        if num_others := len(group) - num_rows[target]:
            if target not in others_of:
                others = (other for other in group if other.example.target != target)
                others_of[target] = list(islice(others, MAX_LISTED_LINES))
            lines = tuple(other.line for other in others_of[target])
            text = f"the same source has another target, {quote_visibly(others_of[target][0].example.target)}, in "
            yield row, Reason("conflict", text + list_lines(lines, num_others), lines=lines)


def _odd_characters(texts: Sequence[str], column: Column) -> Iterator[tuple[int, Reason]]:
    """Yield texts that begin or end with a space, and texts with an invisible character."""
    for row, text in enumerate(texts):
        if text[:1].isspace() or text[-1:].isspace():
            verb, position = ("begins", 1) if text[:1].isspace() else ("ends", len(text))
            yield row, Reason("surrounding_space", f"the {column} {verb} with a space", column, position)
        position = invisible_position(text)
        if position:
            character = text[position - 1]
            name = unicodedata.name(character, "a control character").lower()
            sentence = f"the {column} has {name} ({code_point(character)})"
            visible = ((character, " " if character.isspace() else ""),)
            yield row, Reason("invisible", sentence, column, position, replacements=visible)


def _mistaken_characters(
    texts: Sequence[str], column: Column, tokenizer: Tokenizer, num_rows: Mapping[str, int]
) -> Iterator[tuple[int, Reason]]:
    """Yield texts in which a word has letters of two scripts, and texts with other look-alikes.

    Where symbols are words, a text is one word. `num_rows` has the number of rows with each character.
    """
    look_alikes = find_look_alikes(num_rows)
    tied = find_tied_letters(texts)
    for row, text in enumerate(texts):
        mixed = foreign_letters(text, is_single_word(tokenizer))
        if mixed is not None:
            sentence = f"the {column} mixes scripts, from character {mixed.position} on: {mixed.text}"
            letters, replacements = mixed.letters, mixed.replacements
            yield row, Reason("mixed_scripts", sentence, column, mixed.position, (), letters, replacements)
        foreign = mixed.letters if mixed is not None else ""
        positions = [position for position in look_alike_positions(text, look_alikes) if text[position] not in foreign]
        if positions:
            found = "".join(dict.fromkeys(text[position] for position in positions))
            listed = [describe_look_alike(character, look_alikes[character]) for character in found]
            described = join_first(listed[:MAX_LISTED_LOOK_ALIKES], len(listed))
            sentence = f"the {column} has {described}; far more rows have the latter"
            replacements = tuple((character, look_alikes[character]) for character in found)
            yield row, Reason("look_alike", sentence, column, positions[0] + 1, (), found, replacements)
        pair = next((pair for pair in tied if pair in text), "")
        if pair:
            sentence = f"the {column} has {quote(pair)}; far more rows have {quote(tied[pair])}, with a tie bar"
            yield row, Reason("look_alike", sentence, column, text.index(pair) + 1, replacements=((pair, tied[pair]),))


def _odd_normal_forms(texts: Sequence[str], column: Column) -> Iterator[tuple[int, Reason]]:
    """Yield texts with composed and decomposed characters, and those of the rarer form if there are texts of both."""
    forms = [_normal_form(text) for text in texts]
    counts = Counter(forms)
    rare: Form | None = None
    if counts["composed"] and counts["decomposed"]:
        rare = "decomposed" if counts["decomposed"] <= counts["composed"] else "composed"
    for row, form in enumerate(forms):
        if form == "mixed":
            yield row, Reason("normalization", f"the {column} mixes composed and decomposed characters", column)
        elif form == rare:
            text = f"the {column} is {form}, unlike other rows (Unicode normal form)"
            yield row, Reason("normalization", text, column)


def _normal_form(text: str) -> Form:
    """Return the Unicode normal form of a text."""
    if text.isascii():
        return "neutral"
    composed, decomposed = is_normalized("NFC", text), is_normalized("NFD", text)
    if composed and decomposed:
        return "neutral"
    return "composed" if composed else "decomposed" if decomposed else "mixed"


def _missing_characters(
    texts: Sequence[str], column: Column, num_rows: Mapping[str, int]
) -> Iterator[tuple[int, Reason]]:
    """Yield the texts without a character that nearly all others have, such as a stress mark, and without a look-alike.

    Spaces do not count. `num_rows` has the number of rows with each character.
    """
    if len(texts) < MIN_ROWS_FOR_ABSENCE:
        return
    min_rows = (1 - MAX_FRACTION_WITHOUT) * len(texts)
    candidates = (each for each in num_rows if num_rows[each] >= min_rows and not each.isspace())
    usual = sorted(candidates, key=lambda each: (-num_rows[each], each))
    for row, text in enumerate(texts):
        missing = next((character for character in usual if character not in text), "")
        if missing and not any(missing in LOOK_ALIKES.get(character, "") for character in text):
            share = f"{num_rows[missing]:,} of {len(texts):,} rows have"
            yield (
                row,
                Reason(
                    "missing_character",
                    f"the {column} lacks {quote(missing)} ({code_point(missing)}), which {share}",
                    column,
                ),
            )


def _rare_symbols(texts: Sequence[str], column: Column, tokenizer: Tokenizer) -> Iterator[tuple[int, Reason]]:
    """Yield the texts with a rare character that is not a letter, then those with another rare symbol."""
    with_characters = set[int]()
    for row, reason in _rare_characters(texts, column):
        with_characters.add(row)
        yield row, reason
    split = [tokenizer.split(text) for text in texts]
    counts = Counter(symbol for symbols in split for symbol in set(symbols))
    rarest = [min((counts[symbol] for symbol in symbols), default=len(texts)) for symbols in split]
    limit = rare_limit(rarest)
    for row, symbols in enumerate(split):
        if rarest[row] <= limit and row not in with_characters:
            position = next(number for number, symbol in enumerate(symbols, 1) if counts[symbol] == rarest[row])
            text = f"the {column} symbol {quote_visibly(symbols[position - 1])} is in {_share(rarest[row], len(texts))}"
            yield row, Reason("rare_symbol", text, column, position)


def rare_limit(rarest: Sequence[int]) -> int:
    """Return the number of rows up to which a symbol is rare, so that rare symbols are no property of the file.

    A column with a large alphabet, such as Chinese characters, has a lower limit.

    Args:
        rarest: Number of rows that have the rarest symbol of each row.
    """
    num_rows = Counter(rarest)
    limit = max(1, len(rarest) // ROWS_PER_RARE)
    while limit > 1 and sum(num_rows[number] for number in range(1, limit + 1)) > MAX_FRACTION * len(rarest):
        limit -= 1
    return limit


def _rare_characters(texts: Sequence[str], column: Column) -> Iterator[tuple[int, Reason]]:
    """Yield the texts with a rare character that is a punctuation mark or the like, a digit, or an upper-case letter.

    Digits are counted together, and so are upper-case letters: one of them is rare where hardly any row has one. Also
    yield the texts with an HTML code of a character.
    """
    classes = [[_character_class(character) for character in text] for text in texts]
    counts = Counter(each for row_classes in classes for each in set(row_classes))
    limit = max(1, len(texts) // ROWS_PER_RARE_CHARACTER)
    for row, row_classes in enumerate(classes):
        if codes := [code for code in HTML_CODE.findall(texts[row]) if unescape(code) != code]:
            sentence = f"the {column} has the HTML code {quote(codes[0])} of {quote_visibly(unescape(codes[0]))}"
            replacements = tuple((code, unescape(code)) for code in dict.fromkeys(codes))
            position = texts[row].index(codes[0]) + 1
            yield row, Reason("rare_character", sentence, column, position, replacements=replacements)
            continue
        position = next((number for number, each in enumerate(row_classes, 1) if each and counts[each] <= limit), 0)
        if position:
            name, character = row_classes[position - 1], quote_visibly(texts[row][position - 1])
            share = _share(counts[name], len(texts))
            found = f"{name} {character}; {name}s are in" if len(name) > 1 else f"character {character}, which is in"
            yield row, Reason("rare_character", f"the {column} has the {found} {share}", column, position)


def _share(number: int, num_rows: int) -> str:
    """Return a number of rows among all as text: "no other row", "6 of 20,028 rows"."""
    return "no other row" if number == 1 else f"{number:,} of {num_rows:,} rows"


@cache
def _character_class(character: str) -> str:
    """Return "digit", "upper-case letter", or a punctuation mark or other symbol itself; "" for other characters."""
    category = unicodedata.category(character)
    if category in ("Lu", "Lt"):
        return "upper-case letter"
    if category.startswith("N"):
        return "digit"
    return character if category[0] in "PS" or category == "Co" else ""


def _exchanged_texts(examples: Sequence[Example]) -> Iterator[tuple[int, Reason]]:
    """Yield the pairs whose source has the characters of targets, and whose target has those of sources.

    With the relative frequencies of characters in both columns, each text is more probable in the other column, by
    `MIN_EXCHANGE_GAIN` nats together.
    """
    sources = Counter(character for example in examples for character in example.source)
    targets = Counter(character for example in examples for character in example.target)
    alphabet = sources.keys() | targets.keys()
    totals = sources.total() + len(alphabet), targets.total() + len(alphabet)
    gains = {  # of a character of a source in the column of targets; one occurrence is added to each number
        character: log((targets[character] + 1) / totals[1]) - log((sources[character] + 1) / totals[0])
        for character in alphabet
    }
    for row, example in enumerate(examples):
        source_gain, target_gain = (
            sum(map(gains.__getitem__, example.source)),
            -sum(map(gains.__getitem__, example.target)),
        )
        if min(source_gain, target_gain) > 0 and source_gain + target_gain >= MIN_EXCHANGE_GAIN:
            yield row, Reason("exchanged", "source and target seem to be exchanged, by their characters")


def _copied_targets(examples: Sequence[Example]) -> Iterator[tuple[int, Reason]]:
    """Yield the targets that equal their sources, where hardly any other does."""
    copied = [row for row, example in enumerate(examples) if example.source == example.target]
    if len(copied) <= MAX_COPIED_FRACTION * len(examples):
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


def other_file_reasons(entries: Sequence[AuditEntry], others: Mapping[str, Sequence[AuditEntry]]) -> list[list[Reason]]:
    """Return, for each entry, one reason per other file that has its source.

    Args:
        entries: Entries of the audited file.
        others: Entries of the other files, by the name of the file.
    """
    reasons = [list[Reason]() for _ in entries]
    for name, other_entries in others.items():
        found: dict[str, list[AuditEntry]] = defaultdict(list)
        for entry in other_entries:
            found[source_key(entry.example)].append(entry)
        summaries = {source: _summarize_other_file(name, same) for source, same in found.items()}
        for row, entry in enumerate(entries):
            if summary := summaries.get(source_key(entry.example)):
                reasons[row].append(_other_file_reason(entry, summary))
    return reasons


class _SourceInOtherFile(NamedTuple):
    """Rows of another file with one source."""

    text: str
    """File and lines, in words."""
    lines: tuple[int, ...]
    """The first lines."""
    targets: set[str]
    first_target: str
    """First target in the order of the alphabet."""


def _summarize_other_file(name: str, same: Sequence[AuditEntry]) -> _SourceInOtherFile:
    """Return what the reasons of all entries with a source say about another file."""
    lines = tuple(entry.line for entry in same[:MAX_LISTED_LINES])
    targets = {entry.example.target for entry in same}
    text = f"the source is also in {name}, {list_lines(lines, len(same))}"
    return _SourceInOtherFile(text, lines, targets, min(targets))


def _other_file_reason(entry: AuditEntry, other: _SourceInOtherFile) -> Reason:
    """Return the reason that another file has the source of an entry."""
    has_target = entry.example.target in other.targets
    relation = "the same target" if has_target else f"the target {quote_visibly(other.first_target)}"
    return Reason("other_file", f"{other.text}, with {relation}", lines=other.lines)
