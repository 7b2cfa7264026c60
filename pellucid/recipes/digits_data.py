"""What the lessons look at before they train: the samples, their symbols, and the shape of everything."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from pellucid.data.synthetic import NUM_OUTPUTS, SYMBOLS, DigitSamples, draw_digits
from pellucid.files import make_folder, write_json
from pellucid.model.network import parameter_count
from pellucid.recipes.digits.networks import Design, DigitsNetwork, Kind, parameters_of, with_padding
from pellucid.recipes.digits.study import inputs_of
from pellucid.recipes.recipe import Request
from pellucid.viewer.report_schema import ReportPart, ReportTable
from pellucid.viewer.reports import Report, write_report

SAMPLES, LONGEST, BATCH = 3, 2, 100
TITLE = "Spelled digits: the data and the networks"
INTRODUCTION = """A sample is a row of digits spelled out and its digits, closed by #: nine eight, 98#. Both sides
share one table of 27 symbols, in the order in which Python 2 happened to list the letters in 2015; inputs use 16 of
them, targets 11. Rows are padded with 0, the digit 0 too, and a mask says what is there.

The shapes below come from a batch of 100 samples of 20 digits; the gradients from one pass of the same batch: a
parameter that nothing reaches would show a zero."""


class Layer(NamedTuple):
    """What one layer gives."""

    name: str
    shape: tuple[int, ...]


def run(request: Request) -> Iterator[str]:
    """Print three samples and every shape, and write them as a report."""
    make_folder(request.out)
    samples = draw_digits(SAMPLES, 1, LONGEST, np.random.default_rng(1))
    kinds: list[Kind] = ["repeat", "attention"]
    tables = [symbols_table(), *samples_tables(samples)]
    for kind in kinds:
        tables += network_tables(kind)
    for table in tables:
        yield from _lines(table)
    write_report(
        request.out / "report.html", Report(title=TITLE, introduction=INTRODUCTION, parts=list[ReportPart](tables))
    )
    counts = {kind: parameter_count(DigitsNetwork(Design(kind))) for kind in kinds}
    report = {
        "name": "digits-data",
        "parameters": counts,
        "samples": SAMPLES,
        "tables": [
            {"title": each.title, "caption": each.caption, "heads": each.heads, "rows": each.rows} for each in tables
        ],
    }
    write_json(request.out / "report.json", report)
    yield f"report: {request.out / 'report.html'}"


def symbols_table() -> ReportTable:
    """The symbols and their numbers, inputs' and targets' apart."""
    targets, inputs = SYMBOLS[:NUM_OUTPUTS], SYMBOLS[NUM_OUTPUTS:]
    rows = [
        ("in targets", " ".join(targets), f"0 to {NUM_OUTPUTS - 1}"),
        ("in inputs", " ".join(inputs.replace(" ", "␣")), f"{NUM_OUTPUTS} to {len(SYMBOLS) - 1}"),
    ]
    return ReportTable(
        "Symbols", "Valid characters, in the order of their numbers; ␣ is the space.", ("side", "", "numbers"), rows
    )


def samples_tables(samples: DigitSamples) -> Iterator[ReportTable]:
    """Each sample as text, as numbers and as masks; then shapes and kinds of the arrays."""
    for at, (source, target) in enumerate(samples.texts()):
        rows = [
            ("input text", source),
            ("target text", target),
            ("input", _spaced(samples.inputs[at])),
            ("input mask", _spaced(samples.input_masks[at])),
            ("target", _spaced(samples.targets[at])),
            ("target mask", _spaced(samples.target_masks[at])),
        ]
        yield ReportTable("Three samples of one or two digits", "", (f"sample {at + 1}", ""), rows)
    arrays = {name: getattr(samples, name) for name in ("inputs", "input_masks", "targets", "target_masks")}
    rows_of = [(name, str(array.dtype), str(array.shape)) for name, array in arrays.items()]
    yield ReportTable("Three samples of one or two digits", "", ("array", "kind of number", "shape"), rows_of)


def network_tables(kind: Kind) -> Iterator[ReportTable]:
    """The shape of every layer of a network, its parameters, and the gradient that reaches each."""
    torch.manual_seed(1)
    network = DigitsNetwork(Design(kind))
    batch = draw_digits(BATCH, 20, 20, np.random.default_rng(1))
    title = "Without attention" if kind == "repeat" else "With attention"
    rows = [(layer.name, str(layer.shape)) for layer in layers_of(network, batch)]
    yield ReportTable(title, "", ("layer", "shape"), rows)
    norms = gradient_norms(network, batch)
    listed = parameters_of(network)
    total = sum(int(np.prod(shape)) for _, shape in listed)
    caption = f"{total:,} parameters. Every gradient is greater than zero: all of them are connected to the cost."
    if min(norms) <= 0:
        apart = [name for (name, _), norm in zip(listed, norms, strict=True) if norm <= 0]
        caption = f"{total:,} parameters. NOT connected to the cost: {', '.join(apart)}"
    rows_of = [(name, str(shape), f"{norm:.2e}") for (name, shape), norm in zip(listed, norms, strict=True)]
    yield ReportTable(title, caption, ("parameter", "shape", "norm of its gradient"), rows_of)


def layers_of(network: DigitsNetwork, batch: DigitSamples) -> Sequence[Layer]:
    """What each layer gives for a batch, by running it."""
    inputs, lengths = inputs_of(batch)
    steps = batch.targets.shape[1]
    memory = network.encoder(inputs, lengths)
    layers = [Layer("input", tuple(inputs.shape)), Layer("one-hot", (*inputs.shape, network.encoder.table.size))]
    layers.append(Layer("encoder (GRU)", tuple(memory.states.shape)))
    if network.design.decoder == "attention":
        decoded, weights = network.decoder(with_padding(memory), steps)
        layers += [Layer("attention weights", tuple(weights.shape)), Layer("contexts", tuple(decoded.shape))]
    else:
        code = memory.final.hidden[:, -1]
        decoded = network.decoder(code, steps)
        layers += [Layer("last state: the code", tuple(code.shape)), Layer("decoder (GRU)", tuple(decoded.shape))]
    flat = decoded.flatten(0, 1)
    layers += [Layer("reshaped", tuple(flat.shape)), Layer("softmax", tuple(network.output(flat).shape))]
    return [*layers, Layer("reshaped back", tuple(network(inputs, lengths, steps).logits.shape))]


def gradient_norms(network: DigitsNetwork, batch: DigitSamples) -> list[float]:
    """The norm of the gradient that reaches each trained parameter; 0 where none does."""
    logits = network(*inputs_of(batch), batch.targets.shape[1]).logits
    cost = nn.functional.cross_entropy(logits.flatten(0, 1), torch.from_numpy(batch.targets).long().flatten())
    parameters = [parameter for parameter in network.parameters() if parameter.requires_grad]
    gradients = torch.autograd.grad(cost, parameters, allow_unused=True)
    return [0.0 if gradient is None else float(gradient.norm()) for gradient in gradients]


def _spaced(values: np.ndarray) -> str:
    """Numbers side by side."""
    return " ".join(f"{value:g}" for value in values)


def _lines(table: ReportTable) -> Iterator[str]:
    """A table for the terminal."""
    rows = [list(map(str, table.heads)), *(list(map(str, row)) for row in table.rows)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    yield f"\n{table.title}"
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if table.caption:
        yield table.caption
