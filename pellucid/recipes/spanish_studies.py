"""What the decoder of 2016 was trained with at scale: sampled softmax; buckets, beside length batching and masking."""

import random
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from pellucid.files import make_folder, write_json
from pellucid.recipes.recipe import Request
from pellucid.recipes.spanish import sampled
from pellucid.recipes.spanish.padding import BUCKETS, PADDINGS, SCHEMES, Job, Measured, bucket_of, measure
from pellucid.recipes.spanish.sampled import SAMPLED, VOCABULARY, Outcome, Plan
from pellucid.recipes.spanish.sentences import tokens_of
from pellucid.recipes.spanish.tatoeba import read_sentences
from pellucid.reporting.figures import ACCENT, MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ignore_progress, parallel_map

NAME, TITLE = "spanish-studies", "Sampled softmax, buckets and padding"
FULL_UPDATES, TIMES, SENTENCES = 200, 5, 2_000
"""Updates by the full softmax; so many times as many by the sampled one; sentences that are put into batches."""
INTRODUCTION = """The post of 2016 names two things for larger data than its own. Sampled softmax: in training, the
loss of each word among itself and 512 drawn words in place of all 50,000, corrected by how probable each was to be
drawn; what is written is always chosen among all. Measured with a network of 128 units on made-up sentences, whose
words are drawn by Zipf's law and translated by a dictionary; both trainings are judged by the full softmax.

Buckets: sentences of like lengths together at four fixed sizes, one model with the same parameters for each. Beside
them: all sentences as long as the longest, as the post has it, and batches of like lengths; and with padding looked at,
or masked. Measured on sentences of Tatoeba, one pass with the same network of 128 units.

Seconds are those of a processor, on one thread: the machine had other work."""
NAMES = {"longest": "all as long as the longest", "buckets": "buckets", "alike": "like lengths"}


class Compared(NamedTuple):
    """One way to batch beside the first one with the same padding."""

    measured: Measured
    loss: float
    """Mean of a sentence."""
    off: float
    """The greatest difference of a sentence's loss, as a share of it."""
    gradient_off: float
    """‖g − g₁‖ / ‖g₁‖."""


def run(request: Request) -> Iterator[str]:
    """Both studies; `samples` counts the sentences that the full softmax is trained on, and those put into batches."""
    make_folder(request.out)
    updates = max(1, request.samples // sampled.BATCH) if request.samples else FULL_UPDATES
    plans = [Plan("full", updates, 1), Plan("sampled", TIMES * updates, 1)]
    outcomes = []
    for outcome in parallel_map(partial(ignore_progress, sampled.conduct), plans):
        outcomes.append(outcome)
        yield _line(outcome)
    yield in_words(outcomes)
    pairs, left_out = _pairs(request.data, request.samples or SENTENCES)
    jobs = [Job(pairs, scheme, padding) for padding in PADDINGS for scheme in SCHEMES]
    compared = compare(list(parallel_map(partial(ignore_progress, measure), jobs)))
    yield from map(_told_of, compared)
    write_json(request.out / "report.json", _numbers(outcomes, compared, (len(pairs), left_out)))
    report = Report(
        title=TITLE, introduction=INTRODUCTION, parts=list(_parts(outcomes, compared, (len(pairs), left_out)))
    )
    write_report(request.out / "report.html", report)
    yield f"report: {request.out / 'report.html'}"


def compare(measured: Sequence[Measured]) -> list[Compared]:
    """Each way beside the first with the same padding."""
    compared = []
    for own in measured:
        first = next(each for each in measured if each.padding == own.padding)
        off = float(np.max(np.abs(own.losses - first.losses) / first.losses))
        length = float(np.linalg.norm(first.gradient))
        gradient_off = float(np.linalg.norm(own.gradient - first.gradient)) / length
        compared.append(Compared(own, float(own.losses.mean()), off, gradient_off))
    return compared


def in_words(outcomes: Sequence[Outcome]) -> str:
    """What sampling saves, and what it costs."""
    full, fewer = outcomes
    budget = full.curve[-1]
    same = next(point for point in fewer.curve if point.updates >= budget.updates)
    in_time = [point for point in fewer.curve if point.seconds <= budget.seconds][-1]
    return (
        f"An update by {SAMPLED} sampled words takes {1000 * fewer.update_seconds:.0f} ms, by all {VOCABULARY:,} "
        f"{1000 * full.update_seconds:.0f} ms (the loss alone {1000 * fewer.cost_seconds:.1f} and "
        f"{1000 * full.cost_seconds:.0f} ms; the rest is the network, and Adam over all parameters). After "
        f"{budget.updates} updates the loss of held-out words, by all words, is {budget.loss:.3f} with the full "
        f"softmax and {same.loss:.3f} with the sampled one; in the time of the full one, {budget.seconds:.0f} s, the "
        f"sampled one makes {in_time.updates} updates and comes to {in_time.loss:.3f}."
    )


def _pairs(data: Path, count: int) -> tuple[list[tuple[str, str]], int]:
    """Sentences that the greatest bucket holds, drawn with a fixed seed; and how many of those drawn it does not."""
    drawn = random.Random(1).sample(list(read_sentences(data, 0).train), count)
    pairs = [(pair.source, pair.target) for pair in drawn]
    held = [pair for pair in pairs if bucket_of(len(tokens_of(pair[0])), len(tokens_of(pair[1])) + 2) is not None]
    return held, len(pairs) - len(held)


def _line(outcome: Outcome) -> str:
    """One line of a training."""
    last = outcome.curve[-1]
    return (
        f"{outcome.plan.cost} softmax: loss {last.loss:.3f} after {last.updates} updates in {last.seconds:.0f} s, "
        f"{1000 * outcome.update_seconds:.0f} ms an update, {1000 * outcome.cost_seconds:.1f} ms of it for the loss"
    )


def _told_of(each: Compared) -> str:
    """One line of a way to batch."""
    own = each.measured
    return (
        f"{NAMES[own.scheme]}, padding {own.padding}: {100 * own.source_padding:.1f} % and "
        f"{100 * own.target_padding:.1f} % padding, {own.seconds:.1f} s a pass, {each.loss:.4f} a sentence, losses off "
        f"by up to {each.off:.1e}, gradient by {each.gradient_off:.1e}"
    )


def _parts(outcomes: Sequence[Outcome], compared: Sequence[Compared], pairs: tuple[int, int]) -> Iterator[ReportPart]:
    """Pictures, tables, and what they say."""
    title = "Sampled softmax"
    caption = "Loss of held-out words over all 50,000, over the seconds of training: full, and 512 sampled."
    yield ReportFigure(title, caption, to_svg(sampled_figure(outcomes)))
    yield ReportText(title, in_words(outcomes))
    rows = [
        [
            each.plan.cost,
            f"{each.curve[-1].updates:,}",
            f"{each.curve[-1].seconds:.0f}",
            f"{1000 * each.update_seconds:.1f}",
            f"{1000 * each.cost_seconds:.1f}",
            f"{each.curve[0].loss:.3f}",
            f"{each.curve[-1].loss:.3f}",
        ]
        for each in outcomes
    ]
    heads = ["softmax", "updates", "seconds", "ms an update", "ms of it the loss", "loss at first", "at last"]
    yield ReportTable(title, "Medians, on one thread.", heads, rows)
    title, (held, left_out) = "Buckets, like lengths, masking", pairs
    caption = (
        f"One pass over {held:,} sentences, buckets {', '.join(f'{s}×{t}' for s, t in BUCKETS)}; {left_out} drawn "
        "sentences fit in none. Off: the greatest difference of a sentence's loss, and that of the gradient, from the "
        "first row with the same padding."
    )
    heads = ["batches", "padding is", "source padding", "target padding", "batches of 64 or less", "seconds"]
    yield ReportTable(
        title, caption, [*heads, "loss a sentence", "losses off by", "gradient off by"], list(_rows(compared))
    )
    yield ReportText(title, MEANING)


MEANING = """Where padding is masked, the way to batch changes the time and nothing else: loss and gradient are the
same but for rounding, so that buckets, like lengths and full width are one model. Where padding is looked at, as in
the post, what is made of a sentence depends on how wide the batch is that it came in: buckets leave less
padding to look at, masking none. Batches of like lengths need no sizes chosen beforehand; Pellucid masks, and batches
so."""


def _rows(compared: Sequence[Compared]) -> Iterator[list[str]]:
    """The table of ways to batch."""
    for each in compared:
        own = each.measured
        yield [
            NAMES[own.scheme],
            own.padding,
            f"{100 * own.source_padding:.1f} %",
            f"{100 * own.target_padding:.1f} %",
            str(own.batches),
            f"{own.seconds:.1f}",
            f"{each.loss:.4f}",
            f"{each.off:.1e}",
            f"{each.gradient_off:.1e}",
        ]


def sampled_figure(outcomes: Sequence[Outcome]) -> Figure:
    """Held-out loss over seconds of training."""
    figure = empty_figure(7.2, 3.6)
    axes = figure.add_subplot()
    for outcome, color in zip(outcomes, (MUTED, ACCENT), strict=True):
        seconds, losses = [point.seconds for point in outcome.curve], [point.loss for point in outcome.curve]
        axes.plot(seconds, losses, "o-", color=color, markersize=3, linewidth=1.6, label=f"{outcome.plan.cost} softmax")
    style_axes(axes)
    axes.set_ylabel("loss a word, by all words", color=MUTED)
    axes.set_xlabel("seconds of training", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _numbers(outcomes: Sequence[Outcome], compared: Sequence[Compared], pairs: tuple[int, int]) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "name": NAME,
        "sampled_softmax": [
            {
                **outcome.plan._asdict(),
                "update_seconds": outcome.update_seconds,
                "loss_seconds": outcome.cost_seconds,
                "curve": [point._asdict() for point in outcome.curve],
            }
            for outcome in outcomes
        ],
        "sentences": pairs[0],
        "left_out": pairs[1],
        "batching": [
            {
                **{"scheme": own.scheme, "padding": own.padding, "batches": own.batches, "seconds": own.seconds},
                **{"source_padding": own.source_padding, "target_padding": own.target_padding},
                **{"loss": each.loss, "losses_off": each.off, "gradient_off": each.gradient_off},
            }
            for each in compared
            for own in (each.measured,)
        ],
    }
