"""Chunks of BIO tags (named entities, slots), counted as the shared tasks of CoNLL count them.

B-X begins a chunk of type X, I-X goes on with it, any other tag is outside.
"""

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from pellucid.evaluation.intervals import Interval, bootstrap_ratio
from pellucid.evaluation.metrics import Scored


class Chunk(NamedTuple):
    """Positions [start, stop) of one type."""

    start: int
    stop: int
    kind: str


class Spans(NamedTuple):
    """Chunks found beside those wanted, of all examples together (micro). Rates are percentages."""

    precision: float
    recall: float
    f1: float
    f1_ci95: Interval
    """By bootstrap over examples."""
    right: int
    """Chunks of the same place and type on both sides."""
    found: int
    wanted: int

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        named = {"span_precision": self.precision, "span_recall": self.recall, "span_f1": self.f1}
        counts = {"spans_right": self.right, "spans_found": self.found, "spans_wanted": self.wanted}
        return {**named, "span_f1_ci95": list(self.f1_ci95), **counts}


def is_chunked(tags: Iterable[str]) -> bool:
    """Whether some of the tags say where a chunk begins."""
    return any(tag.startswith("B-") for tag in tags)


def chunks(tags: Sequence[str]) -> set[Chunk]:
    """The chunks of a sequence. An I-X that follows no tag of its type begins a chunk as a B-X does.

    Source: E. F. Tjong Kim Sang and S. Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking", whose
    conlleval this counts like.
    """
    found, start, kind = set[Chunk](), -1, ""
    for at, tag in enumerate([*tags, "O"]):
        place, _, own = tag.partition("-")
        inside = place in ("B", "I")
        if start >= 0 and (not inside or place == "B" or own != kind):
            found.add(Chunk(start, at, kind))
            start = -1
        if inside and start < 0:
            start, kind = at, own
    return found


def spans_for_log(scored: Sequence[Scored]) -> dict[str, float]:
    """What training follows of tags beside their accuracy: span F1, where the tags that are wanted begin chunks."""
    if not any(is_chunked(example.reference) for example in scored):
        return {}
    right, found, wanted = map(sum, _counted(scored))
    return {"span_f1": 100 * 2 * right / max(found + wanted, 1)}


def spans(scored: Sequence[Scored]) -> Spans:
    """Precision, recall and F1 = 2 right / (found + wanted) of all chunks; a rate over nothing is 0."""
    right, found, wanted = _counted(scored)
    both = [one + other for one, other in zip(found, wanted, strict=True)]
    doubled = [2 * each for each in right]
    return Spans(
        precision=100 * sum(right) / max(sum(found), 1),
        recall=100 * sum(right) / max(sum(wanted), 1),
        f1=100 * sum(doubled) / max(sum(both), 1),
        f1_ci95=bootstrap_ratio(doubled, both).percent,
        right=sum(right),
        found=sum(found),
        wanted=sum(wanted),
    )


def _counted(scored: Sequence[Scored]) -> tuple[list[int], list[int], list[int]]:
    """Chunks of each example: right, found and wanted."""
    rows = [(chunks(example.output), chunks(example.reference)) for example in scored]
    right = [len(output & reference) for output, reference in rows]
    return right, [len(output) for output, _ in rows], [len(reference) for _, reference in rows]
