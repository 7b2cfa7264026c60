"""Where positions are told and where not: by length, by letters, by what else a form could have been meant as."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pellucid.data.typos import VOWELS, Typo, WordList
from pellucid.viewer.report_schema import ReportTable

LONG = 8
"""Letters from which on a word is called long."""
SHORT = 5
"""Letters up to which it is called short."""


class Case(NamedTuple):
    """A typo, what the list says of it, and the rank that its position was given."""

    typo: Typo
    words: int
    """Words of the list that the form may have been meant as."""
    positions: int
    """Positions at which they have their other letter."""
    best: float
    """The chance of one who knows the whole list: the share of these words at the position where most are."""
    rank: int


class Row(NamedTuple):
    """Some cases together, in shares of 1."""

    label: str
    total: int
    top_1: float
    top_3: float
    ambiguous: float
    """Forms with several words one letter away."""
    doubtful: float
    """Forms whose wrong letter could stand at several positions."""
    best: float


def cases(words: WordList, typos: Sequence[Typo], ranks: Int[np.ndarray, " N"]) -> list[Case]:
    """Each typo with what the list says of it."""
    found = []
    for typo, rank in zip(typos, ranks.tolist(), strict=True):
        places = Counter(fit.position for fit in words.fits(typo.wrong))
        found.append(Case(typo, places.total(), len(places), max(places.values()) / places.total(), rank))
    return found


def row_of(label: str, chosen: Sequence[Case]) -> Row:
    """Some cases in one line; of none all shares are zero."""
    total = max(len(chosen), 1)
    return Row(
        label,
        len(chosen),
        sum(case.rank == 1 for case in chosen) / total,
        sum(case.rank <= 3 for case in chosen) / total,
        sum(case.words > 1 for case in chosen) / total,
        sum(case.positions > 1 for case in chosen) / total,
        sum(case.best for case in chosen) / total,
    )


def by_length(found: Sequence[Case]) -> list[Row]:
    """All, the short, the long, and each length."""
    lengths = sorted({len(case.typo.right) for case in found})
    return [
        *_rows(
            found,
            [
                ("all", lambda case: True),
                (f"up to {SHORT} letters", lambda case: len(case.typo.right) <= SHORT),
                (f"{LONG} letters or more", lambda case: len(case.typo.right) >= LONG),
            ],
        ),
        *(row_of(str(length), [case for case in found if len(case.typo.right) == length]) for length in lengths),
    ]


def by_letters(found: Sequence[Case]) -> list[Row]:
    """By the class of the letter that was meant and of the one that was typed."""
    kinds: list[tuple[str, Callable[[Case], bool]]] = [
        ("vowel meant", lambda case: _meant(case) in VOWELS),
        ("consonant meant", lambda case: _meant(case) not in VOWELS),
        ("vowel typed", lambda case: _typed(case) in VOWELS),
        ("consonant typed", lambda case: _typed(case) not in VOWELS),
    ]
    both = [
        (f"{first}, {second}", lambda case, one=meant, two=typed: one(case) and two(case))
        for first, meant in kinds[:2]
        for second, typed in kinds[2:]
    ]
    return _rows(found, [*kinds, *both])


def by_doubt(found: Sequence[Case]) -> list[Row]:
    """By what else the form could have been meant as, for short words and for all."""
    kinds: list[tuple[str, Callable[[Case], bool]]] = [
        ("one word fits", lambda case: case.words == 1),
        ("several words, one position", lambda case: case.words > 1 and case.positions == 1),
        ("several positions", lambda case: case.positions > 1),
    ]
    short = [case for case in found if len(case.typo.right) <= SHORT]
    return [*_rows(found, kinds), *(each._replace(label=f"short: {each.label}") for each in _rows(short, kinds))]


def table_of(title: str, caption: str, first: str, rows: Sequence[Row]) -> ReportTable:
    """Rows as a table of a report."""
    heads = (first, "typos", "top 1", "top 3", "several words fit", "several positions fit", "best possible")
    return ReportTable(
        title,
        caption,
        heads,
        [(row.label, f"{row.total:,}", *(f"{100 * share:.1f} %" for share in row[2:])) for row in rows],
    )


def _rows(found: Sequence[Case], kinds: Iterable[tuple[str, Callable[[Case], bool]]]) -> list[Row]:
    """A row for each kind."""
    return [row_of(label, [case for case in found if holds(case)]) for label, holds in kinds]


def _meant(case: Case) -> str:
    """The right letter."""
    return case.typo.right[case.typo.position - 1]


def _typed(case: Case) -> str:
    """The wrong letter."""
    return case.typo.wrong[case.typo.position - 1]
