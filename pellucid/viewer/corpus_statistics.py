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
from pellucid.evaluation.alignment import Gold, distortion, looking, mean_map, row_entropy, summary
from pellucid.evaluation.assessment import Answered, Assessment, assess
from pellucid.evaluation.confusion import Pair, paired
from pellucid.evaluation.label_metrics import Labelled
from pellucid.evaluation.metrics import Accuracy, Scored
from pellucid.inspection.permutation import permutation
from pellucid.inspection.score_decomposition import drive
from pellucid.inspection.state_space import conicity
from pellucid.inspection.states import states
from pellucid.tasks.registry import task_of
from pellucid.viewer.inputs import ExampleFile, ViewedRun, sample_evenly
from pellucid.viewer.schema import AccuracyInterval, ConfusionCount, CorpusStatistics, Histogram, Statistic

STATE_SAMPLE_SIZE, PERMUTATION_SAMPLE_SIZE = 200, 20
"""Outputs whose states are looked at, and those whose attention is shuffled: neither is quick."""
MAX_PERMUTED_LENGTH = 200
"""Source symbols beyond which nothing is shuffled."""
ENTROPY_BIN_BITS = 0.25
"""Width of a bar of entropies."""
MAX_JUMP = 10
"""Jumps beyond this far count as this far."""

SINGLE_STEP_STATISTICS = ("entropy", "relative entropy")
"""What can be said of the weights of one answer; the rest is of how they move from step to step."""


class AttentionStatistics(NamedTuple):
    """What is known of the attention of a corpus."""

    statistics: list[Statistic]
    distributions: list[Histogram]
    mean: EncodedArray | None


def attention_statistics(
    transducer: Predictor, traces: Sequence[Trace], truth: Sequence[Gold | None], alone: bool
) -> AttentionStatistics:
    """Of the outputs of a corpus, and where their symbols truly come from, as far as that is known.

    What needs the states of one network is told only where it is `alone`.
    """
    pairs = zip(traces, truth, strict=True)
    # Each tag looks at its own place.
    told = [(trace, own) for trace, own in pairs if trace.attention.any() and not trace.per_position]
    looked = [trace for trace, _ in told]
    if not looked:
        return AttentionStatistics([], [], None)
    found = [Statistic(**each._asdict()) for each in summary(looked, [own for _, own in told])]
    if not looked[0].autoregressive:
        return AttentionStatistics(
            [each for each in found if each.name in SINGLE_STEP_STATISTICS], [_entropy_histogram(looked)], None
        )
    found += _model_statistics(transducer, looked) if alone else []
    mean = mean_map(looked)
    return AttentionStatistics(
        found, [_entropy_histogram(looked), _distortion_histogram(looked)], None if mean is None else encode_array(mean)
    )


def _model_statistics(transducer: Predictor, traces: Sequence[Trace]) -> list[Statistic]:
    """What takes the model itself, of a sample of its outputs; what a kind of attention does not have is left out."""
    sample = [traces[at] for at in sample_evenly(range(len(traces)), STATE_SAMPLE_SIZE)]
    found = list[Statistic]()
    for each in (_conicity_statistics, _permutation_statistics, _decomposition_statistics):
        found += _measure_if_supported(each, transducer, sample)
    return found


def _measure_if_supported(
    measure: Callable[[Predictor, Sequence[Trace]], list[Statistic]], transducer: Predictor, sample: Sequence[Trace]
) -> list[Statistic]:
    """What is measured, or nothing where a model has no such thing."""
    try:
        return measure(transducer, sample)
    except InputError:
        return []


def _conicity_statistics(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """How alike the states of a source are."""
    values = [conicity(each.encoder) for each in states(transducer, sample) if len(each.encoder)]
    words = (
        "Mean cosine of a source's states with their mean (Mohankumar et al. 2020): near 1, attention may read any of "
        f"them. Of {len(values):,} sources."
    )
    return [_statistic("conicity", float(np.mean(values)), "cosine", words)] if values else []


def _permutation_statistics(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Whether it matters where attention looked."""
    short = [trace for trace in sample if 1 < len(trace.source) <= MAX_PERMUTED_LENGTH]
    long = any(len(trace.source) > MAX_PERMUTED_LENGTH for trace in sample)
    if long and not short:
        return [
            _statistic(
                "change when shuffled",
                None,
                "share",
                f"Not computed: sources of more than {MAX_PERMUTED_LENGTH} symbols.",
            )
        ]
    picked = [short[at] for at in sample_evenly(range(len(short)), PERMUTATION_SAMPLE_SIZE)]
    changes = list(chain.from_iterable(permutation(transducer, trace).change.tolist() for trace in picked))
    words = (
        "Mean over steps of the median change of the next symbol's distribution (total variation) when the step's "
        "weights are shuffled (Jain & Wallace 2019): near 0, the weights do not explain the output. "
        f"Of {len(picked)} outputs{f', none of more than {MAX_PERMUTED_LENGTH} source symbols' if long else ''}."
    )
    return [_statistic("change when shuffled", float(np.mean(changes)), "share", words)] if changes else []


def _decomposition_statistics(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """What drives attention: three parts, of which one may be below zero and another above one."""
    parts = drive(transducer, sample)
    whole = (
        "as its covariance with attention's scores within a row over their variance (Aitken et al. 2021). The temporal "
        "part, the input-driven part and the rest sum to one; a part below zero works against attention as it is, and "
        f"the others may then exceed one. Of {len(sample):,} outputs."
    )
    return [
        _statistic(
            "temporal part", parts.temporal, "of variance", f"What the place in the sequences gives alone, {whole}"
        ),
        _statistic(
            "input-driven part", parts.input_driven, "of variance", "What the symbols add to the temporal part."
        ),
        _statistic("rest", parts.rest, "of variance", "What neither place nor symbol gives: context."),
    ]


def _statistic(name: str, value: float | None, unit: str, definition: str) -> Statistic:
    """A number without an interval; None was not computed, as the definition says."""
    return Statistic(name=name, value=value, unit=unit, low=None, high=None, definition=definition)


def _entropy_histogram(traces: Sequence[Trace]) -> Histogram:
    """How spread the looks are."""
    bits = np.concatenate([row_entropy(looking(trace.attention)) for trace in traces])
    counts = np.bincount((bits / ENTROPY_BIN_BITS).astype(int))
    return Histogram(
        name="entropy",
        labels=[f"{ENTROPY_BIN_BITS * at:g}–{ENTROPY_BIN_BITS * (at + 1):g}" for at in range(len(counts))],
        counts=counts.tolist(),
        definition="Steps by the entropy of their weights, in bits: 0 where a step looks at one position only.",
    )


def _distortion_histogram(traces: Sequence[Trace]) -> Histogram:
    """How far looks move."""
    counts: Counter[int] = Counter()
    for jump, times in distortion(traces).items():
        counts[max(-MAX_JUMP, min(MAX_JUMP, jump))] += times
    places = range(min(counts, default=0), max(counts, default=0) + 1)
    signs = {-MAX_JUMP: f"≤ −{MAX_JUMP}", MAX_JUMP: f"≥ {MAX_JUMP}"}
    return Histogram(
        name="distortion",
        labels=[signs.get(at, f"{at}".replace("-", "−")) for at in places],
        counts=[counts[at] for at in places],
        definition="How far the greatest weight moves from one written symbol to the next (Brown et al. 1993).",
    )


MAX_LINKED_EXAMPLES = 200
"""Places of examples that a mark of a chart leads to, at most."""
MAX_CONFUSIONS = 400
"""Kinds of error that are listed, at most."""

ExamplePlaces = Mapping[int, int]
"""Of an example's number in the file its place among those shown."""


def assess_outputs(model: ViewedRun, sources: ExampleFile, traces: Sequence[Trace]) -> Assessment:
    """The outputs for a file with targets, scored."""
    cut, references = model.ready.segmenters, [known.references for known in sources.known]
    answered = Answered(sources.examples, references, [""] * len(traces), [[trace] for trace in traces])
    return assess(model.name, answered, cut, cut, task_of(model.ready.config).metrics)


def corpus_statistics(assessment: Assessment, places: ExamplePlaces, found: AttentionStatistics) -> CorpusStatistics:
    """Of an assessment of all examples, how attention lies there, and the places of the examples that are shown."""
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
    """Accuracy by position and by length."""
    scored, evaluation = assessment.scored, assessment.evaluation
    positions = [_position_accuracy(each, at, scored, places) for at, each in enumerate(evaluation.positions)]
    return positions, [_length_accuracy(each, scored, places) for each in evaluation.lengths]


def score_statistics(assessment: Assessment) -> list[Statistic]:
    """The rates that matter most."""
    evaluation, labelled = assessment.evaluation, assessment.labelled
    if labelled is not None:
        return _label_score_statistics(labelled)
    exact, errors = evaluation.exact_match_ci95, evaluation.symbol_error_rate_ci95
    rows: list[tuple[str, float, float | None, float | None, str]] = [
        ("exact match", evaluation.exact_match, *exact, "Share of outputs equal to a reference (Wilson's interval)."),
        (
            "symbol error rate",
            evaluation.symbol_error_rate,
            *errors,
            "Symbols to insert, delete or replace to reach the nearest reference, over its length "
            "(Levenshtein 1966; interval by bootstrap over examples).",
        ),
        (
            "symbol accuracy",
            evaluation.symbol_accuracy,
            None,
            None,
            "Share of target positions with the right symbol, the end's position included.",
        ),
    ]
    return [
        Statistic(name=name, value=value, unit="%", low=low, high=high, definition=definition)
        for name, value, low, high, definition in rows
    ]


def _label_score_statistics(labelled: Labelled) -> list[Statistic]:
    """The same of tags, classes and positions."""
    own, spans = labelled.accuracy_ci95, labelled.spans
    rows: list[tuple[str, float | None, str, tuple[float, float] | None, str]] = [
        ("accuracy", labelled.accuracy, "%", own, "Share of right answers, of tags position by position."),
        (
            "among the first 3",
            labelled.first,
            "%",
            labelled.first_ci95,
            "Share whose position is among the likeliest 3.",
        ),
        ("macro F1", labelled.macro_f1, "%", None, "Mean over labels of 2 right / (answered + wanted)."),
        (
            "correlation",
            labelled.mcc,
            "",
            None,
            "Of wanted and answered labels (Gorodkin 2004): 0 is chance, 1 is best.",
        ),
        ("span F1", *((spans.f1, "%", spans.f1_ci95) if spans else (None, "%", None)), "Of BIO chunks, as conlleval."),
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
    accuracy: Accuracy, scored: Sequence[Scored], places: ExamplePlaces, wrong: Callable[[Scored], bool]
) -> AccuracyInterval:
    """A share right, with the shown examples that are wrong there."""
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
    accuracy: Accuracy, at: int, scored: Sequence[Scored], places: ExamplePlaces
) -> AccuracyInterval:
    """Of one target position, counted from 0; the end symbol stands at the one after the last."""

    def wrong(each: Scored) -> bool:
        """Whether an output has not what was wanted there."""
        reference, output = each.reference, each.output
        if at > len(reference):
            return False
        if at == len(reference):
            return len(output) != at
        return at >= len(output) or output[at] != reference[at]

    return _accuracy_interval(accuracy, scored, places, wrong)


def _length_accuracy(accuracy: Accuracy, scored: Sequence[Scored], places: ExamplePlaces) -> AccuracyInterval:
    """Of a range of source lengths, read from its label: "3" or "4–5"."""
    low, _, high = accuracy.label.partition("–")
    lengths = range(int(low), int(high or low) + 1)
    return _accuracy_interval(accuracy, scored, places, lambda each: each.source_length in lengths and not each.exact)


def _confusion_counts(assessment: Assessment, places: ExamplePlaces) -> list[ConfusionCount]:
    """The commonest errors, each with the shown examples that have it."""
    having: dict[Pair, list[int]] = {}
    for number, place in places.items():
        each = assessment.scored[number]
        if not each.exact:
            for pair in set(paired(each)):
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
