"""Pellucid's own attention models on spelled digits: digits-attention, digits-sample-efficiency and digits-extrapolate.

N traces, T target positions, S source positions.
"""

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from pellucid.config.settings import Config
from pellucid.data.synthetic import WORD_SIZES, spell_digits, spelled_digits, write_pairs
from pellucid.decoding.trace import Trace
from pellucid.errors import DataError
from pellucid.evaluation.alignment import AlignmentAgreement, AlignmentSpans, alignment_agreement
from pellucid.files import make_folder, write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import DigitsArchitecture
from pellucid.recipes.digits.report import (
    POSITIONS_ATTENTION,
    DigitsRuns,
    LessonReport,
    ReferenceCurve,
    line_colors,
    load_reference_curves,
    report_json,
    report_parts,
    run_lines,
    write_lesson_report,
)
from pellucid.recipes.digits.training import (
    DigitsEvaluation,
    DigitsExperiment,
    DigitsResult,
    DigitsTrainingPlan,
    DigitsValidation,
    discard_progress,
    run_experiment,
)
from pellucid.recipes.jobs import progress_callback, run_jobs
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, mean_attention, style_axes, to_svg
from pellucid.reporting.terminal import render_trace, shade_legend
from pellucid.reporting.terminal_width import terminal_width
from pellucid.run_folder.log import read_log
from pellucid.run_folder.predictor_loader import load
from pellucid.shapes import Int
from pellucid.tasks.task import ATTENTION_CAPTION
from pellucid.training.ensemble_training import throttle
from pellucid.training.session import train_run
from pellucid.training.training_data import TrainingFiles
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import ScoredRun, run_report, score_run, write_report
from pellucid.worker_pool import ProgressCallback


class DigitsJob(NamedTuple):
    """Training of a Pellucid model on generated pairs of spelled digits, with its evaluation."""

    name: str
    """Name of the variant; empty if the recipe has only one."""
    out: Path
    """Output folder of the recipe."""
    seed: int
    samples: int
    """Number of training pairs."""
    config: Config
    digits: tuple[int, int] = (20, 20)
    """Minimum and maximum number of digits of a pair."""
    dev_pairs: int = 1_000
    """Number of validation pairs."""
    test_pairs: int = 5_000
    """Number of test pairs."""


class TrainedDigitsRun(NamedTuple):
    """A trained run with its evaluation, also in the form of the notebook's networks."""

    folder: Path
    """Run folder."""
    scored_run: ScoredRun
    """Outputs on the test pairs with their scores."""
    result: DigitsResult


def train_and_evaluate(job: DigitsJob, on_progress: ProgressCallback = discard_progress) -> TrainedDigitsRun:
    """Generate pairs, write them to files, train a Pellucid model, and evaluate it on test pairs.

    Files and run folder are below the output folder of the recipe; an existing run is resumed or reused.

    Args:
        job: The training.
        on_progress: Progress callback.

    Returns:
        The run with its scores on the test pairs.

    Raises:
        RunError: The run folder holds a run with other settings, is in use, or cannot be written; or the training
            diverges.
    """
    name = f"{job.name} seed {job.seed}".strip().replace(" ", "-")
    data, folder = job.out / "data" / name, job.out / "runs" / name
    make_folder(data)
    counts = {"train": job.samples, "dev": job.dev_pairs, "test": job.test_pairs}
    pairs = {
        split: spelled_digits(count, *job.digits, 10 * job.seed + index)
        for index, (split, count) in enumerate(counts.items())
    }
    for split, examples in pairs.items():
        write_pairs(data / f"{split}.tsv", examples)
    events = train_run(TrainingFiles(data / "train.tsv", data / "dev.tsv"), folder, job.config)
    for _, event in throttle(events):
        if event is not None:
            on_progress(event)
    scored_run = score_run(load(folder), pairs["test"])
    return TrainedDigitsRun(folder, scored_run, digits_result(job, folder, scored_run))


def digits_result(job: DigitsJob, folder: Path, scored_run: ScoredRun) -> DigitsResult:
    """Return the result of a Pellucid run in the form of the results of the notebook's networks, with fractions.

    Args:
        job: The training.
        folder: Run folder, whose log gives the validation curve.
        scored_run: Outputs on the test pairs with their scores.
    """
    log = read_log(folder)
    curve = [
        DigitsValidation(
            record["samples"], record["loss"], record["symbol_accuracy"] / 100, record["exact_match"] / 100
        )
        for record in log
        if record["event"] == "validated"
    ]
    evaluation = scored_run.evaluation
    final = DigitsEvaluation(
        symbol_accuracy=evaluation.symbol_accuracy / 100,
        exact_match=evaluation.exact_match / 100,
        per_position=[position.right / max(position.total, 1) for position in evaluation.positions],
        attention_mean=mean_attention(scored_run.traces)[: len(evaluation.positions)].tolist(),
        agreement=trace_agreement(scored_run.traces, [target for (target,) in scored_run.references]),
    )
    seconds = [record["seconds"] for record in log if record["event"] == "stopped"][-1]
    return DigitsResult(job.name, job.seed, parameter_count(scored_run.predictor.network), seconds, curve, final)


def trace_agreement(traces: Sequence[Trace], digits: Sequence[str]) -> AlignmentAgreement:
    """Return the agreement of attention with the source words of the digits.

    Output symbols beyond the target, such as the end symbol, do not count.

    Args:
        traces: Decoded outputs with attention weights.
        digits: Target of each trace; its i-th digit gives the span of the i-th output symbol, right or wrong.
    """
    steps = max(len(trace.target) for trace in traces)
    weights = np.zeros((len(traces), steps, max(len(trace.source) for trace in traces)), np.float32)
    starts, stops = (np.zeros(weights.shape[:2], np.int64) for _ in range(2))
    has_span = np.zeros(weights.shape[:2], np.bool_)
    for row, (trace, target) in enumerate(zip(traces, digits, strict=True)):
        count = min(len(trace.target), len(target))
        ends = word_ends(target)[:count]
        weights[row, : trace.attention.shape[0], : trace.attention.shape[1]] = trace.attention
        stops[row, :count], has_span[row, :count] = ends, True
        starts[row, 1:count] = ends[:-1]
    return alignment_agreement(weights, AlignmentSpans(starts, stops, has_span))


def word_ends(digits: str) -> Int[np.ndarray, " T"]:
    """Return the end of each digit's word in the source (the position after it), including the space after the word.

    Args:
        digits: Digits as text.
    """
    return np.cumsum(WORD_SIZES[[int(digit) for digit in digits]])


def samples_to_accuracy(result: DigitsResult, accuracy: float) -> int | None:
    """Return the samples seen at the first validation with at least this accuracy, or None if there is none.

    Args:
        result: Result of a training.
        accuracy: Symbol accuracy as a fraction.
    """
    return next((point.samples for point in result.curve if point.symbol_accuracy >= accuracy), None)


DEMO_DIGITS, DEMO_SAMPLES, DEMO_DEV_PAIRS, DEMO_TEST_PAIRS = 20, 60_000, 1_000, 5_000
DEMO_NUMBERS = ("31415926535897932384", "27182818284590452353", "11111111112222222222")
"""Inputs of the printed examples: digits of π, digits of e, and repeated digits, where attention can lose its position.
"""
DEMO_NAME, DEMO_TITLE = "digits-attention", "Spelled digits to digits, with attention"
DEMO_INTRODUCTION = """\
A bidirectional GRU encoder of 5 + 5 units reads twenty spelled digits, about 99 characters. A GRU decoder of 10 units
with additive attention writes them as digits. Every training pair is seen once; the test pairs are new.

The 2016 notebook reaches at most 89.2 % symbol accuracy, with twice the samples and more parameters; its
encoder-decoder without attention reaches a quarter."""


def run_attention(request: RecipeRequest) -> Iterator[str]:
    """Train one model per seed, evaluate it on new pairs, and write report.html and report.json.

    Args:
        request: The recipe's request.

    Yields:
        Example outputs with attention of the first seed, a line per run and the path of the report.

    Raises:
        RunError: As in `train_and_evaluate`, or a report cannot be written.
    """
    runs = [
        train_and_evaluate(
            DigitsJob(
                "", request.out, seed, request.samples or DEMO_SAMPLES, load_recipe_config(DEMO_NAME, {"seed": seed})
            )._replace(digits=(DEMO_DIGITS, DEMO_DIGITS), dev_pairs=DEMO_DEV_PAIRS, test_pairs=DEMO_TEST_PAIRS),
            progress_callback(request, f"attention, seed {seed} ({seed} of {request.seeds})"),
        )
        for seed in range(1, request.seeds + 1)
    ]
    yield from _translation_lines(runs[0].folder)
    group = DigitsRuns("attention", [run.result for run in runs])
    lesson = LessonReport(
        DEMO_NAME, DEMO_TITLE, DEMO_INTRODUCTION, [group], _optional_reference_curves(request.data), POSITIONS_ATTENTION
    )
    report = run_report(runs[0].folder, runs[0].scored_run, DEMO_TITLE, DEMO_INTRODUCTION)
    write_report(request.out / "report.html", replace(report, parts=report_parts(lesson)))
    write_json(request.out / "report.json", report_json(lesson))
    yield from run_lines(group)
    yield f"report: {request.out / 'report.html'}"


def _optional_reference_curves(data: Path) -> list[ReferenceCurve]:
    """Return the authors' curves, or none if the data is missing: the demo runs without it."""
    try:
        return load_reference_curves(data, "attention")
    except DataError:
        return []


def _translation_lines(folder: Path) -> Iterator[str]:
    """Yield example outputs with attention, for the terminal."""
    color = sys.stdout.isatty()
    width = terminal_width(120)
    for trace in load(folder).predict([spell_digits(number) for number in DEMO_NUMBERS]):
        yield f"{render_trace(trace, width=width, color=color)}\n"
    yield f"{shade_legend(color=color)}\n{ATTENTION_CAPTION}\n"


EFFICIENCY_SAMPLES, EFFICIENCY_DEV_PAIRS, EFFICIENCY_TEST_PAIRS = 15_000, 500, 2_000
TARGET_ACCURACY = 0.99
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "pellucid": {},
    "unidirectional encoder": {"encoder": {"bidirectional": False, "hidden_size": 10}},
    "no input of the previous symbol": {"decoder": {"embedding": "none"}},
    "output from the context only": {"decoder": {"output_layer_inputs": "context"}},
    "zero initial state": {"decoder": {"init_hidden": "zero"}},
    "batch size 100": {"training": {"batch_size": 100}},
    "learning rate 0.005": {"training": {"learning_rate": 0.005}},
    "constant learning rate": {"training": {"lr_schedule": "constant"}},
}
"""Changes to the settings of Pellucid's model; each removes one ingredient."""
NOTEBOOK_ARCHITECTURE, SHORT_PLAN = (
    DigitsArchitecture("attention"),
    DigitsTrainingPlan(EFFICIENCY_SAMPLES, eval_interval=750, validation_samples=EFFICIENCY_DEV_PAIRS),
)
ADDITIONS: Mapping[str, tuple[DigitsArchitecture, DigitsTrainingPlan]] = {
    "2016": (NOTEBOOK_ARCHITECTURE, SHORT_PLAN),
    "2016, padding masked": (NOTEBOOK_ARCHITECTURE._replace(attends_padding=False), SHORT_PLAN),
    "2016, bidirectional encoder": (NOTEBOOK_ARCHITECTURE._replace(bidirectional=True, merge="sum"), SHORT_PLAN),
    "2016, scaled initialization": (NOTEBOOK_ARCHITECTURE._replace(initialization="scaled"), SHORT_PLAN),
    "2016, batch size 10": (NOTEBOOK_ARCHITECTURE, SHORT_PLAN._replace(batch_size=10)),
    "2016, learning rate 0.02 with cosine decay": (
        NOTEBOOK_ARCHITECTURE,
        SHORT_PLAN._replace(learning_rate=0.02, decay="cosine"),
    ),
}
"""Changes to the notebook's network; each adds one ingredient."""
EFFICIENCY_INTRODUCTION = """\
This recipe measures the number of samples needed for 99 % symbol accuracy. The notebook's network did not reach it
with 150,000 samples. Pellucid's model reaches it with a fraction of them and fewer parameters. The ablations remove
one ingredient of Pellucid's model at a time; the additions add one to the network of 2016. All networks are trained on
the same number of samples."""


def run_sample_efficiency(request: RecipeRequest) -> Iterator[str]:
    """Train Pellucid's model, its ablations, the notebook's network, and that with each addition, with every seed.

    Args:
        request: The recipe's request; `samples` counts the training pairs of every training.

    Yields:
        A line per run, the table of all networks and the path of the report.

    Raises:
        DataError: The authors' curves are missing or damaged; this is found after the trainings.
        RunError: As in `train_and_evaluate`, or a report cannot be written.
    """
    make_folder(request.out)
    samples = request.samples or EFFICIENCY_SAMPLES
    seeds = range(1, request.seeds + 1)
    pellucid_jobs = [
        DigitsJob(
            name, request.out, seed, samples, load_recipe_config("digits-sample-efficiency", {"seed": seed, **settings})
        )._replace(dev_pairs=EFFICIENCY_DEV_PAIRS, test_pairs=EFFICIENCY_TEST_PAIRS)
        for name, settings in ABLATIONS.items()
        for seed in seeds
    ]
    notebook_experiments = [
        DigitsExperiment(name, architecture, plan._replace(samples=samples), seed)
        for name, (architecture, plan) in ADDITIONS.items()
        for seed in seeds
    ]
    jobs: list[DigitsJob | DigitsExperiment] = [*pellucid_jobs, *notebook_experiments]
    results = list(run_jobs(_train_either, [(f"{job.name}, seed {job.seed}", job) for job in jobs], request))
    groups = [
        DigitsRuns(name, [result for result in results if result.name == name]) for name in (*ABLATIONS, *ADDITIONS)
    ]
    for group in groups:
        yield from run_lines(group)
    table = _samples_table(groups)
    yield from ("  ".join(row) for row in table.rows)
    references = load_reference_curves(request.data, "attention")
    drawn_groups = [groups[0], *groups[len(ABLATIONS) : len(ABLATIONS) + 1]]
    lesson = LessonReport(
        "digits-sample-efficiency",
        "Samples needed for 99 % symbol accuracy",
        EFFICIENCY_INTRODUCTION,
        drawn_groups,
        references,
        POSITIONS_ATTENTION,
    )
    numbers = {
        "samples_to_99": {
            f"{result.name}, seed {result.seed}": samples_to_accuracy(result, TARGET_ACCURACY) for result in results
        },
        "final_symbol_accuracy": {f"{result.name}, seed {result.seed}": result.accuracy for result in results},
    }
    yield write_lesson_report(request, lesson._replace(parts=[table], numbers=numbers))


def _train_either(job: DigitsJob | DigitsExperiment, on_progress: ProgressCallback) -> DigitsResult:
    """Train a model of either kind."""
    return (
        train_and_evaluate(job, on_progress).result if isinstance(job, DigitsJob) else run_experiment(job, on_progress)
    )


def _samples_table(groups: list[DigitsRuns]) -> ReportTable:
    """Return samples to 99 % and final accuracy of each variant, by seed."""
    rows = []
    for group in groups:
        samples_needed = [samples_to_accuracy(result, TARGET_ACCURACY) for result in group.results]
        rows.append(
            (
                group.name,
                " ".join("–" if samples is None else f"{samples:,}" for samples in samples_needed),
                " ".join(f"{100 * result.accuracy:.2f}" for result in group.results),
                " ".join(f"{100 * result.final.exact_match:.1f}" for result in group.results),
                f"{group.results[0].parameters:,}",
            )
        )
    heads = ("network", "samples to 99 % symbol accuracy", "symbol accuracy, %", "exact match, %", "parameters")
    return ReportTable(
        "Ablations and additions", "One number per seed; – means that the training does not reach 99 %.", heads, rows
    )


EXTRAPOLATION_SAMPLES, EXTRAPOLATION_DEV_PAIRS, EXTRAPOLATION_TEST_PAIRS = 100_000, 300, 1_000
TEST_LENGTHS, PAIRS_PER_LENGTH = (1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100), 200
ATTENTION_TYPES = ("location", "additive", "monotonic")
ENCODER_DROPOUT = {"location": 0.1}
"""Encoder dropout by type of attention; 0 where none is given.

With dropout, location-sensitive attention does not end long outputs too early in any of five seeds. Dropout reduces the
symbol accuracy of additive attention by nearly half at the training lengths.
"""
EXTRAPOLATION_INTRODUCTION = """\
Training inputs have one to twenty digits, test inputs up to a hundred. The recipe shows where each type of attention
fails.

Additive attention finds the next word by the content of the encoder states, so the states must encode the number of
the word, and they are trained up to twenty only. Location-sensitive attention also reads its previous weights through
convolutions: from the last position the next word is a few letters further, at any length. Monotonic attention never
moves back, but starts each scan at the position where the last one stopped (Raffel et al. 2017, section 2.2): to move
forward it must reject the position that it selected one step before, and after a repeated word it may stay forever.

All decoders have a zero initial state and compute the output from the context alone: a decoder that starts with the
encoder's final state, or predicts the end from its own state, would learn to count there."""


class LengthAccuracy(NamedTuple):
    """Accuracy on inputs of one length, as fractions."""

    digits: int
    """Number of digits of each input."""
    symbol_accuracy: float
    exact_match: float
    agreement: AlignmentAgreement
    """Agreement of attention with the words of the digits."""
    stationary: float
    """Fraction of steps after the first whose most attended position is that of the step before."""


class ExtrapolationResult(NamedTuple):
    """A training with its accuracy at each test length."""

    training_result: DigitsResult
    lengths: list[LengthAccuracy]


def run_extrapolate(request: RecipeRequest) -> Iterator[str]:
    """Train each type of attention with every seed and test it at every length.

    Args:
        request: The recipe's request.

    Yields:
        A line per run, a line per run on its accuracy at the greatest length, and the path of the report.

    Raises:
        RunError: As in `train_and_evaluate`, or a report cannot be written.
    """
    make_folder(request.out)
    jobs = [
        DigitsJob(
            attention_type,
            request.out,
            seed,
            request.samples or EXTRAPOLATION_SAMPLES,
            load_recipe_config("digits-extrapolate", _extrapolation_settings(attention_type, seed)),
        )._replace(digits=(1, 20), dev_pairs=EXTRAPOLATION_DEV_PAIRS, test_pairs=EXTRAPOLATION_TEST_PAIRS)
        for attention_type in ATTENTION_TYPES
        for seed in range(1, request.seeds + 1)
    ]
    results = list(run_jobs(train_and_test_lengths, [(f"{job.name}, seed {job.seed}", job) for job in jobs], request))
    groups = [
        DigitsRuns(
            attention_type,
            [result.training_result for result in results if result.training_result.name == attention_type],
        )
        for attention_type in ATTENTION_TYPES
    ]
    for group in groups:
        yield from run_lines(group)
    for result in results:
        last = result.lengths[-1]
        yield (
            f"{_result_name(result)}, {last.digits} digits: symbol accuracy {100 * last.symbol_accuracy:.2f} %, exact "
            f"match {100 * last.exact_match:.1f} %, alignment error {100 * last.agreement.error:.2f} %, "
            f"{100 * last.stationary:.1f} % stationary steps"
        )
    numbers = {"lengths": {_result_name(result): [length._asdict() for length in result.lengths] for result in results}}
    lesson = LessonReport("digits-extrapolate", "Extrapolation to longer inputs", EXTRAPOLATION_INTRODUCTION, groups)
    yield write_lesson_report(request, lesson._replace(parts=_length_parts(results), numbers=numbers))


def _extrapolation_settings(attention_type: str, seed: int) -> dict[str, Any]:
    """Return the settings of one training."""
    return {
        "seed": seed,
        "attention": {"type": attention_type},
        "encoder": {"dropout": ENCODER_DROPOUT.get(attention_type, 0.0)},
    }


def train_and_test_lengths(job: DigitsJob, on_progress: ProgressCallback = discard_progress) -> ExtrapolationResult:
    """Train a model, then test it at every length.

    Args:
        job: The training.
        on_progress: Progress callback.

    Returns:
        The result of the training with its accuracy at each of `TEST_LENGTHS`.
    """
    run = train_and_evaluate(job, on_progress)
    predictor = load(run.folder)
    lengths = []
    for digits in TEST_LENGTHS:
        scored_run = score_run(predictor, spelled_digits(PAIRS_PER_LENGTH, digits, digits, 1_000 + digits))
        evaluation = scored_run.evaluation
        accuracy = LengthAccuracy(
            digits=digits,
            symbol_accuracy=evaluation.symbol_accuracy / 100,
            exact_match=evaluation.exact_match / 100,
            agreement=trace_agreement(scored_run.traces, [target for (target,) in scored_run.references]),
            stationary=stationary_fraction(scored_run.traces),
        )
        lengths.append(accuracy)
    return ExtrapolationResult(run.result, lengths)


def stationary_fraction(traces: Sequence[Trace]) -> float:
    """Return the fraction of steps after the first whose most attended position is that of the step before; 0 for none.

    Such a step attends to the same word again, although every word has one output symbol. Ties go to the first
    position.

    Args:
        traces: Decoded outputs with attention weights.
    """
    positions = [trace.attention.argmax(axis=1) for trace in traces]
    num_steps = sum(max(len(row) - 1, 0) for row in positions)
    return sum(int((row[1:] == row[:-1]).sum()) for row in positions) / max(num_steps, 1)


def _length_parts(results: Sequence[ExtrapolationResult]) -> list[ReportPart]:
    """Return accuracy by length, as a figure and as a table."""
    caption = (
        f"Symbol accuracy on {PAIRS_PER_LENGTH} pairs of each length. Training lengths are shaded. A thin line is one "
        "seed, a thick line the mean."
    )
    heads = (
        "digits",
        *(
            f"{_result_name(result)}: symbol accuracy, exact match, alignment error, stationary steps"
            for result in results
        ),
    )
    rows = [
        (
            str(digits),
            *(
                f"{100 * length.symbol_accuracy:.2f}, {100 * length.exact_match:.1f}, "
                f"{100 * length.agreement.error:.2f}, {100 * length.stationary:.1f}"
                for length in (result.lengths[index] for result in results)
            ),
        )
        for index, digits in enumerate(TEST_LENGTHS)
    ]
    title = "Accuracy by length"
    return [
        ReportFigure(title, caption, to_svg(_length_figure(results))),
        ReportTable(title, "All values are in percent.", heads, rows),
    ]


def _length_figure(results: Sequence[ExtrapolationResult]) -> Figure:
    """Draw accuracy over length."""
    figure = empty_figure(7.2, 3.8)
    axes = figure.add_subplot()
    axes.axvspan(1, 20, color="#eef2f7", linewidth=0)
    for attention_type, color in zip(ATTENTION_TYPES, line_colors(len(ATTENTION_TYPES)), strict=True):
        curves = [
            [length.symbol_accuracy for length in result.lengths]
            for result in results
            if result.training_result.name == attention_type
        ]
        for curve in curves:
            axes.plot(TEST_LENGTHS, curve, color=color, linewidth=0.7, alpha=0.6)
        axes.plot(TEST_LENGTHS, np.mean(curves, axis=0), color=color, linewidth=2, label=attention_type)
    style_axes(axes)
    axes.set_ylim(0.0, 1.02)
    axes.set_ylabel("symbol accuracy", color=MUTED)
    axes.set_xlabel("digits of the input", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return freeze_layout(figure)


def _result_name(result: ExtrapolationResult) -> str:
    """Return name and seed of a run."""
    return f"{result.training_result.name}, seed {result.training_result.seed}"
