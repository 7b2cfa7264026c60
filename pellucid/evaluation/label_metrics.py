"""Metrics of tags, classes and positions: accuracy, Q3, macro F1, Matthews correlation, confusion matrix, chunk F1.

C labels. Rates are percentages; correlations range from −1 to 1.
"""

import math
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import argument_error, check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import TaskName
from pellucid.decoding.trace import Trace, checked_outputs
from pellucid.evaluation.confusion import SymbolPair, pair_symbols
from pellucid.evaluation.metrics import (
    ConfidenceInterval,
    OutcomeCounts,
    RowCounts,
    ScoredExample,
    count_distinct_rows,
    count_rows,
    merge_rows,
    ratio_interval,
    wilson_interval,
)
from pellucid.row_file import RowFile
from pellucid.shapes import Int

CHUNK_TYPE = np.dtype([("correct", np.int32), ("predicted", np.int32), ("reference", np.int32)])
"""Type of the numbers of chunks of an example."""


class Chunk(NamedTuple):
    """A span of positions [start, stop) that are tagged as one unit, such as a name."""

    start: int
    stop: int
    kind: str
    """Type of the chunk: "PER" for the tags B-PER and I-PER."""


class ChunkScores(NamedTuple):
    """Precision, recall and F1 of chunks, over all examples (micro-averaged). Rates are percentages."""

    precision: float
    recall: float
    f1: float
    f1_ci95: ConfidenceInterval
    """Bootstrap interval over examples."""
    num_correct: int
    """Number of predicted chunks with the boundaries and the type of a reference chunk."""
    num_predicted: int
    """Number of predicted chunks."""
    num_reference: int
    """Number of reference chunks."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        named = {"span_precision": self.precision, "span_recall": self.recall, "span_f1": self.f1}
        counts = {
            "span_num_correct": self.num_correct,
            "span_num_predicted": self.num_predicted,
            "span_num_reference": self.num_reference,
        }
        return {**named, "span_f1_ci95": list(self.f1_ci95), **counts}


@check_arguments
def has_chunks(tags: Iterable[str]) -> bool:
    """Return whether some tags are BIO tags that begin a chunk ("B-...").

    Args:
        tags: Any tags.
    """
    return any(tag.startswith("B-") for tag in tags)


@check_arguments
def extract_chunks(tags: Sequence[str]) -> set[Chunk]:
    """Return the chunks of a sequence of BIO tags. An I-X that follows no tag of type X begins a chunk.

    Tags that begin with neither "B-" nor "I-" are outside chunks; "B" and "I" alone have the type "".

    Args:
        tags: The tags of one sequence.

    References:
        E. F. Tjong Kim Sang and S. Buchholz (2000), "Introduction to the CoNLL-2000 shared task: chunking"; chunks are
            counted as by its script conlleval.
    """
    chunks, start, kind = set[Chunk](), -1, ""
    for position, tag in enumerate([*tags, "O"]):
        prefix, _, tag_kind = tag.partition("-")
        inside = prefix in ("B", "I")
        if start >= 0 and (not inside or prefix == "B" or tag_kind != kind):
            chunks.add(Chunk(start, position, kind))
            start = -1
        if inside and start < 0:
            start, kind = position, tag_kind
    return chunks


@check_arguments
def chunk_metrics_for_log(scored: Sequence[ScoredExample]) -> dict[str, float]:
    """Return {"span_f1": F1 of chunks in percent} for the training log; empty if no reference has a B- tag.

    Args:
        scored: Outputs with references.

    Raises:
        InputError: An example has no reference.
    """
    if not any(has_chunks(example.reference) for example in scored):
        return {}
    num_correct, num_predicted, num_reference = map(sum, zip(*map(_count_chunks, scored), strict=True))
    return {"span_f1": 100 * 2 * num_correct / max(num_predicted + num_reference, 1)}


@check_arguments
def score_chunks(scored: Sequence[ScoredExample]) -> ChunkScores:
    """Return precision, recall and F1 = 2 correct / (predicted + reference) of all chunks; a rate over nothing is 0.

    Args:
        scored: Outputs with references.

    Raises:
        ArgumentError: There is no example.
        InputError: An example has no reference.
    """
    check_not_empty("scored", scored, "example")
    return _chunk_scores(count_distinct_rows(np.array(list(map(_count_chunks, scored)), np.int64)))


def _chunk_scores(examples: RowCounts) -> ChunkScores:
    """Return precision, recall and F1 from the chunk counts (`_count_chunks`) of each example."""
    num_correct, num_predicted, num_reference = examples.sums.tolist()
    correct, predicted, reference = examples.rows.T
    rates = merge_rows(np.column_stack([2 * correct, predicted + reference]), examples.counts)
    return ChunkScores(
        precision=100 * num_correct / max(num_predicted, 1),
        recall=100 * num_correct / max(num_reference, 1),
        f1=100 * 2 * num_correct / max(num_predicted + num_reference, 1),
        f1_ci95=ratio_interval(rates).percent,
        num_correct=num_correct,
        num_predicted=num_predicted,
        num_reference=num_reference,
    )


def _count_chunks(example: ScoredExample) -> tuple[int, int, int]:
    """Return the numbers of correct, predicted and reference chunks of an example."""
    output, reference = extract_chunks(example.output), extract_chunks(example.reference)
    return len(output & reference), len(output), len(reference)


TOP_K = 3
"""Number of predicted positions among which the correct one counts for the top-k accuracy."""
STRUCTURE_TAGS = {"H", "E", "C"}
"""Tags of protein secondary structure: helix, strand, coil."""
Counts = Annotated[Int[np.ndarray, "C C"], Meta(ge=0, le=2**53)]
"""Number of predictions of each of C labels (column) for each reference label (row)."""


@dataclass(frozen=True)
class LabelMetrics:
    """Metrics of a model that tags, classifies or points."""

    task: TaskName
    """Name of the task."""
    accuracy: float
    """Percentage of correct answers: of scored tags, of classes, or of positions."""
    accuracy_ci95: ConfidenceInterval
    """Wilson interval; for tags, the bootstrap interval over examples."""
    q3: float | None
    """Accuracy of taggings by H, E and C (protein secondary structure), in percent; None if there are other tags."""
    top_k_accuracy: float | None
    """Percentage of examples whose position is among the `TOP_K` most probable; None for other tasks."""
    top_k_ci95: ConfidenceInterval | None
    """Wilson interval of it, in percent."""
    macro_f1: float | None
    """Mean over labels of F1 = 2 correct / (predicted + reference), in percent; None for positions."""
    mcc: float | None
    """Matthews correlation of the confusion matrix, −1 to 1; None for positions."""
    labels: list[str]
    """Labels of references and predictions, sorted; empty for positions."""
    confusion: list[list[int]]
    """Number of predictions of each label (column) for each reference label (row); empty for positions."""
    spans: ChunkScores | None
    """Chunk metrics; None if no tag begins a chunk."""
    per_position: bool = False
    """True if the accuracy counts positions; otherwise it counts outputs and equals the exact match."""
    parts: Mapping[str, "LabelMetrics"] = field(default_factory=dict)
    """Metrics of the classes and of the tags, where outputs have both, by the prefix of their JSON keys: "class_" and
    "tag_"; else empty."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without metrics that are None or empty."""
        values: dict[str, Any] = {
            "task": self.task,
            "accuracy": self.accuracy,
            "accuracy_ci95": list(self.accuracy_ci95),
        }
        for name, value in (
            ("q3", self.q3),
            ("macro_f1", self.macro_f1),
            ("mcc", self.mcc),
            ("top_3", self.top_k_accuracy),
        ):
            if value is not None:
                values[name] = value
        if self.top_k_ci95 is not None:
            values["top_3_ci95"] = list(self.top_k_ci95)
        for prefix, part in self.parts.items():
            others = part.to_dict()
            values |= {f"{prefix}{key}": others[key] for key in others if key != "task" and not key.startswith("span")}
        if self.labels:
            values["confusion"] = {"labels": self.labels, "counts": self.confusion}
        return values | (self.spans.to_dict() if self.spans else {})


class LabelCounter(ABC):
    """Counts of outputs that are labels, from which their metrics are computed without the outputs.

    Outputs are added in blocks; the metrics do not depend on the sizes of the blocks.
    """

    @abstractmethod
    def add(self, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.
            traces: Traces of the outputs.
        """

    @abstractmethod
    def extend(self, other: Any) -> None:  # noqa: ANN401 (of the same class)
        """Add the outputs of other counts.

        Args:
            other: Counts of the same class.
        """

    @abstractmethod
    def metrics(self) -> LabelMetrics:
        """Return the metrics of all outputs, of which there is at least one."""


class PositionCounter(LabelCounter):
    """Counts of predicted source positions."""

    def __init__(self) -> None:
        """Begin without outputs."""
        self.task: TaskName = ""
        self.total = self.num_correct = self.num_in_top = 0

    def add(self, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.
            traces: Traces of the outputs, whose candidates give the top-k accuracy.
        """
        for example, trace in zip(scored, traces, strict=True):
            self.task = self.task or trace.task
            self.total += 1
            self.num_correct += example.exact
            self.num_in_top += _in_top_k(example, trace)

    def extend(self, other: Any) -> None:  # noqa: ANN401 (of the same class)
        """Add the outputs of other counts.

        Args:
            other: The counts.
        """
        self.task = self.task or other.task
        self.total += other.total
        self.num_correct += other.num_correct
        self.num_in_top += other.num_in_top

    def metrics(self) -> LabelMetrics:
        """Return the metrics of all outputs, of which there is at least one."""
        (accuracy, interval), (top_accuracy, top_interval) = (
            (100 * count / self.total, wilson_interval(count, self.total).percent)
            for count in (self.num_correct, self.num_in_top)
        )
        return LabelMetrics(self.task, accuracy, interval, None, top_accuracy, top_interval, None, None, [], [], None)


class SymbolLabelCounter(LabelCounter):
    """Counts of tags, one for each position, or of classes, one for each source: 24 bytes for each output."""

    def __init__(self, task: TaskName = "", per_position: bool | None = None) -> None:
        """Begin without outputs.

        Args:
            task: Name of the task; "" for that of the first trace.
            per_position: Whether labels belong to positions; None if the first trace says so.
        """
        self.task, self.per_position = task, per_position
        self.outcomes, self.pairs = OutcomeCounts(), Counter[SymbolPair]()
        self._chunks = RowFile(CHUNK_TYPE)

    def add(self, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.
            traces: Traces of the outputs, the first of which says whether labels belong to positions; none are needed
                if that is known.

        Raises:
            InputError: An example has no reference.
        """
        if self.per_position is None and traces:
            self.task, self.per_position = traces[0].task, traces[0].per_position
        self.outcomes.add(scored)
        for example in scored:
            self.pairs.update(pair_symbols(example))
        if self.per_position and scored:
            self._chunks.extend(*zip(*map(_count_chunks, scored), strict=True))

    def extend(self, other: Any) -> None:  # noqa: ANN401 (of the same class)
        """Add the outputs of other counts.

        Args:
            other: The counts.
        """
        self.task = self.task or other.task
        self.per_position = other.per_position if self.per_position is None else self.per_position
        self.outcomes.extend(other.outcomes)
        self.pairs.update(other.pairs)
        for block in other._chunks.blocks():
            self._chunks.extend_rows(block)

    def metrics(self) -> LabelMetrics:
        """Return the metrics of all outputs, of which there is at least one.

        Raises:
            ArgumentError: There is no label.
        """
        per_position = bool(self.per_position)
        accuracy, interval = _label_accuracy(self.outcomes, per_position)
        labels = sorted({label for pair in self.pairs for label in pair if label is not None})
        if not labels:
            raise argument_error("scored", "at least one label", self.pairs)
        counts = np.array(
            [[self.pairs[reference, predicted] for predicted in labels] for reference in labels], np.int64
        )
        has_spans = per_position and has_chunks(labels)
        names, blocks = CHUNK_TYPE.names or (), self._chunks.blocks()
        chunk_counts = (np.column_stack([block[name] for name in names]) for block in blocks)
        chunks = _chunk_scores(count_rows(chunk_counts)) if has_spans else None
        q3 = accuracy if per_position and set(labels) <= STRUCTURE_TAGS else None
        return LabelMetrics(
            task=self.task,
            accuracy=accuracy,
            accuracy_ci95=interval,
            q3=q3,
            top_k_accuracy=None,
            top_k_ci95=None,
            macro_f1=macro_f1(counts),
            mcc=matthews_correlation(counts),
            labels=labels,
            confusion=counts.tolist(),
            spans=chunks,
            per_position=per_position,
        )


class ClassAndTagCounter(LabelCounter):
    """Counts of outputs that begin with a class, which tags follow, one for each position."""

    def __init__(self) -> None:
        """Begin without outputs."""
        self.outcomes = OutcomeCounts()
        self.classes, self.tags = SymbolLabelCounter(per_position=False), SymbolLabelCounter(per_position=True)

    def add(self, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> None:
        """Add outputs.

        Args:
            scored: Outputs with references.
            traces: Traces of the outputs, which name the task.

        Raises:
            InputError: An example has no reference.
        """
        self.outcomes.add(scored)
        for counter, part in zip((self.classes, self.tags), _split_class_and_tags(scored), strict=True):
            counter.task = counter.task or traces[0].task
            counter.add(part, ())

    def extend(self, other: Any) -> None:  # noqa: ANN401 (of the same class)
        """Add the outputs of other counts.

        Args:
            other: The counts.
        """
        self.outcomes.extend(other.outcomes)
        self.classes.extend(other.classes)
        self.tags.extend(other.tags)

    def metrics(self) -> LabelMetrics:
        """Return the accuracy of all labels, and the chunk metrics of the tags; in `parts`, those of classes and tags.

        Raises:
            ArgumentError: There is no tag.
        """
        parts = {"class_": self.classes.metrics(), "tag_": self.tags.metrics()}
        accuracy, interval = _label_accuracy(self.outcomes, per_position=True)
        spans = parts["tag_"].spans
        return LabelMetrics(
            self.classes.task, accuracy, interval, None, None, None, None, None, [], [], spans, True, parts
        )


def measure_labels(counter: LabelCounter, scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> LabelMetrics:
    """Return the metrics of outputs that are labels.

    Args:
        counter: Counter of the task (`TaskMetrics.labels`), without outputs.
        scored: Outputs with references, at least one.
        traces: Traces of the outputs.

    Raises:
        ArgumentError: There is no example, or the numbers of outputs and traces differ; or as in `counter`.
        InputError: An example has no reference.
    """
    check_not_empty("scored", scored, "example")
    check_lengths({"scored": scored, "traces": traces})
    counter.add(scored, checked_outputs(traces))
    return counter.metrics()


@check_arguments
def score_positions(scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> LabelMetrics:
    """Return the metrics of predicted source positions.

    Args:
        scored: Outputs with references, at least one.
        traces: Traces of the outputs, whose candidates give the top-k accuracy.

    Raises:
        ArgumentError: There is no example, or the numbers of outputs and traces differ.
    """
    return measure_labels(PositionCounter(), scored, traces)


@check_arguments
def score_labels(scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> LabelMetrics:
    """Return the metrics of tags, one for each position, or of classes, one for each source.

    Args:
        scored: Outputs with references, at least one.
        traces: Traces of the outputs, the first of which says whether labels belong to positions.

    Raises:
        ArgumentError: There is no example or no label, or the numbers of outputs and traces differ.
        InputError: An example has no reference.
    """
    return measure_labels(SymbolLabelCounter(), scored, traces)


@check_arguments
def score_class_and_tags(scored: Sequence[ScoredExample], traces: Sequence[Trace]) -> LabelMetrics:
    """Return the metrics of outputs that begin with a class, which tags follow, one for each position.

    Args:
        scored: Outputs with references, at least one.
        traces: Traces of the outputs.

    Returns:
        The accuracy of all labels, and the chunk metrics of the tags; in `parts`, the metrics of classes and tags.

    Raises:
        ArgumentError: There is no example or no tag, or the numbers of outputs and traces differ.
        InputError: An example has no reference.
    """
    return measure_labels(ClassAndTagCounter(), scored, traces)


def _split_class_and_tags(scored: Sequence[ScoredExample]) -> tuple[list[ScoredExample], list[ScoredExample]]:
    """Return the classes and the tags of outputs that begin with a class, each as outputs with references.

    Args:
        scored: Outputs with references.
    """
    classes, tags = (
        [
            example._replace(
                output=example.output[part],
                references=tuple(reference[part] for reference in example.references),
                log_probabilities=(),
            )
            for example in scored
        ]
        for part in (slice(1), slice(1, None))
    )
    return classes, tags


@check_arguments
def class_and_tag_metrics_for_log(scored: Sequence[ScoredExample]) -> dict[str, float]:
    """Return the accuracy of classes and of tags, and F1 of chunks if a reference has a B- tag, for the training log.

    Args:
        scored: Outputs with references, which begin with a class.

    Raises:
        InputError: An example has no reference.
    """
    classes, tags = _split_class_and_tags(scored)
    accuracies = [
        100 - 100 * sum(example.errors for example in part) / max(sum(len(example.reference) for example in part), 1)
        for part in (classes, tags)
    ]
    return {"class_accuracy": accuracies[0], "tag_accuracy": accuracies[1], **chunk_metrics_for_log(tags)}


@check_arguments
def matthews_correlation(confusion: Counts) -> float:
    """Return Matthews' correlation coefficient for any number of labels.

        R_K = (c s − Σ_k p_k t_k) / √((s² − Σ_k p_k²) (s² − Σ_k t_k²))

    s is the number of predictions, c of correct ones, p_k of predictions of label k, and t_k of references with label
    k. The result is from −1 to 1, and 0 if predictions or references have a single label.

    Args:
        confusion: Counts of references (rows) and predictions (columns), shape (C, C).

    Raises:
        ArgumentError: The value is not a square array of counts.

    References:
        J. Gorodkin (2004), "Comparing two K-category assignments by a K-category correlation coefficient",
            Computational Biology and Chemistry 28, 367-374, equation 8 with counts.
    """
    confusion = _without_overflow(confusion)
    references, predictions = confusion.sum(axis=1), confusion.sum(axis=0)
    total, num_correct = int(confusion.sum()), int(np.trace(confusion))
    spread = [total * total - sum(int(count) ** 2 for count in side) for side in (references, predictions)]
    if not all(spread):
        return 0.0
    covariance = num_correct * total - sum(int(p) * int(t) for p, t in zip(predictions, references, strict=True))
    return covariance / math.sqrt(spread[0] * spread[1])


def _without_overflow(confusion: Counts) -> np.ndarray:
    """Return counts whose sums are exact: the array itself, or whole numbers of Python if its sums exceed 64 bits."""
    greatest = int(confusion.max(initial=0))
    return confusion if 2 * greatest * confusion.size < 2**63 else confusion.astype(object)


@check_arguments
def macro_f1(confusion: Counts) -> float:
    """Return the mean over labels of F1 = 2 correct / (predicted + reference), in percent.

    A label without counts has the F1 0.

    Args:
        confusion: Counts of references (rows) and predictions (columns), shape (C, C).

    Raises:
        ArgumentError: The value is not a square array of counts, or there is no label.
    """
    check_not_empty("confusion", confusion, "label")
    confusion = _without_overflow(confusion)
    both = confusion.sum(axis=0) + confusion.sum(axis=1)
    return float(100 * np.mean(2 * np.diag(confusion) / np.maximum(both, 1)))


def _label_accuracy(outcomes: OutcomeCounts, per_position: bool) -> tuple[float, ConfidenceInterval]:
    """Return the accuracy with its interval; tags of one example are not independent, so examples are resampled."""
    if not per_position:
        num_correct = len(outcomes) - outcomes.count_wrong()
        return 100 * num_correct / len(outcomes), wilson_interval(num_correct, len(outcomes)).percent
    rows, counts = outcomes.count_errors()
    examples = merge_rows(np.column_stack([rows[:, 1] - rows[:, 0], rows[:, 1]]), counts)
    num_correct, total = examples.sums.tolist()
    return 100 * num_correct / max(total, 1), ratio_interval(examples).percent


def _in_top_k(example: ScoredExample, trace: Trace) -> bool:
    """Return whether the correct position is among the `TOP_K` most probable."""
    top = trace.top_symbols[0][:TOP_K] if trace.top_symbols else ()
    return any((symbol,) in example.references for symbol in top)
