"""Near neighbors of an entry whose targets agree with the output of the models, and not with the given target."""

from collections.abc import Mapping, Sequence

from rapidfuzz import process
from rapidfuzz.distance import Levenshtein

from pellucid.auditing.folds import source_key
from pellucid.auditing.types import AuditEntry, NearNeighbor
from pellucid.data.tokenizers import Tokenizer

NUM_COMPARED = 20
"""Number of the nearest sources whose targets are compared."""
NUM_NEIGHBORS = 3
"""Maximum number of neighbors of an entry."""
MAX_DISTANCE = 0.5
"""Maximum distance of a near source: edits, divided by the length of the longer source."""


def conflicting_neighbors(
    entries: Sequence[AuditEntry],
    rows: Sequence[int],
    outputs: Sequence[str],
    tokenizer: Tokenizer,
    has_contexts: bool = False,
) -> list[tuple[NearNeighbor, ...]]:
    """Return the near neighbors of entries that contradict their targets, the nearest first.

    A neighbor has a similar source with the same features, and its target is nearer to the output of the models than to
    the given target.

    Args:
        entries: All entries.
        rows: Numbers of the entries whose neighbors are searched.
        outputs: Output of the models for each of these.
        tokenizer: Tokenizer of the targets.
        has_contexts: Whether features are the words around a source, which neighbors need not share; False by default.
    """
    symbols = [tokenizer.split(entry.example.target) for entry in entries]
    rows_of = _rows_by_source(entries, has_contexts)
    sources = {features: list(rows_of_source) for features, rows_of_source in rows_of.items()}
    found = list[tuple[NearNeighbor, ...]]()
    for row, output in zip(rows, outputs, strict=True):
        example, written, given = entries[row].example, tokenizer.split(output), symbols[row]
        features = "" if has_contexts else example.features
        near = _nearest_sources(source_key(example), sources[features])
        conflicting = [
            NearNeighbor(entries[number].line, entries[number].example.source, entries[number].example.target)
            for number in (number for source in near for number in rows_of[features][source].values())
            if Levenshtein.distance(symbols[number], written) < Levenshtein.distance(symbols[number], given)
        ]
        found.append(tuple(conflicting[:NUM_NEIGHBORS]))
    return found


def _rows_by_source(entries: Sequence[AuditEntry], has_contexts: bool) -> Mapping[str, Mapping[str, Mapping[str, int]]]:
    """Return the number of the first entry with each target, by features (none with contexts), source and target."""
    rows_of: dict[str, dict[str, dict[str, int]]] = {}
    for number, entry in enumerate(entries):
        rows_of_source = rows_of.setdefault("" if has_contexts else entry.example.features, {})
        rows_of_source.setdefault(source_key(entry.example), {}).setdefault(entry.example.target, number)
    return rows_of


def _nearest_sources(source: str, sources: Sequence[str]) -> list[str]:
    """Return the nearest other sources, the nearest first.

    Args:
        source: The source, which is one of all.
        sources: All sources, each once.
    """
    near = process.extract(
        source, sources, scorer=Levenshtein.normalized_distance, limit=NUM_COMPARED + 1, score_cutoff=MAX_DISTANCE
    )
    return [other for other, _, _ in near if other != source]
