"""Statistics over all examples: scores, confusions, attention."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from pellucid.decoding.predictor import Predictor
from pellucid.decoding.trace import Trace
from pellucid.decoding.trace_schema import EncodedArray, encode_array
from pellucid.errors import InputError
from pellucid.evaluation.alignment import (
    GoldSpans,
    attending_rows,
    count_jumps,
    mean_attention_map,
    row_entropy,
    summarize_attention,
)
from pellucid.evaluation.assessment import Assessment, DecodedExamples, assess_outputs
from pellucid.evaluation.confusion import SymbolPair, pair_symbols
from pellucid.evaluation.label_metrics import LabelMetrics
from pellucid.evaluation.metrics import GroupAccuracy, ScoredExample
from pellucid.inspection.permutation import permute_attention
from pellucid.inspection.score_decomposition import decompose_scores
from pellucid.inspection.state_space import conicity
from pellucid.inspection.states import trace_states
from pellucid.tasks.registry import get_task
from pellucid.viewer.inputs import ViewedFile, ViewedRun, sample_with_ends
from pellucid.viewer.schema import AccuracyInterval, ConfusionCount, CorpusStatistics, Histogram, Statistic

STATE_SAMPLE_SIZE, PERMUTATION_SAMPLE_SIZE = 200, 20
"""Number of outputs for statistics of states, and for permutation tests."""
MAX_PERMUTED_LENGTH = 200
"""Maximum source length for permutation tests."""
ENTROPY_BIN_BITS = 0.25
"""Bin width of the entropy histogram."""
MAX_JUMP = 10
"""Larger jumps share the outermost bins."""

SINGLE_STEP_STATISTICS = ("entropy", "relative entropy")
"""Statistics that apply to outputs of a single step."""


class AttentionStatistics(NamedTuple):
    """Statistics of the attention weights of the outputs for a file."""

    statistics: list[Statistic]
    distributions: list[Histogram]
    """Histograms of entropy and, for outputs of several steps, of jumps."""
    mean: EncodedArray | None
    """Mean weights on a grid of tenths; None if there are none."""


def attention_statistics(
    predictor: Predictor, traces: Sequence[Trace], gold_alignments: Sequence[GoldSpans | None], supports_states: bool
) -> AttentionStatistics:
    """Compute statistics of the attention weights of all outputs for a file.

    Args:
        predictor: Model of the outputs.
        traces: Outputs of all examples; those without attention weights, and those with tags, are left out.
        gold_alignments: Gold alignment of each output; None where it is unknown.
        supports_states: Whether to add statistics that decode again or inspect states (`ViewedRun.supports_states`):
            conicity, effect of permuted weights, decomposition of scores, each on a sample.

    Returns:
        Statistics, histograms and mean attention. For outputs of a single step, only entropies; empty without attention
        weights.
    """
    pairs = zip(traces, gold_alignments, strict=True)
    attending = [(trace, spans) for trace, spans in pairs if trace.attention.any() and not _has_tags(trace)]
    attending_traces = [trace for trace, _ in attending]
    if not attending_traces:
        return AttentionStatistics([], [], None)
    statistics = [
        Statistic(**statistic._asdict())
        for statistic in summarize_attention(attending_traces, [spans for _, spans in attending])
    ]
    if not attending_traces[0].autoregressive:
        return AttentionStatistics(
            [statistic for statistic in statistics if statistic.name in SINGLE_STEP_STATISTICS],
            [_entropy_histogram(attending_traces)],
            None,
        )
    statistics += _model_statistics(predictor, attending_traces) if supports_states else []
    mean = mean_attention_map(attending_traces)
    return AttentionStatistics(
        statistics,
        [_entropy_histogram(attending_traces), _distortion_histogram(attending_traces)],
        None if mean is None else encode_array(mean),
    )


def _has_tags(trace: Trace) -> bool:
    """Return whether an output consists of tags, or of a class and tags; tags have no attention weights."""
    return trace.per_position or trace.class_first


def _model_statistics(predictor: Predictor, traces: Sequence[Trace]) -> list[Statistic]:
    """Return statistics that require the model, on a sample of its outputs; unsupported ones are omitted."""
    sample = [traces[index] for index in sample_with_ends(range(len(traces)), STATE_SAMPLE_SIZE)]
    statistics = list[Statistic]()
    for measure in (_conicity_statistics, _permutation_statistics, _decomposition_statistics):
        statistics += _measure_if_supported(measure, predictor, sample)
    return statistics


def _measure_if_supported(
    measure: Callable[[Predictor, Sequence[Trace]], list[Statistic]], predictor: Predictor, sample: Sequence[Trace]
) -> list[Statistic]:
    """Return a measurement, or nothing if the model does not support it."""
    try:
        return measure(predictor, sample)
    except InputError:
        return []


def _conicity_statistics(predictor: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Return the conicity of the encoder states."""
    values = [conicity(states.encoder) for states in trace_states(predictor, sample) if len(states.encoder)]
    definition = (
        "Mean cosine of the encoder states of a source with their mean (Mohankumar et al. 2020). Near 1, states are "
        f"interchangeable for attention. Over {len(values):,} sources."
    )
    return [_statistic("conicity", float(np.mean(values)), "cosine", definition)] if values else []


def _permutation_statistics(predictor: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Return the effect of permuted attention weights on the output distributions."""
    permutable = [trace for trace in sample if 1 < len(trace.source) <= MAX_PERMUTED_LENGTH]
    has_long_sources = any(len(trace.source) > MAX_PERMUTED_LENGTH for trace in sample)
    if has_long_sources and not permutable:
        return [
            _statistic(
                "permutation effect",
                None,
                "fraction",
                f"Not computed: sources of more than {MAX_PERMUTED_LENGTH} symbols.",
            )
        ]
    sampled = [permutable[index] for index in sample_with_ends(range(len(permutable)), PERMUTATION_SAMPLE_SIZE)]
    changes = list(chain.from_iterable(permute_attention(predictor, trace).change.tolist() for trace in sampled))
    note = f", none of more than {MAX_PERMUTED_LENGTH} source symbols" if has_long_sources else ""
    definition = (
        "Mean over steps of the median total variation distance between the output distributions before and after a "
        "permutation of the attention weights (Jain & Wallace 2019). Near 0, the weights do not explain the output. "
        f"Over {len(sampled)} outputs{note}."
    )
    return [_statistic("permutation effect", float(np.mean(changes)), "fraction", definition)] if changes else []


def _decomposition_statistics(predictor: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Return the decomposition of the attention scores; a part may be below zero and another above one."""
    parts = decompose_scores(predictor, sample)
    method = (
        "as its covariance with the attention scores of a step, divided by their variance (Aitken et al. 2021). The "
        "three components sum to one; a component may be below zero, and others above one. "
        f"Over {len(sample):,} outputs."
    )
    return [
        _statistic(
            "temporal component",
            parts.temporal,
            "of variance",
            f"Share of the positions in source and output, {method}",
        ),
        _statistic(
            "input-driven component",
            parts.input_driven,
            "of variance",
            "Share that the symbols add to the temporal component.",
        ),
        _statistic("residual", parts.residual, "of variance", "Remaining share: context."),
    ]


def _statistic(name: str, value: float | None, unit: str, definition: str) -> Statistic:
    """Return a statistic without an interval; the definition of a missing value says why it was not computed."""
    return Statistic(name=name, value=value, unit=unit, low=None, high=None, definition=definition)


def _entropy_histogram(traces: Sequence[Trace]) -> Histogram:
    """Return the histogram of attention entropies."""
    bits = np.concatenate([row_entropy(attending_rows(trace.attention)) for trace in traces])
    counts = np.bincount((bits / ENTROPY_BIN_BITS).astype(int))
    return Histogram(
        name="entropy",
        labels=[
            f"{ENTROPY_BIN_BITS * bin_index:g}–{ENTROPY_BIN_BITS * (bin_index + 1):g}"
            for bin_index in range(len(counts))
        ],
        counts=counts.tolist(),
        definition="Entropy of the attention weights of each step, in bits; 0: all weight on one position.",
    )


def _distortion_histogram(traces: Sequence[Trace]) -> Histogram:
    """Return the histogram of attention jumps."""
    counts: Counter[int] = Counter()
    for distance, times in count_jumps(traces).items():
        counts[max(-MAX_JUMP, min(MAX_JUMP, distance))] += times
    jumps = range(min(counts, default=0), max(counts, default=0) + 1)
    signs = {-MAX_JUMP: f"≤ −{MAX_JUMP}", MAX_JUMP: f"≥ {MAX_JUMP}"}
    return Histogram(
        name="distortion",
        labels=[signs.get(jump, f"{jump}".replace("-", "−")) for jump in jumps],
        counts=[counts[jump] for jump in jumps],
        definition="Distance between the positions of the maximum weight of consecutive steps (Brown et al. 1993).",
    )


MAX_LINKED_EXAMPLES = 200
"""Maximum number of examples that a mark of a chart links to."""
MAX_CONFUSIONS = 400
"""Maximum number of listed confusions."""

PageIndices = Mapping[int, int]
"""Indices of the shown examples on the page, by their index in the file."""


def assess_run(model: ViewedRun, sources: ViewedFile, traces: Sequence[Trace]) -> Assessment:
    """Score the outputs of a run for a file with targets.

    Args:
        model: Run of the outputs, which has a model.
        sources: Examples with references.
        traces: Best output of each example, in order.

    Returns:
        Outputs, references and metrics of the whole file, as one group.

    Raises:
        RunError: The run has no model yet.
    """
    tokenizers, references = model.loaded_predictor.tokenizers, [metadata.references for metadata in sources.metadata]
    decoded = DecodedExamples(sources.examples, references, [""] * len(traces), [[trace] for trace in traces])
    return assess_outputs(
        model.name, decoded, tokenizers, tokenizers, get_task(model.loaded_predictor.config.task).metrics
    )


def corpus_statistics(
    assessment: Assessment, page_indices: PageIndices, attention: AttentionStatistics
) -> CorpusStatistics:
    """Return the data of the page's corpus tab: scores, accuracies, confusions and attention statistics of a file.

    Args:
        assessment: Assessment of all examples of the file.
        page_indices: Indices of the shown examples on the page, by their index in the file; statistics link to them.
        attention: Attention statistics of the same outputs.
    """
    positions, lengths = accuracy_intervals(assessment, page_indices)
    return CorpusStatistics(
        num_examples=len(assessment.scored),
        scores=score_statistics(assessment),
        positions=positions,
        lengths=lengths,
        confusions=_confusion_counts(assessment, page_indices),
        alignment=attention.statistics,
        distributions=attention.distributions,
        mean_attention=attention.mean,
    )


def accuracy_intervals(
    assessment: Assessment, page_indices: PageIndices
) -> tuple[list[AccuracyInterval], list[AccuracyInterval]]:
    """Return the accuracies by target position and by source length, each with the shown examples that are wrong.

    Args:
        assessment: Assessment of all examples of the file.
        page_indices: Indices of the shown examples on the page, by their index in the file.

    Returns:
        Accuracy of symbols at each position, and accuracy of outputs for each length or range of lengths.
    """
    scored, evaluation = assessment.scored, assessment.evaluation
    positions = [
        _position_accuracy(accuracy, position, scored, page_indices)
        for position, accuracy in enumerate(evaluation.positions)
    ]
    return positions, [_length_accuracy(accuracy, scored, page_indices) for accuracy in evaluation.lengths]


def score_statistics(assessment: Assessment) -> list[Statistic]:
    """Return the main scores of an assessment: exact match and error rates, or metrics of labels, as the task has them.

    Args:
        assessment: Assessment of all examples.

    Returns:
        Scores with definitions, and with 95 % intervals where there are any.
    """
    evaluation, label_metrics = assessment.evaluation, assessment.label_metrics
    if label_metrics is not None:
        return _label_score_statistics(label_metrics)
    exact, errors = evaluation.exact_match_ci95, evaluation.symbol_error_rate_ci95
    rows: list[tuple[str, float, float | None, float | None, str]] = [
        ("exact match", evaluation.exact_match, *exact, "Share of outputs equal to a reference (Wilson interval)."),
        (
            "symbol error rate",
            evaluation.symbol_error_rate,
            *errors,
            "Edit distance to the nearest reference, divided by its length "
            "(Levenshtein 1966; bootstrap interval over examples).",
        ),
        (
            "symbol accuracy",
            evaluation.symbol_accuracy,
            None,
            None,
            "Share of target positions with the correct symbol, including the end symbol.",
        ),
    ]
    return [
        Statistic(name=name, value=value, unit="%", low=low, high=high, definition=definition)
        for name, value, low, high, definition in rows
    ]


def _label_score_statistics(metrics: LabelMetrics) -> list[Statistic]:
    """Return the main scores of tags, classes or positions."""
    accuracy_interval, spans = metrics.accuracy_ci95, metrics.spans
    rows: list[tuple[str, float | None, str, tuple[float, float] | None, str]] = [
        ("accuracy", metrics.accuracy, "%", accuracy_interval, "Share of correct labels; for tags, over positions."),
        *(
            (f"{prefix}accuracy".replace("_", " "), part.accuracy, "%", part.accuracy_ci95, "Share of correct ones.")
            for prefix, part in metrics.parts.items()
        ),
        (
            "top-3 accuracy",
            metrics.top_k_accuracy,
            "%",
            metrics.top_k_ci95,
            "Share of examples whose position is among the 3 most probable.",
        ),
        ("macro F1", metrics.macro_f1, "%", None, "Unweighted mean of the F1 scores of all labels."),
        (
            "MCC",
            metrics.mcc,
            "",
            None,
            "Matthews correlation coefficient of expected and predicted labels (Gorodkin 2004).",
        ),
        (
            "span F1",
            *((spans.f1, "%", spans.f1_ci95) if spans else (None, "%", None)),
            "F1 score of BIO spans, as in conlleval.",
        ),
    ]
    return [
        Statistic(
            name=name,
            value=value,
            unit=unit,
            low=interval[0] if interval else None,
            high=interval[1] if interval else None,
            definition=definition,
        )
        for name, value, unit, interval, definition in rows
        if value is not None
    ]


def _accuracy_interval(
    accuracy: GroupAccuracy,
    scored: Sequence[ScoredExample],
    page_indices: PageIndices,
    is_wrong: Callable[[ScoredExample], bool],
) -> AccuracyInterval:
    """Return an accuracy, with the shown examples that are wrong in its group."""
    examples = [page_index for file_index, page_index in page_indices.items() if is_wrong(scored[file_index])]
    return AccuracyInterval(
        label=accuracy.label,
        correct=accuracy.right,
        total=accuracy.total,
        low=accuracy.low,
        high=accuracy.high,
        example_indices=sorted(examples)[:MAX_LINKED_EXAMPLES],
    )


def _position_accuracy(
    accuracy: GroupAccuracy, position: int, scored: Sequence[ScoredExample], page_indices: PageIndices
) -> AccuracyInterval:
    """Return the accuracy at one target position, counted from 0; the end symbol follows the last position."""

    def wrong(example: ScoredExample) -> bool:
        """Return whether an output is wrong at the position.

        Args:
            example: Scored output.
        """
        reference, output = example.reference, example.output
        if position > len(reference):
            return False
        if position == len(reference):
            return len(output) != position
        return position >= len(output) or output[position] != reference[position]

    return _accuracy_interval(accuracy, scored, page_indices, wrong)


def _length_accuracy(
    accuracy: GroupAccuracy, scored: Sequence[ScoredExample], page_indices: PageIndices
) -> AccuracyInterval:
    """Return the accuracy for a range of source lengths, which its label names: "3" or "4–5"."""
    low, _, high = accuracy.label.partition("–")
    lengths = range(int(low), int(high or low) + 1)
    return _accuracy_interval(
        accuracy, scored, page_indices, lambda example: example.source_length in lengths and not example.exact
    )


def _confusion_counts(assessment: Assessment, page_indices: PageIndices) -> list[ConfusionCount]:
    """Return the most frequent errors, each with the shown examples that contain it."""
    examples_by_pair: dict[SymbolPair, list[int]] = {}
    for file_index, page_index in page_indices.items():
        each = assessment.scored[file_index]
        if not each.exact:
            for pair in set(pair_symbols(each)):
                examples_by_pair.setdefault(pair, []).append(page_index)
    return [
        ConfusionCount(
            expected=each.expected,
            predicted=each.predicted,
            count=each.count,
            num_expected=each.num_expected,
            example_indices=sorted(examples_by_pair.get((each.expected, each.predicted), []))[:MAX_LINKED_EXAMPLES],
        )
        for each in assessment.confusions.errors[:MAX_CONFUSIONS]
    ]
