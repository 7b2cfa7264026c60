"""Families of near-copies: proteins that have stretches of residues in common."""

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
from jaxtyping import Int

WORD = 8
"""Residues of a stretch."""
SHARED = 0.02
"""Two proteins are near-copies if they share so many of the shorter one's stretches."""
LEAST = 2
"""And at least so many."""
START = 30
"""Proteins that begin with the same so many residues are near-copies too."""
COMMON = 200
"""Stretches of more proteins than this tell of a repeat, not of a family, and are left out."""


def families(sequences: Sequence[str]) -> Int[np.ndarray, " n"]:
    """The number of each sequence's family, from 0 in the order of their first members.

    Near-copies of near-copies are of one family (single linkage).
    """
    parents = list(range(len(sequences)))

    def root(at: int) -> int:
        """The first of its family, found so far."""
        while parents[at] != at:
            parents[at] = parents[parents[at]]
            at = parents[at]
        return at

    for one, other in near_copies(sequences):
        low, high = sorted((root(one), root(other)))
        parents[high] = low
    return np.unique([root(at) for at in range(len(sequences))], return_inverse=True)[1]


def near_copies(sequences: Sequence[str]) -> Iterator[tuple[int, int]]:
    """All pairs of near-copies."""
    stretches = [{text[at : at + WORD] for at in range(len(text) - WORD + 1)} for text in sequences]
    having: dict[str, list[int]] = {}
    for number, own in enumerate(stretches):
        for stretch in own:
            having.setdefault(stretch, []).append(number)
    shared: Counter[tuple[int, int]] = Counter()
    for numbers in having.values():
        if 1 < len(numbers) <= COMMON:
            shared.update(combinations(numbers, 2))
    for (one, other), count in shared.items():
        if count >= max(LEAST, SHARED * min(len(stretches[one]), len(stretches[other]))):
            yield one, other
    starts: dict[str, int] = {}
    for number, text in enumerate(sequences):
        if text[:START] in starts:
            yield starts[text[:START]], number
        starts.setdefault(text[:START], number)
