"""English to Spanish with TensorFlow's attention decoder of 2016, reproduced exactly, on twenty pairs."""

import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from matplotlib.figure import Figure

from pellucid.files import make_folder, write_json
from pellucid.recipes.recipe import RecipeRequest
from pellucid.recipes.spanish.networks import SpanishArchitecture
from pellucid.recipes.spanish.sentences import PAIRS, TRAINING_PAIRS, build_corpus, tokenize
from pellucid.recipes.spanish.training import (
    EPOCHS,
    TRANSLATED_SENTENCES,
    SpanishAccuracy,
    SpanishExperiment,
    SpanishResult,
    TensorShape,
    build_network,
    run_experiment,
    slice_rows,
    tensor_shapes,
    to_tensors,
)
from pellucid.reporting.figures import ACCENT, MUTED, empty_figure, freeze_layout, style_axes, to_svg
from pellucid.viewer.report_parts import ExampleOutput
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ignore_progress, parallel_map

NAME, TITLE = "spanish-faithful", "English to Spanish with the attention decoder of 2016"
EXPERIMENTS = (
    SpanishExperiment("attention", SpanishArchitecture()),
    SpanishExperiment("plain encoder-decoder", SpanishArchitecture("plain")),
    SpanishExperiment("padding masked", SpanishArchitecture(padding="masked")),
    SpanishExperiment("two heads", SpanishArchitecture(heads=2)),
    SpanishExperiment("initial_state_attention", SpanishArchitecture(initial_state_attention=True)),
    SpanishExperiment("LSTM cells", SpanishArchitecture(cell="lstm")),
    SpanishExperiment("embeddings of 100", SpanishArchitecture(embedding=100)),
    SpanishExperiment("trained on predicted words, gradient stopped", SpanishArchitecture(), "previous"),
    SpanishExperiment("trained on predicted words, embedding updated", SpanishArchitecture(), "previous-updating"),
)
"""The author's network, then the variants of the post; each changes one setting."""
INTRODUCTION = """\
Twenty English sentences with Spanish translations, written for this recipe in the form of the author's: 11 to 31
tokens of English, 12 to 32 of Spanish including the end. The first sixteen are the training set, the last four the
validation set. A GRU of 300 units encodes a sentence; a GRU of 300 units with TensorFlow's attention_decoder writes
the translation: the last context is merged with the input, the new state is the query, a 1×1 convolution computes the
keys, a projection of output and context is the input of the softmax.

As in the post: attention includes padding, where the encoder's outputs are zero; dropout of 0.5 on the outputs of both
cells; Adam at 0.001 × 0.99^epoch, gradient norm at most 5, four sentences per update, 100 epochs without
shuffling; the loss is the mean over sentences of the sum over words."""


class FaithfulReport(NamedTuple):
    """Content of the report."""

    groups: Sequence[Sequence[SpanishResult]]
    """Results of each experiment, one per seed."""
    shapes: Sequence[TensorShape]


def run_faithful(request: RecipeRequest) -> Iterator[str]:
    """Train every network of `EXPERIMENTS` with every seed.

    Args:
        request: The recipe's request; `samples` counts sentences, 16 per epoch, and gives at least one epoch.

    Yields:
        A line per run, a sentence on overfitting and the path of the report.

    Raises:
        RunError: A report cannot be written.
    """
    make_folder(request.out)
    epochs = max(1, request.samples // TRAINING_PAIRS) if request.samples else EPOCHS
    seeds = range(1, request.seeds + 1)
    experiments = [experiment._replace(seed=seed, epochs=epochs) for experiment in EXPERIMENTS for seed in seeds]
    results = []
    for result in parallel_map(partial(ignore_progress, run_experiment), experiments):
        results.append(result)
        yield _result_line(result)
    corpus = build_corpus(PAIRS)
    shapes = tensor_shapes(build_network(SpanishArchitecture(), corpus), slice_rows(to_tensors(corpus.data), 0, 4))
    groups = [results[start : start + request.seeds] for start in range(0, len(results), request.seeds)]
    report = FaithfulReport(groups, shapes)
    yield describe_overfitting(report)
    write_json(request.out / "report.json", _report_json(report))
    write_report(request.out / "report.html", _report_page(report))
    yield f"report: {request.out / 'report.html'}"


def describe_overfitting(report: FaithfulReport) -> str:
    """Describe the overfitting of the author's network: losses and accuracies, as means over its seeds.

    Args:
        report: Content of the report; its first group has the runs of the author's network.

    Returns:
        A paragraph of the report.
    """
    runs = report.groups[0]
    training_loss = statistics.mean(run.curve[-1].training for run in runs)
    validation_loss = statistics.mean(run.curve[-1].validation for run in runs)
    best_loss = statistics.mean(run.curve[run.best_epoch - 1].validation for run in runs)
    sentence_accuracy = statistics.mean(run.training.sentences for run in runs)
    training_accuracy = statistics.mean(run.training.teacher_forcing for run in runs)
    validation_accuracy = statistics.mean(run.validation.teacher_forcing for run in runs)
    epochs = _format_range([run.best_epoch for run in runs])
    return (
        f"Overfitting: the training loss falls to {training_loss:.2f} per sentence, and greedy decoding reproduces "
        f"{100 * sentence_accuracy:.0f} % of the training sentences. The validation loss is lowest after epoch "
        f"{epochs} ({best_loss:.1f}) and ends at {validation_loss:.1f}, {validation_loss / best_loss:.1f} times as "
        f"much. Word accuracy with teacher forcing is {100 * training_accuracy:.0f} % on the training sentences and "
        f"{100 * validation_accuracy:.0f} % on the validation sentences."
    )


def _format_range(values: Sequence[int]) -> str:
    """Return one number, or the range of several."""
    return str(values[0]) if len(set(values)) == 1 else f"{min(values)} to {max(values)}"


def _result_line(result: SpanishResult) -> str:
    """Return the line of a run."""
    last, best = result.curve[-1], result.curve[result.best_epoch - 1]
    padding = (
        ""
        if result.attention_on_padding is None
        else f"; {100 * result.attention_on_padding:.1f} % of the attention on padding"
    )
    return (
        f"{result.name}, seed {result.seed}: loss {last.training:.2f} in training, {last.validation:.1f} in "
        f"validation (lowest {best.validation:.1f} after epoch {result.best_epoch}); sentence accuracy "
        f"{100 * result.training.sentences:.0f} % on the training set{padding}; {result.parameters:,} parameters, "
        f"{result.seconds:.0f} s"
    )


def _report_page(report: FaithfulReport) -> Report:
    """Return the page."""
    first = report.groups[0][0]
    references = {english: (" ".join(tokenize(spanish)),) for english, spanish in PAIRS}
    return Report(
        title=TITLE,
        introduction=INTRODUCTION,
        summary=[
            ("training loss", f"{first.curve[-1].training:.2f} (per sentence; seed 1)"),
            (
                "validation loss",
                f"{first.curve[-1].validation:.1f} (lowest {_best_validation_loss(first):.1f}, "
                f"epoch {first.best_epoch})",
            ),
            ("parameters", f"{first.parameters:,}"),
            ("training", f"{first.seconds:.0f} CPU seconds (one thread)"),
        ],
        examples=[ExampleOutput(trace, references.get(trace.text, ())) for trace in first.traces],
        parts=list(_report_parts(report)),
    )


def _best_validation_loss(result: SpanishResult) -> float:
    """Return the lowest validation loss."""
    return result.curve[result.best_epoch - 1].validation


def _report_parts(report: FaithfulReport) -> Iterator[ReportPart]:
    """Yield curves, overfitting, table of all networks, translations and shapes."""
    yield ReportFigure(
        "Training and validation loss",
        "Loss per sentence after each epoch, with and without attention. The training loss is computed with dropout.",
        to_svg(loss_figure(report.groups)),
    )
    yield ReportText("Training and validation loss", describe_overfitting(report))
    heads = ["network", "parameters", "training loss", "validation loss", "lowest", "after epoch"]
    accuracy_heads = ["training words, teacher forcing", "free-running"]
    accuracy_heads += ["validation words, teacher forcing", "free-running"]
    caption = (
        "Word accuracy with teacher forcing, and free-running (the input of a step is the output of the step before). "
        "The last two networks are trained on predicted words."
    )
    rows = [_result_row(run) for group in report.groups for run in group]
    yield ReportTable("All networks", caption, [*heads, *accuracy_heads, "attention on padding", "CPU seconds"], rows)
    translations = [[run.name, *(trace.output for trace in run.traces)] for run, *_ in report.groups]
    heads = [
        "network",
        f"{TRANSLATED_SENTENCES[0]} (training)",
        f"{TRANSLATED_SENTENCES[1]} (validation)",
        f"{TRANSLATED_SENTENCES[2]} (neither)",
    ]
    yield ReportTable("Translations", "Greedy decoding, 33 steps, up to the first _EOS; seed 1.", heads, translations)
    caption = (
        "N sentences, H units, C words; max_len is 32 of the source and 33 of the target. Shapes of the first batch."
    )
    shape_rows = [[shape.name, f"[{shape.symbolic}]", str(list(shape.sizes))] for shape in report.shapes]
    yield ReportTable("Shapes", caption, ["tensor", "dimensions", "sizes"], shape_rows)
    yield ReportText("Shapes", SHAPE_NOTES)


SHAPE_NOTES = """\
The post writes the shape of the features as [N, height', 3, H], with a padding of one on either side of a width of
one. TensorFlow's padding SAME adds nothing for a 1×1 filter: the shape stays [N, max_len, 1, H], and the convolution
is a product of each state with one matrix.

In the post's equations the query is the decoder's previous state; in its listing and in TensorFlow's code it is the
new one, as in this network."""


def _result_row(run: SpanishResult) -> list[str]:
    """Return the table row of a run."""
    last = run.curve[-1]
    return [
        f"{run.name}, seed {run.seed}",
        f"{run.parameters:,}",
        f"{last.training:.2f}",
        f"{last.validation:.1f}",
        f"{_best_validation_loss(run):.1f}",
        str(run.best_epoch),
        *(
            f"{100 * accuracy:.0f} %"
            for accuracies in (run.training, run.validation)
            for accuracy in (accuracies.teacher_forcing, accuracies.free_running)
        ),
        "–" if run.attention_on_padding is None else f"{100 * run.attention_on_padding:.1f} %",
        f"{run.seconds:.0f}",
    ]


def loss_figure(groups: Sequence[Sequence[SpanishResult]]) -> Figure:
    """Draw training (dashed) and validation (solid) loss of the first two networks over the epochs, one line per seed.

    Args:
        groups: Results of at least two experiments, each with one per seed.

    Returns:
        The figure.
    """
    figure = empty_figure(7.2, 4.0)
    axes = figure.add_subplot()
    for group, color in zip(groups[:2], (ACCENT, MUTED), strict=True):
        for run in group:
            epochs = range(1, len(run.curve) + 1)
            is_first = run is group[0]
            for losses, line_style, split in (
                ([point.training for point in run.curve], "--", "training"),
                ([point.validation for point in run.curve], "-", "validation"),
            ):
                label = f"{run.name}, {split}" if is_first else None
                axes.plot(epochs, losses, line_style, color=color, linewidth=1.6 if is_first else 0.7, label=label)
    style_axes(axes)
    axes.set_ylim(bottom=0.0)
    axes.set_ylabel("loss per sentence", color=MUTED)
    axes.set_xlabel("epoch", color=MUTED)
    axes.legend(frameon=False, labelcolor="linecolor", fontsize=8.5)
    return freeze_layout(figure)


def _report_json(report: FaithfulReport) -> dict[str, Any]:
    """Return report.json."""
    return {
        "name": NAME,
        "overfitting": describe_overfitting(report),
        "runs": [_result_json(run) for group in report.groups for run in group],
        "shapes": {shape.name: {"dimensions": shape.symbolic, "sizes": list(shape.sizes)} for shape in report.shapes},
    }


def _result_json(run: SpanishResult) -> dict[str, Any]:
    """Return the numbers of one run."""
    return {
        **{"network": run.name, "seed": run.seed, "parameters": run.parameters, "seconds": run.seconds},
        "training_loss": [point.training for point in run.curve],
        "validation_loss": [point.validation for point in run.curve],
        "best_epoch": run.best_epoch,
        "training": _accuracy_json(run.training),
        "validation": _accuracy_json(run.validation),
        "attention_on_padding": run.attention_on_padding,
        "translations": {trace.text: trace.output for trace in run.traces},
    }


def _accuracy_json(accuracy: SpanishAccuracy) -> dict[str, float]:
    """Return the accuracies as fractions."""
    return {
        "words_teacher_forcing": accuracy.teacher_forcing,
        "words_free_running": accuracy.free_running,
        "sentences_free_running": accuracy.sentences,
    }
