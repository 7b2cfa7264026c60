"""Header detection: whether the first line of a TSV or CSV file names the columns, if the user does not say.

There are four kinds of evidence: names that columns usually have, a cell without digits above a column of numbers,
cells that differ from all cells below them, and a first line that the training and validation files share. Strong
evidence raises an error that asks the user; weak evidence gives a note. Examples are tuples here: source, target and
features.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from pellucid.argument_checks import check_arguments
from pellucid.config.settings import DataConfig, Header
from pellucid.errors import DataError, quote

_WORDS = """
answer answers category class classes clean col column completion correct corrected correction definition diacritized
editor english entry expected feats feature features field form forms french freq frequency german gloss gold grapheme
graphemes greek headword headwords hebrew hindi historic historical hypothesis id idx index inflected inflection input
inputs intent ipa japanese key korean label labels lang language latin lemma lemmas meaning misspelled misspelling
modern msd name names native noisy normalised normalization normalized number numeral original orthography output
outputs paraphrase phone phoneme phonemes phones phonetic pos position prediction prompt pron pronunciation
pronunciations query question raw reference references remark remarks response roman romanization romanized russian
script segmentation sent sentence sentences seq sequence sequences slots source sources spanish spelling split src
stem structure summary surface tag tagged tags target targets task text texts tgt token tokens transcript
transcription translation translations transliteration trg turkish typo typos utterance value word words
"""
COLUMN_NAMES = frozenset(_WORDS.split())
"""Usual names of columns, in lower case."""
MIN_LINES = 20
"""Minimum number of lines below the first for a comparison of cells."""
MAX_LINES = 1000
"""Maximum number of lines below the first that are compared."""
HEADER_FLAGS_HINT = (
    "give --header (data.header = true) if it names the columns, --no-header (data.header = false) if it is an example"
)
COLUMN_FLAGS_HINT = (
    "choose two of these columns with --source-column NAME and --target-column NAME (data.source_column, "
    "data.target_column); with --header alone, train reads the first two, and --no-header reads the line as an example"
)
MAX_LISTED_NAMES = 20
"""Maximum number of column names in a message, and maximum length of each."""
WEAK, STRONG, DECISIVE = range(3)
"""Strengths of evidence that a cell is the name of its column."""
READ_AS_EXAMPLE = "it is read as an example (use --header if it names the columns)"


class HeaderError(DataError):
    """A first line that looks like a header, where the user has not said whether it is one."""


@check_arguments
def with_header(config: DataConfig, header: Header = "auto") -> DataConfig:
    """Return the data settings with the header setting for a file other than the training file.

    Args:
        config: The data settings of the run.
        header: Whether the file has a header, as the user says. "auto": it has one if the training file had one, else
            the first line is examined; "auto" by default.
    """
    return msgspec.structs.replace(config, header=header if header != "auto" else config.header or "auto")


def check_header_names(fields: Sequence[str], location: str) -> None:
    """Refuse a first line of distinct cells, of which at least two, and at least half, are usual names of columns.

    Args:
        fields: All cells of a first line.
        location: File and line, for the message.

    Raises:
        HeaderError: The line looks like a header.
    """
    names = dict.fromkeys(field for field in fields if is_column_name(field))
    if len(names) > 1 and 2 * len(names) >= len(fields) and len(set(fields)) == len(fields):
        raise HeaderError(
            f"{location}: the first line looks like a header, with columns named {list_names(fields)}: "
            f"{COLUMN_FLAGS_HINT if len(fields) > 2 else HEADER_FLAGS_HINT}"
        )


def list_names(names: Sequence[str]) -> str:
    """Return column names for a message, abbreviated; "none" if there are none.

    Args:
        names: The names.
    """
    shown = [quote(name, MAX_LISTED_NAMES + 1) for name in names[:MAX_LISTED_NAMES]]
    return ", ".join(shown + ["…"] * (len(names) > MAX_LISTED_NAMES)) or "none"


def check_header_cells(cells: Sequence[tuple[str, ...]], location: str, names: Sequence[str] = ()) -> None:
    """Refuse a first line in which source and target both look like column names, at least one strongly.

    A cell without digits above a column of numbers is evidence enough.

    Args:
        cells: The examples, at least one, of which the first is examined.
        location: File and line, for the message.
        names: All cells of the first line, for the message about a line of more than two; not listed by default.

    Raises:
        HeaderError: The line looks like a header.
    """
    source, target = (_header_evidence(side) for side in _column_samples(cells))
    evidence = [sign for sign in (source, target) if sign]
    is_header = len(evidence) == 2 and any(sign.strength >= STRONG for sign in evidence) and cells[0][0] != cells[0][1]
    if is_header or any(sign.strength == DECISIVE for sign in evidence):
        reasons = ", and ".join(sign.description for sign in evidence)
        listed = f"; its columns are {list_names(names)}" if len(names) > 2 else ""
        raise HeaderError(
            f"{location}: the first line looks like a header: {reasons}{listed}: "
            f"{COLUMN_FLAGS_HINT if listed else HEADER_FLAGS_HINT}"
        )


def header_note(cells: Sequence[tuple[str, ...]]) -> str:
    """Return a note about a first line whose source or target may be a column name; else "".

    Args:
        cells: The examples, at least one, of which the first is examined.
    """
    for sign in map(_header_evidence, _column_samples(cells)):
        if sign is not None:
            return f"the first line may be a header: {sign.description}; {READ_AS_EXAMPLE}"
    return ""


def name_note(role: str, cell: str) -> str:
    """Return a note about a cell of the first line that is a usual column name.

    Args:
        role: Role of the column: "source" or "target".
        cell: The cell.
    """
    return f"the first line may be a header: the {role} {quote(cell)} is a usual column name; {READ_AS_EXAMPLE}"


def check_shared_header(
    training_examples: Sequence[tuple[str, ...]], validation_examples: Sequence[tuple[str, ...]], location: str
) -> str:
    """Return a note if two files begin with the same example, which does not recur in them; else "".

    Files of at most `MIN_LINES` examples are not checked.

    Args:
        training_examples: The training examples, at least one.
        validation_examples: The validation examples, at least one.
        location: Validation file, for the message.

    Raises:
        HeaderError: It is the only example that the files share.
    """
    first = training_examples[0]
    if first != validation_examples[0] or min(len(training_examples), len(validation_examples)) <= MIN_LINES:
        return ""
    if training_examples.count(first) > 1 or validation_examples.count(first) > 1:
        return ""
    evidence = f"both files begin with {quote(first[0])}, {quote(first[1])}, which occurs nowhere else in them"
    if set(training_examples[1:]).isdisjoint(validation_examples[1:]):
        raise HeaderError(f"{location}: the first line looks like a header: {evidence}: {HEADER_FLAGS_HINT}")
    return f"the first line may be a header: {evidence}; {READ_AS_EXAMPLE}"


def is_column_name(cell: str) -> bool:
    """Return whether a cell consists of one to four usual words of column names, such as "target_text" or "srcLang 1".

    Numbers count among the four, but one part at least is a word.

    Args:
        cell: The cell.
    """
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
    """Return the source and target columns of examples."""
    first, others = cells[0], cells[1 : 1 + MAX_LINES]
    return (
        _ColumnSample("source", first[0], [row[0] for row in others]),
        _ColumnSample("target", first[1], [row[1] for row in others]),
    )


class _HeaderEvidence(NamedTuple):
    """Evidence that a cell is the name of its column."""

    description: str
    strength: int
    """`WEAK`, `STRONG` or `DECISIVE`."""


def _header_evidence(column: _ColumnSample) -> _HeaderEvidence | None:
    """Return the evidence that the first cell of a column is its name; None if there is none."""
    cell = f"the {column.role} {quote(column.first)}"
    has_comparison = len(column.others) >= MIN_LINES
    if has_comparison and not any(map(str.isdecimal, column.first)) and all(map(str.isdecimal, column.others)):
        return _HeaderEvidence(f"{cell} is above {len(column.others):,} numbers", DECISIVE)
    if is_column_name(column.first):
        return _HeaderEvidence(f"{cell} is a usual column name", STRONG)
    if not has_comparison:
        return None
    characters = set(column.first) - {" "}
    other_characters = set[str]().union(*column.others)
    if len(characters) > 1 and characters.isdisjoint(other_characters):
        return _HeaderEvidence(f"no character of {cell} occurs in the {len(column.others):,} cells below it", STRONG)
    if "_" in characters and "_" not in other_characters:
        return _HeaderEvidence(f"only {cell} has an underscore", WEAK)
    return None
