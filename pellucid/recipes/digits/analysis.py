"""Analyses of the digit networks: data, shapes and gradients (digits-data); accuracy by position (digits-positions).

N samples, T target positions, D encoder state.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS, DigitSamples, draw_digits
from pellucid.files import make_folder, write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import (
    DecoderKind,
    DigitsArchitecture,
    SpelledDigitsNetwork,
    parameter_shapes,
    unmask_padding,
)
from pellucid.recipes.digits.report import (
    POSITIONS_REPEAT,
    DigitsRuns,
    LessonReport,
    name_experiments,
    position_figure,
    repeat_with_seeds,
    run_lines,
    write_lesson_report,
)
from pellucid.recipes.digits.training import (
    DigitsExperiment,
    DigitsResult,
    DigitsTrainingPlan,
    discard_progress,
    to_tensors,
    train_network,
)
from pellucid.recipes.jobs import run_jobs
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.figures import to_svg
from pellucid.shapes import Float, Int
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ProgressCallback

SHOWN_SAMPLES, MAX_DIGITS, SHAPE_BATCH = 3, 2, 100
DATA_TITLE = "Spelled digits: the data and the networks"
DATA_INTRODUCTION = """\
A sample is a row of digits spelled out and its digits, followed by the end symbol #: nine eight, 98#. Both sides share
one vocabulary of 27 symbols, in the order in which Python 2 listed the letters in 2015; inputs use 16 of them, targets
11. Rows are padded with 0, which is also the digit 0, and a mask marks the real positions.

The shapes below come from a batch of 100 samples of 20 digits. The gradients come from one backward pass of the same
batch: a parameter that is not connected to the loss would have a gradient of zero."""


class LayerShape(NamedTuple):
    """Name and output shape of a layer."""

    name: str
    shape: tuple[int, ...]


def run_data(request: RecipeRequest) -> Iterator[str]:
    """Write a report of samples, symbols, tensor shapes, parameters and gradients; nothing is trained.

    Args:
        request: The recipe's request; only the output folder is used.

    Yields:
        The lines of all tables and the path of the report.

    Raises:
        RunError: A file cannot be written.
    """
    make_folder(request.out)
    samples = draw_digits(SHOWN_SAMPLES, 1, MAX_DIGITS, np.random.default_rng(1))
    kinds: list[DecoderKind] = ["repeat", "attention"]
    tables = [symbols_table(), *samples_tables(samples)]
    for kind in kinds:
        tables += network_tables(kind)
    for table in tables:
        yield from _table_lines(table)
    write_report(
        request.out / "report.html",
        Report(title=DATA_TITLE, introduction=DATA_INTRODUCTION, parts=list[ReportPart](tables)),
    )
    counts = {kind: parameter_count(SpelledDigitsNetwork(DigitsArchitecture(kind))) for kind in kinds}
    report = {
        "name": "digits-data",
        "parameters": counts,
        "samples": SHOWN_SAMPLES,
        "tables": [
            {"title": table.title, "caption": table.caption, "heads": table.heads, "rows": table.rows}
            for table in tables
        ],
    }
    write_json(request.out / "report.json", report)
    yield f"report: {request.out / 'report.html'}"


def symbols_table() -> ReportTable:
    """Return a table of the symbols of inputs and of targets with their ids."""
    targets, inputs = SYMBOLS[:NUM_OUTPUTS], SYMBOLS[NUM_OUTPUTS:]
    rows = [
        ("in targets", " ".join(targets), f"0 to {NUM_OUTPUTS - 1}"),
        ("in inputs", " ".join(inputs.replace(" ", "␣")), f"{NUM_OUTPUTS} to {len(SYMBOLS) - 1}"),
    ]
    return ReportTable(
        "Symbols", "Valid characters in the order of their ids; ␣ is the space.", ("side", "symbols", "ids"), rows
    )


def samples_tables(samples: DigitSamples) -> Iterator[ReportTable]:
    """Yield a table per sample with its text, ids and masks, then one with dtypes and shapes of the arrays.

    Args:
        samples: The samples; the titles say that they are three.
    """
    for index, (source, target) in enumerate(samples.texts()):
        rows = [
            ("input text", source),
            ("target text", target),
            ("input", _join_numbers(samples.inputs[index])),
            ("input mask", _join_numbers(samples.input_masks[index])),
            ("target", _join_numbers(samples.targets[index])),
            ("target mask", _join_numbers(samples.target_masks[index])),
        ]
        yield ReportTable("Three samples of one or two digits", "", (f"sample {index + 1}", "value"), rows)
    arrays = {name: getattr(samples, name) for name in ("inputs", "input_masks", "targets", "target_masks")}
    array_rows = [(name, str(array.dtype), str(array.shape)) for name, array in arrays.items()]
    yield ReportTable("Three samples of one or two digits", "", ("array", "dtype", "shape"), array_rows)


def network_tables(kind: DecoderKind) -> Iterator[ReportTable]:
    """Yield a table of the output shapes of all layers of a new network, and one of its parameters with shapes and
    gradient norms.

    PyTorch's generator is seeded.

    Args:
        kind: Decoder of the network, "repeat" or "attention"; sizes are those of the notebook.
    """
    torch.manual_seed(1)
    network = SpelledDigitsNetwork(DigitsArchitecture(kind))
    batch = draw_digits(SHAPE_BATCH, 20, 20, np.random.default_rng(1))
    title = "Without attention" if kind == "repeat" else "With attention"
    rows = [(layer.name, str(layer.shape)) for layer in layer_shapes(network, batch)]
    yield ReportTable(title, "", ("layer", "shape"), rows)
    norms = gradient_norms(network, batch)
    parameters = parameter_shapes(network)
    total = sum(int(np.prod(shape)) for _, shape in parameters)
    caption = f"{total:,} parameters. All gradients are non-zero: every parameter is connected to the loss."
    if min(norms) <= 0:
        disconnected = [name for (name, _), norm in zip(parameters, norms, strict=True) if norm <= 0]
        caption = f"{total:,} parameters. NOT connected to the loss: {', '.join(disconnected)}"
    parameter_rows = [(name, str(shape), f"{norm:.2e}") for (name, shape), norm in zip(parameters, norms, strict=True)]
    yield ReportTable(title, caption, ("parameter", "shape", "gradient norm"), parameter_rows)


def layer_shapes(network: SpelledDigitsNetwork, batch: DigitSamples) -> Sequence[LayerShape]:
    """Return the output shape of each layer for a batch, from the input to the logits.

    Args:
        network: The network.
        batch: The samples.
    """
    inputs, lengths = to_tensors(batch)
    steps = batch.targets.shape[1]
    memory = network.encoder(inputs, lengths)
    layers = [
        LayerShape("input", tuple(inputs.shape)),
        LayerShape("one-hot", (*inputs.shape, network.encoder.table.size)),
    ]
    layers.append(LayerShape("encoder (GRU)", tuple(memory.states.shape)))
    if network.architecture.decoder == "attention":
        decoded, weights = network.decoder(unmask_padding(memory), steps)
        layers += [LayerShape("attention weights", tuple(weights.shape)), LayerShape("contexts", tuple(decoded.shape))]
    else:
        code = memory.final.hidden[:, -1]
        decoded = network.decoder(code, steps)
        layers += [
            LayerShape("last state: the code", tuple(code.shape)),
            LayerShape("decoder (GRU)", tuple(decoded.shape)),
        ]
    flat = decoded.flatten(0, 1)
    layers += [LayerShape("reshaped", tuple(flat.shape)), LayerShape("softmax", tuple(network.output(flat).shape))]
    return [*layers, LayerShape("reshaped back", tuple(network(inputs, lengths, steps).logits.shape))]


def gradient_norms(network: SpelledDigitsNetwork, batch: DigitSamples) -> list[float]:
    """Return the gradient norm of each trained parameter; 0 for a parameter that is not connected to the loss.

    Args:
        network: The network.
        batch: Samples from which the loss is computed.
    """
    logits = network(*to_tensors(batch), batch.targets.shape[1]).logits
    loss = nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).long().flatten())
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
    return [0.0 if gradient is None else float(gradient.norm()) for gradient in gradients]


def _join_numbers(values: np.ndarray) -> str:
    """Return numbers as text, separated by spaces."""
    return " ".join(f"{value:g}" for value in values)


def _table_lines(table: ReportTable) -> Iterator[str]:
    """Yield a table as lines of text."""
    rows = [list(map(str, table.heads)), *(list(map(str, row)) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield f"\n{table.title}"
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if table.caption:
        yield table.caption


PROBE_SAMPLES = 20_000
"""Number of samples to fit a probe, and of further samples to evaluate it."""
POSITION_EXPERIMENTS = (
    DigitsExperiment("code", DigitsArchitecture("repeat"), DigitsTrainingPlan(300_000), 1),
    DigitsExperiment(
        "code, input read backwards", DigitsArchitecture("repeat"), DigitsTrainingPlan(300_000, reverse_inputs=True), 1
    ),
    DigitsExperiment("attention", DigitsArchitecture("attention"), DigitsTrainingPlan(150_000), 1),
    DigitsExperiment(
        "attention, padding masked",
        DigitsArchitecture("attention", attends_padding=False),
        DigitsTrainingPlan(150_000),
        1,
    ),
)
POSITIONS_INTRODUCTION = """\
The notebook asks how accuracy depends on the target position, and why. Four training runs test two explanations. The
network without attention is trained twice, once on reversed inputs: if the distance from the letters to the code is
the cause, the curve must reverse, too. The attention network is trained twice, once with masked padding. Padding holds
copies of the encoder's last state, which also encodes the last words: if padding causes the lower accuracy of the late
positions, accuracy there must rise with masked padding.

A probe measures the content of the code independently of the decoder: a softmax regression from the ten numbers of
the code to the digit at each position."""


class PositionResult(NamedTuple):
    """Result of an experiment with the probe's accuracy by position."""

    experiment: DigitsExperiment
    training_result: DigitsResult
    probe_accuracy: list[float]
    """Accuracy of the probe at each target position, as a fraction; empty for attention."""
    start_deviation: list[float]
    """Standard deviation of the source position at which the word of each digit starts."""


def run_positions(request: RecipeRequest) -> Iterator[str]:
    """Train the four networks of `POSITION_EXPERIMENTS` with every seed, probe the codes of those without attention,
    and compare accuracy by position.

    Args:
        request: The recipe's request.

    Yields:
        A line per run, the comparisons and the path of the report.
    """
    make_folder(request.out)
    results = list(
        run_jobs(train_and_probe, name_experiments(repeat_with_seeds(POSITION_EXPERIMENTS, request)), request)
    )
    groups = [
        DigitsRuns(
            experiment.name,
            [result.training_result for result in results if result.training_result.name == experiment.name],
        )
        for experiment in POSITION_EXPERIMENTS
    ]
    for group in groups:
        yield from run_lines(group)
    parts = [*_probe_parts(results), *_padding_parts(results)]
    for part in parts:
        if isinstance(part, ReportText):
            yield part.text
    numbers = {"probes": {_result_name(result): result.probe_accuracy for result in results if result.probe_accuracy}}
    numbers["start_deviations"] = {_result_name(result): result.start_deviation for result in results}
    lesson = LessonReport(
        "digits-positions", "Accuracy by position", POSITIONS_INTRODUCTION, groups, (), POSITIONS_REPEAT
    )
    yield write_lesson_report(request, lesson._replace(parts=parts, numbers=numbers))


def train_and_probe(experiment: DigitsExperiment, on_progress: ProgressCallback = discard_progress) -> PositionResult:
    """Train a network and, if it has no attention, fit a probe to its code; runs in a worker process.

    Args:
        experiment: Architecture, hyperparameters and seed.
        on_progress: Progress callback.

    Returns:
        The result of the training and the accuracy of the probe on further samples.
    """
    network, result = train_network(experiment, on_progress)
    generator = np.random.default_rng([experiment.seed, 2])
    fit_samples, held_out = (experiment.plan.draw_samples(PROBE_SAMPLES, generator) for _ in range(2))
    accuracy = probe_codes(network, fit_samples, held_out) if experiment.architecture.decoder == "repeat" else []
    return PositionResult(experiment, result, accuracy, held_out.starts.std(axis=0).tolist())


def probe_codes(network: SpelledDigitsNetwork, fit_samples: DigitSamples, held_out: DigitSamples) -> list[float]:
    """Fit a softmax regression from the code (the last encoder state) to the symbol at each target position.

    Args:
        network: Trained network without attention.
        fit_samples: Samples to fit the regression.
        held_out: Samples to evaluate it.

    Returns:
        Accuracy of the regression on `held_out` at each target position, as a fraction; padding counts as a digit 0.
    """
    codes, targets = encode_codes(network, fit_samples)
    mean, deviation = codes.mean(dim=0), codes.std(dim=0) + 1e-6
    regression = nn.Linear(codes.shape[1], targets.shape[1] * NUM_OUTPUTS)
    optimizer = torch.optim.LBFGS(regression.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def compute_loss() -> Tensor:
        """Return the cross-entropy over all positions, after its backward pass."""
        optimizer.zero_grad()
        logits = regression((codes - mean) / deviation).view(-1, NUM_OUTPUTS)
        loss = nn.functional.cross_entropy(logits, targets.flatten())
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    optimizer.step(compute_loss)  # type: ignore[no-untyped-call]
    codes, targets = encode_codes(network, held_out)
    with torch.no_grad():
        predictions = regression((codes - mean) / deviation).view(*targets.shape, NUM_OUTPUTS).argmax(dim=-1)
    accuracies: list[float] = (predictions == targets).float().mean(dim=0).tolist()
    return accuracies


def encode_codes(
    network: SpelledDigitsNetwork, samples: DigitSamples
) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N T"]]:
    """Return the last encoder state of each sample, its code, and the target symbols.

    Args:
        network: Network without attention.
        samples: The samples.

    Returns:
        Codes and target symbols.
    """
    with torch.no_grad():
        codes = network.encoder(*to_tensors(samples)).final.hidden[:, -1].clone()
    return codes, torch.from_numpy(samples.targets).long()


def _probe_parts(results: Sequence[PositionResult]) -> Iterator[ReportPart]:
    """Yield accuracy of decoder and probe by position."""
    probed_results = [result for result in results if result.probe_accuracy and result.training_result.seed == 1]
    title = "Content of the code"
    for result in probed_results:
        probe_result = result.training_result._replace(
            final=result.training_result.final._replace(per_position=result.probe_accuracy)
        )
        groups = [
            DigitsRuns(f"{result.training_result.name}: decoder", [result.training_result]),
            DigitsRuns("probe", [probe_result]),
        ]
        yield ReportFigure(title, "Seed 1.", to_svg(position_figure(groups)))
    lines = []
    for result in probed_results:
        decoder, probe = np.array(result.training_result.final.per_position[:-1]), np.array(result.probe_accuracy[:-1])
        correlation = float(np.corrcoef(decoder, probe)[0, 1])
        lines.append(
            f"{result.training_result.name}: mean accuracy of the digits {decoder.mean():.3f} by the decoder, "
            f"{probe.mean():.3f} by the probe; correlation of the two over positions {correlation:.2f}. Decoder: first "
            f"five positions {decoder[:5].mean():.3f}, last five {decoder[-5:].mean():.3f}."
        )
    yield ReportText(title, "\n\n".join(lines))


def _padding_parts(results: Sequence[PositionResult]) -> Iterator[ReportPart]:
    """Yield accuracy of attention, with and without padding, and the standard deviation of word starts."""
    title = "Effect of padding on attention"
    attention_results = [
        result
        for result in results
        if result.experiment.architecture.decoder == "attention" and result.training_result.seed == 1
    ]
    rows = []
    for index in range(len(attention_results[0].start_deviation) - 1):
        row = [str(index + 1)]
        for result in attention_results:
            row += [f"{result.training_result.final.per_position[index]:.3f}", f"{result.start_deviation[index]:.3f}"]
        rows.append(row)
    heads = ["position"]
    for result in attention_results:
        heads += [f"{result.training_result.name}: accuracy", "deviation of the start"]
    yield ReportTable(
        title, "Deviation: standard deviation of the source position at which the word starts. Seed 1.", heads, rows
    )
    lines = []
    for result in attention_results:
        accuracies = np.array(result.training_result.final.per_position[:-1])
        lines.append(
            f"{result.training_result.name}: accuracy of the first ten digits {accuracies[:10].mean():.3f}, of the "
            f"last ten {accuracies[10:].mean():.3f}; lowest {accuracies.min():.3f} at position "
            f"{accuracies.argmin() + 1}."
        )
    yield ReportText(title, "\n\n".join(lines))


def _result_name(result: PositionResult) -> str:
    """Return name and seed of a run."""
    return f"{result.training_result.name}, seed {result.training_result.seed}"
