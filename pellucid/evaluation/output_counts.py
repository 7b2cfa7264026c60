"""Counts of the outputs of a run, from which an assessment computes its metrics without the outputs themselves."""

import math
from array import array
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.evaluation.calibration import Calibration, compute_calibration
from pellucid.evaluation.confusion import SymbolPair, add_confusions
from pellucid.evaluation.label_metrics import LabelCounter
from pellucid.evaluation.metrics import OutcomeCounts, ScoredExample
from pellucid.evaluation.outcomes import OutcomeTable
from pellucid.shapes import Bool, Float, Int


class AssessedOutput(NamedTuple):
    """An example with its references, and the outputs of a run for it."""

    example: Example
    references: tuple[str, ...]
    """Correct targets."""
    group: str
    """Group of the example, such as its language; "" without groups."""
    traces: list[Trace]
    """Outputs, best first: one, or several for an n-best list."""
    candidates: list[ScoredExample]
    """Outputs and references as symbols, best first."""
    line: int | None
    """Number of the line, from 1, of the example in its file; None if it is unknown."""
    id: str | None
    """Cell of the column "id" of the example; None if the file has no such column."""

    @property
    def trace(self) -> Trace:
        """Best output."""
        return self.traces[0]

    @property
    def scored(self) -> ScoredExample:
        """Best output and references as symbols."""
        return self.candidates[0]

    @property
    def has_trained_network(self) -> bool:
        """False if the pair n-gram model has chosen the output before the first validation of the network, whose
        probabilities and attention weights are then of no use."""
        return self.trace.origin != "pair_ngram"

    def record(self) -> dict[str, Any]:
        """Return the output as plain values for JSON (`Assessment.error_record`)."""
        return {
            "line": self.line,
            **({} if self.id is None else {"id": self.id}),
            "source": self.trace.text,
            "features": self.example.features,
            "output": self.trace.output,
            "references": list(self.references),
            "errors": self.scored.errors,
            "score": self.trace.score if self.has_trained_network else None,
            "confidence": self.trace.confidence,
            "group": self.group,
        }


class OutputCounts:
    """Counts and probabilities of the outputs of a run: 36 bytes for each example, and 9 bytes for each tag.

    Outputs are added in blocks; metrics do not depend on the sizes of the blocks. Texts are kept for metrics of running
    text only.
    """

    def __init__(self, labels: Callable[[], LabelCounter] | None, with_texts: bool) -> None:
        """Begin without outputs.

        Args:
            labels: Class that counts labels; None for tasks with error rates.
            with_texts: True if the texts of outputs and references are kept, for metrics of running text.
        """
        self.best = OutcomeCounts()
        self.confusions = Counter[SymbolPair]()
        self.labels = None if labels is None else labels()
        self.max_outputs = 0
        self.with_texts, self.texts = with_texts, list[str]()
        self.references = list[tuple[str, ...]]()
        self.has_tags = False
        self.has_trained_network = True
        self._scores, self._confidences = array("d"), array("d")
        self._ranks, self._groups, self._group_numbers = array("i"), array("i"), dict[str, int]()
        self._tag_scores, self._tag_hits = array("d"), array("b")

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.best)

    def add(self, outputs: Sequence[AssessedOutput]) -> None:
        """Add outputs.

        Args:
            outputs: Outputs of examples.

        Raises:
            InputError: An example has no reference.
        """
        scored = [output.scored for output in outputs]
        self.best.add(scored)
        add_confusions(self.confusions, scored)
        if self.labels is not None:
            self.labels.add(scored, [output.trace for output in outputs])
        for output in outputs:
            trace = output.trace
            self.has_trained_network = self.has_trained_network and output.has_trained_network
            self._scores.append(trace.score)
            self._confidences.append(math.nan if trace.confidence is None else trace.confidence)
            self._ranks.append(first_right_rank(output.candidates) or 0)
            self._groups.append(self._group_numbers.setdefault(output.group, len(self._group_numbers)))
            self.max_outputs = max(self.max_outputs, len(output.traces))
            self._add_tags(output.scored)
            if self.with_texts:
                self.texts.append(trace.output)
                self.references.append(output.references)

    def extend(self, other: "OutputCounts") -> None:
        """Add the outputs of other counts.

        Args:
            other: Counts of the same task and with the same options.
        """
        self.best.extend(other.best)
        self.confusions.update(other.confusions)
        if self.labels is not None and other.labels is not None:
            self.labels.extend(other.labels)
        self.max_outputs, self.has_tags = max(self.max_outputs, other.max_outputs), self.has_tags or other.has_tags
        self.has_trained_network = self.has_trained_network and other.has_trained_network
        self.texts += other.texts
        self.references += other.references
        numbers = [self._group_numbers.setdefault(name, len(self._group_numbers)) for name in other._group_numbers]
        self._groups.extend(numbers[number] for number in other._groups)
        self._scores.extend(other._scores)
        self._confidences.extend(other._confidences)
        self._ranks.extend(other._ranks)
        self._tag_scores.extend(other._tag_scores)
        self._tag_hits.extend(other._tag_hits)

    @property
    def ranks(self) -> Int[np.ndarray, " n"]:
        """Rank, from 1, of the first correct output of each example; 0 if there is none."""
        return np.asarray(self._ranks)

    @property
    def has_confidence(self) -> Bool[np.ndarray, " n"]:
        """True for each example whose best output has a confidence."""
        has_confidence: Bool[np.ndarray, " n"] = ~np.isnan(np.asarray(self._confidences))
        return has_confidence

    @property
    def confidences(self) -> Float[np.ndarray, " m"]:
        """Confidence of the best output of each example that has one."""
        confidences: Float[np.ndarray, " m"] = np.asarray(self._confidences)[self.has_confidence]
        return confidences

    @property
    def confident_hits(self) -> Bool[np.ndarray, " m"]:
        """True for each correct output among those with a confidence."""
        hits: Bool[np.ndarray, " m"] = self.best.exact[self.has_confidence]
        return hits

    def calibration(self) -> Calibration | None:
        """Return the calibration of the probabilities of the best outputs, or of their tags if there are any; None
        before the first validation of the network."""
        if not self.has_trained_network:
            return None
        if self.has_tags:
            return compute_calibration(np.asarray(self._tag_scores), np.asarray(self._tag_hits, bool))
        return compute_calibration(np.asarray(self._scores), self.best.exact)

    def groups_equal(self, other: "OutputCounts") -> bool:
        """Return whether the examples have the same groups as those of other counts.

        Args:
            other: The counts.
        """
        return list(self._group_numbers) == list(other._group_numbers) and self._groups == other._groups

    def tables(self, outcomes: OutcomeCounts) -> dict[str, OutcomeTable]:
        """Return the outcome table of each group by its name, in the order of first occurrence.

        Args:
            outcomes: Outcomes of the examples.
        """
        table, numbers = outcomes.table, np.asarray(self._groups)
        if len(self._group_numbers) == 1:
            return dict.fromkeys(self._group_numbers, table)
        return {name: table[numbers == number] for name, number in self._group_numbers.items()}

    def _add_tags(self, example: ScoredExample) -> None:
        """Add the tags of an output, if it has any."""
        self.has_tags = self.has_tags or bool(example.log_probabilities)
        if example.log_probabilities:
            tags = list(zip(example.log_probabilities, example.output, example.reference, strict=False))
            self._tag_scores.extend(log_probability for log_probability, _, _ in tags)
            self._tag_hits.extend(tag == reference for _, tag, reference in tags)


def first_right_rank(candidates: Sequence[ScoredExample]) -> int | None:
    """Return the rank, from 1, of the first correct output; None if there is none.

    Args:
        candidates: Outputs of an example, best first.
    """
    return next((rank for rank, output in enumerate(candidates, start=1) if output.exact), None)
