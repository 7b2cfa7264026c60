"""Proteins and the place in the cell where they work, from FASTA files, and the two ways they are split."""

import gzip
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from jaxtyping import Int

from pellucid.data.examples import Example
from pellucid.errors import DataError, abbreviate_reason, quote
from pellucid.files import read_bytes
from pellucid.recipes.experiments import Pairs
from pellucid.recipes.proteins.families import families

PLACES = {"cyto": "cytosol", "mito": "mitochondrion", "nuclear": "nucleus", "secreted": "secreted"}
"""The name of each place's file, and how the place is called."""
LONGEST = 1000
"""Residues of a protein that are read: of a longer one, the first half of them and the last."""
SPLIT_SEED = 20151
"""Of both splits, which are the same for every seed of a network."""
HELD_OUT = 0.1
"""Share of the proteins that are developed on, and of those that are tested on."""


class Protein(NamedTuple):
    """One protein."""

    residues: str
    """One letter each, all of them."""
    place: str

    @property
    def example(self) -> Example:
        """What is read of it, and its place."""
        return Example(cut(self.residues), self.place)


def read_places(folder: Path) -> list[Protein]:
    """All proteins, file by file; of those with the same residues and the same place the first alone."""
    found = [
        Protein(residues, place)
        for name, place in PLACES.items()
        for residues in read_fasta(folder / f"{name}.fasta.gz")
    ]
    return list(dict.fromkeys(found))


def read_fasta(path: Path) -> Iterator[str]:
    """The sequences of a FASTA file, packed with gzip; `DataError` for what is none."""
    try:
        text = gzip.decompress(read_bytes(path, DataError)).decode("ascii")
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise DataError(f"{path} is no FASTA file packed with gzip: {abbreviate_reason(error)}") from error
    lines = list[str]()
    for number, line in enumerate([*text.splitlines(), ">"], start=1):
        if line.startswith(">"):
            if lines:
                yield "".join(lines)
            lines = []
        elif number == 1:
            raise DataError(f"{path}, line 1: expected a header that begins with '>', got {quote(line)}")
        elif line.strip():
            lines.append(line.strip().rstrip("*"))


def cut(residues: str) -> str:
    """At most `LONGEST` residues: what is too long loses its middle, for signals stand at the ends.

    Sønderby et al. 2015 cut theirs so.
    """
    return residues if len(residues) <= LONGEST else residues[: LONGEST // 2] + residues[-LONGEST // 2 :]


def random_split(proteins: Sequence[Protein]) -> Pairs:
    """Every protein by lot. Near-copies of what is tested stand among what is trained on."""
    return _parts(proteins, np.arange(len(proteins)))


def family_split(proteins: Sequence[Protein]) -> Pairs:
    """Every family by lot, so that no protein that is tested has a near-copy among those that are trained on."""
    return _parts(proteins, families([protein.residues for protein in proteins]))


def near_copies(proteins: Sequence[Protein], pairs: Pairs) -> tuple[int, int]:
    """How many proteins are tested, and how many of these are of a family that is trained on."""
    of = dict(zip((protein.example for protein in proteins), _families_of(proteins), strict=True))
    trained = {of[example] for example in pairs.train}
    return len(pairs.test), sum(of[example] in trained for example in pairs.test)


def _families_of(proteins: Sequence[Protein]) -> list[int]:
    """The number of each protein's family."""
    numbers: list[int] = families([protein.residues for protein in proteins]).tolist()
    return numbers


def _parts(proteins: Sequence[Protein], groups: Int[np.ndarray, " n"]) -> Pairs:
    """Groups by lot to what is tested on, then to what is developed on, until each has its share; the rest to training.

    A group that does not fit any more goes on to the next part.
    """
    room = round(HELD_OUT * len(proteins))
    parts: list[list[int]] = [[], [], []]
    numbers, sizes = np.unique(groups, return_counts=True)
    members = np.split(np.argsort(groups, kind="stable"), np.cumsum(sizes)[:-1])
    for at in np.random.default_rng(SPLIT_SEED).permutation(len(numbers)).tolist():
        own = members[at].tolist()
        fits = (part for part in (2, 1) if len(parts[part]) + len(own) <= room)
        parts[next(fits, 0)] += own
    examples = [[proteins[at].example for at in sorted(part)] for part in parts]
    order = np.random.default_rng(SPLIT_SEED).permutation(len(examples[0]))
    return Pairs([examples[0][at] for at in order.tolist()], examples[1], examples[2])
