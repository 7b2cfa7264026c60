"""English to Spanish with TensorFlow's attention decoder of 2016, to the letter: twenty pairs, learned by heart."""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from pellucid.files import make_folder, write_json
from pellucid.recipes.recipe import Request
from pellucid.recipes.spanish.networks import Design
from pellucid.recipes.spanish.sentences import PAIRS, TRAINED, corpus_of, tokens_of
from pellucid.recipes.spanish.training import (
    EPOCHS,
    SHOWN,
    Fit,
    Outcome,
    Shape,
    Study,
    conduct,
    network_for,
    rows,
    shapes_of,
    tensors,
)
from pellucid.reporting.figures import ACCENT, MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ignore_progress, parallel_map

NAME, TITLE = "spanish-faithful", "English to Spanish with the attention decoder of 2016"
STUDIES = (
    Study("attention", Design()),
    Study("plain encoder-decoder", Design("plain")),
    Study("padding masked", Design(padding="masked")),
    Study("two heads", Design(heads=2)),
    Study("initial_state_attention", Design(initial_state_attention=True)),
    Study("LSTM cells", Design(cell="lstm")),
    Study("embeddings of 100", Design(embedding=100)),
    Study("fed with its own words, gradient stopped", Design(), "previous"),
    Study("fed with its own words, embedding updated", Design(), "previous-updating"),
)
"""The author's network first, then what the post names beside it, each changed in one thing."""
INTRODUCTION = """Twenty English sentences with their Spanish translations, written for this recipe in the shape of
the author's own: 11 to 31 words and signs of English, 12 to 32 of Spanish with the end. The first sixteen are trained
on, the last four are for validation. A GRU of 300 units reads a sentence; a GRU of 300 units with TensorFlow's
attention_decoder writes the translation: the last context is merged with the input, the new state asks, a 1×1
projection makes the keys, a projection of output and context goes to the softmax.

Kept as they were: padding is looked at like words, though the encoder's outputs there are zero; dropout of 0.5 on the
outputs of both cells; Adam at 0.001 × 0.99^epoch, gradients together no longer than 5, four sentences an update, 100
epochs without shuffling; the loss is the mean over sentences of the sum over their words."""


class Told(NamedTuple):
    """All that the report tells."""

    groups: Sequence[Sequence[Outcome]]
    """The runs of each study, a seed each."""
    shapes: Sequence[Shape]


def run(request: Request) -> Iterator[str]:
    """Train every network with every seed, 100 epochs each; `samples` counts the sentences seen, 16 an epoch."""
    make_folder(request.out)
    epochs = max(1, request.samples // TRAINED) if request.samples else EPOCHS
    seeds = range(1, request.seeds + 1)
    studies = [study._replace(seed=seed, epochs=epochs) for study in STUDIES for seed in seeds]
    outcomes = []
    for outcome in parallel_map(partial(ignore_progress, conduct), studies):
        outcomes.append(outcome)
        yield _line(outcome)
    corpus = corpus_of(PAIRS)
    shapes = shapes_of(network_for(Design(), corpus), rows(tensors(corpus.data), 0, 4))
    groups = [outcomes[at : at + request.seeds] for at in range(0, len(outcomes), request.seeds)]
    told = Told(groups, shapes)
    yield overfitting(told)
    write_json(request.out / "report.json", _numbers(told))
    write_report(request.out / "report.html", _report(told))
    yield f"report: {request.out / 'report.html'}"


def overfitting(told: Told) -> str:
    """What the curves say, in words and numbers."""
    runs = told.groups[0]
    last, best = [run.curve[-1] for run in runs], [run.curve[run.best - 1].validation for run in runs]
    right, whole = (statistics.mean(values) for values in _training(runs))
    return (
        f"Overfitting: the training loss falls to {statistics.mean(p.training for p in last):.2f} a sentence, and the "
        f"network writes {100 * whole:.0f} % of the training sentences, given nothing but their English; the "
        f"validation loss is least after epoch {_among([run.best for run in runs])} ({statistics.mean(best):.1f}) and "
        f"ends at {statistics.mean(p.validation for p in last):.1f}, "
        f"{statistics.mean(p.validation for p in last) / statistics.mean(best):.1f} times as much. Of the words of the "
        f"training sentences {100 * right:.0f} % are right where the right word before is given, of those of the "
        f"validation sentences {100 * statistics.mean(run.validation.given for run in runs):.0f} %."
    )


def _training(runs: Sequence[Outcome]) -> tuple[list[float], list[float]]:
    """Of each run, the words right given the right ones, and the sentences right alone."""
    return [run.training.given for run in runs], [run.training.sentences for run in runs]


def _among(values: Sequence[int]) -> str:
    """One number, or the range of several."""
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"


def _line(outcome: Outcome) -> str:
    """One line of a run."""
    last, best = outcome.curve[-1], outcome.curve[outcome.best - 1]
    padding = "" if outcome.padding is None else f"; {100 * outcome.padding:.1f} % of the weights on padding"
    return (
        f"{outcome.name}, seed {outcome.seed}: loss {last.training:.2f} in training, {last.validation:.1f} in "
        f"validation (least {best.validation:.1f} after epoch {outcome.best}); {100 * outcome.training.sentences:.0f} "
        f"% of the training sentences written{padding}; {outcome.parameters:,} parameters, {outcome.seconds:.0f} s"
    )


def _report(told: Told) -> Report:
    """The page."""
    first = told.groups[0][0]
    known = {english: (" ".join(tokens_of(spanish)),) for english, spanish in PAIRS}
    return Report(
        title=TITLE,
        introduction=INTRODUCTION,
        summary=[
            ("training loss", f"{first.curve[-1].training:.2f} (a sentence; seed 1)"),
            ("validation loss", f"{first.curve[-1].validation:.1f} (least {_least(first):.1f}, epoch {first.best})"),
            ("parameters", f"{first.parameters:,}"),
            ("training", f"{first.seconds:.0f} s (of a processor; one thread)"),
        ],
        examples=[ExampleOutput(trace, known.get(trace.text, ())) for trace in first.traces],
        parts=list(_parts(told)),
    )


def _least(outcome: Outcome) -> float:
    """The least validation loss."""
    return outcome.curve[outcome.best - 1].validation


def _parts(told: Told) -> Iterator[ReportPart]:
    """Curves, their meaning, every network in numbers, translations, shapes."""
    yield ReportFigure(
        "Training and validation loss",
        "Loss a sentence after each epoch: with attention, and of the plain encoder-decoder. In training with dropout.",
        to_svg(loss_figure(told.groups)),
    )
    yield ReportText("Training and validation loss", overfitting(told))
    heads = ["network", "parameters", "training loss", "validation loss", "least", "after epoch"]
    more = ["training words", "alone", "validation words", "alone", "weight on padding", "seconds"]
    caption = (
        "Words right with the right word before given, and alone (each step is fed what the step before wrote). The "
        "last two networks were trained on what they themselves wrote."
    )
    yield ReportTable("Every network", caption, [*heads, *more], [_row(run) for group in told.groups for run in group])
    lines = [[run.name, *(trace.output for trace in run.traces)] for run, *_ in told.groups]
    heads = ["network", f"{SHOWN[0]} (training)", f"{SHOWN[1]} (validation)", f"{SHOWN[2]} (neither)"]
    yield ReportTable("What they write", "Greedy, 33 steps, up to the first _EOS; seed 1.", heads, lines)
    caption = "N sentences, H units, C words; max_len is 32 of the source and 33 of the target. Read off a first batch."
    rows_of_shapes = [[each.name, f"[{each.post}]", str(list(each.sizes))] for each in told.shapes]
    yield ReportTable("Shapes", caption, ["tensor", "in letters", "here"], rows_of_shapes)
    yield ReportText("Shapes", SHAPES)


SHAPES = """The post writes the features' shape as [N, height', 3, H], adding a padding of one on either side of a width
of one. TensorFlow's padding SAME pads nothing for a filter of 1×1: the shape stays [N, max_len, 1, H], and the
convolution is a product of each state with one matrix.

The post's equations ask with the decoder's previous state; its listing, as TensorFlow's code, asks with the new one,
and so does this network."""


def _row(run: Outcome) -> list[str]:
    """One run in numbers."""
    last = run.curve[-1]
    return [
        f"{run.name}, seed {run.seed}",
        f"{run.parameters:,}",
        f"{last.training:.2f}",
        f"{last.validation:.1f}",
        f"{_least(run):.1f}",
        str(run.best),
        *(f"{100 * share:.0f} %" for fit in (run.training, run.validation) for share in (fit.given, fit.alone)),
        "–" if run.padding is None else f"{100 * run.padding:.1f} %",
        f"{run.seconds:.0f}",
    ]


def loss_figure(groups: Sequence[Sequence[Outcome]]) -> Figure:
    """Training (dashed) and validation (solid) loss over epochs, of the first two networks; each seed a line."""
    figure = empty_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for group, color in zip(groups[:2], (ACCENT, MUTED), strict=True):
        for run in group:
            epochs = range(1, len(run.curve) + 1)
            named = run is group[0]
            for losses, line, what in (
                ([point.training for point in run.curve], "--", "training"),
                ([point.validation for point in run.curve], "-", "validation"),
            ):
                label = f"{run.name}, {what}" if named else None
                axes.plot(epochs, losses, line, color=color, linewidth=1.6 if named else 0.7, label=label)
    style_axes(axes)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("loss a sentence", color=MUTED)
    axes.set_xlabel("epoch", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _numbers(told: Told) -> dict[str, Any]:
    """All of it for JSON."""
    return {
        "name": NAME,
        "overfitting": overfitting(told),
        "runs": [_told(run) for group in told.groups for run in group],
        "shapes": {each.name: {"post": each.post, "here": list(each.sizes)} for each in told.shapes},
    }


def _told(run: Outcome) -> dict[str, Any]:
    """One run."""
    return {
        **{"network": run.name, "seed": run.seed, "parameters": run.parameters, "seconds": run.seconds},
        "training_loss": [point.training for point in run.curve],
        "validation_loss": [point.validation for point in run.curve],
        "best_epoch": run.best,
        "training": _fit(run.training),
        "validation": _fit(run.validation),
        "weight_on_padding": run.padding,
        "translations": {trace.text: trace.output for trace in run.traces},
    }


def _fit(fit: Fit) -> dict[str, float]:
    """Shares of 1."""
    return {"words_given_the_right_ones": fit.given, "words_alone": fit.alone, "sentences_alone": fit.sentences}
