"""Assessment: the outputs of a run on some examples, with all their metrics."""

import math
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import islice
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from msgspec import Meta

from pellucid.argument_checks import check_arguments, check_lengths, check_not_empty
from pellucid.config.settings import MAX_BEAM_SIZE, MetricName
from pellucid.data.examples import Example
from pellucid.data.tokenizers import Tokenizers
from pellucid.decoding.trace import Trace, checked_outputs
from pellucid.errors import ArgumentError, InputError
from pellucid.evaluation.calibration import Calibration, compute_calibration, compute_error_by_chance
from pellucid.evaluation.confusion import SymbolConfusions
from pellucid.evaluation.custom_metrics import MetricScore, evaluated_examples, score_metric
from pellucid.evaluation.label_metrics import LabelMetrics
from pellucid.evaluation.metrics import (
    ConfidenceInterval,
    Evaluation,
    NonNegativeCount,
    OutcomeCounts,
    RowCounts,
    ScoredExample,
    TextScores,
    exclusively_right,
    first_exclusively_right,
    merge_rows,
    ratio_interval,
    score_texts,
    student_quantile,
    wilson_interval,
    worst_errors,
)
from pellucid.evaluation.outcomes import MeanRates, average_groups, rates_from_sums
from pellucid.evaluation.output_counts import AssessedOutput, OutputCounts, first_right_rank
from pellucid.evaluation.risk_control import AcceptedOutputs, join_accepted_outputs
from pellucid.evaluation.significance import (
    MeanDifference,
    RunComparison,
    compare_groups_of_pairs,
    compare_groups_of_runs,
)
from pellucid.evaluation.task_metrics import GroupScores, TaskMetrics
from pellucid.shapes import Int


@check_arguments
def score_traces(
    traces: Sequence[Trace], references: Sequence[Sequence[str]], tokenizers: Tokenizers
) -> list[ScoredExample]:
    """Return the output symbols of each trace, without EOS, with its references split into symbols.

    Positions at which the first reference has the ignored tag are left out of output and references.

    Args:
        traces: The traces.
        references: References of each trace, as texts.
        tokenizers: The tokenizers to split the references with; their `ignored_tag` is empty for no such tag.

    Raises:
        ArgumentError: The numbers of traces and references differ, or an argument or a field of a trace has the wrong
            type.
    """
    check_lengths({"traces": traces, "references": references})
    return [
        _score_trace(
            trace, tuple(tuple(tokenizers.target.split(text)) for text in texts), tokenizers.target.ignored_tag
        )
        for trace, texts in zip(checked_outputs(traces), references, strict=True)
    ]


def _score_trace(trace: Trace, references: tuple[tuple[str, ...], ...], ignored_tag: str) -> ScoredExample:
    """Return a trace and its references as symbols, without ignored positions."""
    output, length = trace.symbols, len(trace.source) - trace.num_features
    log_probabilities = tuple(trace.log_probabilities.tolist()) if trace.per_position else ()
    if ignored_tag and references:
        scored = [position for position, symbol in enumerate(references[0]) if symbol != ignored_tag]
        output, log_probabilities = (
            tuple(values[position] for position in scored if position < len(values))
            for values in (output, log_probabilities)
        )
        references = tuple(
            tuple(symbols[position] for position in scored if position < len(symbols)) for symbols in references
        )
    return ScoredExample(output, references, length, not trace.autoregressive, log_probabilities)


OutputCount = Annotated[int, Meta(ge=0, le=MAX_BEAM_SIZE)]
"""Number of outputs per example."""


class OracleAccuracy(NamedTuple):
    """Percentage of examples with a correct output among the first k."""

    k: int
    accuracy: float
    """Percentage."""
    ci95: ConfidenceInterval
    """Wilson interval, in percent."""


@check_arguments
def oracle_accuracy(candidates: Sequence[Sequence[ScoredExample]], count: OutputCount) -> list[OracleAccuracy]:
    """Return the oracle accuracy for k from 1 to `count`, with Wilson intervals.

    An example is correct at k if any of its first k outputs is a reference, also if it has fewer than k;
    transliteration reports this as k-best accuracy.

    Args:
        candidates: Outputs of each example, best first.
        count: Maximum of k, 0 to `MAX_BEAM_SIZE`.

    Raises:
        ArgumentError: There is no example, or an argument has the wrong type.
    """
    check_not_empty("candidates", candidates, "example")
    return _oracle_accuracy([_first_right_ranks(candidates)], count)


def _oracle_accuracy(ranks: Iterable[Int[np.ndarray, " _"]], count: int) -> list[OracleAccuracy]:
    """Return the oracle accuracy for k from 1 to `count`; the rank of the first correct output is 0 for none."""
    num_by_rank = np.zeros(count + 2, np.int64)
    for block in ranks:
        num_by_rank += np.bincount(np.minimum(block, count + 1), minlength=count + 2)
    total, num_correct = int(num_by_rank.sum()), np.cumsum(num_by_rank[1:-1]).tolist()
    return [
        OracleAccuracy(k, 100 * correct / total, wilson_interval(correct, total).percent)
        for k, correct in enumerate(num_correct, start=1)
    ]


@check_arguments
def mean_reciprocal_rank(candidates: Sequence[Sequence[ScoredExample]]) -> float:
    """Return the mean of 1 / (rank of the first correct output), 0 if none is correct; a fraction of 1.

    Args:
        candidates: Outputs of each example, best first.

    Raises:
        ArgumentError: There is no example, or an argument has the wrong type.

    References:
        Voorhees (1999), "The TREC-8 question answering track report"; a metric of the NEWS transliteration tasks.
    """
    check_not_empty("candidates", candidates, "example")
    return _mean_reciprocal_rank([_first_right_ranks(candidates)], len(candidates))


def _mean_reciprocal_rank(ranks: Iterable[Int[np.ndarray, " _"]], total: int) -> float:
    """Return the mean of 1 / rank, 0 for the rank 0, of `total` examples."""
    correct: Iterator[int] = (rank for block in ranks for rank in block[block > 0].tolist())
    return sum(1 / rank for rank in correct) / total


def _first_right_ranks(candidates: Sequence[Sequence[ScoredExample]]) -> Int[np.ndarray, " n"]:
    """Return the rank, from 1, of the first correct output of each example; 0 if there is none."""
    return np.array([first_right_rank(nbest) or 0 for nbest in candidates])


ERROR_RATE_KEYS = (
    "sequence_error_rate",
    "sequence_error_rate_ci95",
    "symbol_error_rate",
    "symbol_error_rate_ci95",
    "symbol_accuracy",
)
"""JSON keys of metrics for sequences only; for labels they would repeat the accuracy."""
BASELINE_KEYS = ("exact_match", "exact_match_ci95", *ERROR_RATE_KEYS[:-1])
"""JSON keys of the scores of the pair n-gram model alone."""


class DecodedExamples(NamedTuple):
    """Examples with references, groups and decoded outputs, all lists of the same length.

    `lines` and `ids` may be empty instead.
    """

    examples: list[Example]
    references: list[tuple[str, ...]]
    """Correct targets of each example."""
    groups: list[str]
    """Group of each example, such as its language; all equal without groups."""
    outputs: list[list[Trace]]
    """Outputs of each example, best first: one, or several for an n-best list."""
    lines: Sequence[int] = ()
    """Number of the line, from 1, of each example in its file; empty if they are unknown."""
    ids: Sequence[str] = ()
    """Cell of the column "id" of each example; empty if the file has no such column."""


@dataclass(frozen=True, eq=False)
class Assessment:
    """Outputs of a run compared with references; `assess_outputs` returns it. Metrics are computed on first access.

    Raises:
        InputError: On access to metrics, there is no example, an example has no reference, or, for tags and classes, no
            example has a label.
    """

    name: str
    """Name of the run."""
    counts: OutputCounts
    """Counts of all outputs, from which metrics are computed."""
    outputs: Mapping[int, AssessedOutput]
    """Kept outputs by the index of their example: all, or only those that are listed."""
    metrics: TaskMetrics
    """Metrics of the task."""
    characters: bool = False
    """True if symbols are characters."""
    ignored_tag: str = ""
    """Tag at positions that are not scored; empty if all are scored."""
    has_lines: bool = False
    """True if the lines of the examples in their file are known."""
    has_ids: bool = False
    """True if the file has a column "id"."""
    accepted: tuple[AcceptedOutputs, ...] = ()
    """Outputs that are accepted automatically under each bound; empty if the outputs have no confidence."""
    no_confidence_reason: str = ""
    """Why the outputs have no confidence; empty if they have one."""
    custom_metrics: tuple[MetricName, ...] = ()
    """Names of metrics of other packages that are computed too; they need all outputs."""
    baseline: OutcomeCounts | None = None
    """Outcomes of the pair n-gram model of the run alone on the same examples; None if the run has no such model."""

    @cached_property
    def scored(self) -> list[ScoredExample]:
        """Best output of each example with its references. All outputs must have been kept."""
        return [output.scored for output in self._all_outputs()]

    @cached_property
    def traces(self) -> list[Trace]:
        """Best output of each example as a trace. All outputs must have been kept."""
        return [output.trace for output in self._all_outputs()]

    @cached_property
    def evaluation(self) -> Evaluation:
        """Exact match, error rates, accuracy by position and by length, of the best outputs."""
        return self.counts.best.evaluation()

    @cached_property
    def pair_ngram_evaluation(self) -> Evaluation | None:
        """Exact match and error rates of the pair n-gram model alone; None without its outputs."""
        return None if self.baseline is None else self.baseline.evaluation()

    @cached_property
    def pair_ngram_mean(self) -> MeanRates | None:
        """Macro average of the pair n-gram model alone; None without its outputs, and if there is one group only."""
        if self.baseline is None or len(self.outcomes) < 2:
            return None
        return average_groups(list(self.counts.count_outcomes([self.baseline]).values()))

    @cached_property
    def label_metrics(self) -> LabelMetrics | None:
        """Metrics of tags, classes or positions; None for sequences."""
        return None if self.counts.labels is None else self.counts.labels.metrics()

    @cached_property
    def metric_scores(self) -> list[MetricScore]:
        """Values of the metrics of other packages, in the order of `custom_metrics`."""
        if not self.custom_metrics:
            return []
        references = [output.references for output in self._all_outputs()]
        examples = evaluated_examples(self.traces, references, self.scored)
        return [score_metric(name, examples) for name in self.custom_metrics]

    @cached_property
    def confusions(self) -> SymbolConfusions:
        """Counts of aligned symbols of the best outputs and their nearest references."""
        return SymbolConfusions(self.counts.confusions)

    @property
    def unit(self) -> Literal["outputs", "tags"]:
        """Unit whose probability `calibration` measures: "tags" for taggers, else whole "outputs"."""
        return "tags" if self.counts.has_tags else "outputs"

    @cached_property
    def calibration(self) -> Calibration | None:
        """Calibration of the probabilities of the best outputs, or of their tags; see `unit`. None before the first
        validation of the network."""
        return self.counts.calibration()

    @cached_property
    def num_with_confidence(self) -> int:
        """Number of examples whose best output has a confidence."""
        return sum(len(confidences) for confidences, _ in self.counts.confidences())

    @cached_property
    def confidence_calibration(self) -> Calibration | None:
        """Calibration of the confidences of the best outputs, also of whole taggings; None if none has one."""
        if not self.num_with_confidence:
            return None
        return compute_calibration(
            (np.fromiter(map(math.log, confidences), np.float64, len(confidences)), hits)
            for confidences, hits in self.counts.confidences()
        )

    @property
    def best_calibration(self) -> Calibration | None:
        """Calibration of the confidences if all best outputs have one, else that of the probabilities, if any."""
        confidence = self.confidence_calibration
        return (
            confidence if confidence is not None and self.num_with_confidence == len(self.counts) else self.calibration
        )

    @property
    def ranks_by_confidence(self) -> bool:
        """True if `best_calibration` is that of the confidences."""
        return self.best_calibration is not self.calibration

    @cached_property
    def calibration_error_by_chance(self) -> float:
        """Expected calibration error that perfectly calibrated confidences have by chance; 0 without confidences."""
        if not self.num_with_confidence:
            return 0.0
        return compute_error_by_chance(confidences for confidences, _ in self.counts.confidences())

    @cached_property
    def text_scores(self) -> TextScores | None:
        """Metrics of running texts (edits over words, BLEU, chrF); None unless requested."""
        return score_texts(self.counts.texts, self.counts.references) if self.counts.with_texts else None

    @cached_property
    def oracle(self) -> list[OracleAccuracy]:
        """Oracle accuracy for each k up to the longest n-best list; empty if each example has one output."""
        count = self.counts.max_outputs
        return _oracle_accuracy(self.counts.ranks(), count) if count > 1 else []

    @property
    def mean_reciprocal_rank(self) -> float:
        """Mean of 1 / (rank of the first correct output), 0 if none is correct; a fraction of 1."""
        return _mean_reciprocal_rank(self.counts.ranks(), len(self.counts))

    @cached_property
    def outcomes(self) -> dict[str, RowCounts]:
        """Distinct rows of the outcome table (`outcome_table`) of each group by its name, in the order of first
        occurrence."""
        return self.counts.count_outcomes([self.counts.best])

    @cached_property
    def groups(self) -> list[GroupScores]:
        """Scores of each group; empty if there is one group only."""
        several = len(self.outcomes) > 1
        return [_group_scores(name, outcomes) for name, outcomes in self.outcomes.items()] if several else []

    @cached_property
    def mean(self) -> MeanRates | None:
        """Macro average over groups; None if there is one group only."""
        return average_groups(list(self.outcomes.values())) if len(self.outcomes) > 1 else None

    @check_arguments
    def worst_examples(self, count: NonNegativeCount) -> list[int]:
        """Return the indices of the wrong outputs with the highest error rates, as `metrics.worst_examples`.

        Args:
            count: Maximum number of examples.
        """
        return self.counts.best.worst(count)

    def exclusively_right(self, other: "Assessment", count: int) -> list[int]:
        """Return the indices of examples that are correct in this run and wrong in another, most errors first.

        Args:
            other: Assessment of the other run, on the same examples.
            count: Maximum number of examples.
        """
        return first_exclusively_right(self.counts.best, other.counts.best, count)

    def error_record(self, index: int) -> dict[str, Any]:
        """Return an output as plain values for JSON: its place in the file, source, output, references, errors, score.

        Args:
            index: Index of the example, whose outputs must have been kept.

        Returns:
            Number of the line, or None if it is unknown, and the id if the file has them; source, features, output and
            references as texts, the number of errors (`ScoredExample.errors`), the log-probability of the output
            (`score`; null before the first validation of the network), its confidence (null for none), and the group.
        """
        return self.outputs[index].record()

    def _all_outputs(self) -> list[AssessedOutput]:
        """Return the outputs of all examples, which must have been kept."""
        return [self.outputs[index] for index in range(len(self.counts))]

    def to_dict(self) -> dict[str, Any]:
        """Return all metrics as plain values for JSON; those that do not apply are null, empty or left out."""
        mean = self.mean
        return {
            **self._scores(),
            "metrics": {score.name: score.to_dict() for score in self.metric_scores},
            "texts": self.text_scores.to_dict() if self.text_scores else None,
            "oracle": [{"k": row.k, "accuracy": row.accuracy, "ci95": list(row.ci95)} for row in self.oracle],
            "mean_reciprocal_rank": self.mean_reciprocal_rank if self.oracle else None,
            "groups": [{"group": row.group, "examples": row.examples, **self._rates(row)} for row in self.groups],
            "macro": self._rates(mean) if mean else None,
            "pair_ngram": self._pair_ngram_record(),
            "confusions": self.confusions.to_dict(),
            "calibration": None if self.calibration is None else {"of": self.unit, **self.calibration.to_dict()},
            "confidence": self._confidence_record(),
            "no_confidence_reason": self.no_confidence_reason or None,
        }

    def _pair_ngram_record(self) -> dict[str, Any] | None:
        """Return the scores of the pair n-gram model alone as plain values."""
        if self.pair_ngram_evaluation is None:
            return None
        scores, mean = self.pair_ngram_evaluation.to_dict(), self.pair_ngram_mean
        return {**{key: scores[key] for key in BASELINE_KEYS}, "macro": mean.to_dict() if mean else None}

    def _confidence_record(self) -> dict[str, Any] | None:
        """Return the calibration of the confidences, and the outputs that are accepted by them, as plain values."""
        if self.confidence_calibration is None:
            return None
        return {
            "outputs": self.num_with_confidence,
            **self.confidence_calibration.to_dict(),
            "calibration_error_by_chance": self.calibration_error_by_chance,
            "accepted": [accepted.to_dict() for accepted in self.accepted],
        }

    def main_rates(self) -> dict[str, float]:
        """Return the rates by which runs are compared, in percent, by JSON key; means over groups if there are any."""
        values = self._rates(self.mean) if self.mean else self._scores()
        return {key: values[key] for key, _ in self.metrics.compared_rates}

    def _scores(self) -> dict[str, Any]:
        """Return the metrics over all examples, error rates for sequences only."""
        scores = self.evaluation.to_dict()
        if self.label_metrics is None:
            return scores
        return {
            name: value for name, value in scores.items() if name not in ERROR_RATE_KEYS
        } | self.label_metrics.to_dict()

    def _rates(self, row: GroupScores | MeanRates) -> dict[str, Any]:
        """Return the rates of a group or of the macro average, with their intervals."""
        if self.label_metrics is None:
            return row.to_dict()
        rates = self.metrics.rates(row)
        return {rate.key: rate.value for rate in rates} | {f"{rate.key}_ci95": list(rate.interval) for rate in rates}


class AssessmentBuilder:
    """Builder of the assessment of a run whose outputs are decoded in blocks.

    Outputs are kept until `keep_listed` drops those that are not listed.
    """

    def __init__(
        self, name: str, tokenizers: Tokenizers, shared: Tokenizers, metrics: TaskMetrics, texts: bool = False
    ) -> None:
        """Begin without outputs; the arguments are those of `assess_outputs`.

        Args:
            name: Name of the run.
            tokenizers: Tokenizers of the run.
            shared: Tokenizers that define the symbols of the comparison.
            metrics: Metrics of the task.
            texts: Whether outputs are scored as texts too.
        """
        self.tokenizers, self.shared = tokenizers, shared
        self.counts, self.baseline = OutputCounts(metrics.labels, texts), OutcomeCounts()
        self.outputs = dict[int, AssessedOutput]()
        self.assessment = Assessment(
            name, self.counts, self.outputs, metrics, shared.target.kind == "characters", shared.target.ignored_tag
        )

    @check_arguments
    def add(self, decoded: DecodedExamples) -> list[AssessedOutput]:
        """Add examples with references and outputs.

        Args:
            decoded: The examples.

        Returns:
            Their outputs with the references.

        Raises:
            ArgumentError: The lists of `decoded` differ in length, an example has no output, or a value has the wrong
                type.
            InputError: An example has no reference.
        """
        optional = ("lines", "ids")
        check_lengths(
            {f"decoded.{name}": values for name, values in decoded._asdict().items() if values or name not in optional}
        )
        for index, traces in enumerate(decoded.outputs):
            check_not_empty(f"decoded.outputs[{index}]", traces, "output")
        missing = [None] * len(decoded.examples)
        candidates = list(self._score(decoded))
        lines, ids = decoded.lines or missing, decoded.ids or missing
        outputs = [
            AssessedOutput(
                example=example,
                references=decoded.references[index],
                group=decoded.groups[index],
                traces=decoded.outputs[index],
                candidates=candidates[index],
                line=lines[index],
                id=ids[index],
            )
            for index, example in enumerate(decoded.examples)
        ]
        self.outputs.update(enumerate(outputs, start=len(self.counts)))
        self.counts.add(outputs)
        self.assessment = replace(self.assessment, has_lines=bool(decoded.lines), has_ids=bool(decoded.ids))
        return outputs

    @check_arguments
    def add_baseline(self, scored: Sequence[ScoredExample]) -> None:
        """Add outputs of the pair n-gram model of the run alone.

        Args:
            scored: Outputs for the examples that were added last.
        """
        self.baseline.add(scored)

    def build(self) -> Assessment:
        """Return the assessment of all outputs that were added."""
        return replace(self.assessment, outputs=self.outputs, baseline=self.baseline if len(self.baseline) else None)

    def _score(self, decoded: DecodedExamples) -> Iterator[list[ScoredExample]]:
        """Yield the outputs of each example with its references as symbols."""
        flat = [trace for traces in decoded.outputs for trace in traces]
        references = [
            targets for targets, traces in zip(decoded.references, decoded.outputs, strict=True) for _ in traces
        ]
        scored = score_traces(flat, references, self.shared)
        if self.tokenizers.target != self.shared.target:
            scored = [
                example._replace(output=tuple(self.shared.target.split(trace.output)))
                for example, trace in zip(scored, flat, strict=True)
            ]
        remaining = iter(scored)
        for traces in decoded.outputs:
            yield list(islice(remaining, len(traces)))


def keep_listed(runs: Sequence[AssessmentBuilder], count: int) -> None:
    """Drop outputs that are on none of the lists of an evaluation so far: the worst, and those that one run has right.

    Args:
        runs: Compared runs, with outputs of the same examples.
        count: Maximum length of each list.
    """
    indices = np.array(sorted(runs[0].outputs))
    outcomes = [run.counts.best.take(indices) for run in runs]
    errors = [run_outcomes["errors"] for run_outcomes in outcomes]
    places = set[int]()
    for run_outcomes in outcomes:
        places.update(worst_errors(run_outcomes["errors"], run_outcomes["length"])[:count].tolist())
    for other_errors in errors[1:]:
        places.update(exclusively_right(errors[0], other_errors)[:count].tolist())
        places.update(exclusively_right(other_errors, errors[0])[:count].tolist())
    listed = indices[sorted(places)].tolist()
    for run in runs:
        run.outputs = {index: run.outputs[index] for index in listed}


@check_arguments
def assess_outputs(
    name: str,
    decoded: DecodedExamples,
    tokenizers: Tokenizers,
    shared: Tokenizers,
    metrics: TaskMetrics,
    texts: bool = False,
) -> Assessment:
    """Compare the outputs of a run with references.

    Args:
        name: Name of the run.
        decoded: Examples, references and outputs.
        tokenizers: Tokenizers of the run.
        shared: Tokenizers that define the symbols of the comparison, the same for all compared runs. If they split
            targets in another way than those of the run, outputs are joined and split again.
        metrics: Metrics of the task.
        texts: Score outputs as texts too (`text_scores`).

    Raises:
        ArgumentError: The lists of `decoded` differ in length, an example has no output, or an argument has the wrong
            type.
        InputError: An example has no reference.
    """
    builder = AssessmentBuilder(name, tokenizers, shared, metrics, texts)
    builder.add(decoded)
    return builder.build()


@check_arguments
def join_assessments(parts: Sequence[Assessment]) -> Assessment:
    """Return several assessments of one run, on different examples, as one.

    Args:
        parts: The assessments. Name, metrics and options are those of the first.

    Raises:
        ArgumentError: There is no assessment, or an item is not one.
    """
    check_not_empty("parts", parts, "assessment")
    if len(parts) == 1:
        return parts[0]
    counts = OutputCounts(parts[0].metrics.labels, parts[0].counts.with_texts)
    baseline, outputs = OutcomeCounts(), dict[int, AssessedOutput]()
    has_baseline, has_ids = all(part.baseline for part in parts), any(part.has_ids for part in parts)
    for part in parts:
        for index, output in part.outputs.items():
            outputs[len(counts) + index] = output._replace(id=output.id or "") if has_ids else output
        counts.extend(part.counts)
        if has_baseline and part.baseline is not None:
            baseline.extend(part.baseline)
    with_confidence = [part.accepted for part in parts if part.accepted]
    is_complete = len(with_confidence) == len(parts)  # the table is of all outputs, or there is none
    accepted = tuple(map(join_accepted_outputs, zip(*with_confidence, strict=True))) if is_complete else ()
    obstacle = next((part.no_confidence_reason for part in parts if part.no_confidence_reason), "")
    return replace(
        parts[0],
        counts=counts,
        outputs=outputs,
        has_lines=all(part.has_lines for part in parts),
        has_ids=has_ids,
        accepted=accepted,
        no_confidence_reason=obstacle,
        baseline=baseline if has_baseline else None,
    )


@check_arguments
def compare_runs(a: Assessment, b: Assessment) -> RunComparison:
    """Compare the best outputs of two runs on the same examples; rates are means over groups if there are several.

    Args:
        a: Assessment of the first run.
        b: Assessment of the other run.

    Raises:
        InputError: The groups of the examples differ, in number or in name, or an example has no reference.
        ArgumentError: An argument is not an assessment, or it has no example.
    """
    if not a.counts.groups_equal(b.counts):
        raise InputError("runs can be compared on the same examples only, but their groups of examples differ")
    pairs = a.counts.count_outcomes([a.counts.best, b.counts.best])
    return compare_groups_of_pairs(list(pairs.values()))._replace(metrics=a.metrics)


class ComparedAssessment(NamedTuple):
    """A run that the first run is compared with."""

    run: Assessment
    comparison: RunComparison
    """Comparison of the first run with this one."""


class GroupComparison(NamedTuple):
    """Mean rates of two groups of runs, such as several seeds of two configurations."""

    a: list[str]
    """Names of the runs of group A."""
    b: list[str]
    """Names of the runs of group B."""
    differences: dict[str, MeanDifference]
    """Differences by JSON key, most important first."""
    names: dict[str, str]
    """Display name of each rate by its JSON key."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"a": self.a, "b": self.b, **{key: value.to_dict() for key, value in self.differences.items()}}


@check_arguments
def compare_groups(a: Sequence[Assessment], b: Sequence[Assessment]) -> GroupComparison:
    """Compare the mean rates of two groups of runs on the same examples (`compare_means`).

    Args:
        a: Assessments of the runs of group A.
        b: Assessments of the runs of group B.

    Raises:
        InputError: The groups of the examples differ, in number or in name, or an example has no reference.
        ArgumentError: A group has no run, or an item is not an assessment.
    """
    if not a or not b:
        raise ArgumentError("a, b: expected an assessment or more in each group")
    if not all(run.counts.groups_equal(a[0].counts) for run in (*a, *b)):
        raise InputError("runs can be compared on the same examples only, but their groups of examples differ")
    outcomes = a[0].counts.count_outcomes([run.counts.best for run in (*a, *b)])
    exact, errors = compare_groups_of_runs(list(outcomes.values()), len(a))
    second = errors if a[0].metrics.has_error_rates else errors.complement
    keys = [key for key, _ in a[0].metrics.compared_rates]
    return GroupComparison(
        [run.name for run in a],
        [run.name for run in b],
        dict(zip(keys, (exact, second), strict=True)),
        dict(a[0].metrics.compared_rates),
    )


class RateStatistics(NamedTuple):
    """A rate of several runs that differ in their random seeds only."""

    key: str
    """JSON key."""
    name: str
    """Display name."""
    values: list[float]
    """Rate of each run in percent."""

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return statistics.fmean(self.values)

    @property
    def standard_deviation(self) -> float:
        """Standard deviation of the values, with n − 1 in the denominator, in percentage points."""
        return statistics.stdev(self.values)

    @property
    def interval(self) -> ConfidenceInterval:
        """95 % interval of the mean over seeds, in percent, by Student's t with n − 1 degrees of freedom.

        It is about other seeds on these examples, not about other examples.
        """
        count = len(self.values)
        margin = student_quantile(float(count - 1)) * self.standard_deviation / count**0.5
        return ConfidenceInterval(max(0.0, self.mean - margin), min(100.0, self.mean + margin))

    def to_dict(self) -> dict[str, Any]:
        """Return mean, standard deviation, interval of the mean and values for JSON."""
        return {
            "mean": self.mean,
            "standard_deviation": self.standard_deviation,
            "interval": list(self.interval),
            "values": self.values,
        }


class SeedRates(NamedTuple):
    """The main rates of several runs that differ in their random seeds only."""

    runs: list[str]
    """Names of the runs."""
    rates: list[RateStatistics]
    """Rates, most important first."""
    over_groups: bool = False
    """Whether the rates are means over groups of examples."""


@check_arguments
def rates_over_seeds(runs: Sequence[Assessment]) -> SeedRates:
    """Return the main rates of runs that differ in their random seeds only, and the sequence error rate.

    Rates are means over groups if there are several.

    Args:
        runs: Assessments of at least two runs on the same examples.

    Raises:
        ArgumentError: There are fewer than two assessments, or an item is not one.
    """
    if len(runs) < 2:
        raise ArgumentError(f"runs: expected two assessments or more, got {len(runs)}")
    rates = [run.main_rates() for run in runs]
    statistics_of_rates = [
        RateStatistics(key, name, [run_rates[key] for run_rates in rates])
        for key, name in runs[0].metrics.compared_rates
    ]
    if runs[0].metrics.has_error_rates:
        exact = statistics_of_rates[0]
        wrong = RateStatistics("sequence_error_rate", "sequence error rate", [100 - value for value in exact.values])
        statistics_of_rates.insert(1, wrong)
    return SeedRates([run.name for run in runs], statistics_of_rates, runs[0].mean is not None)


def _group_scores(name: str, outcomes: RowCounts) -> GroupScores:
    """Return the scores of one group."""
    total, sums = outcomes.total, outcomes.sums
    exact, errors = rates_from_sums(sums, total).tolist()
    interval = ratio_interval(merge_rows(outcomes.rows[:, 1:], outcomes.counts)).percent
    return GroupScores(name, total, exact, wilson_interval(total - int(sums[0]), total).percent, errors, interval)
