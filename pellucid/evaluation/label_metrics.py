"""What tags, classes and positions are worth: accuracy, Q3, macro F1, correlation, confusion, chunks.

C labels. Rates are percentages, correlations run from −1 to 1.
"""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, NamedTuple

import numpy as np
from jaxtyping import Int
from msgspec import Meta

from pellucid.arguments import argument_error, check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import Task
from pellucid.decoding.trace import Trace
from pellucid.evaluation.confusion import paired
from pellucid.evaluation.metrics import Interval, Scored, bootstrap_ratio, wilson


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


@check_arguments
def is_chunked(tags: Iterable[str]) -> bool:
    """Whether some of the tags say where a chunk begins."""
    return any(tag.startswith("B-") for tag in tags)


@check_arguments
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


@check_arguments
def spans_for_log(scored: Sequence[Scored]) -> dict[str, float]:
    """What training follows of tags beside their accuracy: span F1, where the tags that are wanted begin chunks."""
    if not any(is_chunked(example.reference) for example in scored):
        return {}
    right, found, wanted = map(sum, _counted(scored))
    return {"span_f1": 100 * 2 * right / max(found + wanted, 1)}


@check_arguments
def spans(scored: Sequence[Scored]) -> Spans:
    """Precision, recall and F1 = 2 right / (found + wanted) of all chunks; a rate over nothing is 0.

    Raises:
        ArgumentError: There is no example.
    """
    check_not_empty("scored", scored, "example")
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


FIRST = 3
"""Positions among which the right one may be, beside the first alone."""
STRUCTURE = {"H", "E", "C"}
"""Tags of secondary structure: helix, strand, coil."""
Counts = Annotated[Int[np.ndarray, "C C"], Meta(ge=0, le=2**53)]
"""How often each of C labels (row) was answered with each (column)."""


@dataclass(frozen=True)
class Labelled:
    """The answers of a model that tags, classifies or points."""

    task: Task
    accuracy: float
    """Share of right answers: of tags position by position (those that are scored), of classes, of positions."""
    accuracy_ci95: Interval
    """Wilson's; of tags by bootstrap over examples."""
    q3: float | None
    """The accuracy of tags that are H, E and C; None for others."""
    first: float | None
    """Share of examples whose position is among the `FIRST` likeliest; None for other tasks."""
    first_ci95: Interval | None
    macro_f1: float | None
    """Mean over labels of F1 = 2 right / (answered + wanted); None for positions."""
    mcc: float | None
    """`correlation` of the confusion; None for positions."""
    labels: list[str]
    """What was wanted or answered, in order; empty for positions."""
    confusion: list[list[int]]
    """How often each label (row) was answered with each (column)."""
    spans: Spans | None
    """Chunks; None where no tag begins one."""
    per_position: bool = False
    """Whether the accuracy counts positions; else it counts outputs, and is their exact match."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; what a task has not is left out."""
        told: dict[str, Any] = {
            "task": self.task,
            "accuracy": self.accuracy,
            "accuracy_ci95": list(self.accuracy_ci95),
        }
        for name, value in (("q3", self.q3), ("macro_f1", self.macro_f1), ("mcc", self.mcc), ("top_3", self.first)):
            if value is not None:
                told[name] = value
        if self.first_ci95 is not None:
            told["top_3_ci95"] = list(self.first_ci95)
        if self.labels:
            told["confusion"] = {"labels": self.labels, "counts": self.confusion}
        return told | (self.spans.to_dict() if self.spans else {})


@check_arguments
def score_positions(scored: Sequence[Scored], traces: Sequence[Trace]) -> Labelled:
    """Score answers that are source positions.

    Raises:
        ArgumentError: There is no example, or there are not as many traces.
    """
    check_not_empty("scored", scored, "example")
    check_lengths(scored=scored, traces=traces)
    accuracy, interval = _accuracy(scored, per_position=False)
    hits = sum(_among_first(*pair) for pair in zip(scored, traces, strict=True))
    first, first_interval = 100 * hits / len(scored), wilson(hits, len(scored)).percent
    return Labelled(traces[0].task, accuracy, interval, None, first, first_interval, None, None, [], [], None)


@check_arguments
def score_labels(scored: Sequence[Scored], traces: Sequence[Trace]) -> Labelled:
    """Score answers that are labels of one set: of each position, or of each source.

    Raises:
        ArgumentError: There is no example or no label, or there are not as many traces.
    """
    check_not_empty("scored", scored, "example")
    check_lengths(scored=scored, traces=traces)
    per_position = traces[0].per_position
    accuracy, interval = _accuracy(scored, per_position)
    pairs = Counter(pair for example in scored for pair in paired(example))
    labels = sorted({label for pair in pairs for label in pair if label is not None})
    if not labels:
        raise argument_error("scored", "at least one label", scored)
    counts = np.array([[pairs[wanted, written] for written in labels] for wanted in labels], np.int64)
    found = spans(scored) if per_position and is_chunked(labels) else None
    q3 = accuracy if per_position and set(labels) <= STRUCTURE else None
    shared = (macro_f1(counts), correlation(counts), labels, counts.tolist(), found, per_position)
    return Labelled(traces[0].task, accuracy, interval, q3, None, None, *shared)


@check_arguments
def correlation(confusion: Counts) -> float:
    """R_K, the correlation of wanted and answered labels: Matthews' coefficient for any number of them.

    R_K = (c s − Σ_k p_k t_k) / √((s² − Σ_k p_k²) (s² − Σ_k t_k²)), s all answers, c the right ones, p_k how often k was
    answered and t_k how often it was wanted; 0 where one side has one label only. Source: J. Gorodkin (2004),
    "Comparing two K-category assignments by a K-category correlation coefficient", Computational Biology and Chemistry
    28, 367-374, equation 8 with counts.
    """
    wanted, answered = confusion.sum(axis=1), confusion.sum(axis=0)
    total, right = int(confusion.sum()), int(np.trace(confusion))
    spread = [total * total - sum(int(each) ** 2 for each in side) for side in (wanted, answered)]
    if not all(spread):
        return 0.0
    together = right * total - sum(int(p) * int(t) for p, t in zip(answered, wanted, strict=True))
    return together / math.sqrt(spread[0] * spread[1])


@check_arguments
def macro_f1(confusion: Counts) -> float:
    """The mean over labels, wanted or answered, of 2 right / (answered + wanted), in per cent.

    Raises:
        ArgumentError: This is no square array of counts, or there is no label.
    """
    check_not_empty("confusion", confusion, "label")
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(100 * np.mean(2 * np.diag(confusion) / np.maximum(both, 1)))


def _accuracy(scored: Sequence[Scored], per_position: bool) -> tuple[float, Interval]:
    """The share right, with its interval: answers of one example are not independent of each other."""
    if not per_position:
        right = sum(example.exact for example in scored)
        return 100 * right / len(scored), wilson(right, len(scored)).percent
    totals = [len(example.reference) for example in scored]
    rights = [total - example.errors for example, total in zip(scored, totals, strict=True)]
    return 100 * sum(rights) / max(sum(totals), 1), bootstrap_ratio(rights, totals).percent


def _among_first(example: Scored, trace: Trace) -> bool:
    """Whether a right position is among the likeliest."""
    return bool(trace.top_symbols) and any((each,) in example.references for each in trace.top_symbols[0][:FIRST])
