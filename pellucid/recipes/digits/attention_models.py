"""Pellucid's own attention models on spelled digits: digits-attention, digits-fewest and digits-extrapolate.

N traces, T target positions, S source positions.
"""

import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int
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
    DigitsResult,
    DigitsStudy,
    DigitsTrainingPlan,
    DigitsValidation,
    discard_progress,
    run_study,
)
from pellucid.recipes.jobs import progress_callback, run_jobs
from pellucid.recipes.recipe import RecipeRequest, load_recipe_config
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, mean_attention, style_axes, to_svg
from pellucid.reporting.terminal import render_trace, shade_legend
from pellucid.tasks.task import ATTENTION_CAPTION
from pellucid.training.ensemble_training import throttle
from pellucid.training.run_folder import load, read_log
from pellucid.training.session import TrainingFiles, train_run
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import ScoredRun, run_report, score_run, write_report
from pellucid.worker_pool import ProgressCallback


class DigitsJob(NamedTuple):
    """Training of a Pellucid model on spelled digits."""

    name: str
    """Empty if a seed has only one training."""
    out: Path
    seed: int
    samples: int
    config: Config
    digits: tuple[int, int] = (20, 20)
    """Minimum and maximum number of digits of a pair."""
    development: int = 1_000
    test: int = 5_000


class TrainedDigitsRun(NamedTuple):
    """A trained run with its evaluation, also in the form of the notebook's networks."""

    folder: Path
    judgement: ScoredRun
    outcome: DigitsResult


def train_and_evaluate(task: DigitsJob, tell: ProgressCallback = discard_progress) -> TrainedDigitsRun:
    """Train on pairs that are seen once each and evaluate on new pairs.

    Args:
        task: The training.
        tell: Progress callback.
    """
    tag = f"{task.name} seed {task.seed}".strip().replace(" ", "-")
    data, folder = task.out / "data" / tag, task.out / "runs" / tag
    make_folder(data)
    counts = {"train": task.samples, "dev": task.development, "test": task.test}
    pairs = {
        name: spelled_digits(count, *task.digits, 10 * task.seed + place)
        for place, (name, count) in enumerate(counts.items())
    }
    for name, examples in pairs.items():
        write_pairs(data / f"{name}.tsv", examples)
    events = train_run(TrainingFiles(data / "train.tsv", data / "dev.tsv"), folder, task.config)
    for _, event in throttle(events):
        if event is not None:
            tell(event)
    judgement = score_run(load(folder), pairs["test"])
    return TrainedDigitsRun(folder, judgement, digits_result(task, folder, judgement))


def digits_result(task: DigitsJob, folder: Path, judgement: ScoredRun) -> DigitsResult:
    """Return a run as a `DigitsResult`: the log as a curve, scores as fractions."""
    log = read_log(folder)
    curve = [
        DigitsValidation(
            record["samples"], record["loss"], record["symbol_accuracy"] / 100, record["exact_match"] / 100
        )
        for record in log
        if record["event"] == "validated"
    ]
    evaluation = judgement.evaluation
    final = DigitsEvaluation(
        symbol_accuracy=evaluation.symbol_accuracy / 100,
        exact_match=evaluation.exact_match / 100,
        per_position=[position.right / max(position.total, 1) for position in evaluation.positions],
        attention_mean=mean_attention(judgement.traces)[: len(evaluation.positions)].tolist(),
        agreement=trace_agreement(judgement.traces, [target for (target,) in judgement.references]),
    )
    seconds = [record["seconds"] for record in log if record["event"] == "stopped"][-1]
    return DigitsResult(task.name, task.seed, parameter_count(judgement.predictor.network), seconds, curve, final)


def trace_agreement(traces: Sequence[Trace], digits: Sequence[str]) -> AlignmentAgreement:
    """Return the agreement of attention with the source words of the written digits.

    Args:
        traces: Decoded outputs with attention weights.
        digits: Target of each trace; its i-th digit gives the span of the i-th output symbol.
    """
    steps = max(len(trace.target) for trace in traces)
    weights = np.zeros((len(traces), steps, max(len(trace.source) for trace in traces)), np.float32)
    first, stop = (np.zeros(weights.shape[:2], np.int64) for _ in range(2))
    known = np.zeros(weights.shape[:2], np.bool_)
    for row, (trace, answer) in enumerate(zip(traces, digits, strict=True)):
        count = min(len(trace.target), len(answer))
        ends = word_ends(answer)[:count]
        weights[row, : trace.attention.shape[0], : trace.attention.shape[1]] = trace.attention
        stop[row, :count], known[row, :count] = ends, True
        first[row, 1:count] = ends[:-1]
    return alignment_agreement(weights, AlignmentSpans(first, stop, known))


def word_ends(digits: str) -> Int[np.ndarray, " T"]:
    """Return the end of each digit's word in the source, including the space after it."""
    return np.cumsum(WORD_SIZES[[int(digit) for digit in digits]])


def samples_to_accuracy(outcome: DigitsResult, accuracy: float) -> int | None:
    """Return the samples seen at the first validation with at least this accuracy, or None."""
    return next((point.samples for point in outcome.curve if point.symbol_accuracy >= accuracy), None)


DEMO_DIGITS, DEMO_SAMPLES, DEMO_DEV_PAIRS, DEMO_TEST_PAIRS = 20, 60_000, 1_000, 5_000
DEMO_NUMBERS = ("31415926535897932384", "27182818284590452353", "11111111112222222222")
"""Inputs of the printed examples: digits of π, digits of e, and repeated digits, where attention can lose its position.
"""
DEMO_NAME, DEMO_TITLE = "digits-attention", "Spelled digits to digits, with attention"
DEMO_INTRODUCTION = """\
A bidirectional GRU encoder of 5 + 5 units reads twenty spelled digits, about 99 characters. A GRU decoder of 10 units
with additive attention writes them as digits. Every training pair is seen once; the test pairs are new.

The 2016 notebook results at most 89.2 % symbol accuracy, with twice the samples and more parameters; its
encoder-decoder without attention results a quarter."""


def run_attention(request: RecipeRequest) -> Iterator[str]:
    """Train one model per seed, evaluate it on new pairs, print examples, and write report.html and report.json."""
    results = [
        train_and_evaluate(
            DigitsJob(
                "", request.out, seed, request.samples or DEMO_SAMPLES, load_recipe_config(DEMO_NAME, {"seed": seed})
            )._replace(digits=(DEMO_DIGITS, DEMO_DIGITS), development=DEMO_DEV_PAIRS, test=DEMO_TEST_PAIRS),
            progress_callback(request, f"attention, seed {seed} ({seed} of {request.seeds})"),
        )
        for seed in range(1, request.seeds + 1)
    ]
    yield from _translation_lines(results[0].folder)
    group = DigitsRuns("attention", [result.outcome for result in results])
    lesson = LessonReport(
        DEMO_NAME, DEMO_TITLE, DEMO_INTRODUCTION, [group], _optional_reference_curves(request.data), POSITIONS_ATTENTION
    )
    report = run_report(results[0].folder, results[0].judgement, DEMO_TITLE, DEMO_INTRODUCTION)
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
    width = shutil.get_terminal_size((120, 24)).columns
    for trace in load(folder).predict([spell_digits(number) for number in DEMO_NUMBERS]):
        yield f"{render_trace(trace, width=width, color=color)}\n"
    yield f"{shade_legend(color=color)}\n{ATTENTION_CAPTION}\n"


FEWEST_SAMPLES, FEWEST_DEV_PAIRS, FEWEST_TEST_PAIRS = 15_000, 500, 2_000
TARGET_ACCURACY = 0.99
ABLATIONS: Mapping[str, Mapping[str, Any]] = {
    "ours": {},
    "reads forward only": {"encoder": {"bidirectional": False, "hidden_size": 10}},
    "no symbol fed back": {"decoder": {"embedding": "none"}},
    "output reads the context only": {"decoder": {"output": "context"}},
    "starts from zero": {"decoder": {"init_hidden": "zero"}},
    "batches of 100": {"training": {"batch_size": 100}},
    "rate 0.005": {"training": {"learning_rate": 0.005}},
    "constant rate": {"training": {"lr_schedule": "constant"}},
}
"""Changes to Pellucid's model, each removes one ingredient."""
NOTEBOOK_ARCHITECTURE, SHORT_PLAN = (
    DigitsArchitecture("attention"),
    DigitsTrainingPlan(FEWEST_SAMPLES, eval_interval=750, validation_samples=FEWEST_DEV_PAIRS),
)
ADDITIONS: Mapping[str, tuple[DigitsArchitecture, DigitsTrainingPlan]] = {
    "2016": (NOTEBOOK_ARCHITECTURE, SHORT_PLAN),
    "2016, padding masked": (NOTEBOOK_ARCHITECTURE._replace(attends_padding=False), SHORT_PLAN),
    "2016, reads both ways": (NOTEBOOK_ARCHITECTURE._replace(bidirectional=True, merge="sum"), SHORT_PLAN),
    "2016, weights scaled by size": (NOTEBOOK_ARCHITECTURE._replace(initial="scaled"), SHORT_PLAN),
    "2016, batches of 10": (NOTEBOOK_ARCHITECTURE, SHORT_PLAN._replace(batch_size=10)),
    "2016, rate 0.02 falling": (NOTEBOOK_ARCHITECTURE, SHORT_PLAN._replace(learning_rate=0.02, decay="cosine")),
}
"""Changes to the notebook's network, each adds one ingredient."""
FEWEST_INTRODUCTION = """\
This recipe measures the number of samples needed for 99 % symbol accuracy. The notebook's network did not reach it
with 150,000 samples. Pellucid's model reaches it with a fraction of them and fewer parameters. Each of its
ingredients is removed from it by itself, and each is added by itself to the network of 2016; all trainings have the
same number of samples."""


def run_fewest(request: RecipeRequest) -> Iterator[str]:
    """Train Pellucid's model, its ablations, and the notebook's network with each addition."""
    make_folder(request.out)
    samples = request.samples or FEWEST_SAMPLES
    seeds = range(1, request.seeds + 1)
    own = [
        DigitsJob(
            name, request.out, seed, samples, load_recipe_config("digits-fewest", {"seed": seed, **without})
        )._replace(development=FEWEST_DEV_PAIRS, test=FEWEST_TEST_PAIRS)
        for name, without in ABLATIONS.items()
        for seed in seeds
    ]
    theirs = [
        DigitsStudy(name, design, plan._replace(samples=samples), seed)
        for name, (design, plan) in ADDITIONS.items()
        for seed in seeds
    ]
    jobs: list[DigitsJob | DigitsStudy] = [*own, *theirs]
    outcomes = list(run_jobs(_train_either, [(f"{job.name}, seed {job.seed}", job) for job in jobs], request))
    groups = [
        DigitsRuns(name, [outcome for outcome in outcomes if outcome.name == name]) for name in (*ABLATIONS, *ADDITIONS)
    ]
    for group in groups:
        yield from run_lines(group)
    table = _samples_table(groups)
    yield from ("  ".join(row) for row in table.rows)
    references = load_reference_curves(request.data, "attention")
    shown = [groups[0], *groups[len(ABLATIONS) : len(ABLATIONS) + 1]]
    lesson = LessonReport(
        "digits-fewest",
        "Samples needed for 99 % symbol accuracy",
        FEWEST_INTRODUCTION,
        shown,
        references,
        POSITIONS_ATTENTION,
    )
    numbers = {
        "samples_to_99": {
            f"{outcome.name}, seed {outcome.seed}": samples_to_accuracy(outcome, TARGET_ACCURACY)
            for outcome in outcomes
        },
        "final_symbol_accuracy": {f"{outcome.name}, seed {outcome.seed}": outcome.accuracy for outcome in outcomes},
    }
    yield write_lesson_report(request, lesson._replace(parts=[table], numbers=numbers))


def _train_either(job: DigitsJob | DigitsStudy, tell: ProgressCallback) -> DigitsResult:
    """Train a model of either kind."""
    return train_and_evaluate(job, tell).outcome if isinstance(job, DigitsJob) else run_study(job, tell)


def _samples_table(groups: list[DigitsRuns]) -> ReportTable:
    """Return samples to 99 % and final accuracy of each variant, by seed."""
    rows = []
    for group in groups:
        needed = [samples_to_accuracy(outcome, TARGET_ACCURACY) for outcome in group.outcomes]
        rows.append(
            (
                group.name,
                " ".join("–" if samples is None else f"{samples:,}" for samples in needed),
                " ".join(f"{100 * outcome.accuracy:.2f}" for outcome in group.outcomes),
                " ".join(f"{100 * outcome.final.exact_match:.1f}" for outcome in group.outcomes),
                f"{group.outcomes[0].parameters:,}",
            )
        )
    heads = ("network", "samples to 99 % of the symbols", "symbols right, %", "sequences right, %", "parameters")
    return ReportTable("Ablations and additions", "One number per seed; –: not results.", heads, rows)


EXTRAPOLATION_SAMPLES, EXTRAPOLATION_DEV_PAIRS, EXTRAPOLATION_TEST_PAIRS = 100_000, 300, 1_000
TEST_LENGTHS, PAIRS_PER_LENGTH = (1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100), 200
ATTENTION_TYPES = ("location", "additive", "monotonic")
ENCODER_DROPOUT = {"location": 0.1}
"""Encoder dropout by type of attention; 0 where none is given.

With it location-sensitive attention does not end long rows too early in any of five seeds. Additive attention loses
nearly half of its symbols to it at the training lengths.
"""
EXTRAPOLATION_INTRODUCTION = """\
The training rows have one to twenty digits, the test rows up to a hundred. The recipe shows where each type of
attention fails.

Additive attention finds the next word by the content of the encoder states, so the states must count the words, and
they have never counted beyond twenty. Location-sensitive attention also sees its previous weights through
convolutions: from there the next word is a few letters on, at any length. Monotonic attention never moves back, but
starts each scan at the position where the last one stopped (Raffel et al. 2017, section 2.2): to move on it must
reject the position that it selected one step before, and after a repeated word it may stay forever.

All decoders start from zero and compute the output from the context alone: a decoder that starts with the encoder's
summary, or predicts the end from its own state, would learn to count there."""


class LengthAccuracy(NamedTuple):
    """Accuracy on inputs of one length, as fractions."""

    digits: int
    symbol_accuracy: float
    exact_match: float
    agreement: AlignmentAgreement
    stays: float
    """Share of steps after the first whose most attended position is that of the step before."""


class ExtrapolationResult(NamedTuple):
    """A training with its accuracy at each test length."""

    outcome: DigitsResult
    lengths: list[LengthAccuracy]


def run_extrapolate(request: RecipeRequest) -> Iterator[str]:
    """Train each type of attention with every seed and test it at every length."""
    make_folder(request.out)
    tasks = [
        DigitsJob(
            score,
            request.out,
            seed,
            request.samples or EXTRAPOLATION_SAMPLES,
            load_recipe_config("digits-extrapolate", _extrapolation_settings(score, seed)),
        )._replace(digits=(1, 20), development=EXTRAPOLATION_DEV_PAIRS, test=EXTRAPOLATION_TEST_PAIRS)
        for score in ATTENTION_TYPES
        for seed in range(1, request.seeds + 1)
    ]
    results = list(
        run_jobs(train_and_test_lengths, [(f"{task.name}, seed {task.seed}", task) for task in tasks], request)
    )
    groups = [
        DigitsRuns(score, [each.outcome for each in results if each.outcome.name == score]) for score in ATTENTION_TYPES
    ]
    for group in groups:
        yield from run_lines(group)
    for each in results:
        last = each.lengths[-1]
        yield (
            f"{_result_name(each)}, {last.digits} digits: {100 * last.symbol_accuracy:.2f} % of the symbols, "
            f"{100 * last.exact_match:.1f} % of the sequences, alignment error {100 * last.agreement.error:.2f} %, "
            f"{100 * last.stays:.1f} % of the steps do not move"
        )
    numbers = {"lengths": {_result_name(each): [length._asdict() for length in each.lengths] for each in results}}
    lesson = LessonReport("digits-extrapolate", "Extrapolation to longer inputs", EXTRAPOLATION_INTRODUCTION, groups)
    yield write_lesson_report(request, lesson._replace(parts=_length_parts(results), numbers=numbers))


def _extrapolation_settings(score: str, seed: int) -> dict[str, Any]:
    """Return the settings of one training."""
    return {"seed": seed, "attention": {"type": score}, "encoder": {"dropout": ENCODER_DROPOUT.get(score, 0.0)}}


def train_and_test_lengths(task: DigitsJob, tell: ProgressCallback = discard_progress) -> ExtrapolationResult:
    """Train, then test at every length."""
    result = train_and_evaluate(task, tell)
    predictor = load(result.folder)
    lengths = []
    for digits in TEST_LENGTHS:
        judgement = score_run(predictor, spelled_digits(PAIRS_PER_LENGTH, digits, digits, 1_000 + digits))
        evaluation = judgement.evaluation
        agreed = trace_agreement(judgement.traces, [target for (target,) in judgement.references])
        accuracies = evaluation.symbol_accuracy / 100, evaluation.exact_match / 100
        lengths.append(LengthAccuracy(digits, *accuracies, agreed, stationary_share(judgement.traces)))
    return ExtrapolationResult(result.outcome, lengths)


def stationary_share(traces: Sequence[Trace]) -> float:
    """Return the share of steps whose most attended position is that of the step before.

    Such a step reads a word again, although every word is written once.
    """
    places = [trace.attention.argmax(axis=1) for trace in traces]
    looks = sum(max(len(place) - 1, 0) for place in places)
    return sum(int((place[1:] == place[:-1]).sum()) for place in places) / max(looks, 1)


def _length_parts(results: Sequence[ExtrapolationResult]) -> list[ReportPart]:
    """Return accuracy by length, as a figure and as a table."""
    caption = (
        f"Symbol accuracy on {PAIRS_PER_LENGTH} pairs of each length. Training lengths are shaded. A thin line is one "
        "seed, a thick line the mean."
    )
    heads = (
        "digits",
        *(f"{_result_name(each)}: symbols, sequences, alignment error, stationary steps" for each in results),
    )
    rows = [
        (
            str(digits),
            *(
                f"{100 * each.lengths[at].symbol_accuracy:.2f}, {100 * each.lengths[at].exact_match:.1f}, "
                f"{100 * each.lengths[at].agreement.error:.2f}, {100 * each.lengths[at].stays:.1f}"
                for each in results
            ),
        )
        for at, digits in enumerate(TEST_LENGTHS)
    ]
    title = "Accuracy by length"
    return [
        ReportFigure(title, caption, to_svg(_length_figure(results))),
        ReportTable(title, "All in percent.", heads, rows),
    ]


def _length_figure(results: Sequence[ExtrapolationResult]) -> Figure:
    """Draw accuracy over length."""
    figure = empty_figure(7.2, 3.8)
    axes = figure.add_subplot()
    axes.axvspan(1, 20, color="#eef2f7", linewidth=0)
    for score, color in zip(ATTENTION_TYPES, line_colors(len(ATTENTION_TYPES)), strict=True):
        runs = [[length.symbol_accuracy for length in each.lengths] for each in results if each.outcome.name == score]
        for values in runs:
            axes.plot(TEST_LENGTHS, values, color=color, linewidth=0.7, alpha=0.6)
        axes.plot(TEST_LENGTHS, np.mean(runs, axis=0), color=color, linewidth=2, label=score)
    style_axes(axes)
    axes.set_ylim(0.0, 1.02)
    axes.set_ylabel("symbols right", color=MUTED)
    axes.set_xlabel("digits of the input", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return freeze_layout(figure)


def _result_name(results: ExtrapolationResult) -> str:
    """Return name and seed of a run."""
    return f"{results.outcome.name}, seed {results.outcome.seed}"
