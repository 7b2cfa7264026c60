"""Trained on 1 to 20 digits, tested on up to 100: what attention must know to go on."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from pellucid.data.synthetic import spelled_digits
from pellucid.decoding.trace import Trace
from pellucid.evaluation.alignment import AlignmentAgreement
from pellucid.files import make_folder
from pellucid.recipes.digits.own import Task, agreement_of, train_and_judge
from pellucid.recipes.digits.report import Group, Lesson, colors, lines_of, write_lesson
from pellucid.recipes.digits.study import Outcome, unheard
from pellucid.recipes.following import followed
from pellucid.recipes.recipe import Request, recipe_config
from pellucid.reporting.figures import MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.training.run_folder import load
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable
from pellucid.viewer.reports import score_run
from pellucid.worker_pool import ProgressCallback

SAMPLES, DEVELOPMENT, TEST = 100_000, 300, 1_000
LENGTHS, EACH = (1, 5, 10, 15, 20, 25, 30, 40, 50, 60, 70, 80, 90, 100), 200
SCORES = ("location", "additive", "monotonic")
DROPOUT = {"location": 0.1}
"""Share of the encoder's units dropped in training, 0 where none is named. It is what keeps the fifth seed of location
from ending long rows early; additive attention loses nearly half of its symbols to it, at the lengths it was taught."""
INTRODUCTION = """Every network here has seen rows of one to twenty digits and nothing longer; then it is asked for up
to a hundred. Where do they break, and why?

Additive attention finds the next word by what the encoder's states say, so the states must count the words, and they
have never counted beyond twenty. Location-sensitive attention also sees where it looked last, through filters that
slide over its own weights: from there the next word is a few letters on, whatever the length. Monotonic attention
never goes back, but begins each scan at the very position where the last one stopped (Raffel et al. 2017, section
2.2): to go on it must no longer like what it liked a step before, and where a word comes twice it may stay for good.

All three start from nothing and write from the context alone: a decoder that begins with the encoder's summary, or
may guess the end from its own state, learns to count there instead."""


class Length(NamedTuple):
    """What a network makes of rows of so many digits; shares of 1."""

    digits: int
    symbol_accuracy: float
    exact_match: float
    agreement: AlignmentAgreement
    stays: float
    """Share of the looks, the first of each row apart, at the very position of the look before."""


class Reached(NamedTuple):
    """One training, and how far it reaches."""

    outcome: Outcome
    lengths: list[Length]


def run(request: Request) -> Iterator[str]:
    """Train each kind of attention with every seed, and test each at every length."""
    make_folder(request.out)
    tasks = [
        Task(
            score,
            request.out,
            seed,
            request.samples or SAMPLES,
            recipe_config("digits-extrapolate", _settings(score, seed)),
        )._replace(digits=(1, 20), development=DEVELOPMENT, test=TEST)
        for score in SCORES
        for seed in range(1, request.seeds + 1)
    ]
    reached = list(followed(reach, [(f"{task.name}, seed {task.seed}", task) for task in tasks], request))
    groups = [Group(score, [each.outcome for each in reached if each.outcome.name == score]) for score in SCORES]
    for group in groups:
        yield from lines_of(group)
    for each in reached:
        last = each.lengths[-1]
        yield (
            f"{_tag(each)}, {last.digits} digits: {100 * last.symbol_accuracy:.2f} % of the symbols, "
            f"{100 * last.exact_match:.1f} % of the sequences, alignment error {100 * last.agreement.error:.2f} %, "
            f"{100 * last.stays:.1f} % of the looks do not move"
        )
    numbers = {"lengths": {_tag(each): [length._asdict() for length in each.lengths] for each in reached}}
    lesson = Lesson("digits-extrapolate", "Five times as long as any seen", INTRODUCTION, groups)
    yield write_lesson(request, lesson._replace(parts=_parts(reached), numbers=numbers))


def _settings(score: str, seed: int) -> dict[str, Any]:
    """What one training has of its own."""
    return {"seed": seed, "attention": {"type": score}, "encoder": {"dropout": DROPOUT.get(score, 0.0)}}


def reach(task: Task, tell: ProgressCallback = unheard) -> Reached:
    """Train, then test at every length."""
    result = train_and_judge(task, tell)
    transducer = load(result.folder)
    lengths = []
    for digits in LENGTHS:
        judgement = score_run(transducer, spelled_digits(EACH, digits, digits, 1_000 + digits))
        evaluation = judgement.evaluation
        agreed = agreement_of(judgement.traces, [target for (target,) in judgement.references])
        accuracies = evaluation.symbol_accuracy / 100, evaluation.exact_match / 100
        lengths.append(Length(digits, *accuracies, agreed, stays(judgement.traces)))
    return Reached(result.outcome, lengths)


def stays(traces: Sequence[Trace]) -> float:
    """The share of looks that do not move: a word read twice, where every word is to be written once."""
    places = [trace.attention.argmax(axis=1) for trace in traces]
    looks = sum(max(len(place) - 1, 0) for place in places)
    return sum(int((place[1:] == place[:-1]).sum()) for place in places) / max(looks, 1)


def _parts(reached: Sequence[Reached]) -> list[ReportPart]:
    """Accuracy over length, as a figure and in numbers."""
    caption = (
        f"Symbols right of {EACH} rows of each length; trained on the lengths in the shade. A hairline is one seed, a "
        "thick line the mean."
    )
    heads = ("digits", *(f"{_tag(each)}: symbols, sequences, alignment error, looks that stay" for each in reached))
    rows = [
        (
            str(digits),
            *(
                f"{100 * each.lengths[at].symbol_accuracy:.2f}, {100 * each.lengths[at].exact_match:.1f}, "
                f"{100 * each.lengths[at].agreement.error:.2f}, {100 * each.lengths[at].stays:.1f}"
                for each in reached
            ),
        )
        for at, digits in enumerate(LENGTHS)
    ]
    title = "How far each reaches"
    return [ReportFigure(title, caption, to_svg(_figure(reached))), ReportTable(title, "All in per cent.", heads, rows)]


def _figure(reached: Sequence[Reached]) -> Figure:
    """Accuracy over length."""
    figure = empty_figure(7.2, 3.8)
    axes = figure.add_subplot()
    axes.axvspan(1, 20, color="#eef2f7", linewidth=0)
    for score, color in zip(SCORES, colors(len(SCORES)), strict=True):
        runs = [[length.symbol_accuracy for length in each.lengths] for each in reached if each.outcome.name == score]
        for values in runs:
            axes.plot(LENGTHS, values, color=color, linewidth=0.7, alpha=0.6)
        axes.plot(LENGTHS, np.mean(runs, axis=0), color=color, linewidth=2, label=score)
    style_axes(axes)
    axes.set_ylim(0.0, 1.02)
    axes.set_ylabel("symbols right", color=MUTED)
    axes.set_xlabel("digits of the input", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=9)
    return freeze_layout(figure)


def _tag(reached: Reached) -> str:
    """A run's name and seed."""
    return f"{reached.outcome.name}, seed {reached.outcome.seed}"
