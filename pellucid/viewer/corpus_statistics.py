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
from pellucid.tasks.registry import configured_task
from pellucid.viewer.inputs import ViewedFile, ViewedRun, sample_evenly
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
    """Statistics of the attention weights of a corpus."""

    statistics: list[Statistic]
    distributions: list[Histogram]
    mean: EncodedArray | None


def attention_statistics(
    predictor: Predictor, traces: Sequence[Trace], truth: Sequence[GoldSpans | None], alone: bool
) -> AttentionStatistics:
    """Compute statistics of attention weights over a corpus.

    Args:
        predictor: Model of the outputs.
        traces: Outputs of all examples.
        truth: Gold alignment of each output, where it is known.
        alone: Whether the states of the model can be inspected.

    Returns:
        Statistics, histograms and mean attention; empty for a model without attention.
    """
    pairs = zip(traces, truth, strict=True)
    told = [(trace, own) for trace, own in pairs if trace.attention.any() and not trace.per_position]
    looked = [trace for trace, _ in told]
    if not looked:
        return AttentionStatistics([], [], None)
    found = [Statistic(**each._asdict()) for each in summarize_attention(looked, [own for _, own in told])]
    if not looked[0].autoregressive:
        return AttentionStatistics(
            [each for each in found if each.name in SINGLE_STEP_STATISTICS], [_entropy_histogram(looked)], None
        )
    found += _model_statistics(predictor, looked) if alone else []
    mean = mean_attention_map(looked)
    return AttentionStatistics(
        found, [_entropy_histogram(looked), _distortion_histogram(looked)], None if mean is None else encode_array(mean)
    )


def _model_statistics(predictor: Predictor, traces: Sequence[Trace]) -> list[Statistic]:
    """Return statistics that require the model, on a sample of its outputs; unsupported ones are omitted."""
    sample = [traces[at] for at in sample_evenly(range(len(traces)), STATE_SAMPLE_SIZE)]
    found = list[Statistic]()
    for each in (_conicity_statistics, _permutation_statistics, _decomposition_statistics):
        found += _measure_if_supported(each, predictor, sample)
    return found


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
    values = [conicity(each.encoder) for each in trace_states(predictor, sample) if len(each.encoder)]
    words = (
        "Mean cosine of the encoder states of a source with their mean (Mohankumar et al. 2020). Near 1, states are "
        f"interchangeable for attention. Over {len(values):,} sources."
    )
    return [_statistic("conicity", float(np.mean(values)), "cosine", words)] if values else []


def _permutation_statistics(predictor: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Return the effect of permuted attention weights on the output distributions."""
    short = [trace for trace in sample if 1 < len(trace.source) <= MAX_PERMUTED_LENGTH]
    long = any(len(trace.source) > MAX_PERMUTED_LENGTH for trace in sample)
    if long and not short:
        return [
            _statistic(
                "permutation effect",
                None,
                "share",
                f"Not computed: sources of more than {MAX_PERMUTED_LENGTH} symbols.",
            )
        ]
    picked = [short[at] for at in sample_evenly(range(len(short)), PERMUTATION_SAMPLE_SIZE)]
    changes = list(chain.from_iterable(permute_attention(predictor, trace).change.tolist() for trace in picked))
    words = (
        "Mean over steps of the median total variation distance between the output distributions before and after a "
        "permutation of the attention weights (Jain & Wallace 2019). Near 0, the weights do not explain the output. "
        f"Over {len(picked)} outputs{f', none of more than {MAX_PERMUTED_LENGTH} source symbols' if long else ''}."
    )
    return [_statistic("permutation effect", float(np.mean(changes)), "share", words)] if changes else []


def _decomposition_statistics(predictor: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Return the decomposition of the attention scores; a part may be below zero and another above one."""
    parts = decompose_scores(predictor, sample)
    whole = (
        "as its covariance with the attention scores of a step, divided by their variance (Aitken et al. 2021). The "
        "three components sum to one; a component may be below zero, and others above one. "
        f"Over {len(sample):,} outputs."
    )
    return [
        _statistic(
            "temporal component", parts.temporal, "of variance", f"Share of the positions in source and output, {whole}"
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
        labels=[f"{ENTROPY_BIN_BITS * at:g}–{ENTROPY_BIN_BITS * (at + 1):g}" for at in range(len(counts))],
        counts=counts.tolist(),
        definition="Entropy of the attention weights of each step, in bits; 0: all weight on one position.",
    )


def _distortion_histogram(traces: Sequence[Trace]) -> Histogram:
    """Return the histogram of attention jumps."""
    counts: Counter[int] = Counter()
    for jump, times in count_jumps(traces).items():
        counts[max(-MAX_JUMP, min(MAX_JUMP, jump))] += times
    places = range(min(counts, default=0), max(counts, default=0) + 1)
    signs = {-MAX_JUMP: f"≤ −{MAX_JUMP}", MAX_JUMP: f"≥ {MAX_JUMP}"}
    return Histogram(
        name="distortion",
        labels=[signs.get(at, f"{at}".replace("-", "−")) for at in places],
        counts=[counts[at] for at in places],
        definition="Distance between the positions of the maximum weight of consecutive steps (Brown et al. 1993).",
    )


MAX_LINKED_EXAMPLES = 200
"""Maximum number of examples that a mark of a chart links to."""
MAX_CONFUSIONS = 400
"""Maximum number of listed confusions."""

ExamplePlaces = Mapping[int, int]
"""Places of the shown examples by their index in the file."""


def assess_run(model: ViewedRun, sources: ViewedFile, traces: Sequence[Trace]) -> Assessment:
    """Score the outputs of a file with targets.

    Args:
        model: Run of the outputs.
        sources: Examples with references.
        traces: Outputs.

    Returns:
        Assessment.
    """
    cut, references = model.loaded_predictor.tokenizers, [known.references for known in sources.metadata]
    answered = DecodedExamples(sources.examples, references, [""] * len(traces), [[trace] for trace in traces])
    return assess_outputs(model.name, answered, cut, cut, configured_task(model.loaded_predictor.config).metrics)


def corpus_statistics(assessment: Assessment, places: ExamplePlaces, found: AttentionStatistics) -> CorpusStatistics:
    """Return the statistics of the corpus tab.

    Args:
        assessment: Assessment of all examples.
        places: Places of the shown examples by their index in the file.
        found: Attention statistics.

    Returns:
        Statistics of the corpus.
    """
    positions, lengths = accuracy_intervals(assessment, places)
    return CorpusStatistics(
        num_examples=len(assessment.scored),
        scores=score_statistics(assessment),
        positions=positions,
        lengths=lengths,
        confusions=_confusion_counts(assessment, places),
        alignment=found.statistics,
        distributions=found.distributions,
        mean_attention=found.mean,
    )


def accuracy_intervals(
    assessment: Assessment, places: ExamplePlaces
) -> tuple[list[AccuracyInterval], list[AccuracyInterval]]:
    """Return accuracies by target position and by source length.

    Args:
        assessment: Assessment of all examples.
        places: Places of the shown examples by their index in the file.

    Returns:
        Accuracies by position, accuracies by length.
    """
    scored, evaluation = assessment.scored, assessment.evaluation
    positions = [_position_accuracy(each, at, scored, places) for at, each in enumerate(evaluation.positions)]
    return positions, [_length_accuracy(each, scored, places) for each in evaluation.lengths]


def score_statistics(assessment: Assessment) -> list[Statistic]:
    """Return the main scores of an assessment.

    Args:
        assessment: Assessment of all examples.

    Returns:
        Scores with 95 % intervals.
    """
    evaluation, labelled = assessment.evaluation, assessment.label_metrics
    if labelled is not None:
        return _label_score_statistics(labelled)
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


def _label_score_statistics(labelled: LabelMetrics) -> list[Statistic]:
    """Return the main scores of tags, classes or positions."""
    own, spans = labelled.accuracy_ci95, labelled.spans
    rows: list[tuple[str, float | None, str, tuple[float, float] | None, str]] = [
        ("accuracy", labelled.accuracy, "%", own, "Share of correct labels; for tags, over positions."),
        (
            "top-3 accuracy",
            labelled.top_k_accuracy,
            "%",
            labelled.top_k_ci95,
            "Share of examples whose position is among the 3 most probable.",
        ),
        ("macro F1", labelled.macro_f1, "%", None, "Unweighted mean of the F1 scores of all labels."),
        (
            "MCC",
            labelled.mcc,
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
    places: ExamplePlaces,
    wrong: Callable[[ScoredExample], bool],
) -> AccuracyInterval:
    """Return an accuracy, with the shown examples that are wrong in its group."""
    examples = [place for number, place in places.items() if wrong(scored[number])]
    return AccuracyInterval(
        label=accuracy.label,
        correct=accuracy.right,
        total=accuracy.total,
        low=accuracy.low,
        high=accuracy.high,
        example_indices=sorted(examples)[:MAX_LINKED_EXAMPLES],
    )


def _position_accuracy(
    accuracy: GroupAccuracy, at: int, scored: Sequence[ScoredExample], places: ExamplePlaces
) -> AccuracyInterval:
    """Return the accuracy at one target position, counted from 0; the end symbol follows the last position."""

    def wrong(each: ScoredExample) -> bool:
        """Return whether an output is wrong at the position."""
        reference, output = each.reference, each.output
        if at > len(reference):
            return False
        if at == len(reference):
            return len(output) != at
        return at >= len(output) or output[at] != reference[at]

    return _accuracy_interval(accuracy, scored, places, wrong)


def _length_accuracy(
    accuracy: GroupAccuracy, scored: Sequence[ScoredExample], places: ExamplePlaces
) -> AccuracyInterval:
    """Return the accuracy for a range of source lengths, which its label names: "3" or "4–5"."""
    low, _, high = accuracy.label.partition("–")
    lengths = range(int(low), int(high or low) + 1)
    return _accuracy_interval(accuracy, scored, places, lambda each: each.source_length in lengths and not each.exact)


def _confusion_counts(assessment: Assessment, places: ExamplePlaces) -> list[ConfusionCount]:
    """Return the most frequent errors, each with the shown examples that contain it."""
    having: dict[SymbolPair, list[int]] = {}
    for number, place in places.items():
        each = assessment.scored[number]
        if not each.exact:
            for pair in set(pair_symbols(each)):
                having.setdefault(pair, []).append(place)
    return [
        ConfusionCount(
            expected=each.wanted,
            predicted=each.written,
            count=each.times,
            num_expected=each.of,
            example_indices=sorted(having.get((each.wanted, each.written), []))[:MAX_LINKED_EXAMPLES],
        )
        for each in assessment.confusions.errors[:MAX_CONFUSIONS]
    ]
