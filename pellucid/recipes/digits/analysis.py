"""Analyses of the digit networks: data, shapes and gradients (digits-data); accuracy by position (digits-positions).

N samples, T target positions, D encoder state.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS, DigitSamples, draw_digits
from pellucid.files import make_folder, write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import (
    DecoderKind,
    DigitsArchitecture,
    DigitsNetwork,
    parameter_shapes,
    unmask_padding,
)
from pellucid.recipes.digits.report import (
    POSITIONS_REPEAT,
    DigitsRuns,
    LessonReport,
    name_studies,
    position_figure,
    repeat_with_seeds,
    run_lines,
    write_lesson_report,
)
from pellucid.recipes.digits.training import (
    DigitsResult,
    DigitsStudy,
    DigitsTrainingPlan,
    discard_progress,
    to_tensors,
    train_network,
)
from pellucid.recipes.jobs import run_jobs
from pellucid.recipes.recipe import RecipeRequest
from pellucid.reporting.figures import to_svg
from pellucid.viewer.report_schema import ReportFigure, ReportPart, ReportTable, ReportText
from pellucid.viewer.reports import Report, write_report
from pellucid.worker_pool import ProgressCallback

SHOWN_SAMPLES, MAX_DIGITS, SHAPE_BATCH = 3, 2, 100
DATA_TITLE = "Spelled digits: the data and the networks"
DATA_INTRODUCTION = """\
A sample is a row of digits spelled out and its digits, closed by #: nine eight, 98#. Both sides share one vocabulary
of 27 symbols, in the order in which Python 2 listed the letters in 2015; inputs use 16 of them, targets 11. Rows are
padded with 0, which is also the digit 0, and a mask marks the real positions.

The shapes below come from a batch of 100 samples of 20 digits. The gradients come from one backward pass of the same
batch: a parameter that is not connected to the loss would have a gradient of zero."""


class LayerShape(NamedTuple):
    """Name and output shape of a layer."""

    name: str
    shape: tuple[int, ...]


def run_data(request: RecipeRequest) -> Iterator[str]:
    """Print samples, shapes and gradients, and write them as a report."""
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
    counts = {kind: parameter_count(DigitsNetwork(DigitsArchitecture(kind))) for kind in kinds}
    report = {
        "name": "digits-data",
        "parameters": counts,
        "samples": SHOWN_SAMPLES,
        "tables": [
            {"title": each.title, "caption": each.caption, "heads": each.heads, "rows": each.rows} for each in tables
        ],
    }
    write_json(request.out / "report.json", report)
    yield f"report: {request.out / 'report.html'}"


def symbols_table() -> ReportTable:
    """Return the symbols of inputs and of targets with their ids."""
    targets, inputs = SYMBOLS[:NUM_OUTPUTS], SYMBOLS[NUM_OUTPUTS:]
    rows = [
        ("in targets", " ".join(targets), f"0 to {NUM_OUTPUTS - 1}"),
        ("in inputs", " ".join(inputs.replace(" ", "␣")), f"{NUM_OUTPUTS} to {len(SYMBOLS) - 1}"),
    ]
    return ReportTable(
        "Symbols", "Valid characters in the order of their ids; ␣ is the space.", ("side", "", "numbers"), rows
    )


def samples_tables(samples: DigitSamples) -> Iterator[ReportTable]:
    """Yield each sample as text, ids and masks, then dtypes and shapes of the arrays."""
    for at, (source, target) in enumerate(samples.texts()):
        rows = [
            ("input text", source),
            ("target text", target),
            ("input", _join_numbers(samples.inputs[at])),
            ("input mask", _join_numbers(samples.input_masks[at])),
            ("target", _join_numbers(samples.targets[at])),
            ("target mask", _join_numbers(samples.target_masks[at])),
        ]
        yield ReportTable("Three samples of one or two digits", "", (f"sample {at + 1}", ""), rows)
    arrays = {name: getattr(samples, name) for name in ("inputs", "input_masks", "targets", "target_masks")}
    rows_of = [(name, str(array.dtype), str(array.shape)) for name, array in arrays.items()]
    yield ReportTable("Three samples of one or two digits", "", ("array", "dtype", "shape"), rows_of)


def network_tables(kind: DecoderKind) -> Iterator[ReportTable]:
    """Yield the shapes of all layers of a network, its parameters, and the gradient norm of each parameter."""
    torch.manual_seed(1)
    network = DigitsNetwork(DigitsArchitecture(kind))
    batch = draw_digits(SHAPE_BATCH, 20, 20, np.random.default_rng(1))
    title = "Without attention" if kind == "repeat" else "With attention"
    rows = [(layer.name, str(layer.shape)) for layer in layer_shapes(network, batch)]
    yield ReportTable(title, "", ("layer", "shape"), rows)
    norms = gradient_norms(network, batch)
    listed = parameter_shapes(network)
    total = sum(int(np.prod(shape)) for _, shape in listed)
    caption = f"{total:,} parameters. All gradients are non-zero: every parameter is connected to the loss."
    if min(norms) <= 0:
        apart = [name for (name, _), norm in zip(listed, norms, strict=True) if norm <= 0]
        caption = f"{total:,} parameters. NOT connected to the loss: {', '.join(apart)}"
    rows_of = [(name, str(shape), f"{norm:.2e}") for (name, shape), norm in zip(listed, norms, strict=True)]
    yield ReportTable(title, caption, ("parameter", "shape", "gradient norm"), rows_of)


def layer_shapes(network: DigitsNetwork, batch: DigitSamples) -> Sequence[LayerShape]:
    """Return the output shape of each layer for a batch."""
    inputs, lengths = to_tensors(batch)
    steps = batch.targets.shape[1]
    memory = network.encoder(inputs, lengths)
    layers = [
        LayerShape("input", tuple(inputs.shape)),
        LayerShape("one-hot", (*inputs.shape, network.encoder.table.size)),
    ]
    layers.append(LayerShape("encoder (GRU)", tuple(memory.states.shape)))
    if network.design.decoder == "attention":
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


def gradient_norms(network: DigitsNetwork, batch: DigitSamples) -> list[float]:
    """Return the gradient norm of each trained parameter; 0 for a parameter that is not connected to the loss."""
    logits = network(*to_tensors(batch), batch.targets.shape[1]).logits
    cost = nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).long().flatten())
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(cost, parameters, allow_unused=True)
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
"""Samples to fit a probe; it is evaluated on as many others."""
POSITION_STUDIES = (
    DigitsStudy("code", DigitsArchitecture("repeat"), DigitsTrainingPlan(300_000), 1),
    DigitsStudy(
        "code, input read backwards", DigitsArchitecture("repeat"), DigitsTrainingPlan(300_000, reverse_inputs=True), 1
    ),
    DigitsStudy("attention", DigitsArchitecture("attention"), DigitsTrainingPlan(150_000), 1),
    DigitsStudy(
        "attention, padding masked",
        DigitsArchitecture("attention", attends_padding=False),
        DigitsTrainingPlan(150_000),
        1,
    ),
)
POSITIONS_INTRODUCTION = """\
The notebook asks why accuracy depends on position as it does. Four trainings test two explanations. The network
without attention is trained twice, once on reversed inputs: if the distance from the letters to the code is the
cause, the shape must reverse, too. The attention network is trained twice, once with masked padding. Padding holds
copies of the encoder's last state, which also encodes the last words: if it blurs the late positions, the slope and
the dip before the end must vanish without it.

A probe measures the content of the code independently of the decoder: a softmax regression from the ten numbers of
the code to the digit at each position."""


class PositionResult(NamedTuple):
    """Result of a study with the probe's accuracy by position."""

    study: DigitsStudy
    outcome: DigitsResult
    probed: list[float]
    spread: list[float]


def run_positions(request: RecipeRequest) -> Iterator[str]:
    """Train four networks, probe their codes, and compare accuracy by position."""
    make_folder(request.out)
    found = list(run_jobs(train_and_probe, name_studies(repeat_with_seeds(POSITION_STUDIES, request)), request))
    groups = [
        DigitsRuns(study.name, [each.outcome for each in found if each.outcome.name == study.name])
        for study in POSITION_STUDIES
    ]
    for group in groups:
        yield from run_lines(group)
    parts = [*_probe_parts(found), *_padding_parts(found)]
    for part in parts:
        if isinstance(part, ReportText):
            yield part.text
    numbers = {"probes": {_result_name(each): each.probed for each in found if each.probed}}
    numbers["spread_of_starts"] = {_result_name(each): each.spread for each in found}
    lesson = LessonReport(
        "digits-positions", "Accuracy by position", POSITIONS_INTRODUCTION, groups, (), POSITIONS_REPEAT
    )
    yield write_lesson_report(request, lesson._replace(parts=parts, numbers=numbers))


def train_and_probe(study: DigitsStudy, tell: ProgressCallback = discard_progress) -> PositionResult:
    """Train, then fit the probe."""
    network, outcome = train_network(study, tell)
    generator = np.random.default_rng([study.seed, 2])
    fitted, held_out = (study.plan.draw_samples(PROBE_SAMPLES, generator) for _ in range(2))
    probed = probe_codes(network, fitted, held_out) if study.design.decoder == "repeat" else []
    return PositionResult(study, outcome, probed, held_out.starts.std(axis=0).tolist())


def probe_codes(network: DigitsNetwork, fitted: DigitSamples, held_out: DigitSamples) -> list[float]:
    """Fit a softmax regression from the code to the digit at each position.

    Args:
        network: Trained network without attention.
        fitted: Samples to fit the regression.
        held_out: Samples to evaluate it.

    Returns:
        Accuracy of the regression at each target position.
    """
    codes, answers = encode_codes(network, fitted)
    mean, deviation = codes.mean(dim=0), codes.std(dim=0) + 1e-6
    regression = nn.Linear(codes.shape[1], answers.shape[1] * NUM_OUTPUTS)
    optimizer = torch.optim.LBFGS(regression.parameters(), max_iter=100, line_search_fn="strong_wolfe")

    def cost() -> Tensor:
        """Return the cross-entropy over all positions."""
        optimizer.zero_grad()
        logits = regression((codes - mean) / deviation).view(-1, NUM_OUTPUTS)
        value = nn.functional.cross_entropy(logits, answers.flatten())
        value.backward()  # type: ignore[no-untyped-call]
        return value

    optimizer.step(cost)  # type: ignore[no-untyped-call]
    codes, answers = encode_codes(network, held_out)
    with torch.no_grad():
        read = regression((codes - mean) / deviation).view(*answers.shape, NUM_OUTPUTS).argmax(dim=-1)
    right: list[float] = (read == answers).float().mean(dim=0).tolist()
    return right


def encode_codes(network: DigitsNetwork, samples: DigitSamples) -> tuple[Float[Tensor, "N D"], Int[Tensor, "N T"]]:
    """Return the last encoder states and the target symbols."""
    with torch.no_grad():
        codes = network.encoder(*to_tensors(samples)).final.hidden[:, -1].clone()
    return codes, torch.from_numpy(samples.targets).long()


def _probe_parts(found: Sequence[PositionResult]) -> Iterator[ReportPart]:
    """Yield accuracy of decoder and probe by position."""
    probed = [each for each in found if each.probed and each.outcome.seed == 1]
    title = "Content of the code"
    for each in probed:
        reading = each.outcome._replace(final=each.outcome.final._replace(per_position=each.probed))
        groups = [
            DigitsRuns(f"{each.outcome.name}: written", [each.outcome]),
            DigitsRuns("read by the probe", [reading]),
        ]
        yield ReportFigure(title, "Seed 1.", to_svg(position_figure(groups)))
    lines = []
    for each in probed:
        written, held = np.array(each.outcome.final.per_position[:-1]), np.array(each.probed[:-1])
        agree = float(np.corrcoef(written, held)[0, 1])
        lines.append(
            f"{each.outcome.name}: mean accuracy of the digits {written.mean():.3f} written, {held.mean():.3f} "
            f"read by the probe; over positions the two go together with a correlation of {agree:.2f}. First five "
            f"places {written[:5].mean():.3f}, last five {written[-5:].mean():.3f}."
        )
    yield ReportText(title, "\n\n".join(lines))


def _padding_parts(found: Sequence[PositionResult]) -> Iterator[ReportPart]:
    """Yield accuracy of attention, with and without padding, and the spread of word starts."""
    title = "Effect of padding on attention"
    attention_results = [each for each in found if each.study.design.decoder == "attention" and each.outcome.seed == 1]
    rows = [
        [str(place + 1), *(f"{value:.3f}" for each in attention_results for value in _accuracy_and_spread(each, place))]
        for place in range(len(attention_results[0].spread) - 1)
    ]
    heads = ["position"]
    for each in attention_results:
        heads += [f"{each.outcome.name}: right", "letters of spread"]
    yield ReportTable(
        title, "Spread: standard deviation of the position at which the word begins. Seed 1.", heads, rows
    )
    lines = []
    for each in attention_results:
        right = np.array(each.outcome.final.per_position[:-1])
        words = f"{each.outcome.name}: first ten digits {right[:10].mean():.3f}, last ten {right[10:].mean():.3f}"
        lines.append(f"{words}, lowest {right.min():.3f} at {right.argmin() + 1}.")
    yield ReportText(title, "\n\n".join(lines))


def _accuracy_and_spread(found: PositionResult, place: int) -> tuple[float, float]:
    """Return accuracy and spread at a position."""
    return found.outcome.final.per_position[place], found.spread[place]


def _result_name(found: PositionResult) -> str:
    """Return name and seed of a run."""
    return f"{found.outcome.name}, seed {found.outcome.seed}"
