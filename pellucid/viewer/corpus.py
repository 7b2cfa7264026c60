"""What holds for all examples of a file: scores, where it is right, what it confuses, and how its attention lies."""

from collections.abc import Callable, Mapping, Sequence

from pellucid.evaluation.assessment import Answered, Assessment, assess
from pellucid.evaluation.confusion import Pair, paired
from pellucid.evaluation.labels import Labelled
from pellucid.evaluation.metrics import Accuracy, Scored
from pellucid.search.trace import Trace
from pellucid.tasks.registry import task_of
from pellucid.viewer.contents import Confusion, Corpus, Interval, Statistic
from pellucid.viewer.models import Model
from pellucid.viewer.sources import Sources
from pellucid.viewer.statistics import Lying

LISTED = 200
"""Places of examples that a mark of a chart leads to, at most."""
CONFUSIONS = 400
"""Kinds of error that are listed, at most."""

Places = Mapping[int, int]
"""Of an example's number in the file its place among those shown."""


def assessed(model: Model, sources: Sources, traces: Sequence[Trace]) -> Assessment:
    """The outputs for a file with targets, scored."""
    cut, references = model.ready.segmenters, [known.references for known in sources.known]
    answered = Answered(sources.examples, references, [""] * len(traces), [[trace] for trace in traces])
    return assess(model.name, answered, cut, cut, task_of(model.ready.config).metrics)


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
    evaluation, labelled = assessment.evaluation, assessment.labelled
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


def _label_scores(labelled: Labelled) -> list[Statistic]:
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


def _interval(
    accuracy: Accuracy, scored: Sequence[Scored], places: Places, wrong: Callable[[Scored], bool]
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


def _position(accuracy: Accuracy, at: int, scored: Sequence[Scored], places: Places) -> Interval:
    """Of one target position, counted from 0; the end symbol stands at the one after the last."""

    def wrong(each: Scored) -> bool:
        """Whether an output has not what was wanted there."""
        reference, output = each.reference, each.output
        if at > len(reference):
            return False
        if at == len(reference):
            return len(output) != at
        return at >= len(output) or output[at] != reference[at]

    return _interval(accuracy, scored, places, wrong)


def _length(accuracy: Accuracy, scored: Sequence[Scored], places: Places) -> Interval:
    """Of a range of source lengths, read from its label: "3" or "4–5"."""
    low, _, high = accuracy.label.partition("–")
    lengths = range(int(low), int(high or low) + 1)
    return _interval(accuracy, scored, places, lambda each: each.source_length in lengths and not each.exact)


def _confusions(assessment: Assessment, places: Places) -> list[Confusion]:
    """The commonest errors, each with the shown examples that have it."""
    having: dict[Pair, list[int]] = {}
    for number, place in places.items():
        each = assessment.scored[number]
        if not each.exact:
            for pair in set(paired(each)):
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
