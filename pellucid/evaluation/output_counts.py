"""Counts of the outputs of a run, from which an assessment computes its metrics without the outputs themselves."""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from pellucid.data.examples import Example
from pellucid.decoding.trace import Trace
from pellucid.evaluation.calibration import Calibration, compute_calibration
from pellucid.evaluation.confusion import SymbolPair, add_confusions
from pellucid.evaluation.label_metrics import LabelCounter
from pellucid.evaluation.metrics import OutcomeCounts, RowCounts, ScoredExample, count_rows
from pellucid.row_file import RowFile
from pellucid.shapes import Bool, Float, Int

OUTPUT_TYPE = np.dtype([("score", np.float64), ("confidence", np.float64), ("rank", np.int32), ("group", np.int32)])
"""Type of the numbers of an output: its log-probability, its confidence (NaN for none), the rank, from 1, of the first
correct output of its example (0 for none), and the number of the group of the example."""
TAG_TYPE = np.dtype([("score", np.float64), ("hit", np.bool_)])
"""Type of the numbers of a tag: its log-probability, and whether it is correct."""


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
            "log_probability": self.trace.score if self.trace.has_trained_network else None,
            "confidence": self.trace.confidence,
            "group": self.group,
        }


class OutputCounts:
    """Counts and probabilities of the outputs of a run: 36 bytes for each example, and 9 bytes for each tag.

    Outputs are added in blocks; metrics do not depend on the sizes of the blocks. The numbers of many outputs are in
    temporary files (`RowFile`), which are read in blocks: memory does not grow with the outputs. Texts are kept for
    metrics of running text only; these are in memory.
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
        self._rows, self._tags, self._group_numbers = RowFile(OUTPUT_TYPE), RowFile(TAG_TYPE), dict[str, int]()

    def __len__(self) -> int:
        """Return the number of examples."""
        return len(self.best)

    def add(self, outputs: Sequence[AssessedOutput]) -> None:
        """Add outputs.

        Args:
            outputs: Outputs of examples.

        Raises:
            InputError: An example has no reference.
            RunError: A temporary file cannot be written.
        """
        scored = [output.scored for output in outputs]
        self.best.add(scored)
        add_confusions(self.confusions, scored)
        if self.labels is not None:
            self.labels.add(scored, [output.trace for output in outputs])
        self.has_trained_network &= all(output.trace.has_trained_network for output in outputs)
        confidences = (output.trace.confidence for output in outputs)
        self._rows.extend(
            [output.trace.score for output in outputs],
            [math.nan if confidence is None else confidence for confidence in confidences],
            [first_right_rank(output.candidates) or 0 for output in outputs],
            [self._group_numbers.setdefault(output.group, len(self._group_numbers)) for output in outputs],
        )
        self.max_outputs = max([self.max_outputs, *(len(output.traces) for output in outputs)])
        self._add_tags(scored)
        if self.with_texts:
            self.texts += [output.trace.output for output in outputs]
            self.references += [output.references for output in outputs]

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
        numbers = np.array(
            [self._group_numbers.setdefault(name, len(self._group_numbers)) for name in other._group_numbers], np.int32
        )
        for block in other._rows.blocks():
            self._rows.extend(block["score"], block["confidence"], block["rank"], numbers[block["group"]])
        for block in other._tags.blocks():
            self._tags.extend_rows(block)

    def ranks(self) -> Iterator[Int[np.ndarray, " _"]]:
        """Yield, in blocks, the rank, from 1, of the first correct output of each example; 0 if there is none."""
        for block in self._rows.blocks():
            yield block["rank"]

    def confidences(self) -> Iterator[tuple[Float[np.ndarray, " m"], Bool[np.ndarray, " m"]]]:
        """Yield, in blocks, the confidence of each best output that has one, and whether the output is correct."""
        for block, outcomes in zip(self._rows.blocks(), self.best.blocks(), strict=True):
            has_confidence = ~np.isnan(block["confidence"])
            yield block["confidence"][has_confidence], outcomes["errors"][has_confidence] == 0

    def calibration(self) -> Calibration | None:
        """Return the calibration of the probabilities of the best outputs, or of their tags if there are any; None
        before the first validation of the network."""
        if not self.has_trained_network:
            return None
        if self.has_tags:
            return compute_calibration((block["score"], block["hit"]) for block in self._tags.blocks())
        return compute_calibration(
            (block["score"], outcomes["errors"] == 0)
            for block, outcomes in zip(self._rows.blocks(), self.best.blocks(), strict=True)
        )

    def groups_equal(self, other: "OutputCounts") -> bool:
        """Return whether the examples have the same groups as those of other counts.

        Args:
            other: The counts.
        """
        return (
            list(self._group_numbers) == list(other._group_numbers)
            and len(self) == len(other)
            and all(
                np.array_equal(block["group"], other_block["group"])
                for block, other_block in zip(self._rows.blocks(), other._rows.blocks(), strict=True)
            )
        )

    def count_outcomes(self, runs: Sequence[OutcomeCounts]) -> dict[str, RowCounts]:
        """Return the distinct rows of the outcome tables of some runs side by side, of each group by its name.

        Args:
            runs: Outcomes of these examples in each run.

        Returns:
            The groups in the order of their first examples; three columns for each run.
        """
        blocks = zip(self._rows.blocks(), *(run.tables() for run in runs), strict=True)
        rows, counts = count_rows(np.column_stack([block["group"], *tables]) for block, *tables in blocks)
        ends = np.searchsorted(rows[:, 0], np.arange(len(self._group_numbers) + 1))
        return {
            name: RowCounts(rows[ends[number] : ends[number + 1], 1:], counts[ends[number] : ends[number + 1]])
            for name, number in self._group_numbers.items()
        }

    def _add_tags(self, scored: Sequence[ScoredExample]) -> None:
        """Add the tags of outputs that have any."""
        tags = [
            (log_probability, tag == reference)
            for example in scored
            if example.log_probabilities
            for log_probability, tag, reference in zip(
                *(example.log_probabilities, example.output, example.reference), strict=False
            )
        ]
        self.has_tags = self.has_tags or any(example.log_probabilities for example in scored)
        if tags:
            self._tags.extend(*zip(*tags, strict=True))


def first_right_rank(candidates: Sequence[ScoredExample]) -> int | None:
    """Return the rank, from 1, of the first correct output; None if there is none.

    Args:
        candidates: Outputs of an example, best first.
    """
    return next((rank for rank, output in enumerate(candidates, start=1) if output.exact), None)
