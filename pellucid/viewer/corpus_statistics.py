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
from pellucid.inspection.permutation import permutation
from pellucid.inspection.score_decomposition import drive
from pellucid.inspection.state_space import conicity
from pellucid.inspection.states import states
from pellucid.tasks.registry import configured_task
from pellucid.viewer.inputs import Model, Sources, evenly
from pellucid.viewer.schema import Confusion, Corpus, Distribution, Interval, Statistic

SAMPLE, SHUFFLED = 200, 20
"""Outputs whose states are looked at, and those whose attention is shuffled: neither is quick."""
LONGEST = 200
"""Source symbols beyond which nothing is shuffled."""
BITS = 0.25
"""Width of a bar of entropies."""
FARTHEST = 10
"""Jumps beyond this far count as this far."""

OF_ONE = ("entropy", "relative entropy")
"""What can be said of the weights of one answer; the rest is of how they move from step to step."""


class Lying(NamedTuple):
    """What is known of the attention of a corpus."""

    statistics: list[Statistic]
    distributions: list[Distribution]
    mean: EncodedArray | None


def alignment(transducer: Predictor, traces: Sequence[Trace], truth: Sequence[GoldSpans | None], alone: bool) -> Lying:
    """Of the outputs of a corpus, and where their symbols truly come from, as far as that is known.

    What needs the states of one network is told only where it is `alone`.
    """
    pairs = zip(traces, truth, strict=True)
    # Each tag looks at its own place.
    told = [(trace, own) for trace, own in pairs if trace.attention.any() and not trace.per_position]
    looked = [trace for trace, _ in told]
    if not looked:
        return Lying([], [], None)
    found = [Statistic(**each._asdict()) for each in summarize_attention(looked, [own for _, own in told])]
    if not looked[0].autoregressive:
        return Lying([each for each in found if each.name in OF_ONE], [_entropies(looked)], None)
    found += _inside(transducer, looked) if alone else []
    mean = mean_attention_map(looked)
    return Lying(found, [_entropies(looked), _jumps(looked)], None if mean is None else encode_array(mean))


def _inside(transducer: Predictor, traces: Sequence[Trace]) -> list[Statistic]:
    """What takes the model itself, of a sample of its outputs; what a kind of attention does not have is left out."""
    sample = [traces[at] for at in evenly(range(len(traces)), SAMPLE)]
    found = list[Statistic]()
    for each in (_conicity, _shuffling, _drive):
        found += _had(each, transducer, sample)
    return found


def _had(
    measure: Callable[[Predictor, Sequence[Trace]], list[Statistic]], transducer: Predictor, sample: Sequence[Trace]
) -> list[Statistic]:
    """What is measured, or nothing where a model has no such thing."""
    try:
        return measure(transducer, sample)
    except InputError:
        return []


def _conicity(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """How alike the states of a source are."""
    values = [conicity(each.encoder) for each in states(transducer, sample) if len(each.encoder)]
    words = (
        "Mean cosine of a source's states with their mean (Mohankumar et al. 2020): near 1, attention may read any of "
        f"them. Of {len(values):,} sources."
    )
    return [_plain("conicity", float(np.mean(values)), "cosine", words)] if values else []


def _shuffling(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """Whether it matters where attention looked."""
    short = [trace for trace in sample if 1 < len(trace.source) <= LONGEST]
    long = any(len(trace.source) > LONGEST for trace in sample)
    if long and not short:
        return [_plain("change when shuffled", None, "share", f"Not computed: sources of more than {LONGEST} symbols.")]
    picked = [short[at] for at in evenly(range(len(short)), SHUFFLED)]
    changes = list(chain.from_iterable(permutation(transducer, trace).change.tolist() for trace in picked))
    words = (
        "Mean over steps of the median change of the next symbol's distribution (total variation) when the step's "
        "weights are shuffled (Jain & Wallace 2019): near 0, the weights do not explain the output. "
        f"Of {len(picked)} outputs{f', none of more than {LONGEST} source symbols' if long else ''}."
    )
    return [_plain("change when shuffled", float(np.mean(changes)), "share", words)] if changes else []


def _drive(transducer: Predictor, sample: Sequence[Trace]) -> list[Statistic]:
    """What drives attention: three parts, of which one may be below zero and another above one."""
    parts = drive(transducer, sample)
    whole = (
        "as its covariance with attention's scores within a row over their variance (Aitken et al. 2021). The temporal "
        "part, the input-driven part and the rest sum to one; a part below zero works against attention as it is, and "
        f"the others may then exceed one. Of {len(sample):,} outputs."
    )
    return [
        _plain("temporal part", parts.temporal, "of variance", f"What the place in the sequences gives alone, {whole}"),
        _plain("input-driven part", parts.input_driven, "of variance", "What the symbols add to the temporal part."),
        _plain("rest", parts.rest, "of variance", "What neither place nor symbol gives: context."),
    ]


def _plain(name: str, value: float | None, unit: str, definition: str) -> Statistic:
    """A number without an interval; None was not computed, as the definition says."""
    return Statistic(name=name, value=value, unit=unit, low=None, high=None, definition=definition)


def _entropies(traces: Sequence[Trace]) -> Distribution:
    """How spread the looks are."""
    bits = np.concatenate([row_entropy(attending_rows(trace.attention)) for trace in traces])
    counts = np.bincount((bits / BITS).astype(int))
    return Distribution(
        name="entropy",
        labels=[f"{BITS * at:g}–{BITS * (at + 1):g}" for at in range(len(counts))],
        counts=counts.tolist(),
        definition="Steps by the entropy of their weights, in bits: 0 where a step looks at one position only.",
    )


def _jumps(traces: Sequence[Trace]) -> Distribution:
    """How far looks move."""
    counts: Counter[int] = Counter()
    for jump, times in count_jumps(traces).items():
        counts[max(-FARTHEST, min(FARTHEST, jump))] += times
    places = range(min(counts, default=0), max(counts, default=0) + 1)
    signs = {-FARTHEST: f"≤ −{FARTHEST}", FARTHEST: f"≥ {FARTHEST}"}
    return Distribution(
        name="distortion",
        labels=[signs.get(at, f"{at}".replace("-", "−")) for at in places],
        counts=[counts[at] for at in places],
        definition="How far the greatest weight moves from one written symbol to the next (Brown et al. 1993).",
    )


LISTED = 200
"""Places of examples that a mark of a chart leads to, at most."""
CONFUSIONS = 400
"""Kinds of error that are listed, at most."""

Places = Mapping[int, int]
"""Of an example's number in the file its place among those shown."""


def assessed(model: Model, sources: Sources, traces: Sequence[Trace]) -> Assessment:
    """The outputs for a file with targets, scored."""
    cut, references = model.ready.tokenizers, [known.references for known in sources.known]
    answered = DecodedExamples(sources.examples, references, [""] * len(traces), [[trace] for trace in traces])
    return assess_outputs(model.name, answered, cut, cut, configured_task(model.ready.config).metrics)


def corpus(assessment: Assessment, places: Places, found: Lying) -> Corpus:
    """Of an assessment of all examples, how attention lies there, and the places of the examples that are shown."""
    positions, lengths = intervals(assessment, places)
    return Corpus(
        examples=len(assessment.scored),
        scores=scores(assessment),
        positions=positions,
        lengths=lengths,
        confusions=_confusions(assessment, places),
        alignment=found.statistics,
        distributions=found.distributions,
        mean_attention=found.mean,
    )


def intervals(assessment: Assessment, places: Places) -> tuple[list[Interval], list[Interval]]:
    """Accuracy by position and by length."""
    scored, evaluation = assessment.scored, assessment.evaluation
    positions = [_position(each, at, scored, places) for at, each in enumerate(evaluation.positions)]
    return positions, [_length(each, scored, places) for each in evaluation.lengths]


def scores(assessment: Assessment) -> list[Statistic]:
    """The rates that matter most."""
    evaluation, labelled = assessment.evaluation, assessment.label_metrics
    if labelled is not None:
        return _label_scores(labelled)
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


def _label_scores(labelled: LabelMetrics) -> list[Statistic]:
    """The same of tags, classes and positions."""
    own, spans = labelled.accuracy_ci95, labelled.spans
    rows: list[tuple[str, float | None, str, tuple[float, float] | None, str]] = [
        ("accuracy", labelled.accuracy, "%", own, "Share of right answers, of tags position by position."),
        (
            "among the first 3",
            labelled.top_k_accuracy,
            "%",
            labelled.top_k_ci95,
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


def _interval(
    accuracy: GroupAccuracy, scored: Sequence[ScoredExample], places: Places, wrong: Callable[[ScoredExample], bool]
) -> Interval:
    """A share right, with the shown examples that are wrong there."""
    examples = [place for number, place in places.items() if wrong(scored[number])]
    return Interval(
        label=accuracy.label,
        right=accuracy.right,
        total=accuracy.total,
        low=accuracy.low,
        high=accuracy.high,
        examples=sorted(examples)[:LISTED],
    )


def _position(accuracy: GroupAccuracy, at: int, scored: Sequence[ScoredExample], places: Places) -> Interval:
    """Of one target position, counted from 0; the end symbol stands at the one after the last."""

    def wrong(each: ScoredExample) -> bool:
        """Whether an output has not what was wanted there."""
        reference, output = each.reference, each.output
        if at > len(reference):
            return False
        if at == len(reference):
            return len(output) != at
        return at >= len(output) or output[at] != reference[at]

    return _interval(accuracy, scored, places, wrong)


def _length(accuracy: GroupAccuracy, scored: Sequence[ScoredExample], places: Places) -> Interval:
    """Of a range of source lengths, read from its label: "3" or "4–5"."""
    low, _, high = accuracy.label.partition("–")
    lengths = range(int(low), int(high or low) + 1)
    return _interval(accuracy, scored, places, lambda each: each.source_length in lengths and not each.exact)


def _confusions(assessment: Assessment, places: Places) -> list[Confusion]:
    """The commonest errors, each with the shown examples that have it."""
    having: dict[SymbolPair, list[int]] = {}
    for number, place in places.items():
        each = assessment.scored[number]
        if not each.exact:
            for pair in set(pair_symbols(each)):
                having.setdefault(pair, []).append(place)
    return [
        Confusion(
            wanted=each.wanted,
            written=each.written,
            times=each.times,
            of=each.of,
            examples=sorted(having.get((each.wanted, each.written), []))[:LISTED],
        )
        for each in assessment.confusions.errors[:CONFUSIONS]
    ]
