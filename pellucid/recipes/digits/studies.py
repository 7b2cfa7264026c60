"""The experiments and exercises of the 2016 notebook on spelled digits, one recipe each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import (
    POSITIONS_ATTENTION,
    POSITIONS_REPEAT,
    DigitsRuns,
    LessonReport,
    ReferenceCurve,
    load_reference_curves,
    run_studies,
    write_lesson_report,
)
from pellucid.recipes.digits.training import SAMPLE_BUDGETS, DigitsResult, DigitsStudy, DigitsTrainingPlan
from pellucid.recipes.recipe import RecipeRequest
from pellucid.viewer.report_schema import ReportTable, ReportText

REPEAT_INTRODUCTION = """\
A GRU of 10 units reads twenty spelled digits, some 99 letters, one-hot. Its last state, ten
numbers, is the code: all that a second GRU of 10 units gets to see, as its input at each of 21 steps. No symbol is
fed back.

Ten numbers cannot hold twenty digits. A quarter of the symbols is right after 300,000 samples, of which the end (#)
and the last digits are the largest part; guessing gives a seventh. The authors' stored runs reached 0.242, 0.249 and
0.250 at this point."""


def run_repeat(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed and compare its curves with the authors'."""
    references = load_reference_curves(request.data, "repeat")
    groups = yield from run_studies(
        [DigitsStudy("code at every step", DigitsArchitecture("repeat"), DigitsTrainingPlan(), 1)], request
    )
    title = "Spelled digits to digits through a bottleneck"
    yield write_lesson_report(
        request, LessonReport("digits-repeat", title, REPEAT_INTRODUCTION, groups, references, POSITIONS_REPEAT)
    )


INIT_INTRODUCTION = """\
The notebook names two ways to hand the code to the decoder and builds the first, the code as the
input of every step. Here is the second beside it: the decoder starts from the code and then runs without any input.
It has 300 parameters fewer, and nothing reminds it of the code: what it writes last has passed through twenty of its
own steps."""


def run_init(request: RecipeRequest) -> Iterator[str]:
    """Train both uses of the code on the same samples and seeds."""
    references = load_reference_curves(request.data, "repeat")
    studies = [
        DigitsStudy("code as first state", DigitsArchitecture("initialise"), DigitsTrainingPlan(), 1),
        DigitsStudy("code at every step", DigitsArchitecture("repeat"), DigitsTrainingPlan(), 1),
    ]
    groups = yield from run_studies(studies, request)
    title = "The code as the decoder's first state"
    yield write_lesson_report(request, LessonReport("digits-init", title, INIT_INTRODUCTION, groups, references))


FAITHFUL_INTRODUCTION = """\
The encoder of the first lesson, and on top of it an LSTM of 10 units that looks at all states of
the encoder at each of 21 steps: additive attention with 20 units, from the LSTM's previous state. Half the samples of
the first lesson bring three times its accuracy.

Kept as they were: padding is looked at like letters; the softmax over symbols reads the context alone; the output
gate's peephole is added after the sigmoid; nothing that is written is fed back. Two complete runs are stored; they
reached 0.731 and 0.892, and no seed was set."""
FIRST_VALIDATION = 5_000


def run_attention_faithful(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed and test whether the range of the seeds encloses the authors' curves."""
    references = load_reference_curves(request.data, "attention")
    groups = yield from run_studies(
        [DigitsStudy("attention of 2016", DigitsArchitecture("attention"), DigitsTrainingPlan(samples=150_000), 1)],
        request,
    )
    inside = [enclosed_share(groups[0], reference) for reference in references]
    lines = [_enclosed_line(reference, share) for reference, share in zip(references, inside, strict=True)]
    yield from lines
    title = "Spelled digits to digits with the attention of 2016"
    parts = [ReportText("Do the seeds enclose the authors' runs?", "\n\n".join(lines))]
    shares = {reference.name: share for reference, share in zip(references, inside, strict=True)}
    lesson = LessonReport(
        "digits-attention-faithful", title, FAITHFUL_INTRODUCTION, groups, references, POSITIONS_ATTENTION, parts
    )
    yield write_lesson_report(request, lesson._replace(numbers={"share_enclosed": shares}))


def enclosed_share(group: DigitsRuns, reference: ReferenceCurve) -> float:
    """Return the share of validations at which an author's accuracy lies within the range of the seeds."""
    curves = [[point.symbol_accuracy for point in outcome.curve] for outcome in group.outcomes]
    places = [point.samples for point in group.outcomes[0].curve]
    between = [
        _is_between(reference.at(max(place, FIRST_VALIDATION)), at) for place, *at in zip(places, *curves, strict=True)
    ]
    return sum(between) / len(between)


def _is_between(value: float, values: Sequence[float]) -> bool:
    """Return True if a value lies between minimum and maximum of others."""
    return min(values) <= value <= max(values)


def _enclosed_line(reference: ReferenceCurve, share: float) -> str:
    """Return the share as a line."""
    return f"{reference.name}: within the range of the seeds at {100 * share:.0f} % of the validations"


BIDIRECTIONAL_INTRODUCTION = """\
A second GRU reads the input from its end, each input within its own length, and its states join
those of the first: end to end (20 numbers), added, or multiplied (10 numbers each). Without attention the code is
what the forward GRU knows at the end and the backward GRU at the beginning, so both ends of the input are fresh. With
attention (of 2016, but blind to padding) each state knows what stands before its letter and after it.

The notebook's snippet takes the last position of the backward GRU, which has read one letter there; its answer stands
at the first."""
BIDIRECTIONAL = {
    f"both, {merge}": DigitsArchitecture(bidirectional=True, merge=merge) for merge in ("concatenate", "sum", "product")
}


def run_bidirectional(request: RecipeRequest) -> Iterator[str]:
    """Train every merge and the forward encoder, without and with attention."""
    studies = [
        DigitsStudy(
            f"{name}; {decoder}",
            design._replace(decoder=decoder, attends_padding=False),
            DigitsTrainingPlan(samples),
            1,
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for name, design in {**BIDIRECTIONAL, "forward": DigitsArchitecture()}.items()
    ]
    groups = yield from run_studies(studies, request)
    title = "Reading both ways"
    yield write_lesson_report(request, LessonReport("digits-bidirectional", title, BIDIRECTIONAL_INTRODUCTION, groups))


VARYING_INTRODUCTION = """\
Inputs of one to twenty digits. Targets are padded with 0, which is also the digit 0: a cost that
counts the padding teaches the network to write zeros behind the end, and spends its effort there. With the mask in
the cost only symbols that are there count. Accuracies here count only those in any case.

The attention of 2016 looks at padding, too, and of inputs of one to twenty digits half is padding. The last network
is blind to it."""
MASKED_ATTENTION = DigitsArchitecture("attention", attends_padding=False)


def run_varying(request: RecipeRequest) -> Iterator[str]:
    """Train with masked and unmasked loss, without and with attention."""
    studies = [
        DigitsStudy(
            f"{decoder}; {'masked' if masked else 'unmasked'} cost",
            DigitsArchitecture(decoder),
            DigitsTrainingPlan(samples, digits=(1, 20), masked=masked),
            1,
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for masked in (True, False)
    ]
    blind = DigitsTrainingPlan(SAMPLE_BUDGETS["attention"], digits=(1, 20), masked=True)
    studies.append(DigitsStudy("attention, padding masked; masked cost", MASKED_ATTENTION, blind, 1))
    groups = yield from run_studies(studies, request)
    title = "One to twenty digits"
    yield write_lesson_report(request, LessonReport("digits-varying", title, VARYING_INTRODUCTION, groups))


EMBEDDING_INTRODUCTION = """\
"You can experiment with removing this line", says the notebook of the one that freezes its
embedding at the identity. Without it the 27 × 27 numbers are trained, from the same start. A matrix before a matrix
can say nothing new (W x with x one-hot is any table already), so what changes is the path that training takes:
products of two matrices move faster where both grow."""


def run_embedding(request: RecipeRequest) -> Iterator[str]:
    """Train both embeddings, without and with attention."""
    studies = [
        DigitsStudy(
            f"{embedding}; {decoder}", DigitsArchitecture(decoder, embedding=embedding), DigitsTrainingPlan(samples), 1
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for embedding in ("learned", "one-hot")
    ]
    groups = yield from run_studies(studies, request)
    title = "Symbols: given or learned"
    yield write_lesson_report(request, LessonReport("digits-embedding", title, EMBEDDING_INTRODUCTION, groups))


OPTIMIZERS_INTRODUCTION = """\
The notebook uses Adam with a rate of 0.005 and suggests to try others. Here is its network without
attention under six of them. Each is tried with three rates over a third of the samples; the rate that got furthest is
given all of them. Gradients are clipped in the same way for all.

What to look for: the gradients of the encoder and of the output differ in size by orders of magnitude (lesson 1).
Rules that divide each gradient by the size of its own past do not mind; plain steps must serve both with one rate."""
LEARNING_RATES: Mapping[str, tuple[float, float, float]] = {
    "adam": (0.015, 0.005, 0.002),
    "rmsprop": (0.02, 0.01, 0.005),
    "adagrad": (0.2, 0.1, 0.05),
    "adadelta": (10.0, 3.0, 30.0),
    "momentum": (0.1, 0.03, 0.3),
    "sgd": (1.0, 0.3, 3.0),
}
"""Learning rates of the trials; the best one with seed 1 comes first."""
TRIAL_DIVISOR = 3
"""A trial takes the total number of samples divided by this."""


def run_optimizers(request: RecipeRequest) -> Iterator[str]:
    """Try all learning rates, then train with the best one of each optimizer."""
    tried: dict[str, list[tuple[float, DigitsRuns]]] = {}
    samples = request.samples or DigitsTrainingPlan().samples
    short = request._replace(samples=max(samples // TRIAL_DIVISOR, 1))
    for name, rates in LEARNING_RATES.items():
        groups = yield from run_studies([optimizer_study(name, rate) for rate in rates], short)
        tried[name] = list(zip(rates, groups, strict=True))
    best = {name: max(each, key=lambda pair: pair[1].median.accuracy)[0] for name, each in tried.items()}
    groups = yield from run_studies([optimizer_study(name, rate) for name, rate in best.items()], request)
    heads = ("optimiser", *("rate, symbols right" for _ in range(3)))
    rows = [
        (name, *(f"{rate:g}: {100 * group.median.accuracy:.2f} %" for rate, group in sorted(each, key=lambda p: p[0])))
        for name, each in tried.items()
    ]
    table = ReportTable("The rates tried", f"After {short.samples:,} samples; the median of the seeds.", heads, rows)
    lesson = LessonReport("digits-optimizers", "Other optimisers", OPTIMIZERS_INTRODUCTION, groups, parts=[table])
    accuracies = {name: {str(rate): group.median.accuracy for rate, group in each} for name, each in tried.items()}
    yield write_lesson_report(request, lesson._replace(numbers={"rates_tried": accuracies}))


def optimizer_study(name: str, rate: float) -> DigitsStudy:
    """Return the study of the notebook's network without attention with another optimizer."""
    return DigitsStudy(
        f"{name}, rate {rate:g}", DigitsArchitecture(), DigitsTrainingPlan(optimizer=name, learning_rate=rate), 1
    )


CELLS_INTRODUCTION = """\
The lessons take a GRU because it has one state and is faster. Here are both as encoders of ten
units, without attention and with it. The seconds are those of training alone, on one thread; runs share the machine
two at a time."""


def run_cells(request: RecipeRequest) -> Iterator[str]:
    """Train both cells, without and with attention."""
    studies = [
        DigitsStudy(f"{cell.upper()}; {decoder}", DigitsArchitecture(decoder, cell), DigitsTrainingPlan(samples), 1)
        for decoder, samples in SAMPLE_BUDGETS.items()
        for cell in ("gru", "lstm")
    ]
    groups = yield from run_studies(studies, request)
    yield write_lesson_report(request, LessonReport("digits-cells", "GRU and LSTM", CELLS_INTRODUCTION, groups))


JIGSAW_SAMPLES = 900_000
JIGSAW_INTRODUCTION = """\
After some hundred thousand samples the accuracy of the first network no longer rises but jumps up
and down (the stored run between 0.185 and 0.26). The 5,000 validation samples are the same each time, 105,000
symbols, so chance in judging them accounts for a thousandth. What moves is the network: at a rate of 0.005 an update
overshoots, and the accuracy falls by more than hundreds of updates before it had won.

The evidence is the same run, same seed, same samples, with a rate that falls along half a cosine to zero: if the rate
is the cause, the teeth must shrink with it."""


def run_jigsaw(request: RecipeRequest) -> Iterator[str]:
    """Train with a constant and a decaying learning rate; measure the roughness of both curves."""
    references = load_reference_curves(request.data, "repeat")
    studies = [
        DigitsStudy("constant rate", DigitsArchitecture(), DigitsTrainingPlan(JIGSAW_SAMPLES), 1),
        DigitsStudy("falling rate", DigitsArchitecture(), DigitsTrainingPlan(JIGSAW_SAMPLES, decay="cosine"), 1),
    ]
    groups = yield from run_studies(studies, request)
    rough = {group.name: fmean(map(roughness, group.outcomes)) for group in groups}
    lines = [_roughness_line(group, rough[group.name]) for group in groups]
    yield from lines
    parts = [ReportText("How rough is the last third?", "\n\n".join(lines))]
    lesson = LessonReport("digits-jigsaw", "The jig-saw", JIGSAW_INTRODUCTION, groups, references, parts=parts)
    yield write_lesson_report(request, lesson._replace(numbers={"roughness": rough}))


def roughness(outcome: DigitsResult) -> float:
    """Return the mean absolute change of accuracy between validations over the last third of the run."""
    values = [point.symbol_accuracy for point in outcome.curve]
    last = values[-max(2, len(values) // 3) :]
    return fmean(abs(after - before) for before, after in pairwise(last))


def _roughness_line(group: DigitsRuns, rough: float) -> str:
    """Return the roughness as a line."""
    return f"{group.name}: from one validation to the next the accuracy changes by {rough:.4f} on average"
