"""Near neighbors of an entry whose targets agree with the output of the models, and not with the given target."""

from collections.abc import Sequence

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from pellucid.auditing.folds import source_key
from pellucid.auditing.types import DictionaryEntry, NearNeighbor
from pellucid.data.tokenizers import Tokenizer

NUM_COMPARED = 20
"""Number of the nearest sources whose targets are compared."""
NUM_NEIGHBORS = 3
"""Maximum number of neighbors of an entry."""
MAX_DISTANCE = 0.5
"""Maximum distance of a near source: edits, divided by the length of the longer source."""


def conflicting_neighbors(
    entries: Sequence[DictionaryEntry], rows: Sequence[int], outputs: Sequence[str], tokenizer: Tokenizer
) -> list[tuple[NearNeighbor, ...]]:
    """Return the near neighbors of entries that speak against their targets, the nearest first.

    A neighbor has a similar source, and its target is nearer to the output of the models than to the given target.

    Args:
        entries: All entries.
        rows: Numbers of the entries whose neighbors are searched.
        outputs: Output of the models for each of these.
        tokenizer: Tokenizer of the targets.
    """
    keys = [source_key(entry.example) for entry in entries]
    symbols = [tokenizer.split(entry.example.target) for entry in entries]
    found = list[tuple[NearNeighbor, ...]]()
    for row, output in zip(rows, outputs, strict=True):
        written, given = tokenizer.split(output), symbols[row]
        against = [
            NearNeighbor(entries[number].line, entries[number].example.source, entries[number].example.target)
            for number in _nearest_sources(keys, row)
            if Levenshtein.distance(symbols[number], written) < Levenshtein.distance(symbols[number], given)
        ]
        found.append(tuple(against[:NUM_NEIGHBORS]))
    return found


def _nearest_sources(keys: Sequence[str], row: int) -> list[int]:
    """Return the numbers of the nearest other sources, the nearest first."""
    near = process.extract(
        keys[row], keys, scorer=Levenshtein.normalized_distance, limit=NUM_COMPARED, score_cutoff=MAX_DISTANCE
    )
    return [number for _, _, number in near if keys[number] != keys[row]]
