"""Headers: whether the first line of a TSV or CSV file names the columns, where nobody has said so.

Three kinds of evidence are looked for: words that columns are usually named by, cells unlike all others in their
columns, and a first line that training and validation file share. Where they leave no doubt, reading stops and asks;
where they leave some, a note tells of it. Examples are tuples here: source, target, and what is beside them.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pellucid.config.settings import DataConfig, Header
from pellucid.errors import DataError, quote

_WORDS = """
answer answers category class classes clean col column completion correct corrected correction definition
diacritized english expected feats feature features field form forms french german gloss gold grapheme graphemes
greek hebrew hindi historical historic hypothesis id idx index inflected inflection input inputs intent ipa japanese
key korean label labels lang language latin lemma lemmas meaning misspelled misspelling modern msd name names native
noisy normalised normalized normalization number numeral original orthography output outputs paraphrase phone
phoneme phonemes phones phonetic pos position prediction prompt pron pronunciation pronunciations query question raw
reference references response roman romanization romanized russian script segmentation sent sentence sentences seq
sequence sequences slots source sources spanish spelling split src stem structure summary surface tag tagged tags
target targets task text texts tgt token tokens transcription transcript translation translations transliteration
trg turkish typo typos utterance value word words
"""
COLUMN_NAMES = frozenset(_WORDS.split())
"""Words that columns of pairs are usually named by, in lower case."""
MIN_LINES = 20
"""Lines below the first, without which nothing can be said of what the others look like."""
MAX_LINES = 1000
"""Lines below the first that it is compared with."""
HEADER_FLAGS_HINT = (
    "give --header (data.header = true) if it names the columns, --no-header (data.header = false) if it is an example"
)
READ_AS_EXAMPLE = "it is read as an example (--header reads it as the names of the columns)"


class HeaderError(DataError):
    """A first line that seems to name the columns, where nobody has said whether it does."""


def config_for_file(trained: DataConfig, header: Header = "auto") -> DataConfig:
    """Return the settings by which a file is read that is not the training file.

    Args:
        trained: The settings of the run.
        header: Whether the file has a header; "auto" where nobody says so: it has one if the training file had, else
            its first line is looked at.
    """
    return msgspec.structs.replace(trained, header=header if header != "auto" else trained.header or "auto")


def check_header_names(fields: Sequence[str], place: str) -> None:
    """Raise `HeaderError` for a line of which two cells and half of all are words that columns are named by.

    Args:
        fields: Every cell of a first line.
        place: File and line, for the message.
    """
    found = dict.fromkeys(field for field in fields if is_column_name(field))
    if len(found) > 1 and 2 * len(found) >= len(fields) and len(set(fields)) == len(fields):
        one, other, *_ = map(quote, found)
        raise HeaderError(
            f"{place}: the first line looks like a header, with columns named {one} and {other}: {HEADER_FLAGS_HINT}"
        )


def check_header_cells(cells: Sequence[tuple[str, ...]], place: str) -> None:
    """Raise `HeaderError` where both cells of the first line are as those of a header, and unlike those below it."""
    source, target = (_header_evidence(side) for side in _column_samples(cells))
    if source and target and (source.strong or target.strong) and cells[0][0] != cells[0][1]:
        raise HeaderError(
            f"{place}: the first line looks like a header: {source.description}, and {target.description}: {HEADER_FLAGS_HINT}"
        )


def header_note(cells: Sequence[tuple[str, ...]]) -> str:
    """Return what a person should know of a first line that may be a header; "" where nothing speaks for it."""
    for sign in map(_header_evidence, _column_samples(cells)):
        if sign is not None:
            return f"the first line may be a header: {sign.description}; {READ_AS_EXAMPLE}"
    return ""


def check_shared_header(training: Sequence[tuple[str, ...]], validation: Sequence[tuple[str, ...]], place: str) -> str:
    """Return a note where two files begin with one line, which stands nowhere else; "" where they do not.

    `HeaderError` where that is the only line that they share. `place` names the validation file and its line.
    """
    first = training[0]
    if first != validation[0] or min(len(training), len(validation)) <= MIN_LINES:
        return ""
    if training.count(first) > 1 or validation.count(first) > 1:
        return ""
    told = f"both files begin with {quote(first[0])}, {quote(first[1])}, which stands nowhere else in them"
    if set(training[1:]).isdisjoint(validation[1:]):
        raise HeaderError(f"{place}: the first line looks like a header: {told}: {HEADER_FLAGS_HINT}")
    return f"the first line may be a header: {told}; {READ_AS_EXAMPLE}"


def is_column_name(cell: str) -> bool:
    """Whether a cell is a word that columns are usually named by, or up to four of them: "target_text", "srcLang 1"."""
    if not re.fullmatch(r"[A-Za-z0-9_ ./()-]{2,40}", cell):
        return False
    parts = re.findall(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+", cell)
    words = [part.lower() for part in parts if not part.isdecimal()]
    return 0 < len(words) <= len(parts) <= 4 and COLUMN_NAMES.issuperset(words)


class _ColumnSample(NamedTuple):
    """One column: its name in messages, its first cell, and the cells below."""

    role: str
    first: str
    others: Sequence[str]


def _column_samples(cells: Sequence[tuple[str, ...]]) -> tuple[_ColumnSample, _ColumnSample]:
    """The two columns of some lines."""
    first, others = cells[0], cells[1 : 1 + MAX_LINES]
    return (
        _ColumnSample("source", first[0], [each[0] for each in others]),
        _ColumnSample("target", first[1], [each[1] for each in others]),
    )


class _HeaderEvidence(NamedTuple):
    """Why a cell seems to be the name of its column, and whether that is strong evidence."""

    description: str
    strong: bool


def _header_evidence(side: _ColumnSample) -> _HeaderEvidence | None:
    """Why the first cell of a column seems to be its name; None where nothing speaks for it."""
    cell = f"the {side.role} {quote(side.first)}"
    if is_column_name(side.first):
        return _HeaderEvidence(f"{cell} is what columns are named by", strong=True)
    if len(side.others) < MIN_LINES:
        return None
    characters, below = set(side.first) - {" "}, set[str]().union(*side.others)
    if len(characters) > 1 and characters.isdisjoint(below):
        return _HeaderEvidence(f"no character of {cell} occurs in the {len(side.others):,} below it", strong=True)
    if "_" in characters and "_" not in below:
        return _HeaderEvidence(f"{cell} alone has an underscore", strong=False)
    return None
