"""The experiments and exercises of the 2016 notebook on spelled digits, one recipe each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import fmean

from pellucid.errors import InputError
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import (
    POSITIONS_ATTENTION,
    POSITIONS_REPEAT,
    DigitsRuns,
    LessonReport,
    ReferenceCurve,
    load_reference_curves,
    run_experiments,
    write_lesson_report,
)
from pellucid.recipes.digits.training import SAMPLE_BUDGETS, DigitsExperiment, DigitsResult, DigitsTrainingPlan
from pellucid.recipes.recipe import RecipeRequest
from pellucid.viewer.report_schema import ReportTable, ReportText

REPEAT_INTRODUCTION = """\
A GRU of 10 units reads twenty spelled digits, about 99 one-hot letters. Its last state, ten numbers, is the code. It
is the only input of a second GRU of 10 units at each of 21 steps. No output symbol is fed back.

Ten numbers cannot hold twenty digits. A quarter of the symbols is correct after 300,000 samples, mostly the end (#)
and the last digits; guessing gives a seventh. The authors' stored runs reached 0.242, 0.249 and 0.250 at this point."""


def run_repeat(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed and compare its curves with the authors'.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    references = load_reference_curves(request.data, "repeat")
    groups = yield from run_experiments(
        [DigitsExperiment("code at every step", DigitsArchitecture("repeat"), DigitsTrainingPlan(), 1)], request
    )
    title = "Spelled digits to digits through a bottleneck"
    yield write_lesson_report(
        request, LessonReport("digits-repeat", title, REPEAT_INTRODUCTION, groups, references, POSITIONS_REPEAT)
    )


INIT_INTRODUCTION = """\
The notebook names two ways to pass the code to the decoder and builds the first one, the code as the input of every
step. This recipe compares it with the second: the code is the initial state of the decoder, which then has no input.
This decoder has 300 parameters fewer. Its last outputs depend on the code through twenty decoder steps."""


def run_init(request: RecipeRequest) -> Iterator[str]:
    """Train the network with the code as initial decoder state, and that with the code as input of every step, on the
    same samples and seeds.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    references = load_reference_curves(request.data, "repeat")
    experiments = [
        DigitsExperiment("code as initial state", DigitsArchitecture("initialize"), DigitsTrainingPlan(), 1),
        DigitsExperiment("code at every step", DigitsArchitecture("repeat"), DigitsTrainingPlan(), 1),
    ]
    groups = yield from run_experiments(experiments, request)
    title = "The code as the decoder's initial state"
    yield write_lesson_report(request, LessonReport("digits-init", title, INIT_INTRODUCTION, groups, references))


FAITHFUL_INTRODUCTION = """\
An LSTM of 10 units with additive attention of 20 units reads the states of the first lesson's encoder at each of 21
steps. The query is the LSTM's previous state. Half the samples of the first lesson give three times its accuracy.

As in the notebook, attention includes padding, the softmax over symbols reads the context alone, the output gate's
peephole is added after the sigmoid, and no output is fed back. Two complete runs are stored, which reached 0.731 and
0.892 without a fixed seed."""
FIRST_VALIDATION = 5_000
"""Samples of the first validation of the authors' curves."""


def reproduce_digits_attention(request: RecipeRequest) -> Iterator[str]:
    """Train one network per seed, and report how often the authors' accuracy is within the range of the seeds.

    Args:
        request: The recipe's request.

    Yields:
        A line per run, the comparison with the authors' curves and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    references = load_reference_curves(request.data, "attention")
    groups = yield from run_experiments(
        [
            DigitsExperiment(
                "attention of 2016", DigitsArchitecture("attention"), DigitsTrainingPlan(samples=150_000), 1
            )
        ],
        request,
    )
    fractions = [enclosed_fraction(groups[0], reference) for reference in references]
    lines = [_enclosed_line(reference, fraction) for reference, fraction in zip(references, fractions, strict=True)]
    yield from lines
    title = "Spelled digits to digits with the attention of 2016"
    parts = [ReportText("Comparison with the authors' runs", "\n\n".join(lines))]
    numbers = {reference.name: fraction for reference, fraction in zip(references, fractions, strict=True)}
    lesson = LessonReport(
        "digits-attention-faithful", title, FAITHFUL_INTRODUCTION, groups, references, POSITIONS_ATTENTION, parts
    )
    yield write_lesson_report(request, lesson._replace(numbers={"fraction_enclosed": numbers}))


def enclosed_fraction(group: DigitsRuns, reference: ReferenceCurve) -> float:
    """Return the fraction of validations at which an author's accuracy lies between the minimum and the maximum of the
    seeds.

    The author's accuracy is that of the last validation up to the same number of samples; before `FIRST_VALIDATION`
    samples it is that of the first one.

    Args:
        group: Runs of one network with the same validations.
        reference: The author's curve.
    """
    curves = [[point.symbol_accuracy for point in result.curve] for result in group.results]
    validations = [point.samples for point in group.results[0].curve]
    is_enclosed = [
        _is_between(reference.accuracy_at(max(samples, FIRST_VALIDATION)), accuracies)
        for samples, *accuracies in zip(validations, *curves, strict=True)
    ]
    return sum(is_enclosed) / len(is_enclosed)


def _is_between(value: float, values: Sequence[float]) -> bool:
    """Return True if a value lies between minimum and maximum of others."""
    return min(values) <= value <= max(values)


def _enclosed_line(reference: ReferenceCurve, fraction: float) -> str:
    """Return the line of an enclosed fraction."""
    return f"{reference.name}: within the range of the seeds at {100 * fraction:.0f} % of the validations"


BIDIRECTIONAL_INTRODUCTION = """\
A second GRU reads the input backwards, each input within its own length. Its states are concatenated with those of
the first GRU (20 numbers), added, or multiplied (10 numbers each). Without attention the code joins the forward state
at the end and the backward state at the beginning, so both ends of the input are recent. With attention (of 2016, but
with masked padding) each state encodes the letters before and after its own.

The notebook's snippet takes the last position of the backward GRU, which has read one letter there; its final state
is at the first position."""
BIDIRECTIONAL = {
    f"bidirectional, {merge}": DigitsArchitecture(bidirectional=True, merge=merge)
    for merge in ("concatenate", "sum", "product")
}


def run_bidirectional(request: RecipeRequest) -> Iterator[str]:
    """Train with every merge of a bidirectional encoder and with a unidirectional one, without and with attention.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    experiments = [
        DigitsExperiment(
            f"{name}; {decoder}",
            architecture._replace(decoder=decoder, attends_padding=False),
            DigitsTrainingPlan(samples),
            1,
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for name, architecture in {**BIDIRECTIONAL, "unidirectional": DigitsArchitecture()}.items()
    ]
    groups = yield from run_experiments(experiments, request)
    title = "Bidirectional encoders"
    yield write_lesson_report(request, LessonReport("digits-bidirectional", title, BIDIRECTIONAL_INTRODUCTION, groups))


VARIABLE_LENGTH_INTRODUCTION = """\
Inputs have one to twenty digits. Targets are padded with 0, which is also the digit 0: a loss that includes padding
trains the network to write zeros after the end. A masked loss includes real symbols only. All accuracies exclude
padding.

The attention of 2016 also covers padding, which is half of the positions here. The last network masks it."""
MASKED_ATTENTION = DigitsArchitecture("attention", attends_padding=False)


def run_variable_length(request: RecipeRequest) -> Iterator[str]:
    """Train networks without and with attention, each with masked and unmasked loss, and one that masks padding.

    Each of the five networks is trained once per seed; the last has attention that does not cover padding, and a masked
    loss.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    experiments = [
        DigitsExperiment(
            f"{decoder}; {'masked' if masked else 'unmasked'} loss",
            DigitsArchitecture(decoder),
            DigitsTrainingPlan(samples, digits=(1, 20), masked=masked),
            1,
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for masked in (True, False)
    ]
    masked_plan = DigitsTrainingPlan(SAMPLE_BUDGETS["attention"], digits=(1, 20), masked=True)
    experiments.append(DigitsExperiment("attention, padding masked; masked loss", MASKED_ATTENTION, masked_plan, 1))
    groups = yield from run_experiments(experiments, request)
    title = "One to twenty digits"
    yield write_lesson_report(
        request, LessonReport("digits-variable-length", title, VARIABLE_LENGTH_INTRODUCTION, groups)
    )


EMBEDDING_INTRODUCTION = """\
The notebook freezes its embedding at the identity and suggests: "You can experiment with removing this line". Without
it the 27 × 27 numbers are trained from the same start. A matrix before a matrix adds no capacity (W x with one-hot x
is any table already), but it changes the optimization: a product of two matrices changes faster where both are
large."""


def run_embedding(request: RecipeRequest) -> Iterator[str]:
    """Train learned and one-hot embeddings, without and with attention.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    experiments = [
        DigitsExperiment(
            f"{embedding}; {decoder}", DigitsArchitecture(decoder, embedding=embedding), DigitsTrainingPlan(samples), 1
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for embedding in ("learned", "one-hot")
    ]
    groups = yield from run_experiments(experiments, request)
    title = "One-hot and learned embeddings"
    yield write_lesson_report(request, LessonReport("digits-embedding", title, EMBEDDING_INTRODUCTION, groups))


OPTIMIZERS_INTRODUCTION = """\
The notebook uses Adam with a learning rate of 0.005 and suggests trying others. Its network without attention is
trained with six optimizers. Each is tried with three rates over a third of the samples; the best rate gets all
samples. Gradients are clipped in the same way for all.

The gradients of encoder and output layer differ by orders of magnitude (lesson 1). Optimizers that divide each
gradient by its own running size are insensitive to this; plain gradient descent has one rate for both."""
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
"""A trial has the total number of samples divided by this number."""


def run_optimizers(request: RecipeRequest) -> Iterator[str]:
    """Try three learning rates of each optimizer on a third of the samples, then train with the best one on all
    samples.

    Args:
        request: The recipe's request.

    Yields:
        A line per trial and per run, and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    trials: dict[str, list[tuple[float, DigitsRuns]]] = {}
    samples = request.samples or DigitsTrainingPlan().samples
    trial_request = request._replace(samples=max(samples // TRIAL_DIVISOR, 1))
    for name, rates in LEARNING_RATES.items():
        groups = yield from run_experiments([optimizer_experiment(name, rate) for rate in rates], trial_request)
        trials[name] = list(zip(rates, groups, strict=True))
    best_rates = {name: max(pairs, key=lambda pair: pair[1].median.accuracy)[0] for name, pairs in trials.items()}
    groups = yield from run_experiments(
        [optimizer_experiment(name, rate) for name, rate in best_rates.items()], request
    )
    heads = ("optimizer", *("learning rate: symbol accuracy" for _ in range(3)))
    rows = [
        (name, *(f"{rate:g}: {100 * group.median.accuracy:.2f} %" for rate, group in sorted(pairs, key=lambda p: p[0])))
        for name, pairs in trials.items()
    ]
    table = ReportTable("Learning rates", f"After {trial_request.samples:,} samples; median of the seeds.", heads, rows)
    lesson = LessonReport("digits-optimizers", "Optimizers", OPTIMIZERS_INTRODUCTION, groups, parts=[table])
    accuracies = {name: {str(rate): group.median.accuracy for rate, group in pairs} for name, pairs in trials.items()}
    yield write_lesson_report(request, lesson._replace(numbers={"learning_rates": accuracies}))


def optimizer_experiment(name: str, learning_rate: float) -> DigitsExperiment:
    """Return the experiment of the notebook's network without attention with another optimizer.

    Args:
        name: Key of `OPTIMIZERS`.
        learning_rate: Constant learning rate.
    """
    return DigitsExperiment(
        f"{name}, learning rate {learning_rate:g}",
        DigitsArchitecture(),
        DigitsTrainingPlan(optimizer=name, learning_rate=learning_rate),
        1,
    )


CELLS_INTRODUCTION = """\
The lessons use a GRU because it has one state and is faster. This recipe compares GRU and LSTM encoders of ten units,
without and with attention. Seconds are training time on one thread; two runs share the machine at a time."""


def run_cells(request: RecipeRequest) -> Iterator[str]:
    """Train GRU and LSTM encoders, without and with attention.

    Args:
        request: The recipe's request.

    Yields:
        A line per run and the path of the report.

    Raises:
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    experiments = [
        DigitsExperiment(
            f"{cell.upper()}; {decoder}", DigitsArchitecture(decoder, cell), DigitsTrainingPlan(samples), 1
        )
        for decoder, samples in SAMPLE_BUDGETS.items()
        for cell in ("gru", "lstm")
    ]
    groups = yield from run_experiments(experiments, request)
    yield write_lesson_report(request, LessonReport("digits-cells", "GRU and LSTM", CELLS_INTRODUCTION, groups))


LR_DECAY_SAMPLES = 900_000
LR_DECAY_INTRODUCTION = """\
After some hundred thousand samples the accuracy of the first network oscillates (the stored run between 0.185 and
0.26). The 5,000 validation samples are always the same 105,000 symbols, so evaluation noise is about a thousandth.
The network itself changes: at a learning rate of 0.005 an update overshoots, and the accuracy falls by more than the
gain of hundreds of updates.

The test is a run with the same seed and samples, with cosine decay of the learning rate to zero: if the rate is the
cause, the oscillation must shrink with it."""


def run_lr_decay(request: RecipeRequest) -> Iterator[str]:
    """Train with a constant and a decaying learning rate; measure the roughness of both curves.

    Args:
        request: The recipe's request.

    Yields:
        A line per run, the roughness of both curves and the path of the report.

    Raises:
        InputError: The number of samples is too small for two validations, between which roughness is measured.
        RunError: The output folder cannot be created, or the report cannot be written.
    """
    interval = DigitsTrainingPlan().eval_interval
    if 0 < request.samples <= interval:
        raise InputError(
            f"--max-train-samples {request.samples:,}: digits-lr-decay needs more than {interval:,} samples, because "
            "it compares successive validations"
        )
    references = load_reference_curves(request.data, "repeat")
    experiments = [
        DigitsExperiment("constant learning rate", DigitsArchitecture(), DigitsTrainingPlan(LR_DECAY_SAMPLES), 1),
        DigitsExperiment("cosine decay", DigitsArchitecture(), DigitsTrainingPlan(LR_DECAY_SAMPLES, decay="cosine"), 1),
    ]
    groups = yield from run_experiments(experiments, request)
    roughness_by_name = {group.name: fmean(map(roughness, group.results)) for group in groups}
    lines = [_roughness_line(name, value) for name, value in roughness_by_name.items()]
    yield from lines
    parts = [ReportText("Roughness of the last third", "\n\n".join(lines))]
    lesson = LessonReport(
        "digits-lr-decay", "Sawtooth in the validation curve", LR_DECAY_INTRODUCTION, groups, references, parts=parts
    )
    yield write_lesson_report(request, lesson._replace(numbers={"roughness": roughness_by_name}))


def roughness(result: DigitsResult) -> float:
    """Return the mean absolute change of symbol accuracy (a fraction) between validations over the last third of the
    run.

    Args:
        result: Result of a training with at least two validations.
    """
    values = [point.symbol_accuracy for point in result.curve]
    last_third = values[-max(2, len(values) // 3) :]
    return fmean(abs(after - before) for before, after in pairwise(last_third))


def _roughness_line(name: str, value: float) -> str:
    """Return the line of a roughness."""
    return f"{name}: the accuracy changes by {value:.4f} on average between validations"
